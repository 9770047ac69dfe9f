"""What is composed of small operators is read as one module, with the same numbers; what is nearly so is not."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnxcomposed import COMPOSED, composed  # noqa: E402

from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402

EACH, MORE = 2, 100  # settings of each, everyday and in the slow tier
FAULTS = 3  # of each kind, everyday
AROUND = ("Transpose", "Constant")  # of keys, and masks
PARTS = ("Linear", "LayerNorm", "RmsNorm", "Attention")
OPSETS = (13, 17, 18, 21)


def kindsIn(net):
    """What the nodes of a graph are, the inputs left out."""
    labels = [
        "Mish" if "tanh(softplus" in str(getattr(node.module, "formula", "")) else node.label for node in net.nodes
    ]
    return [label for label in labels if label != "Input"]


def compare(model, seed):
    """Both ways of reading give equal numbers, and equal gradients of inputs."""
    rng = np.random.default_rng(seed)
    nets = [fromOnnx(model, patterns=patterns) for patterns in (True, False)]
    shapes = [[d.dim_value or 2 for d in info.type.tensor_type.shape.dim] for info in model.graph.input]
    data = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    found = [listed(net(data if len(data) > 1 else data[0])) for net in nets]
    for y, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(y, wanted, 1e-5, 1e-6)
    seeds = [rng.standard_normal(y.shape).astype(np.float32) for y in found[1]]
    for net in nets:
        net.backward(seeds if len(seeds) > 1 else seeds[0])
    for g, wanted in zip(*(listed(net.grad) for net in nets), strict=True):
        np.testing.assert_allclose(g, wanted, 1e-4, 1e-5)
    sums = [sorted(float(np.abs(p.grad).sum()) for p in arraysOf(net)) for net in nets]
    np.testing.assert_allclose(*sums, 1e-4, 1e-4)
    return nets[0]


def arraysOf(net):
    """Parameters that are more than a number, and have a gradient."""
    return [p for p in net.params.values() if p.size > 1 and p.grad is not None]


def listed(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def check(name, seed, faults=FAULTS):
    """One setting: known again, written and read to the same bytes; with a fault put in, not known."""
    opset = OPSETS[seed % len(OPSETS)]
    model, counts = composed(name, seed, opset)
    net = compare(model, seed)
    wanted = name.split()[0]
    assert [kind for kind in kindsIn(net) if kind not in AROUND] == [wanted], (name, seed, kindsIn(net))
    written = toOnnx(net, opset=opset)
    again = fromOnnx(written)
    assert kindsIn(again) == kindsIn(net)
    assert toOnnx(again, opset=opset).SerializeToString() == written.SerializeToString()
    for kind, count in counts.items():
        for index in np.random.default_rng(seed).permutation(count)[:faults].tolist():
            spoiled = composed(name, seed, opset, (kind, index))[0]
            found = kindsIn(compare(spoiled, seed))
            isPart = wanted in PARTS and len(found) > len(kindsIn(net)) + 1  # what comes before a bias is one as well
            assert isPart or wanted not in found, (name, seed, kind, index)


@pytest.mark.parametrize("name", COMPOSED)
def test_small_operators_are_one_module_and_nearly_the_same_ones_are_not(name):
    for seed in range(EACH):
        check(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSED)
def test_more_small_operators_are_one_module_and_nearly_the_same_ones_are_not(name):
    for seed in range(EACH, MORE):
        check(name, seed, faults=100)


def model(nodes, tensors=(), shape=("N", 4), element=TensorProto.FLOAT, opset=17):
    """A model of nodes from x to y."""
    ends = [
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info("y", element, None)],
    ]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in tensors]
    graph = helper.make_graph(nodes, "it", *ends, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def test_a_number_that_is_trained_stays_a_parameter():
    nodes = [
        helper.make_node("Mul", ["x", "beta"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["b"]),
        helper.make_node("Mul", ["x", "b"], ["y"]),
    ]
    made = model(nodes, [("beta", np.float32(1.5))])
    assert [p.trainable for p in fromOnnx(made).params.values()] == [True]
    assert kindsIn(fromOnnx(made, trainable=False)) != ["Swish"]


def test_a_bias_that_two_layers_share_stays_one_parameter():
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("MatMul", ["c", "V"], ["d"]),
        helper.make_node("Add", ["d", "b"], ["y"]),
    ]
    rng = np.random.default_rng(1)
    weights = [(n, rng.standard_normal(s).astype(np.float32)) for n, s in (("W", (4, 4)), ("V", (4, 4)), ("b", (4,)))]
    net = fromOnnx(model(nodes, weights))
    assert len(net.params) == 3
    compare(model(nodes, weights), 1)


def test_a_query_that_sees_no_key_is_what_the_operators_give():
    mask = np.array([[0, -np.inf], [-np.inf, -np.inf]], np.float32)
    nodes = [
        helper.make_node("Transpose", ["x"], ["k"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["x", "k"], ["s"]),
        helper.make_node("Add", ["s", "mask"], ["m"]),
        helper.make_node("Softmax", ["m"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["y"]),
    ]
    net = fromOnnx(model(nodes, [("mask", mask)], (1, 1, 2, 3)))
    assert "Attention" not in kindsIn(net)
    with np.errstate(invalid="ignore"):
        assert np.isnan(net(np.ones((1, 1, 2, 3), np.float32))[0, 0, 1]).all()


@pytest.mark.parametrize("move", ["none", "Transpose", "Reshape"])
@pytest.mark.parametrize("isSame", [True, False])
def test_integers_that_become_floats_and_the_same_integers_stay_integers(move, isSame):
    scale, zero = np.float32(0.013), np.array(117, np.uint8)
    middle = {
        "none": [],
        "Transpose": [helper.make_node("Transpose", ["f"], ["g"], perm=[1, 0])],
        "Reshape": [helper.make_node("Reshape", ["f", "sizes"], ["g"])],
    }[move]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["f"]),
        *middle,
        helper.make_node("QuantizeLinear", ["g" if middle else "f", "scale" if isSame else "other", "zero"], ["y"]),
    ]
    given = [("scale", scale), ("zero", zero), ("other", np.float32(0.017)), ("sizes", np.array([8, 32]))]
    made = model(nodes, given, (16, 16), TensorProto.UINT8)
    x = np.arange(256, dtype=np.uint8).reshape(16, 16)
    net = fromOnnx(made)
    np.testing.assert_array_equal(net(x), fromOnnx(made, patterns=False)(x))
    assert ("Quantize" in kindsIn(net)) != isSame


def test_a_pattern_of_ones_own_is_known():
    from puregraph import Pointwise
    from puregraph.onnx import onnxPattern
    from puregraph.onnx.patterns.patternregistry import PATTERNS

    before = {op: list(known) for op, known in PATTERNS.items()}

    @onnxPattern("Sin(x) ** 2 + Cos(x) ** 2")
    def one(op, x):
        return op(Pointwise(formula="1 + 0 * x"), x)

    try:
        nodes = [
            helper.make_node("Sin", ["x"], ["s"]),
            helper.make_node("Cos", ["x"], ["c"]),
            helper.make_node("Mul", ["s", "s"], ["p"]),
            helper.make_node("Mul", ["c", "c"], ["q"]),
            helper.make_node("Add", ["q", "p"], ["y"]),
        ]
        assert kindsIn(fromOnnx(model(nodes))) == ["Pointwise"]
        assert len(fromOnnx(model(nodes), patterns=False).nodes) > 2
    finally:
        PATTERNS.clear()
        PATTERNS.update(before)
