"""Integers and booleans in tests: numbers at which floats would fail, and every operation that is exact on them."""

import numpy as np

from puregraph import (
    Add,
    ArgMax,
    ArgMin,
    Cast,
    Concat,
    Gather,
    Graph,
    Input,
    Less,
    Max,
    Min,
    Mod,
    OneHot,
    Pad,
    Slice,
    Sum,
    Transpose,
    Where,
)
from puregraph.graph.pointwise import Pointwise

KINDS = [np.dtype(kind) for kind in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()]
FORMULAS = [
    "a + b",
    "a - b",
    "a * b",
    "-a + b",
    "abs(a) + b",
    "a // b",
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
    "sign(a) * b",
    "2 * a + b * b",
    "a + b > a",
    "a * b == b",
    "a and not b",
    "a // 7 + b % 3",
]
MOVES = {
    "add": lambda x, y: Add().node(x, y),
    "mod": lambda x, y: Mod().node(x, y),
    "where": lambda x, y: Where().node(x > y, x, y),
    "less": lambda x, y: Less().node(x, y),
    "concat": lambda x, y: Concat(axis=1).node(x, y),
    "sum": lambda x: Sum(axis=0).node(x),
    "sum of rows": lambda x: Sum(axis=1).node(x),
    "sum of all": lambda x: Sum().node(x),
    "sum over no axes": lambda x: Sum(axis=()).node(x),
    "max": lambda x: Max(axis=1).node(x),
    "max of all": lambda x: Max(keepdims=True).node(x),
    "min": lambda x: Min(axis=0).node(x),
    "argmax": lambda x: ArgMax(axis=1).node(x),
    "argmin": lambda x: ArgMin(axis=0, keepdims=True).node(x),
    "pad": lambda x: Pad((1, 2)).node(x),
    "slice": lambda x: Slice((slice(1, None), slice(None, None, -1))).node(x),
    "transposed": lambda x, y: Add().node(Transpose((1, 0)).node(x), y),
    "tofloat": lambda x: Cast("float32").node(x),
    "tobool": lambda x: Cast("bool").node(x),
    **{f"to{kind}": lambda x, kind=kind: Cast(kind).node(x) for kind in ("int8", "uint16", "int64", "uint64")},
    "onehot": lambda x: OneHot(3, "int16").node(Cast("int64").node(x > x)),
    "gather": lambda x, i: Gather().node(x, i),
}


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


def randoms(kind, shape):
    """Two arrays of numbers from all over a kind."""
    rng, info = np.random.default_rng(0), None if kind.kind == "b" else np.iinfo(kind)
    return [
        np.asarray(rng.random(shape) < 0.5 if info is None else rng.integers(info.min, info.max, shape, kind, True))
        for _ in "ab"
    ]


def isRefused(formula, dtype):
    """Whether numpy has no such function of booleans."""
    return dtype.kind == "b" and ("-" in formula or "sign" in formula)


def graphOf(make, *arrays):
    """A graph that has what is made of as many inputs."""
    inputs = [Input().node() for _ in arrays]
    return Graph(inputs, make(*inputs))


def casesOf(dtype):
    """What makes a node of its inputs, and their arrays, for every operation that numpy has for a kind, by name."""
    a, b = pairs(dtype)
    for formula in FORMULAS:
        if not isRefused(formula, dtype):
            yield formula, (lambda x, y, formula=formula: Pointwise(formula=formula).node(x, y)), (a, b)
    for name, make in MOVES.items():
        given = (a, np.array([1, 0, -1, 1])) if name == "gather" else (a, b)
        yield name, make, given[: make.__code__.co_argcount - len(make.__defaults__ or ())]
