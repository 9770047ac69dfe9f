"""Values known ahead of data: what follows from shapes and constants has its elements before a batch, with symbols."""

import numpy as np
import pytest

import puregraph
from puregraph import (
    Add,
    Cast,
    Concat,
    Constant,
    Embedder,
    Equal,
    Expand,
    Full,
    Gather,
    Graph,
    GraphWarning,
    Identity,
    Input,
    Module,
    Mul,
    Pad,
    Range,
    Reshape,
    Shape,
    ShapeError,
    Size,
    Slice,
    Sub,
    Tile,
    Upsample2D,
    Where,
)


def heads():
    """The last axis cut into 12, by arithmetic of shapes as an exporter writes it."""
    x = Input(name="x").node()
    to = Concat(0).node(Shape().node(x)[:2], Constant([12, 64]).node())
    return Graph(x, Reshape().node(x, to))


def values(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_a_chain_of_shapes_gives_a_symbolic_shape_ahead_of_data():
    assert heads().dataShapeFrom(("N", "T", 768)) == ("N", "T", 12, 64)


def test_a_chain_of_shapes_takes_no_step_of_a_program():
    net, x = heads(), values(2, 3, 768)
    program = net.compile(x.shape)
    assert "0 steps" in program.table()
    np.testing.assert_array_equal(program.run(x), x.reshape(2, 3, 12, 64))
    np.testing.assert_array_equal(net(x), x.reshape(2, 3, 12, 64))


def test_a_chain_of_shapes_passes_the_gradient():
    net, x = heads(), values(2, 3, 768)
    g = values(2, 3, 12, 64)
    net(x)
    net.backward(g)
    np.testing.assert_array_equal(net.grad, g.reshape(x.shape))
    program = net.compile(x.shape, train=True)
    program.run(x, g)
    np.testing.assert_array_equal(program.grad, net.grad)


def test_an_array_expands_to_the_shape_of_another_without_a_step_for_the_shape():
    a, b = Input(name="a").node(), Input(name="b").node()
    net = Graph([a, b], Expand().node(a, Shape().node(b)))
    assert net.dataShapeFrom([("N", 1), ("N", "T")]) == ("N", "T")
    program = net.compile((2, 1), (2, 3))
    assert "1 steps" in program.table()
    x, y = values(2, 1), values(2, 3)
    np.testing.assert_array_equal(program.run(x, y), np.broadcast_to(x, (2, 3)))


def test_an_input_of_which_only_the_shape_is_read_is_not_copied():
    x, like = Input(name="x").node(), Input(name="like").node()
    net = Graph([x, like], Expand(name="whole")(x, Shape(name="sizes")(like)))
    program = net.compile((1, 700), (300, 700))
    given = values(1, 700), np.broadcast_to(np.float32(0), (300, 700))
    np.testing.assert_array_equal(program.run(*given), net(*given))
    assert [entry.isRead for entry in program.executable.inputs] == [True, False]


def test_positions_of_a_length_are_a_constant_of_the_program():
    x = Input(name="x").node()
    positions = Range().node(Shape(1, 2).node(x)[0])
    net = Graph(x, Add().node(Embedder(10, 3).node(positions), x))
    assert net.dataShapeFrom(("N", "T", 3)) == ("N", "T", 3)
    given = values(2, 5, 3)
    wanted = given + net["embedder"].W.data[:5]
    np.testing.assert_array_equal(net(given), wanted)
    program = net.compile(given.shape)
    assert "range" not in program.table()
    np.testing.assert_array_equal(program.run(given), wanted)


@pytest.mark.parametrize(
    ("text", "of", "wanted"),
    [
        ("Shape().node(x)", ("N", 4), ["N", 4]),
        ("Size().node(x)", ("N", 4), "4*N"),
        ("Shape().node(x)[::-1]", ("N", 4), [4, "N"]),
        ("Mul().node(Shape().node(x), Constant([2, 3]).node())", ("N", 4), ["2*N", 12]),
        ("Sub().node(Shape().node(x), Constant([1, 1]).node())", ("N", 4), ["N - 1", 3]),
        ("Gather().node(Shape().node(x), Constant([1, 1, 0]).node())", ("N", 4), [4, 4, "N"]),
        ("Cast('int64').node(Shape().node(x))", ("N", 4), ["N", 4]),
        ("Cast('int64').node(Cast('int32').node(Shape().node(x)))", ("N", 4), ["N", 4]),
        ("Equal().node(Shape().node(x), Constant([-1, 4]).node())", ("N", 4), [False, True]),
        (
            "Where().node(Equal().node(Constant([-1, 4]).node(), Constant([-1, -1]).node()), Shape().node(x), "
            "Constant([1, 4]).node())",
            ("N", 4),
            ["N", 4],
        ),
        ("Range().node(Shape(1).node(x)[0])", ("N", 4), [0, 1, 2, 3]),
        ("Full(7, 'int64').node(Shape(1).node(x))", ("N", 4), [7, 7, 7, 7]),
        ("Tile((2,)).node(Shape().node(x))", ("N", 4), ["N", 4, "N", 4]),
        ("Reshape((2, 1)).node(Shape().node(x))", ("N", 4), [["N"], [4]]),
    ],
)
def test_elements_are_known_with_symbols(text, of, wanted):
    x = Input(name="x").node()
    names = (Cast, Constant, Equal, Full, Gather, Mul, Range, Reshape, Shape, Size, Sub, Tile, Where)
    net = Graph(x, eval(text, {c.__name__: c for c in names} | {"x": x}))
    found = net.valueFrom(of)
    assert found is not None and found.tolist() == wanted
    sizes = tuple(3 if type(n) is str else n for n in of)
    given = np.zeros(sizes, np.float32)
    np.testing.assert_array_equal(net.valueFrom(sizes), net(given))
    assert net.valueFrom(sizes).dtype == net(given).dtype == net.dataTypeFrom(np.float32)
    program = net.compile(sizes)
    np.testing.assert_array_equal(program.run(given), net(given))


def test_what_depends_on_a_symbols_value_is_not_known():
    x = Input(name="x").node()
    net = Graph(x, Equal().node(Shape().node(x), Constant([3, 4]).node()))
    assert net.valueFrom(("N", 4)) is None
    assert net.valueFrom((3, 4)).tolist() == [True, True]


REPEATED = {  # constants, cut and repeated as often as a symbol says: (of the node of sizes, shape, x of (3, 4) gives)
    "Expand": (lambda s: Expand().node(held([[7]]), s), ("N", 4), np.full((3, 4), 7)),
    "Expand to a shape of its own": (lambda s: Expand(("N", 4)).node(held([7])), ("N", 4), None),
    "Tile": (lambda s: Tile().node(held([1, 2]), s[:1]), ("2*N",), np.tile([1, 2], 3)),
    "Tile as often as it says itself": (lambda s: Tile(("N",)).node(held([1, 2])), ("2*N",), None),
    "Slice": (lambda s: Slice(axes=(0,)).node(held(range(5)), s[:1], held([5])), ("5 - N",), [3, 4]),
    "Slice of one": (lambda s: Slice(axes=(0,)).node(held(range(5)), s[:1], s[1:]), ("4 - N",), [3]),
}


def held(value):
    return Constant(list(value)).node()


@pytest.mark.parametrize("case", REPEATED)
def test_constants_that_a_symbol_repeats_or_cuts_have_a_shape_and_no_known_elements(case):
    make, shape, wanted = REPEATED[case]
    x = Input(name="x").node()
    net = Graph(x, [x, make(Shape().node(x))])
    assert net.dataShapeFrom(("N", 4))[1] == shape and net.valueFrom(("N", 4))[1] is None
    if wanted is not None:
        given = values(3, 4)
        np.testing.assert_array_equal(net(given)[1], wanted)
        np.testing.assert_array_equal(net.compile((3, 4)).run(given)[1], wanted)


def test_floats_are_not_known():
    x = Input(name="x").node()
    net = Graph(x, Mul().node(x, Constant([0.5, 2.0]).node()))
    assert net.valueFrom((3, 2)) is None


INPUTS = {
    "Reshape": (Reshape(), values(2, 6), [np.array([3, -1])], (3, 4)),
    "Expand": (Expand(), values(2, 1), [np.array([3, 1, 5])], (3, 2, 5)),
    "Tile": (Tile(), values(2, 3), [np.array([2, 1])], (4, 3)),
    "Pad": (Pad(), values(2, 3), [np.array([[1, 0], [0, 2]])], (3, 5)),
    "Pad edge": (Pad(mode="edge"), values(2, 3), [np.array([[1, 2]])], (2, 6)),
    "Slice": (Slice(axes=(1,)), values(2, 5), [np.array([-3]), np.array([2**31 - 1])], (2, 3)),
    "Slice backwards": (
        Slice(axes=(0, 1)),
        values(3, 5),
        [np.array([2, 0]), np.array([0, 4]), np.array([-1, 2])],
        (2, 2),
    ),
    "Upsample2D": (Upsample2D(None), values(1, 2, 2, 3), [np.array([2, 1])], (1, 2, 4, 3)),
}


@pytest.mark.parametrize("case", INPUTS)
def test_sizes_that_come_as_data_are_symbols_ahead_and_bound_in_each_pass(case):
    module, x, told, wanted = INPUTS[case]
    nodes = [Input(name=f"x{i}").node() for i in range(1 + len(told))]
    net = Graph(nodes, module.node(*nodes))
    ahead = net.dataShapeFrom([x.shape, *[t.shape for t in told]])
    assert len(ahead) == len(wanted)
    assert all(size == n or type(size) is not int for size, n in zip(ahead, wanted))
    y = net(x, *told)
    assert y.shape == wanted
    net.backward(np.ones_like(y))
    gx, *rest = net.grad
    assert gx.shape == x.shape and rest == [None] * len(told)


@pytest.mark.parametrize("case", INPUTS)
def test_sizes_from_constants_are_those_of_data_and_of_compiled_steps(case):
    module, x, told, wanted = INPUTS[case]
    node = Input(name="x").node()
    net = Graph(node, module.node(node, *[Constant(t).node() for t in told]))
    assert net.dataShapeFrom(x.shape) == wanted
    y = net(x)
    assert y.shape == wanted
    g = values(*wanted)
    net.backward(g)
    program = net.compile(x.shape, train=True)
    np.testing.assert_array_equal(program.run(x, g), y)
    np.testing.assert_allclose(program.grad, net.grad, 1e-6)
    assert program.executable is not None


def test_a_shape_that_does_not_fit_known_sizes_is_refused_ahead_with_the_node():
    with pytest.raises(ShapeError, match="reshape.*as many elements"):
        heads().dataShapeFrom(("N", "T", 700))


def test_a_changed_constant_is_seen_by_a_program_and_by_shapes():
    x = Input(name="x").node()
    net = Graph(x, Reshape().node(x, Constant([2, 3], name="to").node()))
    given = values(6)
    program = net.compile((6,))
    assert program.run(given).shape == net(given).shape == (2, 3)
    net["to"].state.data = np.array([3, 2])
    assert net.dataShapeFrom((6,)) == (3, 2)
    assert program.run(given).shape == net(given).shape == (3, 2)


def test_the_array_of_a_constant_cannot_be_written_to():
    constant = Constant([2, 3])
    with pytest.raises(ValueError, match="read-only"):
        constant.state.data[0] = 5


def test_a_constant_is_in_the_file_and_is_not_trained(tmp_path):
    x = Input(name="x").node()
    net = Graph(x, Mul().node(x, Constant(values(3)).node()))
    given = values(2, 3)
    wanted = net(given)
    net.save(tmp_path / "net.h5")
    again = puregraph.load(tmp_path / "net.h5")
    np.testing.assert_array_equal(again(given), wanted)
    assert not net.params


def test_a_nested_graph_knows_what_it_was_given():
    x = Input(name="x").node()
    inner = heads()
    net = Graph(x, inner.node(x))
    assert net.dataShapeFrom(("N", "T", 768)) == ("N", "T", 12, 64)


def test_a_node_that_is_walked_by_hand_knows_values_too():
    x, shapes = Input(name="x").node(), {}
    sizes = Shape().node(x)
    y = Reshape().node(x, sizes)
    for node in (x, sizes, y):
        node.dataShapeFrom({x: ("N", 4)}, shapes)
    assert shapes[y] == ("N", 4)


def test_no_warning_and_no_fallback_come_from_known_values(recwarn):
    heads().compile((2, 3, 768)).run(values(2, 3, 768))
    assert not [w for w in recwarn if issubclass(w.category, GraphWarning)]


class Doubled(Module):
    """y = 2 x: the shape rule gives the very shape that it gets."""

    isDiscrete = keepsDtype = True

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return 2 * x


def test_what_is_known_of_an_input_is_not_known_of_an_output_of_its_shape():
    x = Input(name="x").node()
    sizes = Shape(name="sizes")(x)
    twice = Doubled(name="twice")(sizes)
    net = Graph(x, [Identity()(x), twice])
    assert net.valueFrom(("N", 3))[1] is None
    assert list(net(np.zeros((2, 3)))[1]) == [4, 6]


def test_one_symbolic_size_is_gathered_as_a_number():
    x = Input(name="x").node()
    size = Gather(0, name="size")(Shape(name="sizes")(x), Constant(0, name="zero").node())
    net = Graph(x, [Identity()(x), size])
    assert net.valueFrom(("N", 3))[1] == "N"


def test_arithmetic_of_one_size_without_axes_keeps_its_symbol():
    x = Input(name="x").node()
    length = Gather(0).node(Shape().node(x), Constant(np.array(0)).node())
    less = Sub().node(length, Constant(np.array(1)).node())
    same = Sub().node(Add().node(less, Constant(np.array(1)).node()), length)
    net = Graph(x, [Reshape().node(x, Reshape((1,)).node(Mul().node(length, Constant(np.array(3)).node()))), same])
    assert net.dataShapeFrom(("N", 3)) == [("3*N",), ()]
    found = net(values(2, 3))
    assert found[0].shape == (6,) and found[1] == 0
