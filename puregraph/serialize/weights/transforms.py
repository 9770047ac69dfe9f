"""Transforms: convert arrays of a file to arrays of a graph, and back; shapes are known ahead.

name              arrays of the file       arrays of the graph
same              a                        a
transpose         a                        a with its axes reversed
permute(*axes)    a                        a with its axes in this order
squeeze(axis)     a with an axis of 1      a without it
scale(factor)     a                        a times a number
gates(*order)     equal blocks             the same blocks in another order
join(axis)        several                  one, concatenated
split(axis)       one, concatenated        several
add               several                  their sum, written back as (sum, 0, ...)

`transpose >> join(-1)` does one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from puregraph.core.errors import CheckpointError, show

Shape = tuple[int, ...]
Arrays = list[np.ndarray]


class Transform:
    """A change of arrays with its inverse.

    `text`        the Python that makes it
    `fileShapes`  (shapes in the graph, count of arrays in the file) -> their shapes there
    `toGraph`     (arrays of the file, shapes in the graph) -> arrays of the graph
    `toFile`      (arrays of the graph, count of arrays in the file) -> arrays of the file
    """

    def __init__(
        self,
        text: str,
        fileShapes: Callable[[list[Shape], int], list[Shape]],
        toGraph: Callable[[Arrays, list[Shape]], Arrays],
        toFile: Callable[[Arrays, int], Arrays],
    ) -> None:
        self.text, self.fileShapes, self.toGraph, self.toFile = text, fileShapes, toGraph, toFile

    def __rshift__(self, other: Transform) -> Transform:
        """Compose two transforms: this one is applied to the arrays of the file first.

        Both keep the number of arrays, except for at most one `join`, `split` or `add`.
        """

        def between(shapes: list[Shape], count: int) -> tuple[list[Shape], int]:
            middle = other.fileShapes(shapes, max(count, 1))
            return middle, len(middle)

        return Transform(
            f"{self.text} >> {other.text}",
            lambda shapes, count: self.fileShapes(between(shapes, count)[0], count),
            lambda arrays, shapes: other.toGraph(self.toGraph(arrays, between(shapes, len(arrays))[0]), shapes),
            lambda arrays, count: self.toFile(other.toFile(arrays, count), count),
        )

    def __repr__(self) -> str:
        return self.text


def single(
    text: str,
    shape: Callable[[Shape], Shape],
    forward: Callable[[np.ndarray], np.ndarray],
    back: Callable[[np.ndarray], np.ndarray],
) -> Transform:
    """Return a Transform that converts each array separately."""
    return Transform(
        text,
        lambda shapes, count: [shape(s) for s in shapes],
        lambda arrays, shapes: [forward(a) for a in arrays],
        lambda arrays, count: [back(a) for a in arrays],
    )


same = single("same", lambda s: s, lambda a: a, lambda a: a)
transpose = single("transpose", lambda s: s[::-1], lambda a: a.T, lambda a: a.T)


def permute(*axes: int) -> Transform:
    """Permute the axes of the file: `permute(3, 2, 0, 1)` converts Keras' (h, w, in, out) to (out, in, h, w).

    >>> puregraph.weights.permute(3, 2, 0, 1).fileShapes([(8, 3, 5, 5)], 1)
    [(5, 5, 3, 8)]
    """
    back = tuple(axes.index(i) for i in range(len(axes)))

    def shape(s: Shape) -> Shape:
        if len(s) != len(axes):
            raise CheckpointError(f"permute{axes} needs {len(axes)} axes, got {show(s)}")
        return tuple(s[i] for i in back)

    return single(f"permute{axes}", shape, lambda a: a.transpose(axes), lambda a: a.transpose(back))


def squeeze(axis: int) -> Transform:
    """Remove an axis of length 1 that only the file has.

    >>> puregraph.weights.squeeze(0).fileShapes([(197, 768)], 1)
    [(1, 197, 768)]
    """

    def shape(s: Shape) -> Shape:
        at = axis if axis >= 0 else axis + len(s) + 1
        return (*s[:at], 1, *s[at:])

    return single(f"squeeze({axis})", shape, lambda a: a.squeeze(axis), lambda a: np.expand_dims(a, axis))


def scale(factor: float) -> Transform:
    """Numbers of the file times a factor; exact in both directions for powers of two.

    >>> puregraph.weights.scale(0.5).toGraph([np.float32([2, 3])], [(2,)])
    [array([1. , 1.5], dtype=float32)]
    """
    return single(
        f"scale({factor!r})",
        lambda s: s,
        lambda a: (a * factor).astype(a.dtype, copy=False),
        lambda a: (a / factor).astype(a.dtype, copy=False),
    )


def gates(*order: int) -> Transform:
    """Equal blocks of the last axis in another order: block i of the graph is block order[i] of the file.

    >>> puregraph.weights.gates(1, 0, 2).toGraph([np.arange(6)], [(6,)])       # Keras' z, r, h as r, z, g
    [array([2, 3, 0, 1, 4, 5])]
    """
    back = tuple(order.index(i) for i in range(len(order)))

    def shuffled(a: np.ndarray, wanted: Sequence[int]) -> np.ndarray:
        parts = a.reshape(*a.shape[:-1], len(order), a.shape[-1] // len(order))
        return parts[..., list(wanted), :].reshape(a.shape)

    def shape(s: Shape) -> Shape:
        if not s or s[-1] % len(order):
            raise CheckpointError(f"{show(s)} has no {len(order)} equal blocks")
        return s

    return single(f"gates{order}", shape, lambda a: shuffled(a, order), lambda a: shuffled(a, back))


def join(axis: int, *sizes: int) -> Transform:
    """Several arrays of the file, concatenated, such as q, k and v that are one in the graph. They have equal lengths
    unless `sizes` lists them.

    >>> puregraph.weights.join(-1).fileShapes([(4, 12)], 3)
    [(4, 4), (4, 4), (4, 4)]
    """

    def lengths(length: int, count: int) -> list[int]:
        if sizes:
            if len(sizes) != count or sum(sizes) != length:
                raise CheckpointError(f"a length of {length} cannot be {count} parts of {', '.join(map(str, sizes))}")
            return list(sizes)
        if length % count:
            raise CheckpointError(f"a length of {length} cannot be {count} equal parts")
        return [length // count] * count

    def fileShapes(shapes: list[Shape], count: int) -> list[Shape]:
        (s,) = shapes
        at = axis % len(s)
        return [(*s[:at], n, *s[at + 1 :]) for n in lengths(s[at], count)]

    def toFile(arrays: Arrays, count: int) -> Arrays:
        (a,) = arrays
        return np.split(a, np.cumsum(lengths(a.shape[axis], count))[:-1], axis)

    return Transform(
        f"join({', '.join(map(str, (axis, *sizes)))})",
        fileShapes,
        lambda arrays, shapes: [np.concatenate(arrays, axis)],
        toFile,
    )


def split(axis: int) -> Transform:
    """One array of the file that is several in the graph, with the graph's lengths.

    >>> puregraph.weights.split(0).fileShapes([(4, 8), (2, 8)], 1)
    [(6, 8)]
    """

    def fileShapes(shapes: list[Shape], count: int) -> list[Shape]:
        first = shapes[0]
        at = axis % len(first)
        return [(*first[:at], sum(s[at] for s in shapes), *first[at + 1 :])]

    def toGraph(arrays: Arrays, shapes: list[Shape]) -> Arrays:
        (a,) = arrays
        return np.split(a, np.cumsum([s[axis] for s in shapes])[:-1], axis)

    return Transform(f"split({axis})", fileShapes, toGraph, lambda arrays, count: [np.concatenate(arrays, axis)])


add = Transform(
    "add",
    lambda shapes, count: [shapes[0]] * count,
    lambda arrays, shapes: [sum(arrays[1:], arrays[0])],
    lambda arrays, count: [arrays[0], *[np.zeros_like(arrays[0]) for _ in range(count - 1)]],
)


def each(count: int, inner: Transform, axis: int = -1) -> Transform:
    """`inner` for each of `count` runs of the file's arrays, the results concatenated: the directions of a recurrent
    layer."""

    def runs(values: Sequence[object]) -> list[list[Any]]:
        size = len(values) // count
        return [list(values[i * size : (i + 1) * size]) for i in range(count)]

    def parts(shapes: list[Shape]) -> list[Shape]:
        return [(*s[:axis], s[axis] // count, *s[axis:][1:]) for s in shapes]

    def toGraph(arrays: Arrays, shapes: list[Shape]) -> Arrays:
        sides = [inner.toGraph(run, parts(shapes)) for run in runs(arrays)]
        return [np.concatenate(side, axis) for side in zip(*sides)]

    def toFile(arrays: Arrays, files: int) -> Arrays:
        sides = zip(*(np.split(a, count, axis) for a in arrays))
        return [part for side in sides for part in inner.toFile(list(side), files // count)]

    if count == 1:
        return inner
    return Transform(
        f"each({count}, {inner})",
        lambda shapes, files: inner.fileShapes(parts(shapes), files // count) * count,
        toGraph,
        toFile,
    )
