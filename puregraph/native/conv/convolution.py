"""Convolution: forward, data and weight gradients of arrays that lie channels last, as lists of Work."""

from __future__ import annotations

from itertools import product
from typing import Any

from puregraph.native.conv import depthwise, weightgrad, winograd, winogradweight
from puregraph.native.conv.direct import DirectConvolution, correlate
from puregraph.native.conv.geometry import Geometry, dataLines, forwardLine
from puregraph.native.conv.packweights import pack
from puregraph.native.llvm.kernelcall import EpilogueSpec, KernelCall


def forwardSum(g: Geometry) -> DirectConvolution:
    """The correlation that a convolution is."""
    lines = tuple(forwardLine(axis) for axis in g.axes)
    return DirectConvolution(g.n, g.c // g.groups, g.o // g.groups, g.groups, lines)  # type: ignore[arg-type]


def dataSums(g: Geometry) -> list[DirectConvolution]:
    """Those that its adjoint is made of: one for each phase of the strides."""
    return [
        DirectConvolution(g.n, g.o // g.groups, g.c // g.groups, g.groups, lines)
        for lines in product(*(dataLines(axis) for axis in g.axes))
    ]


def turnsOf(g: Geometry, isData: bool) -> tuple[int, int]:
    """In how many turns a weight may be packed and used, and the numbers that each of several needs at most."""
    plan = interpolated(g, isData)
    return (plan.turns, plan.part) if plan else (1, 0)


def forward(
    x: Any, packed: Any, finish: EpilogueSpec, g: Geometry, xPixel: int | None = None, turn: int | None = None
) -> list[KernelCall]:
    """y (n, *count, o) from x (n, *spatial, c) whose pixels lie `xPixel` numbers apart, and the packed weight.

    If `takesPlanes`, x may be (n, c, *spatial), with pixels at a distance of 1. A `turn` gives some maps.
    """
    if g.isDepthwise:
        return depthwise.forward(x, packed, finish, g, xPixel)
    plan = interpolated(g, False)
    if plan:
        return [winograd.convolve(f"conv {g.text}", plan, x, xPixel or g.c, packed, finish, turn)]
    return [correlate(f"conv {g.text}", forwardSum(g), x, xPixel or g.c, packed, finish)]


def takesPlanes(g: Geometry) -> bool:
    """Whether `forward` takes maps that lie one behind the other: few of them, which it copies anyway."""
    return not g.isDepthwise and not interpolated(g, False) and g.c > 1 and forwardSum(g).isCopied


def forwardRoom(g: Geometry) -> int:
    """Numbers of the packed weight."""
    if g.isDepthwise:
        return depthwise.room(g)
    return (interpolated(g, False) or forwardSum(g)).packed


def packForward(W: Any, packed: Any, g: Geometry, turn: int | None = None) -> list[KernelCall]:
    """The weight as `forward` takes it."""
    if g.isDepthwise:
        return depthwise.pack(W, packed, g)
    plan = interpolated(g, False)
    if plan:
        return [winograd.pack(f"pack {g.text}", plan, W, packed, False, turn)]
    return [pack(f"pack {g.text}", forwardSum(g), W, packed, sizeOf(g), False)]


def dataGradient(
    grad: Any, packed: Any, finish: EpilogueSpec, g: Geometry, gradPixel: int | None = None, turn: int | None = None
) -> list[KernelCall]:
    """dx (n, *spatial, c) from grad (n, *count, o) and the weight that `packData` has packed; some maps in a `turn`."""
    if g.isDepthwise:
        return depthwise.dataGradient(grad, packed, finish, g, gradPixel)
    name, plan = f"conv dx {g.text}", interpolated(g, True)
    if plan:
        return [winograd.convolve(name, plan, grad, gradPixel or g.o, packed, finish, turn)]
    works, skip = [], 0
    for of in dataSums(g):
        works.append(correlate(name, of, grad, gradPixel or g.o, packed, finish, skip))
        skip += of.packed
    return works


def dataRoom(g: Geometry) -> int:
    """Numbers of the weight packed for the data gradient."""
    if g.isDepthwise:
        return depthwise.room(g)
    plan = interpolated(g, True)
    return plan.packed if plan else sum(of.packed for of in dataSums(g))


def packData(W: Any, packed: Any, g: Geometry, turn: int | None = None) -> list[KernelCall]:
    """The weight as `dataGradient` takes it."""
    if g.isDepthwise:
        return depthwise.pack(W, packed, g)
    name, plan = f"pack dx {g.text}", interpolated(g, True)
    if plan:
        return [winograd.pack(name, plan, W, packed, True, turn)]
    works, skip = [], 0
    for of in dataSums(g):
        if of.packed:
            works.append(pack(name, of, W, packed, sizeOf(g), True, skip))
        skip += of.packed
    return works


def weightGradient(
    grad: Any, x: Any, dW: Any, room: Any, g: Geometry, gradPixel: int | None = None, xPixel: int | None = None
) -> list[KernelCall]:
    """dW (o, c / groups, *size) from grad (n, *count, o) and x (n, *spatial, c); `room` is temporary memory."""
    return summed(g).weightGradient(grad, x, dW, room, g, gradPixel, xPixel)


def weightRoom(g: Geometry) -> int:
    """Numbers of the temporary memory of `weightGradient`."""
    return summed(g).weightRoom(g)


def summed(g: Geometry) -> Any:
    """Who sums the gradient of the weight."""
    if g.isDepthwise:
        return depthwise
    return winogradweight if winogradweight.pays(g) else weightgrad


def interpolated(g: Geometry, isData: bool) -> winograd.WinogradSplit | None:
    """How the convolution or its data gradient is interpolated, where that is faster."""
    if not winograd.suits(g):
        return None
    plan = winograd.dataPlan(g) if isData else winograd.forwardPlan(g)
    return plan if winograd.pays(plan, g.isFixed) else None


def sizeOf(g: Geometry) -> tuple[int, ...]:
    """The size of the filters along each axis."""
    return tuple(axis.size for axis in g.axes)
