"""NameMap: patterns, transforms with their inverses, and proposals for files that have no map."""

import numpy as np
import pytest

from puregraph import models
from puregraph.core.errors import ArgumentError, CheckpointError
from puregraph.core.param import Param
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.parallel import Parallel
from puregraph.graph.sequential import Sequential
from puregraph.modules import LSTM, BatchNorm, Conv2D, Dropout, Embedder, Linear, Relu
from puregraph.serialize.weights import (
    NameMap,
    add,
    flattened,
    gates,
    join,
    permute,
    proposeNames,
    readyMap,
    same,
    scale,
    split,
    squeeze,
    transpose,
)
from puregraph.serialize.weights.maps.keras import depthwise, gruBias
from puregraph.serialize.weights.maps.torchlayers import gruBiases
from puregraph.serialize.weights.namepattern import NamePattern
from puregraph.serialize.weights.transforms import each

# Patterns -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "name", "holes"),
    [
        ("layer{s}.{b}.conv{c}", "layer2.0.conv1", {"s": "2", "b": "0", "c": "1"}),
        ("layer{s}", "layer2.0", None),
        ("block{i+1}.x", "block7.x", {"i": "6"}),
        ("block{i+1}.x", "block0.x", None),
        ("block{i+1}.x", "block07.x", None),
        ("block{i+1}.x", "blockb.x", None),
        ("block{i-2}", "block3", {"i": "5"}),
        ("*.qkv", "a.b.qkv", {"*0": "a.b"}),
        ("*.qkv", "qkv", {"*0": ""}),
        ("a.*.b.*", "a.x.y.b.z", {"*0": "x.y", "*1": "z"}),
        ("{a}.{a}", "x.x", {"a": "x"}),
        ("{a}.{a}", "x.y", None),
        ("a+b(c)", "a+b(c)", {}),
        ("dense_{i}/kernel", "dense_3/kernel", {"i": "3"}),
        ("{i}", "a/b", None),
    ],
)
def test_patterns_match_and_fill(pattern, name, holes):
    made = NamePattern(pattern)
    assert made.match(name) == holes
    if holes is not None:
        assert made.fill(holes) == name


@pytest.mark.parametrize("pattern", ["", "a{", "a{}", "a{i+}", "a{i*2}", "{i", "a{i.j}"])
def test_wrong_patterns_are_refused(pattern):
    with pytest.raises(ArgumentError, match="not a pattern of names"):
        NameMap([(pattern, "a")])


@pytest.mark.parametrize("row", [("a{i}", "b"), ("a", "b{i}"), ("a{i}", "b{j}"), ("*.a", "b"), (("a{i}", "a"), "b{i}")])
def test_rows_that_cannot_be_read_both_ways_are_refused(row):
    with pytest.raises(ArgumentError, match="have other holes"):
        NameMap([row])


@pytest.mark.parametrize("row", ["ab", ("a",), ("a", 3), ("a", "b", "transpose"), ("a", "b", same, same), None])
def test_rows_of_another_kind_are_refused(row):
    with pytest.raises(ArgumentError, match="NameMap: wanted rows of"):
        NameMap([row])


def test_unknown_layouts_are_refused():
    with pytest.raises(ArgumentError, match="wanted layout 'torch', 'keras' or None, got 'jax'"):
        NameMap(layout="jax")


# Transforms -----------------------------------------------------------------------------------------------------------

