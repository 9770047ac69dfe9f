"""Reading rows and classes by index and adding gradients back, on a GPU: in the emulator, against the references."""

import numpy as np
import pytest
from launches import emulated, misplaced, needsEmulator, runAll

from puregraph.ops.gather.reference import addAt, gather, putClass, scatterAdd, scattered, takeClass

pytestmark = needsEmulator
SUMS = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-13}


def strided(x):
    """The same numbers with gaps, the axes in the reverse order in memory."""
    room = np.full((*x.shape[::-1], 3), -9, x.dtype)
    view = room[..., 1].T
    view[...] = x
    return view


WIDTHS = [
    ("float16", (8,)),
    ("float16", (257,)),
    *(("float32", width) for width in [(), (1,), (7,), (8,), (3, 4), (257,)]),
]


@pytest.mark.parametrize(("dtype", "width"), [*WIDTHS, ("float64", (7,))], ids=str)
def test_gather_reads_rows(rng, dtype, width):
    table = rng.standard_normal((33, *width)).astype(dtype)
    index = rng.integers(-1, 33, (5, 7))
    np.testing.assert_array_equal(emulated(gather, table, index), gather.reference(table, index))


@pytest.mark.parametrize("place", ["index", "table", "strides"])
def test_gather_reads_from_anywhere(rng, place):
    table, index = rng.standard_normal((9, 8)).astype("f4"), rng.integers(0, 9, 31).astype("i4")
    given = (misplaced(table), index) if place == "table" else (table, misplaced(index))
    if place == "strides":
        given = np.asfortranarray(table), np.repeat(index, 3)[::3]
    np.testing.assert_array_equal(emulated(gather, *given), table[index])


def test_gather_of_nothing():
    assert emulated(gather, np.ones((3, 2), "f4"), np.zeros((0,), "i8")).shape == (0, 2)
    assert emulated(gather, np.ones((0, 2), "f4"), np.full(3, -1)).tolist() == [[0, 0]] * 3


def test_what_is_out_of_range_is_nan_and_adds_nothing():
    index, x = np.array([0, 3, -1, -2]), np.ones((3, 4), "f4")
    np.testing.assert_array_equal(emulated(gather, x, index)[:, 0], [1, np.nan, 0, np.nan])
    np.testing.assert_array_equal(emulated(takeClass, np.ones((4, 3), "f4"), index), [1, np.nan, 0, np.nan])
    np.testing.assert_array_equal(emulated(scatterAdd, np.ones((4, 4), "f4"), index, 3)[:, 0], [1, 0, 0])
    assert emulated(putClass, np.ones(4, "f2"), index.astype("i4"), 8).sum() == 2  # 0 and 3


@pytest.mark.parametrize(
    ("dtype", "index", "rows", "width"),
    [
        ("float32", (1,), 1, (8,)),
        ("float32", (31,), 33, (8,)),
        ("float32", (257, 3), 257, (4,)),
        ("float32", (5000,), 300, (4,)),
        ("float32", (4200,), 2, (8,)),
        ("float32", (9,), 9000, (4,)),
        ("float16", (33,), 4, (3, 11)),
        ("float16", (600,), 5, ()),
        ("float64", (257,), 33, (7,)),
    ],
    ids=str,
)
def test_gradients_add_up_by_rows(rng, dtype, index, rows, width):
    grad = rng.standard_normal((*index, *width)).astype(dtype)
    index = rng.integers(-1, rows, index)
    found, wanted = emulated(scatterAdd, grad, index, rows), scatterAdd.reference(grad, index, rows)
    np.testing.assert_allclose(found, wanted, SUMS[dtype], 30 * SUMS[dtype])


def test_rows_that_occur_often_are_summed_window_by_window(rng):
    index = np.repeat([7, 2, 7, 5, 0], [300, 1, 40, 8, 77])
    grad = rng.integers(-9, 9, (len(index), 8)).astype("f4")
    np.testing.assert_array_equal(emulated(scatterAdd, grad, index, 9), scatterAdd.reference(grad, index, 9))


