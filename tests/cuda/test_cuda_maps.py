"""Convolution and pooling on a GPU, without libraries: in the emulator, against the numpy references."""

import numpy as np
import pytest
from launches import emulated, misplaced, needsEmulator, runAll

from puregraph.ops.convolution.cuda import direct
from puregraph.ops.convolution.cuda.filterlayout import transposed
from puregraph.ops.convolution.reference import convolve, convolveData, convolveWeight
from puregraph.ops.convolution.windowgeometry import window
from puregraph.ops.cuda.runtime.launch import stridesOf
from puregraph.ops.formula import Formula
from puregraph.ops.pooling.reference import maxPool, maxPoolGrad, meanPool, meanPoolGrad
from puregraph.ops.product.cuda.epilogue import EpilogueOperandText, EpilogueText

pytestmark = needsEmulator
FINEST = {"float64": 1e-14, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def first(shape, dtype):
    return np.empty(shape, dtype)


def last(shape, dtype):
    """Maps whose channels lie side by side."""
    n, c, *spatial = shape
    return np.moveaxis(np.empty((n, *spatial, c), dtype), -1, 1)


def filled(rng, lay, dtype, *shape):
    dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype)
    x = lay(shape, dtype)
    x[...] = rng.standard_normal(shape)
    return x


def wide(x):
    """What the reference is given: bfloat16 it does not know."""
    return x.astype("f4") if isinstance(x, np.ndarray) and x.dtype.name == "bfloat16" else x


def compare(kernel, *arguments, lay, **options):
    """A kernel's twin with its reference; the first result of the latter."""
    dtype = arguments[0].dtype.name
    got = emulated(kernel, *arguments, strides=lay, **options)
    wanted = kernel.reference(*map(wide, arguments), **options)
    for one, other in zip(*[x if isinstance(x, tuple) else (x,) for x in (got, wanted)]):
        assert one.shape == other.shape
        room = FINEST[dtype] * max(1.0, np.abs(other[np.isfinite(other)]).max(initial=0))
        np.testing.assert_allclose(one.astype("f8"), other.astype("f8"), rtol=0, atol=room)
    return got[0] if isinstance(got, tuple) else got


CONVOLUTIONS = [
    # dtype, layout, (n, c, o, groups), spatial, size, stride, pad, dilation
    ("float32", last, (2, 12, 20, 1), (9, 7), (3, 3), 1, 1, 1),
    ("float64", first, (1, 4, 6, 2), (3, 7, 5), (2, 3, 1), (1, 2, 2), ((0, 0), (1, 2), (0, 1)), (1, 2, 1)),
    ("bfloat16", last, (2, 16, 24, 1), (11, 6), (3, 3), 2, 1, 1),
    ("float16", first, (3, 3, 8, 1), (33,), (5,), 2, 3, 2),
    ("bfloat16", last, (2, 16, 16, 16), (6, 9), (3, 5), 2, (1, 2), 1),
    ("float16", first, (2, 3, 6, 3), (31,), (3,), 2, 2, 2),
]


def named(x):
    """What stands for an argument in the name of a test, the same in every process."""
    return x.__name__ if callable(x) else str(x)