TRANSFORMS = [
    (same, [(3, 4)], 1),
    (transpose, [(3, 5)], 1),
    (transpose, [(7,)], 1),
    (permute(3, 2, 0, 1), [(8, 3, 5, 2)], 1),
    (squeeze(0), [(7, 3)], 1),
    (squeeze(-1), [(7, 3)], 1),
    (scale(0.5), [(3, 2)], 1),
    (gates(1, 0, 2), [(4, 9)], 1),
    (gates(0, 2, 1, 3), [(8,)], 1),
    (join(0), [(6, 5)], 3),
    (join(-1), [(5, 8)], 2),
    (join(0, 4, 1, 1), [(6, 5)], 3),
    (split(-1), [(5, 4), (5, 3)], 1),
    (split(0), [(1, 2), (4, 2), (3, 2)], 1),
    (add, [(9,)], 2),
    (add, [(9,)], 3),
    (transpose >> join(-1), [(5, 9)], 3),
    (transpose >> split(-1), [(5, 9), (5, 2)], 1),
    (transpose >> scale(2.0), [(5, 9)], 1),
    (squeeze(0) >> transpose, [(5, 9)], 1),
    (each(2, transpose), [(5, 8)], 2),
    (each(2, add), [(8,)], 4),
    (gruBiases, [(9,), (3,)], 2),
    (each(2, gruBiases), [(18,), (6,)], 4),
    (gruBias, [(9,), (3,)], 1),
    (each(2, gruBias), [(18,), (6,)], 2),
    (depthwise(3), [(6, 1, 2, 5)], 1),
    (flattened(2, 3, 4), [(24, 5)], 1),
]


@pytest.mark.parametrize(
    ("how", "shapes", "count"), TRANSFORMS, ids=lambda value: repr(value) if hasattr(value, "text") else ""
)
def test_transforms_and_their_inverses_and_shapes(how, shapes, count, rng):
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    stored = how.toFile(arrays, count)
    assert [a.shape for a in stored] == [tuple(s) for s in how.fileShapes(shapes, count)]
    assert len(stored) == count
    back = how.toGraph(stored, shapes)
    assert len(back) == len(arrays)
    for before, after in zip(arrays, back):
        assert after.dtype == before.dtype
        assert np.array_equal(before, after)


def test_transforms_have_their_meaning(rng):
    a, b = rng.standard_normal((2, 3, 4))
    assert np.array_equal(transpose.toGraph([a], [(4, 3)])[0], a.T)
    assert np.array_equal((transpose >> join(-1)).toGraph([a, b], [(4, 6)])[0], np.hstack([a.T, b.T]))
    assert np.array_equal(add.toGraph([a, b], [(3, 4)])[0], a + b)
    assert np.array_equal(scale(3.0).toGraph([a], [(3, 4)])[0], 3 * a)
    x = rng.standard_normal((2, 2, 3))  # h, w, channels
    W = rng.standard_normal((12, 5))
    (ours,) = flattened(2, 2, 3).toGraph([W], [(12, 5)])
    assert np.allclose(x.reshape(-1) @ W, np.moveaxis(x, -1, 0).reshape(-1) @ ours)


@pytest.mark.parametrize(
    ("how", "shapes", "count"),
    [(join(0), [(7, 2)], 2), (join(0, 3, 3), [(7, 2)], 2), (gates(1, 0), [(5,)], 1), (permute(1, 0), [(5,)], 1),
     (flattened(2, 2), [(5, 1)], 1)],
)  # fmt: skip
def test_shapes_that_cannot_be_are_refused(how, shapes, count):
    with pytest.raises(CheckpointError):
        how.fileShapes(shapes, count)


# Links ----------------------------------------------------------------------------------------------------------------


def pairsOf(names, graph, inFile=None):
    return {link.files: link.paths for link in names.links(graph, inFile)}


def test_rows_name_modules_or_arrays_and_stand_in_order():
    net = Sequential(Linear(3, 3, name="a"), Relu(), Linear(3, 3, name="b"), name="net")
    names = NameMap([("first", "a"), ("bias_of_b", "b.b"), ("{x}_layer", "{x}")])
    assert pairsOf(names, net) == {
        ("first.weight",): ("a.W",),
        ("first.bias",): ("a.b",),
        ("b_layer.weight",): ("b.W",),
        ("bias_of_b",): ("b.b",),
    }
    assert [str(link.how) for link in names.links(net)] == ["transpose", "same", "transpose", "same"]


