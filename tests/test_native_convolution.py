"""Native convolutions against the numpy kernels."""

import numpy as np
import pytest
from works import first, last, run

from puregraph.kernels.convolution import convolve, convolveData, convolveWeight
from puregraph.native import convolution, machine
from puregraph.native.geometry import geometry
from puregraph.native.work import Finish

pytestmark = pytest.mark.skipif(not machine.available(), reason="native kernels cannot be compiled here")

# n, c, o, spatial, size, stride, pad, dilation, groups
CASES = {
    "plain": (2, 16, 32, (8, 9), (3, 3), 1, 1, 1, 1),
    "valid": (2, 8, 16, (9, 10), (3, 3), 1, 0, 1, 1),
    "point": (3, 24, 40, (5, 7), (1, 1), 1, 0, 1, 1),
    "pointStride": (2, 16, 24, (9, 8), (1, 1), 2, 0, 1, 1),
    "stride": (2, 16, 16, (11, 14), (3, 3), 2, 1, 1, 1),
    "stride3": (1, 5, 7, (13, 16), (4, 2), 3, (1, 0), 1, 1),
    "uneven": (2, 3, 6, (9, 7), (3, 5), (2, 1), ((1, 2), (0, 3)), 1, 1),
    "dilated": (1, 8, 12, (12, 13), (3, 3), 1, 2, 2, 1),
    "dilatedStride": (1, 6, 8, (13, 12), (3, 3), (2, 3), 2, (3, 2), 1),
    "groups": (2, 12, 24, (7, 7), (3, 3), 1, 1, 1, 3),
    "groups2": (2, 32, 32, (6, 6), (3, 3), 2, 1, 1, 8),
    "first": (2, 3, 64, (30, 29), (7, 7), 2, 3, 1, 1),
    "firstLarge": (2, 3, 32, (64, 66), (7, 7), 2, 3, 1, 1),
    "fewLarge": (2, 5, 24, (60, 40), (3, 3), 1, 1, 1, 1),
    "lenet1": (3, 1, 6, (28, 28), (5, 5), 1, 0, 1, 1),
    "lenet2": (3, 6, 16, (12, 12), (5, 5), 1, 0, 1, 1),
    "one": (2, 1, 1, (6, 5), (3, 3), 1, 1, 1, 1),
    "wide": (1, 20, 100, (5, 33), (3, 3), 1, 1, 1, 1),
    "deep": (1, 512, 64, (4, 7), (3, 3), 1, 1, 1, 1),
    "bigPad": (1, 4, 8, (3, 3), (5, 5), 1, 4, 1, 1),
    "wholeMap": (4, 16, 10, (5, 5), (5, 5), 1, 0, 1, 1),
    "gap": (1, 4, 4, (9, 9), (2, 2), 4, 0, 1, 1),
    "line": (3, 8, 16, (21,), (5,), 2, 2, 1, 1),
    "cube": (2, 4, 8, (5, 6, 7), (3, 2, 3), (1, 2, 1), ((1, 1), (0, 1), (2, 0)), 1, 1),
    "cubeDilated": (1, 3, 5, (7, 6, 8), (2, 3, 2), (2, 1, 2), 1, (2, 1, 3), 1),
    "depthwise": (2, 24, 24, (9, 11), (3, 3), 1, 1, 1, 24),
    "depthwiseStride": (2, 40, 40, (13, 12), (3, 3), 2, 1, 1, 40),
    "depthwise5": (1, 16, 16, (12, 23), (5, 5), 1, 2, 1, 16),
    "depthwise5Stride": (2, 37, 37, (11, 10), (5, 5), 2, 2, 1, 37),
    "depthwiseOdd": (1, 5, 5, (7, 9), (2, 3), (3, 1), ((0, 1), (2, 1)), (2, 3), 5),
    "depthwiseCube": (2, 18, 18, (5, 6, 7), (3, 2, 3), (2, 1, 2), 1, (1, 2, 1), 18),
    "depthwiseLine": (2, 32, 32, (19,), (7,), 1, 3, 1, 32),
    "square": (2, 32, 48, (32, 32), (3, 3), 1, 1, 1, 1),
    "squareValid": (3, 16, 32, (27, 19), (3, 3), 1, 0, 1, 1),
    "squareUneven": (2, 48, 16, (21, 30), (3, 3), 1, ((2, 1), (0, 2)), 1, 1),
    "squareSmall": (16, 64, 64, (8, 8), (3, 3), 1, 1, 1, 1),
    "multiplied": (1, 6, 18, (6, 6), (3, 3), 1, 1, 1, 6),
}


