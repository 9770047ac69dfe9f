"""Programs: what a run gives, when it is compiled anew, what stays unread, how memory is planned."""

import copy
import gc
import pickle
import random
import threading
import time
import warnings
from contextlib import nullcontext

import numpy as np
import pytest

from puregraph import (
    MSE,
    SGD,
    Adam,
    AdamW,
    BatchNorm,
    Cosine,
    CrossEntropy,
    Dropout,
    Embedder,
    Expand,
    Function,
    Graph,
    Identity,
    Input,
    Linear,
    Module,
    MomentumSGD,
    Mul,
    NesterovSGD,
    Optimizer,
    Pointwise,
    Relu,
    Reshape,
    RMSProp,
    Sequential,
    Split,
    Sum,
    Tanh,
    Transpose,
    models,
)
from puregraph.autodiff import detect_anomaly
from puregraph.compile import Program, Programs, Updater, schedule
from puregraph.compile.memory.arena import arranged, bestFit, inOrder, inUse
from puregraph.compile.memory.planner import ALIGNMENT_BYTES, MemoryPlan
from puregraph.compile.trace.schedule import traceStep
from puregraph.compile.trace.steprequest import StepRequest
from puregraph.compile.trace.withcost import withCost
from puregraph.core import initial
from puregraph.core.errors import DataError, DtypeError, GraphError, GraphWarning, PuregraphError, ShapeError
from puregraph.modules import Weight
from puregraph.ops.kernel import useFast

K = 0.5

pytestmark = pytest.mark.usefixtures("numpyOnly")


@pytest.fixture
def plain():
    """Nothing becomes native code, which may sum in another order."""
    with useFast(False):
        yield


def classifier(*more, dtype="float64"):
    initial.seed(5)
    return Sequential(Linear(4, 6), Relu(), *more, Linear(6, 3)).calcMode(np.dtype(dtype))


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def batch(rng, count=8, dtype="float64"):
    return rng.standard_normal((count, 4)).astype(dtype), rng.integers(0, 3, count)


def kinds(program):
    return [call.kind.name for call in program.executable.schedule.calls]


# A run ----------------------------------------------------------------------------------------------------------------


def test_a_program_gives_what_its_graph_gives(rng):
    net, (x, _) = classifier(), batch(rng)
    program = net.compile(x.shape, train=False)
    assert same(program.run(x), net.evalMode()(x))
    assert program.why == "" and program.grad is None and "Program of Sequential" in repr(program)


def test_outputs_stay_as_they_are_after_the_next_run(rng):
    net, (x, _) = classifier(), batch(rng)
    program = net.compile(x.shape)
    first = program.run(x)
    kept = first.copy()
    lent = program.run(x, copy=False)
    assert np.shares_memory(lent, program.executable.memory.arena) and not np.shares_memory(
        first, program.executable.memory.arena
    )
    program.run(x + 1)
    assert same(first, kept) and not same(lent, kept)


def test_several_inputs_and_outputs(rng):
    a, b = Input(name="a").node(), Input(name="b").node()
    parts = Split(1, (2, 3), name="parts").node(a)
    net = Graph([a, b], [(parts, 1), Identity().node(b), Tanh().node((parts, 0))]).calcMode("float64")
    x, y = rng.standard_normal((2, 5)), rng.standard_normal(3)
    found = net.compile([(2, 5), (3,)]).run(x, y)
    assert [same(u, v) for u, v in zip(found, net([x, y]), strict=True)] == [True] * 3
    assert not np.shares_memory(found[1], y)


def test_a_step_with_cost_and_optimizer_is_that_of_the_graph(rng):
    net, (x, t) = classifier(BatchNorm(6), Dropout(0.3)), batch(rng)
    twin = copy.deepcopy(net)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=Adam(0.01))
    task, optimizer = withCost(twin, CrossEntropy(), 1, 1), Adam(0.01).setupOn(twin)
    for _ in range(3):
        cost, output = program.run(x, t)
        optimizer.zeroGradParams()
        wanted = task([x, t])
        task.backward([np.ones_like(wanted[0]), None], updGrad=False)
        optimizer.update()
        assert same(cost, wanted[0]) and same(output, wanted[1])
        for path, p in net.params.items():
            assert same(p.data, twin.params[path].data) and same(p.grad, twin.params[path].grad), path
        for path, s in net.states.items():
            assert same(s.data, twin.states[path].data), path


