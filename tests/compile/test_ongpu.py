"""On a GPU: programs give what the CPU gives, module by module and network by network; and what tests do there."""

import copy

import numpy as np
import ongpu
import pytest
from everyexample import everyExample
from everymodule import EXAMPLES, alone, examplesOf
from fakecupy import useCupy, useGpu
from launches import needsEmulator
from source import ROOT
from test_gpu_programs import MODELS, close, images, trained

from puregraph.core import device, initial
from puregraph.graph.steps import shapeOnly
from puregraph.modules import BatchNorm, Compress, Full, Linear
from puregraph.modules.costs import CrossEntropy
from puregraph.ops.cuda.runtime.launch import Launch, PointerTable
from puregraph.testing.check import Case, checkModule
from puregraph.testing.emulator import emulator
from puregraph.testing.emulator.emulator import KernelError
from puregraph.train import Trainer

ADD = 'extern "C" __global__ void add(float* x, float a) { x[2 * threadIdx.x] += a; }'
EACH = 'extern "C" __global__ void each(const long* table, long n) { ((float*)table[threadIdx.x])[0] += n; }'


# Where there is one ----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@everyExample(EXAMPLES, train=[True, False])
def test_a_program_of_a_module_gives_what_the_cpu_gives(found, index, train):
    module, shapes = examplesOf(found)[index]
    case = Case(module, shapes, train=train)
    results = []
    for name in ("cpu", "cuda"):
        with device.useDevice(name):
            results.append(programmed(case))
    (wanted, _), (got, note) = results
    for near, far in zip(wanted, got, strict=True):
        close(far, near)
    assert note == "" or "sizes depend on the data" in note


