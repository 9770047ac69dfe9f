"""Rules that are not read, because they do more than compute: they run whole in a compiled step."""

import copy
from contextlib import nullcontext

import numpy as np
import pytest
from smallsteps import batch, classifier, kinds, same
from smallsteps import plain as plain

from puregraph import (
    MSE,
    SGD,
    CrossEntropy,
    Function,
    Graph,
    Input,
    Linear,
    Module,
)
from puregraph.autodiff import detect_anomaly
from puregraph.compile import Program
from puregraph.core.errors import GraphWarning, PuregraphError

K = 0.5

pytestmark = pytest.mark.usefixtures("numpyOnly")


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
