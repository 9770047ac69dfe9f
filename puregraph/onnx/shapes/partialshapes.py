"""PartialShapes: output shapes of a module with open input sizes, as far as they can be inferred."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from puregraph.core.dim import Dim, read
from puregraph.core.errors import PuregraphError
from puregraph.core.shape import normalAxis, symbols, valued, valueOf
from puregraph.graph.pointwise import Pointwise
from puregraph.modules import Add, Concat, Flatten, Mul, Reshape, Shape, Size

SMALL_TRIAL_SIZE, LARGE_TRIAL_SIZE = 96, 192  # trial sizes, divisible by common strides and windows
VARIED = 12  # maximum number of symbols that are varied one at a time

Trial = tuple[dict[str, int], list[tuple]]


def partialShapes(module: Any, shapes: list[Any]) -> list[tuple] | None:
    """The shapes of the outputs, with None for each unknown size; None if the ranks are unknown.

    A size is known if it is the same number, or the same expression of the inputs' symbols, in all trials that fit.
    """
    shapes = aligned(module, shapes)
    names = list(dict.fromkeys(name for shape in shapes if shape is not None for name in symbolsOf(shape)))
    trials = list(fittingTrials(module, shapes, names))
    if not trials:
        return targetShape(module, shapes)
    if len(trials) == 1:
        return [(None,) * len(out) for out in trials[0][1]]
    dims = [[n if isinstance(n, Dim) else None for n in shape] for shape in shapes if shape is not None]
    return [
        tuple(
            commonSize([outs[slot][axis] for _, outs in trials], trials, candidates(dims, axis)) for axis in range(rank)
        )
        for slot, rank in enumerate(map(len, trials[0][1]))
    ]


def aligned(module: Any, shapes: list[Any]) -> list[Any]:
    """The shapes, with a symbol replaced by another shape's number on that axis if the module requires equal sizes."""
    if not isinstance(module, (Add, Mul, Concat, Pointwise)) or None in shapes:
        return shapes
    rank = max(map(len, shapes))
    joined = normalAxis(module.axis, rank) - rank if isinstance(module, Concat) else None
    sizes = {}
    for axis in range(-rank, 0):
        numbers = {
            s[axis]
            for s in shapes
            if -axis <= len(s) and not isinstance(s[axis], Dim) and (joined is not None or s[axis] != 1)
        }
        if axis != joined and len(numbers) == 1:
            sizes[axis] = numbers.pop()
    return [
        valued(tuple(sizes.get(i - len(s), n) if isinstance(n, Dim) else n for i, n in enumerate(s)), valueOf(s))
        for s in shapes
    ]


def fittingTrials(module: Any, shapes: list[Any], names: list[str]) -> Iterator[Trial]:
    """The output shapes for each choice of sizes that the module accepts: all equal, then one symbol twice as large."""
    choices = [dict.fromkeys(names, size) for size in (SMALL_TRIAL_SIZE, LARGE_TRIAL_SIZE)]
    choices += [choices[0] | {name: LARGE_TRIAL_SIZE} for name in names[:VARIED]]
    rank: list[int] = []
    for sizes in choices:
        try:
            made = module.dataShapeFrom(*[bound(shape, sizes) for shape in shapes])
        except PuregraphError:
            continue
        outs = made if isinstance(made, list) else [made]
        rank = rank or list(map(len, outs))
        if list(map(len, outs)) == rank:
            yield sizes, outs


def bound(shape: Any, sizes: dict[str, int]) -> Any:
    """A shape with numbers for its symbols, and for those in its known elements."""
    if shape is None:
        return None
    value = valueOf(shape)
    if value is not None and value.dtype.kind == "O":
        elements = np.empty(value.size, np.int64)
        elements[:] = [numberOf(size, sizes) for size in value.ravel()]
        value = elements.reshape(value.shape)
    return valued(tuple(numberOf(size, sizes) for size in shape), value)


def numberOf(size: Any, sizes: dict[str, int]) -> int:
    """A size with numbers for its symbols."""
    return int(read(str(size), sizes)) if isinstance(size, Dim) else size


def symbolsOf(shape: Any) -> tuple[str, ...]:
    """The symbols in a shape, and in its known elements."""
    value = valueOf(shape)
    return symbols(shape) + (symbols(value.ravel().tolist()) if value is not None and value.dtype.kind == "O" else ())


def candidates(dims: list[list[Any]], axis: int) -> list[Any]:
    """The symbolic sizes of the inputs, those of the same axis first."""
    beside = [row[axis] for row in dims if axis < len(row)]
    return [size for size in dict.fromkeys([*beside, *(n for row in dims for n in row)]) if size is not None]


def commonSize(numbers: list[Any], trials: list[Trial], dims: list[Any]) -> Any:
    """The number that all trials agree on, or the expression that fits every trial; else None."""
    if None in numbers:
        return None
    if len(set(numbers)) == 1:
        return numbers[0]
    fits = (dim for dim in dims if all(numberOf(dim, sizes) == n for n, (sizes, _) in zip(numbers, trials)))
    return next(fits, None)


def targetShape(module: Any, shapes: list[Any]) -> list[tuple] | None:
    """Output shapes that do not depend on the input's shape: of a Reshape, Flatten, Size or Shape; otherwise None."""
    x = shapes[0]
    if isinstance(module, Reshape):
        known: Any
        sizes = shapes[1] if len(shapes) > 1 else None
        known = module.shape if sizes is None else valueOf(sizes)
        if known is None and sizes is not None:
            return [(None,) * sizes[0]] if len(sizes) == 1 and isinstance(sizes[0], int) else None
        copies = not module.keepsZero
        return [tuple(targetSize(x, axis, n, copies) for axis, n in enumerate(np.ravel(known).tolist()))]
    if isinstance(module, Flatten) and module.asMatrix:
        return [(None, None)]
    if isinstance(module, Size):
        return [()]
    return [(None,)] if isinstance(module, Shape) else None


def targetSize(x: Any, axis: int, size: Any, copies: bool) -> Any:
    """One size of a Reshape: 0 may copy the size of x, -1 is inferred (None)."""
    if size == 0 and copies:
        return x[axis] if x is not None and axis < len(x) else None
    return None if size == -1 else size
