"""What is kept in half as many bits on a GPU, what is not, and that training goes where float32 goes."""

import numpy as np
import pytest
from fakecupy import useGpu
from gpunets import MODELS, close, images, trained
from launches import gate, needsEmulator, needsNvrtc
from test_gpu_programs import cubed, ordered

from puregraph.autodiff import Checkpoint
from puregraph.core import device, initial
from puregraph.core.errors import PuregraphError
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import (
    GRU,
    AvgPool2D,
    BatchNorm,
    Concat,
    Conv2D,
    Deconv2D,
    Flatten,
    GroupNorm,
    HardSwish,
    Linear,
    Mean,
    MulAddConst,
    Relu,
    SoftMax,
    Split,
    Sum,
    Swish,
    Tanh,
    Transpose,
    Upsample2D,
)
from puregraph.modules.costs import MSE, CrossEntropy
from puregraph.ops.convolution.reference import convolve, convolveData, convolveWeight
from puregraph.ops.cuda.libraries import cudnn
from puregraph.ops.cuda.runtime.launch import Launch
from puregraph.ops.product.cuda import librarygemm
from puregraph.optimizers import SGD, Adam
from puregraph.train import Trainer

pytestmark = [needsEmulator, pytest.mark.filterwarnings("ignore:accumulate=")]


def tasks(program):
    """What cuBLASLt and cuDNN are told to compute in."""
    found = []
    for call in program.executable.schedule.calls:
        for task in call.function.works if call.kind.isNative else ():
            if isinstance(task.what, librarygemm.Product):
                found.append(task.what.task.compute)
            elif isinstance(task.what, cudnn.CudnnCall):
                found.append(task.what.task.kind)
    return found


def inPrecision(name, make, **exceptions):
    """What makes a network that calculates so, but for some modules."""

    def made():
        net = make().calcMode(name)
        for path, other in exceptions.items():
            net[path].calcMode(other)
        return net

    return made


# TF32 -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["perceptron", "lenet"])
def test_tf32_reaches_all_products_and_convolutions_and_nothing_else(monkeypatch, rng, name):
    make, shape, optimizer = MODELS[name]
    batches = images(rng, 2, *(shape or (None,)))
    with device.useDevice("cpu"):
        _, _, wanted = trained(make, batches, optimizer())
    useGpu(monkeypatch)
    plain, _, exact = trained(make, batches, optimizer())
    program, _, got = trained(inPrecision("tf32", make), batches, optimizer())
    assert set(tasks(plain)) == {"float32"}
    assert set(tasks(program)) == {"tf32"} and len(tasks(program)) == len(tasks(plain))
    assert plain.bytes <= program.bytes < plain.bytes + 2048  # filters, as a library wants them
    for each, other in zip(got, wanted, strict=True):
        close(each[0], other[0], 3e-3)
    assert any(np.abs(device.toHost(y[1]) - z[1]).max() > 1e-5 for y, z in zip(got, wanted))
    close(exact[0][1], wanted[0][1])


def test_a_module_may_be_an_exception_from_tf32(monkeypatch, rng):
    make, shape, optimizer = MODELS["perceptron"]
    useGpu(monkeypatch)
    program, *_ = trained(inPrecision("tf32", make, linear2="float32"), images(rng, 1, *shape), optimizer())
    assert sorted(tasks(program)) == ["float32", "float32", "float32", "tf32", "tf32"]


# 16 bits ----------------------------------------------------------------------------------------------------------------


def mixed():
    """Parts of what one layer makes, in another order beside what another makes."""
    x = Input().node()
    parts = Split(axis=1, sections=(2, 4)).node(Linear(7, 6).node(x))
    other = SoftMax().node(Linear(7, 5).node(x))
    return Graph(x, Linear(11, 4).node(Concat(axis=1).node((parts, 1), other, (parts, 0))))


def scaled():
    return Sequential(
        *(Deconv2D(2, 4, 3, stride=2), GroupNorm(2, 4), Swish(), Conv2D(4, 4, 3, groups=4), BatchNorm(4), HardSwish()),
        *(Upsample2D(2), Conv2D(4, 6, 1), AvgPool2D(2), Flatten(), Linear(6 * 7 * 7, 4)),
    )


def gated():
    return Sequential(GRU(3, 4), Flatten(), Linear(20, 4))


def again():
    return Sequential(Checkpoint(Sequential(Linear(7, 16), Tanh())), Linear(16, 4))


