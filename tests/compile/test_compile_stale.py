"""Nothing stale ever runs: whatever a step was made from is changed between two runs, with native code and without."""

import copy
import threading

import numpy as np
import pytest

import puregraph as pg
from puregraph.autodiff import detect_anomaly
from puregraph.compile import Program, Updater
from puregraph.compile.runtime.errstate import raises
from puregraph.compile.trace.withcost import withCost
from puregraph.core.errors import DataError, PuregraphError
from puregraph.core.versioning import COUNTER, Versioned, VersionedAttribute, isVersioned
from puregraph.ops.kernel import useFast
from puregraph.ops.native.llvm import jit
from puregraph.optimizers import SGD, AdamW, MomentumSGD

MANNERS = ["numpy", pytest.param("native", marks=pytest.mark.skipif(not jit.available(), reason="no llvmlite"))]


@pytest.fixture(params=MANNERS, autouse=True)
def manner(request):
    with useFast(request.param == "native"):
        yield request.param


class Scaled(pg.Module):
    """y = factor x, the factor being an attribute."""

    def __init__(self, factor=2.0, name=None):
        super().__init__(name)
        self.factor = factor

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x * self.factor

    def updateGrad(self, grad, x, y):
        return grad * self.factor


class Silent(Scaled):
    """Sets attributes in a way that tells nobody."""

    def __setattr__(self, name, value):
        vars(self)[name] = value


def network(scaled=Scaled):
    pg.seed(7)
    inner = pg.Sequential(pg.Linear(6, 6), pg.Tanh(), name="inner")
    return pg.Sequential(pg.Linear(4, 6), pg.Dropout(0.5), scaled(), inner, pg.BatchNorm(6), pg.Linear(6, 3))


def data(count=8):
    rng = np.random.default_rng(3)
    return rng.standard_normal((count, 4)).astype(np.float32), rng.integers(0, 3, count)


def alike(a, b):
    np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def learn(task, optimizer, x, t):
    """A step of the graph itself."""
    optimizer.zeroGradParams()
    loss = task([x, t])[0]
    task.backward([np.float32(1), None], updGrad=False)
    optimizer.update()
    return loss


def outcome(step):
    """What a step gives, or says."""
    try:
        return step()
    except PuregraphError as error:
        return type(error).__name__


def assertSame(net, twin):
    for path, p in net.params.items():
        alike(p.data, twin.params[path].data)
    for path, s in net.states.items():
        alike(s.data, twin.states[path].data)


CASES = {}


def case(name):
    def keep(function):
        CASES[name] = function
        return function

    return keep


@case("the graph is edited")
def edited(net, optimizer):
    net.append(Scaled(0.5))


@case("a graph inside is edited")
def editedInside(net, optimizer):
    net["inner"].append(pg.Relu())


@case("a graph inside is shortened")
def shortened(net, optimizer):
    net["inner"].pop()


@case("all is evaluated")
def evaluated(net, optimizer):
    net.evalMode()


@case("one module is evaluated")
def oneEvaluated(net, optimizer):
    net["dropout"].evalMode()


@case("an attribute is another")
def attribute(net, optimizer):
    net["scaled"].factor = -1.5


@case("a module gets a rule of its own")
def rule(net, optimizer):
    net["scaled"].updateData = lambda x: x * 3.0


@case("a parameter is frozen")
def frozen(net, optimizer):
    net["linear"].W.trainable = False


@case("a parameter has a rate of its own")
def rate(net, optimizer):
    net["linear"].W.rate = 0.25


@case("a parameter does not decay")
def undecayed(net, optimizer):
    optimizer.decay = 0.1
    net["linear"].W.decay = False


@case("the data of a parameter is another array")
def replaced(net, optimizer):
    net["linear"].W.data = net["linear"].W.data * np.float32(0.5)


@case("the data of a parameter is the same array with other numbers")
def inPlace(net, optimizer):
    net["linear"].W.data[...] *= np.float32(0.5)


@case("a module has another parameter")
def otherParam(net, optimizer):
    net["linear"].b = copy.deepcopy(net["linear"].b)
    optimizer.setupOn(net)