def arrays(name, seed=0):
    n, c, o, spatial, size, stride, pad, dilation, groups = CASES[name]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, c, *spatial)).astype("f")
    W = rng.standard_normal((o, c // groups, *size)).astype("f")
    g = geometry(x.shape, W.shape, stride, pad, dilation, groups)
    rank = len(size)
    pads = tuple((p, p) if np.ndim(p) == 0 else p for p in ((pad,) * rank if np.ndim(pad) == 0 else pad))
    return x, W, g, (stride, pads, dilation, groups)


def both(test):
    """Term by term, and as fast as may be."""
    return pytest.mark.parametrize("isPlain", [True, False], ids=["plain", "fast"])(test)


def close(a, b):
    scale = np.abs(b).max() + 1e-6
    np.testing.assert_allclose(a / scale, b / scale, atol=2e-5)


def guarded(x, extra=64):
    """The same numbers between NaNs, which spoil what reads beyond them."""
    room = np.full(x.size + 2 * extra, np.nan, x.dtype)
    room[extra : extra + x.size] = x.reshape(-1)
    return room, room[extra : extra + x.size].reshape(x.shape)


@pytest.mark.parametrize("name", CASES)
@both
def test_forward_is_the_convolution(name, isPlain):
    x, W, g, options = arrays(name)
    g = g._replace(isPlain=isPlain)
    wanted = convolve(x, W, *options)
    packed = np.full(convolution.forwardRoom(g), np.nan, "f")
    keep, given = guarded(last(x))
    room, y = guarded(np.empty(last(wanted).shape, "f"))
    y[...] = np.nan
    run(convolution.packForward(W, packed, g))
    run(convolution.forward(given, packed, Finish(y, g.o), g))
    close(first(y), wanted)
    assert np.isnan(room[:64]).all() and np.isnan(room[-64:]).all()


@pytest.mark.parametrize("name", CASES)
@both
def test_data_gradient_is_the_adjoint(name, isPlain):
    x, W, g, options = arrays(name)
    g = g._replace(isPlain=isPlain)
    grad = np.random.default_rng(1).standard_normal(convolve(x, W, *options).shape).astype("f")
    wanted = convolveData(grad, W, x.shape, *options)
    packed = np.full(convolution.dataRoom(g), np.nan, "f")
    keep, given = guarded(last(grad))
    room, dx = guarded(np.empty(last(x).shape, "f"))
    dx[...] = np.nan
    run(convolution.packData(W, packed, g))
    run(convolution.dataGradient(given, packed, Finish(dx, g.c), g))
    close(first(dx), wanted)
    assert np.isnan(room[:64]).all() and np.isnan(room[-64:]).all()


@pytest.mark.parametrize("name", CASES)
@both
def test_weight_gradient_is_the_adjoint(name, isPlain):
    x, W, g, options = arrays(name)
    g = g._replace(isPlain=isPlain)
    grad = np.random.default_rng(1).standard_normal(convolve(x, W, *options).shape).astype("f")
    wanted = convolveWeight(grad, x, W.shape[2:], *options)
    keep, given = guarded(last(grad))
    kept, inputs = guarded(last(x))
    room, dW = guarded(np.full(W.shape, np.nan, "f"))
    parts = np.full(convolution.weightRoom(g), np.nan, "f")
    run(convolution.weightGradient(given, inputs, dW, parts, g))
    close(dW, wanted)
    assert np.isnan(room[:64]).all() and np.isnan(room[-64:]).all()
