"""Copies on a GPU: from any layout to any other, each number as it is."""

import numpy as np
import pytest
from launches import needsEmulator, runAll

from puregraph.ops.cuda.nests.contiguous import copied, packed
from puregraph.ops.cuda.nests.launches import launches
from puregraph.ops.cuda.runtime.launch import isContiguous
from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand

pytestmark = needsEmulator
NCHW, NHWC = (0, 1, 2, 3), (0, 2, 3, 1)


def laid(shape, order, dtype):
    """An array whose axes lie in memory in an order."""
    return np.zeros([shape[a] for a in order], dtype).transpose(np.argsort(order))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("orders", [(NCHW, NHWC), (NHWC, NCHW), (NCHW, (3, 2, 1, 0)), (NCHW, NCHW)], ids=str)
def test_maps_move_between_layouts(rng, dtype, orders):
    if dtype in ("float64", "int32", "uint8") and orders != (NCHW, NHWC):
        return  # a text for each width is enough
    shape = (11, 37, 5, 9)
    x, y = laid(shape, orders[0], dtype), laid(shape, orders[1], dtype)
    x[...] = rng.integers(0, 2, shape) if dtype in ("bool", "uint8") else rng.integers(-(2**10), 2**10, shape)
    if dtype == "int64":
        x += 2**60
    (launch,) = copied(y, x)
    runAll([launch])
    assert launch.entry == ("pointwise" if orders[0] == orders[1] else "tiles")
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("n, m", [(8, 8), (31, 33), (64, 257), (7, 100)])
def test_a_matrix_is_turned(rng, n, m):
    x, y = rng.standard_normal((m, n)).astype("f4").T, np.zeros((n, m), "f4")
    (launch,) = copied(y, x)
    runAll([launch])
    assert launch.entry == ("tiles" if n > 7 else "pointwise")
    np.testing.assert_array_equal(y, x)


def test_what_lies_in_several_orders_meets_in_tiles(rng):
    x, z, b = (rng.standard_normal(s).astype("f4") for s in ((3, 40, 33), (3, 33, 40), (33,)))
    y, t = np.zeros((3, 40, 33), "f4"), np.zeros((3, 33, 40), "f4").transpose(0, 2, 1)
    loads = {"x": (x, (1320, 33, 1)), "z": (z, (1320, 1, 40)), "b": (b, (0, 0, 1))}
    stores = {"y": (y, (1320, 33, 1)), "t": (t, (1320, 1, 40))}
    lines = (("y", Formula("x * z + b")), ("t", Formula("y - axis1")))
    both = [{n: Operand("f32", *o) for n, o in each.items()} for each in (loads, stores)]
    (launch,) = launches(LoopNest(x.shape, both[0], lines, both[1]))
    runAll([launch])
    wanted = x * z.transpose(0, 2, 1) + b
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(t, wanted - np.arange(40, dtype="f4")[:, None])


def test_only_what_has_gaps_is_copied(rng):
    x, z = rng.standard_normal((4, 6)), rng.standard_normal((4, 6))[:, ::2]
    made, (same, whole, nothing) = packed([x, z, None])
    assert same is x and nothing is None and len(made) == 1
    assert isContiguous(whole) and whole.shape == (4, 3)
    y = np.zeros((4, 3))
    runAll([*made, *copied(y, whole)])
    np.testing.assert_array_equal(y, z)