@case("the data of a state is another array")
def otherState(net, optimizer):
    net["batchnorm"].var.data = net["batchnorm"].var.data + np.float32(1)


@case("the learning rate is another")
def learnRate(net, optimizer):
    optimizer.learnRate = 0.01


@case("there is a schedule")
def scheduled(net, optimizer):
    optimizer.schedule = lambda step: 0.5**step


@case("a constant of the rule is another")
def constant(net, optimizer):
    optimizer.momRate = 0.5


@case("there is weight decay")
def decayed(net, optimizer):
    optimizer.decay = 0.1


@case("gradients are clipped")
def clipped(net, optimizer):
    optimizer.clipNorm = 0.01


@case("each number of a gradient is clipped, and then less")
def clippedValue(net, optimizer):
    optimizer.clipValue = 0.001 if optimizer.clipValue else 0.01


@case("what the optimizer keeps is another array")
def kept(net, optimizer):
    slot = optimizer.slots[0]
    slot.arrays["velocity"] = slot.arrays["velocity"] * np.float32(-1)


@case("what the optimizer keeps has other numbers")
def keptInPlace(net, optimizer):
    optimizer.slots[0].arrays["velocity"][...] = 0


@case("the optimizer goes on from somewhere else")
def restored(net, optimizer):
    optimizer.restore(7, optimizer.state)


@case("a slot is taken away")
def slotless(net, optimizer):
    del optimizer.slots[0]


@pytest.mark.parametrize("name", CASES)
def test_training_goes_on_with_what_there_is_now(name):
    (net, (x, t)), optimizers = (network(), data()), (MomentumSGD(0.05), MomentumSGD(0.05))
    twin = copy.deepcopy(net)
    tasks = [withCost(n, pg.CrossEntropy(), 1, 1).trainMode() for n in (net, twin)]
    for n, o in zip((net, twin), optimizers):
        o.setupOn(n)
    program = Program(tasks[0], [x.shape, t.shape], grads="one", optimizer=optimizers[0])
    for step in range(6):
        if step in (2, 4):
            CASES[name](net, optimizers[0])
            CASES[name](twin, optimizers[1])
        loss = outcome(lambda: program.run(x, t)[0])
        wanted = outcome(lambda: learn(tasks[1], optimizers[1], x, t))
        assert loss == (wanted if isinstance(wanted, str) else pytest.approx(wanted, rel=1e-3, abs=1e-5))
        assertSame(net, twin)
    assert optimizers[0].step == optimizers[1].step


@pytest.mark.parametrize("name", [n for n in CASES if "optimizer" not in n and "slot" not in n])
def test_evaluating_goes_on_with_what_there_is_now(name):
    net, (x, _) = network(), data()
    net.evalMode()
    program, optimizer = net.compile(x.shape), MomentumSGD(0.1)
    for step in range(3):
        if step == 1:
            CASES[name](net, optimizer.setupOn(net))
            net.evalMode()
        alike(program.run(x), net(x))
    assert program.executable is not None


def test_adam_counts_the_steps_of_each_parameter():
    net, (x, t) = network(), data()
    twin, optimizers = copy.deepcopy(net), (AdamW(0.01), AdamW(0.01))
    task = withCost(twin, pg.CrossEntropy(), 1, 1).trainMode()
    optimizers[1].setupOn(twin)
    program = net.compile([x.shape, t.shape], cost=pg.CrossEntropy(), optimizer=optimizers[0])
    for step in range(8):
        for n in (net, twin):
            n["linear"].W.trainable = step not in (2, 3)
        program.run(x, t)
        learn(task, optimizers[1], x, t)
        assertSame(net, twin)
    assert optimizers[0].slots[0].step == 6


def test_what_tells_nobody_is_looked_at_each_time():
    net, (x, _) = network(Silent), data()
    assert not isVersioned(net["silent"]) and isVersioned(net["linear"])
    program = net.evalMode().compile(x.shape)
    first = program.run(x)
    net["silent"].factor = -1.0
    found = program.run(x)
    assert not np.allclose(first, found)
    alike(found, net(x))