OTHERS = {
    "cubed": (cubed, (7,), SGD),
    "ordered": (ordered, (7,), SGD),
    "mixed": (mixed, (7,), SGD),
    "scaled": (scaled, (2, 4, 4), SGD),
    "gated": (gated, (5, 3), SGD),
    "again": (again, (7,), SGD),
}
NEAR = {"bfloat16": 2e-2, "float16": 3e-3}
EVERYDAY = [
    ("perceptron", "float16", True),
    ("cubed", "float16", True),
    ("lenet", "bfloat16", True),
    ("transforming", "bfloat16", True),
]
REST = [(name, kind, libraries) for name in {**MODELS, **OTHERS} for kind in NEAR for libraries in (True, False)]
CASES = EVERYDAY + [pytest.param(*case, marks=pytest.mark.slow) for case in REST if case not in EVERYDAY]


def kinds(program):
    """The kinds of numbers of all that a step makes, by name."""
    found = {}
    for call in program.executable.schedule.calls:
        for y in call.outs:
            if y.name not in ("", "scratch"):
                found.setdefault(y.name, []).append(y.dtype.name)
    return {name: " ".join(each) for name, each in found.items()}


def factors(program):
    """The kinds of numbers that products and convolutions multiply, whoever carries them out."""
    found = []
    for call in program.executable.schedule.calls:
        for each in call.function.calls if call.kind.isNative else [call]:
            if each.function in (np.matmul, convolve, convolveData, convolveWeight):
                found.append({v.dtype.name for v in each.values()[:2]})
    return found


def gradients(net):
    """The norm of all gradients."""
    return float(np.sqrt(sum((device.toHost(p.grad).astype(float) ** 2).sum() for p in net.params.values())))


@pytest.mark.parametrize(("name", "kind", "libraries"), CASES)
def test_training_in_16_bits_stays_near_float32(monkeypatch, rng, name, kind, libraries):
    make, shape, optimizer = {**MODELS, **OTHERS}[name]
    batches = images(rng, 4, *(shape or (None,)))
    with device.useDevice("cpu"):
        _, near, wanted = trained(make, batches, optimizer())
    cupy = useGpu(monkeypatch, libraries)
    monkeypatch.setattr(
        "puregraph.compile.gpu.runtime.updatestatus.FIRST_SCALE", 2.0**10
    )  # so that no step is left out
    program, far, got = trained(inPrecision(kind, make), batches, optimizer())
    assert program.why == "" and cupy.machine.reads == 0
    if name not in ("cubed", "ordered", "again"):  # what is no launch runs between two graphs
        assert len(program.executable.parts) == 1 and cupy.machine.replays == 3
    for (cost, *outputs), (other, *others) in zip(got, wanted, strict=True):
        assert cost.dtype == np.float32 and all(y.dtype == np.float32 for y in outputs)
        assert float(device.toHost(cost)) == pytest.approx(float(other), rel=NEAR[kind])
        for y, z in zip(outputs, others, strict=True):
            close(y, z, 2 * NEAR[kind])
    assert gradients(far) == pytest.approx(gradients(near), rel=NEAR[kind])
    for path, state in near.states.items():
        close(far.states[path].data, state.data, 2 * NEAR[kind])
    for path, stored in {**far.params, **far.states}.items():
        assert stored.data.dtype == {**near.params, **near.states}[path].dtype
    assert all(p.grad.dtype == np.float32 for p in far.params.values())
    assert factors(program) and all(each == {kind} for each in factors(program))


@needsNvrtc
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lenet", "bfloat16"),
        ("perceptron", "float16"),
        *(
            pytest.param(name, kind, marks=pytest.mark.slow)
            for name in {**MODELS, **OTHERS}
            if name not in ("cubed", "again")  # which have to run before they are compiled
            for kind in NEAR
            if (name, kind) not in (("lenet", "bfloat16"), ("perceptron", "float16"))
        ),
    ],
)
def test_kernels_of_16_bits_take_registers_alone(monkeypatch, rng, name, kind):
    make, shape, optimizer = {**MODELS, **OTHERS}[name]
    useGpu(monkeypatch)
    program, *_ = trained(inPrecision(kind, make), images(rng, 1, *(shape or (None,))), optimizer(), runs=0)
    works = [w.what for call in program.executable.schedule.calls if call.kind.isNative for w in call.function.works]
    monkeypatch.undo()  # NVRTC itself
    gate([each for each in works if isinstance(each, Launch)])


