"""NVRTC: texts become machine code for GPUs that are not here, with what they take of them."""

import pytest
from launches import gate, needsNvrtc

from puregraph.core.errors import DeviceError
from puregraph.core.storage import diskcache
from puregraph.ops.cuda.libraries import paths
from puregraph.ops.cuda.runtime import compiler
from puregraph.ops.cuda.runtime.launch import Launch

pytestmark = needsNvrtc

DOUBLED = 'extern "C" __global__ void doubled(float* x) { x[threadIdx.x] *= 2; }'
SPILLED = """
extern "C" __global__ void __launch_bounds__(1024) spilled(float* x, int n) {
  float a[120];
  for (int i = 0; i < 120; i++) a[i] = x[i * n + threadIdx.x];
  for (int j = 0; j < n; j++)
    for (int i = 0; i < 120; i++) a[i] = a[i] * a[(i + 7) % 120] + x[j];
  for (int i = 0; i < 120; i++) x[i * n + threadIdx.x] = a[i];
}
"""
INDEXED = """
extern "C" __global__ void indexed(float* x, int n) {
  float a[64];
  for (int i = 0; i < 64; i++) a[i] = x[i + threadIdx.x];
  for (int i = 0; i < n; i++) a[i * i & 63] += x[i];
  x[threadIdx.x] = a[n & 63];
}
"""


def launch(text, entry):
    return Launch(entry, text, entry, (), (1, 1, 1), (32, 1, 1))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_text_becomes_machine_code(arch):
    made = compiler.cubin(DOUBLED, arch)
    assert made.data.startswith(b"\x7fELF")
    used = made.resources["doubled"]
    assert 0 < used.registers < 32
    assert used[1:] == (0, 0, 0)


def test_a_spill_does_not_pass_the_gate():
    gate([launch(DOUBLED, "doubled")])
    with pytest.raises(AssertionError, match=r"spilled spills \d+ bytes on sm_90"):
        gate([launch(SPILLED, "spilled")])
    with pytest.raises(AssertionError, match="indexed has 256 bytes of local memory on sm_90"):
        gate([launch(INDEXED, "indexed")])
    gate([launch(INDEXED, "indexed")], local=256)


def test_blocks_share_a_processor_unless_their_registers_are_spilled_then():
    alone = SPILLED.replace("120", "40").replace("(1024)", "(128)")
    shared = alone.replace("(128)", "(128, 16)")
    assert compiler.resourcesIn(compiler.compiled(shared, "sm_90")[1])["spilled"].spills
    assert compiler.cubin(shared, "sm_90").resources == compiler.cubin(alone, "sm_90").resources
    assert not compiler.cubin(shared, "sm_90").resources["spilled"].spills


def test_the_older_architecture_is_asked_where_it_could_matter():
    bound = DOUBLED.replace("void ", "void __launch_bounds__(32, 256) ")
    assert [arch for arch, _ in gate([launch(DOUBLED, "doubled")])] == ["sm_90"]
    assert [arch for arch, _ in gate([launch(DOUBLED, "doubled")], everywhere=True)] == ["sm_90", "sm_80"]
    assert [arch for arch, _ in gate([launch(bound, "doubled")])] == ["sm_90", "sm_80"]


def test_what_nvrtc_says_is_handed_on():
    with pytest.raises(DeviceError, match=r"refuses the text of a kernel for sm_90: kernel\(2\): error: identifier"):
        compiler.cubin('extern "C" __global__ void k() {\nnothing(); }', "sm_90")
    with pytest.raises(DeviceError, match="sm_1"):
        compiler.cubin(DOUBLED, "sm_1")


def test_a_cubin_is_made_once(monkeypatch, tmp_path):
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path))
    text = DOUBLED + "  // stored"
    first = compiler.cubin(text, "sm_90")
    assert compiler.cubin(text, "sm_90") is first
    compiler.KNOWN.pop((text, "sm_90"))
    monkeypatch.setattr(compiler, "compiled", None)
    assert compiler.cubin(text, "sm_90") == first
    assert [path.suffix for path in tmp_path.iterdir()] == [diskcache.SUFFIX]


def test_several_are_made_at_a_time():
    texts = [f"{DOUBLED}  // {i}" for i in range(3)]
    made = compiler.compileAll([*texts, texts[0]], "sm_90")
    assert len(made) == 3
    assert made[1] is compiler.cubin(texts[1], "sm_90")


def test_a_missing_nvrtc_is_said(monkeypatch):
    monkeypatch.setattr(paths, "candidates", lambda stem, versions: iter(["/nowhere/libnvrtc.so"]))
    with pytest.raises(DeviceError, match=r"no nvrtc was found: pip install puregraph\[nvrtc\] .*/nowhere/libnvrtc.so"):
        paths.load.__wrapped__("nvrtc", hint="pip install puregraph[nvrtc]")
