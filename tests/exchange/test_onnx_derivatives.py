"""Gradients of every differentiable operator of ONNX are PyTorch's, and where it has none what central differences say."""

import warnings
import zlib

import numpy as np
import pytest
from onnxfamilies import READERS, setting

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

import onnxtorchblocks  # noqa: E402, F401  its operators are registered
from onnx import helper  # noqa: E402
from onnxtorch import TORCH, said  # noqa: E402

from puregraph.onnx import fromOnnx  # noqa: E402

OPSETS = (7, 10, 13, 18, 23, 28)
DOMAINS = {  # where an operator has no gradient everywhere: what its values are drawn from instead
    **dict.fromkeys(["Log", "Sqrt"], lambda x: np.abs(x) + 0.125),
    **dict.fromkeys(["Acos", "Asin", "Atanh"], lambda x: x / 8),
    "Acosh": lambda x: np.abs(x) + 1.125,
    "Reciprocal": lambda x: np.where(x == 0, 1, x),
    "BatchNormalization": lambda x: np.abs(x) + 0.125,
}
WITHOUT = {  # operators that have no gradient
    **dict.fromkeys(
        """And ArgMax ArgMin BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor ConvInteger DynamicQuantizeLinear Equal
        Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual MatMulInteger NonMaxSuppression NonZero Not Or QLinearConv
        QLinearMatMul QuantizeLinear Shape Size Xor""".split(),
        "gives integers or booleans",
    ),
    **dict.fromkeys(
        """BlackmanWindow Constant ConstantOfShape EyeLike HammingWindow HannWindow MelWeightMatrix""".split(),
        "reads no floats that come with the data",
    ),
    "BitCast": "gives the bits of its input",
    "DequantizeLinear": "its scales are no weights here",
    "OneHot": "its two values have no gradient in the standard either",
    "Unique": "has none in the standard either",
    "Dropout": "sets elements to zero at random",
    "Range": "how many numbers it gives follows from its inputs",
}
WIDE = {  # attributes with which an operator that the standard writes out is not computed in float32
    "Attention": {"scale": 0.25},  # of any other one its root is rounded
    "CausalConvWithState": {"activation": "none"},  # any other one is of float32
    "GroupNormalization": {"stash_type": 11},
    "RMSNormalization": {"stash_type": 11},
}
SINGLE = {"LinearAttention"}  # always computed in float32
DETACHED = {"MaxRoiPool": {1}, "RoiAlign": {1}}  # inputs that no gradient reaches
NUMERIC = {
    "CausalConvWithState",
    "CenterCropPad",
    "GRU",
    "Hardmax",
    "LSTM",
    "MaxRoiPool",
    "RNN",
    "Resize",
    "RoiAlign",
    "Upsample",
}  # of these onnxtorch has none


TRIED = sorted(READERS.keys() - WITHOUT.keys())


def drawn(name, opset, rng, near):
    """A use of an operator in float64: attributes, inputs, count of outputs; `near` moves values off ties and kinks."""
    attributes, inputs, count = setting(name, rng, opset)
    for i, x in enumerate(inputs):
        if x is not None and x.dtype.kind == "f":
            moved = np.asarray(x.astype(np.float64) + near * rng.uniform(-1, 1, x.shape))
            isShape = name in ("Resize", "Upsample") and i
            inputs[i] = x if isShape else np.asarray(DOMAINS.get(name, np.asarray)(moved), np.float64)
    return attributes | WIDE.get(name, {}), inputs, count


