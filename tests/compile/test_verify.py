"""PUREGRAPH_VERIFY=1: steps are checked against numpy on their operands; wrong kernels, memory and lifetimes are named."""

import re
from contextlib import nullcontext

import numpy as np
import pytest
from natively import needsNative

from puregraph import (
    LSTM,
    MSE,
    SGD,
    Adam,
    Add,
    AvgPool2D,
    Conv2D,
    CrossEntropy,
    Flatten,
    Graph,
    GraphWarning,
    Input,
    LayerNorm,
    Linear,
    Max,
    Mul,
    MulAddConst,
    Relu,
    Sequential,
    Sigmoid,
    SoftMax,
    Sum,
    Tanh,
    models,
)
from puregraph.compile import verify
from puregraph.compile.lower import nestcache
from puregraph.compile.memory import planner
from puregraph.compile.passes import nestlines
from puregraph.compile.program import Program
from puregraph.compile.runtime import guardbands
from puregraph.compile.runtime.guardbands import GAP_BYTES, faultOf
from puregraph.compile.runtime.segment import Segment
from puregraph.compile.trace import graphtracer
from puregraph.compile.verify import VerifyError
from puregraph.core import initial
from puregraph.ops.convolution.native.directspec import DirectConvolution
from puregraph.ops.formula import Formula
from puregraph.ops.formula.expr import walk
from puregraph.ops.formula.loopnest import HEAVY
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.nests import nestcode, rowkernel

X = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)


@pytest.fixture
def verified(monkeypatch):
    monkeypatch.setenv("PUREGRAPH_VERIFY", "1")
    nestcache.template.cache_clear()
    yield
    nestcache.template.cache_clear()


def net():
    initial.seed(0)
    return Sequential(Linear(5, 7, name="a"), Tanh(name="t"), Linear(7, 3, name="b"), SoftMax(name="s"), name="net")


def steps(program):
    return [step for part in program.executable.parts for step in part.steps]


def test_without_the_variable_a_program_has_no_checks(monkeypatch):
    monkeypatch.delenv("PUREGRAPH_VERIFY", raising=False)
    program = net().compile([X.shape], train=False)
    assert program.executable.observer is None and program.fastPath is not None or not program.executable.segments
    assert all(type(step.function) is Segment for step in steps(program) if program.executable.segments)


@pytest.mark.parametrize("value, isOn", [("1", True), ("on", True), ("0", False), ("", False), ("off", False)])
def test_the_variable_is_1_or_on(monkeypatch, value, isOn):
    monkeypatch.setenv("PUREGRAPH_VERIFY", value)
    assert verify.isOn() is isOn


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_program_that_verifies_itself_gives_what_its_graph_gives(verified, dtype):
    one = net().calcMode(dtype)
    x = X.astype(dtype)
    program = one.compile([x.shape], train=False, dtypes=[x.dtype])
    for _ in range(3):
        np.testing.assert_allclose(program.run(x), one(x), rtol=1e-5)


def test_training_steps_with_states_and_an_optimizer_are_verified(verified, rng):
    initial.seed(0)
    lenet = models.lenet(size=12, maps=(2, 3), norm=True)
    program = lenet.compile([(4, 1, 12, 12), (4,)], cost=CrossEntropy(), optimizer=Adam(0.01), dtypes=["f4", "i8"])
    x = rng.standard_normal((4, 1, 12, 12)).astype(np.float32)
    losses = [float(program.run(x, np.arange(4))[0]) for _ in range(5)]
    assert losses[-1] < losses[0]


@needsNative
@pytest.mark.parametrize("cpu", ["", "haswell"])
@pytest.mark.parametrize("name", ["lenet", "lstm", "attention", "depthwise"])
def test_steps_of_float64_are_native_and_near_numpy(verified, monkeypatch, rng, name, cpu):
    if jit.lanes(8) < 4 or cpu and jit.processor() != "x86":
        pytest.skip("vectors of two are left to numpy")
    monkeypatch.setenv("PUREGRAPH_CPU", cpu)
    net, shape = {
        "lenet": lambda: (models.lenet(size=12, maps=(2, 3), norm=True), (5, 1, 12, 12)),
        "lstm": lambda: (Sequential(LSTM(6, 9), Max(1)), (3, 7, 6)),
        "attention": lambda: (attention(24), (2, 11, 24)),
        "depthwise": lambda: (Sequential(Conv2D(9, 9, 3, pad=1, groups=9), AvgPool2D(2), Flatten()), (2, 9, 5, 6)),
    }[name]()
    initial.seed(1)
    net = net.calcMode("float64")
    y = net.evalMode()(rng.standard_normal(shape))
    program = net.trainMode().compile([shape, y.shape], cost=MSE(), optimizer=Adam(0.01))
    for _ in range(3):
        program.run(rng.standard_normal(shape), rng.standard_normal(y.shape))
    assert "numpy" not in {row[2] for row in map(str.split, str(program.table()).splitlines()) if len(row) > 2}


