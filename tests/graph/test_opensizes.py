"""Sizes that depend on the data: symbols ahead of it, bound and checked in each pass, compiled or not."""

import numpy as np
import pytest
from brokenrules import TwoCounts

from puregraph import (
    Add,
    Compress,
    Embedder,
    Graph,
    Greater,
    Input,
    Linear,
    Mean,
    Mul,
    NonZero,
    PuregraphError,
    ShapeError,
    Sum,
    Tanh,
    Unique,
)
from puregraph.compile import Program


def values(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def chosen():
    """Rows of a hidden layer where a mask says so, and what follows."""
    x, mask = Input(name="x").node(), Input(name="mask").node()
    rows = Compress().node(Tanh().node(Linear(3, 4, name="fc").node(x)), mask, name="rows")
    return Graph([x, mask], Sum().node(Tanh().node(Linear(4, 2, name="out").node(rows)))).calcMode(np.float64)


MASKS = [np.array(m, bool) for m in ([1, 0, 1, 1, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0])]


def test_a_count_is_a_symbol_named_after_its_node():
    x, mask = Input(name="x").node(), Input(name="mask").node()
    rows = Compress().node(x, mask, name="rows")
    net = Graph([x, mask], [rows, Linear(3, 2).node(rows)])
    assert net.dataShapeFrom([("N", 3), ("N",)]) == [("rows_0", 3), ("rows_0", 2)]


def test_a_symbol_of_the_user_is_not_taken_again():
    x = Input(name="x").node()
    net = Graph(x, NonZero().node(x, name="where"))
    assert net.dataShapeFrom(("where_1", 4)) == (2, "where_1_")


def test_one_count_of_several_outputs_is_one_symbol():
    x = Input(name="x").node()
    found = Unique().node(x, name="u")
    net = Graph(x, Add().node((found, "first"), (found, "counts")))
    assert net.dataShapeFrom(("N",)) == ("u_count",)
    np.testing.assert_array_equal(net(np.array([3.0, 1.0, 3.0])), [1 + 1, 0 + 2])


@pytest.mark.parametrize("isCompiled", [False, True])
def test_batches_of_different_counts_are_right_and_so_are_their_gradients(isCompiled):
    net = chosen()
    x = values(5, 3)
    program = Program(net, [x.shape, (5,)], [x.dtype, np.dtype(bool)], grads=(True,))
    for mask in MASKS:

        def loss(x, mask=mask):
            hidden = np.tanh(x @ net["fc"].W.data + net["fc"].b.data)[mask]
            return np.tanh(hidden @ net["out"].W.data + net["out"].b.data).sum()

        for p in net.params.values():
            p.grad = None
        if isCompiled:
            y = program.run(x, mask, np.ones(()))
            grad = program.grad[0]
        else:
            y = net(x, mask)
            net.backward(np.ones(()))
            grad = net.grad[0]
        np.testing.assert_allclose(y, loss(x), rtol=1e-12, atol=1e-12)
        direction = values(5, 3, seed=1)
        numeric = (loss(x + 1e-6 * direction) - loss(x - 1e-6 * direction)) / 2e-6
        np.testing.assert_allclose((grad * direction).sum(), numeric, rtol=1e-7, atol=1e-9)
        assert not grad[~mask].any()


def test_a_program_says_at_which_node_it_is_cut(recwarn):
    program = chosen().compile((5, 3), (5,), dtypes=[np.float64, bool])
    assert "rows" in program.why and "depend on the data" in program.why
    with pytest.raises(PuregraphError, match="'rows'"):
        _ = program.plan
    assert not recwarn.list


def test_indices_that_were_found_read_an_embedding():
    x = Input(name="x").node()
    where = NonZero().node(Greater().node(x, Mean().node(x)))
    net = Graph(x, Embedder(6, 2).node(where[0]))
    for seed in range(3):
        given = values(6, seed=seed).astype(np.float32)
        wanted = net["embedder"].W.data[np.nonzero(given > given.mean())[0]]
        np.testing.assert_array_equal(net(given), wanted)


def test_what_meets_a_count_that_is_another_is_refused_ahead():
    x, mask = Input(name="x").node(), Input(name="mask").node()
    net = Graph([x, mask], Mul().node(x, Compress().node(x, mask)))
    with pytest.raises(ShapeError, match="compress_0"):
        net.dataShapeFrom([(5, 3), (5,)])


def sumOfTwo():
    """Elements that one mask keeps plus those that another one keeps."""
    x, first, second = (Input(name=name).node() for name in ("x", "first", "second"))
    kept = Compress(name="a").node(x, first), Compress(name="b").node(Tanh(name="t").node(x), second)
    return Graph([x, first, second], Add(name="s").node(*kept))


@pytest.mark.parametrize("isCompiled", [False, True])
def test_two_counts_may_meet_where_the_data_makes_them_equal(isCompiled):
    net, x = sumOfTwo(), values(5)
    assert net.dataShapeFrom([(5,), (5,), (5,)]) == ("s_0",)
    run = Program(net, [(5,)] * 3, ["f8", "bool", "bool"]).run if isCompiled else lambda *data: net(data)
    for first, second in (([1, 0, 1, 0, 0], [0, 1, 0, 0, 1]), ([1, 0, 0, 0, 0], [0, 1, 1, 0, 1]), ([0] * 5, [0] * 5)):
        first, second = np.array(first, bool), np.array(second, bool)
        np.testing.assert_allclose(run(x, first, second), x[first] + np.tanh(x)[second])
    with pytest.raises(ShapeError, match=r"at 's' \(Add\).*\(3,\), \(2,\)"):
        run(x, np.arange(5) < 3, np.arange(5) < 2)


def test_gradients_of_counts_that_meet_go_to_the_elements_that_were_kept():
    net, x = sumOfTwo().calcMode(np.float64).trainMode(), values(5)
    net([x, np.arange(5) < 2, np.arange(5) > 2])
    net.backward(np.array([1.0, 10.0]))
    wanted = np.zeros(5)
    wanted[:2] += [1, 10]
    wanted[3:] += [1, 10] * (1 - np.tanh(x[3:]) ** 2)
    np.testing.assert_allclose(net.grad[0], wanted)


def test_a_count_that_is_not_what_it_was_elsewhere_names_the_rule():
    x = Input(name="x").node()
    net = Graph(x, TwoCounts().node(x, name="t"))
    with pytest.raises(
        PuregraphError, match=r"dataShapeFrom says \(t_count,\) with t_count = 2, updateData gave shape \(1,\)"
    ):
        net(np.zeros(4))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_slice_of_what_may_be_empty_is_as_long_as_there_are_elements(count):
    x, mask = Input(name="x").node(), Input(name="mask").node()
    net = Graph([x, mask], Compress(axis=0, name="chosen")(x, mask)[:1])
    assert net.dataShapeFrom([("N", 3), ("N",)]) == ("min(chosen_0, 1)", 3)
    data, isChosen = values(5, 3), np.arange(5) < count
    np.testing.assert_array_equal(net(data, isChosen), data[isChosen][:1])


def test_sizes_are_bound_anew_in_each_pass():
    net = chosen()
    for mask in MASKS:
        assert np.isfinite(net(values(5, 3), mask))
