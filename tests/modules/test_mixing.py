"""MixUp and CutMix: samples and targets are mixed alike, by shares of the Beta distribution."""

import numpy as np
import pytest

from puregraph import ArgumentError, Graph, Input, Linear, ShapeError
from puregraph.compile import Program
from puregraph.modules import CutMix, Flatten, MixUp
from puregraph.modules.dropout import bits, unit

RNG = np.random.default_rng(0)
X, T = RNG.random((6, 2, 5, 7)), RNG.random((6, 3))


def drawn(module, x):
    """The numbers from 0 to 1 that the next call draws."""
    return unit(bits((len(x), module.numbers), module.key.data, int(module.count.data))).astype(float)


def test_samples_and_targets_are_mixed_with_those_before_by_the_same_share():
    module = MixUp(0.4).calcMode(np.float64).trainMode()
    share = module.share(drawn(module, X))
    y, t = module(X, T)
    assert share.shape == (6, 1) and 0 <= share.min() and share.max() <= 1
    assert np.allclose(y, X * share[..., None, None] + np.roll(X, 1, 0) * (1 - share[..., None, None]), atol=1e-6)
    assert np.allclose(t, T * share + np.roll(T, 1, 0) * (1 - share), atol=1e-6)


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5, 1.0, 4.0])
def test_shares_are_of_the_beta_distribution(alpha):
    stats = pytest.importorskip("scipy.stats")
    share = MixUp(alpha).share(np.random.default_rng(1).random((20000, 4))).ravel()
    less = share[share < 0.5]  # near 1 shares are rounded
    assert abs(less.size / share.size - 0.5) < 0.02
    assert stats.kstest(less, lambda s: 2 * stats.beta(alpha, alpha).cdf(s)).pvalue > 0.01


def test_a_rectangle_of_the_sample_before_is_as_large_as_its_share_of_the_target():
    module = CutMix(1.0).calcMode(np.float64).trainMode()
    y, t = module(X, T)
    before = np.roll(X, 1, 0)
    cut = (y == before) & (y != X)
    for one, mixed, a, b in zip(cut[:, 0], t, T, np.roll(T, 1, 0)):
        rows, columns = one.any(1), one.any(0)
        assert np.array_equal(one, np.outer(rows, columns))
        assert (np.abs(np.diff(rows.astype(int))).sum(), np.abs(np.diff(columns.astype(int))).sum()) <= (2, 2)
        assert np.allclose(mixed, a + (b - a) * one.mean(), atol=1e-6)
    assert np.array_equal(np.where(cut, before, X), y) and 0 < cut.mean() < 1


@pytest.mark.parametrize("cls", [MixUp, CutMix])
def test_evaluation_gives_both_as_they_are_and_batches_may_be_empty_or_of_one(cls):
    module = cls().evalMode()
    assert all(np.array_equal(a, b) for a, b in zip(module(X, T), (X, T)))
    module.trainMode()
    assert [y.shape for y in module(X[:0], T[:0])] == [(0, 2, 5, 7), (0, 3)]
    assert all(np.allclose(a, b) for a, b in zip(module(X[:1], T[:1]), (X[:1], T[:1])))


@pytest.mark.parametrize("cls", [MixUp, CutMix])
def test_a_network_is_trained_on_mixed_samples_compiled_as_eager(cls):
    x, target = Input(name="x").node(), Input(name="target").node()
    mixed = cls(name="mix").node(x, target)
    error = Linear(70, 3, name="fc")(Flatten()((mixed, 0))) - (mixed, 1)
    net = Graph([x, target], error).trainMode()
    data = [X.astype("f"), T.astype("f")]
    grad = np.random.default_rng(4).standard_normal((6, 3)).astype("f")
    net["mix"].count.data = np.array(5)
    y = net(data)
    net.backward(grad)
    wanted = [y, *net.grad, net.params["fc.W"].grad]
    program = Program(net, [d.shape for d in data], grads=[True])
    net["mix"].count.data = np.array(5)
    got = [program.run(*data, grad), *program.grad, net.params["fc.W"].grad]
    assert all(np.allclose(a, b, rtol=2e-4, atol=1e-5) for a, b in zip(got, wanted, strict=True))


def test_other_targets_and_shares_are_refused():
    with pytest.raises(ShapeError, match=r"targets \(6, ...\), such as classes by OneHot"):
        MixUp()(X, T[:5])
    with pytest.raises(ShapeError, match="no side 0"):
        CutMix()(X[:, :, :0], T)
    with pytest.raises(ArgumentError, match="wanted alpha as a finite number above 0, got 0"):
        MixUp(0)
