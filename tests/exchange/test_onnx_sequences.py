"""Sequences and optionals of known length are ordinary values of the graph; others are refused by name."""

from collections import Counter

import numpy as np
import pytest
from onnxclaims import SEQUENCES

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from test_onnx_loops import expected, info  # noqa: E402

from puregraph import GraphError  # noqa: E402
from puregraph.onnx import fromOnnx  # noqa: E402


def modelOf(nodes, outputs, inputs=None):
    arrays = {"zero": 0, "one": 1, "last": -1, "parts": [1, 3], "two": 2}
    constants = [numpy_helper.from_array(np.array(value), name) for name, value in arrays.items()]
    inputs = inputs or [info("x", shape=[4, 3])]
    ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([helper.make_node(*n[:3], **dict(n[3:])) for n in nodes], "it", inputs, ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


DOUBLED = helper.make_graph(
    [helper.make_node("Add", ["e", "e"], ["d"])], "body", [info("e", shape=None)], [info("d", shape=None)]
)
CASES = {
    "split by lengths, changed, joined": (
        [
            ("SplitToSequence", ["x", "parts"], ["s"]),
            ("SequenceAt", ["s", "last"], ["b"]),
            ("SequenceInsert", ["s", "b", "zero"], ["t"]),
            ("SequenceErase", ["t", "one"], ["u"]),
            ("SequenceLength", ["u"], ["n"]),
            ("ConcatFromSequence", ["u"], ["y"], ("axis", 0)),
        ],
        ["y", "n"],
    ),
    "split into equal parts, stacked": (
        [
            ("SplitToSequence", ["x", "two"], ["s"]),
            ("ConcatFromSequence", ["s"], ["y"], ("axis", 1), ("new_axis", 1)),
        ],
        ["y"],
    ),
    "split without the axis": (
        [
            ("SplitToSequence", ["x"], ["s"], ("keepdims", 0), ("axis", 1)),
            ("SequenceAt", ["s", "one"], ["y"]),
        ],
        ["y"],
    ),
    "made of nothing and of values": (
        [
            ("SequenceEmpty", [], ["s"]),
            ("SequenceInsert", ["s", "x"], ["t"]),
            ("SequenceConstruct", ["x", "x"], ["u"]),
            ("SequenceLength", ["t"], ["n"]),
            ("SequenceAt", ["u", "one"], ["y"]),
        ],
        ["n", "y"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_sequence_of_known_length_is_resolved_while_reading(name):
    model, x = modelOf(*CASES[name]), np.arange(12, dtype=np.float32).reshape(4, 3)
    net = fromOnnx(model)
    found = net(x)
    for y, wanted in zip(found if isinstance(found, list) else [found], expected(model, {"x": x}), strict=True):
        np.testing.assert_array_equal(y, wanted)


def program(rng):
    """Nodes that make a sequence of x in a random way, change it, and read it; and the names of what they give."""
    nodes, count, now = [], 0, "s0"

    def add(kind, inputs, isSequence=True, **attributes):
        nonlocal count, now
        count += 1
        name = f"s{count}" if isSequence else f"y{count}"
        nodes.append((kind, inputs, [name], *attributes.items()))
        now = name if isSequence else now
        return name

    start, axis = rng.choice(["split", "construct", "empty", "each"]), int(rng.integers(-2, 2))
    if start == "split":
        by = {0: ["two", "parts", None], 1: ["two", "one", None]}[axis % 2][int(rng.integers(3))]
        add("SplitToSequence", ["x", by] if by else ["x"], axis=axis)
        length = {"two": 2, "parts": 2, "one": 3}.get(by, (4, 3)[axis % 2])
    elif start == "construct":
        length = int(rng.integers(1, 4))
        add("SequenceConstruct", ["x"] * length)
    elif start == "each":
        length = 3
        add("SequenceConstruct", ["x"] * 3)
        add("SequenceMap", [now], body=DOUBLED)
    else:
        length = 0
        add("SequenceEmpty", [])
    for _ in range(int(rng.integers(1, 4))):
        if length < 2 or rng.random() < 0.6:
            item = add("SequenceAt", [now, str(rng.choice(["zero", "last"]))], False) if length else "x"
            add("SequenceInsert", [now, item, *([] if rng.random() < 0.5 else ["zero"])])
            length += 1
        else:
            add("SequenceErase", [now, *([] if rng.random() < 0.5 else ["one", "last"][: int(rng.integers(1, 2))])])
            length -= 1
    wanted = [add("SequenceLength", [now], False), add("SequenceAt", [now, "last"], False)]
    if start != "split":
        new = {"new_axis": 1} if rng.random() < 0.5 else {}
        wanted.append(add("ConcatFromSequence", [now], False, axis=int(rng.integers(-2, 2)), **new))
    if rng.random() < 0.7:
        nodes.append(("Optional", [wanted[1]], ["o"]))
        nodes.append(("OptionalHasElement", ["o"], ["has"]))
        nodes.append(("OptionalGetElement", ["o"], ["y"]))
        wanted += ["has", "y"]
    return nodes, wanted


def test_every_operator_of_sequences_gives_what_onnxruntime_gives_in_20_random_programs():
    rng, x, uses = np.random.default_rng(1), np.arange(12, dtype=np.float32).reshape(4, 3), Counter()
    while min(uses[name] for name in SEQUENCES) < 20:
        nodes, outputs = program(rng)
        model = modelOf(nodes, outputs)
        wanted, found = expected(model, {"x": x}), fromOnnx(model)(x)
        for y, want in zip(found if isinstance(found, list) else [found], wanted, strict=True):
            np.testing.assert_array_equal(y, want)
        uses.update({node[0] for node in nodes})


def test_a_graph_is_read_for_each_element_and_an_output_that_is_a_sequence_becomes_several():
    nodes = [("SplitToSequence", ["x", "two"], ["s"]), ("SequenceMap", ["s"], ["y"], ("body", DOUBLED))]
    net, x = fromOnnx(modelOf(nodes, ["y"])), np.arange(12, dtype=np.float32).reshape(4, 3)
    first, second = net(x)
    np.testing.assert_array_equal(np.concatenate([first, second]), 2 * x)


def test_an_input_that_is_a_sequence_becomes_as_many_as_it_has_shapes():
    each = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    sequence = helper.make_value_info("s", helper.make_sequence_type_proto(each))
    model = modelOf([("ConcatFromSequence", ["s"], ["y"], ("axis", 0))], ["y"], [sequence])
    net = fromOnnx(model, shapes={"s": [(1, 3), ("N", 3)]})
    assert net.arguments == ("s_0", "s_1") and net.dataShapeFrom((1, 3), ("N", 3)) == ("N + 1", 3)
    with pytest.raises(GraphError, match=r"input 's': the length of the sequence is not known"):
        fromOnnx(model)


def loopOf(nodes, outputs, carried, count="two"):
    """A model whose Loop runs twice, on a sequence of x twice."""
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    ins = [info("t", TensorProto.INT64, []), info("on", TensorProto.BOOL, [])]
    ins += [helper.make_value_info(name, sequence) if name == "e_in" else info(name) for name in carried]
    ends = [helper.make_empty_tensor_value_info(name) for name in ["on_out", *outputs]]
    body = [helper.make_node("Identity", ["on"], ["on_out"]), *(helper.make_node(*n[:3], **dict(n[3:])) for n in nodes)]
    graph = helper.make_graph(body, "body", ins, ends)
    before = [("SequenceConstruct", ["x", "x"], ["s"]), ("SequenceEmpty", [], ["e"])]
    return [*before, ("Loop", [count, "", *carried.values()], [f"{name}_end" for name in outputs], ("body", graph))]


def test_a_loop_that_carries_or_reads_a_sequence_is_read_run_by_run():
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    grown = loopOf(
        [
            ("SequenceAt", ["s", "t"], ["item"]),
            ("Add", ["item", "c"], ["d"]),
            ("SequenceInsert", ["e_in", "d"], ["e_out"]),
        ]
        + [("Identity", ["d"], ["row"])],
        ["e_out", "d", "row"],
        {"e_in": "e", "c": "x"},
    )
    grown.append(("ConcatFromSequence", ["e_out_end"], ["y"], ("axis", 0)))
    model = modelOf(grown, ["y", "d_end", "row_end"])
    net, wanted = fromOnnx(model), expected(model, {"x": x})
    for y, want in zip(net(x), wanted, strict=True):
        np.testing.assert_array_equal(y, want)
    net.backward([np.ones_like(y) for y in wanted])
    np.testing.assert_array_equal(net.grad, np.full_like(x, 2 + 3 + 3 + 2 + 3))
    open = modelOf([(*n[:1], ["n", *n[1][1:]], *n[2:]) if n[0] == "Loop" else n for n in grown], ["y"],
                   [info("x", shape=[4, 3]), info("n", TensorProto.INT64, [])])  # fmt: skip
    with pytest.raises(GraphError, match="its number of runs is known only with the data"):
        fromOnnx(open)
    assert fromOnnx(open, values={"n": 2}).dataShapeFrom((4, 3)) == (8, 3)


def test_a_branch_reads_a_sequence_from_outside():
    ways = {
        f"{way}_branch": helper.make_graph(
            [helper.make_node("SequenceAt", ["s", position], [way])], way, [], [info(way)]
        )
        for way, position in (("then", "zero"), ("else", "last"))
    }
    nodes = [("SplitToSequence", ["x", "two"], ["s"]), ("If", ["flag"], ["y"], *ways.items())]
    model = modelOf(nodes, ["y"], [info("x", shape=[4, 3]), info("flag", TensorProto.BOOL, [])])
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    net = fromOnnx(model)
    for flag in (True, False):
        given = {"x": x, "flag": np.array(flag)}
        np.testing.assert_array_equal(net(*given.values()), expected(model, given)[0])
    net.backward(np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(net.grad[0], [[0] * 3] * 2 + [[1] * 3] * 2)


def test_an_optional_input_is_there_where_it_has_a_shape_and_else_is_said_not_to_be():
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    nodes = [("OptionalHasElement", ["o"], ["has"])]
    model = modelOf(nodes, ["has"], [helper.make_value_info("o", kind), info("x", shape=[4, 3])])
    with pytest.raises(
        GraphError,
        match=r"not known ahead of time whether input .o. is present: give its shape, shapes={\"o\": shape}, or",
    ):
        fromOnnx(model)
    given = np.zeros((4, 3), np.float32)
    assert fromOnnx(model, shapes={"o": (2,)})(given[0, :2], given)
    assert not fromOnnx(model, values={"o": None})(given)
    got = modelOf([("OptionalGetElement", ["o"], ["y"])], ["y"], [helper.make_value_info("o", kind)])
    assert fromOnnx(got, shapes={"o": ("N", 3)}).dataShapeFrom(("N", 3)) == ("N", 3)
    with pytest.raises(GraphError, match="wanted an optional with something in it"):
        fromOnnx(got, values={"o": None})


def test_an_optional_has_its_element_or_none():
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [4, 3])
    nodes = [
        ("Optional", ["x"], ["o"]),
        ("OptionalHasElement", ["o"], ["has"]),
        ("OptionalGetElement", ["o"], ["y"]),
        ("Optional", [], ["e"], ("type", kind)),
        ("OptionalHasElement", ["e"], ["none"]),
    ]
    x = np.ones((4, 3), np.float32)
    has, y, none = fromOnnx(modelOf(nodes, ["has", "y", "none"]))(x)
    assert has and not none and (y == x).all()
    with pytest.raises(GraphError, match="wanted an optional with something in it"):
        fromOnnx(modelOf([*nodes[3:4], ("OptionalGetElement", ["e"], ["y"])], ["y"]))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([("SequenceAt", ["x", "one"], ["y"])], "wanted a sequence of known length"),
        ([("SequenceConstruct", ["x"], ["s"]), ("SequenceAt", ["s", "two"], ["y"])], "a position from -1 to 0, got 2"),
        ([("SequenceEmpty", [], ["s"]), ("ConcatFromSequence", ["s"], ["y"], ("axis", 0))], "got an empty one"),
        ([("SequenceConstruct", ["x"], ["s"]), ("Relu", ["s"], ["y"])], "at 'y' .Relu."),
    ],
)
def test_what_is_no_sequence_or_outside_of_one_is_refused(nodes, message):
    with pytest.raises(GraphError, match=message):
        fromOnnx(modelOf(nodes, ["y"]))
