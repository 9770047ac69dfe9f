"""Costs: known values, the gradients of PyTorch, labels checked, and nothing lost for large logits."""

import itertools
import math

import numpy as np
import pytest

from puregraph import costs
from puregraph.backward import BackwardGraph
from puregraph.check import checkModule
from puregraph.costs import BCE, MSE, Abs, CrossEntropy, PointwiseCost, SmoothL1
from puregraph.errors import DataError, FormulaError, ShapeError
from puregraph.graph import Graph, Input
from puregraph.modules.linear import Linear

CLASSES = [getattr(costs, name) for name in costs.__all__]
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
WIDE = np.array([0.0, 1e-3, -1e-3, 20, -20, 88, -88, 1e4, -1e4])


def run(cost, x, target, seed=None):
    """The value of a cost, and the gradient of its input."""
    value = cost(x, target)
    cost.backward(seed)
    return value, cost.grad[0]


@pytest.mark.parametrize("found", CLASSES, ids=lambda found: found.__name__)
def test_a_cost_keeps_every_promise_of_a_module(found):
    for module, shapes in found.examples():
        checkModule(module, shapes)


# Known values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "value", "grad"),
    [
        (MSE(), (1 + 9 + 0) / 3, [2 / 3, -2.0, 0.0]),
        (Abs(), (1 + 3 + 0) / 3, [1 / 3, -1 / 3, 0.0]),
        (SmoothL1(), (0.5 + 2.5 + 0) / 3, [1 / 3, -1 / 3, 0.0]),
        (SmoothL1(beta=4.0), (1 / 8 + 9 / 8 + 0) / 3, [1 / 12, -1 / 4, 0.0]),
        (SmoothL1(beta=0), (1 + 3 + 0) / 3, [1 / 3, -1 / 3, 0.0]),
    ],
)
def test_differences_of_1_minus_3_and_0(cost, value, grad):
    got, slope = run(cost, np.array([2.0, -1.0, 5.0]), np.array([1.0, 2.0, 5.0]))
    assert got.shape == ()
    np.testing.assert_allclose(got, value, rtol=1e-15)
    np.testing.assert_allclose(slope, grad, rtol=1e-15)


def test_logits_of_zero_cost_one_coin_toss():
    value, slope = run(BCE(), np.zeros(2), np.array([0, 1]))
    np.testing.assert_allclose(value, math.log(2), rtol=1e-15)
    np.testing.assert_allclose(slope, [0.25, -0.25], rtol=1e-15)


def test_equal_logits_cost_the_log_of_the_number_of_classes():
    value, slope = run(CrossEntropy(), np.zeros((1, 4)), np.array([2]))
    np.testing.assert_allclose(value, math.log(4), rtol=1e-15)
    np.testing.assert_allclose(slope, [[0.25, 0.25, -0.75, 0.25]], rtol=1e-15)


def test_the_gradient_is_scaled_by_what_comes_in(rng):
    x, labels = rng.normal(size=(4, 3)), np.array([0, 2, 1, 1])
    np.testing.assert_allclose(
        run(CrossEntropy(), x, labels, np.array(3.0))[1], 3 * run(CrossEntropy(), x, labels)[1], rtol=1e-14
    )
    np.testing.assert_allclose(run(MSE(), x, -x, np.array(3.0))[1], 3 * run(MSE(), x, -x)[1], rtol=1e-14)


# Against PyTorch --------------------------------------------------------------------------------------------


def compare(cost, theirs, x, target, dtype):
    """Value and gradient of both, within the tolerance of the dtype."""
    import torch

    x = x.astype(dtype)
    given = torch.tensor(x, requires_grad=True)
    wanted = theirs(given, torch.tensor(target))
    wanted.backward()
    value, slope = run(cost, x, target)
    assert value.dtype == slope.dtype == x.dtype
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(value, wanted.detach().numpy(), rtol=tolerance, atol=tolerance)
    largest = float(given.grad.abs().max())
    np.testing.assert_allclose(slope, given.grad.numpy(), rtol=tolerance, atol=tolerance * largest)


@pytest.mark.peers
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("spatial", [(), (5,), (3, 2)])
@pytest.mark.parametrize(
    ("weighted", "ignoreIndex", "smoothing"),
    list(itertools.product([False, True], [-1, 2, -100, None], [0.0, 0.15, 1.0])),
)
def test_cross_entropy_is_that_of_pytorch(rng, weighted, ignoreIndex, smoothing, spatial, dtype):
    from torch import nn, tensor

    classes = 7
    x = 3 * rng.normal(size=(6, classes, *spatial))
    labels = rng.integers(0, classes, (6, *spatial))
    if ignoreIndex is not None:
        labels[0] = ignoreIndex
    weights = tuple(rng.uniform(0.1, 3, classes).tolist()) if weighted else None
    theirs = nn.CrossEntropyLoss(
        weight=tensor(np.array(weights, dtype)) if weighted else None,
        ignore_index=-100 if ignoreIndex is None else ignoreIndex,
        label_smoothing=smoothing,
    )
    compare(CrossEntropy(weights, ignoreIndex, smoothing), theirs, x, labels, dtype)


