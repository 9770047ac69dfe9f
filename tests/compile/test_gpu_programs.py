"""Whole steps on a GPU, as a tracer for CuPy carries them out: they give what the CPU gives, from captured graphs."""

import gc
import pickle
from contextlib import suppress
from typing import NamedTuple

import fakecupy
import numpy as np
import pytest
from everymodule import Cube
from fakecupy import useGpu
from gpunets import MODELS, close, dropping, images, perceptron, trained
from launches import needsEmulator
from spread import spread

from puregraph.compile import Programs
from puregraph.compile.gpu.lower import gpulowering
from puregraph.compile.gpu.runtime import autotune
from puregraph.compile.gpu.runtime.capture import Section
from puregraph.core import device, initial
from puregraph.core.errors import DataError, DtypeError, PuregraphError, ShapeError
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.sequential import Sequential
from puregraph.modules import (
    BatchNorm,
    Conv2D,
    Gelu,
    LayerNorm,
    Linear,
    Relu,
    Slice,
)
from puregraph.modules.costs import CrossEntropy
from puregraph.ops.cuda.libraries import cudnn
from puregraph.ops.cuda.libraries.librarycall import LibraryCall
from puregraph.ops.cuda.runtime import runner
from puregraph.ops.product.cuda import librarygemm
from puregraph.optimizers import SGD, Adam
from puregraph.serialize.checkpoint import loadInto, save
from puregraph.train import Accuracy, Calculator, Trainer

pytestmark = [needsEmulator, pytest.mark.filterwarnings("ignore:accumulate=")]


def onBoth(monkeypatch, make, batches, optimizer, libraries=True, **options):
    """The same on the CPU and on a GPU."""
    with device.useDevice("cpu"):
        near = trained(make, batches, optimizer(), **options)
    cupy = useGpu(monkeypatch, libraries)
    return near, trained(make, batches, optimizer(), **options), cupy.machine


def sameNet(far, near):
    for path, stored in {**near.params, **near.states}.items():
        there = {**far.params, **far.states}[path]
        assert device.isDeviceArray(there.data)
        close(there.data, stored.data)


def sections(program):
    return [part for _, part in program.executable.parts if type(part) is Section]


@pytest.mark.parametrize(("name", "libraries"), spread(2, MODELS, [True, False]))
def test_training_gives_what_the_cpu_gives_from_one_graph(monkeypatch, rng, name, libraries):
    make, shape, optimizer = MODELS[name]
    batches = images(rng, 4, *(shape or (None,)))
    found = onBoth(monkeypatch, make, batches, optimizer, libraries)
    (_, near, wanted), (program, far, got), machine = found
    assert program.why == ""
    assert (machine.reads, machine.replays) == (0, 3)
    (section,) = sections(program)
    assert len(program.executable.parts) == 1
    assert section.why == ""
    for each, other in zip(got, wanted, strict=True):
        for y, z in zip(each, other, strict=True):
            close(y, z)
    sameNet(far, near)


# What changes from run to run ------------------------------------------------------------------------------------------


def replayed(monkeypatch, rng, change, make=perceptron, shape=(7,), optimizer=Adam, n=6, **options):
    """Programs on both, with a change between runs: what each run gave, and both machines' nets."""
    batches = images(rng, n, *shape)

    def go():
        program, net, got = trained(make, batches[:2], optimizer(), **options)
        for i, batch in enumerate(batches[2:]):
            change(i, program, net)
            got.append(program.run(*batch))
        return program, net, got

    with device.useDevice("cpu"):
        _, near, wanted = go()
    cupy = useGpu(monkeypatch)
    program, far, got = go()
    for each, other in zip(got, wanted, strict=True):
        for y, z in zip(each, other, strict=True):
            close(y, z)
    sameNet(far, near)
    return program, cupy.machine


def test_a_changed_rate_needs_no_new_graph(monkeypatch, rng):
    def change(i, program, net):
        program.optimizer.learnRate = 0.1 / (i + 1)

    program, machine = replayed(monkeypatch, rng, change)
    assert machine.replays == 5


def test_a_schedule_and_the_number_of_steps_reach_the_graph(monkeypatch, rng):
    class Late(Adam):
        def __init__(self):
            super().__init__(schedule=lambda step: 1 / (1 + step))

    program, machine = replayed(monkeypatch, rng, lambda *_: None, optimizer=Late)
    assert machine.replays == 5
    assert program.optimizer.step == 6


