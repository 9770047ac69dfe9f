"""Elements read and written by an index along an axis in native code: numpy's bits, for any layout, axis and dtype."""

import numpy as np
import pytest
from alongcases import Along, same
from natively import needsNative, run

from puregraph.ops.gather import alonglines as native
from puregraph.ops.gather.alongaxis import KINDS, putAlong, takeAlong
from puregraph.ops.gather.lowering import ELEMENTS

pytestmark = [needsNative, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
BYSIZE = {1: "i8", 2: "i16", 4: "f32", 8: "f64"}
DTYPES = [*ELEMENTS, "int8", "bool", "int16"]


def steps(x):
    return tuple(s // x.itemsize if n > 1 else 0 for n, s in zip(x.shape, x.strides))


def taken(x, index, y, axis, threads=2):
    """Put x at the index into y; the flag."""
    fault, axis = np.zeros(1, np.int64), axis % x.ndim
    along = native.stepsOf(y.shape, [steps(a) for a in (x, index, y)], axis)
    run(native.takeAlong(x, index, y, BYSIZE[x.itemsize], x.shape[axis], along, fault), threads)
    return int(fault[0])


def put(y, index, updates, axis, kind, threads=2):
    """Write the updates to y; the flag."""
    fault, axis = np.zeros(1, np.int64), axis % y.ndim
    along = native.stepsOf(index.shape, [steps(a) for a in (y, index, updates)], axis)
    element = BYSIZE[y.itemsize] if kind == "set" else ELEMENTS[y.dtype.name]
    run(native.putAlong(y, index, updates, kind, element, y.shape[axis], along, fault), threads)
    return int(fault[0])


@pytest.mark.parametrize("part", range(5))
def test_reading_of_any_layout_axis_and_dtype(part):
    for seed in range(100):
        drawn = Along([part, seed], DTYPES[seed % len(DTYPES)])
        y = drawn.room(drawn.index.shape)
        assert taken(drawn.x, drawn.index, y, drawn.axis) == 0
        assert same(y, np.take_along_axis(drawn.x, drawn.index, drawn.axis)), (part, seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", range(5))
def test_writing_of_any_layout_axis_and_dtype(kind, part):
    dtypes = DTYPES if kind == "set" else list(ELEMENTS)
    for seed in range(100):
        drawn = Along([part, seed, 1], dtypes[seed % len(dtypes)], isShort=True)
        y = drawn.room(drawn.shape)
        y[...] = drawn.x
        with np.errstate(all="ignore"):
            wanted = putAlong.reference(drawn.x, drawn.index, drawn.updates, drawn.axis, kind)
        assert put(y, drawn.index, drawn.updates, drawn.axis, kind, 1 + seed % 4) == 0
        if kind in ("minimum", "maximum"):  # of equal zeros numpy may keep either
            wanted, y = wanted + 0, y + 0
        assert same(y, wanted), (part, seed)


@pytest.mark.parametrize("shape", [(100, 64), (4000, 1), (3, 200), (7, 300, 5)], ids=str)
def test_sums_do_not_depend_on_threads(rng, shape):
    index = rng.integers(0, shape[0], (5000, *[1] * (len(shape) - 1)))
    updates = rng.standard_normal((5000, *shape[1:])).astype(np.float32)
    sums = []
    for threads in (1, 2, 3, 4):
        sums.append(np.zeros(shape, np.float32))
        put(sums[-1], np.broadcast_to(index, updates.shape), updates, 0, "add", threads)
    assert len({y.tobytes() for y in sums}) == 1
    wanted = putAlong.reference(np.zeros(shape, np.float32), np.broadcast_to(index, updates.shape), updates, 0, "add")
    assert sums[0].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("wrong", [5, -6, 1 << 40])
def test_an_index_out_of_range_is_flagged_and_nothing_is_written_there(wrong):
    x = np.arange(10.0).reshape(5, 2)
    index = np.array([[0, 1], [wrong, 2]])
    assert taken(x, index, np.empty((2, 2)), 0) == 1
    y = x.copy()
    assert put(y, index, np.full((2, 2), 7.0), 0, "set") == 1
    y[0, 0] = y[1, 1] = y[2, 1] = 0
    x[0, 0] = x[1, 1] = x[2, 1] = 0
    assert np.array_equal(x, y)


def test_indices_from_the_end(rng):
    index, y, fault = rng.integers(-9, 9, 5000), np.empty(2500, np.int64), np.zeros(1, np.int64)
    run(native.wrapIndex(index, 2, y, 2500, 9, fault), 2)
    assert np.array_equal(y, index[::2] % 9) and not fault[0]
    run(native.wrapIndex(index, 1, y, 2500, 8, fault))
    assert fault[0]


def test_the_reference_refuses_what_does_not_fit():
    with pytest.raises(IndexError, match="wanted indices from -3 to 2, got -4 to 1"):
        takeAlong(np.zeros((3, 2)), np.array([[1, -4]]), 0)
