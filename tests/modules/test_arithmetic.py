"""Arithmetic of several inputs, reductions, and operators on nodes: values, gradients, broadcasting, refusals."""

import numpy as np
import pytest
from peers import compare, ours

from puregraph.core.errors import GraphError, ShapeError
from puregraph.core.shape import asShape
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.pointwise import Pointwise
from puregraph.modules import (
    Add,
    BatchNorm,
    Concat,
    Div,
    Linear,
    Max,
    Mean,
    Mul,
    MulAddConst,
    Power,
    Slice,
    Split,
    Sub,
    Sum,
)

SHAPES = [[(2, 3), (2, 3)], [(2, 3), (3,)], [(2, 1), (1, 3)], [(4, 1, 3), (2, 1)], [(), (2,)], [(2, 3), ()]]


def inputs(*names):
    return [Input(name=name).node() for name in names]


def run(net, *data, grad=None):
    """Output and gradients of a graph, the seed being ones unless given."""
    y = net(list(data))
    net.backward(np.ones_like(y) if grad is None else grad)
    return y, net.grad


# Values and gradients -----------------------------------------------------------------------------------------------


def test_three_are_added_and_multiplied():
    a, b, c = np.array([1.0, 2.0]), np.array([3.0, 5.0]), np.array([7.0, 11.0])
    assert Add()(a, b, c).tolist() == [11, 18]
    y, ga, gb, gc = ours(Mul(), [a, b, c], np.array([1.0, 10.0]))
    assert y.tolist() == [21, 110]
    assert [ga.tolist(), gb.tolist(), gc.tolist()] == [[21, 550], [7, 220], [3, 100]]


def test_a_product_with_zeros_still_has_gradients():
    y, *grads = ours(Mul(), [np.array([0.0]), np.array([0.0]), np.array([2.0])], np.array([1.0]))
    assert [g.item() for g in grads] == [0, 0, 0]
    y, *grads = ours(Mul(), [np.array([0.0]), np.array([3.0]), np.array([2.0])], np.array([1.0]))
    assert [g.item() for g in grads] == [6, 0, 0]


def test_a_lone_input_comes_back_as_a_copy():
    x = np.ones(2)
    for module in (Add(), Mul()):
        y = module(x)
        assert y is not x and not np.shares_memory(y, x) and np.array_equal(y, x)


def test_half_precision_sums_and_products_are_computed_in_single():
    big = np.array([6e4], np.float16)
    assert Add()(big, big, -big).tolist() == big.tolist()
    assert Mul()(big, np.array([4], np.float16), np.array([0.25], np.float16)).tolist() == big.tolist()
    ones = np.ones(4096, np.float16)
    assert Sum()(ones).item() == 4096 and Mean()(ones * np.float16(60000)).item() == np.float16(60000)


def torchRules():
    return {
        Add: lambda a, b: a + b,
        Sub: lambda a, b: a - b,
        Mul: lambda a, b: a * b,
        Div: lambda a, b: a / b,
    }


@pytest.mark.peers
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("kind", torchRules(), ids=lambda kind: kind.__name__)
def test_broadcasting_and_its_gradients_are_those_of_torch(kind, shapes, rng):
    a, b = (rng.standard_normal(shape) for shape in shapes)
    compare(kind(), torchRules()[kind], rng, a, b + np.copysign(0.5, b))


@pytest.mark.peers
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (-1, 1), (0, 1, 2)], ids=str)
def test_sums_and_means_are_those_of_torch(axis, keepdims, rng):
    x = rng.standard_normal((2, 3, 4))
    dims = (0, 1, 2) if axis is None else axis
    compare(Sum(axis, keepdims), lambda t: t.sum(dim=dims, keepdim=keepdims), rng, x)
    compare(Mean(axis, keepdims), lambda t: t.mean(dim=dims, keepdim=keepdims), rng, x)


def test_a_sum_over_no_axis_is_the_input():
    y, gx = ours(Sum(axis=()), [np.array([[1.0, 2.0]])], np.array([[3.0, 4.0]]))
    assert y.tolist() == [[1, 2]] and gx.tolist() == [[3, 4]]


def test_the_gradient_of_a_sum_may_be_written_to():
    _, gx = ours(Sum(axis=0), [np.ones((2, 3))], np.array([1.0, 2.0, 3.0]))
    gx += 1
    assert gx.tolist() == [[2, 3, 4]] * 2


# Shapes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Add, Sub, Mul, Div])
def test_shapes_broadcast_with_symbols(kind):
    assert kind().dataShapeFrom(("N", 3), (3,)) == ("N", 3)
    assert kind().dataShapeFrom(("N", 1), ("N", 4)) == ("N", 4)
    with pytest.raises(ShapeError, match=r"wanted shapes that broadcast, got \[\(N, 3\), \(5, 3\)\].*N and 5 differ"):
        kind().dataShapeFrom(("N", 3), (5, 3))
    with pytest.raises(ShapeError, match="2 and 3 differ, and neither is 1"):
        kind().dataShapeFrom((2,), (3,))


