"""Options that come as inputs mean what the same arguments mean, and older files' classes of such options load."""

import numpy as np
import pytest

from puregraph import (
    ArgMax,
    ArgMin,
    CumProd,
    CumSum,
    DynamicSlice,
    EyeLike,
    Graph,
    Input,
    MatMul,
    Max,
    Mean,
    Min,
    OneHot,
    Range,
    ReduceAlong,
    ShapeError,
    Split,
    TensorScatter,
    TopKValues,
    Trilu,
)
from puregraph.core.errors import DtypeError
from puregraph.modules import Slice
from puregraph.modules.reducealong import REDUCTIONS
from puregraph.serialize.blueprintreader import fromBlueprint
from puregraph.serialize.blueprintwriter import toBlueprint

DATA = 1 + np.random.default_rng(0).random((3, 4))
PAIRS = {
    "CumSum": (CumSum(1, True), CumSum(None, True), np.array(1)),
    "CumProd": (CumProd(-1, reverse=True), CumProd(None, reverse=True), np.array([-1])),
    "TopKValues": (TopKValues(2, 0, False), TopKValues(None, 0, False), np.array([2])),
    "Trilu": (Trilu(False, -1), Trilu(False, None), np.array(-1)),
    "Split": (Split(1, (1, 0, 3)), Split(1, count=3), np.array([1, 0, 3])),
    **{kind: (made((1,), True), ReduceAlong(kind), np.array([1])) for kind, made in REDUCTIONS.items()},
}


def passed(module, *data):
    """Outputs, and the gradient of x for a seed of ones."""
    nodes = [Input(name=f"x{i}").node() for i in range(len(data))]
    net = Graph(nodes, module.node(*nodes, name="it"))
    ys = net(*data)
    ys = list(ys) if isinstance(ys, (list, tuple)) else [ys]
    net.backward([np.ones_like(y) if y.dtype.kind == "f" else None for y in ys] if len(ys) > 1 else np.ones_like(ys[0]))
    grad = net.grad
    return [*ys, grad[0] if isinstance(grad, (list, tuple)) else grad]


