"""Gradcheck says True of what is right, and names the node at fault, the argument and the numbers of what is wrong."""

import numpy as np
import pytest
from everyexample import everyExample
from everymodule import DERIVED, MODES, Cube, Swap, examplesOf

from puregraph.autodiff.checks.gradcheck import GradcheckError, gradcheck
from puregraph.autodiff.tape.activationrecompute import checkpoint
from puregraph.autodiff.tape.variable import Variable
from puregraph.core.errors import AutoDiffException, ShapeError
from puregraph.core.param import Param
from puregraph.core.rules import REGISTRY, registerRule
from puregraph.graph import Graph
from puregraph.graph.function import Function
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.graph.sequential import Sequential
from puregraph.models import cifarResnet, lenet
from puregraph.modules import Add, BatchNorm, Dropout, Embedder, Linear, Relu, Sum, Tanh, costs
from puregraph.testing.check import Case


@everyExample(DERIVED, mode=MODES)
def test_every_module_passes(found, index, mode):
    module, shapes = examplesOf(found)[index]
    case = Case(module, shapes, train=MODES[mode])
    assert gradcheck(case.module, case.inputs) is True


@pytest.mark.parametrize("mode", MODES)
def test_models_pass(mode, rng):
    net = lenet(size=8, maps=(2, 3), norm=True, dropout=0.2)
    for p in net.params.values():
        p.data = p.data + 0.1 * rng.standard_normal(p.shape).astype(np.float32)
    net.mode(MODES[mode])
    assert gradcheck(net, rng.standard_normal((3, 1, 8, 8)))


def test_a_deep_model_passes(rng):
    net = cifarResnet(8).evalMode()
    for p in net.params.values():
        p.data = p.data + 0.1 * rng.standard_normal(p.shape).astype(np.float32)
    assert gradcheck(net, rng.standard_normal((1, 3, 8, 8)))


def test_functions_pass(rng):
    assert gradcheck(Cube, rng.standard_normal((2, 3)))
    assert gradcheck(Swap, (rng.standard_normal(2), rng.standard_normal((3, 1))))


def test_costs_and_indices_pass(rng):
    x, t = Input(name="x").node(), Input(name="t").node()
    net = Graph([x, t], costs.CrossEntropy()(Linear(4, 3)(Embedder(5, 4)(x)), t))
    assert gradcheck(net, [rng.integers(0, 5, 6), rng.integers(0, 3, 6)])


class Wrong(Module):
    """y = x W, with a gradient that `fault` spoils

    Shapes    x (..., i), W (i, o) -> y (..., o)
    Source    none
    """

    def __init__(self, fault, name=None):
        super().__init__(name)
        self.fault = fault
        self.W = Param((3, 3), "ones")

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x, W):
        if self.fault == "writes forward":
            x *= 2
        if self.fault == "random":
            return x @ W + np.random.standard_normal(x.shape)
        if self.fault == "raises":
            raise ZeroDivisionError("here")
        return x @ W

    def updateGrad(self, grad, x, W, y):
        gx, gW = grad @ W.T, x.T @ grad
        if self.fault == "value":
            gW[1, 2] *= 1.5
        if self.fault == "sign":
            gx = -gx
        if self.fault == "none":
            gW = None
        if self.fault == "shape":
            gW = gW[:1]
        if self.fault == "dtype":
            gx = gx.astype(np.float32)
        if self.fault == "writes backward":
            grad *= 1.0 + 1e-12
        if self.fault == "writes output":
            y += 1
        if self.fault == "count":
            return gx
        return gx, gW


def spoiled(fault):
    return Sequential(
        Linear(3, 3, name="first"), Tanh(name="act"), Wrong(fault, name="second"), Linear(3, 2, name="last")
    )


def caught(function, inputs, **options):
    with pytest.raises(GradcheckError) as found:
        gradcheck(function, inputs, **options)
    return found.value


