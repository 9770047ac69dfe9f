# ruff: noqa: B023 - every check runs before its loop goes on
"""The gradients of kernels on the tape: against central differences."""

import numpy as np
import pytest
from directions import verify
from tapechecks import check, some
from tapechecks import recording as recording

from puregraph.ops.attention.reference import attend, attendGrad
from puregraph.ops.fourier.reference import fourierSum
from puregraph.ops.gather.reference import addAt
from puregraph.ops.gather.writes import putAt, setAt
from puregraph.ops.kernels import (
    convolve,
    convolveData,
    convolveWeight,
    gather,
    maxPool,
    maxPoolGrad,
    meanPool,
    meanPoolGrad,
    putClass,
    scatterAdd,
    takeClass,
)
from puregraph.ops.order.reference import sortAlong
from puregraph.ops.product.einsum import ontoDiagonal
from puregraph.ops.reduction.cumulate import UFUNCS, cumulate
from puregraph.ops.reduction.windowsum import windowSum

LAY = ((2, 1), ((1, 0), (1, 1)), (1, 2), 2)
X, W, G = some(2, 4, 5, 6), some(6, 2, 2, 2), some(2, 6, 3, 6)


def test_convolutions():
    assert convolve(X, W, *LAY).shape == G.shape
    check(lambda x, w: convolve(x, w, *LAY) ** 2, X, W)
    check(lambda g, w: convolveData(g, w, X.shape, *LAY) ** 2, G, W)
    check(lambda g, x: convolveWeight(g, x, (2, 2), *LAY) ** 2, G, X)


def test_pooling():
    x = some(2, 3, 5, 4)
    for size, stride, pad in [(2, 2, (0, 0)), (3, 1, (1, 1)), (2, 3, (1, 0))]:
        check(lambda x: maxPool(x, size, stride, pad)[0] ** 2, x)
        check(lambda x: meanPool(x, size, stride, pad) ** 2, x)
        check(lambda x: meanPool(x, size, stride, pad, False) ** 2, x)
        y, indices = maxPool(x, size, stride, pad)
        check(lambda g: maxPoolGrad(g, indices, x.shape) ** 2, y)
        check(lambda g: meanPoolGrad(g, x.shape, size, stride, pad) ** 2, y)


def test_scattering():
    index, labels = np.array([[0, 2, -1], [2, 2, 1]]), np.array([[0, 2], [-1, 1]])
    check(lambda t: gather(t, index) ** 2, some(3, 2))
    check(lambda g: scatterAdd(g, index, 4) ** 2, some(2, 3, 2))
    check(lambda v: addAt(v, index, 4) ** 2, some(2, 3))
    check(lambda x: takeClass(x, labels) ** 2, some(2, 3, 2))
    check(lambda v: putClass(v, labels, 3) ** 2, some(2, 2))
    check(lambda v: ontoDiagonal(v, "iji", (2, 3, 2)) ** 2, some(2, 3))
    check(lambda v: ontoDiagonal(v, "iji", (2, 3, 2)) ** 2, some(2, 1))
    check(lambda g: putAt(g, ([0, 0, 1],), (3,)) ** 2, some(3))
    check(lambda x: windowSum(x, 1, 2) ** 2, some(2, 4))
    check(lambda x: sortAlong(x, 1, 3)[0] ** 2, some(2, 4))
    for kind in UFUNCS:
        check(lambda x: cumulate(x, 1, kind) ** 2, some(2, 4))


def test_attention():
    mask = np.array([[True, False, True], [True, True, True]])
    for hides, causal in ((None, False), (mask, False), (None, True)):
        check(
            lambda q, k, v: attend(q, k, v, hides, causal, 0.5)[0] ** 2,
            some(1, 2, 2, 3),
            some(1, 1, 3, 3),
            some(1, 1, 3, 2),
        )
    q, k, v = some(1, 1, 2, 3), some(1, 1, 3, 3), some(1, 1, 3, 2)
    y, lse = attend(q, k, v, None, False, 0.5)
    for i in range(3):
        check(
            lambda g: attendGrad(g, q, k, v, None, lse, (g * y).sum(-1, keepdims=True), False, 0.5)[i] ** 2,
            some(1, 1, 2, 2),
        )


@pytest.mark.parametrize("key", [1, (slice(None), 2), (slice(0, 3, 2), slice(1, 3)), ..., (None, 0)], ids=str)
def test_values_that_are_put_into_others(key):
    x = some(3, 4)
    check(lambda a, b: setAt(a, key, b), x, some(*x[key].shape, seed=1))
    check(lambda a, b: setAt(a * a, key, b * b), x, np.array(0.4))


@pytest.mark.parametrize("axes", [(0,), (-1,), (1, 0)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_fourier_sums_have_both_derivatives(axes, sign):
    rng = np.random.default_rng(2)
    verify(rng, lambda x: fourierSum(x, axes, sign) ** 2, rng.normal(size=(3, 5, 2)), near=2e-5)
