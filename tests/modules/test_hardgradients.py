"""Gradients that are easily got wrong: windows, kinks, ties, repeated indices, sums along named axes."""

import math

import numpy as np
import pytest

from puregraph.autodiff import (
    add_backward_pass,
)
from puregraph.core.errors import AutoDiffException
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.modules import (
    Clip,
    Concat,
    Conv2D,
    Einsum,
    Gather,
    Max,
    MaxPool2D,
    Min,
    Mul,
    Power,
    Relu,
    Sum,
    Transpose,
)
from puregraph.modules.costs import CrossEntropy


def scalar(*modules):
    """The sum of what modules make of one input X."""
    x = node = Input(name="X").node()
    for module in modules:
        node = module(node)
    return Graph(x, Sum(name="S")(node))


def gradient(module, x):
    """The gradient of the sum of what a module makes of x."""
    return add_backward_pass(scalar(module), "S", "X")(np.asarray(x, float))[1]


def test_of_equal_values_in_a_window_the_first_has_the_gradient():
    def pooled(x, size, stride):
        return gradient(MaxPool2D(size, stride), np.asarray(x, float)[None, None])[0, 0]

    assert np.flatnonzero(pooled(np.arange(16).reshape(4, 4), 2, 2)).tolist() == [5, 7, 13, 15]
    peak = np.zeros((4, 4))
    peak[1, 1] = 5
    assert pooled(peak, 2, 1).tolist() == [[0, 0, 1, 0], [0, 4, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
    assert np.argwhere(pooled(np.full((4, 4), -1e8), 2, 2)).tolist() == [[0, 0], [0, 2], [2, 0], [2, 2]]


@pytest.mark.parametrize(
    "module, wanted",
    [
        (Relu(), [0, 0, 0, 1, 1]),
        (Pointwise(formula="abs(x)"), [-1, -1, 0, 1, 1]),
        (Clip(-1, 1), [0, 1, 1, 1, 0]),
        (Clip(-math.inf, math.inf), [1, 1, 1, 1, 1]),
        (Power(2), [-4, -2, 0, 2, 8]),
        (Pointwise(formula="where(x > 0, log(x), 0)"), [0, 0, 0, 1, 0.25]),
        (Pointwise(formula="sign(x) + 3"), [0, 0, 0, 0, 0]),
        (Pointwise(formula="floor(x)"), [0, 0, 0, 0, 0]),
    ],
    ids=lambda value: value.brief() if isinstance(value, Module) else "",
)
def test_kinks_bounds_and_constants(module, wanted):
    assert gradient(module, [-2, -1, 0, 1, 4]).tolist() == wanted


def test_equal_extremes_share_the_gradient():
    x = [[1, 3, 3], [2, 0, 1]]
    assert gradient(Max(axis=1), x).tolist() == [[0, 0.5, 0.5], [1, 0, 0]]
    assert gradient(Min(axis=0), [[1, 0], [1, 2]]).tolist() == [[0.5, 1], [0.5, 0]]
    assert gradient(Max(), x).tolist() == [[0, 0.5, 0.5], [0, 0, 0]]
    assert gradient(Max(), [[1, math.nan], [math.nan, 2]]).tolist() == [[0, 0.5], [0.5, 0]]


def test_what_is_gathered_twice_gets_both_gradients():
    x, i, w = (Input(name=name).node() for name in ("X", "i", "w"))
    graph = Graph([x, i, w], Sum(name="S")(Mul()(Gather()(x, i), w)))
    rows = np.array([[1.0], [2], [3]])
    found = add_backward_pass(graph, "S", "X")(np.zeros((5, 2)), np.array([1, 3, 1]), rows)[1]
    assert found.tolist() == [[0, 0], [4, 4], [0, 0], [2, 2], [0, 0]]


def test_cross_entropy_has_a_gradient_beside_its_labels():
    x, t = Input(name="X").node(), Input(name="T").node()
    joint = add_backward_pass(Graph([x, t], CrossEntropy(name="L")(x, t)), "L", "X")
    found = joint(np.array([[1.0, 2, 3], [1, 1, 1]]), np.array([2, 0]))[1]
    wanted = [[0.045015, 0.122364, -0.167380], [-0.333333, 0.166667, 0.166667]]
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    with pytest.raises(AutoDiffException, match="no gradient reaches input 'T': 'L' .CrossEntropy. reads it as whole"):
        add_backward_pass(joint.forwardGraph, "L", "T")


def test_concat_and_transpose(rng):
    x, y = Input(name="X").node(), Input(name="Y").node()
    graph = Graph([x, y], Transpose(name="T")(Concat(axis=1)(x, y)))
    seed = rng.standard_normal((5, 2))
    _, gx, gy = add_backward_pass(graph, "T", ["X", "Y"])(np.zeros((2, 3)), np.zeros((2, 2)), seed)
    assert np.array_equal(gx, seed.T[:, :3]) and np.array_equal(gy, seed.T[:, 3:])


def test_einsum_of_one_input():
    assert gradient(Einsum("ij->i"), np.arange(6).reshape(2, 3)).tolist() == [[1, 1, 1], [1, 1, 1]]
    assert gradient(Einsum("ii->i"), np.ones((3, 3))).tolist() == np.eye(3).tolist()
    assert gradient(Einsum("ii"), np.ones((2, 2))).tolist() == np.eye(2).tolist()


def test_einsum_of_more_than_ten_inputs(rng):
    letters = "abcdefghijklm"
    equation = ",".join(a + b for a, b in zip(letters, letters[1:])) + "->am"
    nodes = [Input(name=f"x{i}").node() for i in range(12)]
    graph = Graph(nodes, Sum(name="S")(Einsum(equation)(*nodes)))
    data = [rng.standard_normal((2, 2)) for _ in nodes]
    found = add_backward_pass(graph, "S", [f"x{i}" for i in range(12)])(data)
    for i, g in enumerate(found[1:]):
        left, right = np.ones(2), np.ones(2)
        for x in data[:i]:
            left = left @ x
        for x in reversed(data[i + 1 :]):
            right = x @ right
        np.testing.assert_allclose(g, np.outer(left, right), rtol=1e-9)


@pytest.mark.peers
@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,j", [(2, 3), (3,)]),
        ("bij,bjk,k->bi", [(2, 3, 4), (2, 4, 2), (2,)]),
        ("i,j->ji", [(2,), (3,)]),
        ("ijj,jk->k", [(2, 3, 3), (3, 2)]),
        ("ij,kl->", [(2, 3), (2, 2)]),
    ],
)
def test_einsum_is_that_of_torch(equation, shapes, rng):
    torch = pytest.importorskip("torch")
    data = [rng.standard_normal(s) for s in shapes]
    nodes = [Input(name=f"x{i}").node() for i in range(len(data))]
    joint = add_backward_pass(Graph(nodes, Einsum(equation, name="y")(*nodes)), "y", nodes)
    given = [torch.tensor(x, requires_grad=True) for x in data]
    wanted = torch.einsum(equation, *given)
    seed = rng.standard_normal(tuple(wanted.shape))
    wanted.backward(torch.tensor(seed))
    y, *grads = joint(*data, np.asarray(seed))
    np.testing.assert_allclose(y, wanted.detach(), rtol=1e-10, atol=1e-12)
    for g, t in zip(grads, given):
        np.testing.assert_allclose(g, t.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("equation", ["", "ij->ii", "ij->k", "i j,->", "i1->i", "i...->i", "ij->i->j", "ij;jk"])
def test_an_equation_that_is_none_is_refused(equation):
    if equation == "i j,->":
        assert Einsum(equation).dataShapeFrom((2, 3), ()) == ()
        return
    with pytest.raises(ValueError, match="Einsum: wanted letters"):
        Einsum(equation)


@pytest.mark.peers
def test_convolution_with_one_sided_padding_is_that_of_torch(rng):
    torch = pytest.importorskip("torch")
    graph = scalar(Conv2D(2, 3, 3, stride=2, pad=((1, 0), (2, 1)), name="conv"))
    x = rng.standard_normal((2, 2, 6, 7)).astype("float32")
    s, gx, gW, gb = add_backward_pass(graph, "S", ["X", "conv.W", "conv.b"])(x)
    t = torch.tensor(x, requires_grad=True)
    W, b = (torch.tensor(graph.params[f"conv.{n}"].data, requires_grad=True) for n in "Wb")
    padded = torch.nn.functional.pad(t, (2, 1, 1, 0))
    torch.nn.functional.conv2d(padded, W, b.reshape(-1), stride=2).sum().backward()
    for a, g in ((gx, t), (gW, W), (gb, b)):
        np.testing.assert_allclose(a, g.grad, rtol=1e-5, atol=1e-5)
