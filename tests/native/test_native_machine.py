"""Kernels from text to address: what they compute, and a cache that is never believed when it is damaged."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from kernels import call, scale, scaled, slots
from processes import environment

from puregraph.core.errors import DeviceError
from puregraph.core.storage import diskcache
from puregraph.ops.native.llvm import jit

if not jit.available():
    pytest.skip(str(jit.missing()), allow_module_level=True)


SCRIPT = "import sys, kernels; print(kernels.scaled(map(int, sys.argv[1].split(','))))"


@pytest.fixture(autouse=True)
def ownCache(monkeypatch, tmp_path):
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where it was asked for already


def start(factors):
    """A process that loads kernels, uses them, and prints which of them it had to make."""
    command = [sys.executable, "-W", "error", "-c", SCRIPT, ",".join(map(str, factors))]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def made(*factors, **variables):
    """Which kernels have to be made where none is loaded yet, as in a new process."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(jit, "LOADED", {})
        diskcache.sweep.cache_clear()
        return scaled(factors)


def finish(process):
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return [int(word) for word in out.strip("[]\n").split(",") if word]


def stored(folder):
    return sorted(Path(folder).glob("*.kernel"))


def test_a_kernel_computes():
    x = np.linspace(-3, 3, 50, dtype=np.float32)
    y = np.zeros_like(x)
    library = jit.load("a kernel computes", lambda: (scale(7), ["x", "y"], 128))
    call(library, slots(x, y), 50)
    np.testing.assert_array_equal(y, 7 * x)
    assert library.names == ("x", "y")
    assert library.scratch == 128


def test_a_loaded_kernel_is_not_made_again():
    first = jit.load("made once", lambda: (scale(2), [], 0))
    assert jit.load("made once", lambda: pytest.fail("made twice")) is first
    other = jit.load("made once", lambda: (scale(3), [], 0), "another digest")
    assert other.address != first.address


def test_threads_that_want_the_same_kernel_make_it_once():
    times, found = [], []

    def make():
        times.append(1)
        time.sleep(0.05)  # until the others have come
        return scale(5), [], 0

    threads = [threading.Thread(target=lambda: found.append(jit.load("by threads", make))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(times) == 1
    assert len(found) == 6
    assert len({library.address for library in found}) == 1


def test_many_are_compiled_in_their_order(monkeypatch):
    monkeypatch.setenv("PUREGRAPH_THREADS", "3")
    wants = [(f"one of many {factor}", lambda factor=factor: (scale(factor), [], factor)) for factor in range(2, 12)]
    libraries = jit.compileAll(wants)
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    for factor, library in zip(range(2, 12), libraries):
        assert library.scratch == factor
        call(library, slots(x, y), 4)
        np.testing.assert_array_equal(y, np.full(4, factor))


def test_another_process_finds_what_was_stored(tmp_path):
    assert made(2, 3) == [2, 3]
    assert len(stored(tmp_path / "cache")) == 2
    assert finish(start([2, 3, 4])) == [4]


def test_damaged_files_are_made_again(tmp_path):
    made(2, 3, 4, 5, 6, 7)
    rng = np.random.default_rng(0)
    before = {path: path.read_bytes() for path in stored(tmp_path / "cache")}
    damages = [
        lambda whole, at: b"",
        lambda whole, at: whole[:at],
        lambda whole, at: whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :],
        lambda whole, at: b"#!/bin/sh\n",
        lambda whole, at: whole + b"\0",
        lambda whole, at: whole[:60],
    ]
    for (path, whole), damage in zip(before.items(), damages, strict=True):
        path.write_bytes(damage(whole, int(rng.integers(len(whole)))))
    assert made(2, 3, 4, 5, 6, 7) == [2, 3, 4, 5, 6, 7]
    assert {path: path.read_bytes() for path in stored(tmp_path / "cache")} == before
    assert made(2, 3, 4, 5, 6, 7) == []


def test_every_single_changed_byte_is_noticed():
    whole = diskcache.pack("name", {"names": ["x"], "scratch": 0}, bytes(range(100)))
    assert diskcache.unpack("name", whole) == ({"names": ["x"], "scratch": 0}, bytes(range(100)))
    for at in range(len(whole)):
        assert diskcache.unpack("name", whole[:at]) is None
        assert diskcache.unpack("name", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]) is None


def test_processes_that_compile_the_same_at_once_agree(tmp_path):
    factors = list(range(2, 10))
    rng = np.random.default_rng(0)
    processes = [start(rng.permutation(factors)) for _ in range(3)]
    assert set().union(*(finish(process) for process in processes)) == set(factors)
    assert len(stored(tmp_path / "cache")) == len(factors)
    assert not list((tmp_path / "cache").glob("*.part"))
    assert made(*factors) == []


def test_a_cpu_that_is_named_has_kernels_of_its_own(tmp_path):
    if jit.processor() != "x86":
        pytest.skip("names of x86 processors")
    assert made(2) == [2]
    assert made(2, PUREGRAPH_CPU="x86-64-v2") == [2]
    assert made(2, PUREGRAPH_CPU="x86-64-v2") == []
    assert len(stored(tmp_path / "cache")) == 2


