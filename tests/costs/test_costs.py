"""Costs: known values, the gradients of PyTorch, labels checked, and nothing lost for large logits."""

import itertools
import math

import numpy as np
import pytest

import puregraph
from puregraph import SGD, Trainer, Transpose, seed
from puregraph.core.errors import DataError, DtypeError, FormulaError, ShapeError
from puregraph.graph import Graph, Input
from puregraph.graph.backward import BackwardGraph
from puregraph.graph.sequential import Sequential
from puregraph.modules import Identity, Linear, Reshape, costs
from puregraph.modules.costs import BCE, MSE, Abs, CrossEntropy, Huber, PointwiseCost, SmoothL1
from puregraph.ops.native.llvm import jit
from puregraph.testing.check import checkModule

CLASSES = [getattr(costs, name) for name in costs.__all__]
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
WIDE = np.array([0.0, 1e-3, -1e-3, 20, -20, 88, -88, 1e4, -1e4])


WEIGHTS7 = (0.5, 2.0, 1.0, 1.5, 0.25, 3.0, 0.75)


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
        (Huber(), (0.5 + 2.5 + 0) / 3, [1 / 3, -1 / 3, 0.0]),
        (Huber(delta=2.0), (0.5 + 4 + 0) / 3, [1 / 3, -2 / 3, 0.0]),
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
@pytest.mark.parametrize("spatial", [(), (5,), (3, 2), (7,)])
@pytest.mark.parametrize("options", [{}, {"weights": WEIGHTS7, "ignoreIndex": 2, "smoothing": 0.15}])
def test_cross_entropy_of_classes_on_the_last_axis_is_that_of_pytorch(rng, options, spatial, dtype):
    from torch import nn, tensor

    weights = tensor(np.array(WEIGHTS7, dtype)) if options else None
    theirs = nn.CrossEntropyLoss(weights, ignore_index=2 if options else -100, label_smoothing=0.15 if options else 0.0)
    x, labels = 3 * rng.normal(size=(6, *spatial, 7)), rng.integers(0, 7, (6, *spatial))
    compare(CrossEntropy(**options, axis=-1), lambda given, t: theirs(given.movedim(-1, 1), t), x, labels, dtype)


@pytest.mark.parametrize("options", [{}, {"weights": WEIGHTS7, "ignoreIndex": 2, "smoothing": 0.15}])
def test_a_compiled_cross_entropy_of_the_last_axis_is_the_eager_one_and_that_of_the_transpose(rng, options):
    x, labels = rng.normal(size=(6, 5, 4)).astype(np.float32), rng.integers(0, 7, (6, 5))
    found = []
    for last, axis, compile in ((), -1, True), ((), -1, False), ((Transpose((0, 2, 1)),), 1, True):
        seed(1)
        net = Sequential(Linear(4, 7), *last)
        Trainer(net, CrossEntropy(**options, axis=axis), SGD(0.5), progress="none", compile=compile).train(x, labels)
        found.append(net[0].W.data)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found[0], found[2], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("axis", [0, 2, -2, True, 1.0, "last", None, (1,)])
def test_classes_are_on_axis_1_or_on_the_last_one(axis):
    with pytest.raises(ValueError, match="axis as 1, or -1 where the classes are on the last axis, got"):
        CrossEntropy(axis=axis)


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
        (Huber(), "HuberLoss", {}),
        (Huber(2.0), "HuberLoss", {"delta": 2.0}),
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
        (
            [0, 3],
            "labels from 0 to 2 for 3 classes, got label 3 for sample 1 of the batch; the network gives 3 classes: make",
        ),
        ([1, 3], "got label 3 for sample 1 of the batch; classes are counted from 0: give labels - 1"),
        ([-2, 1], "got label -2 for sample 0 of the batch"),
        (
            [0, -1],
            "got label -1 for sample 1 of the batch; if it says .* no class, leave such positions out with ignoreIndex=-1",
        ),
        ([2, 255], "got label 255 for sample 1 of the batch; .* ignoreIndex=255"),
        ([-1, 1], "got label -1 for sample 0 of the batch; .* from 0: give .labels . 1. // 2 in place of -1 and 1"),
        ([0.0, 1.0], "wanted integers for labels, got float64"),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_label_that_is_no_class_is_refused_with_its_position(labels, words, compiled):
    x, labels = np.zeros((2, 3), np.float32), np.array(labels)
    if not compiled:
        cost = CrossEntropy()
    elif labels.dtype.kind == "f":
        return
    else:
        cost = Sequential(Identity()).compile([x.shape, labels.shape], cost=CrossEntropy(), train=False).run
    with pytest.raises((DataError, DtypeError), match=words):
        cost(x, labels)