def test_dropout_differs_from_step_to_step_as_on_the_cpu(monkeypatch, rng):
    x, t = images(rng, 1, 7)[0]

    def go():
        initial.seed(1)
        net = dropping()
        program = net.compile((5, 7), (5,), cost=CrossEntropy(), optimizer=SGD(0.0))
        return [program.run(x, t)[1] for _ in range(5)]

    with device.useDevice("cpu"):
        wanted = go()
    useGpu(monkeypatch)
    got = [device.toHost(y) for y in go()]
    for y, z in zip(got, wanted, strict=True):
        close(y, z)
    assert len({y.tobytes() for y in got}) == 5


def test_a_new_shape_a_mode_and_an_array_are_compiled_anew(monkeypatch, rng):
    def change(i, program, net):
        if i == 1:
            net["linear"].W.data = net["linear"].W.data * 2
        if i == 2:
            net["linear2"].b.trainable = False

    program, machine = replayed(monkeypatch, rng, change)
    assert machine.replays == 3


def test_a_graph_that_was_edited_is_compiled_anew(monkeypatch, rng):
    def change(i, program, net):
        if i == 1:
            net.insert(1, Relu(name="more"))

    program, machine = replayed(monkeypatch, rng, change)
    assert machine.replays == 4


def test_inputs_on_the_gpu_are_taken_from_there(monkeypatch, rng):
    batches = images(rng, 3, 7)
    (_, near, wanted), (program, far, got), machine = onBoth(monkeypatch, perceptron, batches, SGD)
    x, t = batches[0]
    with device.useDevice("cpu"):
        program2, *_ = trained(perceptron, batches[:1], SGD())
    first = program.run(device.toDevice(x), device.toDevice(t))
    again = program.run(x, t)
    assert np.isfinite(device.toHost(first[0])) and not np.array_equal(device.toHost(first[0]), device.toHost(again[0]))


@pytest.mark.parametrize("late", ["null first", "null last"])
@pytest.mark.parametrize("little", [1 << 17, 0], ids=["little", "large"])
def test_transfers_and_steps_wait_for_each_other_and_for_nobody_else(monkeypatch, rng, late, little):
    batches = images(rng, 12, 7)
    with device.useDevice("cpu"):
        _, near, wanted = trained(perceptron, batches, Adam())
    cupy = useGpu(monkeypatch, late=late)
    monkeypatch.setattr("puregraph.compile.gpu.runtime.h2d.SAME_STREAM_BYTES", little)
    monkeypatch.setattr("puregraph.compile.gpu.runtime.h2d.SMALL_COPY_BLOCKS", 3)
    cupy.machine.waits = 0
    program, far, got = trained(perceptron, [tuple(map(np.copy, batch)) for batch in batches], Adam())
    assert program.executable.deviceInputs.isLarge == (little == 0)
    assert cupy.machine.reads == 0
    assert cupy.machine.waits == 9
    for each, other in zip(got, wanted, strict=True):
        for y, z in zip(each, other, strict=True):
            close(y, z)
    sameNet(far, near)


def test_nothing_is_allocated_but_results_once_a_graph_runs(monkeypatch, rng):
    x, t = images(rng, 1, 7)[0]
    cupy = useGpu(monkeypatch)
    program, *_ = trained(perceptron, [(x, t)] * 12, Adam())
    before = cupy.machine.allocations, cupy.machine.launches
    cost, y = program.run(x, t)
    assert cupy.machine.allocations - before[0] == 2
    assert y.shape == (5, 4)


# What is not finite ----------------------------------------------------------------------------------------------------


def spoiled(rng, n, wrong, *shape):
    """Batches of which some give a cost that is nan."""
    batches = images(rng, n, *shape)
    for i in wrong:
        batches[i][0][0] = np.nan
    return batches


def test_clipped_gradients_are_those_of_the_cpu(monkeypatch, rng):
    (_, near, wanted), (program, far, got), machine = onBoth(
        monkeypatch, perceptron, images(rng, 5, 7), lambda: SGD(0.5, clipNorm=0.1)
    )
    assert machine.reads == 0
    sameNet(far, near)
    program.optimizer.sync()
    assert 0.1 < program.optimizer.norm < 10