def attention(size):
    """Attention of three heads, with a residual."""
    x = Input(name="x").node()
    return Graph(x, Add()(x, models.multiHeadAttention(size, 3)(x)))


@needsNative
def test_values_that_steps_compute_again_are_verified_where_their_first_maker_is_no_step(verified, rng):
    x = h = Input(name="x").node()
    for _ in range(6):
        h = Add().node(Tanh().node(h), MulAddConst(0.7, 0).node(Mul().node(h, h)))
    graph, shape = Graph(x, Max(axis=1).node(h)), (64, 256)
    budget = Program(graph, [shape], ["f4"], grads=(True,)).bytes // 2
    program = Program(graph, [shape], ["f4"], grads=(True,), budget=budget)
    native = [call.function for call in program.executable.schedule.calls if call.kind.isNative]
    made = {y.number for each in native for call in each.calls for y in call.outs}
    again = {y.number for each in native for call in each.inlined for y in call.outs}
    assert again - made, "this graph has no such value: another one is needed"
    program.run(rng.standard_normal(shape).astype("f4"), np.ones(64, "f4"))
    assert program.why == ""


@needsNative
def test_a_kernel_that_computes_something_else_is_named_with_its_element(verified, monkeypatch):
    monkeypatch.setitem(nestlines.UFUNCS, np.multiply, "+")
    x, y = Input(name="x").node(), Input(name="y").node()
    program = Graph([x, y], Mul(name="product").node(x, y)).compile([(2, 3), (2, 3)], train=False)
    a, b = np.full((2, 3), 2, np.float32), np.full((2, 3), 2, np.float32)
    program.run(a, b)  # 2 + 2 is 2 * 2
    b[1, 2] = 5
    with pytest.raises(VerifyError, match=r"at 'product' \(Mul\): value .* at \(1, 2\): wanted 10.0, .* got 7.0"):
        program.run(a, b)


@needsNative
def test_what_native_code_does_not_write_is_told(verified, monkeypatch):
    program = net().compile([X.shape], train=False)
    monkeypatch.setattr(guardbands, "ENTRY", lambda address: lambda *given: None)
    with pytest.raises(VerifyError, match=r"step \d+ .* at 'a' \(Linear\).* got nan"):
        program.run(X)


def test_memory_that_is_given_away_too_early_is_told_with_who_overwrote_it(verified, monkeypatch):
    right = planner.lastReads

    def tooEarly(schedule):
        first, last = {}, right(schedule)
        for i, call in enumerate(schedule.calls):
            for v in call.values() if not call.kind.isView else ():
                first.setdefault(v.root.number, i)
        return {n: min(i, first.get(n, i)) for n, i in last.items()}

    monkeypatch.setattr(planner, "lastReads", tooEarly)
    program = net().compile([X.shape, (6, 3)], cost=MSE(), optimizer=SGD(0.1))
    with pytest.raises(VerifyError, match=r"step \d+ .*: reads value %\d+.* no longer .*overwritten by step \d+"):
        program.run(X, np.zeros((6, 3), np.float32))


def test_a_verify_error_is_no_reason_to_run_eagerly(verified, monkeypatch, recwarn):
    monkeypatch.setattr(verify.Verifier, "checkUnchanged", lambda *given: (_ for _ in ()).throw(VerifyError("told")))
    with pytest.raises(VerifyError, match="told"):
        net().compile([X.shape], train=False).run(X)
    assert not [w for w in recwarn if isinstance(w.message, GraphWarning)]


