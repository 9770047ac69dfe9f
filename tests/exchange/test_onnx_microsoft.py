"""Operators of onnxruntime's own domain, com.microsoft, give what it gives: eager, compiled, and their gradients."""

import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402

from puregraph import GraphError  # noqa: E402
from puregraph.onnx import fromOnnx  # noqa: E402
from puregraph.onnx.opregistry import MICROSOFT, NOTREAD, READERS, loadFamilies  # noqa: E402

torch = pytest.importorskip("torch") if find_spec("torch") else None

pytestmark = pytest.mark.filterwarnings("ignore:.*invalid value")
RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def bytesOf(*shape, dtype=np.uint8):
    """Integers of 8 bits; of signed ones 7, of which onnxruntime adds up products exactly on any machine."""
    low, high = (0, 256) if dtype == np.uint8 else (-64, 64)
    return RNG.integers(low, high, shape).astype(dtype)


def number(value, dtype=np.float32):
    return np.array(value, dtype)


def case(kind, inputs, outputs=1, fixed=(), domain="com.microsoft", **attributes):
    """(model, data): the inputs named in `fixed` are initializers, the others are given; None is left out."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    isFixed = [i in fixed for i in range(len(inputs))]
    data = {n: x for n, x, f in zip(names, inputs, isFixed) if n and not f}
    stored = [numpy_helper.from_array(x, n) for n, x, f in zip(names, inputs, isFixed) if n and f]
    wanted = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else list(outputs)
    node = helper.make_node(kind, names, wanted, name="node", domain=domain, **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in data.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in wanted if name]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "net", infos, results, stored)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), data


def reference(proto, data):
    """The outputs of onnxruntime, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, data)


def assertSame(proto, data, most=2e-5):
    """Eager and compiled results are those of onnxruntime; integers are within one."""
    wanted, net = reference(proto, data), fromOnnx(proto)
    given = list(data.values())
    program = net.compile([x.shape for x in given], dtypes=[x.dtype for x in given], train=False)
    for results in (net(given), program.run(*given)):
        results = results if isinstance(results, (list, tuple)) else [results]
        for y, expected in zip(results, wanted, strict=True):
            assert y.dtype == expected.dtype and y.shape == expected.shape
            distance = np.abs(y.astype(np.float64) - expected.astype(np.float64))
            limit = 1 if expected.dtype.kind in "iu" and most < 1 else most * max(1, np.abs(expected).max(initial=0))
            assert distance.max(initial=0) <= limit, (distance.max(), limit)


