"""Convolutions, channels last: forward, data and weight gradient, each by its fastest implementation."""

from __future__ import annotations

from itertools import accumulate, product
from typing import TYPE_CHECKING, Any

from puregraph.ops.convolution.native import depthwise, weightgrad, winograd, winogradweight
from puregraph.ops.convolution.native.direct import directConvolution
from puregraph.ops.convolution.native.directspec import DirectConvolution, flattened
from puregraph.ops.convolution.native.geometry import AxisMap, Geometry, dataLines, forwardLine
from puregraph.ops.convolution.native.packweights import pack
from puregraph.ops.convolution.native.roundpixels import isRounded
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall

if TYPE_CHECKING:
    from types import ModuleType

    from puregraph.core.protocols import Strided
    from puregraph.ops.ir.value import Value


def forwardConvolution(g: Geometry) -> DirectConvolution:
    """A convolution as a direct one: its size, its packing and its kernel all come from this description."""
    lines: Any = tuple(forwardLine(axis) for axis in g.axes)
    return direct(g, False, lines)


def dataConvolutions(g: Geometry) -> list[DirectConvolution]:
    """Its data gradient as direct convolutions: one for each phase of the strides."""
    return [direct(g, True, lines) for lines in product(*(dataLines(axis) for axis in g.axes))]  # type: ignore[arg-type]


def direct(g: Geometry, isData: bool, lines: tuple[AxisMap, AxisMap, AxisMap]) -> DirectConvolution:
    """The direct convolution along some lines; in bfloat16 its inputs are pairs of channels."""
    inputs, outputs = (g.o, g.c) if isData else (g.c, g.o)
    halves = isRounded(g, isData)
    inputs = inputs // 2 if halves else inputs
    return flattened(DirectConvolution(g.n, inputs // g.groups, outputs // g.groups, g.groups, lines, g.real, halves))


class Filters:
    """The packed filters of a convolution, or of its data gradient: one description gives their size and their kernels.

    `size`    elements of the packed filters
    `halves`  whether the kernels multiply bfloat16; `x` then has pairs of channels
    `chunks`  the number of parts of large filters, packed and used one by one unless kept; `part` elements each

    `pack` returns the calls that pack W, `convolve` the calls that use the packed weights: y (n, *count, o) from
    x (n, *spatial, c), or dx from the gradient of y, whose pixels are `xPixel` elements apart. With a `chunk` both
    take some output channels.
    """

    size: int
    chunks, part = 1, 0
    halves = False

    def __init__(self, g: Geometry, isData: bool):
        self.g, self.isData = g, isData
        self.name = f"dx {g.text}" if isData else g.text
        self.pixel = g.o if isData else g.c

    def pack(self, W: Any, packed: Strided, chunk: int | None = None) -> list[KernelCall]:
        raise NotImplementedError

    def convolve(
        self, x: Strided, packed: Strided, epilogue: EpilogueSpec, xPixel: int | None = None, chunk: int | None = None
    ) -> list[KernelCall]:
        raise NotImplementedError


class DirectFilters(Filters):
    """Filters of direct convolutions: one for each phase of the strides of a data gradient, one after the other."""

    def __init__(self, g: Geometry, isData: bool):
        super().__init__(g, isData)
        self.phases = dataConvolutions(g) if isData else [forwardConvolution(g)]
        self.halves = isRounded(g, isData)
        *self.starts, self.size = accumulate((of.packed for of in self.phases), initial=0)

    def pack(self, W: Any, packed: Any, chunk: int | None = None) -> list[KernelCall]:
        size = tuple(axis.size for axis in self.g.axes)
        return [
            pack(f"pack {self.name}", of, W, packed, size, self.isData, start)
            for of, start in zip(self.phases, self.starts)
            if of.packed
        ]

    def convolve(
        self, x: Any, packed: Any, epilogue: EpilogueSpec, xPixel: int | None = None, chunk: int | None = None
    ) -> list[KernelCall]:
        return [
            directConvolution(f"conv {self.name}", of, x, xPixel or self.pixel, packed, epilogue, start)
            for of, start in zip(self.phases, self.starts)
        ]


class WinogradFilters(Filters):
    """Transformed filters of a Winograd convolution."""

    def __init__(self, g: Geometry, isData: bool, split: winograd.WinogradSplit):
        super().__init__(g, isData)
        self.split, self.size, self.chunks, self.part = split, split.packed, split.chunks, split.part

    def pack(self, W: Any, packed: Strided, chunk: int | None = None) -> list[KernelCall]:
        return [winograd.pack(f"pack {self.name}", self.split, W, packed, self.isData, chunk)]

    def convolve(
        self, x: Strided, packed: Strided, epilogue: EpilogueSpec, xPixel: int | None = None, chunk: int | None = None
    ) -> list[KernelCall]:
        name, pixel = f"conv {self.name}", xPixel or self.pixel
        return [winograd.winogradConvolution(name, self.split, x, pixel, packed, epilogue, chunk)]


class DepthwiseFilters(Filters):
    """Filters of a depthwise convolution, the channels of a tap one after the other."""

    def __init__(self, g: Geometry, isData: bool):
        super().__init__(g, isData)
        self.size = depthwise.packedSize(g)

    def pack(self, W: Any, packed: Strided, chunk: int | None = None) -> list[KernelCall]:
        return depthwise.pack(W, packed, self.g)

    def convolve(
        self, x: Strided, packed: Strided, epilogue: EpilogueSpec, xPixel: int | None = None, chunk: int | None = None
    ) -> list[KernelCall]:
        use = depthwise.dataGradient if self.isData else depthwise.forward
        return use(x, packed, epilogue, self.g, xPixel)


def filtersOf(g: Geometry, isData: bool) -> Filters:
    """The filters of the fastest implementation of a convolution, or of its data gradient."""
    if g.isDepthwise:
        return DepthwiseFilters(g, isData)
    split = winogradPlan(g, isData)
    return WinogradFilters(g, isData, split) if split else DirectFilters(g, isData)


def takesPlanes(g: Geometry) -> bool:
    """True if the forward convolution takes NCHW with an `xPixel` of 1: with few channels, which it copies anyway."""
    return not g.isDepthwise and not winogradPlan(g, False) and g.c > 1 and forwardConvolution(g).isCopied


def weightGradient(
    grad: Value,
    x: Value,
    dW: Value,
    workspace: Value,
    g: Geometry,
    gradPixel: int | None = None,
    xPixel: int | None = None,
) -> list[KernelCall]:
    """dW (o, c / groups, *size) from grad (n, *count, o) and x (n, *spatial, c); with a workspace."""
    return weightGradientModule(g).weightGradient(grad, x, dW, workspace, g, gradPixel, xPixel)


def weightWorkspace(g: Geometry) -> int:
    """Elements of the workspace of `weightGradient`."""
    return weightGradientModule(g).weightWorkspace(g)


def weightGradientModule(g: Geometry) -> ModuleType:
    """The module that computes the weight gradient."""
    if g.isDepthwise:
        return depthwise
    return winogradweight if winogradweight.isFaster(g) else weightgrad


def winogradPlan(g: Geometry, isData: bool) -> winograd.WinogradSplit | None:
    """The Winograd split of the convolution or its data gradient, where that is faster; else None."""
    if not winograd.isSupported(g):
        return None
    plan = winograd.dataPlan(g) if isData else winograd.forwardPlan(g)
    return plan if winograd.isFaster(plan, g.isFixed, isRounded(g, isData)) else None