@needsNative
def test_elements_beside_a_kink_that_rounding_decides_are_not_called_wrong(verified):
    x = Input(name="x").node()
    graph = Graph(x, Relu(name="r").node(LayerNorm(2, affine=False, name="n").node(LayerNorm(2, name="m").node(x))))
    program = graph.compile([(40, 2)], train=True)
    rng = np.random.default_rng(1)
    for _ in range(3):
        program.run(rng.standard_normal((40, 2)).astype(np.float32), np.ones((40, 2), np.float32))


@needsNative
@pytest.mark.parametrize("count", [8, 40])
def test_sums_that_cancel_are_as_exact_as_their_terms(verified, count):
    program = Sequential(Sum(axis=0)).compile([(count, 1)])
    for seed in range(300):
        x = np.random.default_rng(seed).standard_normal((count, 1), np.float32)
        x[-1] -= x.sum(0)
        np.testing.assert_allclose(program.run(x), np.sum(x.astype(float), 0), atol=1e-5)


@pytest.fixture
def compiledAnew(verified, monkeypatch, tmp_path):
    """Have kernels written here and now: those of others are not broken, and those that are reach nobody."""
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path))
    monkeypatch.setattr(jit, "LOADED", {})


def neverStored(shape):
    """What a nest keeps of what is costly, as if it were stored in a phase before the first."""
    formulas = {n: x for n, x in shape.lines.items() if isinstance(x, Formula) and shape.varies[n]}
    return {n: -1 for n, x in formulas.items() if HEAVY & {t.op for t in walk(x.term)}}


@needsNative
@pytest.mark.parametrize("isWrong", [False, True])
def test_scratch_that_no_phase_of_a_nest_has_stored_is_told(compiledAnew, monkeypatch, isWrong):
    if isWrong:
        monkeypatch.setattr(nestcode, "saved", neverStored)
        monkeypatch.setattr(rowkernel, "saved", neverStored)
    x = Input(name="x").node()
    gate = Mul(name="gate").node(Sigmoid(name="s").node(x), LayerNorm(5, name="n").node(x))
    program = Graph(x, gate).compile([X.shape], train=False)
    with told(isWrong, r"step \d+ .* at .*'gate' \(Mul\).*: kernel .* computes value .*'gate' from .* never written"):
        program.run(X)


def pointwise():
    """A 1x1 convolution whose data gradient, weight gradient and packed weights are all native."""
    initial.seed(0)
    return Sequential(Conv2D(16, 40, 1, name="a"), Relu(name="r"), Conv2D(40, 24, 1, name="b"), name="net")


