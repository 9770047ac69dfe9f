"""If in trainMode, alone and nested in If, Scan and Loop: values, states, first and second derivatives, and files.

Both branches have parameters and states. A compiled step is compared with the eager one over several steps, so that
running statistics and random counters count too; the eager one with central differences.
"""

import copy

import numpy as np
import pytest
from natively import needsNative

import puregraph
from puregraph import BatchNorm, Constant, Dropout, Graph, If, Input, Linear, Loop, Scan, Sum, Tanh, load
from puregraph.autodiff import Variable, grad, parameter
from puregraph.compile.program import Program
from puregraph.graph.pointwise import Pointwise
from puregraph.serialize.blueprintreader import fromBlueprint
from puregraph.serialize.blueprintwriter import toBlueprint

WIDTH, BATCH, LENGTH, RUNS = 4, 5, 3, 3


def inputs(*names):
    return [Input(name=name).node() for name in names]


def branch(*sizes, hasStates=False):
    """Layers with tanh between them, and perhaps running statistics and a mask."""
    (x,) = inputs("x")
    h = x
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        h = Linear(a, b, name=f"fc{i}").node(h)
        h = BatchNorm(b, name=f"norm{i}").node(h) if hasStates else h
        h = Tanh(name=f"tanh{i}").node(h)
    return Graph(x, Dropout(0.3, name="drop").node(h) if hasStates else h)


def isAbove(x, limit, name):
    """A node that is true if the sum of x is above a limit."""
    return Pointwise(formula=f"x > {limit}", name=name).node(Sum(name=f"{name} sum").node(x))


def single(hasStates):
    return If(branch(WIDTH, 3, WIDTH, hasStates=hasStates), branch(WIDTH, WIDTH, hasStates=hasStates), name="if")


def nested(hasStates):
    """An If whose first branch holds another one."""
    (x,) = inputs("x")
    inner = If(branch(WIDTH, 3, WIDTH, hasStates=hasStates), branch(WIDTH, WIDTH, hasStates=hasStates), name="inner")
    first = Graph(x, Linear(WIDTH, WIDTH, name="after").node(inner.node(isAbove(x, 0.5, "high"), x)))
    return If(first, branch(WIDTH, 5, WIDTH, hasStates=hasStates), name="if")


def alone(choice):
    (x,) = inputs("x")
    h = Linear(WIDTH, WIDTH, name="stem").node(x)
    return Graph(x, Linear(WIDTH, 2, name="head").node(choice.node(isAbove(h, 0, "low"), h)))


def scanned(choice):
    c, x = inputs("c", "x")
    new = choice.node(isAbove(c + x, 0, "low"), c + x)
    ends = inputs("c", "x")
    node = Scan(Graph([c, x], [new, new]), 1, [(1, False)], [(1, False)], name="scan").node(*ends)
    return Graph(ends, [(node, 0), (node, 1)])


def looped(choice):
    t, isOn, c = inputs("t", "isOn", "c")
    new = choice.node(isAbove(c, 0, "low"), c)
    (x,) = inputs("x")
    fixed = [Constant(np.array(n), name=name).node() for name, n in (("count", RUNS), ("true", True))]
    node = Loop(Graph([t, isOn, c], [isOn, new, new, t]), 1, name="loop").node(*fixed, x)
    return Graph(x, [(node, 0), (node, 1)])


def everyCase(test):
    """Run a test for each choice, alone and within loops."""
    test = pytest.mark.parametrize("around", [alone, scanned, looped])(test)
    return pytest.mark.parametrize("choice", [single, nested])(test)


def listed(values):
    return list(values) if isinstance(values, (list, tuple)) else [values]


class Case:
    """A net in trainMode and float64, inputs, and output gradients."""

    def __init__(self, around, choice, seed, hasStates=False):
        puregraph.seed(seed)
        self.net = around(choice(hasStates)).calcMode("float64").trainMode()
        self.rng = np.random.default_rng(seed)
        shapes = [(BATCH, WIDTH), (BATCH, LENGTH, WIDTH)][: 2 if around is scanned else 1]
        self.inputs = [self.rng.standard_normal(shape) for shape in shapes]
        ys = listed(copy.deepcopy(self.net)(*self.inputs))
        self.seeds = [self.rng.standard_normal(y.shape) for y in ys]

    def seedOf(self):
        return self.seeds if len(self.seeds) > 1 else self.seeds[0]

    def gradients(self, net):
        """Outputs, input gradients and parameter gradients of an eager pass."""
        ys = listed(net(*self.inputs))
        net.backward(self.seedOf())
        return ys, listed(net.grad), [p.grad for p in net.params.values()]

    def program(self, net):
        types = ["float64"] * len(self.inputs)
        return Program(net, [x.shape for x in self.inputs], types, grads=[True] * len(self.seeds))


