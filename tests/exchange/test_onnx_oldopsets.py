"""Models of opsets 1 to 6 give what the versions of their operators say: numpy's formulas are the reference."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from puregraph.core.errors import PuregraphError  # noqa: E402
from puregraph.onnx import fromOnnx  # noqa: E402
from puregraph.onnx.oldopsets import REWRITERS  # noqa: E402

PAIRS = {  # shapes of two operands, and the attributes that make the second one the third
    "one number": ((2, 3, 5), (), {}, ()),
    "one element": ((2, 3, 5), (1, 1), {}, (1, 1)),
    "the last axis": ((2, 3, 5), (5,), {}, (5,)),
    "the last two axes": ((4, 2, 3, 5), (3, 5), {}, (3, 5)),
    "a channel": ((2, 3, 5, 7), (3,), {"axis": 1}, (3, 1, 1)),
    "two axes in the middle": ((2, 3, 5, 7), (3, 5), {"axis": 1}, (3, 5, 1)),
    "the first axis": ((3, 3, 3), (3,), {"axis": 0}, (3, 1, 1)),
    "from the end": ((3, 3, 3), (3,), {"axis": -2}, (3, 1)),
    "an axis of length one": ((2, 3), (2, 1), {"axis": 0}, (2, 1)),
}
BINARY = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
}


def model(kind, data, opset, attributes=None, weights=(), shapes=None, outputs=1):
    """A model of one node; arrays at the places of `weights` are initializers."""
    names = [f"x{i}" for i in range(len(data))]
    kinds = [helper.np_dtype_to_tensor_dtype(x.dtype) for x in data]
    shapes = shapes or [x.shape for x in data]
    ends = [helper.make_tensor_value_info(n, t, s) for n, t, s in zip(names, kinds, shapes)]
    given = [numpy_helper.from_array(x, n) for i, (x, n) in enumerate(zip(data, names)) if i in weights]
    outs = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(kind, names, outs, name="it", **(attributes or {}))
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outs]
    inputs = [e for i, e in enumerate(ends) if i not in weights]
    graph = helper.make_graph([node], "g", inputs, results, given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)


def result(kind, data, opset, attributes=None, weights=(), shapes=None, outputs=1):
    """What the graph of such a model gives."""
    made = model(kind, data, opset, attributes, weights, shapes, outputs)
    return fromOnnx(made)(*[x for i, x in enumerate(data) if i not in weights])


def drawn(kind, *shapes):
    """Operands of the dtype that an operator takes."""
    rng = np.random.default_rng(5)
    if kind in ("And", "Or", "Xor"):
        return [rng.integers(0, 2, shape).astype(bool) for shape in shapes]
    if kind == "Equal":
        return [rng.integers(0, 3, shape).astype(np.int32) for shape in shapes]
    return [np.asarray(rng.uniform(0.5, 2, shape), np.float32) for shape in shapes]


@pytest.mark.parametrize("isWeight", [False, True])
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("kind", BINARY)
def test_the_second_operand_stands_where_its_attribute_says(kind, pair, isWeight):
    shape, other, attributes, wanted = PAIRS[pair]
    a, b = drawn(kind, shape, other)
    y = result(kind, [a, b], 6, {"broadcast": 1, **attributes}, [1] if isWeight else [])
    want = BINARY[kind](a, b.reshape(wanted))
    assert y.shape == want.shape == shape
    np.testing.assert_allclose(y, want, 1e-6)


def test_a_batch_may_be_open_where_a_channel_is_added():
    a, b = drawn("Add", (2, 3, 5), (3,))
    y = result("Add", [a, b], 6, {"broadcast": 1, "axis": 1}, [1], [["N", 3, 5], (3,)])
    np.testing.assert_array_equal(y, a + b[:, None])


@pytest.mark.parametrize(
    ("shapes", "attributes", "text"),
    [
        ([(2, 3), (3,)], {}, r"broadcast is 0: wanted two inputs of one shape, got \(2, 3\) and \(3,\)"),
        (
            [(2, 3), (2,)],
            {"broadcast": 1},
            r"broadcast is 1: wanted sizes that stand at the end of \(2, 3\), got \(2,\)",
        ),
        ([(2, 3), (2,)], {"broadcast": 1, "axis": 1}, r"from axis 1 on in \(2, 3\), got \(2,\)"),
        ([(2, 3), (2,)], {"broadcast": 1, "axis": 2}, r"from axis 2 on in"),
        ([(2, 3), (2,)], {"broadcast": 1, "axis": -3}, r"from axis -3 on in"),
        ([(3,), (2, 3)], {"broadcast": 1}, r"at the end of"),
        ([(1, 3), (2, 3)], {"broadcast": 1}, r"at the end of"),
        ([(2, 3), (2,)], {"broadcast": 2}, r"broadcast: wanted 0 or 1, got 2"),
    ],
)
def test_an_operand_that_stands_nowhere_in_the_other_one_is_refused(shapes, attributes, text):
    with pytest.raises(PuregraphError, match=text):
        fromOnnx(model("Add", drawn("Add", *shapes), 6, attributes))


X = np.random.default_rng(7).standard_normal((2, 3, 5, 7)).astype(np.float32)
SINGLE = np.float32([0.25])
SLOPES = np.float32([0.5, -1, 2])
NUMBERS = [np.float32([1, 2, 3]), np.float32([0, 1, -1]), np.float32([0.1, 0.2, 0.3]), np.float32([1, 2, 0.5])]


def normalized(x, scale, bias, mean, var):
    """Normalization by the moments of channels."""
    scale, bias, mean, var = (v[:, None, None] for v in (scale, bias, mean, var))
    return scale * (x - mean) / np.sqrt(var + 1e-5) + bias


def selu(x, alpha, gamma):
    """Self-normalizing linear unit."""
    return gamma * np.where(x > 0, x, alpha * np.exp(np.minimum(x, 0)) - alpha)


FORMS = {  # operator, opset, data, attributes, places of weights, what is wanted
    "PRelu of a slope": ("PRelu", 6, [X, SINGLE], {}, [1], np.where(X > 0, X, X / 4)),
    "PRelu of slopes": ("PRelu", 6, [X, SLOPES], {}, [1], np.where(X > 0, X, X * SLOPES[:, None, None])),
    "PRelu of slopes of a matrix": ("PRelu", 1, [X[0, 0, :, :3], SLOPES], {}, [1], np.where(X[0, 0, :, :3] > 0, 1, SLOPES) * X[0, 0, :, :3]),
    "BatchNormalization": ("BatchNormalization", 6, [X, *NUMBERS], {"is_test": 1}, [1, 2, 3, 4], normalized(X, *NUMBERS)),
    "BatchNormalization of opset 1": ("BatchNormalization", 1, [X, *NUMBERS], {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}, [1, 2, 3, 4], normalized(X, *NUMBERS)),
    "BatchNormalization of values": ("BatchNormalization", 6, [X, *NUMBERS], {"spatial": 1}, [], normalized(X, *NUMBERS)),
    "Dropout": ("Dropout", 6, [X], {"is_test": 1, "ratio": 0.3}, [], X),
    "Dropout of opset 1": ("Dropout", 1, [X], {"consumed_inputs": [0]}, [], X),
    "Gemm": ("Gemm", 6, [X[0, 0], X[0, 1].T.copy(), X[0, 2, 0, :5]], {"broadcast": 1, "alpha": 0.5}, [1, 2], X[0, 0] @ X[0, 1].T / 2 + X[0, 2, 0, :5]),
    "Reshape": ("Reshape", 1, [X], {"shape": [0, -1, 7]}, [], X.reshape(2, 15, 7)),
    "Reshape by an input": ("Reshape", 5, [X, np.array([6, -1])], {}, [1], X.reshape(6, -1)),
    "Cast to doubles": ("Cast", 1, [X], {"to": "DOUBLE"}, [], X.astype(np.float64)),
    "Cast to int32": ("Cast", 5, [X], {"to": "int32"}, [], X.astype(np.int32)),
    "Cast by number": ("Cast", 6, [X], {"to": TensorProto.BOOL}, [], X != 0),
    "Concat": ("Concat", 1, [X, X[:, :2].copy()], {}, [], np.concatenate([X, X[:, :2]], 1)),
    "Concat along an axis": ("Concat", 1, [X, X], {"axis": 3}, [], np.concatenate([X, X], 3)),
    "Selu of opset 1": ("Selu", 1, [X], {}, [], selu(X, 1.6732, 1.0507)),
    "Selu of opset 6": ("Selu", 6, [X], {}, [], selu(X, 1.6732632, 1.0507010)),
    "Elu": ("Elu", 1, [X], {"alpha": 0.5, "consumed_inputs": [0]}, [], np.where(X > 0, X, 0.5 * np.expm1(np.minimum(X, 0)))),
    "Clip": ("Clip", 1, [X], {"min": -0.5, "consumed_inputs": [0]}, [], np.maximum(X, -0.5)),
    "LpPool": ("LpPool", 1, [X], {"p": 2.0, "kernel_shape": [5, 7]}, [], np.sqrt((X**2).sum((2, 3), keepdims=True))),
    "GlobalLpPool": ("GlobalLpPool", 1, [X], {"p": 1.0}, [], abs(X).sum((2, 3), keepdims=True)),
    "Pad": ("Pad", 1, [X], {"paddings": [0, 0, 1, 2, 0, 0, 0, 3], "value": 4.0}, [], np.pad(X, [(0, 0), (0, 0), (1, 0), (2, 3)], constant_values=4)),
    "Pad of opset 2": ("Pad", 2, [X], {"pads": [0, 0, 1, 2, 0, 0, 0, 3], "mode": "edge"}, [], np.pad(X, [(0, 0), (0, 0), (1, 0), (2, 3)], "edge")),
    "Tile": ("Tile", 1, [X, np.float32([2]), np.float32([2])], {}, [1, 2], np.tile(X, (1, 1, 2, 1))),
    "Tile from the end": ("Tile", 5, [X, np.float32(3), np.float32(-1)], {}, [1, 2], np.tile(X, (1, 1, 1, 3))),
    "Tile of opset 6": ("Tile", 6, [X, np.array([1, 2, 1, 1])], {}, [1], np.tile(X, (1, 2, 1, 1))),
    "Upsample": ("Upsample", 1, [X], {"height_scale": 2.0, "width_scale": 3.0}, [], X.repeat(2, 2).repeat(3, 3)),
    "AveragePool": ("AveragePool", 1, [X], {"kernel_shape": [5, 7]}, [], X.mean((2, 3), keepdims=True)),
    "Max": ("Max", 1, [X, -X], {"consumed_inputs": [0, 0]}, [], abs(X)),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_an_old_form_of_an_operator_is_read(name):
    kind, opset, data, attributes, weights, wanted = FORMS[name]
    y = result(kind, data, opset, attributes, weights)
    assert y.shape == wanted.shape and (y.dtype == wanted.dtype or wanted.dtype == np.float64)
    np.testing.assert_allclose(y, wanted, 2e-6, 2e-6)


def test_parts_of_opset_1_have_lengths_of_an_attribute_or_of_an_input():
    parts = np.split(X, [2, 3], axis=3)
    for data, attributes, weights in (
        ([X], {"axis": 3, "split": [2, 1, 4]}, []),
        ([X, np.float32([2, 1, 4])], {"axis": 3}, [1]),
    ):
        found = result("Split", data, 1, attributes, weights, outputs=3)
        assert all(np.array_equal(y, part) for y, part in zip(found, parts, strict=True))


def test_a_recurrent_layer_of_opset_1_is_the_one_of_opset_7():
    rng = np.random.default_rng(2)
    data = [rng.standard_normal(s).astype(np.float32) for s in ((5, 2, 3), (1, 16, 3), (1, 16, 4), (1, 32))]
    old = result("LSTM", data, 1, {"hidden_size": 4, "output_sequence": 1}, [1, 2, 3])
    assert np.array_equal(old, result("LSTM", data, 7, {"hidden_size": 4}, [1, 2, 3]))


@pytest.mark.parametrize(
    ("kind", "opset", "data", "attributes", "weights", "text"),
    [
        ("Reshape", 1, [X], {}, [], "its attribute shape is missing"),
        ("Cast", 1, [X], {"to": "FLOTE"}, [], "to: wanted the name of a dtype such as FLOAT, got 'FLOTE'"),
        ("Cast", 1, [X], {"to": 1}, [], "to: wanted string, got int"),
        ("LpPool", 1, [X], {"p": 1.5, "kernel_shape": [2, 2]}, [], "p: wanted a whole number, got 1.5"),
        ("LpPool", 1, [X], {"p": float("inf"), "kernel_shape": [2, 2]}, [], "p: wanted a whole number, got inf"),
        ("LpPool", 1, [X], {}, [], "its attribute kernel_shape is missing"),
        ("Tile", 1, [X, np.float32([2]), np.float32([4])], {}, [1, 2], "one axis below 4"),
        ("Tile", 1, [X, np.float32([2, 1]), np.float32([1])], {}, [1, 2], "one number of tiles"),
        ("Tile", 1, [X, np.float32([2]), np.float32([1])], {}, [], "the number of tiles 'x1' is known only with the data"),
        ("Tile", 1, [X, np.float32([np.nan]), np.float32([1])], {}, [1, 2], "'it' .Tile."),
        ("Tile", 1, [X, np.float32([1e30]), np.float32([1])], {}, [1, 2], "'it' .Tile."),
        ("Tile", 1, [X, np.float32([2])], {}, [1], "its required input axis is missing"),
        ("BatchNormalization", 6, [X, *NUMBERS], {"spatial": 0}, [1, 2, 3, 4], "spatial: wanted 1, got 0"),
        ("Add", 7, [X, X], {"axis": 1}, [], "no attribute 'axis' in opset 7"),
        ("Add", 6, [X], {"broadcast": 1}, [], "its required input B is missing"),
    ],
)  # fmt: skip
def test_what_contradicts_the_old_form_is_refused_in_a_sentence(kind, opset, data, attributes, weights, text):
    with pytest.raises(PuregraphError, match=text), np.errstate(all="ignore"):
        fromOnnx(model(kind, data, opset, attributes, weights))


def test_the_first_files_name_neither_an_opset_nor_types_of_attributes():
    made = model("Reshape", [X], 1, {"shape": [6, 35], "consumed_inputs": [0]})
    made.ir_version = 1
    del made.opset_import[:]
    for attribute in made.graph.node[0].attribute:
        attribute.ClearField("type")
    np.testing.assert_array_equal(fromOnnx(made)(X), X.reshape(6, 35))


def test_a_model_that_imports_no_opset_is_refused_by_each_node():
    made = model("Relu", [X], 7)
    made.opset_import[0].domain = "own"
    with pytest.raises(PuregraphError, match="imports no opset of the standard's operators"):
        fromOnnx(made)


def test_a_parameter_that_moves_to_another_axis_is_still_trained():
    a, b = drawn("Mul", (2, 3, 5), (3,))
    net = fromOnnx(model("Mul", [a, b], 6, {"broadcast": 1, "axis": 1}, [1])).trainMode()
    net(a)
    net.backward(np.ones((2, 3, 5), np.float32))
    (weight,) = net.params.values()
    np.testing.assert_allclose(weight.grad.ravel(), a.sum((0, 2)), 1e-6)


def test_every_operator_whose_form_changed_up_to_opset_7_is_rewritten_or_lost_a_hint_alone():
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if not s.domain and s.since_version <= 7]
    newest = {s.name: s for s in sorted(schemas, key=lambda s: s.since_version)}
    unused = {"consumed_inputs", "is_test", "output_sequence"}
    changed = {
        s.name
        for s in schemas
        for name, attribute in s.attributes.items()
        if name not in unused
        and (name not in newest[s.name].attributes or newest[s.name].attributes[name].type != attribute.type)
    }
    assert changed <= set(REWRITERS)