@needsNative
@pytest.mark.parametrize("isTrained", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("isWrong", [False, True])
def test_a_packed_weight_that_is_larger_than_its_memory_is_told(verified, monkeypatch, isTrained, isWrong):
    if isWrong:
        right = DirectConvolution.packed.fget
        monkeypatch.setattr(DirectConvolution, "packed", property(lambda of: right(of) - 8))
    x = np.ones((2, 16, 5, 6), np.float32)
    given = {"cost": MSE(), "optimizer": SGD(0.1)} if isTrained else {"train": False}
    target = np.zeros((2, 24, 5, 6), np.float32)
    program = pointwise().compile([x.shape, target.shape] if isTrained else [x.shape], **given)
    where = r"step \d+ .* at 'net.a' \(Conv2D\)" if isTrained else "packing weights"
    with told(isWrong, rf"{where}.*: kernel 'pack 1x1 16->40 @5x6' writes up to 32 bytes beyond the end of value %\d+"):
        program.run(*[x, target][: 1 + isTrained])


def brokenRelu(offset, isRead):
    """A native kernel of one task that copies x to y, and touches an element `offset` beyond the last of x or of y."""

    def write(code):
        x, y, n = code.pointer("x", "f32"), code.pointer("y", "f32"), code.integer("n")
        block = code.scratch("f32", 8)
        with code.loop(0, n, 1) as i:
            y.store(i, x.load(i))
        block.store(7, x.load(0))
        if offset is None:
            block.store(8, x.load(0))
        elif isRead:
            y.store(0, x.load(n - 1 + offset))
        else:
            y.store(n - 1 + offset, x.load(0))

    return write


@needsNative
@pytest.mark.parametrize(
    "offset, isRead, message",
    [
        (0, False, None),
        (1, False, r"writes up to 4 bytes beyond the end of value %\d+ 'r', which has 120 bytes"),
        (-30, False, r"writes up to 4 bytes before the start of value %\d+ 'r'"),
        (1, True, r"computes value %\d+ 'r' from bytes beside its buffers, or never written"),
        (-31, True, r"computes value %\d+ 'r' from bytes beside its buffers, or never written"),
        (None, False, r"writes up to 4 bytes beyond scratch block 0, which has 32 bytes"),
    ],
)
def test_a_kernel_that_leaves_its_buffers_is_named_with_the_buffer_and_the_bytes(
    compiledAnew, monkeypatch, offset, isRead, message
):
    def lowered(x, y, *given):
        slots = {"x": x, "y": y, "n": 30}
        return [KernelCall("broken", f"broken {offset} {isRead}", brokenRelu(offset, isRead), slots, 1)]

    program = Sequential(Relu(name="r")).compile([X.shape], train=False)
    segment, (step,) = program.executable.segments[0], program.executable.schedule.calls
    memory = program.executable.memory
    broken = Segment([lowered(step.arguments[0], step.outs[0])], memory, GAP_BYTES)
    program.executable.inputs[0].put(np.abs(X))
    for slots, i, v, start in broken.patches:
        slots[i] = memory.address(v) + start
    fault = faultOf(broken, [step.outs[0]])
    assert segment.works and (fault is None if message is None else re.fullmatch(f"kernel 'broken' {message}", fault))


@needsNative
def test_of_a_constant_that_repeats_one_element_only_that_element_is_guarded(verified, monkeypatch):
    extents, right = [], guardbands.extentOf

    def noted(argument, *given):
        extents.append((argument, right(argument, *given)))
        return extents[-1][1]

    monkeypatch.setattr(guardbands, "extentOf", noted)
    program = net().compile([X.shape, (6, 3)], cost=MSE(), optimizer=Adam(0.01))
    program.run(X, np.zeros((6, 3), np.float32))
    repeated = [e for v, e in extents if getattr(v, "role", "") == "constant" and v.strides == (0, 0)]
    assert repeated and all(e.stop - e.start == 4 for e in repeated)


@needsNative
@pytest.mark.parametrize("isWrong", [False, True])
def test_a_weight_with_gaps_that_is_taken_row_by_row_is_told(verified, monkeypatch, isWrong):
    packed = np.random.default_rng(0).standard_normal((24, 16)).astype(np.float32)
    one = Sequential(Linear(24, 8, name="q"), name="net")
    one["q"].W.data = packed[:, :8]
    W, right = one["q"].W, graphtracer.arrayOf
    W.array = packed[:, :8]  # memory that is not the parameter's own, and not looked at while a step is compiled
    monkeypatch.setattr(graphtracer, "arrayOf", lambda stored, *name: W.array if stored is W else right(stored, *name))
    if isWrong:
        monkeypatch.setattr(planner, "room", lambda value: value.nbytes)  # its gaps are forgotten
    program = one.compile([(16, 24), (16, 8)], cost=MSE(), optimizer=SGD(0.1))
    with told(isWrong, r"step \d+ .*reads value .* no longer .*overwritten by step \d+ .*'q.W' \(SGD\)"):
        program.run(np.ones((16, 24), np.float32), np.zeros((16, 8), np.float32))


@needsNative
@pytest.mark.parametrize("isWrong", [False, True])
def test_a_result_that_is_written_over_what_a_reduction_of_length_one_still_reads_is_told(
    compiledAnew, monkeypatch, isWrong
):
    if isWrong:
        monkeypatch.setattr(nestcache, "ordered", lambda nest: nest)
    x = Input(name="x").node()
    normed = LayerNorm(4, name="norm").node(Max(axis=1, name="max").node(Linear(4, 4, name="a").node(x)))
    one = Graph(x, Linear(4, 2, name="b").node(normed), name="net")
    program = one.compile([(1, 1, 4), (1, 2)], cost=MSE(), optimizer=SGD(0.1))
    with told(isWrong, r"step \d+ .* at .*'net.norm' \(LayerNorm\).*: value .*: wanted .*, as numpy has it, got"):
        program.run(X[:1, None, :4], np.zeros((1, 2), np.float32))


def told(isWrong, match):
    """That something raises a VerifyError, if it is wrong."""
    return pytest.raises(VerifyError, match=match) if isWrong else nullcontext()