def test_a_run_notes_no_change_and_looks_at_nothing(monkeypatch):
    net, (x, t) = network(), data()
    program = net.compile([x.shape, t.shape], cost=pg.CrossEntropy(), optimizer=MomentumSGD(0.1))
    program.run(x, t)
    mark, looks = COUNTER.version, []
    monkeypatch.setattr(type(program.current), "isUnchanged", lambda self: looks.append(self) or True)
    for _ in range(3):
        program.run(x, t)
    assert COUNTER.version is mark and not looks
    net["scaled"].factor = net["scaled"].factor
    program.run(x, t)
    program.run(x, t)
    assert looks == [program.current]


def test_a_change_during_a_look_is_seen_by_the_next(monkeypatch):
    net, (x, _) = network(), data()
    program = net.evalMode().compile(x.shape)
    program.run(x)
    whole = type(program.current).isUnchanged

    def meanwhile(self):
        found = whole(self)
        net["scaled"].factor = 5.0  # as another thread would
        return found

    net["scaled"].factor = 2.0
    with monkeypatch.context() as patch:
        patch.setattr(type(program.current), "isUnchanged", meanwhile)
        program.run(x)
    alike(program.run(x), net(x))


def test_whatever_has_no_getter_is_read_as_any_attribute():
    class Thing:
        size = VersionedAttribute()

        def __init__(self):
            self.size = 3

    thing, mark = Thing(), COUNTER.version
    assert thing.size == 3 and vars(thing) == {"size": 3} and COUNTER.version is mark
    thing.size = 4
    assert thing.size == 4 and COUNTER.version is not mark
    mark = COUNTER.version
    del thing.size
    assert COUNTER.version is not mark and vars(thing) == {}
    assert not isVersioned(thing)


def test_what_is_set_in_every_run_is_not_noted():
    class Own(Versioned):
        unversioned = frozenset(("last",))

    own, mark = Own(), COUNTER.version
    own.last = 1
    assert COUNTER.version is mark and isVersioned(own)
    own.size = 1
    assert COUNTER.version is not mark
    mark = COUNTER.version
    del own.size
    assert COUNTER.version is not mark


def test_an_updater_follows_what_an_optimizer_keeps():
    net, (x, t) = network(), data()
    twin, optimizers = copy.deepcopy(net), (MomentumSGD(0.1), MomentumSGD(0.1))
    tasks = [withCost(n, pg.CrossEntropy(), 1, 1).trainMode() for n in (net, twin)]
    for n, o in zip((net, twin), optimizers):
        o.setupOn(n)
    updater = None
    for step in range(4):
        for task in tasks:
            task([x, t])
            task.backward([np.float32(1), None], updGrad=False)
        if step == 2:
            for o in optimizers:
                kept(None, o)
        updater = updater or Updater(tasks[0], optimizers[0])
        updater.run()
        optimizers[1].update()
        assertSame(net, twin)


# What is looked at besides ------------------------------------------------------------------------------------------


def test_errors_of_arithmetic_are_raised_where_they_are_to_be():
    net, (x, _) = network().evalMode(), data()
    program = net.compile(x.shape)
    alike(program.run(x), net(x))
    wrong = x * np.float32(np.inf)
    assert np.isnan(program.run(wrong)).all()
    for _ in range(2):
        with np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
            program.run(wrong)
        assert np.isnan(program.run(wrong)).all()
    told = []
    with np.errstate(invalid="call", call=lambda *a: told.append(a)):
        program.run(wrong)
    assert told


def test_settings_of_numpy_are_those_of_the_thread():
    found = []

    def look():
        found.append(raises())
        with np.errstate(divide="raise"):
            found.append(raises())
        found.append(raises())

    with np.errstate(all="ignore"):
        assert not raises()
        with np.errstate(all="raise"):
            assert raises()
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
            assert raises()
        assert not raises()
    assert found == [False, True, False]


def test_who_looks_on_sees_what_is_not_finite():
    net, (x, _) = network().evalMode(), data()
    program = net.compile(x.shape)
    program.run(x)
    x[0, 0] = np.nan
    with detect_anomaly(), pytest.raises(RuntimeError, match="linear"):
        program.run(x)


