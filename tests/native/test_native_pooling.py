"""Native pooling against the numpy kernels."""

import numpy as np
import pytest
from natively import REALS, first, last, needsNative, rounding, run

from puregraph.ops.convolution.native.geometry import geometry
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec
from puregraph.ops.pooling import native as pooling
from puregraph.ops.pooling.reference import maxPool, maxPoolGrad, meanPool, meanPoolGrad

pytestmark = needsNative

# n, c, spatial, size, stride, pad, dilation
CASES = {
    "two": (2, 16, (8, 10), (2, 2), 2, 0, 1),
    "odd": (2, 7, (9, 7), (2, 2), 2, 0, 1),
    "overlapping": (2, 24, (11, 13), (3, 3), 2, 1, 1),
    "dense": (1, 33, (9, 8), (3, 3), 1, 1, 1),
    "uneven": (2, 5, (9, 12), (3, 2), (2, 3), ((2, 1), (0, 1)), 1),
    "dilated": (1, 20, (12, 13), (3, 2), (2, 1), (1, 0), (2, 3)),
    "gaps": (1, 16, (11, 11), (2, 2), 4, 0, 1),
    "whole": (3, 40, (7, 7), (7, 7), 7, 0, 1),
    "large": (1, 8, (20, 23), (7, 9), (3, 2), ((3, 2), (4, 4)), 1),
    "long": (2, 12, (6, 40), (2, 20), (1, 3), ((0, 0), (9, 5)), 1),
    "longGaps": (1, 9, (16, 36), (1, 35), 2, 0, 1),
    "line": (2, 18, (21,), (4,), 3, 1, 1),
    "patches": (2, 9, (24, 16), (8, 8), 8, 0, 1),  # here and below the gradient has more than 16 phases
    "manyPhases": (1, 16, (33, 29), (7, 4), (5, 6), ((3, 2), (1, 2)), 1),
    "phasesDilated": (1, 20, (34, 30), (3, 2), (6, 5), (1, 0), (2, 3)),
    "phasesGaps": (1, 8, (31, 40), (2, 3), (7, 9), 0, 1),
    "cube": (2, 10, (5, 6, 7), (2, 3, 2), (1, 2, 2), ((1, 0), (1, 1), (0, 1)), 1),
}


@pytest.fixture(autouse=True, params=["f4", "f8"])
def dtype(request):
    """Every test runs in float32 and in float64."""
    global DTYPE
    DTYPE = np.dtype(request.param)


def arrays(name, seed=0):
    n, c, spatial, size, stride, pad, dilation = CASES[name]
    rank = len(size)
    x = np.random.default_rng(seed).standard_normal((n, c, *spatial)).astype(DTYPE)
    stride, dilation = (v if isinstance(v, tuple) else (v,) * rank for v in (stride, dilation))
    pad = tuple((p, p) if np.ndim(p) == 0 else p for p in ((pad,) * rank if np.ndim(pad) == 0 else pad))
    return (
        x,
        geometry(x.shape, (c, 1, *size), stride, pad, dilation, c, real=REALS[DTYPE.itemsize]),
        (size, stride, pad, dilation),
    )


def special(x, seed=3):
    """Few different values, so that many are equal, some of them NaN or infinite."""
    rng = np.random.default_rng(seed)
    return rng.choice(np.array([0, 1, -1, 2, np.nan, -np.inf, np.inf, -0.0], DTYPE), x.shape, p=[0.2] * 4 + [0.05] * 4)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("isSpecial", [False, True])
def test_maximum_and_where_it_is(name, isSpecial):
    x, g, (size, stride, pad, dilation) = arrays(name)
    if isSpecial:
        x = special(x)
    wanted, places = maxPool(x, size, stride, pad, dilation)
    y = np.full(last(wanted).shape, 99, DTYPE)
    indices = np.full(y.shape, -9, np.int32)
    run(pooling.maxForward(last(x), indices, EpilogueSpec(y, g.c, (), REALS[DTYPE.itemsize]), g), 2)
    np.testing.assert_array_equal(first(y), wanted)
    np.testing.assert_array_equal(first(indices), places)
    again = np.full(y.shape, 99, DTYPE)
    run(pooling.maxForward(last(x), None, EpilogueSpec(again, g.c, (), REALS[DTYPE.itemsize]), g))
    np.testing.assert_array_equal(again, y)


