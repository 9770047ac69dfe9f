"""A graph with sizes that depend on the data runs in pieces: compiled before and behind, right for every count, and said so in
the table."""

import copy
import pickle

import numpy as np
import pytest
from brokenrules import TwoCounts
from everymodule import CLASSES, examplesOf, label

import puregraph
from puregraph import (
    GRU,
    MSE,
    SGD,
    Adam,
    Add,
    ArgMax,
    Attention,
    BatchNorm,
    Calculator,
    Cast,
    Compress,
    Concat,
    Constant,
    Conv2D,
    Embedder,
    Expand,
    Gather,
    Graph,
    Greater,
    Input,
    Linear,
    Max,
    MaxPool1D,
    Mean,
    NonZero,
    Pad,
    PuregraphError,
    Relu,
    Reshape,
    Sequential,
    Shape,
    ShapeError,
    SoftMax,
    Sum,
    Tanh,
    Tile,
    Trainer,
    Unique,
    Upsample2D,
)
from puregraph.compile import Program, cache, withCost
from puregraph.compile.partitioned import PartitionedGraph
from puregraph.compile.trace.steprequest import StepRequest
from puregraph.graph.node import Node
from puregraph.testing.case import Case
from puregraph.testing.graphchecks import alike, listed, stateOf

MASKS = [np.array(m, bool) for m in ([1, 0, 1, 1, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0])]