def test_nothing_cannot_be_added():
    with pytest.raises(ShapeError, match="wanted at least one input, got none"):
        Add().dataShapeFrom()


@pytest.mark.parametrize(
    ("module", "shape", "message"),
    [
        (Sum(axis=2), (2, 3), "wanted axis from -2 to 1, got 2"),
        (Sum(axis=(0, -2)), (2, 3), r"wanted every axis at most once, got \(0, -2\)"),
        (Mean(axis=0), (), "wanted a shape with dimensions for axis, got 0"),
        (Mean(), (0, 3), r"wanted at least one element to average, got \(0, 3\)"),
        (Mean(axis=1), (0, 0), r"wanted at least one element to average, got \(0, 0\)"),
        (Max(axis=-1), (0, 0), r"wanted at least one element to choose from, got \(0, 0\)"),
    ],
    ids=str,
)
def test_an_axis_that_is_not_there_is_refused(module, shape, message):
    with pytest.raises(ShapeError, match=message):
        module.dataShapeFrom(shape)


def test_reductions_carry_symbols():
    assert Sum(axis=1).dataShapeFrom(("N", 3, "H")) == ("N", "H")
    assert Mean(axis=(2, 3), keepdims=True).dataShapeFrom(("N", 3, "H", "W")) == ("N", 3, 1, 1)
    assert Sum().dataShapeFrom(("N", 3)) == ()
    assert Sum(axis=1).flopsFrom(asShape(("N", 3))) == "3*N"


# Graphs -------------------------------------------------------------------------------------------------------------


def test_a_value_minus_itself_has_gradient_zero_and_its_square_two_x():
    (x,) = inputs("x")
    data = np.array([[1.5, -2.0]])
    y, grad = run(Graph(x, Sub().node(x, x)), data)
    assert y.tolist() == [[0, 0]] and grad.tolist() == [[0, 0]]
    y, grad = run(Graph(x, Mul().node(x, x)), data)
    assert y.tolist() == [[2.25, 4]] and grad.tolist() == [[3, -4]]
    y, grad = run(Graph(x, Add().node(x, x, x)), data)
    assert y.tolist() == [[4.5, -6]] and grad.tolist() == [[3, 3]]


def test_a_value_beside_itself_gets_both_gradients():
    (v,) = inputs("v")
    y, grad = run(Graph(v, Concat(axis=1).node(v, v)), np.array([[1.0, 2.0]]), grad=np.array([[1.0, 2.0, 30.0, 40.0]]))
    assert y.tolist() == [[1, 2, 1, 2]] and grad.tolist() == [[31, 42]]


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 1, 0), (2, 2, 2)])
def test_slots_come_in_the_order_given_and_may_repeat(order):
    (x,) = inputs("x")
    parts = Split(axis=1, sections=3).node(x)
    weights = np.array([1.0, 10.0, 100.0])
    data, one = np.array([[2.0, 3.0, 5.0]]), np.ones((1, 1))
    y, grad = run(Graph(x, Concat(axis=1).node((parts, list(order)))), data, grad=weights[None])
    assert y.tolist() == data[:, list(order)].tolist()
    wanted = [sum(w for w, slot in zip(weights, order) if slot == k) for k in range(3)]
    assert grad.tolist() == [wanted]
    y, grad = run(Graph(x, Add().node(*((parts, slot) for slot in order))), data, grad=one)
    assert y.item() == sum(data[0, list(order)]) and grad.tolist() == [[order.count(k) for k in range(3)]]


# Operators ----------------------------------------------------------------------------------------------------------

EXPRESSIONS = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a / b": lambda a, b: a / b,
    "a ** b": lambda a, b: a**b,
    "a @ b": lambda a, b: a @ b,
    "-a": lambda a, b: -a + b,
    "a ** 2": lambda a, b: a**2 - b,
    "numbers right": lambda a, b: ((a + 3) * 0.5 - 1) / 7 + b,
    "numbers left": lambda a, b: 2 - (3 + 0.5 * a) + 1 / b + 2**a,
    "numpy numbers": lambda a, b: np.float64(0.1) * a + np.int64(2) - np.float64(3) / b,
    "slices": lambda a, b: a[:, 0] * b[..., -1] - a[0, 1],
    "mixed": lambda a, b: (a[::-1] - b) ** 3 / (1 + a * a),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_of_nodes_is_that_of_arrays(text, rng):
    a, b = inputs("a", "b")
    x, y = 1 + rng.random((2, 2)), 1 + rng.random((2, 2))
    got, wanted = Graph([a, b], EXPRESSIONS[text](a, b))([x, y]), EXPRESSIONS[text](x, y)
    assert got.shape == wanted.shape and np.allclose(got, wanted, rtol=1e-14, atol=0)