def test_gradients_are_left_where_a_user_looks_for_them(rng):
    net, (x, t) = classifier(), batch(rng)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy())
    program.run(x, t)
    first = net.params["linear.W"].grad
    kept = first.copy()
    program.run(-x, t)
    assert net.params["linear.W"].grad is first and not same(first, kept)
    alone = net.compile([x.shape, t.shape], cost=CrossEntropy(), keepGrads=False, updGrad=True)
    for p in net.params.values():
        p.grad = None
    alone.run(x, t)
    assert all(p.grad is None for p in net.params.values())
    assert alone.grad[0].shape == x.shape and alone.grad[1] is None


def test_gradients_of_outputs_are_given_where_there_is_no_cost(rng):
    net, (x, _) = classifier(), batch(rng)
    g = rng.standard_normal((8, 3))
    program = net.compile(x.shape, train=True)
    found = program.run(x, g)
    net.trainMode()
    assert same(found, net(x))
    net.backward(g)
    assert same(program.grad, net.grad)
    number = Sequential(Linear(4, 1), Sum()).calcMode("float64")
    program = number.compile(x.shape, train=True)
    program.run(x)
    number(x)
    number.backward()
    assert same(program.grad, number.grad)


def test_an_optimizer_wants_a_number(rng):
    with pytest.raises(GraphError, match="an optimizer needs one number to minimize: give a cost"):
        classifier().compile((8, 4), optimizer=SGD())


@pytest.mark.parametrize("train", [True, False])
def test_a_mode_may_be_given(train, rng):
    net, (x, _) = classifier(Dropout(0.5)), batch(rng)
    _ = net.evalMode() if train else net.trainMode()
    program = Program(net, [x.shape], train=train)
    a, b = program.run(x), program.run(x)
    assert same(a, b) != train
    assert all(m.isTraining is not train for m in net.modules().values())


def test_whole_numbers_get_their_dtype(rng):
    net = Sequential(Embedder(7, 4), Linear(4, 2))
    program = net.compile((3, 5))
    x = rng.integers(0, 7, (3, 5))
    assert program.dtypes == [np.dtype(np.int64)] and same(program.run(x.astype("int32")), net(x))


def test_large_inputs_are_read_where_they_lie(rng):
    net = Sequential(Linear(300, 4), Relu()).calcMode("float64")
    program = net.compile((20, 300))
    x, y = rng.standard_normal((2, 20, 300))
    assert same(program.run(x), net(x)) and same(program.run(y), net(y))
    (entry,) = program.executable.inputs
    assert not entry.fixed and entry.readers and any(a is y for reader in entry.readers for a in reader[0])
    turned = np.asfortranarray(x)
    assert same(program.run(turned), net(x))


