"""Pooling: known values, PyTorch's values, and what it refuses."""

import numpy as np
import pytest
from peers import compare, ours

from puregraph.core.errors import ShapeError
from puregraph.core.shape import asShape
from puregraph.modules import AvgPool1D, AvgPool2D, AvgPoolNd, GlobalAvgPool, MaxPool1D, MaxPool2D, MaxPoolNd

MAX = {1: MaxPool1D, 2: MaxPool2D, 3: MaxPoolNd}
AVG = {1: AvgPool1D, 2: AvgPool2D, 3: AvgPoolNd}


def test_the_gradient_goes_to_the_maximum():
    x = np.array([[[[1.0, 5.0, 2.0], [4.0, 3.0, 6.0]]]])
    y, gx = ours(MaxPool2D(2, stride=1), [x], np.array([[[[10.0, 100.0]]]]))
    assert y.tolist() == [[[[5, 6]]]] and gx.tolist() == [[[[0, 10, 0], [0, 0, 100]]]]


def test_of_equal_values_the_first_counts():
    y, gx = ours(MaxPool1D(3), [np.ones((1, 1, 3))], np.array([[[7.0]]]))
    assert y.tolist() == [[[1]]] and gx.tolist() == [[[7, 0, 0]]]


def test_padding_is_no_maximum_of_negative_numbers():
    assert MaxPool1D(2, stride=1, pad=1)(np.array([[[-3.0, -5.0]]])).tolist() == [[[-3, -3, -5]]]


def test_nan_is_the_maximum():
    y = MaxPool1D(2)(np.array([[[1.0, np.nan, 2.0, 3.0]]]))
    assert np.isnan(y[0, 0, 0]) and y[0, 0, 1] == 3


def test_the_position_of_the_maximum_is_a_hidden_output():
    y, indices = MaxPool2D(2).updateData(np.arange(16.0).reshape(1, 1, 4, 4))
    assert indices.dtype == np.int32 and indices.tolist() == [[[[5, 7], [13, 15]]]] and y.tolist() == indices.tolist()


def test_padding_counts_as_zeros_or_not_at_all():
    x = np.array([[[2.0, 4.0]]])
    assert AvgPool1D(2, stride=1, pad=1)(x).tolist() == [[[1, 3, 2]]]
    y, gx = ours(AvgPool1D(2, stride=1, pad=1, includePad=False), [x], np.array([[[1.0, 1.0, 1.0]]]))
    assert y.tolist() == [[[2, 3, 4]]] and gx.tolist() == [[[1.5, 1.5]]]


def test_the_stride_is_the_size_unless_given():
    assert MaxPool2D(3).dataShapeFrom((1, 2, 9, 7)) == (1, 2, 3, 2)
    assert AvgPool2D((2, 3)).dataShapeFrom((1, 2, 9, 7)) == (1, 2, 4, 2)
    assert MaxPool2D(3, stride=2, pad=1).dataShapeFrom((1, 64, 112, 112)) == (1, 64, 56, 56)


def test_global_pooling_is_the_mean_of_each_map():
    x = np.arange(12.0).reshape(1, 2, 2, 3)
    y, gx = ours(GlobalAvgPool(), [x], np.array([[6.0, 12.0]]))
    assert y.tolist() == [[2.5, 8.5]]
    assert gx.tolist() == [[[[1] * 3] * 2, [[2] * 3] * 2]]


def test_global_pooling_of_halves_is_summed_in_float32():
    x = np.full((1, 1, 100, 100), 10.0, dtype=np.float16)  # the sum, 100000, is no float16
    assert GlobalAvgPool()(x) == np.float16(10)


def test_shapes_of_symbols():
    x = asShape(("N", "C", "H", "W"))
    assert MaxPool2D(2).dataShapeFrom(x) == ("N", "C", "H//2", "W//2")
    assert AvgPool2D(3, stride=1, pad=1).dataShapeFrom(x) == x
    assert GlobalAvgPool().dataShapeFrom(x) == ("N", "C")


@pytest.mark.parametrize("kind", [MaxPool2D, AvgPool2D])
def test_wrong_inputs_and_options_are_refused(kind):
    with pytest.raises(ShapeError, match=r"wanted \(n, c, height, width\), got \(2, 3, 4, 5, 6\)"):
        kind().dataShapeFrom((2, 3, 4, 5, 6))
    with pytest.raises(ShapeError, match="wanted a height of at least 3 .* use a smaller window or more pad"):
        kind(3).dataShapeFrom((1, 1, 2, 9))
    with pytest.raises(ShapeError, match=r"every side of pad below the size \(3, 2\), got \(1, 2\)"):
        kind((3, 2), pad=(1, 2))
    with pytest.raises(ShapeError, match="stride as a whole number"):
        kind(2, stride=0)


def test_global_pooling_needs_a_place():
    for shape in ((2, 3), (2, 3, 0)):
        with pytest.raises(ShapeError, match=r"wanted \(n, c, \*spatial\), no length 0"):
            GlobalAvgPool().dataShapeFrom(shape)


def options(rng, rank):
    """Random options with the padding that PyTorch allows: the same on both sides, at most half the size."""
    size, stride = (tuple(map(int, rng.integers(1, 5, rank))) for _ in range(2))
    pad = tuple(int(rng.integers(0, k // 2 + 1)) for k in size)
    spatial = [k + int(rng.integers(0, 6)) for k in size]
    return size, stride, pad, rng.standard_normal((2, 3, *spatial))


@pytest.mark.peers
@pytest.mark.parametrize("case", range(24))
def test_the_maximum_is_pytorch_s(case, rng):
    import torch.nn.functional as F

    rank = case % 3 + 1
    size, stride, pad, x = options(rng, rank)
    rule = getattr(F, f"max_pool{rank}d")
    compare(MAX[rank](size, stride, pad), lambda x: rule(x, size, stride, pad), rng, x)


@pytest.mark.peers
@pytest.mark.parametrize("case", range(24))
@pytest.mark.parametrize("includePad", [True, False])
def test_the_mean_is_pytorch_s(case, includePad, rng):
    import torch.nn.functional as F

    rank = case % 3 + 1
    size, stride, pad, x = options(rng, rank)
    rule = getattr(F, f"avg_pool{rank}d")
    pool = AVG[rank](size, stride, pad, includePad)
    compare(pool, lambda x: rule(x, size, stride, pad, False, includePad), rng, x)


@pytest.mark.peers
@pytest.mark.parametrize("case", range(8))
def test_pooling_with_uneven_padding_is_pytorch_s_of_a_padded_map(case, rng):
    import torch.nn.functional as F

    pad = tuple(tuple(map(int, rng.integers(0, 3, 2))) for _ in range(2))
    flat = [side for both in reversed(pad) for side in both]
    x = rng.standard_normal((2, 2, 6, 5))
    lowest = float(x.min()) - 1
    compare(MaxPool2D(3, 2, pad), lambda x: F.max_pool2d(F.pad(x, flat, value=lowest), 3, 2), rng, x)
    compare(AvgPool2D(3, 2, pad), lambda x: F.avg_pool2d(F.pad(x, flat), 3, 2), rng, x)


@pytest.mark.peers
@pytest.mark.parametrize("shape", [(2, 3, 7), (3, 1, 5, 4), (1, 2, 3, 2, 5)])
def test_global_pooling_is_pytorch_s(shape, rng):
    compare(GlobalAvgPool(), lambda x: x.mean(dim=tuple(range(2, x.ndim))), rng, rng.standard_normal(shape))