def test_steps_whose_gradients_are_not_finite_are_left_out(monkeypatch, rng):
    batches = spoiled(rng, 30, (2, 3, 6, 20, 21, 22, 23, 29), 7)

    def make():
        net = perceptron()
        net["linear"].b.trainable = False
        return net

    (_, near, _), (program, far, _), machine = onBoth(
        monkeypatch, make, batches, lambda: Adam(0.1, onNonFinite="skip", schedule=lambda step: 1 / (1 + step))
    )
    program.optimizer.sync()
    assert program.optimizer.step == 22
    assert [slot.step for slot in program.optimizer.slots] == [22, 0, 22, 22]
    assert machine.reads == 0
    sameNet(far, near)


def test_a_gradient_that_is_not_finite_stops_all_updates_until_it_is_told(monkeypatch, rng):
    batches = spoiled(rng, 20, (3,), 7)
    with device.useDevice("cpu"):
        near, _ = perceptronAfter(batches[:3]), None
    useGpu(monkeypatch)
    program, far, _ = trained(perceptron, batches[:1], Adam(clipNorm=1.0))
    with pytest.raises(PuregraphError, match="Adam: at update 3 a gradient is not finite; try a lower learnRate"):
        for batch in batches[1:]:
            program.run(*batch)
    assert program.optimizer.step == 3
    sameNet(far, near)
    before = device.toHost(far["linear"].W.data).copy()
    program.run(*batches[0])
    program.optimizer.sync()
    assert program.optimizer.step == 4
    assert np.abs(device.toHost(far["linear"].W.data) - before).max() > 0


def perceptronAfter(batches):
    return trained(perceptron, batches, Adam(clipNorm=1.0))[1]


def test_a_trainer_stops_at_the_batch_whose_cost_is_not_finite(monkeypatch, rng):
    x = rng.standard_normal((60, 7)).astype(np.float32)
    t = rng.integers(0, 4, 60)
    x[37] = np.inf

    def go():
        initial.seed(1)
        net = residualRows()
        trainer = Trainer(net, CrossEntropy(), Adam(), batchsize=5, shuffle=False, progress="none")
        with pytest.raises(
            PuregraphError, match=r"epoch 1, batch 8: the cost is nan; data .sample \d+. of this batch holds values"
        ):
            trainer.train(x, t)
        return net, trainer

    with device.useDevice("cpu"):
        near, one = go()
    useGpu(monkeypatch)
    far, two = go()
    sameNet(far, near)
    assert one.optimizer.step == two.optimizer.step == 7
    assert all(device.toHost(s.data).all() for path, s in far.states.items() if "count" in path)


def residualRows():
    return Sequential(Linear(7, 6, useBias=False), BatchNorm(6), Relu(), Linear(6, 4))


# Training --------------------------------------------------------------------------------------------------------------


def test_a_script_runs_as_it_does_on_the_cpu(monkeypatch, rng):
    x, t = rng.standard_normal((23, 7)).astype(np.float32), rng.integers(0, 4, 23)

    def go():
        initial.seed(1)
        net = residualRows()
        trainer = Trainer(net, CrossEntropy(), Adam(0.01), batchsize=5, metrics=[Accuracy()], progress="none")
        trainer.train(x, t, epochs=3, validation=(x, t))
        return net, trainer, Calculator(net, batchsize=5).calculate(x)

    with device.useDevice("cpu"):
        near, one, wanted = go()
    cupy = useGpu(monkeypatch)
    far, two, got = go()
    sameNet(far, near)
    close(got, wanted)
    assert isinstance(got, np.ndarray)
    for row, other in zip(two.history, one.history, strict=True):
        for name in ("loss", "accuracy", "val loss", "val accuracy"):
            assert row[name] == pytest.approx(other[name], rel=1e-4)
    assert cupy.machine.replays > 15


def test_batches_are_added_up(monkeypatch, rng):
    x, t = rng.standard_normal((23, 7)).astype(np.float32), rng.integers(0, 4, 23)

    def go():
        initial.seed(1)
        net = perceptron()
        Trainer(net, CrossEntropy(), Adam(0.01), batchsize=4, accumulate=2, progress="none").train(x, t, epochs=2)
        return net

    with device.useDevice("cpu"):
        near = go()
    useGpu(monkeypatch)
    sameNet(go(), near)


