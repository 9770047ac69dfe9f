"""Graphs go to ONNX, through onnx.checker, into onnxruntime and back, and are what they were: random ones, and some."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnxtrips import ran, trip  # noqa: E402

from puregraph import (  # noqa: E402
    Attention,
    BatchNorm,
    Cast,
    Conv2D,
    Gather,
    Graph,
    GroupNorm,
    Input,
    LayerNorm,
    Linear,
    Mul,
    OneHot,
    Position,
    Prepend,
    Relu,
    Sequential,
    Slice,
    Tanh,
)
from puregraph.core.errors import GraphError  # noqa: E402
from puregraph.modules import MaxPoolNd  # noqa: E402
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402

EACH = 125


def compare(part):
    """The graphs of a part."""
    wrong = {number: trip(number) for number in range(EACH * part, EACH * (part + 1))}
    assert not any(wrong.values()), {number: text for number, text in wrong.items() if text}


@pytest.mark.peers
@pytest.mark.costly
@pytest.mark.parametrize("part", range(1))
def test_a_random_graph_goes_to_onnx_and_back(part):
    compare(part)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, 20))
def test_more_random_graphs_go_to_onnx_and_back(part):
    compare(part)


def twice(module):
    """A module at two nodes."""
    x = Input(name="x").node()
    return Graph(x, module(module(x)), name="it")


def masked():
    """Floats times booleans."""
    x, mask = Input(name="x").node(), Input(dtype="bool", name="mask").node()
    return Graph([x, mask], Mul(name="product")(x, mask), name="it")


CASES = {
    "a transposed layer of sequences": (lambda: Sequential(Linear(3, 4, transpose=True)), [("N", 5, 3)]),
    "a layer at two nodes": (lambda: twice(Linear(3, 3)), [("N", 3)]),
    "a layer at two nodes, transposed": (lambda: twice(Linear(3, 3, transpose=True)), [("N", 2, 3)]),
    "a convolution at two nodes": (lambda: twice(Conv2D(2, 2, 3, pad=1)), [("N", 2, 4, 4)]),
    "a norm of features at two nodes": (lambda: twice(LayerNorm(3)), [("N", 3)]),
    "a norm of a batch at two nodes": (lambda: twice(BatchNorm(3)), [("N", 3)]),
    "a norm without scale": (lambda: Sequential(LayerNorm((2, 3), affine=False)), [("N", 2, 3)]),
    "a norm of a batch without scale": (lambda: Sequential(BatchNorm(2, affine=False)), [("N", 2, 3)]),
    "a norm of groups": (lambda: Sequential(GroupNorm(2, 4)), [(2, 4, 3)]),
    "a norm of channels": (lambda: Sequential(GroupNorm(4, 4)), [("N", 4, 3)]),
    "shared heads, causal": (lambda: Graph(q := [Input(name=n).node() for n in "qkv"], Attention(causal=True)(*q)),
                             [(1, 4, 3, 2), (1, 2, 5, 2), (1, 2, 5, 2)]),
    "an element of an open axis": (lambda: Sequential(Slice((1, slice(None, 2)))), [("N", 3)]),
    "elements of two open axes": (lambda: Sequential(Slice((-1, slice(1, 2), 0, None))), [("N", 3, "T", 2)]),
    "vectors before a sequence": (lambda: Sequential(Prepend(2, 3)), [(4, 5, 3)]),
    "a part of a table of positions": (lambda: Sequential(Position(6, 3)), [("N", 4, 3)]),
    "maxima over three axes": (lambda: Sequential(MaxPoolNd((2, 1, 2))), [("N", 2, 4, 3, 2)]),
    "elements by index": (lambda: Graph(g := [Input(name=n).node() for n in "xi"], Gather(1)(*g)), [("N", 4, 3), (2,)]),
    "one in a class": (lambda: Sequential(Cast("int64"), OneHot(3)), [("N",)]),
    "a mask of booleans": (masked, [("N", 3), ("N", 3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_graph_is_written_equally_twice_and_keeps_its_parameters(name):
    build, shapes = CASES[name]
    net = build().evalMode()
    rng = np.random.default_rng(1)
    whole = [tuple({"N": 2, "T": 3}.get(n, n) for n in shape) for shape in shapes]
    data = [
        rng.integers(0, 2, shape).astype(dtype) if dtype.kind in "ib" else rng.standard_normal(shape).astype(dtype)
        for shape, dtype in zip(whole, net.inputTypes(len(shapes)), strict=True)
    ]
    for path, p in net.params.items():
        p.data = rng.standard_normal(p.shape).astype(np.float32) + path.endswith("scale")
    model = toOnnx(net, None, shapes)
    onnx.checker.check_model(model, full_check=True)
    wanted = net(*data)
    np.testing.assert_allclose(ran(model, data)[0], wanted, 1e-5, 1e-5)
    again = fromOnnx(model)
    np.testing.assert_allclose(again(*data), wanted, 1e-5, 1e-6)
    assert sum(p.size for p in again.params.values()) <= sum(p.size for p in net.params.values())
    assert again.dataShapeFrom(list(shapes)) == net.dataShapeFrom(list(shapes))
    assert toOnnx(again, None, shapes).SerializeToString() == model.SerializeToString()


def test_a_graph_without_parameters_is_written_in_the_dtype_of_its_inputs():
    net = Sequential(Tanh(name="t"), name="it")
    again = fromOnnx(toOnnx(net, None, [("N", 2)], dtypes=["float64"]))
    assert again.dataTypeFrom("float64") == np.float64
    assert fromOnnx(toOnnx(net, None, [("N", 2)])).dataTypeFrom("float32") == np.float32


@pytest.mark.parametrize("kind", ["Add", "Max", "Mul", "Pow", "Where"])
@pytest.mark.parametrize("opset", [13, 21])
def test_a_parameter_without_axes_is_written_without_axes(kind, opset):
    value, flag = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL
    ends = [onnx.helper.make_tensor_value_info(name, value, []) for name in "xy"]
    nodes = [onnx.helper.make_node(kind, (["c"] if kind == "Where" else []) + ["w", "x"], ["y"])]
    inputs = [*([onnx.helper.make_tensor_value_info("c", flag, [])] if kind == "Where" else []), ends[0]]
    weight = onnx.numpy_helper.from_array(np.array(3, np.float32), "w")
    graph = onnx.helper.make_graph(nodes, "it", inputs, ends[1:], [weight])
    net = fromOnnx(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8))
    (param,) = net.params.values()
    written = toOnnx(net, None, [()] * len(inputs), opset)
    onnx.checker.check_model(written, full_check=True)
    assert param.shape == () and [list(each.dims) for each in written.graph.initializer] == [[]]
    data = [*([np.array(True)] if kind == "Where" else []), np.array(2, np.float32)]
    for (y,) in (ran(written, data), [fromOnnx(written)(*data)]):
        assert y.shape == () and y == net(*data)


def test_what_reads_a_node_without_words_is_not_named_beside_it():
    from randomgraphs import Parts

    x = Input(name="x").node()
    net = Graph(x, Relu(name="after")((Parts.node(x, name="parts"), 0)))
    with pytest.raises(GraphError) as error:
        toOnnx(net, None, [(2, 2)])
    assert "'parts'" in str(error.value) and "'after'" not in str(error.value)


def test_a_batch_norm_without_a_bias_comes_back_without_one():
    again = fromOnnx(toOnnx(Sequential(BatchNorm(3, useBias=False), Linear(3, 2)), None, (4, 3)))
    (norm,) = [module for module in again.modules().values() if isinstance(module, BatchNorm)]
    assert list(norm.params) == ["scale"]
