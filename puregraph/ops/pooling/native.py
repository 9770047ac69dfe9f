"""Max and mean pooling and their gradients, channels last, vectorised along channels.

Ties, NaN and padding are treated as in the numpy kernels: the first maximum wins, NaN is greater than any value,
padding is never chosen, and a window of nothing but padding gives -inf and -1.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from puregraph.ops.convolution.native.geometry import ConvolutionAxis, Geometry
from puregraph.ops.convolution.native.slidingwindow import (
    ChannelVector,
    Lines,
    Tap,
    WindowLoop,
    WindowPosition,
    dataPhases,
    fetch,
    forwardPhases,
    taskCount,
)
from puregraph.ops.native.llvm.instructions import IRType, IRValue, IRVariable
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall

if TYPE_CHECKING:
    from puregraph.ops.ir.value import Value


def maxForward(
    x: Value, indices: Value, epilogue: EpilogueSpec, g: Geometry, xPixel: int | None = None
) -> list[KernelCall]:
    """y (n, *count, c) from x (n, *spatial, c), and int32 indices like y, flat in *spatial; None if not needed."""
    key = "last" if indices is None else "indices"
    slots = {} if indices is None else {"indices": indices}
    return [pool("max", MaxPooling, key, g, forwardPhases(g.axes), x, xPixel, epilogue, slots)]


def maxGradient(
    grad: Any, indices: Any, epilogue: EpilogueSpec, g: Geometry, gradPixel: int | None = None
) -> list[KernelCall]:
    """dx (n, *spatial, c) from grad (n, *count, c) and the indices that `maxForward` found with the same windows."""
    return [pool("max dx", MaxPoolingGrad, "", g, dataPhases(g.axes), grad, gradPixel, epilogue, {"indices": indices})]


def meanForward(
    x: Any, epilogue: EpilogueSpec, g: Geometry, includePad: bool = True, xPixel: int | None = None
) -> list[KernelCall]:
    """y (n, *count, c) from x (n, *spatial, c); padding counts as zeros, or not at all."""
    return [pool("mean", MeanPooling, isPlain(g, includePad), g, forwardPhases(g.axes), x, xPixel, epilogue, {})]


def meanGradient(
    grad: Any, epilogue: EpilogueSpec, g: Geometry, includePad: bool = True, gradPixel: int | None = None
) -> list[KernelCall]:
    """dx (n, *spatial, c) from grad (n, *count, c)."""
    return [
        pool("mean dx", MeanPoolingGrad, isPlain(g, includePad), g, dataPhases(g.axes), grad, gradPixel, epilogue, {})
    ]


def isPlain(g: Geometry, includePad: bool) -> str:
    """ "plain" where all windows divide by the same count, else "inside"."""
    return "plain" if includePad or not any(a.before or a.after for a in g.axes) else "inside"


def pool(
    name: str,
    how: type[Pooler],
    option: str,
    g: Geometry,
    phases: list[Lines],
    x: Any,
    pixel: int | None,
    epilogue: EpilogueSpec,
    slots: dict[str, Value],
) -> KernelCall:
    """The kernel call of one kind of pooling."""
    tasks = taskCount(g.n, g.c, tuple(phases))
    pixel = pixel or g.c

    def write(code: IRBuilder) -> None:
        how(code, g, phases, pixel, epilogue, option).write()

    key = f"pool {how.__name__} {option} {g._replace(n=0)} {pixel} {epilogue.key}"
    arguments = {"x": x, **slots, **epilogue.slots, "n": g.n, "tasks": tasks}
    return KernelCall(f"{name} {g.text}", key, write, arguments, tasks)


class Pooler(WindowLoop):
    """The base of all kinds of pooling."""

    def __init__(
        self,
        code: IRBuilder,
        g: Geometry,
        phases: list[Lines],
        pixel: int,
        epilogue: EpilogueSpec,
        option: str,
    ):
        super().__init__(code, g.c, tuple(axis.size for axis in g.axes), phases, g.real)
        self.axes, self.pixel, self.epilogue, self.option = g.axes, pixel, epilogue, option
        self.x = code.pointer("x", g.real)
        self.open()
        epilogue.open(code)

    def open(self) -> None:
        pass

    def inputs(self, states: dict[int, Any], vector: ChannelVector, tap: Tap, seen: dict[int, IRValue]) -> Any:
        return fetch(self.x, self.pixel, states, vector, tap, seen)

    def corner(self, position: WindowPosition) -> IRValue:
        """The flat index in an image of a window's first pixel."""
        return flatIndex(position.starts, self.axes)