X = floats(2, 3, 8)
ACTIVATIONS = {
    "Gelu": ("Gelu", [X], {}),
    "FastGelu": ("FastGelu", [X], {}),
    "FastGelu with a bias": ("FastGelu", [X, floats(8)], {}),
    "BiasGelu": ("BiasGelu", [X, floats(8)], {}),
    "QuickGelu": ("QuickGelu", [X], {}),
    "QuickGelu of another slope": ("QuickGelu", [X], {"alpha": 0.5}),
}
FUSED = {
    f"FusedConv {name}": ("FusedConv", [floats(1, 2, 5, 5), floats(3, 2, 3, 3), floats(3)], {"activation": name, **more})
    for name, more in (
        ("Relu", {}),
        ("Tanh", {"pads": [1, 1, 1, 1]}),
        ("Sigmoid", {"strides": [2, 2]}),
        ("LeakyRelu", {"activation_params": [0.1]}),
        ("Clip", {"activation_params": [-0.5, 0.5]}),
        ("HardSigmoid", {"activation_params": [0.3, 0.4]}),
    )
} | {
    "FusedConv with a sum": (
        "FusedConv", [floats(1, 2, 5, 5), floats(3, 2, 3, 3), floats(3), floats(1, 3, 3, 3)], {"activation": "Relu"}),
    "FusedConv without a bias": ("FusedConv", [floats(1, 2, 5, 5), floats(3, 2, 3, 3)], {"activation": "Relu"}),
    "FusedGemm": ("FusedGemm", [floats(2, 3), floats(3, 4), floats(4)], {"activation": "Relu"}),
    "FusedGemm leaky": (
        "FusedGemm", [floats(2, 3), floats(4, 3), floats(2, 4)],
        {"activation": "LeakyRelu", "activation_alpha": 0.2, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    "FusedMatMul": ("FusedMatMul", [floats(2, 3, 4), floats(2, 4, 5)], {"alpha": 0.25}),
    "FusedMatMul of transposes": ("FusedMatMul", [floats(2, 4, 3), floats(2, 5, 4)], {"transA": 1, "transB": 1}),
    "FusedMatMul of rows before the batch": (
        "FusedMatMul", [floats(3, 2, 4), floats(4, 2, 5)], {"transBatchA": 1, "transBatchB": 1}),
    "FusedMatMul of columns before the batch": (
        "FusedMatMul", [floats(4, 2, 6, 3), floats(5, 2, 6, 4)],
        {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1}),
    "TransposeMatMul": ("TransposeMatMul", [floats(2, 3, 4), floats(5, 4)], {"transB": 1}),
}  # fmt: skip
NORMS = {
    "SkipLayerNormalization": ("SkipLayerNormalization", [X, floats(2, 3, 8), floats(8), floats(8), floats(8)], {}),
    "SkipLayerNormalization of a shared sum": (
        "SkipLayerNormalization", [X, floats(3, 8), floats(8)], {"epsilon": 1e-3}),
    "SkipLayerNormalization and its sum": (
        "SkipLayerNormalization", [X, floats(1, 3, 8), floats(8), floats(8), floats(8)],
        {"outputs": ("y", "", "", "sum"), "epsilon": 1e-5}),
    "SkipSimplifiedLayerNormalization": (
        "SkipSimplifiedLayerNormalization", [X, floats(2, 3, 8), floats(8), floats(8)],
        {"outputs": ("y", "", "", "sum"), "epsilon": 1e-5}),
    "SkipSimplifiedLayerNormalization without a bias": (
        "SkipSimplifiedLayerNormalization", [X, floats(2, 3, 8), floats(8)], {}),
    "SimplifiedLayerNormalization": (
        "SimplifiedLayerNormalization", [X, floats(8)], {"domain": "", "axis": -1, "epsilon": 1e-5}),
}  # fmt: skip
IDS = np.array([[1, 4, 2], [0, 3, 3]], np.int32)
TABLES = [floats(6, 8), floats(5, 8), floats(2, 8), floats(8), floats(8)]
EMBEDDINGS = {
    "words and segments": ([IDS, IDS % 2, *TABLES], {"outputs": 2}),
    "words alone": ([IDS, None, *TABLES[:2], None, *TABLES[3:]], {"epsilon": 1e-5, "outputs": 2}),
    "a mask": ([IDS, IDS % 2, *TABLES, np.array([[1, 1, 0], [1, 0, 0]], np.int32)], {"outputs": ("y", "count")}),
    "positions": ([IDS, IDS % 2, *TABLES, None, IDS % 5], {"outputs": ("y", "count", "sum")}),
}
HEADS, ROWS = 2, floats(5, 2)
ROTARY = {
    "one start": ([floats(2, 3, 8), number([1], np.int64), ROWS, floats(5, 2)], {}),
    "positions": ([floats(2, 3, 8), np.array([[0, 2, 4], [1, 1, 0]]), ROWS, floats(5, 2)], {}),
    "pairs": ([floats(2, 3, 8), number([0], np.int64), ROWS, floats(5, 2)], {"interleaved": 1}),
    "heads apart": ([floats(2, 2, 3, 4), np.array([[0, 2, 4], [1, 1, 0]]), ROWS, floats(5, 2)], {}),
    "a part of a head": (
        [floats(2, 3, 12), number([1], np.int64), ROWS, floats(5, 2)], {"num_heads": 2, "rotary_embedding_dim": 4}),
}  # fmt: skip
RAGGED = np.array([[1, 1, 0], [1, 0, 0]], np.int32)
PROJECTION = [X, floats(8, 12) / 3, floats(12)]
PAST = floats(2, 2, 2, 2, 2)
ATTENTION = {
    "plain": (PROJECTION, {}),
    "causal": (PROJECTION, {"unidirectional": 1}),
    "a mask": ([*PROJECTION, RAGGED], {}),
    "a mask for each query": ([*PROJECTION, np.tril(np.ones((2, 3, 3), np.int32))], {}),
    "lengths": ([*PROJECTION, number([2, 3], np.int32)], {}),
    "ends and starts": ([*PROJECTION, number([3, 2, 1, 0], np.int32)], {}),
    "causal, with a mask": ([*PROJECTION, RAGGED[:, ::-1].copy()], {"unidirectional": 1}),
    "another scale": (PROJECTION, {"scale": 0.3, "mask_filter_value": -5.0}),
    "another filter": ([*PROJECTION, RAGGED], {"mask_filter_value": -5.0}),
    "a bias of scores": ([*PROJECTION, None, None, floats(1, 2, 3, 3)], {}),
    "values of another size": ([X, floats(8, 14) / 3, floats(14)], {"qkv_hidden_sizes": [4, 4, 6]}),
    "a past": ([*PROJECTION, None, PAST], {"outputs": 2}),
    "a past, causal": ([*PROJECTION, None, PAST], {"outputs": 2, "unidirectional": 1}),
    "a past, causal, with a mask": (
        [*PROJECTION, np.array([[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]], np.int32), PAST], {"outputs": 2, "unidirectional": 1}),
}  # fmt: skip
Q, K, V = floats(2, 3, 8), floats(2, 5, 8), floats(2, 5, 12)
MULTIHEAD = {
    "cross": ([Q, K, V], {}),
    "with a bias": ([Q, K, V, floats(28)], {}),
    "causal": ([Q, K[:, :3].copy(), V[:, :3].copy()], {"unidirectional": 1}),
    "a mask": ([Q, K, V, None, np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 1]], np.int32)], {}),
    "lengths": ([Q, K, V, None, number([2, 5], np.int32)], {}),
    "a bias of scores": ([Q, K, V, None, None, floats(2, 1, 3, 5)], {"scale": 0.4}),
    "heads apart": ([Q, floats(2, 2, 5, 4), floats(2, 2, 5, 4)], {}),
    "a past": ([Q, Q + 1, floats(2, 3, 8), None, None, None, floats(2, 2, 4, 4), floats(2, 2, 4, 4)], {"outputs": 3}),
}  # fmt: skip