def test_a_checkpoint_knows_the_updates_that_were_made(monkeypatch, rng, tmp_path):
    batches = spoiled(rng, 4, (2,), 7)
    useGpu(monkeypatch)
    program, net, _ = trained(perceptron, batches, Adam(onNonFinite="skip"))
    save(tmp_path / "net.h5", net, program.optimizer)
    again, optimizer = perceptron(), Adam(onNonFinite="skip")
    loadInto(tmp_path / "net.h5", again, optimizer.setupOn(again))
    assert optimizer.step == 3
    for path, array in optimizer.state.items():
        close(array, device.toHost(program.optimizer.state[path]))


# What is no launch -----------------------------------------------------------------------------------------------------


class Sorting(Module):
    """Each row in order; its gradient is spread evenly."""

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return np.sort(x, axis=1)

    def updateGrad(self, grad, x, y):
        return np.zeros_like(grad) + grad.mean(axis=1, keepdims=True)


def cubed():
    x = Input().node()
    return Graph(x, Linear(5, 4).node(Cube.node(Linear(7, 5).node(x))))


def ordered():
    return Sequential(Linear(7, 5), Sorting(), Linear(5, 4))


@pytest.mark.parametrize("make, between", [(cubed, "rule"), (ordered, "other")], ids=["a Function", "a function"])
def test_what_is_no_launch_runs_between_two_graphs(monkeypatch, rng, make, between):
    found = onBoth(monkeypatch, make, images(rng, 5, 7), SGD)
    (_, near, wanted), (program, far, got), machine = found
    assert machine.reads == 0
    for each, other in zip(got, wanted, strict=True):
        for y, z in zip(each, other, strict=True):
            close(y, z)
    sameNet(far, near)
    parts = [part if call is None else call.kind.name for call, part in program.executable.parts]
    assert [between] == list(dict.fromkeys(p for p in parts if not isinstance(p, Section)))
    assert all(s.graph is not None for s in sections(program))
    assert len(sections(program)) > 1
    graphs = [line.split()[-1] for line in program.table().splitlines() if line[:2].strip().isdigit()]
    assert {"1", "2", "-"} <= set(graphs)


def test_what_cannot_be_captured_runs_all_the_same_and_is_told(monkeypatch, rng):
    batches = images(rng, 3, 7)
    with device.useDevice("cpu"):
        _, near, _ = trained(perceptron, batches, SGD())
    useGpu(monkeypatch)
    start, calls = runner.start, []

    def failing(launches, place, workspace=0):
        calls.append(launches)
        if fakecupy.FakeArray.machine.captured is not None:
            raise RuntimeError("not while it captures")
        start(launches, place, workspace)

    monkeypatch.setattr(runner, "start", failing)
    program, far, _ = trained(perceptron, batches, SGD())
    sameNet(far, near)
    assert "0 graphs of CUDA; not captured: RuntimeError: not while it captures" in program.table()


# Other numbers and other steps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float16", 4e-3)])
@pytest.mark.parametrize("libraries", [True, False], ids=["libraries", "own"])
def test_other_floats_are_computed_with(monkeypatch, rng, dtype, tolerance, libraries):
    def make():
        net = Sequential(Linear(8, 16), LayerNorm(16), Gelu(), Linear(16, 4))
        net.calcMode(np.dtype(dtype))
        return net

    batches = [(x.astype(dtype), t) for x, t in images(rng, 4, 8)]
    found = onBoth(monkeypatch, make, batches, lambda: SGD(0.1), libraries)
    (_, near, wanted), (program, far, got), machine = found
    assert len(sections(program)) == 1 and machine.replays == 3
    for each, other in zip(got, wanted, strict=True):
        for y, z in zip(each, other, strict=True):
            assert y.dtype == z.dtype
            close(y, z, tolerance)
    for path, stored in near.params.items():
        assert far.params[path].data.dtype == dtype
        close(far.params[path].data, stored.data, tolerance)