def test_outputs_and_their_gradients_are_kept_in_16_bits_and_nothing_else(monkeypatch, rng):
    make, shape, optimizer = MODELS["lenet"]
    useGpu(monkeypatch)
    program, *_ = trained(inPrecision("bfloat16", make), images(rng, 1, *shape), optimizer())
    found = kinds(program)
    layers = ("relu", "maxpool2d", "relu2", "maxpool2d2", "flatten", "relu3")
    halves = {f"sequential.{name}" for name in layers} | {f"grad:sequential.{name}.dx" for name in layers}
    halves = {name for name in found if name.startswith("sequential.") and not name.endswith((".W", ".b", "indices"))}
    assert {f"sequential.{name}" for name in layers} <= halves
    assert all(found[name] == "bfloat16" for name in halves - {"sequential.linear2"})
    assert found["sequential.linear2"] == "float32"  # what the user gets, of what is in registers
    assert found["crossentropy"] == "float32"
    assert {found[name] for name in found if name.endswith(".dx") or name.startswith("sum:")} == {"bfloat16"}
    assert all(
        found[f"sequential.{name}.{each}"].startswith("bfloat16") for name in ("conv2d", "linear") for each in "Wb"
    )
    assert all(p.data.dtype == p.grad.dtype == np.float32 for p in program.graph.params.values())
    assert "bfloat16 5,3,12,12 nhwc" in program.table()


@pytest.mark.parametrize(
    ("mode", "useBias", "wanted"),
    [
        ("float32", False, ["float32"] * 2),  # scores, and their gradient
        ("float32", True, ["float32"] * 2),
        ("bfloat16", False, ["bfloat16"] * 2),
        (np.float16, False, ["float16"] * 2),
        ("bfloat16", True, ["bfloat16"] * 2 + ["float32"]),  # and the probabilities of what was not rounded yet
    ],
)
def test_a_cost_over_many_words_keeps_probabilities_only_of_what_is_rounded_later(monkeypatch, mode, useBias, wanted):
    useGpu(monkeypatch)
    net = Sequential(Linear(7, 37, useBias=useBias), Transpose((0, 2, 1))).calcMode(mode)
    program = net.compile((5, 6, 7), (5, 6), cost=CrossEntropy(), optimizer=SGD(0.1), wanted=(True, False))
    made = [y for call in program.executable.schedule.calls for y in call.outs if y is not None and y.base is None]
    assert sorted(y.dtype.name for y in made if y.size == 5 * 6 * 37) == wanted


@pytest.mark.parametrize(
    ("mode", "libraries"), [("bfloat16", True), ("tf32", True), ("float32", True), ("tf32", False)]
)
def test_libraries_are_given_filters_channels_last_by_one_launch_and_users_are_not(monkeypatch, rng, mode, libraries):
    make, shape, optimizer = MODELS["lenet"]
    useGpu(monkeypatch, libraries)
    program, *_ = trained(inPrecision(mode, make), images(rng, 1, *shape), optimizer(clipNorm=0.1))
    works = [w.what for call in program.executable.schedule.calls if call.kind.isNative for w in call.function.works]
    given = {
        each.task.what: each.task.W for each in works if isinstance(each, cudnn.CudnnCall) and each.task.W.shape[1] > 1
    }
    assert len(given) == (3 if libraries else 0)
    isLast = libraries and mode != "float32"
    assert {W.strides == cudnn.channelsLast(W.shape) for W in given.values()} == ({isLast} if libraries else set())
    assert (
        sum(each.entry == "transpose" and each.name == "filters" for each in works if isinstance(each, Launch))
        == 2 * isLast
    )
    assert all(x.flags.c_contiguous for p in program.graph.params.values() for x in (p.data, p.grad))


def test_gradients_of_filters_are_turned_before_somebody_adds_to_them(monkeypatch, rng):
    def make():
        x, conv = Input().node(), Conv2D(3, 3, 3, pad=1, initscheme="xavier")
        return Graph(x, Linear(48, 4).node(Flatten().node(conv.node(Relu().node(conv.node(x))))))

    batches = images(rng, 3, 3, 4, 4)
    near, wanted, *_ = trained(inPrecision("float32", make), batches, SGD(0.1))
    useGpu(monkeypatch)
    far, got, *_ = trained(inPrecision("tf32", make), batches, SGD(0.1))
    entries = [w.what.entry for c in far.executable.schedule.calls if c.kind.isNative for w in c.function.works
               if isinstance(w.what, Launch)]  # fmt: skip
    assert entries.count("transpose") == 2
    for path, param in near.graph.params.items():
        close(far.graph.params[path].data, param.data, 1e-3)


