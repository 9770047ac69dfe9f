"""What each module is written as: through onnx.checker, into onnxruntime and back, in old opsets and new ones."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnxtrips import ran  # noqa: E402

from puregraph import (  # noqa: E402
    BCE,
    GRU,
    LSTM,
    MSE,
    RNN,
    Abs,
    CrossEntropy,
    Focal,
    Graph,
    Hinge,
    Huber,
    Input,
    Max,
    Mean,
    Min,
    Module,
    Pointwise,
    Quantile,
    Sequential,
    SmoothL1,
    Sum,
    Transpose,
)
from puregraph.core.errors import GraphError  # noqa: E402
from puregraph.modules import (  # noqa: E402
    L1Norm,
    L2Norm,
    LogSum,
    RecurrentCells,
    SumSquares,
)
from puregraph.modules.costs import PointwiseCost  # noqa: E402
from puregraph.onnx import fromOnnx, toOnnx, writesOnnx  # noqa: E402
from puregraph.onnx.onnxwriter import ModelWriter, OnnxStep  # noqa: E402
from puregraph.onnx.rules.rulewriter import writeRule  # noqa: E402
from puregraph.ops.formula import Formula  # noqa: E402

REDUCED = [Sum, Mean, Max, Min, L1Norm, L2Norm, SumSquares, LogSum]


def close(a, b):
    """Two arrays, to 1e-5 of the largest."""
    assert a.shape == b.shape and a.dtype == b.dtype
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(b).max(initial=0))))


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("made", REDUCED, ids=lambda made: made.__name__)
@pytest.mark.parametrize(("shape", "axis"), [((2, 3), ()), ((), None), ((), ())])
def test_a_reduction_over_no_axis_is_no_reduction_over_all(made, opset, shape, axis):
    net = Sequential(made(axis=axis, name="other"), name="it")
    x = np.asarray(np.random.default_rng(2).random(shape) + 0.5, np.float32)
    x = x if made is LogSum else np.negative(x, out=x)
    model, wanted = toOnnx(net, None, [shape], opset=opset), net(x)
    assert wanted.shape == shape
    close(fromOnnx(model)(x), wanted)
    close(ran(model, [x])[0], wanted)


@pytest.mark.parametrize("opset", [13, 18])
def test_a_scalar_is_transposed(opset):
    model = toOnnx(Sequential(Transpose((), name="t"), name="it"), None, [()], opset=opset)
    x = np.array(3, np.float32)
    assert ran(model, [x])[0] == 3 == fromOnnx(model)(x)


def test_an_empty_list_of_axes_is_never_left_out():
    step = OnnxStep.__new__(OnnxStep)
    step.writer, step.outputs, step.path = ModelWriter(Sequential(Mean()), [(2,)], 13), ["y"], "it"
    with pytest.raises(ValueError, match="axes"):
        step.op("ReduceMean", "x", out="y", axes=[])


def around(module, shapes, dtypes, data, opset=21):
    """A graph of one module with inputs of these dtypes to ONNX, onnxruntime and back."""
    inputs = [Input(dtype=dtype, name=f"x{i}").node() for i, dtype in enumerate(dtypes)]
    compare(Graph(inputs, module.node(*inputs, name="it"), name="net").evalMode(), shapes, data, opset)


def compare(net, shapes, data, opset=21):
    """A graph to ONNX, onnxruntime and back: outputs, symbols, gradients in float64, and bytes of a second writing."""
    dtypes = net.inputTypes(len(shapes))
    model = toOnnx(net, None, shapes, opset, dtypes)
    onnx.checker.check_model(model, full_check=True)
    data = [x.astype(dtype) for x, dtype in zip(data, dtypes, strict=True)]
    wanted = listed(net(*data))
    again = fromOnnx(model)
    for found in (runtime(model, data, wanted), listed(again(*data))):
        for x, y in zip(found, wanted, strict=True):
            close(x, y)
    assert again.dataShapeFrom(list(shapes)) == net.dataShapeFrom(list(shapes))
    assert toOnnx(again, None, shapes, opset).SerializeToString() == model.SerializeToString()
    if dtypes[0] == "float64":
        seeds = [np.random.default_rng(5).standard_normal(y.shape) if y.dtype.kind == "f" else None for y in wanted]
        for graph in (net, again):
            graph.backward(seeds if len(seeds) > 1 else seeds[0])
        for x, y in zip(listed(again.grad), listed(net.grad), strict=True):
            if x is not None and y is not None:
                isSure = np.isfinite(y)
                np.testing.assert_allclose(x[isSure], y[isSure], 1e-5, 1e-7)
            else:
                assert x is y is None or not np.any(x if y is None else y)
    return wanted, again


def runtime(model, data, wanted):
    """What onnxruntime gives; it lacks float64 of some functions."""
    try:
        return ran(model, data)
    except Exception as error:  # its own errors have no common base
        if data[0].dtype == "float64" and ("NOT_IMPLEMENTED" in str(error) or "support double" in str(error)):
            return wanted
        raise


def listed(value):
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize(
    "formula", ["x / 2", "0.5 * x", "x / 2 > 0.7", "exp(x)", "where(x > 0, x, 0.5)", "x ** -1.0", "x // 2", "x + 1"]
)
def test_a_formula_of_integers_that_gives_floats_is_computed_in_floats(formula, dtype):
    x = np.array([1, 2, 3, -3])
    net = Graph([n := Input(dtype=dtype, name="x").node()], Pointwise(formula=formula).node(n, name="it"), name="net")
    wanted = net.evalMode()(x.astype(dtype))
    model = toOnnx(net, None, [("N",)], 21)
    for found in (ran(model, [x.astype(dtype)])[0], fromOnnx(model)(x.astype(dtype))):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, 1e-15)


class Halves(Module):
    """Half of an integer, by a formula that a rule calls."""

    half = staticmethod(Formula("x / 2").numpy())

    def dataShapeFrom(self, x):
        return x

    def dataTypeFrom(self, x):
        return np.dtype(np.float64)

    def updateData(self, x):
        return self.half(x)


def test_a_formula_of_integers_that_a_rule_calls_is_computed_in_floats():
    writesOnnx(Halves)(writeRule)
    net = Graph([n := Input(dtype="int64", name="x").node()], Halves(name="it").node(n), name="net").evalMode()
    model, x = toOnnx(net, None, [(3,)], 21), np.array([1, 2, -3])
    assert ran(model, [x])[0].tolist() == fromOnnx(model)(x).tolist() == [0.5, 1.0, -1.5]


COSTS = {
    "MSE": (MSE(), [(3, 4), (3, 4)]),
    "Abs of samples with weights": (Abs(), [(3, 2, 2), (3, 2, 2), (3,)]),
    "SmoothL1": (SmoothL1(0.3), [(5,), (5,)]),
    "Huber": (Huber(0.3), [(5,), (5,)]),
    "SmoothL1 that is Abs": (SmoothL1(0), [(5, 2), (5, 2), (5,)]),
    "BCE": (BCE(2.5), [(6, 1), (6, 1), (6,)]),
    "a formula": (PointwiseCost(formula="log(cosh(s * (x - target)))", s=0.5), [(4, 3), (4, 3)]),
    "CrossEntropy": (CrossEntropy(), [(4, 3), (4,)]),
    "CrossEntropy of positions": (CrossEntropy(ignoreIndex=-100), [(2, 4, 3, 2), (2, 3, 2)]),
    "CrossEntropy, classes last": (CrossEntropy([1, 0.5, 2], axis=-1), [(2, 5, 3), (2, 5)]),
    "CrossEntropy, all options": (CrossEntropy([1, 0.25], 1, 0.3), [(6, 2, 2), (6, 2), (6,)]),
    "CrossEntropy, all options, classes last": (CrossEntropy([1, 0.25], -1, 0.3, -1), [(4, 3, 2), (4, 3), (4,)]),
    "CrossEntropy, smooth": (CrossEntropy(smoothing=0.1), [(4, 3), (4,), (4,)]),
    "CrossEntropy, a sum": (CrossEntropy(smoothing=0.1, reduction="sum"), [(4, 3), (4,), (4,)]),
    "CrossEntropy, all terms": (CrossEntropy([1, 0.25], 1, reduction="none"), [(6, 2, 2), (6, 2), (6,)]),
    "MSE, a sum": (MSE(reduction="sum"), [(3, 4), (3, 4)]),
    "MSE, all terms": (MSE(reduction="none"), [(3, 4), (3, 4), (3,)]),
    "Focal": (Focal(alpha=0.3), [(4, 3), (4, 3)]),
    "Hinge": (Hinge(), [(4, 3), (4, 3)]),
    "Quantile": (Quantile(0.9), [(4, 3), (4, 3)]),
}


@pytest.mark.parametrize("opset", [13, 18, 21])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", COSTS)
def test_a_cost_is_written_in_small_operators(name, dtype, opset):
    cost, shapes = COSTS[name]
    rng = np.random.default_rng(1)
    dtypes = [dtype, "int64" if isinstance(cost, CrossEntropy) else dtype, dtype][: len(shapes)]
    data = cost.sample(rng, *shapes)
    for shape in (shapes, [("N", *s[1:]) for s in shapes]):
        around(cost, shape, dtypes, data, opset)


@pytest.mark.parametrize("name", COSTS)
def test_a_cost_of_large_values_is_finite_as_it_is_here(name):
    cost, shapes = COSTS[name]
    data = cost.sample(np.random.default_rng(1), *shapes)
    dtypes = ["float32", "int32" if isinstance(cost, CrossEntropy) else "float32", "float32"][: len(shapes)]
    around(cost, shapes, dtypes, [300 * data[0], *data[1:]])


def test_a_cost_of_nothing_and_of_ignored_labels_alone_is_zero():
    x, labels = np.zeros((2, 3)), np.full(2, -1)
    around(CrossEntropy([1, 2, 3], -1, 0.1), [("N", 3), ("N",)], ["float64", "int64"], [x, labels])
    around(CrossEntropy(), [("N", 3), ("N",)], ["float64", "int64"], [x[:0], labels[:0]])
    around(MSE(), [("N", 3), ("N", 3)], ["float64", "float64"], [x[:0], x[:0]])


def test_a_cost_of_half_floats_is_computed_in_float32():
    data = MSE().sample(np.random.default_rng(1), (300, 4), (300, 4))
    around(MSE(), [(300, 4), (300, 4)], ["float16", "float16"], [100 * x for x in data])


SIGNED = [0.0, 1.0, -1.0, 0.5, 0.1, -0.1, -2.0, 1e-3, -1e-30, 3e30, -1e30, np.inf, -np.inf]
FUNCTIONS = [
    "hypot(x, y)",
    "arctan2(x, y)",
    "cbrt(x) + y",
    "erfcx(maximum(x, -9)) + y",
    "x % y",
    "maximum(minimum(x, 1e30), -1e30) // where(y == 0, 1, y)",
    "copysign(x, where(y == 0, 1, y))",
]
FUNCTIONS += [
    "logndtr(maximum(minimum(x, 30), -1e4)) * 0.5 - log2(1 + exp2(minimum(y, 3)))",
    "trunc(x / 2) - log10(1 + y * y) + expm1(-abs(x))",
    "lgamma(maximum(minimum(x, 90), -4.3) + 0.37) - digamma(maximum(minimum(y, 90), -2.3) + 0.37)",
    "erfinv(tanh(x / 2) * 0.9999) + ndtri(maximum(minimum(y, 0.999), 1e-9))",
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("formula", FUNCTIONS)
def test_a_function_without_an_operator_is_written_in_others_in_all_quadrants(formula, dtype):
    x, y = (each.ravel() for each in np.meshgrid(SIGNED, SIGNED))
    with np.errstate(all="ignore"):
        around(Pointwise(formula=formula), [("N",), ("N",)], [dtype, dtype], [x, y])


@pytest.mark.parametrize("name", ["polygamma", "ive"])
def test_a_function_that_has_no_words_is_refused_by_name(name):
    with pytest.raises(GraphError, match=f"'it' .*the function {name} has no ONNX equivalent"):
        toOnnx(Sequential(Pointwise(formula=f"{name}(1, x)", name="it")), None, [(2,)])


LAYERS = {
    "RNN": (RNN, {}, []),
    "RNN with relu": (RNN, {"mode": "relu", "outputs": ("h", "y")}, ["h0"]),
    "RNN in both directions": (RNN, {"direction": "bi", "useBias": False}, ["lengths"]),
    "GRU": (GRU, {"outputs": "h"}, []),
    "GRU in both directions": (GRU, {"direction": "bi", "outputs": ("y", "h")}, ["h0", "lengths"]),
    "GRU without biases": (GRU, {"useBias": False}, ["h0"]),
    "LSTM": (LSTM, {}, []),
    "LSTM in both directions": (LSTM, {"direction": "bi", "outputs": ("c", "y", "h")}, ["h0", "c0", "lengths"]),
    "LSTM of lengths": (LSTM, {"outputs": "c"}, ["lengths"]),
}


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_recurrent_layer_is_one_operator_between_transposes(name, dtype, opset):
    kind, options, more = LAYERS[name]
    layer, rng = kind(3, 2, **options).calcMode(dtype), np.random.default_rng(4)
    for p in layer.params.values():
        p.data = rng.standard_normal(p.shape).astype(dtype)
    shapes = {"x": ("N", "T", 3), "lengths": ("N",), "h0": ("N", 2 * layer.sides), "c0": ("N", 2 * layer.sides)}
    data = {n: rng.standard_normal([{"N": 4, "T": 5}.get(d, d) for d in s]) for n, s in shapes.items()}
    data["lengths"] = np.array([5, 1, 3, 2])
    inputs = {n: Input(dtype="int64" if n == "lengths" else dtype, name=n).node() for n in ("x", *more)}
    net = Graph([*inputs.values()], layer.node(inputs["x"], **{n: inputs[n] for n in more}, name="it"), name="net")
    _, again = compare(net.evalMode(), [shapes[n] for n in inputs], [data[n] for n in inputs], opset)
    assert sum(type(node.module) is kind for node in again.nodes) == 1
    assert sum(type(node.module) is Transpose for node in again.nodes) == 0
    assert type(again["it"]) is kind
    for p, own in zip(sorted(again.params), sorted(net.params), strict=True):
        np.testing.assert_array_equal(again.params[p].data, net.params[own].data)


def test_a_recurrent_layer_at_two_nodes_stays_one():
    layer = GRU(3, 3)
    x = Input(name="x").node()
    net = Graph(x, layer.node(layer.node(x, name="a"), name="b"), name="net")
    _, again = compare(net, [("N", "T", 3)], [np.random.default_rng(1).standard_normal((2, 4, 3))])
    assert again["a"] is again["b"] and len(again.params) == len(net.params)


def test_transposes_of_ones_own_beside_a_recurrent_layer_stay():
    x = Input(name="x").node()
    before = Transpose((1, 0, 2), name="back")(Transpose((1, 0, 2), name="there")(x))
    after = Transpose((1, 0, 2), name="later")(LSTM(3, 2, name="it")(before))
    compare(Graph(x, after, name="net"), [("N", "T", 3)], [np.random.default_rng(1).standard_normal((2, 4, 3))])


CELLS = {
    "RNN": (RecurrentCells("RNN", 2, (("HardSigmoid", 0.3, 0.4),), isReversed=True), [(3, 2, 4), (2, 4), (2, 2)]),
    "GRU": (RecurrentCells("GRU", 2, clip=0.5), [(3, 2, 1), (6, 1), (6, 2), (12,), (2,), (2, 2)]),
    "LSTM": (RecurrentCells("LSTM", 2, isReversed=True), [(3, 2, 1), (8, 1), (8, 2), (16,), (2,), (2, 2), (2, 2), (6,)]),
    "LSTM of other functions": (RecurrentCells("LSTM", 1, (("LeakyRelu", 0.2, 0), ("Softsign", 0, 0), ("Affine", 2, 1)),
                                               isCoupled=True), [(2, 1, 3), (4, 3), (4, 1)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
def test_recurrent_cells_with_other_options_are_written(name):
    cells, shapes = CELLS[name]
    data = cells.sample(np.random.default_rng(3), *shapes)
    around(cells, shapes, ["int64" if x.dtype.kind == "i" else "float32" for x in data], data)