def test_a_wrong_value_is_found(rng):
    net = spoiled("value")
    error = caught(net, rng.standard_normal((4, 3)))
    assert error.path == "second" and isinstance(error.module, Wrong) and error.argument == "W"
    assert np.isclose(error.got, 1.5 * error.expected)
    text = str(error)
    assert "at 'second' (Wrong('value')): the gradient of 'W' is wrong: at (1, 2) expected" in text
    assert "from central differences, got" in text and "compare updateGrad with the formula" in text


@pytest.mark.parametrize(
    ("fault", "argument", "words"),
    [
        ("sign", "x", "the gradient of 'x' is wrong"),
        ("none", "W", "return its gradient instead of None"),
        ("shape", "W", r"of shape \(1, 3\) in float64, expected \(3, 3\) in float64"),
        ("dtype", "x", "in float32, expected .* in float64"),
        ("writes forward", "", "updateData writes to 'x'"),
        ("writes backward", "", "updateGrad writes to 'the gradient'"),
        ("writes output", "", "updateGrad writes to 'y'"),
        ("random", "", "two runs on the same values give different 'y'"),
    ],
)
def test_a_fault_is_named_with_its_node(fault, argument, words, rng):
    error = caught(spoiled(fault), rng.standard_normal((4, 3)))
    assert error.path == "second" and error.argument == argument
    with pytest.raises(GradcheckError, match=words):
        raise error


def test_the_first_wrong_node_is_named(rng):
    net = Sequential(Wrong("sign", name="one"), Wrong("value", name="two"))
    assert caught(net, rng.standard_normal((4, 3))).path == "one"
    nested = Sequential(Tanh(name="act"), net, name="outer")
    assert caught(nested, rng.standard_normal((4, 3))).path == "sequential.one"


def test_other_exceptions_keep_their_type_and_gain_the_place(rng):
    for fault, kind in (("raises", ZeroDivisionError), ("count", Exception)):
        with pytest.raises(kind) as found:
            gradcheck(spoiled(fault), rng.standard_normal((4, 3)))
        text = "\n".join([str(found.value), *getattr(found.value, "__notes__", [])])
        assert "at 'second' (Wrong)" in text
    with pytest.raises(ShapeError):
        gradcheck(spoiled("sign"), rng.standard_normal((4, 2)))


