"""Sorting along an axis in native code gives the elements and indices of numpy's stable sort, to the last bit."""

import numpy as np
import pytest
from natively import needsNative, run
from orderings import AlongAxis

from puregraph.ops.order import native
from puregraph.ops.order.lowering import ELEMENTS
from puregraph.ops.order.reference import sortAlong

pytestmark = needsNative
SIZES = (1, 2, 3, 5, 8, 33, 64, 65, 70, 300)


def steps(x):
    return tuple(s // x.itemsize if n > 1 else 0 for n, s in zip(x.shape, x.strides))


def natively(x, axis, count, largest, laidOut=lambda y: y):
    shape = [count if a == axis % x.ndim else n for a, n in enumerate(x.shape)]
    values, indices = laidOut(np.full(shape, 7, x.dtype)), laidOut(np.full(shape, 7, np.int64))
    lines = native.stridesAlong(x.shape, [steps(x), steps(values), steps(indices)], axis % x.ndim)
    element = ELEMENTS[x.dtype.name]
    run(native.sortAlong(x, values, indices, element, x.shape[axis], count, lines, largest), 2)
    return values, indices


def same(found, wanted):
    return found[0].tobytes() == np.ascontiguousarray(wanted[0]).tobytes() and np.array_equal(found[1], wanted[1])


@pytest.mark.parametrize("part", range(5))
def test_any_layout_axis_and_dtype(part):
    for seed in range(100):
        drawn = AlongAxis([part, seed], SIZES)
        x, largest = drawn.laidOut(drawn.values(drawn.pick(*ELEMENTS))), drawn.isOn()
        n = x.shape[drawn.axis]
        count = drawn.pick(n, int(drawn.rng.integers(1, n + 1)))
        found = natively(x, drawn.axis, count, largest, drawn.laidOut)
        assert same(found, sortAlong.reference(x, drawn.axis, count, largest)), f"{x.shape} {drawn.axis} {x.dtype}"


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_long_lines_of_extreme_numbers(rng, dtype, largest):
    if dtype[0] == "i":
        ends = np.iinfo(dtype)
        x = rng.integers(ends.min, ends.max, (3, 5000), dtype, endpoint=True)
        x[:, :2] = ends.min, ends.max
    else:
        x = rng.integers(0, 1 << 8 * np.dtype(dtype).itemsize - 1, (3, 5000)).astype(f"u{np.dtype(dtype).itemsize}")
        x = (x << 1 | rng.integers(0, 2, x.shape).astype(x.dtype)).view(dtype)  # any bits: nan of both signs, denormals
        x[:, ::7] = rng.choice([0.0, -0.0, np.inf, -np.inf], x[:, ::7].shape)
    for count in (1, 17, 100, 5000):
        assert same(natively(x, 1, count, largest), sortAlong.reference(x, 1, count, largest))
