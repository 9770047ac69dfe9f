"""Loops over the taps of a convolution, and the tiles of a row that have the same taps."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from puregraph.ops.convolution.native.geometry import AxisMap
from puregraph.ops.native.llvm.instructions import IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def edgeTaps(line: AxisMap) -> tuple[int, ...]:
    """The first and the last tap: if these are inside the image, all are."""
    return (0, len(line.taps) - 1) if line.taps else ()


class TapRun(NamedTuple):
    """Tiles of a row, from `start` to `stop`, that have the same taps; `skip` pixels belong to the tile before."""

    start: int
    stop: int
    skip: int
    inside: tuple[tuple[int, ...], ...]  # the pixels that have each tap


def tapRuns(line: AxisMap, pixels: int) -> list[TapRun]:
    """The tiles of a row, as runs with the same taps."""
    runs: list[TapRun] = []
    tiles, taps = ceil(line.count / pixels), range(len(line.taps))
    allPixels = (tuple(range(pixels)),) * len(taps)
    i = 0
    while i < tiles:
        first = min(i * pixels, line.count - pixels)
        skip = i * pixels - first
        kind = TapRun(i, i + 1, skip, allPixels)
        if all(line.isInside(a, t) for a in (first, first + pixels - 1) for t in edgeTaps(line)):
            # inside, like all tiles up to the last one whose taps are all inside the image
            last = (line.length - 1 - line.first - (len(taps) - 1) * line.step) // line.stride + 1
            if not skip:
                kind = kind._replace(stop=max(i + 1, min(last, line.count) // pixels))
        else:
            inside = tuple(tuple(p for p in range(pixels) if line.isInside(first + p, t)) for t in taps)
            kind = kind._replace(inside=inside)
        i = kind.stop
        if runs and runs[-1][2:] == kind[2:]:
            kind = kind._replace(start=runs.pop().start)
        runs.append(kind)
    return runs


class SingleIteration:
    """A loop of one iteration: the body runs without a loop, with a constant index."""

    def __init__(self, code: IRBuilder, index: IRValue | None = None):
        self.index = code.i64(0) if index is None else index

    def __enter__(self) -> IRValue:
        return self.index

    def __exit__(self, *error: object) -> None:
        pass


def overTaps(code: IRBuilder, line: AxisMap) -> AbstractContextManager:
    """A loop over the taps of an axis; the body once where there is only one."""
    return SingleIteration(code) if len(line.taps) == 1 else code.loop(0, len(line.taps), unroll=1)


def tapBounds(code: IRBuilder, line: AxisMap, a: IRValue) -> tuple[IRValue, IRValue] | None:
    """The range of taps with which an output has inputs; None if there is one tap, which is always inside."""
    taps = len(line.taps)
    if all(line.isInside(i, t) for i in (0, line.count - 1) for t in (0, taps - 1)) and taps:
        return None if taps == 1 else (code.i64(0), code.i64(taps))
    first = a * line.stride + line.first
    start = code.select(first < 0, (line.step - 1 - first) // line.step, 0)
    left = line.length - 1 - first
    stop = code.select(left < 0, 0, left // line.step + 1)
    return code.min(start, taps), code.min(stop, taps)


def outputsOf(code: IRBuilder, line: AxisMap, tap: IRValue, start: IRValue, stop: IRValue) -> tuple[IRValue, IRValue]:
    """The range of outputs from `start` to `stop` that have an input for a tap."""
    first = line.first + tap * line.step
    if line.first >= 0 and line.isInside(line.count - 1, len(line.taps) - 1):
        return start, stop
    low = code.select(first < 0, (line.stride - 1 - first) // line.stride, 0)
    left = line.length - 1 - first
    high = code.select(left < 0, 0, left // line.stride + 1)
    return code.select(low > start, low, start), code.min(high, stop)