def test_cells_keep_their_output_in_16_bits_but_not_their_state(monkeypatch, rng):
    make, shape, optimizer = MODELS["remembering"]
    useGpu(monkeypatch)
    program, *_ = trained(inPrecision("bfloat16", make), images(rng, 1, *shape), optimizer(), runs=0)
    found = kinds(program)
    assert found["sequential.lstm"] == "bfloat16" and found["sequential.lstm.cs"] == "float32"


def wide():
    initial.seed(1)
    return Sequential(Linear(7, 64, name="a"), Tanh(), Linear(64, 64, name="b"), Tanh(), Linear(64, 4, name="head"))


def test_a_step_takes_little_more_than_half_of_the_memory(monkeypatch, rng):
    x, t = rng.standard_normal((500, 7)).astype(np.float32), rng.integers(0, 4, 500)
    useGpu(monkeypatch)
    plain = wide().compile(x.shape, t.shape, cost=CrossEntropy(), optimizer=Adam())
    half = wide().calcMode("bfloat16").compile(x.shape, t.shape, cost=CrossEntropy(), optimizer=Adam())
    assert half.bytes < 0.65 * plain.bytes


def test_an_exception_calculates_in_float32_between_others_that_do_not(monkeypatch, rng):
    useGpu(monkeypatch)
    net = wide().calcMode("bfloat16")
    net["b"].calcMode("float32")
    program = net.compile((50, 7), (50,), cost=CrossEntropy(), optimizer=Adam())
    found = [sorted(each) for each in factors(program)]
    assert found.count(["float32"]) == 3  # forward, and both gradients
    assert found.count(["bfloat16"]) == 5
    assert kinds(program)["sequential.tanh"].split()[0] == "bfloat16"


def test_changes_that_are_too_small_for_16_bits_are_not_lost(monkeypatch, rng):
    x, t = images(rng, 1, 7)[0]

    def go():
        initial.seed(1)
        net = Sequential(Linear(7, 4, name="fc")).calcMode("bfloat16")
        net["fc"].W.data[...] = 1.0
        program = net.compile(x.shape, t.shape, cost=CrossEntropy(), optimizer=SGD(1e-3))
        for _ in range(20):
            program.run(x, t)
        return device.toHost(net["fc"].W.data)

    with device.useDevice("cpu"):
        wanted = go()
    useGpu(monkeypatch)
    got = go()
    each = np.abs(got - 1) / 20
    assert each.max() < 2.0**-9 / 2 and np.abs(got - 1).max() > 1e-3  # half of what bfloat16 has between 0.5 and 1
    np.testing.assert_allclose(got - 1, wanted - 1, rtol=0.05, atol=1e-5)


def test_a_checkpoint_in_16_bits_is_that_of_float32(monkeypatch, rng):
    make, shape, optimizer = MODELS["perceptron"]
    useGpu(monkeypatch)
    program, net, _ = trained(inPrecision("bfloat16", make), images(rng, 2, *shape), optimizer())
    twin = make()
    for path, p in twin.params.items():
        p.data = net.params[path].data
    assert net.save(None) == twin.save(None)
    assert {str(array.dtype) for array in program.optimizer.state.values()} == {"float32", "int64"}


def test_evaluation_in_16_bits_gives_float32(monkeypatch, rng):
    x = rng.standard_normal((5, 7)).astype(np.float32)
    with device.useDevice("cpu"):
        wanted = wide().evalMode()(x)
    useGpu(monkeypatch)
    program = wide().calcMode("bfloat16").compile((5, 7), train=False)
    y = program.run(x)
    assert y.dtype == np.float32 and kinds(program)["tanh"] == "bfloat16"
    assert not np.array_equal(device.toHost(y), wanted)
    close(y, wanted, 2e-2)


def test_what_was_converted_goes_on_as_it_is(monkeypatch, rng):
    make = MODELS["perceptron"][0]
    x, t = rng.standard_normal((5, 7)).astype(np.float16), rng.integers(0, 4, 5)
    useGpu(monkeypatch)
    found = []
    for precision in ("float32", "bfloat16"):
        initial.seed(1)
        net = make().calcMode(precision).calcMode(np.float16)
        program = net.compile(x.shape, t.shape, cost=CrossEntropy(), optimizer=SGD())
        found.append([device.toHost(y) for y in program.run(x, t)])
        assert "bfloat16" not in program.table()
    for y, z in zip(*found, strict=True):
        np.testing.assert_array_equal(y, z)