@pytest.mark.parametrize(
    ("inputs", "error", "words"),
    [
        (
            [np.ones((8, 5))],
            ShapeError,
            r"wanted 'linear.x' of shape \(8, 4\), got \(8, 5\); compile for that shape as well",
        ),
        ([np.ones((8, 4), "f4")], DtypeError, "wanted float64 for 'linear.x', got float32; convert with"),
        ([np.ones((8, 4), int)], DtypeError, "wanted float64 for 'linear.x', got int64"),
        ([], DataError, "wanted 1 input, got 0"),
        ([[[1.0] * 4] * 8], DataError, "wanted an array for 'linear.x', got list"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, error, words):
    with pytest.raises(error, match=words):
        classifier().compile((8, 4)).run(*inputs)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match=r"at 'linear' \(Linear\): wanted \(..., 4\), got \(8, 5\)"):
        classifier().compile((8, 5))


@pytest.mark.parametrize(
    ("count", "options", "words"),
    [
        (2, {}, "expected 1 dtype, one for each of its shapes, got 2; leave dtypes out"),
        (0, {}, "expected 1 dtype, one for each of its shapes, got 0"),
        (1, {"cost": MSE()}, "expected 2 dtypes, one for each of its shapes, got 1"),
        (2, {"cost": MSE(), "sampleWeight": (2,)}, "expected 3 dtypes, one for each of its shapes, got 2"),
    ],
)
def test_another_number_of_dtypes_than_of_shapes_is_refused(count, options, words):
    shapes = [(2, 3), (2, 4)] if "cost" in options else [(2, 3)]
    with pytest.raises(GraphError, match=words):
        Sequential(Linear(3, 4)).compile(shapes, dtypes=["f4"] * count, **options)


def test_two_threads_may_use_one_program(rng):
    net, (x, _) = classifier(), batch(rng)
    program = net.compile(x.shape)
    data = [x + i for i in range(8)]
    wanted, found = [net(each) for each in data], [None] * 8

    def work(i):
        for _ in range(20):
            found[i] = program.run(data[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(same(a, b) for a, b in zip(found, wanted, strict=True))


def test_a_program_can_be_copied_and_pickled(rng):
    net, (x, t) = classifier(), batch(rng)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=SGD(0.1))
    for other in (copy.deepcopy(program), pickle.loads(pickle.dumps(program))):
        a, b = other.run(x, t), other.run(x, t)
        assert b[0] < a[0]
    assert same(program.run(x, t)[0], a[0])


# What changes ---------------------------------------------------------------------------------------------------------


def change(name):
    def keep(function):
        COUNTER[name] = function
        return function

    return keep


COUNTER = {}


@change("the graph is edited")
def edited(net):
    net.append(Tanh())


@change("the array of a parameter is another")
def replaced(net):
    net.params["linear.W"].data = net.params["linear.W"].data * 2


@change("the mode is another")
def otherMode(net):
    net.evalMode()


@change("a module is set otherwise")
def setOtherwise(net):
    net["dropout"].p = 0.1


@change("a module has another parameter")
def otherParam(net):
    net["linear"].b = None


@change("a parameter is frozen")
def frozen(net):
    net.params["linear2.W"].trainable = False


@pytest.mark.parametrize("name", COUNTER)
def test_it_is_compiled_anew_when(name, rng):
    net, (x, _) = classifier(Dropout(0.5)), batch(rng)
    twin = copy.deepcopy(net)
    program = Program(net, [x.shape], ["f8"], grads=(True,), poison=True)
    g = rng.standard_normal((8, 3))
    before = program.executable
    program.run(x, g)
    assert program.executable is before
    twin(x)
    twin.backward(g)
    for each in (net, twin):
        COUNTER[name](each)
        for p in each.params.values():
            p.grad = None
    found = program.run(x, g)
    assert program.executable is not before
    assert same(found, twin(x))
    twin.backward(g)
    assert same(program.grad, twin.grad)
    for path, p in net.params.items():
        wanted = twin.params[path].grad
        assert (p.grad is None and wanted is None) or same(p.grad, wanted), path
    after = program.executable
    program.run(x, g)
    assert program.executable is after


def test_another_dtype_is_compiled_anew(rng):
    net, (x, _) = classifier(), batch(rng)
    program = Program(net, [x.shape])
    program.run(x)
    net.calcMode("float32")
    assert program.run(x.astype("f4")).dtype == np.float32


def test_an_attribute_that_is_set_to_what_it_was_changes_nothing(rng):
    net, (x, _) = classifier(Dropout(0.25)), batch(rng)
    program = net.compile(x.shape)
    before = program.executable
    net["dropout"].p = 0.5 * 0.5
    program.run(x)
    assert program.executable is before


OPTIONS = {
    "decay": lambda o, p: setattr(o, "decay", 0.1),
    "clipNorm": lambda o, p: setattr(o, "clipNorm", 0.01),
    "momRate": lambda o, p: setattr(o, "momRate", 0.5),
    "rate": lambda o, p: setattr(p, "rate", 0.25),
    "no decay": lambda o, p: (setattr(o, "decay", 0.2), setattr(p, "decay", False)),
    "learnRate": lambda o, p: setattr(o, "learnRate", 0.5),
    "restored": lambda o, p: o.restore(7, o.state),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_optimizer_may_be_changed_between_steps(name, rng):
    net, (x, t) = classifier(), batch(rng)
    twin = copy.deepcopy(net)
    optimizers = MomentumSGD(0.1), MomentumSGD(0.1)
    programs = [
        n.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=o) for n, o in zip((net, twin), optimizers)
    ]
    for step in range(4):
        if step == 2:
            for n, o in zip((net, twin), optimizers):
                OPTIONS[name](o, n.params["linear.W"])
        programs[0].run(x, t)
        with np.errstate(all="raise", under="warn"):  # so that the graph itself runs
            programs[1].run(x, t)
        for path, p in net.params.items():
            assert same(p.data, twin.params[path].data), path
    assert optimizers[0].step == optimizers[1].step


# Optimizers -----------------------------------------------------------------------------------------------------------

RULES = {
    "SGD": lambda: SGD(0.1),
    "SGD, decay": lambda: SGD(0.1, decay=0.01),
    "MomentumSGD, clipNorm": lambda: MomentumSGD(0.1, clipNorm=0.05),
    "NesterovSGD, clipValue": lambda: NesterovSGD(0.1, clipValue=0.01),
    "Adam, schedule": lambda: Adam(0.05, schedule=Cosine(8)),
    "AdamW, decay and clipNorm": lambda: AdamW(0.05, decay=0.1, clipNorm=0.1),
    "RMSProp, skip": lambda: RMSProp(0.05, onNonFinite="skip"),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("name", RULES)
def test_optimizers_compiled_update_as_they_do(name, dtype, rng, plain):
    net = classifier(BatchNorm(6), Dropout(0.2), dtype=dtype)
    net.params["linear.b"].decay, net.params["linear2.W"].rate = False, 0.5
    twin = copy.deepcopy(net)
    a, b = RULES[name](), RULES[name]().setupOn(twin)
    task = withCost(twin, CrossEntropy(), 1, 1)
    x, t = batch(rng, dtype=dtype)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=a, poison=True)
    for step in range(6):
        if step == 3:
            net.params["linear.b"].trainable = twin.params["linear.b"].trainable = False
        cost, _ = program.run(x, t)
        b.zeroGradParams()
        wanted = task([x, t])
        task.backward([np.ones_like(wanted[0]), None], updGrad=False)
        b.update()
        assert same(cost, wanted[0]) and a.step == b.step and a.norm == b.norm
        for path, p in net.params.items():
            assert same(p.data, twin.params[path].data), path
        assert all(same(v, b.state[k]) for k, v in a.state.items())
        x, t = batch(rng, dtype=dtype)


def test_a_step_is_left_out_where_gradients_are_not_finite(rng):
    net, (x, t) = classifier(), batch(rng)
    optimizer = Adam(0.1, onNonFinite="skip")
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=optimizer)
    before = {path: p.data.copy() for path, p in net.params.items()}
    bad = x.copy()
    bad[0, 0] = np.nan
    program.run(bad, t)
    assert optimizer.step == 0 and np.isnan(optimizer.norm)
    assert all(same(p.data, before[path]) for path, p in net.params.items())
    program.run(x, t)
    assert optimizer.step == 1
    optimizer.onNonFinite = "raise"
    with pytest.raises(PuregraphError, match="Adam: at update 1 the gradient of 'linear.W', .* is not finite"):
        program.run(bad, t)
    assert optimizer.step == 1


class Signs(Optimizer):
    """An optimizer with an update of its own."""

    rule = {"param": "param - rate * sign(grad)"}

    def update(self):
        for slot in self.slots:
            slot.param.data -= self.rate * np.sign(slot.param.grad)
        self.step += 1
        return True


def named(name, cls):
    """A class of that name, whose update goes twice as far as its rule says."""

    def update(self):
        return cls.update(self) and cls.update(self)

    update.__qualname__ = f"{name}.update"
    return type(name, (cls,), {"update": update})


@pytest.mark.parametrize("kind", [Signs, named("Optimizer", Signs)])
def test_an_optimizer_of_a_way_of_its_own_runs_as_it_is(kind, rng):
    net, (x, t) = classifier(), batch(rng)
    twin = copy.deepcopy(net)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=kind(0.01))
    task, optimizer = withCost(twin, CrossEntropy(), 1, 1), kind(0.01).setupOn(twin)
    for _ in range(3):
        program.run(x, t)
        wanted = task([x, t])
        task.backward([np.ones_like(wanted[0]), None])
        optimizer.update()
    assert all(same(p.data, twin.params[path].data) for path, p in net.params.items())