def test_a_label_of_a_map_is_refused_with_its_sample_and_position():
    labels = np.zeros((3, 4, 5), int)
    labels[1, 2, 3] = 7
    with pytest.raises(DataError, match=r"got label 7 for sample 1 of the batch at position \(2, 3\)"):
        CrossEntropy()(np.zeros((3, 2, 4, 5)), labels)
    with pytest.raises(DataError, match="got label 7 for sample 1 of the batch at position 2;"):
        CrossEntropy()(np.zeros((3, 2, 4)), labels[:, :, 3])


def test_no_label_is_ignored_unless_it_is_asked_for(rng):
    x, labels = rng.normal(size=(4, 2)), np.array([-1, 1, -1, 1])
    with pytest.raises(DataError, match="got label -1 for sample 0 of the batch"):
        CrossEntropy()(x, labels)
    assert CrossEntropy(ignoreIndex=-1)(x, labels) == CrossEntropy()(x[1::2], labels[1::2])


@pytest.mark.parametrize("index", [True, 0.5, "-1", (-1,)])
def test_what_is_no_label_cannot_be_ignored(index):
    with pytest.raises(ValueError, match="CrossEntropy: wanted ignoreIndex as a whole number, or None"):
        CrossEntropy(ignoreIndex=index)


# Targets from 0 to 1 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            [[0.0], [1.5], [2.0]],
            "got 1.5 for sample 1 of the batch at position 0; scale them, or take another cost, such as MSE",
        ),
        ([[0.0], [1.0], [-1e-6]], "got -.*e-0. for sample 2 of the batch at position 0"),
        (
            [[-1.0], [1.0], [1.0]],
            "got -1.0 for sample 0 of the batch at position 0; give .target . 1. / 2 in place of -1 and 1",
        ),
        ([[0.0], [math.nan], [1.0]], "got nan for sample 1 of the batch"),
        ([[0.0], [math.inf], [1.0]], "got inf for sample 1 of the batch"),
        ([[255.0], [0.0], [1.0]], "got 255.0 for sample 0 of the batch"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("how", ["eager", "compiled", "numpy"])
def test_a_target_of_bce_that_is_not_from_0_to_1_is_refused_with_its_position(target, words, dtype, how, monkeypatch):
    x, target = np.zeros((3, 1), dtype), np.array(target, dtype)
    cost = BCE()
    if how == "numpy":
        monkeypatch.setattr(jit, "available", lambda: False)
    if how != "eager":
        net = Sequential(Identity())
        cost = net.compile([x.shape, target.shape], cost=BCE(), dtypes=[dtype] * 2, train=False).run
        cost(x, np.array([[-0.0], [1.0], [0.5]], dtype))
    with pytest.raises(DataError, match=f"wanted targets from 0 to 1, {words}"):
        cost(x, target)


def test_targets_of_bce_are_looked_at_through_a_view_and_in_large_batches():
    net = Sequential(Linear(4, 1))
    x, t, out = Input(name="x").node(), Input(name="t").node(), Reshape((-1, 1), name="column")
    program = Graph([x, t], BCE().node(net.node(x), out.node(t))).compile([(9000, 4), (9000,)], train=False)
    data, target = np.ones((9000, 4), np.float32), np.zeros(9000, np.float32)
    program.run(data, target)
    target[8321] = 3
    with pytest.raises(DataError, match="got 3.0 for sample 8321 of the batch"):
        program.run(data, target)


def test_targets_of_bce_of_any_dtype_are_looked_at():
    for kind in (bool, np.int64, np.uint8, np.float16):
        BCE()(np.zeros((2, 1)), np.array([[0], [1]], kind))
    with pytest.raises(DataError, match="got 7 for sample 1 of the batch"):
        BCE()(np.zeros((2, 1)), np.array([[0], [7]], np.uint8))


# Weights of classes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [tuple, list, np.array, lambda w: {2: w[2], 0: w[0], 1: w[1]}])
def test_weights_of_classes_are_those_of_a_list_or_of_a_dict_by_class(rng, make):
    x, labels, weights = rng.normal(size=(6, 3)), np.array([0, 1, 2, 2, 1, 0]), (0.1, 5.0, 2.0)
    assert CrossEntropy(make(weights))(x, labels) == CrossEntropy(weights)(x, labels)
    assert CrossEntropy(make(weights)).weights.data.tolist() == list(weights)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({1: 1.0, 2: 2.0}, "one for each class, got the keys 1, 2; give 0 a weight too"),
        ({"cat": 1.0, "dog": 2.0}, "got the keys 'cat', 'dog'"),
        ({}, "a list of numbers"),
        ({0: 1.0, 1: "much"}, "a list of numbers, one for each class, or a dict"),
        ([1.0, -2.0], "of at least 0, finite, and not all 0, got -2.0 for class 1"),
        ([math.nan, 1.0], "got nan for class 0"),
        ([1.0, math.inf], "got inf for class 1"),
        ([0.0, 0.0], "got 2 zeros"),
        ([], "a list of numbers"),
        (3.0, "a list of numbers, one for each class, or a dict of them by class, got 3.0"),
        ([[1.0, 2.0]], "a list of numbers"),
        ("balanced", "a list of numbers"),
        ({1.0, 2.0}, "a list of numbers"),
    ],
)
def test_weights_of_classes_that_cannot_be_meant_are_refused(weights, words):
    with pytest.raises(ValueError, match=f"CrossEntropy: wanted weights .*{words}"):
        CrossEntropy(weights)