def test_outputs_and_gradients_of_inputs_stay_on_the_gpu(monkeypatch, rng):
    x, grad = (rng.standard_normal(s).astype(np.float32) for s in ((5, 7), (5, 4)))

    def go():
        initial.seed(1)
        net = perceptron()
        program = net.compile((5, 7), train=True)
        first = program.run(x, grad)
        program.run(x * 2, grad)
        return first, program.run(x, grad), program.grad, net

    with device.useDevice("cpu"):
        wanted = go()
    useGpu(monkeypatch)
    got = go()
    for y, z in zip(got[:3], wanted[:3], strict=True):
        assert device.isDeviceArray(y)
        close(y, z)
    for path, param in wanted[3].params.items():
        close(got[3].params[path].grad, param.grad)


def test_evaluation_is_another_graph_in_the_same_memory(monkeypatch, rng):
    x = rng.standard_normal((8, 7)).astype(np.float32)
    useGpu(monkeypatch)
    net = dropping()
    programs = Programs(net)
    train, test = [programs.get([x], train=mode) for mode in (True, False)]
    one, two = [p.run(x) for p in (train, test)], [p.run(x) for p in (train, test)]
    assert train.executable.memory.arena is test.executable.memory.arena
    assert np.array_equal(device.toHost(one[1]), device.toHost(two[1]))
    assert not np.array_equal(device.toHost(one[0]), device.toHost(two[0]))


def test_a_label_that_is_no_class_is_told_as_the_graph_tells_it(monkeypatch, rng):
    useGpu(monkeypatch)
    x, t = images(rng, 1, 7)[0]
    program, *_ = trained(perceptron, [(x, t)] * 3, SGD())
    t[2] = 4
    with pytest.raises(
        DataError, match=r"wanted labels from 0 to 3 .* got label 4 for sample 2 of the batch.*\nat 'crossentropy'"
    ):
        program.run(x, t)
    t[2] = 3
    program.run(x, t)
    with pytest.raises(ShapeError, match="compile for that shape as well"):
        program.run(x[:3], t[:3])
    with pytest.raises(DtypeError, match=r"convert with \.astype\('float32'\)"):
        program.run(x.astype(float), t)


def test_a_program_knows_where_its_parameters_lie(monkeypatch, rng):
    x = rng.standard_normal((5, 7)).astype(np.float32)
    with device.useDevice("cpu"):
        net = perceptron()
        wanted = net.compile((5, 7)).run(x)
    useGpu(monkeypatch)
    program = net.compile((5, 7))
    assert program.backend.name != "gpu"
    close(program.run(x), wanted)
    for param in net.params.values():
        param.data = device.toDevice(param.data)
    close(program.run(x), wanted)
    assert program.backend.name == "gpu"
    close(pickle.loads(pickle.dumps(program)).run(x), wanted)
    net["linear"].b.data = device.toHost(net["linear"].b.data)
    with suppress(TypeError):
        program.run(x)
    assert program.why == "some parameters are on a GPU, others are not"


@pytest.mark.parametrize("isAsked", [False, True])
def test_libraries_are_asked_for_their_fastest_proposal_before_the_capture(monkeypatch, rng, isAsked):
    cupy = useGpu(monkeypatch)
    monkeypatch.setattr(autotune, "KNOWN", set())
    monkeypatch.setattr(gpulowering, "TUNING", 1 << 12)
    monkeypatch.setenv("PUREGRAPH_TUNE", "1" if isAsked else "0")
    monkeypatch.setattr(cupy.cuda, "get_elapsed_time", lambda first, last: 5000.0, raising=False)
    tried, times = [], []

    def tune(self, addresses, workspace, room, stream, time):
        assert room == (gpulowering.TUNING if isinstance(self, cudnn.CudnnCall) else self.workspace)
        assert len(addresses) == len(self.slots)
        tried.append(self.task)
        times.append(time(lambda: self.run(addresses, workspace, stream)))
        if len(tried) == 2:
            raise RuntimeError("a proposal that fails")

    for call in (librarygemm.Product, cudnn.CudnnCall):
        monkeypatch.setattr(call, "tune", tune)
    make, shape, optimizer = MODELS["lenet"]
    batches = images(rng, 3, *shape)
    program, net, got = trained(make, batches, optimizer())
    calls = [w.what for c in program.executable.schedule.calls if c.kind.isNative for w in c.function.works]
    assert set(tried) == ({each.task for each in calls if isinstance(each, LibraryCall)} if isAsked else set())
    assert len(tried) == len(set(tried)) and set(times) <= {1.0}
    assert program.executable.captured().note.startswith("1 graph of CUDA")
    with device.useDevice("cpu"):
        _, near, wanted = trained(make, batches, optimizer())
    for each, other in zip(got, wanted, strict=True):
        close(each[0], other[0])