def test_gradients_of_several_batches_add_up(rng):
    net, (x, t) = classifier(), batch(rng)
    twin = copy.deepcopy(net)
    task, other = withCost(net, CrossEntropy(), 1, 1), withCost(twin, CrossEntropy(), 1, 1)
    options = {"grads": "one", "updGrad": False, "scaled": True}
    first = Program(task, [x.shape, t.shape], ["f8", "i8"], **options)
    later = Program(task, [x.shape, t.shape], ["f8", "i8"], added=True, **options)
    optimizer, plain = Adam(0.1).setupOn(net), Adam(0.1).setupOn(twin)
    updater = None
    for _ in range(3):
        for number, program in enumerate((first, later, later)):
            data = x + number
            program.run(data, t, scale=0.3)
            found = other([data, t])
            other.backward([np.ones_like(found[0]), None], updGrad=False, scale=0.3, momentum=float(number > 0))
            for path, p in net.params.items():
                assert same(p.grad, twin.params[path].grad), path
        updater = updater or Updater(task, optimizer)
        updater.run()
        plain.update()
        assert all(same(p.data, twin.params[path].data) for path, p in net.params.items())
    net.params["linear.W"].grad = None
    twin.params["linear.W"].grad = None
    updater.run()
    plain.update()
    assert all(same(p.data, twin.params[path].data) for path, p in net.params.items())


# Rules that are not read ----------------------------------------------------------------------------------------------


