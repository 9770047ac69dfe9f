"""Files that leave sizes or ranks open: what weights, constants and other sizes say of them is known while reading."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from puregraph import Add, Compress, Concat, Constant, Dim, Graph, Input, Max, Reshape, ShapeError, Sub, Sum  # noqa: E402
from puregraph.core.shape import valued, valueOf, withValues  # noqa: E402
from puregraph.modules import Range, ReduceAlong, Squeeze, TopKValues, Transpose  # noqa: E402
from puregraph.modules.cumulative import CumSum  # noqa: E402
from puregraph.modules.normreduction import Prod  # noqa: E402
from puregraph.onnx import fromOnnx  # noqa: E402
from puregraph.onnx.shapes.partialshapes import partialShapes  # noqa: E402

node = helper.make_node
FLOATS = np.random.default_rng(0)


def floats(*shape):
    return FLOATS.standard_normal(shape).astype(np.float32)


def model(nodes, shape, weights):
    """A model of one input x of floats; its outputs have no declared shape."""
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    results = [helper.make_empty_tensor_value_info("y")]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", given, results, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def assertSame(proto, *inputs, shapes=None):
    """Eager and compiled results are those of onnxruntime."""
    net = fromOnnx(proto, shapes).evalMode()
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for x in inputs:
        wanted = session.run(None, {"x": x})
        for results in (net(x), net.compile(x.shape).run(x)):
            results = results if isinstance(results, list) else [results]
            for y, expected in zip(results, wanted, strict=True):
                assert y.dtype == expected.dtype
                np.testing.assert_allclose(y, expected, 1e-5, 1e-5)


RANKLESS = {  # what follows needs the rank of the value before it
    "a convolution": ([node("Conv", ["x", "w"], ["c"], kernel_shape=[1, 1])], {"w": floats(3, 2, 1, 1)}),
    "a transposed convolution": ([node("ConvTranspose", ["x", "w"], ["c"])], {"w": floats(2, 3, 2, 2)}),
    "a sum with a bias of the same rank": (
        [node("Conv", ["x", "w"], ["d"]), node("Reshape", ["b", "s"], ["e"]), node("Add", ["d", "e"], ["c"])],
        {"w": floats(3, 2, 1, 1), "b": floats(3), "s": np.array([1, 3, 1, 1])},
    ),
    "a permutation": ([node("Transpose", ["x"], ["c"], perm=[0, 2, 1, 3])], {}),
    "a pool": ([node("MaxPool", ["x"], ["c"], kernel_shape=[2, 2])], {}),
    "a resize": (
        [node("Resize", ["x", "", "f"], ["c"], mode="nearest", coordinate_transformation_mode="asymmetric",
              nearest_mode="floor")],
        {"f": np.array([1, 1, 2, 2], np.float32)},
    ),
    "pads": ([node("Pad", ["x", "p"], ["c"])], {"p": np.array([0, 0, 1, 0, 0, 0, 0, 1])}),
    "repeats": ([node("Tile", ["x", "r"], ["c"])], {"r": np.array([1, 2, 1, 1])}),
    "blocks of depth": (
        [node("Conv", ["x", "w"], ["d"]), node("SpaceToDepth", ["d"], ["c"], blocksize=2)],
        {"w": floats(3, 2, 1, 1)},
    ),
    "a constant shape": ([node("Reshape", ["x", "s"], ["c"])], {"s": np.array([1, 4, -1, 2])}),
}  # fmt: skip


@pytest.mark.parametrize("case", RANKLESS)
def test_the_rank_of_an_undeclared_input_follows_from_its_first_reader(case):
    nodes, weights = RANKLESS[case]
    assertSame(model([*nodes, node("GlobalAveragePool", ["c"], ["y"])], None, weights), floats(1, 2, 4, 6))


READ = {  # of an undeclared input, what needs no rank
    "Flatten": [node("Flatten", ["x"], ["c"]), node("ReduceMean", ["c"], ["y"], axes=[1])],
    "Shape": [node("Shape", ["x"], ["c"]), node("Flatten", ["c"], ["y"], axis=-1)],
    "Size": [node("Size", ["x"], ["c"]), node("Unsqueeze", ["c", "zero"], ["d"]), node("Flatten", ["d"], ["y"])],
}


@pytest.mark.parametrize("case", READ)
def test_an_operator_whose_result_has_one_rank_for_all_inputs_is_read_without_that_of_its_input(case):
    assertSame(model(READ[case], None, {"zero": np.array([0])}), floats(2, 3, 4))


def test_a_reshape_to_constants_says_the_sizes_of_an_input_whose_sizes_are_open():
    nodes = [node("Reshape", ["x", "s"], ["r"]), node("Slice", ["r", "from", "to", "axis"], ["y"])]
    weights = {"s": np.array([12, 4]), "from": np.array([0]), "to": np.array([2]), "axis": np.array([0])}
    assertSame(model(nodes, ["N", 2, "H", "W"], weights), floats(1, 2, 4, 6))


def test_a_weight_says_how_many_channels_an_input_has_that_declares_a_symbol():
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Flatten", ["c"], ["d"]), node("MatMul", ["d", "m"], ["y"])]
    proto = model(nodes, ["N", "C", 2, 2], {"w": floats(5, 3, 1, 1), "m": floats(20, 2)})
    assertSame(proto, floats(2, 3, 2, 2))


def pyramid(channels):
    """Two halvings of a picture, brought back by factors of two, added and joined, and a convolution behind them."""
    weights = {
        "w0": floats(channels, 3, 3, 3) / 9,
        "w1": floats(channels, channels, 3, 3) / 9,
        "f": np.float32([1, 1, 2, 2]),
    }
    weights |= {"w2": floats(4, 2 * channels, 1, 1)}
    options = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    nodes = [
        node("Conv", ["x", "w0"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["a", "w1"], ["b"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Resize", ["b", "", "f"], ["c"], **options),
        node("Add", ["a", "c"], ["d"]),
        node("Concat", ["d", "c"], ["e"], axis=1),
        node("Conv", ["e", "w2"], ["h"]),
        node("Resize", ["h", "", "f"], ["y"], **options),
    ]
    return model(nodes, ["N", 3, "H", "W"], weights)


@pytest.mark.parametrize("channels", [5, 8])
def test_a_pyramid_of_open_pictures_keeps_its_channels_whatever_their_number(channels):
    assertSame(pyramid(channels), floats(2, 3, 8, 12), floats(1, 3, 16, 4))


N, H, W = Dim("N"), Dim("H"), Dim("W")
HALF, ROUND = (H + 1) // 2, 2 * ((H + 3) // 4)


@pytest.mark.parametrize(
    ("module", "shapes", "wanted"),
    [
        (Add(), [(N, 20, HALF, W), (N, 20, ROUND, W)], [(N, 20, HALF, W)]),
        (Sub(), [(N, 20, HALF), (1, 20, ROUND)], [(N, 20, HALF)]),
        (Concat(1), [(N, 20, HALF), (N, 7, ROUND)], [(N, 27, HALF)]),
        (Concat(1), [(N, 20, HALF), (N, W, ROUND)], [(N, None, HALF)]),
        (Add(), [(N, W, 16), (1, 22, 16)], [(N, 22, 16)]),
        (Concat(1), [(N, W, HALF), (N, 7, 14)], [(N, None, 14)]),
        (Concat(1), [(1, 1, 16), (N, H * W, HALF), (1, 5, 16)], [(1, None, 16)]),
        (Reshape((12, 4)), [(N, 2, H, W)], [(12, 4)]),
        (Reshape((0, 2, -1)), [(N, 5, H)], [(N, 2, None)]),
        (Reshape(), [(N, 6, H), valued((3,), np.array([N, 4, 9], object))], [(N, 4, 9)]),
        (Transpose((1, 0)), [(N, 5, H)], None),
        (Add(), [(N, 20, HALF), (N, 21, HALF)], None),
    ],
)
def test_sizes_are_kept_where_all_that_fit_agree(module, shapes, wanted):
    assert partialShapes(module, shapes) == wanted


BLOCKS = {"DepthToSpace": floats(2, 12, 4, 6), "SpaceToDepth": floats(2, 3, 4, 6)}


@pytest.mark.parametrize("shape", [["N", None, "H", "W"], ["N", None, 4, 6], [2, None, "H", 6], [2, None, 4, 6]])
@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("mode", [{}, {"mode": "CRD"}])
def test_blocks_move_between_depth_and_space_whatever_sizes_are_open(kind, shape, mode):
    x = BLOCKS[kind]
    declared = [shape[0], x.shape[1], *shape[2:]]
    assertSame(model([node(kind, ["x"], ["y"], blocksize=2, **(mode if kind[0] == "D" else {}))], declared, {}), x)


RANGES = {  # the numbers from 0 to the width of a picture, as exporters compute it
    "a cast size": [node("Cast", ["size"], ["end"], to=TensorProto.FLOAT)],
    "a halved size": [
        node("Cast", ["size"], ["f"], to=TensorProto.FLOAT),
        node("Constant", [], ["two"], value_float=2.0),
        node("Div", ["f", "two"], ["end"]),
    ],
    "a rounded root": [
        node("Cast", ["size"], ["f"], to=TensorProto.FLOAT),
        node("Sqrt", ["f"], ["root"]),
        node("Floor", ["root"], ["end"]),
    ],
}


@pytest.mark.parametrize("case", RANGES)
def test_a_range_of_floats_to_a_known_size_has_a_known_length(case):
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "axis"], ["size"], axis=0),
        *RANGES[case],
        node("Range", ["zero", "end", "one"], ["r"]),
        node("Concat", ["r", "rest"], ["c"], axis=0),
        node("Add", ["c", "x"], ["y"]),
    ]
    x = floats(2, 4)
    rest = {"a cast size": 0, "a halved size": 2, "a rounded root": 2}[case]
    weights = {"zero": np.float32(0), "one": np.float32(1), "axis": np.array(1)}
    proto = model(nodes, ["N", 4], weights | {"rest": np.zeros(rest, np.float32)})
    net = fromOnnx(proto).evalMode()
    assert net.dataShapeFrom(("N", 4)) == ("N", 4)
    assertSame(proto, x)


SIZED = {  # sizes that are products, sums and extremes of others, as Keras writes its Tensordot
    "ReduceProd": (2, 3, 6),
    "ReduceSum": (2, 3, 6),
    "ReduceMax": (1, 3, 6),
    "ReduceMin": (1, 3, 6),
}


@pytest.mark.parametrize("kind", SIZED)
def test_a_reduction_of_sizes_is_a_size(kind):
    shape = SIZED[kind]
    axes = {} if kind == "ReduceSum" else {"axes": [0]}
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "last"], ["inner"]),
        node(kind, ["inner", "zero"][: 2 if kind == "ReduceSum" else 1], ["length"], keepdims=1, **axes),
        node("Concat", ["minus", "length"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["r"]),
        node("MatMul", ["r", "w"], ["y"]),
    ]
    weights = {"last": np.array([2]), "zero": np.array([0]), "minus": np.array([-1]), "w": floats(6, 4)}
    proto = model(nodes, ["N", "T", 6], weights)
    assert fromOnnx(proto).dataShapeFrom(("N", "T", 6)) == ("N*T", 4)
    assertSame(proto, floats(*shape))


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        (Sum(), N + H + 4),
        (Prod(), 4 * N * H),
        (Max(), None),
        (ReduceAlong("Prod", keepdims=False), 4 * N * H),
        (ReduceAlong("Min", keepdims=False), None),
        (CumSum(), [N, N + 4, N + 4 + H]),
        (TopKValues(), None),
    ],
)
def test_a_reduction_of_symbols_is_known_where_it_is_an_expression(module, wanted):
    inputs = [valued((3,), np.array([N, 4, H], object))]
    inputs += [valued((1,), np.array([1]))] * isinstance(module, TopKValues)
    shapes = [(1,), (1,)] if isinstance(module, TopKValues) else [np.shape(wanted or 0)]
    value = valueOf(withValues(module, inputs, shapes)[0])
    assert (None if value is None else value.tolist()) == wanted


@pytest.mark.parametrize(("given", "text"), [((0, 1, 0), "a step other than 0"), ((0, np.inf, 1), "finite")])
def test_a_range_of_floats_without_an_end_is_refused(given, text):
    ends = [Constant(np.float32(n)).node() for n in given]
    x = Input(name="x").node()
    with pytest.raises(ShapeError, match=text):
        Graph(x, [Range().node(*ends), x]).dataShapeFrom((1,))


def test_an_axis_whose_length_comes_with_the_data_is_removed_where_it_is_one():
    x, mask = Input(name="x").node(), Input(name="mask").node()
    net = Graph([x, mask], Squeeze((0,), name="w").node(Compress(axis=0, name="kept").node(x, mask)))
    assert net.dataShapeFrom([("N", 3), ("N",)]) == (3,)
    data = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(net(data, np.arange(4) == 2), data[2])
    with pytest.raises(ShapeError, match=r"at 'w' \(Squeeze\).*length one along the axes \(0,\).*\(2, 3\)"):
        net(data, np.arange(4) < 2)
