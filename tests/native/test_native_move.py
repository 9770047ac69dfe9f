"""Numbers moved from one order in memory to another, filled, and drawn, are the very bits of numpy."""

import itertools

import numpy as np
import pytest
from natively import needsNative, run

from puregraph.ops.native.nests.copy import fill, stridedCopy
from puregraph.ops.random import reference as random
from puregraph.ops.random.native import uniform

pytestmark = needsNative
KINDS = {"f32": np.float32, "f64": np.float64, "i8": np.int8, "i16": np.float16, "i64": np.int64}


def steps(x):
    return tuple(stride // x.itemsize for stride in x.strides)


def moved(source, target, kind, threads=2):
    run(stridedCopy(kind, source, source.shape, steps(source), target, steps(target)), threads)
    assert np.array_equal(source, target), (source.shape, source.strides, target.strides)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1,), (5,), (33, 70), (3, 17, 40), (2, 3, 16, 32), (2, 3, 4, 5, 6), (1, 40, 1, 9)])
def test_any_order_to_any_order(shape, kind):
    numbers = np.arange(np.prod(shape), dtype=np.int64).astype(KINDS[kind])
    orders = list(itertools.product(itertools.permutations(range(len(shape))), repeat=2))
    for one, other in orders[:: len(orders) // 40 + 1]:
        source = numbers.reshape([shape[a] for a in one]).transpose(np.argsort(one))
        target = np.empty([shape[a] for a in other], dtype=KINDS[kind]).transpose(np.argsort(other))
        moved(source, target, kind)


def test_parts_of_larger_arrays_are_joined():
    whole = np.full((4, 50, 9), -1, dtype=np.float32)
    one, other = (
        np.random.default_rng(1).standard_normal((4, 20, 9)),
        np.random.default_rng(2).standard_normal((4, 9, 30)),
    )
    one, other = one.astype(np.float32), other.astype(np.float32).transpose(0, 2, 1)
    moved(one, whole[:, :20], "f32")
    moved(other, whole[:, 20:], "f32")
    assert np.array_equal(whole, np.concatenate([one, other], axis=1))


def test_strides_of_any_size_and_sign():
    x = np.arange(4000, dtype=np.float32).reshape(40, 100)
    for source in (x[::2, ::3], x[::-1], x[:, ::-1], x.T[::3, 5:], np.broadcast_to(x[0], (30, 100)), x[:, :1] + 0 * x):
        moved(source, np.empty_like(source, order="C"), "f32")
        moved(source, np.empty_like(source, order="F"), "f32")
        moved(source, np.empty((source.shape[0], 2 * source.shape[1]), dtype=np.float32)[:, ::2], "f32")
    repeated = np.broadcast_to(x[:, :1], x.shape)
    moved(repeated, np.empty_like(x), "f32")
    moved(np.broadcast_to(np.float32(3), (50, 60)), np.empty((50, 60), dtype=np.float32), "f32")


def test_nothing_is_moved_of_nothing():
    assert stridedCopy("f32", None, (3, 0), (0, 1), None, (0, 1)) == []


def test_large_transpositions_are_done_in_tasks():
    x = np.arange(300 * 900, dtype=np.float32).reshape(300, 900)
    works = stridedCopy("f32", x, (900, 300), (1, 900), y := np.empty((900, 300), dtype=np.float32), (300, 1))
    assert works[0].tasks > 4
    run(works, 4)
    assert np.array_equal(y, x.T)


@pytest.mark.parametrize("kind, value", [("f32", 1.5), ("f64", -2.5), ("i8", 1), ("i64", -3)])
def test_fill_writes_one_number_everywhere(kind, value):
    for count in (1, 7, 64, 40000):
        y = np.zeros(count + 1, dtype=KINDS[kind])
        run(fill(kind, y, count, value), 2)
        assert (y[:count] == value).all() and y[count] == 0


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("key, counter", [(0, 0), (7, 3), (2**64 - 1, 2**63 + 11), (2**63, 2**64 - 1)])
def test_uniform_numbers_are_those_of_the_reference(kind, key, counter):
    for count in (1, 3, 8, 21, 20000):
        y = np.full(count + 1, 7, dtype=KINDS[kind])
        places = (np.array([n], dtype=np.uint64) for n in (key, counter))
        run(uniform(y, count, *places, kind), 2)
        assert (
            np.array_equal(y[:count], random.uniform.reference((count,), key, counter, KINDS[kind])) and y[count] == 7
        )