# The scale of gradients -------------------------------------------------------------------------------------------------


class Foreign(SGD):
    """An optimizer whose update is not only its formulas."""

    def advance(self, slot, rate, shrink=1.0):
        super().advance(slot, rate, shrink)


def scaledSteps(monkeypatch, batches, first, optimizer, **exceptions):
    """A perceptron in float16 after it was trained, beginning with a scale."""
    monkeypatch.setattr("puregraph.compile.gpu.runtime.updatestatus.FIRST_SCALE", first)
    return trained(inPrecision("float16", MODELS["perceptron"][0], **exceptions), batches, optimizer)


def test_a_scale_that_is_too_large_is_halved_and_no_update_made_until_it_fits(monkeypatch, rng):
    batches = [images(rng, 1, 7)[0]] * 12
    cupy = useGpu(monkeypatch)
    program, far, got = scaledSteps(monkeypatch, batches, 2.0**22, Adam(0.01))
    assert cupy.machine.reads == 0
    program.optimizer.sync()
    skipped = 12 - program.optimizer.step
    assert 0 < skipped < 9 and program.optimizer.lossScale == 2.0 ** (22 - skipped)
    costs = [float(device.toHost(y[0])) for y in got]
    assert len(set(costs[: skipped + 1])) == 1 and costs[-1] < costs[0]
    with device.useDevice("cpu"):
        _, near, wanted = trained(MODELS["perceptron"][0], batches[skipped:], Adam(0.01))
    assert {slot.step for slot in program.optimizer.slots} == {12 - skipped}
    for y, z in zip(got[skipped:], wanted, strict=True):
        close(y[0], z[0], 3e-3)
    for path, p in near.params.items():
        close(far.params[path].data, p.data, 3e-3)


def small(kind, optimizer):
    """A step whose gradients are too small for float16, and what it takes."""
    initial.seed(1)
    net = MODELS["perceptron"][0]().calcMode(kind)
    x, t = Input(name="x").node(), Input(name="t").node()
    cost = MulAddConst(1e-8).node(MSE().node(net.node(x), t))
    program = Graph([x, t], Mean().node(cost)).compile((5, 7), (5, 4), optimizer=optimizer)
    return net, lambda: program.run(np.ones((5, 7), np.float32), np.zeros((5, 4), np.float32))


def onBoth(monkeypatch, go):
    """A net that has run in float32 on the host, and one in float16 on the GPU."""
    with device.useDevice("cpu"):
        near = go("float32")
    useGpu(monkeypatch)
    return near, go("float16")


def test_the_scale_reaches_costs_whose_gradient_is_a_view_of_it(monkeypatch, rng):
    x = rng.standard_normal((5, 7)).astype(np.float32)

    def go(kind):
        initial.seed(1)
        net = Sequential(Linear(7, 4), Sum()).calcMode(kind)
        step = net.compile((5, 7), optimizer=SGD(0.0))
        for _ in range(6):  # the first ones are scaled by more than float16 holds, and left out
            step.run(x)
        return net

    near, far = onBoth(monkeypatch, go)
    for path, p in near.params.items():
        close(far.params[path].grad, p.grad, 3e-3)


def test_small_gradients_do_not_vanish(monkeypatch):
    def go(kind="float32"):
        net, run = small(kind, SGD(0.0))
        run()
        return gradients(net)

    with device.useDevice("cpu"):
        wanted = go()
    useGpu(monkeypatch)
    assert go("float16") == pytest.approx(wanted, rel=1e-2)
    monkeypatch.setattr("puregraph.compile.gpu.runtime.updatestatus.FIRST_SCALE", 1.0)
    assert go("float16") < 0.5 * wanted


def test_a_scale_that_has_long_been_good_is_doubled_up_to_a_limit(monkeypatch):
    useGpu(monkeypatch)
    optimizer = SGD(0.0)
    net, run = small("float16", optimizer)
    run()
    optimizer.sync()
    fields = {name: field.array for name, field in optimizer.later.fields.items()}
    assert optimizer.lossScale == 2.0**16 and fields["good"].get() == 1
    for before, after in ((2.0**16, 2.0**17), (2.0**24, 2.0**24)):
        fields["good"].values[...], fields["scale"].values[...] = 1999, before
        run()
        optimizer.sync()
        assert optimizer.lossScale == after and fields["good"].get() == 0