def settings(kind, cases, **more):
    return {f"{kind}, {name}": (kind, inputs, more | options) for name, (inputs, options) in cases.items()}


FLOATING = {
    **ACTIVATIONS,
    **FUSED,
    **NORMS,
    **settings("EmbedLayerNormalization", EMBEDDINGS),
    **settings("RotaryEmbedding", ROTARY),
    **settings("Attention", ATTENTION, num_heads=HEADS),
    **settings("MultiHeadAttention", MULTIHEAD, num_heads=HEADS),
}


@pytest.mark.parametrize("name", FLOATING)
@pytest.mark.parametrize("isFixed", [False, True], ids=["given", "weights"])
def test_an_operator_of_onnxruntime_is_a_composition_of_others(name, isFixed):
    kind, inputs, options = FLOATING[name]
    weights = {i for i, x in enumerate(inputs) if i and x is not None and x.dtype.kind == "f"} if isFixed else ()
    assertSame(*case(kind, inputs, fixed=weights, **options))


@pytest.mark.parametrize("name", FLOATING)
def test_its_gradient_is_that_of_differences(name):
    kind, inputs, options = FLOATING[name]
    proto, data = case(kind, inputs, **options)
    net = fromOnnx(proto).calcMode(np.float64)
    given = [x.astype(np.float64) if x.dtype == np.float32 else x for x in data.values()]
    steps = [RNG.standard_normal(x.shape) if x.dtype == np.float64 else np.zeros_like(x) for x in given]
    way = [RNG.standard_normal(y.shape) for y in listed(net(given))]

    def along(distance):
        return [x + distance * step if x.dtype == np.float64 else x for x, step in zip(given, steps)]

    def total(distance):
        return sum((y * w).sum() for y, w in zip(listed(net(along(distance))), way))

    wanted = (total(1e-5) - total(-1e-5)) / 2e-5
    net(given)
    net.backward([w if y.dtype == np.float64 else None for y, w in zip(listed(net.data), way)])
    found = sum((g * step).sum() for g, step in zip(listed(net.grad), steps) if g is not None)
    assert abs(found - wanted) <= 1e-6 * max(1, abs(wanted)), (found, wanted)