def words(kind):
    """A graph of indices: as they are, as a view with strides, as both of two tables."""
    a = pg.Input(name="words").node()
    pg.seed(1)
    if kind == "plain":
        return pg.Graph(a, pg.Embedder(5, 4, name="table").node(a)), (3, 2)
    if kind == "column":
        column = pg.Slice((slice(None), 1), name="column").node(a)
        return pg.Graph(a, pg.Embedder(5, 4, name="table").node(column)), (3, 2)
    rows = pg.Slice((slice(None, None, 2), slice(0, 2), slice(1, None, 2)), name="rows").node(a)
    return pg.Graph(a, [pg.Embedder(5, 4, name="table").node(rows), pg.Embedder(7, 4, name="other").node(rows)]), (
        5,
        3,
        6,
    )


@pytest.mark.parametrize("wrong", [5, -2, 1 << 40])
@pytest.mark.parametrize("kind", ["plain", "column", "rows"])
def test_a_wrong_index_names_the_node_and_changes_nothing(kind, wrong, manner):
    net, shape = words(kind)
    rng = np.random.default_rng(0)
    x = rng.integers(-1, 5, shape)
    program = Program(net, [shape], ["i8"])
    assert program.executable is not None and (manner == "numpy" or program.executable.guard.table is not None)
    for place in ((2, 1), (0, 1)) if len(shape) == 2 else ((4, 1, 5), (0, 0, 1)):
        program.run(x)
        good, x[place] = x[place], wrong
        with pytest.raises(DataError, match="the vocabulary has 5 words") as caught:
            program.run(x)
        assert "table" in "".join(caught.value.__notes__ if hasattr(caught.value, "__notes__") else caught.value.args)
        x[place] = good
        found, wanted = program.run(x), net(x)
        for a, b in zip(*((f if isinstance(f, list) else [f]) for f in (found, wanted))):
            assert np.array_equal(a, b)


def test_indices_that_nobody_reads_may_be_anything():
    net, shape = words("column")
    program = Program(net, [shape], ["i8"])
    x = np.array([[99, 1], [-5, 4], [7, -1]])
    assert np.array_equal(program.run(x), net(x))


@pytest.mark.parametrize("label", [3, -1, -7])
def test_a_wrong_label_changes_no_weight(label):
    net, (x, t) = network(), data()
    optimizer = SGD(0.1)
    program = net.compile([x.shape, t.shape], cost=pg.CrossEntropy(ignoreIndex=-7), optimizer=optimizer)
    program.run(x, t)
    before = {path: p.data.copy() for path, p in net.params.items()}
    t[5] = label
    if label == -7:
        assert np.isfinite(program.run(x, t)[0])
        return
    with pytest.raises(DataError, match=f"got label {label}"):
        program.run(x, t)
    assert optimizer.step == 1 and all(np.array_equal(p.data, before[path]) for path, p in net.params.items())


def test_large_indices_are_checked_where_they_lie():
    pg.seed(1)
    net = pg.Sequential(pg.Embedder(50, 8))
    program = Program(net, [(3000, 5)], ["i8"])
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = rng.integers(0, 50, (3000, 5))
        assert np.array_equal(program.run(x), net(x))
        x[2999, 4] = 50
        with pytest.raises(DataError, match="50 words"):
            program.run(x)


@pytest.mark.parametrize("early", [True, False], ids=["from the start", "in between"])
def test_a_frozen_parameter_which_stays_behind_is_no_reason_to_compile_again(early, rng, monkeypatch):
    net = pg.Sequential(pg.Linear(3, 4), pg.Linear(4, 2))
    net["linear"].b.trainable = not early
    program = net.compile((5, 3), (5, 2), cost=pg.MSE(), optimizer=MomentumSGD())
    x, t = rng.standard_normal((5, 3)).astype(np.float32), rng.standard_normal((5, 2)).astype(np.float32)
    program.run(x, t)
    net["linear"].b.trainable = False
    program.run(x, t)
    monkeypatch.setattr(Program, "build", lambda self: pytest.fail("compiled again"))
    for _ in range(3):
        program.run(x, t)