@pytest.mark.parametrize("make", [lambda: None, Foreign], ids=["nobody", "an optimizer of its own way"])
def test_gradients_for_others_are_as_they_are(monkeypatch, rng, make):
    x, t = images(rng, 1, 7)[0]

    def go(kind):
        initial.seed(1)
        net = MODELS["perceptron"][0]().calcMode(kind)
        net.compile(x.shape, t.shape, cost=CrossEntropy(), optimizer=make()).run(x, t)
        return net

    near, far = onBoth(monkeypatch, go)
    for path, p in near.params.items():
        close(far.params[path].grad, p.grad, 3e-3)
        close(far.params[path].data, p.data, 1e-4)


def test_clipping_sees_gradients_as_they_are(monkeypatch, rng):
    batches = images(rng, 3, 7)
    with device.useDevice("cpu"):
        near, net, _ = trained(MODELS["perceptron"][0], batches, SGD(0.5, clipNorm=0.1))
    useGpu(monkeypatch)
    program, far, _ = scaledSteps(monkeypatch, batches, 2.0**12, SGD(0.5, clipNorm=0.1))
    program.optimizer.sync()
    assert program.optimizer.norm == pytest.approx(near.optimizer.norm, rel=3e-3)
    assert gradients(far) == pytest.approx(gradients(net), rel=3e-3)
    for path, p in net.params.items():
        close(far.params[path].data, p.data, 3e-3)


@pytest.mark.parametrize("onNonFinite", [None, "skip"])
def test_gradients_that_no_scale_makes_finite_are_told_or_left_out(monkeypatch, rng, onNonFinite):
    batches = images(rng, 12, 7)
    batches[1][0][0] = np.nan
    useGpu(monkeypatch)
    if onNonFinite is None:
        with pytest.raises(PuregraphError, match="Adam: at update 1 a gradient is not finite"):
            scaledSteps(monkeypatch, batches, 1.0, Adam())
    else:
        program, *_ = scaledSteps(monkeypatch, batches, 1.0, Adam(onNonFinite="skip"))
        program.optimizer.sync()
        assert program.optimizer.step == 11 and program.optimizer.lossScale == 1.0


def test_batches_that_are_added_up_find_their_scale_as_well(monkeypatch, rng):
    x, t = rng.standard_normal((40, 7)).astype(np.float32), rng.integers(0, 4, 40)
    monkeypatch.setattr("puregraph.compile.gpu.runtime.updatestatus.FIRST_SCALE", 2.0**20)
    useGpu(monkeypatch)
    net = MODELS["perceptron"][0]().calcMode("float16")
    trainer = Trainer(net, CrossEntropy(), Adam(0.01), batchsize=4, accumulate=2, progress="none")
    trainer.train(x, t, epochs=2)
    trainer.optimizer.sync()
    skipped = 10 - trainer.optimizer.step
    assert 0 < skipped < 5 and trainer.optimizer.lossScale == 2.0 ** (20 - skipped)
    assert all(np.isfinite(device.toHost(p.data)).all() for p in net.params.values())


def test_a_trainer_in_float16_learns_and_adds_batches_up_as_on_the_cpu(monkeypatch, rng):
    x, t = rng.standard_normal((23, 7)).astype(np.float32), rng.integers(0, 4, 23)

    def go(kind, accumulate):
        initial.seed(1)
        net = MODELS["perceptron"][0]().calcMode(kind)
        trainer = Trainer(net, CrossEntropy(), Adam(0.01), batchsize=4, accumulate=accumulate, progress="none")
        trainer.train(x, t, epochs=2)
        trainer.optimizer.sync()
        return net, trainer

    for accumulate in (1, 2):
        with device.useDevice("cpu"):
            near, one = go("float32", accumulate)
        useGpu(monkeypatch)
        far, two = go("float16", accumulate)
        assert one.optimizer.step == two.optimizer.step
        assert two.optimizer.lossScale == 2.0**16 and one.optimizer.lossScale is None
        assert two.history[-1]["loss"] == pytest.approx(one.history[-1]["loss"], rel=3e-3)
        for path, p in near.params.items():
            close(far.params[path].data, p.data, 1e-2)