@pytest.mark.peers
def test_the_gradient_of_an_expression_is_that_of_torch(rng):
    import torch

    def rule(a, b):
        return ((2 - a) * b / (1 + a**2) + 3 ** (b[:, :1]) - a @ b) ** 2

    a, b = inputs("a", "b")
    x, y = rng.standard_normal((3, 3)), rng.standard_normal((3, 3))
    value, grads = run(Graph([a, b], rule(a, b)), x, y)
    s, t = (torch.from_numpy(data).requires_grad_() for data in (x, y))
    wanted = rule(s, t)
    wanted.sum().backward()
    assert np.allclose(value, wanted.detach().numpy(), rtol=1e-12)
    for grad, leaf in zip(grads, (s, t)):
        assert np.allclose(grad, leaf.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_numbers_become_constants_of_formulas():
    (a,) = inputs("a")
    made = [2 * a, a + 1, 1 - a, a / 4, 3 / a, a**2, 2**a, -a, a[:, 1:]]
    wanted = [MulAddConst, MulAddConst, MulAddConst, Pointwise, Pointwise, Power, Pointwise, MulAddConst, Slice]
    assert [type(node.module) for node in made] == wanted
    assert str((2 * a).module.formula) == "2 * x" and str((1 - a).module.formula) == "1 - x"


def test_a_slot_may_be_an_operand():
    (a,) = inputs("a")
    parts = Split(axis=0, sections=2).node(a)
    x = np.array([[1.0], [5.0]])
    assert Graph(a, a[:1] - (parts, 1))(x).tolist() == [[-4]]
    assert Graph(a, (parts, "1") - a[:1])(x).tolist() == [[4]]


def test_a_node_with_several_outputs_says_to_pick_one():
    (a,) = inputs("a")
    parts = Split(axis=0, sections=2, name="parts").node(a)
    message = r"takes one value, and 'parts' \(Split\) has 2 outputs \(0, 1\): pick one with Identity\(\)"
    for make in (
        lambda: parts + a,
        lambda: a + parts,
        lambda: 2 * parts,
        lambda: -parts,
        lambda: parts @ a,
    ):
        with pytest.raises(GraphError, match=message):
            make()


def test_arrays_and_other_things_are_no_operands():
    (a,) = inputs("a")
    for make in (lambda: a + np.ones(3), lambda: np.ones(3) * a):
        with pytest.raises(
            GraphError, match="takes nodes and numbers, got an array: give it to the graph through an Input"
        ):
            make()
    for make in (lambda: a + "1", lambda: None - a, lambda: a * True, lambda: a @ 2):
        with pytest.raises(TypeError, match="unsupported operand"):
            make()


def test_a_node_is_no_sequence_and_stays_equal_only_to_itself():
    a, b = inputs("a", "b")
    with pytest.raises(GraphError, match="'a' .Input. has one output"):
        list(a)
    assert a == a and a != b and len({a, b}) == 2


@pytest.mark.parametrize(
    "ask",
    [lambda a, b: 1 if a > 0 else 2, lambda a, b: 0 < a < 1, lambda a, b: (a > 0) and (b > 0), lambda a, b: not a],
)
def test_a_node_is_neither_true_nor_false(ask):
    with pytest.raises(GraphError, match=r"neither true nor false before a pass: Where\(\)\(condition, a, b\) chooses"):
        ask(*inputs("a", "b"))


@pytest.mark.parametrize(
    ("module", "shape", "words"),
    [
        (Input((5,)), (3, 5), r"wanted \(5,\), got \(3, 5\); a shape has the axis of samples: Input\(\('N', 5\)\)$"),
        (Input(("N", 5)), (3, 4), r"wanted \(N, 5\), got \(3, 4\)$"),
        (Linear(784, 10), (2, 1, 28, 28), r"wanted \(..., 784\), got \(2, 1, 28, 28\); Flatten\(\) makes one axis"),
        (Linear(784, 10), ("N", "C", 28, 28), r"wanted \(..., 784\), got \(N, C, 28, 28\)$"),
        (Linear(784, 10), (2, 700), r"got \(2, 700\)$"),
        (
            BatchNorm(4),
            (8, 12, 4),
            r"wanted \(n, 4, \*spatial\), got \(8, 12, 4\); expected 4 channels \(axis 1\), got 12$",
        ),
        (BatchNorm(4), (8, 12), r"got \(8, 12\); expected 4 channels \(axis 1\), got 12$"),
    ],
)
def test_a_shape_as_other_frameworks_have_it_is_refused_with_what_to_write(module, shape, words):
    with pytest.raises(ShapeError, match=words):
        module.dataShapeFrom(asShape(shape))