def test_rows_whose_names_are_not_in_the_file_are_passed_over():
    net = Sequential(Linear(3, 3, name="a"))
    names = NameMap([("old", "a"), ("new", "a")])
    assert pairsOf(names, net) == {("old.weight",): ("a.W",), ("old.bias",): ("a.b",)}
    assert ("new.weight",) in pairsOf(names, net, {"new.weight", "new.bias"})
    assert ("a.weight",) in pairsOf(names, net, {"a.weight", "a.bias"})
    mixed = pairsOf(names, net, {"old.weight", "new.bias"})
    assert mixed == {("old.weight",): ("a.W",), ("new.bias",): ("a.b",)}


def test_several_names_are_joined_and_several_paths_split():
    net = Parallel(Linear(4, 6, name="q"), Linear(4, 3, name="k"))
    (W, b) = NameMap([("qk", ("q", "k"))]).links(net)
    assert (W.files, W.paths, str(W.how)) == (("qk.weight",), ("q.W", "k.W"), "transpose >> split(-1)")
    assert (b.files, b.paths, str(b.how)) == (("qk.bias",), ("q.b", "k.b"), "split(-1)")
    (W, b) = NameMap([(("q", "k"), "qk")]).links(Sequential(Linear(4, 9, name="qk")))
    assert (W.files, W.paths, str(W.how)) == (("q.weight", "k.weight"), ("qk.W",), "transpose >> join(-1)")


def test_a_transform_of_a_row_replaces_that_of_the_layout():
    net = Sequential(Linear(4, 6, name="a"))
    assert [str(link.how) for link in NameMap([("x", "a", same)]).links(net)] == ["same", "same"]
    assert str(NameMap([("x", "a.W", squeeze(0))]).links(net)[0].how) == "squeeze(0)"


def test_layouts_store_what_they_know_and_the_rest_as_it_is():
    class Own(Module):
        def __init__(self, name=None):
            super().__init__(name)
            self.table = Param((2, 3))

        def dataShapeFrom(self, x):
            return x

        def updateData(self, x, table):
            return x

    net = Sequential(Own(name="own"), BatchNorm(3, name="n"), Dropout(0.5, name="d"), name="net")
    assert list(pairsOf(NameMap(), net)) == [
        ("own.table",), ("n.weight",), ("n.bias",), ("n.running_mean",), ("n.running_var",), ("n.num_batches_tracked",),
    ]  # fmt: skip
    assert ("n/moving_variance",) in pairsOf(NameMap(layout="keras"), net)
    plain = pairsOf(NameMap(layout=None), net)
    assert plain == {(path,): (path,) for path in (*net.params, *net.states)}


def test_what_all_names_may_begin_with():
    net = Sequential(Linear(3, 3, name="a"))
    names = NameMap([("bert.dense", "a")], optional="bert.")
    for inFile in ({"bert.dense.weight", "bert.dense.bias"}, {"dense.weight", "dense.bias"}):
        assert {name for files in pairsOf(names, net, inFile) for name in files} == inFile
    assert ("bert.dense.weight",) in pairsOf(names, net)


def test_layers_of_a_stack_of_torch():
    net = Sequential(LSTM(4, 3, name="l1"), LSTM(3, 3, direction="bi", name="l2"))
    files = [name for names in pairsOf(NameMap({"rnn.l{i}": "l{i+1}"}), net) for name in names]
    assert files[:4] == ["rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0", "rnn.bias_hh_l0"]
    assert files[4:6] == ["rnn.weight_ih_l1", "rnn.weight_ih_l1_reverse"]
    plain = [name for names in pairsOf(NameMap(), net) for name in names]
    assert plain[0] == "l1.weight_ih_l0"