class Doubled(Function):
    """A Function in plain Python."""

    calls = 0

    @staticmethod
    def forward(ctx, x):
        Doubled.calls += 1
        ctx.save_for_backward(x)
        ctx.mean = float(x.mean())
        return x * 2 + ctx.mean

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_variables
        return grad * 2 + grad.sum() / x.size


class Folded(Module):
    """|sum x| sign(x): a rule that branches on what it computes."""

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        if x.sum() > 0:
            return x * 1.0
        return -x

    def updateGrad(self, grad, x, y):
        return grad if x.sum() > 0 else -grad


class Scaled(Module):
    """K x: a rule that is somebody else's, and pure."""

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return self.scaled(x)

    def scaled(self, x):
        return np.multiply(x, K)

    def updateGrad(self, grad, x, y):
        return self.scaled(grad)


class Counting(Module):
    """A rule that counts on its module."""

    seen = 0

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        self.seen += 1
        return x * self.seen

    def updateGrad(self, grad, x, y):
        return grad * self.seen


class Noisy(Module):
    """A rule that draws numbers."""

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x + np.random.random(x.shape)

    def updateGrad(self, grad, x, y):
        return grad


class Sometimes(Module):
    """A rule whose gradient may be None."""

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x + 0

    def updateGrad(self, grad, x, y):
        return None if float(x[0, 0]) > 0 else grad


UNREAD = {"Function": Doubled, "branch": Folded, "counter": Counting, "random": Noisy}


def asNode(rule, x):
    return rule.node(x) if issubclass(rule, Function) else rule().node(x)


def between(rule):
    x = Input(name="x").node()
    last = Linear(6, 3, name="last")
    return Graph(x, last.node(asNode(rule, Linear(4, 6, name="first").node(x)))).calcMode("float64")


@pytest.mark.parametrize("name", UNREAD)
def test_a_rule_that_cannot_be_read_runs_whole(name, rng):
    net, (x, _) = between(UNREAD[name]), batch(rng)
    twin = copy.deepcopy(net)
    g = rng.standard_normal((8, 3))
    program = Program(net, [x.shape], ["f8"], grads=(True,), poison=True)
    assert program.executable is None and "known only after it has run" in program.why
    for step in range(4):
        data = x * (-1) ** step
        np.random.seed(step)
        found = program.run(data, g)
        np.random.seed(step)
        assert same(found, twin(data)), step
        twin.backward(g)
        assert same(program.grad, twin.grad), step
        assert all(same(p.grad, twin.params[path].grad) for path, p in net.params.items())
    assert kinds(program).count("rule") >= 1 and "product" in kinds(program)


@pytest.mark.parametrize("name", ["Function", "branch"])
def test_a_step_with_a_users_function_is_compiled_but_for_it_and_its_table_says_so_before_and_after_a_run(name, rng):
    net, (x, _) = between(UNREAD[name]), batch(rng)
    program = net.compile(x.shape, (8, 3), cost=MSE(), optimizer=SGD(0.1))
    before = program.table()
    assert net.params["first.W"].grad is None and program.bytes > 0
    program.run(x, np.zeros((8, 3)))
    assert program.executable is not None and "@ W" in before
    for text in (before, program.table()):
        (note,) = [line for line in text.splitlines() if "not compiled" in line]
        assert note.startswith("plain Python, not compiled: graph.") and "grad:graph." in note
    assert kinds(program).count("rule") == 2 and kinds(program).count("product") >= 4


def test_a_function_is_called_once_a_run(rng):
    net, (x, _) = between(Doubled), batch(rng)
    program = net.compile(x.shape)
    program.run(x)
    for _ in range(3):
        before = Doubled.calls
        program.run(x)
        assert Doubled.calls == before + 1


def test_somebody_elses_rule_is_read_where_its_text_is_pure(rng):
    net, (x, _) = between(Scaled), batch(rng)
    program = net.compile(x.shape)
    assert "rule" not in kinds(program) and same(program.run(x), net(x))
    outside = []

    class Reporting(Scaled):
        def updateData(self, x):
            outside.append(x.shape)
            return x * 2

    net = between(Reporting)
    program = net.compile(x.shape)
    for runs in range(1, 4):
        program.run(x)
        assert len(outside) == runs
    assert "may depend on more than its arguments" in str(program.executable.schedule)