def values(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def compressed():
    """Rows of a hidden layer where a mask says so, a network on them, and one behind their sum."""
    x, mask = Input(name="x").node(), Input(name="mask").node()
    hidden = Tanh(name="tanh")(Linear(3, 4, name="fc")(x))
    rows = Compress(name="rows")(hidden, mask)
    deep = Sequential(Linear(4, 6, name="a"), Tanh(name="t"), Linear(6, 2, name="b"), name="mlp")(rows)
    return Graph([x, mask], Linear(2, 1, name="head")(Sum(axis=0, name="pool")(deep)), name="net")


def found():
    """The rows of a hidden layer whose first element is above 0, by the indices that NonZero gives."""
    x = Input(name="x").node()
    hidden = Tanh(name="tanh")(Linear(3, 4, name="fc")(x))
    where = NonZero(name="where")(Greater(name="above")(hidden[:, 0], Constant(np.float64(0.0), name="zero").node()))
    rows = Gather(axis=0, name="take")(hidden, where[0])
    return Graph(x, Sum(name="sum")(Linear(4, 2, name="out")(Relu(name="relu")(rows))), name="net")


def runs(net, given, seeds, program=None):
    """Outputs, gradients of inputs and of parameters of one pass, compiled or not."""
    for p in net.params.values():
        p.grad = None
    if program is None:
        outputs = net(list(given))
        net.backward(seeds[0] if len(seeds) == 1 else seeds)
        grads = net.grad
    else:
        outputs = program.run(*given, *seeds)
        grads = program.grad
    return [*listed(outputs), *listed(grads), *[p.grad for p in net.params.values()]]


def near(wanted, got):
    """All values are equal but for the order of sums."""
    for a, b in zip(wanted, got, strict=True):
        assert a is b if a is None or b is None else alike(a, b) or isNear(a, b)


def isNear(a, b):
    """Whether floats of float64 agree but for rounding."""
    a, b = np.asarray(a), np.asarray(b)
    return (a.shape, a.dtype) == (b.shape, b.dtype) and np.allclose(a, b, rtol=1e-11, atol=1e-12, equal_nan=True)


def programsOf(program):
    """How many programs the pieces have."""
    parts = program.partitioned
    return sum(len(piece.compiled) for piece in [*parts.forward, *parts.backwards])


def manners(program):
    """The lines of the table's first part."""
    return program.table().split("\n\n")[0].split("\n")[2:]


@pytest.mark.parametrize("make", [compressed, found])
def test_batches_of_different_counts_are_those_of_the_graph(make):
    net = make().calcMode(np.float64)
    for seed, mask in enumerate(MASKS):
        given = [values(5, 3, seed=seed), mask][: len(net.inputs)]
        if seed == 0:
            program = Program(net, [x.shape for x in given], [x.dtype for x in given], grads=(True,))
        y = net(list(given))
        near(runs(net, given, [np.ones_like(y)]), runs(net, given, [np.ones_like(y)], program))


@pytest.mark.parametrize("make", [compressed, found])
def test_gradients_are_central_differences(make):
    net = make().calcMode(np.float64)
    for seed, mask in enumerate(MASKS[:3]):
        given = [values(5, 3, seed=seed + 5), mask][: len(net.inputs)]
        program = Program(net, [x.shape for x in given], [x.dtype for x in given], grads=(True,))

        def loss(x, given=given):
            return float(np.sum(net([x, *given[1:]])))

        program.run(*given, np.ones_like(net(list(given))))
        direction = values(5, 3, seed=1)
        numeric = (loss(given[0] + 1e-6 * direction) - loss(given[0] - 1e-6 * direction)) / 2e-6
        np.testing.assert_allclose((listed(program.grad)[0] * direction).sum(), numeric, rtol=1e-7, atol=1e-9)
        for p in net.params.values():
            way, start = values(*p.shape, seed=2), p.data.copy()
            p.data = start + 1e-6 * way
            above = loss(given[0])
            p.data = start - 1e-6 * way
            numeric = (above - loss(given[0])) / 2e-6
            p.data = start
            np.testing.assert_allclose((p.grad * way).sum(), numeric, rtol=1e-6, atol=1e-8)


def test_a_size_that_was_met_before_compiles_nothing(monkeypatch):
    net = compressed().calcMode(np.float64)
    program = Program(net, [(5, 3), (5,)], [np.float64, bool], grads=(True,))
    given = values(5, 3)
    for mask in MASKS:
        program.run(given, mask, np.ones(1))
    count = programsOf(program)
    monkeypatch.setattr(Program, "build", lambda *a: pytest.fail("a program was compiled"))
    for mask in MASKS:
        near(runs(net, [given, mask], [np.ones(1)]), runs(net, [given, mask], [np.ones(1)], program))
    assert programsOf(program) == count
    for piece in program.partitioned.forward:
        assert piece.eager == 0 or piece.partition.isOpen


def test_the_table_lists_the_pieces():
    program = compressed().compile((5, 3), (5,), train=True)
    lines = manners(program)
    nodes = ["net.fc, net.tanh", "net.rows", "net.mlp.a, net.mlp.t, net.mlp.b, net.pool", "net.head"]
    nodes = [each.replace("net.", "") for each in nodes]
    for line, names in zip(lines, nodes, strict=False):
        assert names in line
    assert "as it is: rows_0 depends on the data" in lines[1]
    assert "a program for each rows_0: 0 so far" in lines[2]
    for mask in MASKS[:2]:
        program.run(values(5, 3, dtype=np.float32), mask, np.ones(1, np.float32))
    lines = manners(program)
    assert "a program: 1 so far" in lines[0] and "a program for each rows_0: 2 so far" in lines[2]
    assert "piece 3, (3, 4)" in program.table() and "piece 3, (1, 4)" in program.table()


def test_what_does_not_depend_on_the_size_is_compiled_once():
    net = compressed()
    program = net.compile((5, 3), (5,), train=True)
    for mask in MASKS:
        program.run(values(5, 3, dtype=np.float32), mask, np.ones(1, np.float32))
    parts = program.partitioned
    for piece in [*parts.forward, *parts.backwards]:
        wanted = 0 if piece.partition.isOpen else len(MASKS) if piece.partition.sizes else 1
        assert len(piece.compiled) == wanted


def test_a_piece_leaves_what_others_read_and_no_value_of_which_only_the_shape_is_asked():
    program = compressed().compile((5, 3), (5,), train=True)
    first, *_ = parts = program.partitioned.forward
    names = program.partitioned.steps.names
    assert [names[n] for n in first.outputs] == [
        "tanh"
    ]  # and not what Linear gives, as Tanh's gradient reads its output
    assert all(n in program.partitioned.outlined for n in program.partitioned.back.numbers if names[n] == "fc")
    program.run(values(5, 3, dtype=np.float32), MASKS[0], np.ones(1, np.float32))
    outlined = [
        entry for piece in program.partitioned.backwards for p in piece.compiled for entry in p.executable.inputs
    ]
    assert not all(entry.isRead for entry in outlined) and len(parts) == 4


def test_detection_of_anomalies_and_numpys_errors_run_the_graph_itself():
    net = compressed().calcMode(np.float64)
    program = net.compile((5, 3), (5,), train=False, dtypes=[np.float64, bool])
    given = [values(5, 3), MASKS[0]]
    wanted = program.run(*given)
    runs = [piece.runs for piece in program.partitioned.forward]
    with np.errstate(all="raise"):
        near([program.run(*given)], [wanted])
    with puregraph.autodiff.detect_anomaly():
        near([program.run(*given)], [wanted])
    assert [piece.runs for piece in program.partitioned.forward] == runs


def test_more_sizes_than_are_kept_run_as_they_are(monkeypatch):
    monkeypatch.setattr(cache, "KEPT_SHARE", 1 << 60)
    monkeypatch.setattr(cache, "MIN_KEPT_BYTES", 1 << 18)
    net = compressed().calcMode(np.float64)
    program = Program(net, [(50, 3), (50,)], [np.float64, bool], grads=(True,))
    given = values(50, 3)
    for _ in range(2):
        for count in range(50):
            mask = np.arange(50) < count
            near(runs(net, [given, mask], [np.ones(1)]), runs(net, [given, mask], [np.ones(1)], program))
    assert 1 < max(len(piece.compiled) for piece in program.partitioned.forward) < 50
    assert "runs without" in program.table()


def test_the_table_of_nodes_with_short_names_is_printed():
    x = Input(name="x").node()
    net = Graph([x], NonZero(name="y").node(x))
    program = net.compile((2, 3))
    program.run(np.eye(2, 3, dtype=np.float32))
    assert program.table().split("\n")[0] == "piece  nodes  runs as"
    assert manners(program)[0].split()[:2] == ["1", "y"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("optimizer", [SGD, Adam])
def test_a_training_step_is_that_of_the_graph(dtype, optimizer):
    net = compressed().calcMode(dtype)
    other, eager, compiled = copy.deepcopy(net), optimizer(), optimizer()
    step = net.compile((5, 3), (5,), (1,), cost=MSE(), optimizer=compiled)
    whole = withCost(other, MSE(), 2, 1)
    eager.setupOn(other)
    for seed, mask in enumerate([*MASKS, *MASKS]):
        given = values(5, 3, seed=seed, dtype=dtype), mask, np.ones(1, dtype)
        found, wanted = step.run(*given), whole(*given)
        whole.backward([np.ones_like(wanted[0]), None], updGrad=False)
        eager.update()
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5 if dtype == np.float32 else 1e-12, atol=1e-6)
        for name, p in net.params.items():
            np.testing.assert_allclose(
                p.data, other.params[name].data, rtol=2e-5, atol=1e-6 if optimizer is SGD else 1e-4
            )
    assert step.partitioned is not None and "update by" in step.table()


def test_a_cost_that_is_not_finite_changes_no_parameter():
    net = compressed().calcMode(np.float64)
    step = net.compile((5, 3), (5,), (1,), cost=MSE(), optimizer=SGD(), guarded=True)
    before = {name: p.data.copy() for name, p in net.params.items()}
    step.run(values(5, 3) * np.nan, MASKS[0], np.ones(1))
    assert all(np.array_equal(p.data, before[name]) for name, p in net.params.items())
    step.run(values(5, 3), MASKS[0], np.ones(1))
    assert not np.array_equal(net["head"].W.data, before["head.W"])


def test_a_scale_and_gradients_that_are_added():
    net = compressed().calcMode(np.float64)
    given, one = [values(5, 3), MASKS[0]], np.ones(1)
    wanted = runs(net, given, [one])[3:]
    program = Program(net, [(5, 3), (5,)], [np.float64, bool], grads=(True,), scaled=True, added=True)
    for _ in range(2):
        program.run(*given, one, scale=0.5)
    for p, g in zip(net.params.values(), wanted, strict=True):
        np.testing.assert_allclose(p.grad, 2 * g, rtol=1e-13)


def test_running_statistics_change_once_and_in_their_order():
    norm = BatchNorm(4)
    x, mask = Input(name="x").node(), Input(name="mask").node()
    hidden = norm.node(Linear(3, 4, name="fc")(x), name="first")
    again = norm.node(Compress(name="rows")(hidden, mask), name="second")
    third = norm.node(Linear(3, 4, name="late")(x), name="third")  # does not depend on the size, yet comes after
    net = Graph([x, mask], [Sum(name="s")(again), Sum(name="t")(third)]).calcMode(np.float64)
    program = Program(net, [(5, 3), (5,)], [np.float64, bool], grads=(True, True))
    states = {name: s.data.copy() for name, s in net.states.items()}
    given, seeds = [values(5, 3), MASKS[0]], [np.ones(()), np.ones(())]
    wanted = runs(net, given, seeds) + [s.data.copy() for s in net.states.values()]
    for name, s in net.states.items():
        s.data = states[name]
    near(wanted, runs(net, given, seeds, program) + [s.data for s in net.states.values()])


def test_two_open_nodes_and_sizes_of_both():
    x, a, b = (Input(name=n).node() for n in ("x", "a", "b"))
    hidden = Tanh(name="tanh")(Linear(3, 4, name="fc")(x))
    one = Tanh(name="one")(Compress(name="first")(hidden, a))
    other = Tanh(name="other")(Compress(name="second")(hidden, b))
    net = Graph([x, a, b], Sum(name="sum")(Linear(4, 2, name="out")(Concat(axis=0, name="both")(one, other))))
    net.calcMode(np.float64)
    program = Program(net, [(5, 3), (5,), (5,)], [np.float64, bool, bool], grads=(True,))
    for mask, second in zip(MASKS, MASKS[1:] + MASKS[:1]):
        given = [values(5, 3), mask, second]
        near(runs(net, given, [np.ones(())]), runs(net, given, [np.ones(())], program))
    lines = manners(program)
    assert any("first_0, second_0" in line for line in lines) and sum("as it is" in line for line in lines) == 4


def test_shapes_that_are_computed_by_nodes_are_constants_of_every_piece():
    x, mask = Input(name="x").node(), Input(name="mask").node()
    sizes = Shape(name="sizes")(x)
    rows = Compress(name="rows")(Linear(6, 6, name="fc")(x), mask)
    to = Concat(axis=0, name="to")(Shape(name="chosen")(rows)[:1], Constant([2, 3], name="heads").node())
    cut = Tanh(name="tanh")(Reshape(name="cut")(rows, to))
    whole = Expand(name="whole")(Sum(name="sum")(cut), sizes)
    net = Graph([x, mask], [cut, whole]).calcMode(np.float64)
    program = Program(net, [(5, 6), (5,)], [np.float64, bool], grads=(True, True))
    for mask in MASKS:
        given = [values(5, 6), mask]
        seeds = [values(int(mask.sum()), 2, 3, seed=3), values(5, 6, seed=4)]
        near(runs(net, given, seeds), runs(net, given, seeds, program))
    for piece in program.partitioned.forward:
        assert all(p.why == "" for programs in piece.programs.values() for p in programs.kept.values())


def test_a_slice_of_rows_that_may_be_none_runs_and_trains():
    x, mask = Input(name="x").node(), Input(name="mask").node()
    rows = Compress(name="rows")(Linear(3, 4, name="fc")(x), mask)
    net = Graph([x, mask], Sum(name="sum")(Tanh(name="tanh")(rows[:2]))).calcMode(np.float64)
    program = Program(net, [(5, 3), (5,)], [np.float64, bool], grads=(True,))
    for mask in MASKS:
        given = [values(5, 3), mask]
        near(runs(net, given, [np.ones(())]), runs(net, given, [np.ones(())], program))


def test_pieces_have_the_largest_of_their_arenas_and_no_plan_of_the_whole():
    x, mask = Input(name="x").node(), Input(name="mask").node()
    rows = Compress(name="rows")(Linear(3, 4, name="fc")(x), mask)
    net = Graph([x, mask], Sum(name="sum")(Tanh(name="tanh")(rows))).calcMode(np.float64)
    program = Program(net, [(5, 3), (5,)], [np.float64, bool], grads=(True,))
    assert program.bytes == 0
    runs(net, [values(5, 3), MASKS[0]], [np.ones(())], program)
    pieces = [*program.partitioned.forward, *program.partitioned.backwards]
    assert program.bytes == max(p.bytes for piece in pieces for p in piece.compiled) > 0
    with pytest.raises(PuregraphError, match=r"depend on the data.*`table\(\)` lists"):
        program.plan


def test_indices_that_were_found_read_an_embedding_and_train_it():
    x = Input(name="x").node()
    where = NonZero(name="where")(Greater(name="above")(x, Constant(np.float64(0.0), name="zero").node()))
    net = Graph(x, Sum(name="sum")(Tanh(name="tanh")(Embedder(6, 2, name="embed")(where[0])))).calcMode(np.float64)
    program = Program(net, [(6,)], [np.float64], grads=(True,))
    for seed in range(4):
        given = [values(6, seed=seed)]
        near(runs(net, given, [np.ones(())]), runs(net, given, [np.ones(())], program))


def test_an_output_whose_gradient_is_not_given_takes_part_in_nothing():
    x, mask = Input(name="x").node(), Input(name="mask").node()
    rows = Compress(name="rows")(Tanh(name="tanh")(Linear(3, 4, name="fc")(x)), mask)
    net = Graph([x, mask], [Sum(name="sum")(rows), Linear(4, 2, name="out")(rows)]).calcMode(np.float64)
    program = Program(net, [(5, 3), (5,)], [np.float64, bool], grads=(True, False))
    for mask in MASKS:
        given = [values(5, 3), mask]
        wanted = runs(net, given, [np.ones(()), None])
        for p in net.params.values():
            p.grad = None
        outputs = program.run(*given, np.ones(()))
        near(wanted, [*outputs, *program.grad, *[p.grad for p in net.params.values()]])


def test_a_parameter_that_is_frozen_meanwhile_gets_no_gradient():
    net = compressed().calcMode(np.float64)
    program = Program(net, [(5, 3), (5,)], [np.float64, bool], grads=(True,))
    given = [values(5, 3), MASKS[0]]
    near(runs(net, given, [np.ones(1)]), runs(net, given, [np.ones(1)], program))
    net["fc"].freeze()
    near(runs(net, given, [np.ones(1)]), runs(net, given, [np.ones(1)], program))
    assert net["fc"].W.grad is None and net["head"].W.grad is not None


def test_parameters_and_modules_that_change_are_seen():
    net = compressed().calcMode(np.float64)
    program = net.compile((5, 3), (5,), train=False, dtypes=[np.float64, bool])
    given = [values(5, 3), MASKS[0]]
    for change in (
        lambda: None,
        lambda: setattr(net["fc"].W, "data", values(3, 4, seed=9)),
        lambda: net["mlp.a"].W.data.__imul__(2.0),
        lambda: setattr(net["pool"], "axis", 0),
    ):
        change()
        near([net(list(given))], [program.run(*given)])


def test_labels_out_of_range_behind_a_mask_are_named():
    ids, mask = Input(name="ids").node(), Input(name="mask").node()
    net = Graph([ids, mask], Sum(name="sum")(Embedder(6, 2, name="embed")(Compress(name="rows")(ids, mask))))
    program = net.compile((5,), (5,))
    program.run(np.arange(5), MASKS[0])
    with pytest.raises(Exception, match=r"(?s)got 99.*at 'embed' \(Embedder\)"):
        program.run(np.array([0, 99, 99, 99, 0]), MASKS[0])
    program.run(np.arange(5), MASKS[0])


def test_a_count_that_is_not_what_it_was_elsewhere_is_refused():
    x = Input(name="x").node()
    net = Graph(x, TwoCounts().node(x, name="t"))
    with pytest.raises(Exception, match=r"dataShapeFrom says \(t_count,\) with t_count = 2"):
        net.compile((4,)).run(np.zeros(4, np.float32))


def test_a_program_in_pieces_can_be_copied_and_saved():
    net = compressed().calcMode(np.float64)
    program = net.compile((5, 3), (5,), train=False, dtypes=[np.float64, bool])
    given = [values(5, 3), MASKS[0]]
    wanted = program.run(*given)
    for twin in (copy.deepcopy(program), pickle.loads(pickle.dumps(program))):
        near([wanted], [twin.run(*given)])


def test_integers_that_come_in_stay_integers():
    x, ids, mask = (Input(name=n).node() for n in ("x", "ids", "mask"))
    net = Graph([x, ids, mask], [Linear(3, 2, name="fc")(x), Compress(name="rows")(ids, mask)])
    program = net.compile((5, 3), (5,), (5,))
    given = [values(5, 3, dtype=np.float32), np.arange(5, dtype=np.int32) + 2**30, MASKS[0]]
    near(net(given), program.run(*given))
    assert program.partitioned is not None


def test_unique_elements_and_what_follows():
    x = Input(name="x").node()
    found = Unique(name="u").node(x)
    net = Graph(x, [Tanh(name="t")((found, "values")), (found, "counts")])
    program = net.compile((6,), dtypes=[np.float64])
    for seed in range(3):
        given = np.random.default_rng(seed).integers(0, 4, 6).astype(np.float64)
        near(net(given), program.run(given))


BEHIND = {  # each of rows of two numbers, whose count depends on the data; some want at least one row
    "Pad": lambda x: Pad(((1, 2), (0, 0)))(x),
    "a slice from 1 on": lambda x: x[1:],
    "a slice without the last": lambda x: x[:-1],
    "a reversed slice": lambda x: x[::-2],
    "the first row": lambda x: x[0],
    "Concat": lambda x: Concat(axis=0)(x, x[1:]),
    "Tile": lambda x: Tile((2, 1))(x),
    "Expand": lambda x: Expand((3, 1, 1))(x),
    "Reshape": lambda x: Reshape((-1,))(x),
    "Mean": lambda x: Mean(axis=0)(x),
    "Max": lambda x: Max(axis=0)(x),
    "SoftMax": lambda x: SoftMax(axis=0)(x),
    "ArgMax": lambda x: Cast("float64")(ArgMax(axis=0)(x)),
    "GRU": lambda x: GRU(2, 3, name="gru")(Reshape((1, -1, 2))(x)),
    "Attention": lambda x: (lambda q: Attention()(q, q, q))(Reshape((1, 1, -1, 2))(x)),
    "MaxPool1D": lambda x: MaxPool1D(2, 1)(Reshape((1, 2, -1))(x)),
    "Upsample2D": lambda x: Upsample2D(2)(Reshape((1, 1, -1, 2))(x)),
}
NEEDS_ONE = ("the first row", "Mean", "Max", "SoftMax", "ArgMax", "GRU", "Attention", "MaxPool1D", "Upsample2D")


@pytest.mark.parametrize("name", BEHIND)
@pytest.mark.parametrize("slot", ["values", "inverse", "counts"])
def test_unique_elements_train_though_its_other_outputs_are_read_by_none(slot, name):
    x = Input(name="x").node()
    rows = Embedder(9, 2, name="e")((Unique(name="u")(x), slot))
    net = Graph(x, Sum(name="sum")(Tanh(name="t")(BEHIND[name](rows)))).calcMode(np.float64)
    program = Program(net, [(4,)], [np.int64], grads=(True,))
    for given in ([1, 2, 2, 5], [3, 3, 7, 7], [4, 3, 2, 1]):
        data = [np.array(given)]
        near(runs(net, data, [np.ones(())]), runs(net, data, [np.ones(())], program))


@pytest.mark.parametrize("name", BEHIND)
def test_where_a_mask_keeps_no_row_a_module_that_needs_one_is_named(name):
    x, mask = Input(name="x").node(), Input(name="mask").node()
    net = Graph([x, mask], Sum(name="sum")(Tanh(name="t")(BEHIND[name](Compress(name="rows")(x, mask)))))
    net.calcMode(np.float64)
    program = Program(net, [(5, 2), (5,)], [np.float64, bool])
    for keep in MASKS:
        given = [values(5, 2), keep]
        if keep.any() and not (name == "MaxPool1D" and keep.sum() < 2):
            near([net(*given)], [program.run(*given)])
        elif name in NEEDS_ONE:
            for run in (net, program.run):
                with pytest.raises(ShapeError, match=r"^at '\w+' \(\w+\): wanted .*, got "):
                    run(*given)
        else:
            near([net(*given)], [program.run(*given)])


@pytest.mark.parametrize("isBefore", [True, False], ids=["before", "behind"])
@pytest.mark.parametrize("found", CLASSES, ids=label)
def test_a_module_of_any_kind_stands_before_or_behind_an_open_node(found, isBefore):
    module, shapes = examplesOf(found)[0]
    case = Case(module, shapes)
    ins = [Input(name=f"i{i}").node() for i in range(len(case.inputs))]
    data, masks, args = list(case.inputs), [], list(ins)

    def chosen(edge, count):
        masks.append(Input(dtype="bool", name=f"m{len(masks)}").node())
        data.append(np.ones(count, bool))
        return Compress(name=f"rows{len(masks)}").node(edge, masks[-1])

    first = next((i for i in case.floats if i < len(ins) and data[i].ndim), None)
    if not isBefore and first is not None:
        args[first] = chosen(ins[first], data[first].shape[0])
    node = Node(case.module, args)
    outs = [(node, slot) for slot in range(len(module.outputNames))]
    for slot, y in enumerate(case.visible(case.run()) if isBefore else ()):
        if y.ndim and y.dtype.kind == "f":
            outs[slot] = Tanh(name=f"tanh{slot}").node(chosen((node, slot), y.shape[0]))
    case.restore()
    net = Graph([*ins, *masks], outs)
    try:
        program = Program(net, [x.shape for x in data], [x.dtype for x in data], grads=(True,) * len(outs))
    except ShapeError:
        pytest.skip("it wants a number there, or gives no number itself")
    if program.partitioned is None:
        pytest.skip("no axis to choose from")
    rng = np.random.default_rng(0)
    for _ in range(2):
        case.restore()
        outputs = listed(net(list(data)))
        grads = [rng.standard_normal(y.shape) for y in outputs]
        net.backward(grads if len(grads) > 1 else grads[0])
        wanted = stateOf(case, listed(net.data), listed(net.grad))
        case.restore()
        outputs = listed(program.run(*data, *grads))
        got = stateOf(case, outputs, listed(program.grad))
        near([y for _, y in wanted], [y for _, y in got])


def test_a_trainer_and_a_calculator_run_a_network_with_a_mask_in_pieces():
    x, mask = Input(name="x").node(), Input(name="mask").node()
    hidden = Tanh(name="tanh")(Linear(3, 4, name="fc")(x))
    chosen = Sum(axis=0, name="pool")(Tanh(name="deep")(Linear(4, 2, name="mid")(Compress(name="rows")(hidden, mask))))
    net = Graph([x, mask], Add(name="both")(Linear(4, 2, name="out")(hidden), chosen))
    other = copy.deepcopy(net)
    rng = np.random.default_rng(0)
    data = [rng.standard_normal((23, 3)).astype(np.float32), rng.random(23) < 0.5]
    target = rng.standard_normal((23, 2)).astype(np.float32)
    trainers = [Trainer(each, MSE(), Adam(), batchsize=5, seed=0, compile=each is net) for each in (net, other)]
    for trainer in trainers:
        trainer.train(data, target, epochs=3)
    for name, p in net.params.items():
        np.testing.assert_allclose(p.data, other.params[name].data, rtol=1e-4, atol=1e-5)
    given = [Calculator(each, batchsize=5, compile=each is net).calculate(data) for each in (net, other)]
    np.testing.assert_allclose(*given, rtol=1e-4, atol=1e-5)
    assert all(program.partitioned is not None for program in trainers[0].objective.programs.kept.values())


def test_a_piece_reads_what_another_has_stored_in_another_order_so_that_sums_have_the_bits_of_one_program():
    net = Sequential(Conv2D(1, 6, 5), BatchNorm(6), Relu(), Conv2D(6, 8, 3), BatchNorm(8), Relu())
    rng = np.random.default_rng(3)
    x, grad = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 1, 14, 14), (2, 8, 8, 8)))
    pieces = PartitionedGraph(net, [x.shape], [x.dtype], StepRequest((True,)))
    program = Program(net, [x.shape], [x.dtype], True, grads=(True,))
    found = []
    for run in (lambda: (pieces([x]), pieces.backward(grad)), lambda: program.run(x, grad)):
        initial = {path: state.data.copy() for path, state in net.states.items()}
        run()
        found.append({path: param.grad.tobytes() for path, param in net.params.items()})
        for path, state in net.states.items():
            state.data = initial[path]
    assert found[0] == found[1]