def test_a_map_is_printed_as_python_that_makes_it():
    names = NameMap(
        [
            ("layers.{i}.{part}", "block{i+1}.{part}"),
            (("q", "k"), "qk", transpose >> join(-1)),
            ("token", "token.W", squeeze(0)),
            ("dense", ("a", "b"), permute(1, 0)),
        ],
        layout="keras",
        optional="model.",
        ignored=("*.mask",),
    )
    scope = {"NameMap": NameMap, "transpose": transpose, "join": join, "squeeze": squeeze, "permute": permute}
    again = eval(str(names), scope)  # as a user pastes it
    assert repr(again) == repr(names)
    assert (again.layout, again.optional, again.ignored) == (names.layout, names.optional, names.ignored)
    assert repr(eval(str(NameMap()), scope)) == repr(NameMap()) == "NameMap([])"
    assert eval(repr(NameMap(layout=None)), scope).layout is None


def test_maps_add_up():
    both = NameMap([("a", "b")], ignored=("x",)) + NameMap([("c", "d")], ignored=("y",))
    assert [repr(row) for row in both.rows] == ['("a", "b")', '("c", "d")']
    assert both.ignores("x") and both.ignores("y") and not both.ignores("z")


# Proposals ------------------------------------------------------------------------------------------------------------


def filed(graph, names, rng):
    """The arrays of a file of a graph, under the names of a map."""
    arrays = {**graph.params, **graph.states}
    return {
        file: rng.standard_normal(shape)
        for link in names.links(graph)
        if all(path in arrays for path in link.paths)
        for file, shape in zip(link.files, link.how.fileShapes([arrays[p].shape for p in link.paths], len(link.files)))
    }


def proposes(graph, names, rng):
    """Check that the proposal for a file of these names is as good as the map; return it."""
    file = filed(graph, names, rng)
    made = proposeNames(graph, file)
    assert pairsOf(made, graph, file) == pairsOf(names, graph, file)
    return made


@pytest.mark.parametrize("net", [models.resnet18(), models.resnet50(), models.vgg11(norm=True, size=32)], ids=str)
def test_proposals_for_networks_of_torchvision(net, rng):
    made = proposes(net, readyMap("torchvision", net), rng)
    assert len(made.rows) < 40


def test_numbers_become_holes(rng):
    net = Sequential(*(Sequential(Linear(4, 4, name="a"), Linear(4, 4, name="b"), name=f"s{i}") for i in range(1, 5)))
    made = proposes(net, NameMap([("l.{i}.one", "s{i+1}.a"), ("l.{i}.two", "s{i+1}.b")]), rng)
    assert [repr(row) for row in made.rows] == ['("l.{i}.one", "s{i+1}.a")', '("l.{i}.two", "s{i+1}.b")']


def test_a_proposal_leaves_out_what_does_not_fit(rng):
    net = Sequential(Linear(4, 8, name="a"), Linear(8, 3, name="b"))
    made = proposeNames(net, {"x.weight": np.zeros((8, 4)), "x.bias": np.zeros(8), "y.weight": np.zeros((5, 5))})
    assert [repr(row) for row in made.rows] == ['("x", "a")']
    assert proposeNames(net, {}).rows == []


def test_tied_arrays_are_proposed_once(rng):
    net = models.gpt(11, 7, 1, 2, 8)
    file = filed(net, NameMap(), rng)
    assert proposeNames(net, file).rows == []


def test_a_map_reads_modules_inside_of_others():
    x = Input(name="x").node()
    inner = Sequential(Conv2D(3, 4, 3, name="c"), name="inner")
    net = Graph(x, Sequential(inner, name="outer").node(x))
    assert pairsOf(NameMap({"m.{a}": "outer.inner.{a}"}), net)[("m.c.weight",)] == ("outer.inner.c.W",)


def test_an_embedder_of_keras_keeps_its_axes():
    net = Sequential(Embedder(5, 3, name="e"))
    assert [(link.files, str(link.how)) for link in NameMap(layout="keras").links(net)] == [(("e/embeddings",), "same")]