def listed(values):
    return values if isinstance(values, (list, tuple)) else [values]


OPEN = {  # numbers of samples and lengths that are known with the data
    "Attention, plain": {"x0": ("N", "T", 8)},
    "Attention, causal": {"x0": ("N", "T", 8)},
    "Attention, a mask": {"x0": ("N", 3, 8), "x3": ("N", 3)},
    "Attention, lengths": {"x0": ("N", "T", 8), "x3": ("N",)},
    "Attention, ends and starts": {"x0": ("N", "T", 8), "x3": ("2*N",)},
    "Attention, a past, causal": {"x0": ("N", "T", 8), "x4": (2, "N", 2, "P", 2)},
    "MultiHeadAttention, cross": {"x0": ("N", "T", 8), "x1": ("N", "S", 8), "x2": ("N", "S", 12)},
    "MultiHeadAttention, a mask": {"x0": ("N", "T", 8), "x1": ("N", 5, 8), "x2": ("N", 5, 12), "x4": ("N", 5)},
    "RotaryEmbedding, one start": {"x0": ("N", "T", 8)},
    "RotaryEmbedding, positions": {"x0": ("N", 3, 8), "x1": ("N", 3)},
    "EmbedLayerNormalization, words alone": {"x0": ("N", "T")},
    "SkipLayerNormalization of a shared sum": {"x0": ("N", 3, 8)},
}


@pytest.mark.parametrize("name", OPEN)
def test_sizes_may_be_open(name):
    kind, inputs, options = FLOATING[name]
    proto, data = case(kind, inputs, **options)
    net = fromOnnx(proto, shapes=OPEN[name])
    shapes = net.dataShapeFrom([OPEN[name].get(key, x.shape) for key, x in data.items()])
    assert all("N" in shape for shape in (shapes if isinstance(shapes, list) else [shapes]))
    for y, expected in zip(listed(net(list(data.values()))), reference(proto, data), strict=True):
        np.testing.assert_allclose(y, expected, 1e-4, 1e-5)


def triple(*shape, dtype=np.uint8, scale=0.05):
    """Integers, their scale and their zero point."""
    return [bytesOf(*shape, dtype=dtype), number(scale), number(7, dtype)]


def triples(dtype=np.uint8, shape=(2, 3, 4, 4)):
    return [*triple(*shape, dtype=dtype), *triple(*shape, dtype=dtype, scale=0.02)]


def output(dtype=np.uint8, scale=0.06):
    return [number(scale), number(3, dtype)]


