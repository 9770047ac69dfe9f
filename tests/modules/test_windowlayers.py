"""Windows as columns, resizing by whole factors, windows at random positions, bags of words: next to PyTorch."""

import numpy as np
import pytest
from peers import compare, ours

from puregraph import ArgumentError, Sequential
from puregraph.core.errors import ShapeError
from puregraph.modules import (
    Col2Im,
    Embedder,
    EmbedderBag,
    FractionalMaxPool,
    Unfold,
    Upsample1D,
    Upsample2D,
    Upsample3D,
)

peers = pytest.mark.peers
UPSAMPLES = {1: (Upsample1D, "linear"), 2: (Upsample2D, "bilinear"), 3: (Upsample3D, "trilinear")}


@peers
@pytest.mark.parametrize("seed", range(20))
def test_columns_of_windows_and_their_sum_are_those_of_torch(seed):
    f, rng = pytest.importorskip("torch").nn.functional, np.random.default_rng(seed)
    size, stride, pad, dilation = (tuple(map(int, rng.integers(*ends, 2))) for ends in ((1, 4), (1, 3), (0, 3), (1, 3)))
    n, c, h, w = (int(k) for k in rng.integers((1, 1, 7, 7), (4, 4, 12, 12)))
    options = {"dilation": dilation, "padding": pad, "stride": stride}
    x = rng.standard_normal((n, c, h, w))
    unfold = Unfold(size, stride, pad, dilation)
    compare(unfold, lambda x: f.unfold(x, size, **options), rng, x)
    columns = rng.standard_normal(unfold.dataShapeFrom(x.shape))
    compare(Col2Im((h, w), size, stride, pad, dilation), lambda y: f.fold(y, (h, w), size, **options), rng, columns)


@pytest.mark.parametrize("rank", [1, 3])
def test_columns_of_any_rank_are_slices(rank):
    x = np.random.default_rng(0).standard_normal((2, 3, *(5, 4, 6)[:rank]))
    y = Unfold((2,) * rank)(x)
    first = x[(slice(None), slice(None), *(slice(None, -1),) * rank)]
    last = x[(slice(None), slice(None), *(slice(1, None),) * rank)]
    assert y.shape == (2, 3 * 2**rank, first[0, 0].size)
    assert np.array_equal(y[:, :: 2**rank], first.reshape(2, 3, -1))
    assert np.array_equal(y[:, 2**rank - 1 :: 2**rank], last.reshape(2, 3, -1))


def test_columns_without_sizes_of_axes_or_windows_are_refused():
    with pytest.raises(ShapeError, match="the size of Unfold for each axis, such as"):
        Unfold(3)
    with pytest.raises(ShapeError, match="wanted a length of at least 4"):
        Unfold((4,)).dataShapeFrom((1, 2, 3))
    with pytest.raises(ShapeError, match="wanted 3 windows"):
        Col2Im((4,), (2,)).dataShapeFrom((1, 2, 4))


@peers
@pytest.mark.parametrize("rank", UPSAMPLES)
@pytest.mark.parametrize("seed", range(20))
def test_resizing_by_whole_factors_is_that_of_torch(rank, seed):
    f, rng = pytest.importorskip("torch").nn.functional, np.random.default_rng(seed)
    make, linear = UPSAMPLES[rank]
    scale, x = tuple(map(int, rng.integers(1, 4, rank))), rng.standard_normal(rng.integers(1, 5, 2 + rank))
    factors = tuple(map(float, scale))
    compare(make(scale), lambda x: f.interpolate(x, scale_factor=factors, mode="nearest"), rng, x)
    compare(make(scale, "linear"), lambda x: f.interpolate(x, scale_factor=factors, mode=linear), rng, x)


@peers
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("seed", range(20))
def test_windows_at_random_positions_are_those_of_torch(rank, seed):
    f, rng = pytest.importorskip("torch").nn.functional, np.random.default_rng(seed)
    pool = f.fractional_max_pool2d if rank == 2 else f.fractional_max_pool3d
    size, count = (tuple(map(int, rng.integers(1, 4, rank))) for _ in range(2))
    lengths = [k + m + int(rng.integers(5)) for k, m in zip(size, count)]
    x, samples = rng.standard_normal((2, 3, *lengths)), rng.random((2, 3, rank))

    def theirs(x, samples):  # in two axes the first number is that of the width
        drawn = samples.flip(-1) if rank == 2 else samples
        return pool(x, size, output_size=count, _random_samples=drawn.detach()) + 0 * samples.sum()

    compare(FractionalMaxPool(size, count), theirs, rng, x, samples)


def test_random_windows_repeat_from_their_states_and_reach_the_end():
    pool = FractionalMaxPool(2, ratio=0.6).calcMode(np.float64)
    x = np.arange(50.0).reshape(1, 2, 5, 5)
    first, second = pool(x), pool(x)
    assert first.shape == (1, 2, 3, 3) and first[0, 1, 2, 2] == 49 and (first <= x.max()).all()
    pool.count.data = np.array(0)
    assert np.array_equal(pool(x), first) and np.array_equal(pool(x), second)
    assert (first != second).any()


def test_impossible_windows_at_random_positions_are_refused():
    for options in ({}, {"outsize": 2, "ratio": 0.5}):
        with pytest.raises(ArgumentError, match="wanted either outsize or ratio"):
            FractionalMaxPool(2, **options)
    with pytest.raises(ShapeError, match="wanted 3 windows of 3 along axis 2"):
        FractionalMaxPool(3, outsize=3).dataShapeFrom((1, 1, 4))


@peers
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("seed", range(20))
def test_bags_of_words_are_those_of_torch(mode, seed):
    torch, rng = pytest.importorskip("torch"), np.random.default_rng(seed)
    n, t, words, size = (int(k) for k in rng.integers(1, 7, 4))
    x, weights = rng.integers(-1, words, (n, t)), rng.standard_normal((n, t))
    longest = float(rng.uniform(0.5, 2))

    def theirs(x, *others):
        W, x = torch.cat([others[-1], torch.zeros(1, size, dtype=torch.float64)]), torch.where(x < 0, words, x)
        bag = torch.nn.functional.embedding_bag
        return bag(x, W, mode=mode, padding_idx=words, per_sample_weights=others[0] if len(others) > 1 else None)

    def shortened(x, W):
        norms = W.norm(dim=1, keepdim=True)
        return theirs(x, W * torch.where(norms > longest, longest / norms, 1.0))

    compare(EmbedderBag(words, size, mode), theirs, rng, x)
    compare(EmbedderBag(words, size, mode, maxNorm=longest), shortened, rng, x)
    if mode == "sum":
        compare(EmbedderBag(words, size, mode), theirs, rng, x, weights)


def test_a_bag_of_one_word_is_its_vector_and_one_without_words_is_zero():
    bag, table = EmbedderBag(5, 3), Embedder(5, 3)
    table.W = bag.W
    x = np.array([[1], [4], [-1]])
    for mode in ("sum", "mean", "max"):
        bag.mode = mode
        assert np.array_equal(bag(x), table(x[:, 0])) and not bag(x)[2].any()
        y, gW = ours(bag, [x], np.ones((3, 3)))
        assert gW.sum(axis=1).tolist() == [0, 3, 0, 0, 3]
    assert Sequential(bag).dataShapeFrom(("N", "T")) == ("N", 3)
