"""Compiled steps compute with integers and booleans as numpy does, to the bit, at the ends of every kind."""

import inspect

import numpy as np
import pytest

from puregraph import Add, ArgMax, Cast, Concat, Gather, Graph, Input, Max, Min, Pad, Sub, Sum, Where
from puregraph.native.llvm import jit
from puregraph.pointwise import Pointwise

KINDS = [np.dtype(kind) for kind in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()]
FORMULAS = [
    "a + b",
    "a - b",
    "a * b",
    "-a + b",
    "abs(a) + b",
    "a % b",
    "a == b",
    "a != b",
    "a < b",
    "a <= b",
    "a > b",
    "a >= b",
    "maximum(a, b)",
    "minimum(a, b)",
    "where(a > b, a, b)",
    "relu(a) + b",
    "2 * a + b * b",
    "a + b > a",
    "a and not b",
]


def ends(dtype):
    """Numbers near which a float would not do, and both ends of the kind."""
    if dtype.kind == "b":
        return np.array([False, True])
    info = np.iinfo(dtype)
    some = (0, 1, 2, 3, -1, 7, 2**24, 2**24 + 1, 2**31 - 1, 2**53 + 1, info.min, info.max)
    return np.array([n for n in some if info.min <= n <= info.max], dtype)


def pairs(dtype):
    """Every number beside every other."""
    a, b = np.meshgrid(ends(dtype), ends(dtype))
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


def compare(make, *arrays):
    """What a graph gives, compiled and eagerly; the same to the bit."""
    inputs = [Input().node() for _ in arrays]
    net = Graph(inputs, make(*inputs))
    with np.errstate(all="ignore"):
        wanted = net(*arrays)
        program = net.compile([x.shape for x in arrays], dtypes=[x.dtype for x in arrays])
        found = program.run(*arrays)
    assert found.dtype == wanted.dtype and np.array_equal(found, wanted)
    return wanted, program


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_of_integers_is_exact(formula, dtype):
    a, b = pairs(dtype)
    if dtype.kind == "b" and ("-" in formula or "%" in formula or "2 *" in formula or "relu" in formula):
        return  # numpy has no such function of booleans, or gives integers
    compare(lambda x, y: Pointwise(formula=formula).node(x, y), a, b)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: Add().node(x, y),
        lambda x, y: Where().node(x > y, x, y),
        lambda x, y: Concat(axis=1).node(x, y),
        lambda x: Sum(axis=0).node(x),
        lambda x: Max(axis=1).node(x),
        lambda x: Min(axis=0).node(x),
        lambda x: ArgMax(axis=1).node(x),
        lambda x: Pad((1, 2)).node(x),
        lambda x: Cast("float32").node(x),
        lambda x, y: Cast("int64").node(Add().node(x, y)),
        lambda x: Cast("bool").node(x),
    ],
    ids="add where concat sum max min argmax pad tofloat towide tobool".split(),
)
def test_what_moves_or_reduces_integers_is_exact(make, dtype):
    compare(make, *pairs(dtype)[: len(inspect.signature(make).parameters)])


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_integers_read_by_index_are_exact(dtype):
    index = np.array([1, 0, -1, 1])
    compare(lambda x, i: Gather().node(x, i), pairs(dtype)[0], index)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (17,), (5, 33), (2, 3, 1025)], ids=str)
def test_vectors_of_integers_and_what_is_left_over_are_exact(shape):
    rng = np.random.default_rng(0)
    for kind in ("int32", "int64"):
        info = np.iinfo(kind)
        a, b = (rng.integers(info.min, info.max, shape, kind, endpoint=True) for _ in "ab")
        compare(lambda x, y: Sub().node(x * y, Where().node(x > y, x, y)), np.asarray(a), np.asarray(b))


def test_a_broadcast_and_a_view_of_integers_are_exact():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-(2**62), 2**62, (4, 1, 5)), rng.integers(-(2**62), 2**62, (3, 1))
    compare(lambda x, y: Add().node(x, y), a, b)
    compare(lambda x, y: x[:, 0] * y[1], a, b)


@pytest.mark.skipif(not jit.available(), reason="no llvmlite")
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_the_usual_integers_have_native_code(kind):
    a, b = pairs(np.dtype(kind))
    _, program = compare(lambda x, y: Add().node(x, y), a, b)
    assert "numpy" not in program.table() and "nestcode" in program.table()


def test_integers_beside_floats_are_rounded_as_numpy_rounds_them():
    a = np.array([2**24 + 1, 2**53 + 1, -5])
    b = np.array([0.5, 1.5, 2.5], np.float32)
    compare(lambda x, y: Pointwise(formula="a + b").node(x, y), a, b)
    compare(lambda x, y: Pointwise(formula="where(a > b, a, b)").node(x, y), a, b)
    c = np.array([2**24, 2**24 + 1, 2**24 + 2], np.int32)
    compare(lambda x: Pointwise(formula="a == 16777217").node(x), c)
    compare(lambda x: Pointwise(formula="where(a > 3, 1.5, 0.25)").node(x), c)