@pytest.mark.parametrize("dtype, lay, maps, spatial, size, stride, pad, dilation", CONVOLUTIONS, ids=named)
def test_convolutions_of_both_layouts(rng, dtype, lay, maps, spatial, size, stride, pad, dilation):
    n, c, o, groups = maps
    x, W = filled(rng, lay, dtype, n, c, *spatial), filled(rng, first, dtype, o, c // groups, *size)
    options = (stride, pad, dilation, groups)
    y = compare(convolve, x, W, *options, lay=lay)
    grad = filled(rng, lay, dtype, *y.shape)
    compare(convolveData, grad, W, x.shape, *options, lay=lay)
    compare(convolveWeight, grad, x, size, *options, lay=first)


def test_a_convolution_from_any_address(rng):
    x, W = filled(rng, last, "float32", 2, 12, 9, 7), filled(rng, first, "float32", 20, 12, 3, 3)
    shifted = np.moveaxis(misplaced(np.moveaxis(x, 1, -1)), -1, 1)
    compare(convolve, shifted, np.flip(W, (2, 3)), 1, 1, 1, 1, lay=last)


def test_points_are_products_whose_weight_is_summed_in_parts(rng):
    x, grad = filled(rng, last, "float32", 2, 12, 32, 32), filled(rng, last, "float32", 2, 20, 32, 32)
    one = compare(convolveWeight, grad, x, (1, 1), 1, 0, 1, 1, lay=first)
    np.testing.assert_array_equal(emulated(convolveWeight, grad, x, (1, 1), 1, 0, 1, 1), one)


def test_a_tail_sees_the_places_of_each_phase(rng):
    grad, W = filled(rng, last, "bfloat16", 2, 16, 5, 4), filled(rng, last, "bfloat16", 16, 8, 3, 3)
    mask, slopes = filled(rng, last, "bfloat16", 2, 8, 9, 7), filled(rng, last, "float32", 2, 8, 9, 7)
    scale = filled(rng, first, "float32", 1, 8).reshape(8)
    n, c, *places = stridesOf(mask)
    loads = {
        "m": EpilogueOperandText("bf16", mask, (n, *places), (c,)),
        "a": EpilogueOperandText("f32", scale, (0, 0, 0), (1,)),
    }
    stores = {"y": EpilogueOperandText("f32", slopes, (n, *places), (c,))}
    tail = EpilogueText("s", loads, [("y", Formula("where(m > 0, a * s, 0)"))], stores)
    runAll(direct.data(None, grad, W, window((9, 7), 3, 2, 1), 1, tail))
    sums = convolveData.reference(wide(grad), wide(W), mask.shape, 2, 1, 1, 1)
    wanted = np.where(wide(mask) > 0, sums * scale[:, None, None], 0)
    np.testing.assert_allclose(slopes, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_convolutions_of_nothing_and_of_whole_numbers():
    x, W = np.ones((0, 3, 5, 5), "f4"), np.ones((4, 3, 2, 2), "f4")
    assert emulated(convolve, x, W, 1, 0, 1, 1).shape == (0, 4, 4, 4)
    assert emulated(convolveData, np.ones((0, 4, 4, 4), "f4"), W, x.shape, 1, 0, 1, 1).shape == x.shape
    y = np.ones((1, 4, 4, 4), int)
    assert convolve.implementations["cuda"](y, x.astype(int), W.astype(int), 1, 0, 1, 1) is NotImplemented


def peaky(rng, lay, dtype, *shape):
    """Whole numbers that repeat, nan and infinities."""
    x = filled(rng, lay, dtype, *shape)
    values = rng.integers(-3, 3, shape).astype("f4")
    values[rng.random(shape) < 0.05] = np.nan
    values[rng.random(shape) < 0.2] = -np.inf
    x[...] = values
    return x


PEAKS = [
    # dtype, layout, shape, size, stride, pad, dilation
    ("float16", first, (2, 3, 33), 3, 2, 1, 2),
    ("float64", last, (1, 4, 3, 4, 5), 2, 1, 1, 1),
    ("bfloat16", last, (1, 16, 7, 9), (3, 2), (2, 1), ((1, 1), (0, 1)), 1),
]


@pytest.mark.parametrize("dtype, lay, shape, size, stride, pad, dilation", PEAKS, ids=named)
def test_maxima_and_their_gradients(rng, dtype, lay, shape, size, stride, pad, dilation):
    x = peaky(rng, lay, dtype, *shape)
    y, indices = emulated(maxPool, x, size, stride, pad, dilation, strides=lay)
    wanted, places = maxPool.reference(wide(x), size, stride, pad, dilation)
    np.testing.assert_array_equal(y.astype("f8"), wanted.astype("f8"))
    np.testing.assert_array_equal(indices, places)
    grad = filled(rng, lay, dtype, *y.shape)
    compare(maxPoolGrad, grad, indices, x.shape, size, stride, pad, dilation, lay=lay)


def test_the_gradient_of_maxima_whose_windows_are_not_known(rng):
    x = filled(rng, first, "float32", 2, 3, 7, 5)
    y, indices = maxPool.reference(x, 3, 1, 1)
    compare(maxPoolGrad, y, indices, x.shape, lay=last)


MEANS = [
    ("float32", last, (2, 8, 9, 7), (3, 2), (2, 1), ((1, 1), (0, 1)), True),
    ("bfloat16", last, (1, 16, 3, 4, 5), 3, 2, 1, False),
]


@pytest.mark.parametrize("dtype, lay, shape, size, stride, pad, includePad", MEANS, ids=named)
def test_means_and_their_gradients(rng, dtype, lay, shape, size, stride, pad, includePad):
    x = filled(rng, lay, dtype, *shape)
    y = compare(meanPool, x, size, stride, pad, includePad, lay=lay)
    compare(meanPoolGrad, filled(rng, lay, dtype, *y.shape), x.shape, size, stride, pad, includePad, lay=lay)


def test_pools_from_any_address(rng):
    x = filled(rng, last, "float32", 2, 8, 9, 7)
    shifted = np.moveaxis(misplaced(np.moveaxis(x, 1, -1)), -1, 1)
    compare(meanPool, shifted, (3, 2), (2, 1), ((1, 1), (0, 1)), True, lay=last)


@pytest.mark.parametrize(("read", "made"), [("float32", "bfloat16"), ("bfloat16", "float32"), ("float16", "float16")])
def test_filters_are_turned_channels_last_and_back_by_one_launch(rng, read, made):
    shapes = [(5, 3, 7, 7), (64, 33, 3, 3), (257, 1, 1, 5), (1, 31, 2, 2, 3), (2, 8, 1), (0, 4, 3, 3)]
    rows = [filled(rng, first, read, *shape) for shape in shapes]
    lying = [filled(rng, last, made, *shape) for shape in shapes]
    launches = transposed(rows, lying)
    assert [launch.entry for launch in launches] == ["transpose"]
    runAll(launches)
    for x, y in zip(rows, lying):
        np.testing.assert_array_equal(y, x.astype(y.dtype))
    again = [filled(rng, first, read, *shape) for shape in shapes]
    runAll(transposed(lying, again))
    for y, z in zip(lying, again):
        np.testing.assert_array_equal(z, y.astype(z.dtype))
    assert transposed([np.ones((2, 2, 3))], [np.ones((2, 2, 3), "f4")]) is NotImplemented
