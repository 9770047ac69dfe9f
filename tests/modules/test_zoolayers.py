"""Layers by PuzzleLib's and PyTorch's names: known values, next to their definition or to PyTorch, at odd settings."""

import numpy as np
import pytest
from peers import compare, ours

from puregraph.core.errors import ShapeError
from puregraph.modules import (
    LCN,
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    ChannelShuffle,
    CosineSimilarity,
    DepthConcat,
    GroupLinear,
    KMaxPool,
    MapLRN,
    MoveAxis,
    PairwiseDistance,
    PixelShuffle,
    PixelUnshuffle,
    SubtractMean,
    SwapAxes,
)

RNG = np.random.default_rng(0)


def windowMeans(x, size, includePad):
    """The means of windows around each element of x (h, w), by their definition."""
    half, (h, w) = size // 2, x.shape
    y = np.zeros_like(x)
    for i in range(h):
        for j in range(w):
            part = x[max(i - half, 0) : i + half + 1, max(j - half, 0) : j + half + 1]
            y[i, j] = part.sum() / (size * size if includePad else part.size)
    return y


@pytest.mark.parametrize("includePad", [True, False])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_local_norms_are_their_definition(size, includePad):
    x = RNG.standard_normal((4, 5))
    batch = x[None, None]
    d = x - windowMeans(x, size, includePad)
    assert np.allclose(SubtractMean(size, includePad)(batch)[0, 0], d, rtol=1e-12)
    expected = x / (2 + 0.5 * windowMeans(x * x, size, includePad)) ** 0.75
    assert np.allclose(MapLRN(size, 0.5, includePad=includePad)(batch)[0, 0], expected, rtol=1e-12)
    expected = d / (1.5 + 0.3 * windowMeans(d * d, size, includePad)) ** 0.6
    assert np.allclose(LCN(size, 0.3, 0.6, 1.5, includePad)(batch)[0, 0], expected, rtol=1e-12, atol=1e-14)


def test_an_even_window_is_refused():
    with pytest.raises(ShapeError, match="wanted an odd size, got 4"):
        SubtractMean(4)


@pytest.mark.parametrize("batchDim", [0, 1])
@pytest.mark.parametrize("transpW", [False, True])
@pytest.mark.parametrize(("inmode", "wmode"), [("full", "full"), ("one", "full"), ("full", "one")])
def test_a_group_linear_is_a_product_for_each_group(inmode, wmode, transpW, batchDim):
    module = GroupLinear(3, 4, 2, inmode=inmode, wmode=wmode, batchDim=batchDim, transpW=transpW)
    module.calcMode(np.float64)
    x = RNG.standard_normal((5, 3 if inmode == "full" else 1, 4))
    W = module.W.data.swapaxes(1, 2) if transpW else module.W.data
    module.b.data = RNG.standard_normal(module.b.shape)
    wanted = np.einsum("ngi,gio->ngo", np.broadcast_to(x, (5, 3, 4)), np.broadcast_to(W, (3, 4, 2))) + module.b.data
    y = module(x.swapaxes(0, 1) if batchDim else x)
    assert np.allclose(y.swapaxes(0, 1) if batchDim else y, wanted, rtol=1e-12)


def test_the_largest_come_in_order_and_get_the_gradient():
    x = np.array([[3.0, -1.0, 7.0, 5.0]])
    y, gx = ours(KMaxPool(3, axis=1), [x], np.array([[1.0, 2.0, 3.0]]))
    assert y.tolist() == [[3.0, 5.0, 7.0]] and gx.tolist() == [[1.0, 0.0, 3.0, 2.0]]


def test_smaller_maps_stand_in_the_middle():
    y, g1, g2 = ours(
        DepthConcat(), [np.ones((1, 1, 1, 2)), 2 * np.ones((1, 1, 4, 3))], np.arange(24.0).reshape(1, 2, 4, 3)
    )
    assert y[0, 0].tolist() == [[0, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]] and (y[0, 1] == 2).all()
    assert g1.ravel().tolist() == [3, 4] and g2.ravel().tolist() == list(range(12, 24))


@pytest.mark.parametrize("first", [0, 1, -1])
@pytest.mark.parametrize("second", [0, 2, -2])
def test_axes_are_exchanged_and_moved_as_numpy_does(first, second):
    x = RNG.standard_normal((2, 3, 4))
    assert np.array_equal(SwapAxes(first, second)(x), np.swapaxes(x, first, second))
    assert np.array_equal(MoveAxis(first, second)(x), np.moveaxis(x, first, second))


@pytest.mark.peers
@pytest.mark.parametrize("seed", range(20))
def test_layers_without_weights_are_those_of_torch(seed):
    torch = pytest.importorskip("torch")
    f, rng = torch.nn.functional, np.random.default_rng(seed)
    r, n, c, h, w = (int(k) for k in rng.integers(1, 5, 5))
    draw = lambda *shape: rng.standard_normal(shape)  # noqa: E731
    compare(PixelShuffle(r), lambda x: f.pixel_shuffle(x, r), rng, draw(n, c * r * r, h, w))
    compare(PixelUnshuffle(r), lambda x: f.pixel_unshuffle(x, r), rng, draw(n, c, h * r, w * r))
    compare(ChannelShuffle(r), lambda x: f.channel_shuffle(x, r), rng, draw(n, c * r, h, w))
    p, epsilon = (1, 2, 2.5, 3)[seed % 4], float(rng.uniform(0.01, 0.1))
    distance = lambda a, b: f.pairwise_distance(a, b, p, epsilon, keepdim=bool(seed % 2))  # noqa: E731
    compare(PairwiseDistance(p, epsilon, bool(seed % 2)), distance, rng, draw(n, c), draw(1, c))
    axis = seed % 3
    compare(CosineSimilarity(axis), lambda a, b: f.cosine_similarity(a, b, axis), rng, draw(n, c, h), draw(1, c, h))
    size = (h, int(rng.integers(1, 7)))
    compare(AdaptiveAvgPool(size), lambda x: f.adaptive_avg_pool2d(x, size), rng, draw(n, c, 5, w))
    compare(AdaptiveMaxPool(size), lambda x: f.adaptive_max_pool2d(x, size), rng, draw(n, c, 5, w))


def test_equal_vectors_have_no_distance_and_no_gradient():
    x = np.ones((2, 3))
    y, g1, g2 = ours(PairwiseDistance(2, 0), [x, x], np.ones(2))
    assert not y.any() and not g1.any() and not g2.any()
