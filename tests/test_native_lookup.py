"""Native gathers, scatters, picks and largest numbers are those of numpy, to the last bit."""

import numpy as np
import pytest
from natively import needsNative, run

from puregraph.kernels import scatter
from puregraph.native import lookup

pytestmark = needsNative


def none():
    return np.zeros(1, dtype=np.int64)


@pytest.mark.parametrize("count, rows, width", [(1, 1, 1), (70, 9, 37), (500, 40, 64), (33, 1000, 130), (5, 7, 1)])
def test_gather_reads_rows_and_zero_for_none(count, rows, width):
    rng = np.random.default_rng(1)
    table = rng.standard_normal((rows, width + 3)).astype(np.float32)[:, :width]
    index, fault = rng.integers(-1, rows, count), none()
    y = np.full((count, width), 7, dtype=np.float32)
    run(lookup.gather(table, table.strides[0] // 4, rows, index, count, y, width, fault), 3)
    assert np.array_equal(y, scatter.gather.reference(table, index)) and fault[0] == 0


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "count, rows, width", [(1, 1, 1), (700, 9, 37), (500, 40, 64), (33, 1000, 130), (50, 7, 1), (300, 20, 384)]
)
def test_scatter_adds_in_order(count, rows, width, threads):
    rng = np.random.default_rng(2)
    grad, index, fault = rng.standard_normal((count, width)).astype(np.float32), rng.integers(-1, rows, count), none()
    table = np.full((rows, width), 7, dtype=np.float32)
    run(lookup.scatterAdd(grad, index, count, table, rows, width, fault), threads)
    assert np.array_equal(table, scatter.scatterAdd.reference(grad, index, rows)) and fault[0] == 0


@pytest.mark.parametrize("shape", [(5, 3), (64, 10), (3, 4, 5, 6), (1, 1), (200, 129)])
def test_classes_are_taken_and_put(shape):
    rng = np.random.default_rng(3)
    samples, classes, inner = shape[0], shape[1], int(np.prod(shape[2:]))
    x, labels = rng.standard_normal(shape).astype(np.float32), rng.integers(-1, classes, (shape[0], *shape[2:]))
    y, dx, fault = np.full(labels.shape, 7, dtype=np.float32), np.full(shape, 7, dtype=np.float32), none()
    run(lookup.takeClass(x, labels, y, samples, classes, inner, fault), 2)
    assert np.array_equal(y, scatter.takeClass.reference(x, labels))
    run(lookup.putClass(y, labels, dx, samples, classes, inner, fault), 2)
    assert np.array_equal(dx, scatter.putClass.reference(y, labels, classes)) and fault[0] == 0


@pytest.mark.parametrize("wrong", [-2, 5, 2**40, -(2**62)])
def test_an_index_out_of_range_is_told_and_harmless(wrong):
    table, index = np.ones((5, 8), dtype=np.float32), np.array([0, wrong, 4])
    y, grown = np.full((3, 8), 7, dtype=np.float32), np.full((5, 8), 7, dtype=np.float32)
    picked, put = np.full(3, 7, dtype=np.float32), np.full((3, 5), 7, dtype=np.float32)
    wide = np.ones((3, 5), dtype=np.float32)
    for works in (
        lambda fault: lookup.gather(table, 8, 5, index, 3, y, 8, fault),
        lambda fault: lookup.scatterAdd(y, index, 3, grown, 5, 8, fault),
        lambda fault: lookup.takeClass(wide, index, picked, 3, 5, 1, fault),
        lambda fault: lookup.putClass(picked, index, put, 3, 5, 1, fault),
    ):
        fault = none()
        run(works(fault))
        assert fault[0] == 1
    assert y.tolist() == [[1] * 8, [0] * 8, [1] * 8] and grown.sum() == 16 and put.sum() == 2
    assert picked.tolist() == [1, 0, 1]


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("width", [1, 2, 10, 16, 17, 31, 100, 1000])
def test_the_largest_is_where_numpy_finds_it(width, least):
    rng = np.random.default_rng(4)
    x = rng.integers(0, 5, (40, width + 2)).astype(np.float32)[:, :width]
    x[1], x[2], x[3] = -np.inf, np.inf, 0
    x[4, width // 2], x[5] = np.nan, np.nan
    x[6, width // 3 :: 5], x[7, -1] = np.nan, np.inf
    y = np.full(40, 77)
    run(lookup.argmax(x, x.strides[0] // 4, y, 40, width, least), 2)
    assert np.array_equal(y, (np.argmin if least else np.argmax)(x, axis=1))