@pytest.mark.peers
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("posWeight", [1.0, 0.0, 2.7])
@pytest.mark.parametrize("hard", [True, False])
def test_bce_is_that_of_pytorch(rng, hard, posWeight, dtype):
    import torch

    x = np.concatenate([4 * rng.normal(size=31), WIDE])
    target = rng.integers(0, 2, x.shape) if hard else rng.random(x.shape)
    theirs = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(np.array(posWeight, dtype)))
    compare(BCE(posWeight), theirs, x, target.astype(dtype), dtype)
    if hard:
        exact = run(BCE(posWeight), x, target.astype(np.float64))
        for kind in (np.int32, np.uint8, bool):
            for a, b in zip(run(BCE(posWeight), x, target.astype(kind)), exact):
                np.testing.assert_array_equal(a, b)


@pytest.mark.peers
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("cost", "name", "options"),
    [
        (MSE(), "MSELoss", {}),
        (Abs(), "L1Loss", {}),
        (SmoothL1(), "SmoothL1Loss", {}),
        (SmoothL1(0.3), "SmoothL1Loss", {"beta": 0.3}),
        (SmoothL1(0), "SmoothL1Loss", {"beta": 0.0}),
    ],
)
def test_distances_are_those_of_pytorch(rng, cost, name, options, dtype):
    from torch import nn

    x, target = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 5, 3)).astype(dtype)
    x[0, 0] = target[0, 0]
    compare(cost, getattr(nn, name)(**options), x, target, dtype)


def test_a_float_target_gets_a_gradient_and_a_whole_one_none(rng):
    x, target = rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    cost = MSE()
    cost(x, target)
    cost.backward()
    np.testing.assert_allclose(cost.grad[1], -cost.grad[0], rtol=1e-15)
    cost(x, target.astype(int))
    cost.backward()
    assert cost.grad[1] is None


# Large logits, float16 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_cross_entropy_of_huge_logits_is_their_distance(dtype):
    x = np.array([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]], dtype)
    value, slope = run(CrossEntropy(), x, np.array([1, 2]))
    np.testing.assert_allclose(value, (2e4 + math.log(2)) / 2, rtol=1e-3 if dtype == "float16" else 1e-6)
    np.testing.assert_allclose(slope, [[0.5, -0.5, 0], [0, 0.25, -0.25]], atol=1e-7)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_bce_of_huge_logits_is_linear_where_wrong_and_zero_where_right(dtype):
    x = np.array([1e4, -1e4, 1e4, -1e4], dtype)
    value, slope = run(BCE(), x, np.array([1, 0, 0, 1]))
    np.testing.assert_allclose(value, 5e3, rtol=1e-3 if dtype == "float16" else 1e-7)
    np.testing.assert_array_equal(slope, [0, 0, 0.25, -0.25])


def test_bce_keeps_the_digits_of_a_tiny_cost():
    value, slope = run(BCE(), np.array([-40.0, 40.0]), np.array([0, 1]))
    np.testing.assert_allclose(value, math.exp(-40), rtol=1e-14)
    np.testing.assert_allclose(slope, [math.exp(-40) / 2, -math.exp(-40) / 2], rtol=1e-14)


def test_float16_sums_in_float32():
    x = np.full((300, 300), 3, np.float16)
    value, slope = run(MSE(), x, np.zeros_like(x))
    assert value == 9 and value.dtype == np.float16
    assert slope.dtype == np.float16 and slope.any()
    value, slope = run(CrossEntropy(), np.zeros((70000, 2), np.float16), np.zeros(70000, int))
    np.testing.assert_allclose(value, math.log(2), rtol=1e-3)
    np.testing.assert_allclose(slope[:, 0], -0.5 / 70000, atol=6e-8)


# Labels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 3], "labels from 0 to 2 .or -1, ignored. for 3 classes, got label 3"),
        ([-2, 1], "got label -2"),
        ([0.0, 1.0], "whole numbers, got float64"),
    ],
)
def test_a_label_that_is_no_class_is_named(labels, words):
    with pytest.raises(DataError, match=words):
        CrossEntropy()(np.zeros((2, 3)), np.array(labels))


