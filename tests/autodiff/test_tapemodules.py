"""Every module and cost on Variables: what it gives alone, what Graph.backward gives, and second derivatives."""

import contextlib
import copy
import random

import numpy as np
import pytest
from everyexample import everyExample
from everymodule import (
    CLASSES,
    DERIVED,
    EXAMPLES,
    FIRSTORDER,
    NOTTWICE,
    RECORDED,
    SIZED,
    STRAIGHT,
    Cube,
    Swap,
    examplesOf,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from randomgraphs import randomGraph

from puregraph.autodiff import AutoDiffException, Function, Variable, backward, enable_grad, grad, no_grad, parameter
from puregraph.core.errors import GraphError, ShapeError
from puregraph.core.param import Param
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.sequential import Sequential
from puregraph.modules import Add, BatchNorm, Dropout, Identity, Linear, Mul, Relu, Split, Tanh
from puregraph.testing.check import Case

STEP = 1e-6
MODES = {"train": True, "eval": False}
DTYPES = {"float32": np.float32, "float64": np.float64}


@pytest.fixture(autouse=True)
def recording():
    with enable_grad():
        yield


def same(a, b):
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and np.shape(a) == np.shape(b) and np.array_equal(a, b, equal_nan=True)


def prepared(found, index, mode, dtype=np.float64):
    """A module and inputs in the dtype."""
    module, shapes = examplesOf(found)[index]
    case = Case(module, shapes, train=MODES[mode])
    case.module.calcMode(dtype)
    inputs = [x.astype(dtype) if x.dtype.kind == "f" else x for x in case.inputs]
    return case.module, inputs


def listed(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def seedsFor(outputs):
    rng = np.random.default_rng(5)
    return [np.asarray(rng.standard_normal(np.shape(y)), y.dtype) for y in outputs]


def leavesOf(inputs):
    return [Variable(x, requires_grad=x.dtype.kind == "f") for x in inputs]


def inGraph(module, inputs):
    """Outputs and gradients of a graph of one node."""
    sources = [Input(name=f"x{i}").node() for i in range(len(inputs))]
    net = Graph(sources, module.node(*sources))
    net.isTraining = module.isTraining
    y = net(inputs if len(inputs) > 1 else inputs[0])
    seeds = seedsFor(listed(y))
    net.backward(seeds if len(seeds) > 1 else seeds[0])
    return listed(y), listed(net.grad)


@everyExample(RECORDED, mode=MODES, dtype=DTYPES)
def test_a_module_gives_on_variables_what_it_gives_on_arrays(found, index, mode, dtype):
    module, inputs = prepared(found, index, mode, DTYPES[dtype])
    alone, meshed = copy.deepcopy(module), copy.deepcopy(module)
    leaves = leavesOf(inputs)
    outputs = listed(module(*leaves))
    plain = listed(alone(*inputs))
    assert all(isinstance(y, Variable) for y in outputs)
    assert all(same(y.data, z) for y, z in zip(outputs, plain, strict=True))
    for name, state in module.states.items():
        assert same(state.data, alone.states[name].data), f"{name} moved otherwise"
    wanted, grads = inGraph(meshed, inputs)
    assert all(same(y.data, z) for y, z in zip(outputs, wanted, strict=True))
    going = [(y, g) for y, g in zip(outputs, seedsFor(wanted)) if y.requires_grad]
    if going:
        backward(*zip(*going))
    for v, g in zip(leaves, grads, strict=True):
        assert same(v.grad, g if v.requires_grad else None)
    for name, p in module.params.items():
        assert same(p.grad, meshed.params[name].grad), f"the gradient of {name} differs"
    for name, state in module.states.items():
        assert same(state.data, meshed.states[name].data), f"{name} moved twice"


def withValues(module, inputs, wanted, step, directions):
    """A copy of the module, and inputs, moved along directions."""
    moved = copy.deepcopy(module)
    points = [x + step * d if d is not None else x for x, d in zip(inputs, directions)]
    for name, d in zip(wanted, directions[len(inputs) :]):
        param = getattr(moved, name)
        param.data = param.data + step * d
    return moved, points


def slopes(module, inputs, names, weights, create, curved):
    """The gradients of a weighted sum of the outputs, or of their squares, by inputs and parameters; and their leaves."""
    module = copy.deepcopy(module)
    leaves = leavesOf(inputs)
    outputs = [y * y if curved else y for y in listed(module(*leaves)) if y.requires_grad]
    ends = [v for v in leaves if v.requires_grad] + [parameter(getattr(module, n)) for n in names]
    found = grad(outputs, ends, seedsFor([y.data for y in outputs]), create_graph=create, allow_unused=True)
    total = 0.0
    for g, w in zip(found, weights):
        if g is not None:
            total = total + np.sum(g * w)
    return ends, total


def secondDerivatives(module, inputs, curved):
    """The derivative of the sum of weighed gradients along a random direction: by the tape, and by differences; its size."""
    names = [n for n, p in module.params.items() if module.wants(p)]
    floats = [x.dtype.kind == "f" for x in inputs]
    rng = np.random.default_rng(11)
    shapes = [x.shape for x, isFloat in zip(inputs, floats) if isFloat] + [module.params[n].shape for n in names]
    weights, turns = ([rng.standard_normal(s) for s in shapes] for _ in range(2))
    ends, total = slopes(module, inputs, names, weights, True, curved)
    left = iter(turns)
    directions = [next(left) if isFloat else None for isFloat in floats] + list(left)
    low, high = (
        float(slopes(*withValues(module, inputs, names, s * STEP, directions), names, weights, False, curved)[1])
        for s in (-1, 1)
    )
    second = 0.0
    if isinstance(total, Variable) and total.requires_grad:
        parts = grad(total, ends, allow_unused=True)
        second = sum(float(np.sum(g * d)) for g, d in zip(parts, turns) if g is not None)
    return second, (high - low) / (2 * STEP), float(total.data if isinstance(total, Variable) else total)


def assertSecond(module, inputs, curved):
    second, numeric, size = secondDerivatives(module, inputs, curved)
    assert abs(second - numeric) <= 1e-6 * max(1.0, abs(second), abs(numeric), abs(size)), (second, numeric)


@everyExample([example for example in DERIVED if example not in NOTTWICE], mode=MODES, curved=[False, True])
def test_second_derivatives_are_right(found, index, mode, curved):
    module, inputs = prepared(found, index, mode)
    if any(x.dtype.kind == "f" for x in inputs):
        before = {name: state.data.copy() for name, state in module.states.items()}
        assertSecond(module, inputs, curved)
        for name, state in module.states.items():
            assert same(state.data, before[name])


@everyExample([(found, index) for found, index in EXAMPLES if found in FIRSTORDER])
def test_second_derivatives_of_other_modules_are_right_or_refused(found, index):
    module, inputs = prepared(found, index, "train")
    if any(x.dtype.kind == "f" for x in inputs):
        with contextlib.suppress(AutoDiffException):
            assertSecond(module, inputs, True)


@everyExample(RECORDED, mode=MODES)
def test_a_recorded_pass_leaves_states_alone_and_gives_the_same_gradients(found, index, mode):
    module, inputs = prepared(found, index, mode)
    leaves = leavesOf(inputs)
    ends = [v for v in leaves if v.requires_grad]
    outputs = [y for y in listed(module(*leaves)) if y.requires_grad]
    if not outputs or not ends:
        return
    states = {name: state.data for name, state in module.states.items()}
    values = {name: data.copy() for name, data in states.items()}
    seeds = seedsFor([y.data for y in outputs])
    plain = grad(outputs, ends, seeds, retain_graph=True, allow_unused=True)
    recorded = grad(outputs, ends, seeds, create_graph=True, allow_unused=True)
    for a, b in zip(plain, recorded):
        if a is not None:
            assert np.allclose(a, b.data, rtol=1e-12, atol=1e-12)
    for name, state in module.states.items():
        assert state.data is states[name] and same(state.data, values[name])


# Functions ------------------------------------------------------------------------------------------------------------


def test_a_function_is_the_same_in_a_graph_and_on_the_tape():
    x = np.random.default_rng(0).standard_normal((3, 4))
    v, w = (Variable(x, requires_grad=True) for _ in range(2))
    source = Input(name="x").node()
    net = Graph(source, Tanh().node(Cube.node(source)))
    seed = np.random.default_rng(1).standard_normal((3, 4))
    y = net(x)
    net.backward(seed)
    onTape = Tanh()(Cube.apply(v))
    onTape.backward(seed)
    through = net(w)
    through.backward(seed)
    assert same(onTape.data, y) and same(through.data, y)
    assert same(v.grad, net.grad) and same(w.grad, net.grad)
    assert through.grad_fn.next_functions[0].node.name() == "CubeBackward0"
    (g,) = grad(net(w), w, seed, create_graph=True)
    (h,) = grad(Tanh()(Cube.apply(v)), v, seed, create_graph=True)
    assert same(grad(g, w, seed)[0], grad(h, v, seed)[0])


def test_slots_of_a_function_are_followed():
    a, b = Variable(np.ones(2), requires_grad=True), Variable(np.ones((3, 1)), requires_grad=True)
    first, second = Input(name="a").node(), Input(name="b").node()
    swap = Swap.node(first, second)
    net = Graph([first, second], Mul().node((swap, 0), (swap, 1)))
    net([a, b]).sum().backward()
    assert a.grad.tolist() == [6, 6] and b.grad.tolist() == [[4], [4], [4]]


def test_a_value_of_ones_own_type_passes_through_a_graph_and_a_function():
    class Reverse(Function):
        @staticmethod
        def dataShapeFrom(x):
            return x

        @staticmethod
        def forward(ctx, x):
            return x[::-1]

        @staticmethod
        def backward(ctx, g):
            return g[::-1]

    x = np.arange(3.0)
    v = Variable(x, requires_grad=True)
    source = Input(name="x").node()
    net = Graph(source, Reverse.node(source))
    assert same(net(x), x[::-1])
    net.backward(x)
    net(v).backward(x)
    assert same(v.grad, net.grad)


# Graphs ---------------------------------------------------------------------------------------------------------------


def twin(build, *inputs, dtype=np.float64):
    """The same graph on arrays and on Variables: outputs and all gradients are equal to the last bit."""
    net = build().calcMode(np.dtype(dtype))
    copied = copy.deepcopy(net)
    leaves = [Variable(x, requires_grad=x.dtype.kind == "f") for x in inputs]
    y = listed(net(list(inputs) if len(inputs) > 1 else inputs[0]))
    z = listed(copied(*leaves))
    assert all(same(a, b.data) for a, b in zip(y, z, strict=True))
    seeds = seedsFor(y)
    net.backward(seeds if len(seeds) > 1 else seeds[0])
    backward(z, seeds)
    for g, v in zip(listed(net.grad), leaves, strict=True):
        assert same(g, v.grad)
    for path, p in net.params.items():
        assert same(p.grad, copied.params[path].grad), path
    for path, s in net.states.items():
        assert same(s.data, copied.states[path].data), path
    return z


def nested():
    block = Sequential(Linear(3, 3, name="fc"), Tanh(), name="block")
    source = Input(name="x").node()
    inner = block.node(source)
    return Graph(source, Add().node(inner, source), name="outer")


def shared():
    layer = Linear(3, 3, name="fc")
    source = Input(name="x").node()
    first = layer.node(source)
    return Graph(source, Add().node(layer.node(Tanh().node(first), name="again"), first))


def slots():
    source = Input(name="x").node()
    split = Split(1, (1, 2), name="split").node(source)
    return Graph(source, [Mul().node((split, 1), (split, 0)), Relu().node((split, 1))])


def normed():
    return Sequential(
        Linear(3, 4, name="fc"), BatchNorm(4, name="norm"), Dropout(0.4, name="drop"), Linear(4, 2, name="out")
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("build", [nested, shared, slots, normed])
def test_graphs_on_variables(build, dtype):
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(dtype)
    twin(build, x, dtype=DTYPES[dtype])
    twin(lambda: build().evalMode(), x, dtype=DTYPES[dtype])


def test_a_graph_of_graphs_of_graphs():
    x = np.random.default_rng(0).standard_normal((5, 3))
    twin(lambda: Sequential(Sequential(nested(), name="a"), Sequential(shared(), Identity(), name="b"), name="top"), x)


def test_running_statistics_move_once():
    x = Variable(np.random.default_rng(0).standard_normal((6, 2)), requires_grad=True)
    norm = BatchNorm(2).calcMode(np.float64)
    y = norm(x)
    count, mean = norm.count.data.copy(), norm.mean.data.copy()
    assert count == 1
    (g,) = grad((y * y * y).sum(), x, create_graph=True)
    (g * g).sum().backward()
    assert norm.count.data == 1 and same(norm.mean.data, mean)
    with no_grad():
        norm(x)
    assert norm.count.data == 2


def test_a_node_of_the_tape_is_called_after_its_module():
    x = Variable(np.ones((2, 3)), requires_grad=True)
    layer = Linear(3, 4).calcMode(np.float64)
    y = layer(x)
    assert y.grad_fn.name() == "LinearBackward0"
    names = [edge.node.name() for edge in y.grad_fn.next_functions]
    assert names == ["AccumulateGrad"] * 3
    assert layer.evalMode()(x).grad_fn.next_functions == (y.grad_fn.next_functions[0],)
    assert not layer(Variable(np.ones((2, 3)))).requires_grad


def test_parameters_add_up_and_can_be_asked_for():
    layer = Linear(2, 1, useBias=False).calcMode(np.float64)
    x = Variable(np.ones((1, 2)))
    for _ in range(2):
        layer(x).sum().backward()
    assert layer.W.grad.tolist() == [[2], [2]]
    W = parameter(layer.W)
    assert W.requires_grad and np.shares_memory(W.data, layer.W.data)
    (g,) = grad((layer(x) * layer(x)).sum(), W)
    assert np.allclose(g, 2 * layer.W.data.sum()) and layer.W.grad.tolist() == [[2], [2]]
    layer.W.grad = None
    layer(x).sum().backward(inputs=[W])
    assert layer.W.grad.tolist() == [[1], [1]]
    layer.W.trainable = False
    assert not layer(x).requires_grad


def test_a_penalty_on_gradients_reaches_parameters():
    layer = Linear(2, 1, useBias=False).calcMode(np.float64)
    x = Variable(np.ones((1, 2)), requires_grad=True)
    (g,) = grad(layer(x).sum(), x, create_graph=True)
    (g * g).sum().backward()
    assert np.array_equal(layer.W.grad, 2 * layer.W.data) and x.grad is None


def test_a_module_that_fails_names_its_place():
    net = Sequential(Linear(3, 2, name="fc"), Linear(3, 2, name="wrong"))
    with pytest.raises(ShapeError, match="wrong"):
        net(Variable(np.ones((2, 3), np.float32), requires_grad=True))
    with pytest.raises(GraphError, match="Add|wanted"):
        Tanh()(Variable(1.0), Variable(2.0))


def test_a_rule_that_cannot_be_recorded_is_an_error_and_no_wrong_number():
    class Opaque(Module):
        """y = x^2 by a rule that leaves what can be recorded."""

        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            return x * x

        def updateGrad(self, grad, x, y):
            return np.asarray(x) * 2 * np.asarray(grad)

    x = Variable(np.array([1.0, 2.0]), requires_grad=True)
    y = Opaque()(x)
    assert grad(y, x, np.ones(2), retain_graph=True)[0].tolist() == [2, 4]
    with pytest.raises(AutoDiffException, match="OpaqueBackward0: its rule cannot be recorded"):
        grad(y, x, Variable(np.ones(2), requires_grad=True), create_graph=True)


def test_random_values_in_a_hidden_output_are_an_error_and_no_wrong_second_derivative():
    class Noisy(Module):
        """y = noise x^2."""

        hidden = ("noise",)

        def dataShapeFrom(self, x):
            return x

        def hiddenShapeFrom(self, x):
            return [x]

        def updateData(self, x):
            noise = numbers.random(2)
            return noise * x * x, noise

        def updateGrad(self, grad, x, y, noise):
            return 2 * noise * x * grad

    numbers = np.random.default_rng(0)
    x = Variable(np.array([1.0, 2.0]), requires_grad=True)
    y = Noisy()(x)
    assert np.allclose(grad(y, x, np.ones(2), retain_graph=True)[0], 2 * y.data / x.data)
    with pytest.raises(AutoDiffException, match="NoisyBackward0: no second derivative, .* 'noise' differs"):
        grad(y, x, np.ones(2), create_graph=True)


def test_a_gradient_of_another_shape_names_the_module():
    class Wrong(Module):
        """y = 2 x with a gradient that is not x's."""

        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            return 2 * x

        def updateGrad(self, grad, x, y):
            return grad.sum()

    x = Variable(np.array([1.0, 2.0]), requires_grad=True)
    with pytest.raises(ShapeError, match=r"at 'odd' \(Wrong\): wanted its gradient rule to give shape \(2,\)"):
        Wrong(name="odd")(x).backward(np.ones(2))
    assert x.grad is None


def test_an_input_that_was_modified_is_noticed():
    x = Variable(np.array([[1.0, 2.0]]), requires_grad=True)
    y = Tanh()(x)
    x.data = x.data * 2
    with pytest.raises(AutoDiffException, match="TanhBackward0: an input was modified in place"):
        y.sum().backward()


def test_every_class_was_looked_at():
    assert {found for found, _ in DERIVED} == set(CLASSES) - SIZED - FIRSTORDER - STRAIGHT
    assert any(isinstance(p, Param) for p in Linear(2, 3).params.values())


# Random graphs --------------------------------------------------------------------------------------------------------


@pytest.mark.costly
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**63))
def test_random_graphs_on_variables_are_those_on_arrays(seed):
    graph, shapes, _ = randomGraph(random.Random(f"tape {seed}"))
    numbers = np.random.default_rng(seed % 2**32)
    inputs = [numbers.standard_normal(s) for s in shapes]
    outputs = listed(graph(inputs))
    seeds = [numbers.standard_normal(y.shape) for y in outputs]
    graph.backward(seeds if len(seeds) > 1 else seeds[0])
    wanted, grads = {path: p.grad for path, p in graph.params.items()}, listed(graph.grad)
    for p in graph.params.values():
        p.grad = None
    leaves = leavesOf(inputs)
    found = listed(graph(*leaves) if len(leaves) == 1 else graph(leaves))
    assert all(same(a, b.data) for a, b in zip(outputs, found, strict=True))
    backward(found, seeds)
    assert all(same(v.grad, g) for v, g in zip(leaves, grads, strict=True))
    for path, p in graph.params.items():
        assert same(p.grad, wanted[path]), path