def near(got, wanted, what=""):
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        a, b = (0.0 if x is None else x for x in (a, b))
        np.testing.assert_allclose(a, b, 1e-11, 1e-11, err_msg=f"{what} {i}")


@everyCase
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_central_differences(around, choice, seed):
    case = Case(around, choice, seed)
    _, inputGrads, paramGrads = case.gradients(case.net)
    arrays = [*case.inputs, *(p.materialize() for p in case.net.params.values())]
    for array, gradient in zip(arrays, [*inputGrads, *paramGrads], strict=True):
        direction, before = case.rng.standard_normal(array.shape), array.copy()
        totals = []
        for step in (1e-6, -1e-6):
            array[...] = before + step * direction
            totals.append(sum(float(np.sum(y * s)) for y, s in zip(listed(case.net(*case.inputs)), case.seeds)))
        array[...] = before
        expected = (totals[0] - totals[1]) / 2e-6
        got = 0.0 if gradient is None else float(np.sum(gradient * direction))
        assert got == pytest.approx(expected, rel=1e-5, abs=1e-6)


@everyCase
@pytest.mark.parametrize("seed", range(2))
def test_second_derivatives_are_central_differences(around, choice, seed):
    case = Case(around, choice, seed)
    params = list(case.net.params.values())
    start = [x.copy() for x in (*case.inputs, *(p.materialize() for p in params))]
    moves = [case.rng.standard_normal(x.shape) for x in start]

    def first(step):
        for p, x, move in zip(params, start[len(case.inputs) :], moves[len(case.inputs) :]):
            p.data = x + step * move
        values = [x + step * move for x, move in zip(start, moves)][: len(case.inputs)]
        leaves = [*(Variable(x, requires_grad=True) for x in values), *map(parameter, params)]
        total = sum((y * s).sum() for y, s in zip(listed(case.net(*leaves[: len(values)])), case.seeds))
        return leaves, grad(total, leaves, create_graph=True, allow_unused=True)

    leaves, gradients = first(0.0)
    slope = sum((g * move).sum() for g, move in zip(gradients, moves) if g is not None)
    products = grad(slope, leaves, allow_unused=True)
    high, low = (first(step)[1] for step in (1e-5, -1e-5))
    for product, a, b in zip(products, high, low, strict=True):
        if a is None:
            assert product is None
            continue
        expected = (a.data - b.data) / 2e-5
        got = np.zeros_like(expected) if product is None else np.asarray(getattr(product, "data", product))
        np.testing.assert_allclose(got, expected, 1e-4, 1e-5)


@needsNative
@everyCase
@pytest.mark.parametrize("hasStates", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_compiled_step_equals_the_eager_one(around, choice, seed, hasStates):
    case = Case(around, choice, seed, hasStates)
    eager, compiled = case.net, copy.deepcopy(case.net)
    step = case.program(compiled)
    for number in range(4):
        ys, inputGrads, paramGrads = case.gradients(eager)
        near(listed(step.run(*case.inputs, *case.seeds)), ys, f"step {number}, output")
        near(listed(step.grad), inputGrads, f"step {number}, input")
        near([p.grad for p in compiled.params.values()], paramGrads, f"step {number}, parameter")
        pairs = [[s.materialize() for s in net.states.values()] for net in (compiled, eager)]
        near(*pairs, f"step {number}, state")
        for x in case.inputs:  # the other branches
            x[...] = case.rng.standard_normal(x.shape)
    assert not step.why


@everyCase
def test_a_file_goes_on_where_the_net_was(around, choice, tmp_path):
    case = Case(around, choice, 0, hasStates=True)
    case.net(*case.inputs)
    case.net.save(tmp_path / "net.h5")
    again = load(tmp_path / "net.h5").trainMode()
    for _ in range(2):
        wanted, got = case.gradients(case.net), case.gradients(again)
        for a, b in zip(got, wanted, strict=True):
            near(a, b)


@everyCase
def test_a_blueprint_has_both_branches(around, choice):
    case = Case(around, choice, 0, hasStates=True)
    again = fromBlueprint(toBlueprint(case.net))
    assert [(path, p.shape) for path, p in again.params.items()] == [(k, p.shape) for k, p in case.net.params.items()]
    assert [(path, s.shape) for path, s in again.states.items()] == [(k, s.shape) for k, s in case.net.states.items()]
    assert toBlueprint(again) == toBlueprint(case.net)