@pytest.mark.parametrize("name", PAIRS)
def test_an_option_that_is_an_input_is_that_option(name):
    fixed, open_, option = PAIRS[name]
    for a, b in zip(passed(open_, DATA, option), passed(fixed, DATA), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_dynamic_slice_is_a_slice_along_axes_that_are_an_input():
    limits = [np.array(n) for n in ([3, -1], [0, -9], [1, 0], [-2, -1])]
    for a, b in zip(passed(DynamicSlice(), DATA, *limits), passed(Slice()[::-1, 3:0:-2], DATA), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ShapeError, match="steps other than 0"):
        DynamicSlice()(DATA, *limits[:3], np.array([0, 1]))


def test_a_one_hot_of_values_is_their_choice_and_gives_them_gradients():
    x, depth, values = np.array([2, -1, 7]), np.array(3), np.array([0.5, 2.0])
    nodes = [Input(name=name).node() for name in ("x", "depth", "values")]
    net = Graph(nodes, OneHot(None, axis=0).node(*nodes))
    y = net(x, depth, values)
    assert y.tolist() == [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [2.0, 2.0, 0.5]]
    net.backward(np.arange(9.0).reshape(3, 3))
    assert net.grad[2].tolist() == [36 - 13, 13]
    np.testing.assert_array_equal(OneHot(3, axis=0)(np.array([2, 0])), OneHot(3)(np.array([2, 0])).T)
    with pytest.raises(ShapeError, match="inputs depth and values, of which there are two"):
        OneHot(None).dataShapeFrom((3,), (), (3,))


@pytest.mark.parametrize(
    "shapes", [((4,), (4,)), ((4,), (2, 4, 3)), ((2, 1, 3, 4), (4,)), ((4,), (4, 0)), ((0,), (0,))]
)
def test_a_product_with_a_vector_is_numpys(shapes):
    a, b = (np.random.default_rng(1).standard_normal(shape) for shape in shapes)
    y = MatMul()(a, b)
    assert y.shape == (a @ b).shape
    np.testing.assert_allclose(y, a @ b)
    turned = (
        MatMul(transpB=True)(a, b.swapaxes(-1, -2))
        if b.ndim > 1
        else MatMul(transpA=True)(a.T, b)
        if a.ndim == 2
        else y
    )
    np.testing.assert_allclose(turned, a @ b)
    with pytest.raises(ShapeError, match="a vector has no transpose"):
        MatMul(transpA=True).dataShapeFrom((4,), (4, 3))


def test_extremes_and_means_of_nothing_are_neutral():
    empty = np.zeros((2, 0), np.float32)
    assert Max(1, mayBeEmpty=True)(empty).tolist() == [-np.inf, -np.inf]
    assert Min(1, mayBeEmpty=True)(empty.astype(np.int8)).tolist() == [127, 127]
    assert Mean(1, mayBeEmpty=True)(empty).tolist() == [0, 0]
    assert ReduceAlong("Prod", (1,))(empty).tolist() == [[1], [1]]
    with pytest.raises(ShapeError, match="at least one element to choose from"):
        Max(1)(empty)


def test_the_last_of_equal_extremes_is_found():
    x = np.array([[1.0, 3.0, 3.0], [0.0, 0.0, 2.0]])
    assert ArgMax(1, last=True)(x).tolist() == [2, 2] and ArgMin(1, last=True)(x).tolist() == [0, 1]
    assert ArgMax(1)(x).tolist() == [1, 2]


def test_ranges_are_of_integers_or_of_floats_of_one_dtype():
    np.testing.assert_array_equal(Range()(np.float32(0.5), np.float32(2), np.float32(0.5)), np.float32([0.5, 1, 1.5]))
    assert Range()(np.float32(2.5)).dtype == np.float32
    with pytest.raises(DtypeError, match="integers, or floats of one dtype"):
        Range().node(*[Input(name=n).node() for n in "ab"]).module.dataTypeFrom(np.dtype("f4"), np.dtype("i8"))


def test_updates_longer_than_the_sequence_are_refused():
    with pytest.raises(ShapeError, match="updates of at most 2 along axis 1"):
        TensorScatter().dataShapeFrom((1, 2, 3), (1, 3, 3))


FORMER = [  # the name in older files, its arguments, and the module now
    ("CumulativeAxis", ["product", True], {}, CumProd(None, True)),
    ("CumulativeAxis", [], {"reverse": True}, CumSum(None, reverse=True)),
    ("LastExtreme", [0, True, False], {}, ArgMin(0, True, last=True)),
    ("LastExtreme", [1], {}, ArgMax(1, last=True)),
    ("OneHotValues", [0], {}, OneHot(None, axis=0)),
    ("ReduceAxes", ["Max", False, True], {}, ReduceAlong("Max", None, False, True)),
    ("ReduceFilled", ["Sum", [0]], {"keepdims": False}, ReduceAlong("Sum", (0,), False)),
    ("SplitSizes", [1, 3], {}, Split(1, count=3)),
    ("TopCount", [0, False], {}, TopKValues(None, 0, False)),
    ("TriluFrom", [False], {}, Trilu(False, None)),
    ("Identical", [1, "int64"], {}, EyeLike(1, "int64")),
]


@pytest.mark.parametrize(
    "name, args, kwargs, module", FORMER, ids=lambda value: value if isinstance(value, str) else None
)
def test_a_class_of_older_files_is_made_of_the_arguments_that_it_has(name, args, kwargs, module):
    nodes = [Input(name=f"x{i}").node() for i in range(len(module.inputSpec.names))]
    blueprint = toBlueprint(Graph(nodes, module.node(*nodes, name="it")))
    row = next(row for row in blueprint["modules"] if row["class"].rpartition(":")[2] == type(module).__name__)
    row |= {"class": f"puregraph:onnx.{name}", "args": args, "kwargs": kwargs}
    again = fromBlueprint(blueprint)["it"]
    assert type(again) is type(module) and settings(again) == settings(module)


def settings(module):
    """The arguments that a module was made with."""
    return {k: v for k, v in vars(module).items() if isinstance(v, (int, str, tuple, type(None))) and k != "initArgs"}