@pytest.mark.parametrize(
    "beta, addresses, isTried", [(0.0, (1, 2, 3), True), (1.0, (1, 2, 3), False), (0.0, (1, 2, 1), False)]
)
def test_no_call_is_tried_twice_that_writes_over_what_it_reads(monkeypatch, beta, addresses, isTried):
    class Task(NamedTuple):
        beta: float

    tried = []

    class Product(LibraryCall):
        name, workspace, task = "product", 0, Task(beta)
        slots = tuple(("pointer", each) for each in addresses)

        def tune(self, addresses, workspace, room, stream, time):
            tried.append(addresses)

    monkeypatch.setattr(autotune, "KNOWN", set())
    monkeypatch.setattr(runner, "stream", lambda: 0)
    autotune.Tuned(Product(), lambda what: what, 0, 0).choose()
    assert bool(tried) == isTried


FEW, MANY = np.ones((512, 16), "f4"), np.ones((1024, 16), "f4")


def wideNet():
    """A network whose values take far more memory than its inputs and parameters."""
    return Sequential(Linear(16, 1024), Relu(), Linear(1024, 8)).evalMode()


def inNarrowMemory(machine, spare):
    """Programs that have run few samples, on a GPU that has `spare` bytes more than the arena for many would take."""
    net, other = wideNet(), wideNet()
    programs, wider = Programs(net), Programs(other)
    wider.get([MANY]).run(MANY)
    largest = wider.workspace.device.array.size
    del wider, other
    gc.collect()
    programs.get([FEW]).run(FEW)
    small = programs.workspace.device.array.size
    assert largest > small > spare
    machine.total = machine.live - small + largest + spare
    return net, programs


def test_the_smaller_arena_is_let_go_before_a_larger_one_is_made(monkeypatch):
    machine = useGpu(monkeypatch).machine
    net, programs = inNarrowMemory(machine, 1 << 20)
    for x in (MANY, FEW, MANY):
        close(programs.get([x]).run(x), device.toHost(net(device.toDevice(x))))


def test_memory_that_the_pool_keeps_is_given_back_before_a_step_is_refused(monkeypatch):
    machine = useGpu(monkeypatch).machine
    net, programs = inNarrowMemory(machine, 1 << 20)
    machine.cached = 1 << 20
    close(programs.get([MANY]).run(MANY), device.toHost(net(device.toDevice(MANY))))
    assert machine.cached == 0


def test_too_little_memory_is_said_with_both_figures_and_smaller_batches_go_on(monkeypatch):
    machine = useGpu(monkeypatch).machine
    net, programs = inNarrowMemory(machine, 1 << 20)
    machine.total -= 1 << 21
    with pytest.raises(
        MemoryError, match=r"needs [\d,]+ bytes of GPU memory, [\d,]+ of [\d,]+ are free: take a smaller"
    ):
        programs.get([MANY]).run(MANY)
    close(programs.get([FEW]).run(FEW), device.toHost(net(device.toDevice(FEW))))


@pytest.mark.parametrize("first", [3, 8])
def test_cudnn_gets_no_slice_that_begins_between_its_16_bytes(monkeypatch, rng, first):
    x = rng.standard_normal((2, 16, 6, 6)).astype("f4")

    def outputs():
        initial.seed(2)
        net = Sequential(Conv2D(16, 30, 3, pad=1), Slice()[:, first : first + 16], Conv2D(16, 8, 3, pad=1))
        program = net.calcMode("bfloat16").evalMode().compile([x.shape])
        return program, program.run(x)

    with device.useDevice("cpu"):
        _, wanted = outputs()
    useGpu(monkeypatch)
    program, found = outputs()
    assert program.why == ""
    np.testing.assert_allclose(device.toHost(found), wanted, atol=3e-2)
    calls = [
        each.what for call in program.executable.schedule.calls if call.kind.isNative for each in call.function.works
    ]
    libraries = [each for each in calls if isinstance(each, cudnn.CudnnCall)]
    assert len(libraries) == (2 if first % 8 == 0 else 1)