def test_without_an_index_to_ignore_minus_one_is_no_class():
    with pytest.raises(DataError, match="labels from 0 to 2 for 3 classes, got label -1"):
        CrossEntropy(ignoreIndex=None)(np.zeros((2, 3)), np.array([-1, 0]))


def test_minus_one_is_no_class_where_another_index_is_ignored():
    with pytest.raises(DataError, match="got label -1"):
        CrossEntropy(ignoreIndex=-100)(np.zeros((2, 3)), np.array([-1, -100]))


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32, np.uint64, bool])
def test_labels_of_any_whole_dtype(rng, kind):
    x, labels = rng.normal(size=(4, 2)), np.array([0, 1, 1, 0])
    for a, b in zip(run(CrossEntropy(), x, labels), run(CrossEntropy(), x, labels.astype(kind))):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("options", [{}, {"weights": (1, 2, 3)}, {"smoothing": 0.2}])
def test_where_all_is_ignored_cost_and_gradient_are_zero(rng, options):
    value, slope = run(CrossEntropy(**options), rng.normal(size=(2, 3, 4)), np.full((2, 4), -1))
    assert value == 0
    np.testing.assert_array_equal(slope, 0)


@pytest.mark.parametrize("cost", [CrossEntropy(), MSE()])
def test_an_empty_batch_costs_nothing(cost):
    target = np.zeros(0, int) if isinstance(cost, CrossEntropy) else np.zeros((0, 3))
    value, slope = run(cost, np.zeros((0, 3)), target)
    assert value == 0 and slope.shape == (0, 3)


# Shapes and arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "shapes", "words"),
    [
        (MSE(), [("N", 1), ("N",)], r"wanted \(N, 1\), got \(N,\); .* nothing broadcasts"),
        (CrossEntropy(), [("N", 10), ("N", 10)], r"wanted labels of shape \(N,\), got \(N, 10\); .*not one-hot"),
        (CrossEntropy(), [(5,), (5,)], r"\(n, classes, ...\)"),
        (CrossEntropy((1, 2)), [("N", 10), ("N",)], r"wanted 2 classes, as many as weights, got \(N, 10\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_ahead_of_data(cost, shapes, words):
    with pytest.raises(ShapeError, match=words):
        cost.dataShapeFrom(*shapes)


def test_symbols_are_carried_through():
    assert CrossEntropy().dataShapeFrom(("N", 21, "H", "W"), ("N", "H", "W")) == ()
    assert MSE().dataShapeFrom(("N", 3), ("N", 3)) == ()


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: CrossEntropy(smoothing=1.5), "smoothing from 0 to 1, got 1.5"),
        (lambda: SmoothL1(-1), "beta of at least 0, got -1"),
        (lambda: BCE(-0.5), "posWeight of at least 0, got -0.5"),
    ],
)
def test_arguments_out_of_range_are_refused(build, words):
    with pytest.raises(ValueError, match=words):
        build()


def test_a_formula_with_another_name_is_refused_at_once():
    with pytest.raises(FormulaError, match="scale"):
        PointwiseCost(formula="scale * (x - target)")


def test_a_formula_without_x_in_its_slope_still_has_a_gradient_for_each_element():
    _, slope = run(PointwiseCost(formula="target - x"), np.zeros((2, 2)), np.ones((2, 2)))
    np.testing.assert_array_equal(slope, np.full((2, 2), -0.25))


# In a graph -------------------------------------------------------------------------------------------------


def test_a_cost_ends_a_graph(rng):
    assert BackwardGraph  # which gives graphs their backward pass
    x, labels = Input(name="x").node(), Input(name="labels").node()
    linear = Linear(3, 4, name="linear").calcMode("float64")
    net = Graph([x, labels], CrossEntropy(smoothing=0.1)(linear(x), labels))
    data, wanted = rng.normal(size=(5, 3)), rng.integers(0, 4, 5)

    def costAt(W):
        linear.W.data[...] = W
        return float(net(data, wanted))

    W, direction = linear.W.data.copy(), rng.normal(size=(3, 4))
    costAt(W)
    net.backward()
    assert net.grad[1] is None
    slope = float((linear.W.grad * direction).sum())
    numeric = (costAt(W + 1e-6 * direction) - costAt(W - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(slope, numeric, rtol=1e-7)


def test_a_wrong_label_in_a_graph_names_the_node():
    x, labels = Input(name="x").node(), Input(name="labels").node()
    net = Graph([x, labels], CrossEntropy(name="loss")(x, labels))
    with pytest.raises(DataError, match="got label 7") as caught:
        net(np.zeros((2, 3)), np.array([0, 7]))
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "at 'loss' (CrossEntropy)" in text