def programmed(case):
    """Outputs and gradients of a Program of a module in float32, the second time that it runs; why there is none."""
    module = copy.deepcopy(case.module).calcMode(np.float32)
    for stored in (*module.params.values(), *module.states.values()):
        stored.data = device.toDevice(stored.data)
    inputs = [np.array(x, np.float32 if x.dtype.kind == "f" else x.dtype) for x in case.inputs]
    net, inputs = alone(module, inputs)
    shapes, dtypes = [x.shape for x in inputs], [x.dtype for x in inputs]
    outputs = net(*map(device.toDevice, inputs))
    outputs = [*outputs] if isinstance(outputs, (tuple, list)) else [outputs]
    rng, seeds = np.random.default_rng(1), []
    if module.isTraining and [y.shape for y in outputs] != [()]:  # a cost has a gradient by itself
        seeds = [rng.standard_normal(y.shape).astype(y.dtype) for y in outputs]
    program = net.compile(shapes, dtypes=dtypes, train=module.isTraining)
    given = [device.toDevice(x) for x in (*inputs, *seeds)]
    for _ in range(2):
        found = program.run(*given)
    found = [*found] if isinstance(found, (tuple, list)) else [found]
    if module.isTraining:
        grads = program.grad if isinstance(program.grad, (tuple, list)) else [program.grad]
        found += [g for g in grads if g is not None] + [p.grad for p in module.params.values() if p.grad is not None]
    return [device.toHost(x) for x in found], program.why


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_training_gives_what_the_cpu_gives(name, rng):
    make, shape, optimizer = MODELS[name]
    batches = images(rng, 6, *(shape or (None,)))
    results = []
    for where in ("cpu", "cuda"):
        with device.useDevice(where):
            results.append(trained(make, batches, optimizer()))
    (_, near, wanted), (program, far, got) = results
    assert program.why == "" and program.executable.captured().note.startswith("1 graph of CUDA")
    for each, other in zip(got, wanted, strict=True):
        for y, z in zip(each, other, strict=True):
            close(y, z, 1e-3)
    for path, stored in {**near.params, **near.states}.items():
        close({**far.params, **far.states}[path].data, stored.data, 1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("kind, tolerance", [("tf32", 3e-3), ("bfloat16", 2e-2), ("float16", 5e-3)])
@pytest.mark.parametrize("name", MODELS)
def test_training_in_less_than_float32_comes_near_the_cpu(monkeypatch, name, kind, tolerance, rng):
    make, shape, optimizer = MODELS[name]
    batches = images(rng, 6, *(shape or (None,)))
    with device.useDevice("cpu"):
        _, _, wanted = trained(make, batches, optimizer())
    monkeypatch.setattr(
        "puregraph.compile.gpu.runtime.updatestatus.FIRST_SCALE", 2.0**10
    )  # so that no step is left out
    with device.useDevice("cuda"):
        program, far, got = trained(lambda: make().calcMode(kind), batches, optimizer())
    assert program.why == "" and program.executable.captured().note == "1 graph of CUDA"
    for (cost, *_), (other, *_) in zip(got, wanted, strict=True):
        close(cost, other, tolerance)
    program.optimizer.sync()
    assert program.optimizer.step == 6
    assert all(p.data.dtype == p.grad.dtype == np.float32 for p in far.params.values())


@pytest.mark.gpu
def test_a_script_runs_as_it_does_on_the_cpu(rng):
    make, shape, optimizer = MODELS["lenet"]
    x, t = rng.standard_normal((70, *shape)).astype(np.float32), rng.integers(0, 4, 70)
    losses = []
    for where in ("cpu", "cuda"):
        with device.useDevice(where):
            initial.seed(1)
            trainer = Trainer(make(), CrossEntropy(), optimizer(), batchsize=16, progress="none")
            trainer.train(x, t, epochs=4)
            losses.append([row["loss"] for row in trainer.history])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@needsEmulator
@pytest.mark.parametrize(
    "module, shape", [(Linear(3, 4), (5, 3)), (BatchNorm(3), (4, 3, 2, 2))], ids=["params", "states"]
)
def test_checks_compare_a_gpu_with_the_cpu(monkeypatch, module, shape):
    cupy = useGpu(monkeypatch)
    module = copy.deepcopy(module)
    checkModule(module, [shape])
    assert cupy.machine.reads > 0
    assert device.isDeviceArray(next(iter(module.params.values())).data)
    checkModule(module, [shape])


@needsEmulator
@pytest.mark.parametrize("module, shapes", [(Compress(), [(4, 3), (4,)]), (Full(1, "bool"), [(0,)])], ids=str)
def test_sizes_that_depend_on_the_data_are_those_of_the_cpu(monkeypatch, module, shapes):
    case = Case(module, shapes)
    wanted, _ = programmed(case)
    useGpu(monkeypatch)
    got, _ = programmed(case)
    for near, far in zip(wanted, got, strict=True):
        close(far, near)


@needsEmulator
def test_a_value_of_which_only_the_shape_is_asked_takes_no_memory_on_a_gpu(monkeypatch):
    useGpu(monkeypatch)
    kept = shapeOnly(device.toDevice(np.ones((4, 3), np.float32)))
    assert kept.shape == (4, 3) and kept.dtype == np.float32 and kept.strides == (0, 0)


# How tests use it -------------------------------------------------------------------------------------------------------


def adding(x, a):
    """x[::2] += a."""
    return Launch("adding", ADD, "add", (("pointer", x), ("float", a)), (1, 1, 1), (x.size, 1, 1))


@needsEmulator
def test_what_a_test_emulates_runs_on_a_gpu_on_the_same_memory(monkeypatch):
    cupy = useCupy(monkeypatch)
    monkeypatch.setattr(emulator, "run", None)
    x = np.arange(10, dtype=np.float32)
    wanted = x.copy()
    wanted[1::2] += 3
    ongpu.run([adding(x[1::2], 1.0), adding(x[1::2], 2.0)])
    np.testing.assert_array_equal(x, wanted)
    assert cupy.machine.launches == 2


def test_no_gpu_is_asked_to_run_kernels_that_are_broken():
    broken = {path.stem for path in (ROOT / "tests").rglob("test_*.py") if "import KernelError" in path.read_text()}
    assert broken - {"test_ongpu"} == set(ongpu.BROKEN)


@needsEmulator
def test_tables_hold_where_arrays_lie_there(monkeypatch):
    useCupy(monkeypatch)
    arrays = [np.full(3, float(i), np.float32) for i in range(4)]
    slots = ("pointer", PointerTable([[x] for x in arrays])), ("long", 7)
    ongpu.run([Launch("each", EACH, "each", slots, (1, 1, 1), (4, 1, 1))])
    assert [x.tolist() for x in arrays] == [[i + 7, i, i] for i in range(4)]


@needsEmulator
def test_what_is_written_beside_the_arrays_is_told(monkeypatch):
    cupy = useCupy(monkeypatch)
    x = np.zeros(8, np.float32)[::2]
    start = cupy.cuda.function.Function.__call__

    def spoil(self, grid, block, args, **options):
        start(self, grid, block, args, **options)
        cupy.machine.find(args[0])[4] = 0

    monkeypatch.setattr(cupy.cuda.function.Function, "__call__", spoil)
    with pytest.raises(KernelError, match="adding: bytes outside the arrays were written on the GPU"):
        ongpu.run([adding(x, 1.0)])