def test_weights_by_class_go_through_a_checkpoint(rng):
    x, t = Input(name="x").node(), Input(name="t").node()
    graph = Graph([x, t], CrossEntropy({0: 0.5, 1: 3.0}, name="cost").node(x, t))
    again, data = puregraph.load(graph.save(None)), [rng.normal(size=(4, 2)).astype("f"), np.array([0, 1, 1, 0])]
    assert again(data) == graph(data)


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
    value, slope = run(CrossEntropy(ignoreIndex=-1, **options), rng.normal(size=(2, 3, 4)), np.full((2, 4), -1))
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
        (
            MSE(),
            [("N", 1), ("N",)],
            r"wanted \(N, 1\), got \(N,\); .* nothing broadcasts: write target\[\.\.\., None\]$",
        ),
        (MSE(), [("N", 3), ("N", 3, 1)], r"nothing broadcasts: write target\[\.\.\., 0\]$"),
        (MSE(), [("N", 3), (3, "N")], "nothing broadcasts: reshape one$"),
        (BCE(), [("N", 3), ("N",)], "nothing broadcasts: labels of classes are for CrossEntropy$"),
        (CrossEntropy(), [("N", 10), ("N", 10)], r"wanted labels of shape \(N,\), got \(N, 10\); .*not one-hot"),
        (CrossEntropy(axis=-1), [("N", 7, 5), ("N", 5)], r"labels of shape \(N, 7\), got .*; axis=1 takes them from"),
        (CrossEntropy(), [("N", 5, 7), ("N", 5)], r"Transpose\(\(0, 2, 1\)\) .*, axis=-1 takes them from it"),
        (CrossEntropy((1, 2), axis=-1), [("N", 2, 3), ("N", 2)], r"wanted 2 classes, as many as weights"),
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
        (lambda: CrossEntropy(smoothing=1.5), "smoothing as a number from 0 to 1, got 1.5"),
        (lambda: Huber(0), "delta as a finite number above 0, got 0"),
        (lambda: SmoothL1(-1), "beta as a finite number of at least 0, got -1"),
        (lambda: BCE(-0.5), "posWeight as a finite number of at least 0, got -0.5"),
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


@pytest.mark.parametrize(
    "formula", ["where(target > 0, x, maximum(0, 1 - x))", "3 + 0 * x", "x * 0 + target", "sign(x)"]
)
def test_a_formula_without_a_slope_is_a_mean_and_its_gradients_have_the_shapes_of_the_inputs(formula):
    x, target, weight = np.full((3, 4), 0.5), np.full((3, 4), -1.0), np.full(3, 2.0)
    cost = PointwiseCost(formula=formula)
    value = {"w": 0.5, "3": 3.0, "x": -1.0, "s": 1.0}[formula[0]]
    assert cost(x, target) == value
    cost.backward()
    assert [g.shape for g in cost.grad[:2]] == [(3, 4), (3, 4)]
    assert cost(x, target, weight) == 2 * value
    cost.backward()
    assert [g.shape for g in cost.grad] == [(3, 4), (3, 4), (3,)]
    np.testing.assert_allclose(cost.grad[2], np.full(3, value / 3))


@pytest.mark.parametrize("text", ["x * target", "where(target > 0, x, 0 * x)", "abs(x - target)"])
def test_a_formula_in_the_place_of_a_name_is_refused_and_not_the_square_of_the_difference(text):
    with pytest.raises(
        FormulaError, match=r"wanted a formula, as in PointwiseCost\(formula='.*'\), got it as the name"
    ):
        PointwiseCost(text)
    assert PointwiseCost("distance")(np.float64([3.0]), np.float64([1.0])) == 4