INTEGERS = (np.uint8, np.int8)
BETWEEN = {
    f"{kind} of {np.dtype(dtype)}": (kind, [*triples(dtype), *output(dtype, scale)], {})
    for dtype in INTEGERS
    for kind, scale in (("QLinearAdd", 0.06), ("QLinearMul", 0.3))
} | {
    f"{kind} of {np.dtype(dtype)}": (kind, [*triple(2, 3, 4, 4, dtype=dtype), *output(dtype, scale)], options)
    for dtype in INTEGERS
    for kind, scale, options in (
        ("QLinearSigmoid", 1 / 256, {}),
        ("QLinearLeakyRelu", 0.04, {"alpha": 0.2}),
        ("QLinearGlobalAveragePool", 0.04, {}),
        ("QLinearAveragePool", 0.04, {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}),
        ("QLinearSoftmax", 1 / 256, {"opset": 13, "axis": 1}),
    )
} | {
    "QLinearAdd of rows": ("QLinearAdd", [*triple(2, 3, 4), *triple(4), *output()], {}),
    "QLinearGlobalAveragePool, channels last": (
        "QLinearGlobalAveragePool", [*triple(2, 4, 4, 3), *output()], {"channels_last": 1}),
    "QLinearAveragePool, channels last": (
        "QLinearAveragePool", [*triple(2, 4, 4, 3), *output()],
        {"channels_last": 1, "kernel_shape": [2, 2], "count_include_pad": 1, "pads": [1, 1, 0, 0]}),
    "QLinearSoftmax of all axes behind": (
        "QLinearSoftmax", [*triple(2, 3, 4), *output(scale=1 / 256)], {"opset": 11, "axis": 1}),
    "QLinearConcat": ("QLinearConcat", [*output(), *triple(2, 3), *triple(2, 4, scale=0.02)], {"axis": 1}),
    "QLinearWhere": ("QLinearWhere", [RNG.random((2, 3)) < 0.5, *triple(2, 3), *triple(2, 3), *output()], {}),
    "QLinearConv": (
        "QLinearConv",
        [*triple(1, 2, 5, 5), bytesOf(3, 2, 3, 3), number(0.01), number(128, np.uint8), *output(scale=0.3)], {}),
    "NhwcMaxPool": ("NhwcMaxPool", [bytesOf(2, 5, 5, 3)], {"kernel_shape": [3, 3], "strides": [2, 2]}),
    "QGemm": (
        "QGemm", [*triple(3, 4), *triple(4, 5), RNG.integers(-99, 99, 5).astype(np.int32), *output(scale=0.5)], {}),
    "QuantizeLinear": ("QuantizeLinear", [floats(2, 3), number(0.02), number(9, np.uint8)], {}),
}  # fmt: skip
SCALES = np.array([0.01, 0.02, 0.03, 0.05], np.float32)
FLOATED = {
    "QGemm of floats": ("QGemm", [*triple(3, 4), *triple(5, 4)], {"transB": 1, "alpha": 0.5}),
    "DequantizeLinear": ("DequantizeLinear", triple(2, 3), {}),
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat", [bytesOf(2, 3, 5), bytesOf(5, 4), number(0.1), number(0.02)], {}),
    "MatMulIntegerToFloat by column": (
        "MatMulIntegerToFloat",
        [bytesOf(2, 3, 5), bytesOf(5, 4, dtype=np.int8), number(0.1), SCALES, number(99, np.uint8),
         number([1, 2, 3, 4], np.int8), floats(4)], {}),
    "DynamicQuantizeMatMul": ("DynamicQuantizeMatMul", [floats(2, 3, 5), bytesOf(5, 4), number(0.02)], {}),
    "DynamicQuantizeMatMul by column": (
        "DynamicQuantizeMatMul",
        [floats(3, 5), bytesOf(5, 4, dtype=np.int8), SCALES, number([1, 2, 3, 4], np.int8), floats(4)], {}),
    "DynamicQuantizeMatMul of zeros": (
        "DynamicQuantizeMatMul", [0 * floats(3, 5), bytesOf(5, 4), number(0.02), None, floats(4)], {}),
    "DynamicQuantizeMatMul of positive values": (
        "DynamicQuantizeMatMul", [1 + floats(3, 5) ** 2, bytesOf(5, 4), number(0.02), number(12, np.uint8)], {}),
}  # fmt: skip
QUERY = [bytesOf(2, 3, 8), bytesOf(8, 12, dtype=np.int8), floats(12), number(0.02), number(0.01)]
FLOATED |= {
    f"QAttention, {name}": ("QAttention", inputs, {"num_heads": HEADS, **options})
    for name, inputs, options in (
        ("plain", QUERY, {}),
        ("zero points", [*QUERY, None, number(120, np.uint8), number(3, np.int8)], {}),
        ("causal", [*QUERY, None, number(120, np.uint8)], {"unidirectional": 1}),
        ("lengths", [*QUERY, number([2, 3], np.int32), number(120, np.uint8)], {}),
        ("a mask", [*QUERY, RAGGED, number(120, np.uint8)], {}),
        ("a past", [*QUERY, None, number(120, np.uint8), None, PAST], {"unidirectional": 1, "outputs": 2}),
    )
}
BITS = {
    f"{bits} bits{name}": (bits, block, width, zeros, bias)
    for bits, block, width, zeros, bias, name in (
        (4, 16, 32, None, False, ""),
        (4, 32, 64, "packed", True, ", zero points and a bias"),
        (4, 16, 40, "packed", False, ", an odd number of blocks"),
        (4, 16, 32, "floats", False, ", zero points of floats"),
        (8, 16, 32, "packed", False, ""),
        (2, 16, 64, None, False, ""),
    )
}