class Straight(Function):
    """Round, with the gradient passed straight through."""

    @staticmethod
    def forward(ctx, x):
        return np.floor(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_a_function_at_fault_is_named_and_may_be_skipped(rng):
    x = Input(name="x").node()
    net = Graph(x, Linear(3, 2, name="fc")(Straight.node(x, name="round")))
    error = caught(net, rng.standard_normal((4, 3)))
    assert error.path == "round" and error.expected == 0 and "Straight.backward" in str(error)
    assert gradcheck(net, rng.standard_normal((4, 3)), skip=["round"])
    with pytest.raises(AutoDiffException, match="no node 'rond' to skip"):
        gradcheck(net, rng.standard_normal((4, 3)), skip=["rond"])


def test_a_registered_rule_at_fault_is_named(rng):
    @registerRule(Tanh, name="crude")
    def crude(module, grad, x, y):
        return grad

    try:
        x = Input(name="x").node()
        error = caught(Graph(x, Tanh(name="act").node(x, rule="crude")), rng.standard_normal(3))
        assert error.path == "act" and "got" in str(error) and "from its registered rule 'crude'" in str(error)
    finally:
        del REGISTRY[Tanh, "crude"]


def test_a_kink_is_told_from_a_mistake():
    error = caught(Sequential(Relu(name="act")), np.array([1.0, 0.0]))
    assert error.path == "act" and "kink" in str(error) and "at (1,)" in str(error)
    assert "kink" not in str(caught(spoiled("value"), np.ones((2, 3))))


class Forgetful(Module):
    """y = x x, keeping x on itself

    Shapes    x (any) -> y as x
    Source    none
    """

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        self.x = x
        return x * x

    def updateGrad(self, grad, x, y):
        return 2 * self.x * grad


def test_what_each_rule_hides_is_found_in_the_whole(rng):
    one = Forgetful()
    assert gradcheck(Sequential(Tanh(), one), rng.standard_normal(3))
    error = caught(Sequential(one, one), rng.standard_normal(3))
    assert error.path == "" and error.argument == "input 'forgetful.x'"
    assert "a rule reads something that is not among its arguments" in str(error)


def test_nothing_moves(rng):
    net = Sequential(Linear(3, 4), BatchNorm(4), Dropout(0.4), Linear(4, 2))
    net(rng.standard_normal((5, 3)).astype(np.float32))
    net.backward(np.ones((5, 2), np.float32))
    kept = {n: s.data.copy() for n, s in (*net.params.items(), *net.states.items())}
    grads = {n: p.grad for n, p in net.params.items()}
    x = rng.standard_normal((5, 3)).astype(np.float32)
    before = x.copy()
    assert gradcheck(net, x)
    assert np.array_equal(x, before) and net.dtype == np.float32
    assert all(np.array_equal(s.data, kept[n]) for n, s in (*net.params.items(), *net.states.items()))
    assert all(p.grad is grads[n] for n, p in net.params.items())


def test_tolerances_count(rng):
    slightly = Pointwise("f", "sin(x)")
    x = rng.standard_normal(4)
    assert gradcheck(slightly, x, eps=1e-2, atol=1e-3)
    assert caught(slightly, x, eps=0.3).path == "f"


def test_what_cannot_be_checked_is_said():
    with pytest.raises(AutoDiffException, match="wanted a Graph, a Module or a function"):
        gradcheck(3, np.ones(2))


def test_shared_modules_and_several_outputs_pass(rng):
    fc = Linear(3, 3)
    x, z = Input(name="x").node(), Input(name="z").node()
    a, b = fc(x), fc.node(z, name="again")
    assert gradcheck(Graph([x, z], [Add()(a, b), Sum()(a)]), [rng.standard_normal((2, 3))] * 2)


# ---- functions of Variables ---------------------------------------------------------------------------------


def test_functions_of_variables_pass(rng):
    net = Sequential(Linear(3, 4), BatchNorm(4), Dropout(0.4), Tanh()).calcMode("float64")
    w = Variable(rng.standard_normal((4, 2)), requires_grad=True)
    count = net[2].count.data.copy()

    def f(x, t):
        h = net(x) @ w
        return np.sum(h[t] * np.concatenate([h, h * 2])[:2]), checkpoint(lambda h: np.sin(h), h)

    assert gradcheck(f, [rng.standard_normal((4, 3)), np.array([0, 2])])
    assert net[2].count.data == count + 1 and w.grad is None  # run once, as it is


class Thrice(Function):
    """x^2, with a gradient that belongs to something else."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 3 * ctx.saved_variables[0] * grad


def test_a_node_of_the_tape_is_named(rng):
    x = rng.standard_normal((2, 3))
    error = caught(lambda x: np.sum(np.tanh(Thrice.apply(np.sin(x)))), x)
    assert "at ThriceBackward0: the gradient of argument 0 is wrong: expected" in str(error)
    assert np.isclose(error.got, 1.5 * error.expected)
    bad = Wrong("sign", name="second").calcMode("float64")
    error = caught(lambda x: np.sum(bad(np.tanh(x)) ** 2), x)
    assert "at WrongBackward0 ('second'): the gradient of argument 0 is wrong" in str(error)
    error = caught(lambda x: np.sum(Wrong("dtype", name="odd").calcMode("float64")(x)), x)
    assert "in float32 for argument 0" in str(error)


def test_a_function_that_differs_from_run_to_run_is_named(rng):
    error = caught(lambda x: x * np.random.standard_normal(3), rng.standard_normal(3))
    assert "two runs on the same values give different outputs 0" in str(error)