def test_a_rule_that_does_something_else_than_before_is_noticed(rng):
    net, (x, _) = between(Sometimes), batch(rng)
    twin = copy.deepcopy(net)
    g = rng.standard_normal((8, 3))
    program = Program(net, [x.shape], ["f8"], grads=(True,))
    sign = np.sign(net["first"].updateData(x, *net["first"].ruleValues())[0, 0])
    for step, data in enumerate((-sign * x, -sign * x, sign * x, -sign * x)):
        data = data.copy()
        net.params["first.b"].data[...] = 0
        isOther = pytest.warns(GraphWarning, match="is no longer compiled.*at 'grad:sometimes': expected")
        with isOther if step == 2 else nullcontext():
            found = program.run(data, g)
        assert same(found, twin(data))
        twin.backward(g)
        assert (program.grad is None and twin.grad is None) or same(program.grad, twin.grad)
    assert (
        program.executable is None and "at 'grad:sometimes': expected None, got a result" in program.why or program.why
    )


def test_values_that_are_no_arrays_run_as_they_are():
    class Joined(Function):
        @staticmethod
        def forward(ctx, a, b):
            return f"{a} {b}"

        @staticmethod
        def backward(ctx, grad):
            return grad, grad

        @staticmethod
        def dataShapeFrom(*shapes):
            return ()

    a, b = Input(name="a").node(), Input(name="b").node()
    net = Graph([a, b], Joined.node(a, b))
    program = Program(net, [(), ()])
    assert program.run("one", "two") == "one two" == program.run("one", "two")
    assert program.executable is None and "is not an array" in program.why
    with pytest.raises(PuregraphError, match="is not compiled: .* is not an array"):
        program.table()


def test_somebody_who_looks_on_sees_every_rule(rng):
    net, (x, t) = classifier(), batch(rng)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy())
    x[0, 0] = np.nan
    assert np.isnan(program.run(x, t)[0])
    with detect_anomaly(), pytest.raises(RuntimeError, match="linear"):
        program.run(x, t)
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
        net.compile(x.shape, train=False).run(x * np.inf)


# Errors ---------------------------------------------------------------------------------------------------------------


def told(call):
    with pytest.raises(PuregraphError) as caught:
        call()
    return str(caught.value), getattr(caught.value, "__notes__", [])


def test_an_error_is_that_of_the_graph_and_nothing_has_changed(rng):
    net, (x, t) = classifier(BatchNorm(6), Dropout(0.5)), batch(rng)
    optimizer = SGD(0.1)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=optimizer)
    t[3] = 7
    params = {path: p.data.copy() for path, p in net.params.items()}
    found = told(lambda: program.run(x, t))
    task = withCost(copy.deepcopy(net), CrossEntropy(), 1, 1)
    assert found == told(lambda: task([x, t])) and "got label 7" in found[0]
    assert optimizer.step == 0 and all(same(p.data, params[path]) for path, p in net.params.items())
    assert net.states["dropout.count"].data == 1  # the graph ran once, to say what is wrong
    t[3] = 2
    assert np.isfinite(program.run(x, t)[0]) and program.executable is not None


def test_a_call_that_fails_alone_is_told_and_the_graph_goes_on(rng):
    net, (x, _) = classifier(), batch(rng)
    program = net.compile(x.shape)

    def fail(*arguments, **options):
        raise FloatingPointError("no such number")

    program.executable.parts[0].steps[1].function = fail
    with pytest.warns(GraphWarning, match="failed, its graph runs instead: at 'linear': no such number"):
        found = program.run(x)
    assert same(found, net(x)) and same(program.run(x), net(x))


# Calls and memory -----------------------------------------------------------------------------------------------------


def test_equal_calls_are_made_once_and_unneeded_ones_not_at_all():
    x = Input(name="x").node()
    a, b = Tanh(name="a").node(x), Tanh(name="b").node(x)
    net = Graph(x, [a, b])
    full = traceStep(net, [(3,)])
    lean = schedule(net, [(3,)])
    assert len(full.calls) == 2 and len(lean.calls) == 1 and lean.outputs[0] is lean.outputs[1]
    net = classifier()
    assert len(schedule(net, [(8, 4)], None, StepRequest(wanted=[False])).calls) == 0


def test_the_sign_of_an_input_is_read_from_its_relu():
    net = Sequential(Linear(4, 5), Relu(), Linear(5, 2))
    found = schedule(net, [(3, 4)], None, StepRequest((True,)))
    relu = next(c for c in found.calls if "relu" in c.origin.path and c.origin.phase == "forward")
    back = next(c for c in found.calls if c.origin.path == "grad:relu" and c.kind.isElementwise)
    assert relu.outs[0] in back.arguments and relu.arguments[0] not in back.arguments


