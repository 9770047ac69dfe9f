"""Convolutions, channels last: forward, data and weight gradient, each by its fastest implementation."""

from __future__ import annotations

from itertools import product
from typing import Any

from puregraph.native.conv import depthwise, weightgrad, winograd, winogradweight
from puregraph.native.conv.direct import DirectConvolution, directConvolution, flattened
from puregraph.native.conv.geometry import Geometry, dataLines, forwardLine
from puregraph.native.conv.packweights import pack
from puregraph.native.llvm.kernelcall import EpilogueSpec, KernelCall


def forwardConvolution(g: Geometry) -> DirectConvolution:
    """A convolution as a direct one: its size, its packing and its kernel all come from this description."""
    lines: Any = tuple(forwardLine(axis) for axis in g.axes)
    return flattened(DirectConvolution(g.n, g.c // g.groups, g.o // g.groups, g.groups, lines))


def dataConvolutions(g: Geometry) -> list[DirectConvolution]:
    """Its data gradient as direct convolutions: one for each phase of the strides."""
    return [
        flattened(DirectConvolution(g.n, g.o // g.groups, g.c // g.groups, g.groups, lines))
        for lines in product(*(dataLines(axis) for axis in g.axes))
    ]


def weightChunks(g: Geometry, isData: bool) -> tuple[int, int]:
    """In how many chunks a weight may be packed and used, and the elements of the largest."""
    plan = winogradPlan(g, isData)
    return (plan.chunks, plan.part) if plan else (1, 0)


def forward(
    x: Any, packed: Any, epilogue: EpilogueSpec, g: Geometry, xPixel: int | None = None, chunk: int | None = None
) -> list[KernelCall]:
    """y (n, *count, o) from x (n, *spatial, c), whose pixels are `xPixel` elements apart, and the packed weight.

    If `takesPlanes`, x may be (n, c, *spatial), with an `xPixel` of 1. A `chunk` computes some output channels.
    """
    if g.isDepthwise:
        return depthwise.forward(x, packed, epilogue, g, xPixel)
    plan = winogradPlan(g, False)
    if plan:
        return [winograd.winogradConvolution(f"conv {g.text}", plan, x, xPixel or g.c, packed, epilogue, chunk)]
    return [directConvolution(f"conv {g.text}", forwardConvolution(g), x, xPixel or g.c, packed, epilogue)]


def takesPlanes(g: Geometry) -> bool:
    """Whether `forward` takes NCHW: few channels, which it copies anyway."""
    return not g.isDepthwise and not winogradPlan(g, False) and g.c > 1 and forwardConvolution(g).isCopied


def forwardPackedSize(g: Geometry) -> int:
    """Elements of the packed weight."""
    if g.isDepthwise:
        return depthwise.packedSize(g)
    return (winogradPlan(g, False) or forwardConvolution(g)).packed


def packForward(W: Any, packed: Any, g: Geometry, chunk: int | None = None) -> list[KernelCall]:
    """Pack the weight for `forward`."""
    if g.isDepthwise:
        return depthwise.pack(W, packed, g)
    plan = winogradPlan(g, False)
    if plan:
        return [winograd.pack(f"pack {g.text}", plan, W, packed, False, chunk)]
    return [pack(f"pack {g.text}", forwardConvolution(g), W, packed, sizeOf(g), False)]


def dataGradient(
    grad: Any, packed: Any, epilogue: EpilogueSpec, g: Geometry, gradPixel: int | None = None, chunk: int | None = None
) -> list[KernelCall]:
    """dx (n, *spatial, c) from grad (n, *count, o) and the weight of `packData`; some channels with a `chunk`."""
    if g.isDepthwise:
        return depthwise.dataGradient(grad, packed, epilogue, g, gradPixel)
    name, plan = f"conv dx {g.text}", winogradPlan(g, True)
    if plan:
        return [winograd.winogradConvolution(name, plan, grad, gradPixel or g.o, packed, epilogue, chunk)]
    calls, skip = [], 0
    for of in dataConvolutions(g):
        calls.append(directConvolution(name, of, grad, gradPixel or g.o, packed, epilogue, skip))
        skip += of.packed
    return calls


def dataPackedSize(g: Geometry) -> int:
    """Elements of the weight packed for the data gradient."""
    if g.isDepthwise:
        return depthwise.packedSize(g)
    plan = winogradPlan(g, True)
    return plan.packed if plan else sum(of.packed for of in dataConvolutions(g))


def packData(W: Any, packed: Any, g: Geometry, chunk: int | None = None) -> list[KernelCall]:
    """Pack the weight for `dataGradient`."""
    if g.isDepthwise:
        return depthwise.pack(W, packed, g)
    name, plan = f"pack dx {g.text}", winogradPlan(g, True)
    if plan:
        return [winograd.pack(name, plan, W, packed, True, chunk)]
    calls, skip = [], 0
    for of in dataConvolutions(g):
        if of.packed:
            calls.append(pack(name, of, W, packed, sizeOf(g), True, skip))
        skip += of.packed
    return calls


def weightGradient(
    grad: Any, x: Any, dW: Any, workspace: Any, g: Geometry, gradPixel: int | None = None, xPixel: int | None = None
) -> list[KernelCall]:
    """dW (o, c / groups, *size) from grad (n, *count, o) and x (n, *spatial, c); with a workspace."""
    return weightGradientModule(g).weightGradient(grad, x, dW, workspace, g, gradPixel, xPixel)


def weightWorkspace(g: Geometry) -> int:
    """Elements of the workspace of `weightGradient`."""
    return weightGradientModule(g).weightWorkspace(g)


def weightGradientModule(g: Geometry) -> Any:
    """The module that computes the weight gradient."""
    if g.isDepthwise:
        return depthwise
    return winogradweight if winogradweight.isFaster(g) else weightgrad


def winogradPlan(g: Geometry, isData: bool) -> winograd.WinogradSplit | None:
    """The Winograd split of the convolution or its data gradient, where that is faster; else None."""
    if not winograd.isSupported(g):
        return None
    plan = winograd.dataPlan(g) if isData else winograd.forwardPlan(g)
    return plan if winograd.isFaster(plan, g.isFixed) else None


def sizeOf(g: Geometry) -> tuple[int, ...]:
    """The size of the filters along each axis."""
    return tuple(axis.size for axis in g.axes)