class MaxPooling(Pooler):
    """The maximum of a window, and its index."""

    def open(self) -> None:
        self.indices = self.code.pointer("indices", "i32") if self.option == "indices" else None

    def begin(self, vector: ChannelVector) -> tuple[IRVariable, IRVariable | None]:
        code, lanes = self.code, vector.lanes
        best = code.variable(code.constant(float("-inf"), IRType(self.real, lanes)))
        return best, code.variable(code.constant(-1, IRType("i32", lanes))) if self.indices else None

    def take(self, states: dict[int, Any], vector: ChannelVector, tap: Tap, seen: dict[int, IRValue]) -> None:
        code = self.code
        offset = None
        for _, (best, where), value in self.inputs(states, vector, tap, seen):
            old = best.value
            isBetter = ~(value <= old) & (old == old)
            best.value = code.select(isBetter, value, old)
            if where and self.indices:
                if offset is None:
                    offset = code.splat(code.convert(code.i64(tap.offset), "i32"), vector.lanes)
                where.value = code.select(isBetter, offset, where.value)

    def end(self, state: Any, vector: ChannelVector, row: IRValue, position: WindowPosition) -> None:
        code, (best, where) = self.code, state
        self.epilogue.put(code, row, vector.channel, best.value, vector.live)
        if where and self.indices:
            # nothing above -inf: the first pixel inside
            firsts, isInside = zip(*(firstInside(code, s, axis) for s, axis in zip(position.starts, self.axes)))
            first = code.select(isInside[0] & isInside[1] & isInside[2], flatIndex(firsts, self.axes), -1)
            corner, first = (
                code.splat(code.convert(value, "i32"), vector.lanes) for value in (self.corner(position), first)
            )
            pixel = code.select(where.value < 0, first, where.value + corner)
            self.indices.store(row * self.channels + vector.channel, pixel, vector.live)


def flatIndex(indices: Any, axes: tuple[ConvolutionAxis, ...]) -> IRValue:
    """The flat index of a pixel in its image."""
    (d, h, w), (_, high, wide) = indices, axes
    return (d * high.length + h) * wide.length + w


def firstInside(code: IRBuilder, start: IRValue, axis: ConvolutionAxis) -> tuple[IRValue, IRValue]:
    """The first index of a window inside the image on one axis, and whether there is one."""
    skip = code.select(start < 0, (axis.dilation - 1 - start) // axis.dilation, 0)
    first = start + skip * axis.dilation
    return first, (skip < axis.size) & (first < axis.length)


class MaxPoolingGrad(Pooler):
    """The gradient of an input: the sum over the windows of which it is the maximum."""

    def open(self) -> None:
        self.indices = self.code.pointer("indices", "i32")

    def take(self, states: dict[int, Any], vector: ChannelVector, tap: Tap, seen: dict[int, IRValue]) -> None:
        code, (c, lanes, live) = self.code, vector
        for p, state, value in self.inputs(states, vector, tap, seen):
            winner = self.indices.load((tap.input + p * tap.step) * self.channels + c, lanes, live)
            here = code.splat(code.convert(tap.output + p * tap.skip, "i32"), lanes)
            state.value = state.value + code.select(winner == here, value, 0.0)


class MeanPooling(Pooler):
    """The mean of a window."""

    def take(self, states: dict[int, Any], vector: ChannelVector, tap: Tap, seen: dict[int, IRValue]) -> None:
        for _, state, value in self.inputs(states, vector, tap, seen):
            state.value = state.value + value

    def end(self, state: IRVariable, vector: ChannelVector, row: IRValue, position: WindowPosition) -> None:
        share: Any = float(prod(self.size))
        if self.option == "inside":
            share = shareOf(self.code, position.starts, self.axes, self.real)
        self.epilogue.put(self.code, row, vector.channel, state.value / share, vector.live)


def shareOf(code: IRBuilder, starts: Any, axes: tuple[ConvolutionAxis, ...], real: str) -> IRValue:
    """The number of pixels of a window inside the image, at least one on each axis."""
    share = code.i64(1)
    for start, axis in zip(starts, axes):
        on = code.min(start + axis.size, axis.length) - code.select(start > 0, start, 0)
        share = share * code.select(on > 1, on, 1)
    return code.convert(share, real)


class MeanPoolingGrad(Pooler):
    """The gradient of an input: the sum over the windows that contain it, each divided by its count."""

    def take(self, states: dict[int, Any], vector: ChannelVector, tap: Tap, seen: dict[int, IRValue]) -> None:
        for p, state, value in self.inputs(states, vector, tap, seen):
            if self.option == "inside":
                d, h, w = tap.indices
                indices = d, h, w + p * tap.step
                starts = [a * axis.stride - axis.before for a, axis in zip(indices, self.axes)]
                value = value / shareOf(self.code, starts, self.axes, self.real)
            state.value = state.value + value

    def end(self, state: IRVariable, vector: ChannelVector, row: IRValue, position: WindowPosition) -> None:
        sums = state.value
        if self.option == "plain":
            sums = sums / float(prod(self.size))
        self.epilogue.put(self.code, row, vector.channel, sums, vector.live)