@pytest.mark.parametrize("name", BETWEEN)
def test_an_operator_between_integers_is_within_one_of_onnxruntime(name):
    kind, inputs, options = BETWEEN[name]
    assertSame(*case(kind, inputs, fixed=constantsOf(inputs), **options), most=0)


@pytest.mark.parametrize("name", FLOATED)
def test_a_product_of_integers_is_exact_and_scaled(name):
    kind, inputs, options = FLOATED[name]
    assertSame(*case(kind, inputs, fixed=constantsOf(inputs), **options))


def constantsOf(inputs):
    """Scales, zero points, weights and biases: all but the arrays that are given."""
    return {i for i, x in enumerate(inputs) if i and x is not None and (x.ndim < 2 or x.dtype == np.int8)}


@pytest.mark.parametrize("name", BITS)
def test_a_matrix_of_a_few_bits_an_element_is_unpacked(name):
    bits, block, width, zeros, hasBias = BITS[name]
    blocks = -(-width // block)
    scales = (0.1 + RNG.random((5, blocks))).astype(np.float32)
    inputs = [floats(2, 3, width), bytesOf(5, blocks, block * bits // 8), scales]
    own = {"packed": bytesOf(5, -(-blocks * bits // 8)), "floats": np.full((5, blocks), 7.5, np.float32), None: None}
    inputs += [own[zeros], None, floats(5)] if hasBias else [own[zeros]]
    options = {"K": width, "N": 5, "bits": bits, "block_size": block, "accuracy_level": 1}
    assertSame(*case("MatMulNBits", inputs, fixed=range(1, len(inputs)), **options), most=1e-4)


LSTMS = {
    "forward": (1, 4, {}),
    "one sample": (1, 1, {}),
    "reverse": (1, 2, {"direction": "reverse"}),
    "bidirectional": (2, 3, {"direction": "bidirectional"}),
    "the last state alone": (1, 2, {"outputs": ("", "h", "")}),
}


@pytest.mark.parametrize("name", LSTMS)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("isWhole", [True, False])
def test_a_recurrent_layer_of_integers_rounds_its_states_at_each_step(name, dtype, isWhole):
    sides, batch, options = LSTMS[name]
    width, size = 6, 5
    weights = [bytesOf(sides, size, 4 * width, dtype=dtype), bytesOf(sides, width, 4 * width, dtype=dtype)]
    shape = (sides,) if isWhole else (sides, 4 * width)
    scaling = [np.full(shape, 0.004, np.float32), np.full(shape, 2 if isWhole else 0, dtype)]
    rest = [floats(sides, 8 * width), None, floats(sides, batch, width), floats(sides, batch, width), None]
    inputs = [floats(7, batch, size), *weights, *(rest if isWhole else [None] * 5), *scaling, *scaling]
    fixed = {i for i, x in enumerate(inputs) if x is not None and i not in (0, 5, 6)}
    proto, data = case("DynamicQuantizeLSTM", inputs, fixed=fixed, **{"outputs": 3, "hidden_size": width, **options})
    assertSame(proto, data)


REFUSED = {
    "a missing input": ("SkipLayerNormalization", [X, X], {}, "wanted an input gamma, got none"),
    "another activation": (
        "FusedConv", [floats(1, 2, 5, 5), floats(3, 2, 3, 3)], {"activation": "Celu"}, "wanted one of Relu.*'Celu'"),
    "heads that do not fit": ("Attention", PROJECTION, {"num_heads": 3}, "3 heads of one size, got 4"),
    "a rotated past": ("Attention", PROJECTION, {"num_heads": 2, "do_rotary": 1}, "do_rotary: wanted 0, got 1"),
    "a mask of four axes": (
        "Attention", [*PROJECTION, np.ones((2, 1, 3, 3), np.int32)], {"num_heads": 2}, "two or three axes, got 4"),
    "lengths of other samples": (
        "Attention", [*PROJECTION, np.ones(3, np.int32)], {"num_heads": 2}, r"wanted \(2,\), \(4,\).*got \(3,\)"),
    "an order of columns": (
        "MatMulNBits", [floats(2, 16), bytesOf(5, 1, 8), floats(5, 1), None, np.zeros(16, np.int32)],
        {"K": 16, "N": 5, "bits": 4, "block_size": 16}, "g_idx: wanted columns in their order"),
    "3 bits": (
        "MatMulNBits", [floats(2, 16), bytesOf(5, 1, 8), floats(5, 1)],
        {"K": 16, "N": 5, "bits": 3, "block_size": 16}, "bits: wanted 4 or 2 or 8, got 3"),
    "a recurrent layer of lengths": (
        "DynamicQuantizeLSTM",
        [floats(7, 1, 5), bytesOf(1, 5, 24), bytesOf(1, 6, 24), None, np.array([3], np.int32), None, None, None,
         *[number([0.1]), number([0], np.uint8)] * 2], {"hidden_size": 6}, "without lengths"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_a_composition_of_others_is_refused_by_name(name):
    kind, inputs, options, text = REFUSED[name]
    proto, _ = case(kind, inputs, fixed={1, 2} if kind == "MatMulNBits" else (), **options)
    with pytest.raises(GraphError, match=f"(?s)node.*{text}"):
        fromOnnx(proto)


def test_an_unknown_operator_of_onnxruntime_names_all_that_are_not_read():
    proto, _ = case("GroupQueryAttention", [X, X, X], num_heads=2, kv_num_heads=2)
    with pytest.raises(
        GraphError, match=r"(?s)com.microsoft.GroupQueryAttention: 'node'.*MatMulBnb4, .*ORT_ENABLE_EXT"
    ):
        fromOnnx(proto)
    page = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text(encoding="utf-8")
    loadFamilies()
    known = {kind for domain, kind in READERS if domain == MICROSOFT}
    assert not known & set(NOTREAD)
    assert [name for name in [*known, *NOTREAD] if f"`{name}`" not in page] == []


class Tagger(torch.nn.Module if torch else object):
    """An LSTM and products, as the quantizer finds them in a tagger of letters."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = torch.nn.LSTM(8, 6, bidirectional=True), torch.nn.Linear(12, 5)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


@pytest.mark.peers
def test_a_model_that_the_quantizer_of_onnxruntime_wrote_is_read(tmp_path):
    pytest.importorskip("torch")
    quantization = pytest.importorskip("onnxruntime.quantization")
    torch.manual_seed(1)
    plain, small = str(tmp_path / "plain.onnx"), str(tmp_path / "small.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Tagger().eval(), torch.randn(7, 1, 8), plain, dynamo=False, input_names=["x"], opset_version=17
        )
        quantization.quantize_dynamic(
            plain, small, reduce_range=True, extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT}
        )
    assert "DynamicQuantizeLSTM" in {node.op_type for node in onnx.load(small).graph.node}
    assertSame(onnx.load(small), {"x": floats(7, 1, 8)})


@pytest.mark.peers
@pytest.mark.parametrize("kind", ["encoder", "pictures"])
def test_a_model_that_the_optimizer_of_onnxruntime_wrote_is_read(kind, tmp_path):
    pytest.importorskip("torch")
    torch.manual_seed(1)
    nn = torch.nn
    if kind == "encoder":
        net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.TransformerEncoderLayer(8, 2, 16, activation="gelu"))
    else:
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.LeakyReLU(), nn.Conv2d(8, 8, 3), nn.Sigmoid())
    x = floats(5, 2, 8) if kind == "encoder" else floats(2, 3, 9, 9)
    plain, optimized = str(tmp_path / "plain.onnx"), str(tmp_path / "optimized.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net.eval(), torch.tensor(x), plain, dynamo=False, input_names=["x"], opset_version=17)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = optimized
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(plain, options, providers=["CPUExecutionProvider"])
    proto = onnx.load(optimized)
    assert "com.microsoft" in {node.domain for node in proto.graph.node}
    assertSame(proto, {"x": x})