def test_a_listing_names_nodes_formulas_and_shapes():
    text = str(schedule(classifier(Dropout(0.5)), [(8, 4)], request=StepRequest((True,))))
    for words in (
        "linear  (Linear, forward)",
        "product",
        "relu(x)",
        "grad:dropout  (Gradient, backward)",
        "float64[8, 6]",
    ):
        assert words in text
    assert "gradient %" in text and "<Schedule of Sequential: " in text


class Piece:
    def __init__(self, size, birth, death):
        self.size, self.birth, self.death, self.offset = size, birth, death, -1


@pytest.mark.parametrize("place", [arranged, bestFit, inOrder])
@pytest.mark.parametrize("seed", range(6))
def test_no_two_buffers_in_use_at_one_time_overlap(place, seed):
    rng = random.Random(seed)
    pieces = []
    for _ in range(200):
        birth = rng.randrange(100)
        pieces.append(Piece(64 * rng.randint(1, 50), birth, birth + rng.randrange(30)))
    total = place(pieces)
    start, size, birth, death = (
        np.array([getattr(p, name) for p in pieces]) for name in ("offset", "size", "birth", "death")
    )
    assert (0 <= start).all() and (start + size <= total).all() and not (start % 64).any()
    isBefore = ((start + size)[:, None] <= start) | (death[:, None] < birth)
    assert (isBefore | isBefore.T | np.eye(len(pieces), dtype=bool)).all()
    least = max(sum(p.size for p in pieces if p.birth <= t <= p.death) for t in range(130))
    assert total <= 1.35 * least


def test_other_orders_are_tried_where_memory_would_be_wasted():
    totals = []
    for seed in range(8):
        rng = random.Random(seed)
        births = [rng.randrange(60) for _ in range(80)]
        pieces = [Piece(64 * 2 ** rng.randrange(8), birth, birth + rng.randrange(40)) for birth in births]
        found = arranged(pieces)
        assert found == max(p.offset + p.size for p in pieces) >= inUse(pieces)
        totals.append((found, min(bestFit(sorted(pieces, key=lambda p: (-p.size, p.birth))), inOrder(pieces))))
    assert all(found <= before for found, before in totals) and sum(found < before for found, before in totals) >= 4


@pytest.mark.parametrize(
    ("make", "shape"),
    [(lambda: models.lenet(norm=True), (8, 1, 28, 28)), (lambda: models.cifarResnet(8), (4, 3, 16, 16))],
)
def test_the_arena_is_close_to_what_is_in_use_at_one_time(make, shape, plain):
    program = make().compile([shape, shape[:1]], cost=CrossEntropy(), optimizer=SGD())
    plan = program.plan
    inUse = [0] * (len(plan.schedule.calls) + 2)
    for b in plan.buffers:
        for t in range(b.birth, b.death + 1):
            inUse[t] += b.size
    assert max(inUse) <= program.bytes <= 1.05 * max(inUse)
    assert program.bytes == program.executable.memory.arena.nbytes
    assert program.executable.memory.arena.__array_interface__["data"][0] % ALIGNMENT_BYTES == 0


def test_results_take_over_the_memory_of_what_ends(plain):
    chain = Sequential(*[Pointwise(formula="x * 1.5 + 0.5") for _ in range(10)])
    assert chain.compile((100, 100)).bytes == 100 * 100 * 4
    plan = MemoryPlan(schedule(chain, [(100, 100)]))
    assert len(plan.buffers) == 1 and len(plan.overwritten) == 9


def test_parameters_and_gradients_are_written_where_they_lie(rng):
    net, (x, t) = classifier(), batch(rng)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=Adam())
    assert not program.plan.copies
    arrays = [p.data for p in net.params.values()]
    program.run(x, t)
    assert all(p.data is a for p, a in zip(net.params.values(), arrays, strict=True))


def test_several_shapes_share_parameters_and_one_arena(rng):
    net = classifier(Dropout(0.3))
    twin = copy.deepcopy(net)
    programs = Programs(net)
    for count in (3, 50, 8, 3, 50, 8):
        x = rng.standard_normal((count, 4))
        assert same(programs.get([x]).run(x), twin(x))
    arenas = {id(p.executable.memory.arena) for p in programs.kept.values()}
    assert len(programs.kept) == 3 and len(arenas) == 1


def test_many_shapes_are_compiled_when_they_come_again(rng):
    net = classifier()
    programs = Programs(net)
    found = [programs.get([np.zeros((n, 4))]) for n in range(1, 9)]
    assert [p is not None for p in found] == [True] * 4 + [False] * 4
    assert programs.get([np.zeros((8, 4))]) is not None