@pytest.mark.parametrize("isInPlace", [True, False])
def test_gradients_are_added_to_what_a_table_holds(rng, isInPlace):
    index = np.repeat([7, 2, 7, 5, 0], [300, 1, 40, 8, 77])
    grad, base = rng.integers(-9, 9, (len(index), 8)).astype("f4"), rng.integers(-9, 9, (9, 8)).astype("f4")
    wanted = base + scatterAdd.reference(grad, index, 9)
    found = base if isInPlace else np.full_like(base, np.nan)
    runAll(scattered(found, base, grad, index, 9))
    np.testing.assert_array_equal(found, wanted)


def test_gradients_are_added_from_anywhere(rng):
    grad, index = rng.integers(-9, 9, (6, 5, 4)).astype("f4"), rng.integers(-1, 7, (6, 5))
    room = np.full((5, 6, 7), -9.0, "f4")
    room[..., 2:6] = grad.swapaxes(0, 1)
    found = emulated(scatterAdd, room.swapaxes(0, 1)[..., 2:6], strided(index), 7)
    np.testing.assert_array_equal(found, scatterAdd.reference(grad, index, 7))
    for each in (strided(grad), np.broadcast_to(grad[:, :1, :1], grad.shape)):
        found = emulated(scatterAdd, each, index, 7)
        np.testing.assert_array_equal(found, scatterAdd.reference(each, index, 7))


def test_gradients_of_nothing():
    assert emulated(scatterAdd, np.zeros((0, 4), "f4"), np.zeros(0, "i8"), 3).tolist() == [[0] * 4] * 3
    assert emulated(scatterAdd, np.zeros((5, 0), "f4"), np.zeros(5, "i8"), 3).shape == (3, 0)


@pytest.mark.parametrize("shape", [(1, 1, 1), (9, 257, 33), (33, 31, 5), (3, 0, 4)], ids=str)
def test_values_are_added_within_rows_in_order(rng, shape):
    rows, count, size = shape
    values, index = rng.standard_normal((rows, count)).astype("f4"), rng.integers(-1, size, (rows, count))
    wanted = addAt.reference(values, index, size)
    np.testing.assert_array_equal(emulated(addAt, values, index, size), wanted)
    if count == 31:
        np.testing.assert_array_equal(emulated(addAt, strided(values), strided(index), size), wanted)


CLASSES = [
    ("float16", "i4", (257, 8)),
    ("float64", "i8", (3, 33, 7)),
    ("float32", "i8", (2, 3, 4, 8)),
]


@pytest.mark.parametrize(("dtype", "kind", "shape"), CLASSES, ids=str)
def test_classes_are_taken_and_put(rng, dtype, kind, shape):
    x = rng.standard_normal(shape).astype(dtype)
    labels = rng.integers(-1, shape[1], (shape[0], *shape[2:])).astype(kind)
    taken = takeClass.reference(x, labels)
    np.testing.assert_array_equal(emulated(takeClass, x, labels), taken)
    np.testing.assert_array_equal(
        emulated(putClass, taken, labels, shape[1]), putClass.reference(taken, labels, shape[1])
    )


def test_classes_are_taken_from_and_put_anywhere(rng):
    x, labels = rng.standard_normal((3, 5, 7)).astype("f8"), rng.integers(-1, 5, (3, 7))
    taken = takeClass.reference(x, labels)

    def gaps(shape, dtype):
        return strided(np.empty(shape, dtype))

    np.testing.assert_array_equal(emulated(takeClass, strided(x), strided(labels), strides=gaps), taken)
    found = emulated(putClass, strided(taken), strided(labels), 5, strides=gaps)
    np.testing.assert_array_equal(found, putClass.reference(taken, labels, 5))


def test_classes_are_put_at_any_address(rng):
    values, labels = rng.standard_normal(257).astype("f2"), rng.integers(-1, 8, 257).astype("i4")
    found = emulated(putClass, values, labels, 8, strides=lambda *like: misplaced(np.empty(*like)))
    np.testing.assert_array_equal(found, putClass.reference(values, labels, 8))
