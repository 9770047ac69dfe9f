"""Convolution: forward, data and weight gradients of arrays that lie channels last, as lists of Work."""

from __future__ import annotations

from itertools import product
from typing import Any

from puregraph.native import depthwise, weightsum
from puregraph.native.correlation import Correlation, correlate
from puregraph.native.geometry import Geometry, dataLines, forwardLine
from puregraph.native.packing import pack
from puregraph.native.work import Finish, Work


def forwardSum(g: Geometry) -> Correlation:
    """The correlation that a convolution is."""
    lines = tuple(forwardLine(axis) for axis in g.axes)
    return Correlation(g.n, g.c // g.groups, g.o // g.groups, g.groups, lines)  # type: ignore[arg-type]


def dataSums(g: Geometry) -> list[Correlation]:
    """Those that its adjoint is made of: one for each phase of the strides."""
    return [
        Correlation(g.n, g.o // g.groups, g.c // g.groups, g.groups, lines)
        for lines in product(*(dataLines(axis) for axis in g.axes))
    ]


def forward(x: Any, packed: Any, finish: Finish, g: Geometry, xPixel: int | None = None) -> list[Work]:
    """y (n, *count, o) from x (n, *spatial, c) whose pixels lie `xPixel` numbers apart, and the packed weight."""
    if g.isDepthwise:
        return depthwise.forward(x, packed, finish, g, xPixel)
    return [correlate(f"conv {g.text}", forwardSum(g), x, xPixel or g.c, packed, finish)]


def forwardRoom(g: Geometry) -> int:
    """Numbers of the packed weight."""
    if g.isDepthwise:
        return depthwise.room(g)
    return forwardSum(g).packed


def packForward(W: Any, packed: Any, g: Geometry) -> list[Work]:
    """The weight as `forward` takes it."""
    if g.isDepthwise:
        return depthwise.pack(W, packed, g)
    size = tuple(axis.size for axis in g.axes)
    return [pack(f"pack {g.text}", forwardSum(g), W, packed, size, False)]


def dataGradient(grad: Any, packed: Any, finish: Finish, g: Geometry, gradPixel: int | None = None) -> list[Work]:
    """dx (n, *spatial, c) from grad (n, *count, o) and the weight that `packData` has packed."""
    if g.isDepthwise:
        return depthwise.dataGradient(grad, packed, finish, g, gradPixel)
    works, skip = [], 0
    for of in dataSums(g):
        works.append(correlate(f"conv dx {g.text}", of, grad, gradPixel or g.o, packed, finish, skip))
        skip += of.packed
    return works


def dataRoom(g: Geometry) -> int:
    """Numbers of the weight packed for the data gradient."""
    if g.isDepthwise:
        return depthwise.room(g)
    return sum(of.packed for of in dataSums(g))


def packData(W: Any, packed: Any, g: Geometry) -> list[Work]:
    """The weight as `dataGradient` takes it."""
    if g.isDepthwise:
        return depthwise.pack(W, packed, g)
    size, works, skip = tuple(axis.size for axis in g.axes), [], 0
    for of in dataSums(g):
        if of.packed:
            works.append(pack(f"pack dx {g.text}", of, W, packed, size, True, skip))
        skip += of.packed
    return works


def weightGradient(
    grad: Any, x: Any, dW: Any, room: Any, g: Geometry, gradPixel: int | None = None, xPixel: int | None = None
) -> list[Work]:
    """dW (o, c / groups, *size) from grad (n, *count, o) and x (n, *spatial, c); `room` is temporary memory."""
    how = depthwise if g.isDepthwise else weightsum
    return how.weightGradient(grad, x, dW, room, g, gradPixel, xPixel)


def weightRoom(g: Geometry) -> int:
    """Numbers of the temporary memory of `weightGradient`."""
    return (depthwise if g.isDepthwise else weightsum).weightRoom(g)