def read(name, opset, use, stored=False):
    """The graph of one node, and its inputs: those of float64, or with `stored` the first; all else is in the model."""
    attributes, inputs, count = use
    node = helper.make_node(
        name,
        [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)],
        [f"y{i}" for i in range(count)],
        **attributes,
    )
    given = {f"x{i}": x for i, x in enumerate(inputs) if isDouble(x) and not (stored and i)}
    constants = [
        onnx.numpy_helper.from_array(x, f"x{i}") for i, x in enumerate(inputs) if x is not None and f"x{i}" not in given
    ]
    ends = [helper.make_tensor_value_info(key, onnx.TensorProto.DOUBLE, x.shape) for key, x in given.items()]
    outs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(count)]
    graph = helper.make_graph([node], "one", ends, outs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return fromOnnx(model), list(given.values())


def listed(values):
    return list(values) if isinstance(values, (list, tuple)) else [values]


def passed(net, xs, rng, isFirst):
    """The outputs, random gradients of them (of the first alone, or all), and the gradients of the inputs."""
    ys = listed(net(*xs))
    isSeen = [y.dtype.kind == "f" and not (isFirst and i) for i, y in enumerate(ys)]
    grads = [rng.standard_normal(y.shape).astype(y.dtype) if seen else None for y, seen in zip(ys, isSeen)]
    if any(isSeen):
        net.backward(grads if len(ys) > 1 else grads[0])
    return ys, grads, listed(net.grad) if any(isSeen) else [None] * len(xs)


def torchFault(name, opset, use, rng):
    """How an output or a gradient differs from PyTorch's, None where none does; "" where there is nothing to compare."""
    net, xs = read(name, opset, use)
    ys, grads, found = passed(net, xs, rng, True)
    inputs = [torch.tensor(x, requires_grad=True) if isDouble(x) else x for x in use[1]]
    y = None if grads[0] is None else said(name, use[0], opset, ys[0].shape, inputs)
    if y is None:
        return ""
    leaves = [x for x in inputs if isinstance(x, torch.Tensor)]
    near = 1e-6 if name in SINGLE else 1e-8
    wanted = torch.autograd.grad(y, leaves, torch.tensor(grads[0]), allow_unused=True, materialize_grads=True)
    for what, a, b in zip(
        ["output", *(f"gradient {i}" for i in range(len(xs)))], [ys[0], *found], [y, *wanted], strict=True
    ):
        b = b.detach().numpy()
        a = np.zeros_like(b) if a is None and not b.any() else a
        most = max(1, np.abs(b).max(initial=0, where=np.isfinite(b)))
        if a is None or a.shape != b.shape or not np.allclose(a, b, near, near * most, equal_nan=True):
            return f"{what}: {None if a is None else a.tolist()} for {b.tolist()}"
    return None


def isDouble(x):
    return x is not None and x.dtype == np.float64


def numericFault(name, opset, use, rng):
    """How a gradient differs from central differences along a random direction; None where it does not.

    What follows the first input is now an input too, now a parameter.
    """
    net, xs = read(name, opset, use, stored=rng.random() < 0.5 and name not in DETACHED)
    net.trainMode()
    _, grads, found = passed(net, xs, rng, False)

    def change(values, put):
        step = 1e-6 * rng.standard_normal(values.shape)
        costs = []
        for moved in (values + step, values - step):
            put(moved)
            costs.append(sum(float((g * y).sum()) for g, y in zip(grads, listed(net(*xs))) if g is not None))
        put(values)
        return step * 1e6, (costs[0] - costs[1]) / 2e-6

    holders = [
        (f"input {i}", x, found[i], lambda new, i=i: xs.__setitem__(i, new))
        for i, x in enumerate(xs)
        if i not in DETACHED.get(name, ())
    ]
    holders += [(key, p.data, p.grad, lambda new, p=p: setattr(p, "data", new)) for key, p in net.params.items()]
    for what, values, grad, put in holders:
        if values.dtype == np.float64:
            direction, wanted = change(values, put)
            each = np.zeros(values.shape) if grad is None else grad * direction
            if each.shape != values.shape or not abs(each.sum() - wanted) <= 1e-6 * (1 + np.abs(each).sum()):
                return f"gradient of {what}: {each.sum()} for {wanted}"
    return None


def faults(name, count, seed):
    """What is wrong in `count` settings of an operator in each opset, as sentences, and how many were compared."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    wrong, compared, versions = [], 0, set()
    for opset in OPSETS:
        try:
            version = onnx.defs.get_schema(name, opset)
        except onnx.defs.SchemaError:
            continue
        if version.deprecated or version.since_version in versions:
            continue
        versions.add(version.since_version)
        found = 0
        for _ in range(20 * count):
            isNear = name in TORCH and rng.random() < 0.7
            use = drawn(name, opset, rng, 0 if isNear else 0.05)
            if found == count or not any(isDouble(x) and x.size for x in use[1]):
                continue
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    fault = torchFault(name, opset, use, rng) if name in TORCH else ""
                    fault = numericFault(name, opset, use, rng) if fault == "" and not isNear else fault
                except Exception as error:
                    fault = f"{type(error).__name__}: {error}"
            found, compared = found + (fault != ""), compared + (fault != "")
            if fault:
                wrong.append(f"{name}, opset {opset}, {use[0]} of {use[1]}: {fault}")
    return wrong, compared


def test_every_differentiable_operator_is_tried():
    kind = onnx.defs.OpSchema.DifferentiationCategory.Differentiable
    has = {
        name for name in READERS if any(x.differentiation_category == kind for x in onnx.defs.get_schema(name).inputs)
    }
    assert has <= {*TRIED, "Dropout"}
    assert set(TRIED) - TORCH.keys() == NUMERIC


def test_a_setting_of_every_operator_in_each_opset_has_the_gradients_of_pytorch():
    found = {name: faults(name, 1, 2) for name in TRIED}
    assert not [fault for wrong, _ in found.values() for fault in wrong]
    assert not [name for name, (_, compared) in found.items() if not compared]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIED)
def test_an_operator_in_random_settings_has_the_gradients_of_pytorch(name):
    wrong, compared = faults(name, 60, 1)
    assert compared >= 20, compared
    assert not wrong, "\n".join(wrong[:5])


PEAK = np.zeros((1, 1, 3, 3))
PEAK[..., 1, 1] = 5
AT_KINKS = [  # operator, opset, attributes, inputs, gradients of those that are floats for a gradient of ones
    (
        "MaxPool",
        12,
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        [np.arange(16.0).reshape(1, 1, 4, 4)],
        [{5, 7, 13, 15}],
    ),
    ("MaxPool", 12, {"kernel_shape": [2, 2]}, [PEAK], [{4: 4}]),
    ("MaxPool", 12, {"kernel_shape": [2, 2]}, [PEAK * 0], [{0, 1, 3, 4}]),
    ("MaxPool", 12, {"kernel_shape": [2, 2], "strides": [2, 2]}, [np.full((1, 1, 4, 4), -1e8)], [{0, 2, 8, 10}]),
    ("Relu", 14, {}, [[-2.0, -1, 0, 1, 4]], [[0, 0, 0, 1, 1]]),
    ("LeakyRelu", 16, {"alpha": 0.5}, [[-2.0, 0, 4]], [[0.5, 0.5, 1]]),
    ("PRelu", 16, {}, [[-2.0, 0, 4], [0.5, 0.5, 0.5]], [[0.5, 0.5, 1], [-2, 0, 0]]),
    ("Abs", 13, {}, [[-2.0, -1, 0, 1, 4]], [[-1, -1, 0, 1, 1]]),
    ("Clip", 13, {}, [[-2.0, -1, 0, 1, 4], -1.0, 1.0], [[0, 1, 1, 1, 0], 1, 1]),
    ("Clip", 7, {"min": -1.0, "max": 1.0}, [[-2.0, -1, 0, 1, 4]], [[0, 1, 1, 1, 0]]),
    ("Clip", 13, {}, [[-2.0, -1, 0, 1, 4]], [[1, 1, 1, 1, 1]]),
    ("Max", 13, {}, [[1.0, 2, 3], [2.0, 2, 2]], [[0, 0.5, 1], [1, 0.5, 0]]),
    ("Min", 13, {}, [[1.0, 2, 3], [2.0, 2, 2]], [[1, 0.5, 0], [0, 0.5, 1]]),
    ("ReduceMax", 13, {"axes": [1]}, [[[1.0, 3, 3], [2, 0, 1]]], [[[0, 0.5, 0.5], [1, 0, 0]]]),
    ("Gather", 13, {}, [np.zeros((5, 1)), np.array([1, 3, 1])], [{1: 2, 3: 1}]),
    ("ScatterElements", 18, {"reduction": "max"}, [[1.0, 3], np.array([0, 0]), [1.0, 1]], [[1 / 3, 1], [1 / 3, 1 / 3]]),
    ("ScatterElements", 18, {"reduction": "mul"}, [[2.0, 3], np.array([0, 0]), [0.0, 5]], [[0, 1], [10, 0]]),
    ("Det", 13, {}, [[[1.0, 2], [2, 4]]], [[[4, -2], [-2, 1]]]),
    ("Einsum", 12, {"equation": "ij->i"}, [np.ones((2, 2))], [{0, 1, 2, 3}]),
    ("Einsum", 12, {"equation": ",".join("a" * 11) + "->a"}, [[2.0]] * 11, [[1024]] * 11),
    (
        "SoftmaxCrossEntropyLoss",
        13,
        {},
        [[[1.0, 2, 3], [1, 1, 1]], np.array([2, 0])],
        [[[0.045015286585, 0.122364235527, -0.167379522112], [-1 / 3, 1 / 6, 1 / 6]]],
    ),
    ("Einsum", 12, {"equation": "ii->i"}, [np.ones((2, 2))], [{0, 3}]),
]


@pytest.mark.parametrize(
    ("name", "opset", "attributes", "inputs", "wanted"), AT_KINKS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_gradients_where_elements_tie_and_at_kinks(name, opset, attributes, inputs, wanted):
    use = attributes, [np.asarray(x) for x in inputs], 1
    net, xs = read(name, opset, use)
    y = net(*xs)
    net.backward(np.ones_like(y))
    for x, grad, want in zip(xs, listed(net.grad), wanted, strict=True):
        if isinstance(want, (set, dict)):
            want = [(want[i] if isinstance(want, dict) else 1) if i in want else 0 for i in range(x.size)]
        np.testing.assert_allclose(grad, np.reshape(want, x.shape), 0, 1e-10)