def test_a_cpu_that_llvm_does_not_know_is_refused_by_name(tmp_path):
    if jit.processor() != "x86":
        pytest.skip("names of x86 processors")
    code = """
import os, sys
import numpy as np
from puregraph import *
from puregraph.core.errors import DeviceError
x, net = np.ones((4, 2), "f4"), Sequential(Linear(2, 2), Relu())
for os.environ["PUREGRAPH_CPU"] in sys.argv[1:]:
    for use in (lambda: net.compile(x.shape), lambda: Calculator(net).calculate(x), lambda: net.compile(x.shape)):
        try:
            use()
        except DeviceError as error:
            print(str(error).split(";")[0])
    print(net(x).shape)
"""
    names = "foo", "i386", "x86-64,+avx"
    variables = environment(PUREGRAPH_CPU=names[0], PUREGRAPH_CACHE=str(tmp_path))
    command = [sys.executable, "-c", code, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=variables)
    assert done.returncode == 0, done.stderr
    wanted = [[f"PUREGRAPH_CPU={name}: LLVM knows no such CPU"] * 3 + ["(4, 2)"] for name in names]
    assert done.stdout.splitlines() == sum(wanted, [])


@pytest.mark.parametrize(("name", "bits"), [("x86-64", 128), ("x86-64-v3", 256), ("haswell", 256), ("x86-64-v4", 512)])
def test_the_width_of_vectors_follows_the_named_cpu(monkeypatch, name, bits):
    if jit.processor() != "x86":
        pytest.skip("names of x86 processors")
    monkeypatch.setenv("PUREGRAPH_CPU", name)
    assert (jit.name, jit.bits, jit.lanes(4), jit.lanes(8)) == (name, bits, bits // 32, bits // 64)


def test_the_width_of_vectors_here_is_that_of_the_features():
    features = jit.features.split(",")
    wanted = 512 if "+avx512f" in features else 256 if "+avx2" in features else 128
    assert jit.bits == wanted
    with pytest.raises(AttributeError, match="has no attribute 'width'"):
        jit.width


def test_a_folder_that_takes_no_files_is_replaced(tmp_path):
    (tmp_path / "cache").write_text("not a folder")
    assert made(2) == [2]
    assert made(2) == []
    (spare,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert len(stored(spare)) == 1


@pytest.mark.skipif(os.name == "nt", reason="temporary files are the user's own there")
def test_a_spare_folder_that_others_may_write_to_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"puregraph-{os.getuid()}"
    assert diskcache.spareFolder() == str(folder)
    folder.chmod(0o777)
    assert diskcache.spareFolder() is None
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    assert diskcache.spareFolder() is None


def test_where_kernels_are_kept(monkeypatch, tmp_path):
    assert next(diskcache.folders()) == str(tmp_path / "cache")
    monkeypatch.delenv("PUREGRAPH_CACHE")
    if os.name != "nt":
        monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
        assert next(diskcache.folders()) == "/somewhere/cache/puregraph"
        monkeypatch.setenv("XDG_CACHE_HOME", "relative, which the standard tells to ignore")
        monkeypatch.setenv("HOME", "/home/somebody")
        assert next(diskcache.folders()) == "/home/somebody/.cache/puregraph"
        monkeypatch.setattr(diskcache.os.path, "expanduser", lambda path: path)  # nobody has no home
        assert list(diskcache.folders()) == [diskcache.spareFolder()]


def test_what_nobody_used_for_long_is_removed(tmp_path):
    folder = tmp_path / "cache"
    assert made(2, 3) == [2, 3]
    forgotten, used = stored(folder)
    killed, writing = (folder / f"{used.name}.{process}.0.part" for process in (1, 2))
    killed.write_bytes(b"half")
    writing.write_bytes(b"half")
    (folder / "notes.txt").write_text("somebody's")
    longAgo = time.time() - 100 * 86400
    for path in (forgotten, killed, folder / "notes.txt"):
        os.utime(path, (longAgo, longAgo))
    assert made(4) == [4]
    assert not forgotten.exists()
    assert used.exists()
    assert {path.name for path in folder.iterdir() if path.suffix != ".kernel"} == {"notes.txt", writing.name}


def test_reading_a_kernel_keeps_it_from_being_forgotten(tmp_path):
    assert made(2) == [2]
    (path,) = stored(tmp_path / "cache")
    os.utime(path, (time.time() - 50 * 86400,) * 2)
    assert made(2) == []
    assert time.time() - path.stat().st_mtime < 86400


CALLS = """
declare void @llvm.memcpy.p0i8.p0i8.i64(i8*, i8*, i64, i1)
declare float @tanhf(float)
declare float @expf(float)
declare double @fmod(double, double)
declare i8* @memset(i8*, i32, i64)

define internal float @helper(float %x) noinline {
    %y = call float @tanhf(float %x)
    %e = call float @expf(float %y)
    %d = fpext float %e to double
    %m = call double @fmod(double %d, double 1.0)
    %f = fptrunc double %m to float
    ret float %f
}

define void @kernel(float** %args, i64 %count, i8* %scratch) {
    %x = load float*, float** %args
    %slot = getelementptr float*, float** %args, i64 1
    %y = load float*, float** %slot
    %from = bitcast float* %x to i8*
    %to = bitcast float* %y to i8*
    call void @llvm.memcpy.p0i8.p0i8.i64(i8* %to, i8* %from, i64 %count, i1 false)
    %second = getelementptr float, float* %y, i64 1
    %value = load float, float* %second
    %result = call float @helper(float %value)
    store float %result, float* %second
    %third = getelementptr float, float* %y, i64 2
    %bytes = bitcast float* %third to i8*
    %size = mul i64 %count, 1
    %rest = sub i64 %size, 8
    %ignored = call i8* @memset(i8* %bytes, i32 255, i64 %rest)
    ret void
}
"""


def test_functions_that_a_kernel_calls_are_found():
    x, y = np.array([4, 0.5, 6, 7], np.float32), np.zeros(4, np.float32)
    call(jit.load("calls", lambda: (CALLS, [], 0)), slots(x, y), 16)
    np.testing.assert_allclose(y[:2], [4, np.exp(np.tanh(0.5)) % 1], rtol=1e-6)
    assert np.isnan(y[2:]).all()


def test_helpers_and_tables_of_one_kernel_are_not_those_of_another():
    def text(number):
        return f"""
@table = constant [2 x float] [float {number}.0, float {number + 1}.0]

define float @helper(i64 %i) noinline {{
    %place = getelementptr [2 x float], [2 x float]* @table, i64 0, i64 %i
    %value = load volatile float, float* %place
    ret float %value
}}

define void @kernel(float** %args, i64 %task, i8* %scratch) {{
    %x = load float*, float** %args
    %value = call float @helper(i64 %task)
    store float %value, float* %x
    ret void
}}
"""

    libraries = [jit.load(f"helpers {number}", lambda number=number: (text(number), [], 0)) for number in (10, 20, 30)]
    x = np.zeros(1, np.float32)
    for number, library in zip((10, 20, 30), libraries):
        for task in (0, 1):
            call(library, slots(x), task)
            assert x[0] == number + task


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("define void @kernel(", "LLVM refuses the code of a kernel"),
        ("define void @other() {\n ret void\n}", "there is no function named 'kernel'"),
        ("define i64 @kernel(i64 %x) {\n %y = add i64 %z, %x\n ret i64 %y\n}", "use of undefined value '%z'"),
    ],
)
def test_code_that_llvm_refuses_is_an_error_that_names_the_kernel(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        jit.load(text, lambda: (text, [], 0))
    assert f"kernel '{text}': " in str(caught.value)
    assert not stored(tmp_path / "cache")
    assert jit.load(text, lambda: (scale(2), [], 0)).address  # the next try is not refused


def test_an_error_of_who_makes_a_kernel_passes_through():
    def make():
        raise KeyError("no such kernel")

    with pytest.raises(KeyError, match="no such kernel"):
        jit.load("not made", make)


def test_without_llvm_nothing_fails_until_it_is_used():
    code = """
import sys
sys.modules["llvmlite"] = None
from puregraph.core.errors import DeviceError
from puregraph.ops.native.llvm import jit as machine
from puregraph.ops.native.threads import pool
print(machine.available())
for use in (lambda: machine.lanes(4), lambda: machine.bits, lambda: machine.load("x", None), lambda: pool.StepTable([])):
    try:
        use()
    except DeviceError as error:
        assert "pip install puregraph[fast]" in str(error), error
    else:
        raise SystemExit("no error")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("False", "")


def test_an_llvmlite_that_is_too_old_is_not_used(monkeypatch):
    for function in (jit.missing, jit.binding):
        function.cache_clear()
    monkeypatch.setattr(jit, "version", lambda: (0, 43))
    try:
        assert jit.missing() == "native kernels need llvmlite 0.44 or newer, not 0.43: pip install puregraph[fast]"
        assert not jit.available()
        with pytest.raises(DeviceError, match="0.44 or newer"):
            jit.objectFrom("")
    finally:
        for function in (jit.missing, jit.binding):
            function.cache_clear()
    monkeypatch.undo()
    assert jit.available()


def test_a_process_keeps_to_the_version_that_it_began_with(tmp_path):
    package = Path(diskcache.__file__).parent.parent.parent
    shutil.copytree(package, tmp_path / "puregraph", ignore=shutil.ignore_patterns("models"))
    script = (
        "import pathlib, puregraph.compile.runtime.segment as native\n"
        "before = native.DIGEST\n"
        "ops = pathlib.Path('puregraph/ops')\n"
        "digests = {before}\n"
        "for name in ('formula/loopnest.py', 'pooling/native.py', 'product/native/gemm.py'):\n"
        "    path = ops / name\n"
        "    path.write_text(path.read_text() + '# another version\\n')\n"
        "    digests.add(native.digestOf(ops))\n"
        "print(before == native.DIGEST, len(digests))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "4"]