def test_a_window_of_padding_alone_gives_minus_infinity_and_minus_one():
    x = np.ones((1, 16, 3, 3), DTYPE)
    g = geometry(x.shape, (16, 1, 2, 2), 2, (2, 3), 1, 16, real=REALS[DTYPE.itemsize])
    wanted, places = maxPool(x, (2, 2), (2, 2), ((2, 2), (3, 3)), 1)
    g = geometry(x.shape, (16, 1, 2, 2), 2, ((2, 2), (3, 3)), 1, 16, real=REALS[DTYPE.itemsize])
    assert (places == -1).any()
    y, indices = np.zeros(last(wanted).shape, DTYPE), np.zeros(last(wanted).shape, np.int32)
    run(pooling.maxForward(last(x), indices, EpilogueSpec(y, 16, (), REALS[DTYPE.itemsize]), g))
    np.testing.assert_array_equal(first(y), wanted)
    np.testing.assert_array_equal(first(indices), places)


@pytest.mark.parametrize("name", CASES)
def test_gradient_of_the_maximum(name):
    x, g, (size, stride, pad, dilation) = arrays(name)
    x = special(x)
    y, indices = maxPool(x, size, stride, pad, dilation)
    grad = np.random.default_rng(1).standard_normal(y.shape).astype(DTYPE)
    dx = np.full(last(x).shape, np.nan, DTYPE)
    run(pooling.maxGradient(last(grad), last(indices), EpilogueSpec(dx, g.c, (), REALS[DTYPE.itemsize]), g), 3)
    np.testing.assert_allclose(
        first(dx), maxPoolGrad(grad, indices, x.shape), rtol=rounding(1e-5, DTYPE), atol=rounding(1e-6, DTYPE)
    )


MEANS = [name for name in CASES if not name.lower().endswith("dilated")]


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("includePad", [False, True])
def test_mean(name, includePad):
    x, g, (size, stride, pad, _) = arrays(name)
    wanted = meanPool(x, size, stride, pad, includePad)
    y = np.full(last(wanted).shape, np.nan, DTYPE)
    run(pooling.meanForward(last(x), EpilogueSpec(y, g.c, (), REALS[DTYPE.itemsize]), g, includePad))
    np.testing.assert_allclose(first(y), wanted, rtol=rounding(1e-4, DTYPE), atol=rounding(1e-6, DTYPE))


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("includePad", [False, True])
def test_gradient_of_the_mean(name, includePad):
    x, g, (size, stride, pad, _) = arrays(name)
    y = meanPool(x, size, stride, pad, includePad)
    grad = np.random.default_rng(1).standard_normal(y.shape).astype(DTYPE)
    wanted = meanPoolGrad(grad, x.shape, size, stride, pad, includePad)
    dx = np.full(last(x).shape, np.nan, DTYPE)
    run(pooling.meanGradient(last(grad), EpilogueSpec(dx, g.c, (), REALS[DTYPE.itemsize]), g, includePad))
    np.testing.assert_allclose(first(dx), wanted, rtol=rounding(1e-4, DTYPE), atol=rounding(1e-6, DTYPE))


def test_pixels_may_lie_further_apart():
    rng = np.random.default_rng(2)
    wide = rng.standard_normal((2, 6, 6, 40)).astype(DTYPE)
    x = wide[..., 8:28]
    g = geometry((2, 20, 6, 6), (20, 1, 2, 2), 2, 0, 1, 20, real=REALS[DTYPE.itemsize])
    wanted, _ = maxPool(first(x), (2, 2), (2, 2), ((0, 0), (0, 0)), 1)
    y = np.full((2, 3, 3, 48), np.nan, DTYPE)
    run(pooling.maxForward(x, None, EpilogueSpec(y, 48, (), REALS[DTYPE.itemsize]), g, 40))
    np.testing.assert_array_equal(first(y[..., :20]), wanted)
    assert np.isnan(y[..., 20:]).all()


def gradientCode(how, stride):
    """The LLVM code of the gradient of windows that do not overlap."""
    g = geometry((1, 8, 96, 96), (8, 1, stride, stride), stride, 0, 1, 8, real=REALS[DTYPE.itemsize])
    dx, grad = np.zeros((1, 96, 96, 8), DTYPE), np.zeros((1, 96 // stride, 96 // stride, 8), DTYPE)
    epilogue = EpilogueSpec(dx, 8, (), REALS[DTYPE.itemsize])
    indices = [grad.astype(np.int32)] if how is pooling.maxGradient else []
    (work,) = how(grad, *indices, epilogue, g)
    code = IRBuilder()
    work.write(code)
    return code.text()


@pytest.mark.parametrize("how", [pooling.maxGradient, pooling.meanGradient])
def test_code_does_not_grow_with_the_stride(how):
    assert len(gradientCode(how, 32)) < 1.1 * len(gradientCode(how, 6))
