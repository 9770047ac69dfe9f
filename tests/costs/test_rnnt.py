"""RNNT: beside the sum over all paths, its gradients beside torch's of that sum, and compiled."""

import itertools

import numpy as np
import pytest
from costpeers import agrees, reducedBy

from puregraph import CTC, RNNT, AutoDiffException
from puregraph.autodiff import Variable, grad
from puregraph.compile import Program
from puregraph.graph import Graph, Input


def paths(time, count):
    """Every path: for each step True for a label, False for a blank; the last one is a blank."""
    for chosen in itertools.combinations(range(time + count - 1), count):
        yield [i in chosen for i in range(time + count)]


def every(logs, labels, blank):
    """-ln of the sum over all paths, by torch, from logarithms (t, u, c)."""
    import torch

    terms = []
    for path in paths(logs.shape[0], len(labels)):
        t = u = 0
        total = torch.zeros((), dtype=logs.dtype)
        for isLabel in path:
            total = total + logs[t, u, labels[u] if isLabel else blank]
            t, u = (t, u + 1) if isLabel else (t + 1, u)
        terms.append(total)
    return -torch.logsumexp(torch.stack(terms), 0)


@pytest.mark.peers
@pytest.mark.parametrize("number", range(30))
def test_it_is_the_sum_over_all_paths(number):
    import torch

    rng = np.random.default_rng(number)
    n, time, classes, size = (int(rng.integers(low, high)) for low, high in ((1, 4), (1, 6), (2, 6), (0, 4)))
    n = 0 if number == 20 else n
    blank = int(rng.integers(0, classes)) if number % 2 else 0
    reduction = ("mean", "sum", "none")[number % 3]
    x = rng.normal(size=(n, time, size + 1, classes)) * (1 if number % 4 else 30)
    labels = rng.integers(0, classes - 1, (n, size))
    labels = labels + (labels >= blank)
    lengths, counts, weight = rng.integers(1, time + 1, n), rng.integers(0, size + 1, n), rng.random(n)

    def theirs(x, labels, lengths, counts, weight):
        logs = x.log_softmax(-1)
        terms = [every(logs[i, : lengths[i]], labels[i, : counts[i]].tolist(), blank) for i in range(n)]
        terms = torch.stack(terms) if terms else x.sum(dim=(1, 2, 3))
        return reducedBy(terms, reduction, weight)

    agrees(RNNT(blank, reduction=reduction), theirs, [x, labels, lengths, counts, weight], rng, number % 3 == 0)


def test_without_a_time_step_there_is_no_path(rng):
    x, labels = rng.normal(size=(2, 3, 2, 3)), np.array([[1], [2]])
    lengths = np.array([0, 3])
    assert np.isinf(RNNT(reduction="none")(x, labels, lengths)[0])
    cost = RNNT(zeroInfinity=True, reduction="none")
    assert cost(x, labels, lengths)[0] == 0
    cost.backward(np.ones(2))
    assert not cost.grad[0][0].any() and cost.grad[0][1].any()


@pytest.mark.parametrize(("n", "time", "size", "classes"), [(3, 11, 4, 6), (1, 1, 0, 2), (4, 30, 17, 9), (2, 5, 3, 40)])
def test_the_native_kernel_is_the_reference(rng, n, time, size, classes):
    x = 3 * rng.normal(size=(n, time, size + 1, classes)).astype(np.float32)
    labels = rng.integers(1, classes, (n, size))
    lengths, counts = rng.integers(0, time + 1, n), rng.integers(0, size + 1, n)
    arrays = [x, labels, lengths, counts]
    nodes = [Input(name=f"i{i}").node() for i in range(4)]
    cost = RNNT(zeroInfinity=True, reduction="none")
    program = Program(Graph(nodes, cost(*nodes)), [a.shape for a in arrays], [a.dtype for a in arrays], grads=(True,))
    seed = rng.normal(size=n).astype(np.float32)
    value = program.run(*arrays, seed)
    assert "transductions" in program.table()
    wanted = RNNT(zeroInfinity=True, reduction="none")
    y = wanted(x.astype(np.float64), labels, lengths, counts)
    wanted.backward(seed.astype(np.float64))
    np.testing.assert_allclose(value, y, rtol=2e-5, atol=1e-4)
    np.testing.assert_allclose(program.grad[0], wanted.grad[0], atol=2e-4)


def test_no_step_is_left_to_numpy(rng):
    nodes = [Input(name=f"i{i}").node() for i in range(2)]
    program = Program(Graph(nodes, RNNT()(*nodes)), [(2, 5, 4, 6), (2, 3)], [np.float32, np.int64], grads=(True,))
    (row,) = [line for line in program.table().splitlines() if "transductions" in line]
    assert "numpy" not in row


@pytest.mark.parametrize("cost", [RNNT(), CTC()])
def test_a_second_derivative_is_refused(cost, rng):
    shapes = ((2, 4, 3, 4), (2, 2)) if type(cost) is RNNT else ((2, 4, 4), (2, 2))
    x, labels = (rng.normal(size=shapes[0]), rng.integers(1, 4, shapes[1]))
    v = Variable(x, requires_grad=True)
    (g,) = grad(cost(v, labels), v, create_graph=True)
    with pytest.raises(AutoDiffException, match="no second derivative is known of the sum over all alignments"):
        grad((g * g).sum(), v)
