"""CTC: beside the sum over all alignments, beside PyTorch's, and compiled."""

import itertools

import numpy as np
import pytest
from costpeers import agrees

from puregraph import CTC, RNNT
from puregraph.compile import Program
from puregraph.graph import Graph, Input


def every(x, labels, blank):
    """-ln of the sum over all paths that give the labels when repeats and blanks are dropped."""
    p = np.exp(x - x.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    total = 0.0
    for path in itertools.product(range(x.shape[1]), repeat=len(x)):
        kept = [k for k, _ in itertools.groupby(path) if k != blank]
        if kept == list(labels):
            total += np.prod([p[t, k] for t, k in enumerate(path)])
    return -np.log(total) if total > 0 else np.inf


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("time", range(1, 7))
def test_it_is_the_sum_over_all_alignments(rng, time, blank):
    kinds = [k for k in range(3) if k != blank]
    for size in range(4):
        for labels in itertools.product(kinds, repeat=size):
            x = rng.normal(size=(1, time, 3))
            padded = np.full((1, 3), -1)
            padded[0, :size] = labels
            np.testing.assert_allclose(
                CTC(blank, reduction="none")(x, padded)[0], every(x[0], labels, blank), rtol=1e-12
            )


def test_equal_neighbours_need_a_blank_between_them(rng):
    x = rng.normal(size=(1, 2, 3))
    assert CTC(reduction="none")(x, np.array([[1, 1]])) == np.inf
    cost = CTC(zeroInfinity=True, reduction="none")
    assert cost(x, np.array([[1, 1]])) == 0
    cost.backward(np.ones(1))
    np.testing.assert_array_equal(cost.grad[0], np.zeros_like(x))


def test_lengths_beyond_the_arrays_are_refused(rng):
    x, labels = rng.normal(size=(2, 4, 3)), np.array([[1, 2], [1, -1]])
    with pytest.raises(IndexError, match="wanted lengths from 0 to 4, got 5"):
        CTC()(x, labels, np.array([4, 5]))
    with pytest.raises(IndexError, match="wanted labelLengths from 0 to 2, got 3"):
        CTC()(x, labels, np.array([4, 4]), np.array([3, 1]))


@pytest.mark.peers
@pytest.mark.parametrize("number", range(30))
def test_it_is_that_of_torch(number):
    from torch.nn import functional as f

    rng = np.random.default_rng(number)
    n, time, classes, size = (int(rng.integers(low, high)) for low, high in ((1, 5), (1, 12), (2, 6), (1, 5)))
    blank = int(rng.integers(0, classes)) if number % 2 else 0
    reduction = ("mean", "sum", "none")[number % 3]
    x = rng.normal(size=(n, time, classes)) * (1 if number % 4 else 30)
    labels = rng.integers(0, classes - 1, (n, size))
    labels = labels + (labels >= blank)
    lengths, counts = rng.integers(1, time + 1, n), rng.integers(0, size + 1, n)

    def theirs(x, labels, lengths, counts):
        logs = x.log_softmax(-1).transpose(0, 1)
        options = {"blank": blank, "reduction": "none", "zero_infinity": True}
        terms = f.ctc_loss(logs, labels, lengths, counts, **options)
        terms = terms / counts.clamp_min(1) if reduction == "mean" else terms
        return terms if reduction == "none" else terms.mean() if reduction == "mean" else terms.sum()

    cost = CTC(blank, zeroInfinity=True, reduction=reduction)
    agrees(cost, theirs, [x, labels, lengths, counts], rng, number % 3 == 0)


@pytest.mark.parametrize(("n", "time", "classes", "size"), [(3, 11, 6, 4), (1, 1, 2, 1), (5, 40, 33, 17), (2, 7, 3, 0)])
def test_the_native_kernel_is_the_reference(rng, n, time, classes, size):
    x = 3 * rng.normal(size=(n, time, classes)).astype(np.float32)
    labels = rng.integers(1, classes, (n, size))
    lengths, counts = rng.integers(0, time + 1, n), rng.integers(0, size + 1, n)
    cost = CTC(zeroInfinity=True, reduction="none")
    arrays = [x, labels, lengths, counts]
    nodes = [Input(name=f"i{i}").node() for i in range(4)]
    program = Program(Graph(nodes, cost(*nodes)), [a.shape for a in arrays], [a.dtype for a in arrays], grads=(True,))
    seed = rng.normal(size=n).astype(np.float32)
    found = program.run(*arrays, seed)
    assert "alignments" in program.table()
    wanted = CTC(zeroInfinity=True, reduction="none")
    y = wanted(x.astype(np.float64), labels, lengths, counts)
    wanted.backward(seed.astype(np.float64))
    np.testing.assert_allclose(found, y, rtol=2e-5, atol=1e-4)
    np.testing.assert_allclose(program.grad[0], wanted.grad[0], atol=2e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("cost", "shape"), [(CTC, (3, 12, 6)), (RNNT, (3, 12, 5, 6))])
def test_a_score_that_is_no_number_gives_a_cost_that_is_none(rng, cost, shape, dtype):
    x, labels = rng.standard_normal(shape).astype(dtype), rng.integers(1, 6, (3, 4))
    x[1, 4, 2] = np.nan
    scores = Input(name="x").node()
    target = Input(name="labels").node()
    net = Graph([scores, target], cost(zeroInfinity=True, reduction="none").node(scores, target)).calcMode(dtype)
    program = Program(net, [shape, (3, 4)], [dtype, labels.dtype])
    for costs in (net([x, labels]), program.run(x, labels)):
        assert np.isnan(costs).tolist() == [False, True, False]