def test_a_budget_that_cannot_be_kept_is_refused():
    with pytest.raises(
        PuregraphError, match=r"wanted a step within 1,000 bytes, got down to [\d,]+ by computing cheap"
    ):
        models.lenet().compile([(8, 1, 28, 28), (8,)], cost=CrossEntropy(), budget=1000)


# Looking --------------------------------------------------------------------------------------------------------------


def test_a_table_has_a_line_for_every_call(rng):
    net, (x, t) = classifier(BatchNorm(6)), batch(rng)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=Adam(clipNorm=1.0))
    lines = program.table().splitlines()
    calls = [c for c in program.executable.schedule.calls if not c.kind.isView]
    assert lines[0].split() == ["node", "step", "by", "makes", "bytes", "offset", "flops"]
    assert max(map(len, lines)) <= 120
    numbered = [line.split()[0] for line in lines[:-1] if line[:2].strip().isdigit()]
    assert numbered == [str(i + 1) for i in range(len(calls))]
    assert f"{len(calls)} steps, {program.bytes:,} bytes of memory" in lines[-1]
    text = "\n".join(lines)
    wanted = (
        "relu = relu(",
        "data @ W",
        "float64 8,6",
        "gradient",
        "in place",
        "norm(",
        "grad:",
        " numpy ",
        "Python",
    )
    for words in (*wanted, "m, v, param = Adam(", "Adam: m = 0.9 * m + 0.1 * (shrink * grad)"):
        assert words in text, words
    row = next(line for line in lines if "data @ W" in line)
    assert row.rstrip().endswith(f"{2 * 8 * 4 * 6}")


def test_layouts_are_told_by_their_axes(plain):
    x = Input(name="x").node()
    net = Graph(x, Tanh().node(Transpose((0, 2, 1)).node(x)))
    row = net.compile((2, 5, 8)).table().splitlines()[2]
    assert row.split() == "1 tanh tanh = tanh(transpose) numpy 2,8,5 as 021 320 0 80".split()


def test_a_drawing_has_boxes_and_edges(rng):
    text = classifier().compile((8, 4)).draw()
    assert text.startswith("digraph {") and text.rstrip().endswith("}")
    assert "linear\\nt1 = x @ W\\n" in text and 'label="linear.x", shape=ellipse' in text and "peripheries=2" in text
    assert text.count("{") == text.count("}")


# Cost -----------------------------------------------------------------------------------------------------------------


def chain(count):
    node = first = Input(name="x").node()
    for _ in range(count // 2):
        node = Tanh().node(Linear(4, 4).node(node))
    return Graph(first, node)


def seconds(count):
    net = chain(count)
    for p in net.params.values():
        _ = p.data
    gc.collect()
    start = time.process_time()
    program = net.compile([(3, 4), (3, 4)], cost=MSE(), optimizer=Adam())
    assert program.executable is not None
    return time.process_time() - start


def test_calls_and_memory_grow_with_the_graph():
    small, large = (chain(n).compile([(3, 4), (3, 4)], cost=MSE(), optimizer=Adam()) for n in (500, 1000))
    calls = [len(p.executable.schedule.calls) for p in (small, large)]
    assert 1.9 < calls[1] / calls[0] < 2.1 and 1.9 < large.bytes / small.bytes < 2.1


@pytest.mark.slow
def test_ten_thousand_nodes_compile_in_seconds():
    times = [min(seconds(n) for _ in range(3)) for n in (5000, 10000)]
    assert times[1] < 10 and times[1] < 2.2 * times[0]


def test_nothing_warns_while_compiling():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models.transformer(1, 8, 2).compile((2, 5, 8), train=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("last", [Identity(), Expand((1, 2)), Reshape((2,)), Expand((3, 2))], ids=str)
def test_an_output_that_is_a_parameter_is_what_it_was_before_the_update(dtype, last):
    def results(isCompiled):
        x = Input(name="x").node()
        weight = Weight((1, 2), dtype, name="weight").node()
        net = Graph(x, [last.node(weight), Mul(name="product").node(x, weight)]).trainMode()
        net.params["weight.W"].data = np.ones((1, 2), dtype)
        optimizer, data = SGD(0.5).setupOn(net), np.full((1, 2), 2, dtype)
        grads = [np.ones(shape, dtype) for shape in net.dataShapeFrom((1, 2))]
        program = Program(net, [(1, 2)], [np.dtype(dtype)], grads=(True, True), optimizer=optimizer)
        for _ in range(3):
            if isCompiled:
                yield program.run(data, *grads)
                assert not program.why
            else:
                yield net(data)
                net.backward(grads)
                optimizer.update()

    for got, wanted in zip(results(True), results(False), strict=True):
        for y, expected in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(y, expected)
