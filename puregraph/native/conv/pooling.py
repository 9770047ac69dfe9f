"""Pooling: the maximum and the mean of windows, and their gradients, of arrays that lie channels last.

What the numpy kernels say of equal values, NaN and padding holds here too: the first maximum wins, NaN is greater
than any number, padding is never chosen, and a window of nothing but padding gives -inf and -1.
"""

from __future__ import annotations

from math import prod
from typing import Any

from puregraph.native.conv.geometry import ConvolutionAxis, Geometry
from puregraph.native.conv.slidingwindow import (
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
from puregraph.native.llvm.instructions import IRType, IRValue, IRVariable
from puregraph.native.llvm.irbuilder import IRBuilder
from puregraph.native.llvm.kernelcall import EpilogueSpec, KernelCall


def maxForward(x: Any, indices: Any, finish: EpilogueSpec, g: Geometry, xPixel: int | None = None) -> list[KernelCall]:
    """y (n, *count, c) from x (n, *spatial, c), and int32 indices like y, flat in *spatial; None if not needed."""
    key = "last" if indices is None else "indices"
    slots = {} if indices is None else {"indices": indices}
    return [pool("max", MaxPooling, key, g, forwardPhases(g.axes), x, xPixel, finish, slots)]


def maxGradient(
    grad: Any, indices: Any, finish: EpilogueSpec, g: Geometry, gradPixel: int | None = None
) -> list[KernelCall]:
    """dx (n, *spatial, c) from grad (n, *count, c) and the indices that `maxForward` found with the same windows."""
    return [pool("max dx", MaxPoolingGrad, "", g, dataPhases(g.axes), grad, gradPixel, finish, {"indices": indices})]


def meanForward(
    x: Any, finish: EpilogueSpec, g: Geometry, includePad: bool = True, xPixel: int | None = None
) -> list[KernelCall]:
    """y (n, *count, c) from x (n, *spatial, c); padding counts as zeros, or not at all."""
    return [pool("mean", MeanPooling, isPlain(g, includePad), g, forwardPhases(g.axes), x, xPixel, finish, {})]


def meanGradient(
    grad: Any, finish: EpilogueSpec, g: Geometry, includePad: bool = True, gradPixel: int | None = None
) -> list[KernelCall]:
    """dx (n, *spatial, c) from grad (n, *count, c)."""
    return [
        pool("mean dx", MeanPoolingGrad, isPlain(g, includePad), g, dataPhases(g.axes), grad, gradPixel, finish, {})
    ]


def isPlain(g: Geometry, includePad: bool) -> str:
    """Whether all windows have the same share."""
    return "plain" if includePad or not any(a.before or a.after for a in g.axes) else "inside"


def pool(
    name: str,
    how: type[Pooler],
    option: str,
    g: Geometry,
    phases: list[Lines],
    x: Any,
    pixel: int | None,
    finish: EpilogueSpec,
    slots: dict[str, Any],
) -> KernelCall:
    """A step of one kind of pooling."""
    tasks = taskCount(g.n, g.c, phases)
    pixel = pixel or g.c

    def write(code: IRBuilder) -> None:
        how(code, g, phases, tasks, pixel, finish, option).write()

    key = f"pool {how.__name__} {option} {g} {pixel} {tasks} {finish.key}"
    return KernelCall(f"{name} {g.text}", key, write, {"x": x, **slots, **finish.slots}, tasks)


class Pooler(WindowLoop):
    """What the kinds of pooling share."""

    def __init__(
        self,
        code: IRBuilder,
        g: Geometry,
        phases: list[Lines],
        tasks: int,
        pixel: int,
        finish: EpilogueSpec,
        option: str,
    ):
        super().__init__(code, g.n, g.c, tuple(axis.size for axis in g.axes), phases, tasks)
        self.axes, self.pixel, self.finish, self.option = g.axes, pixel, finish, option
        self.x = code.pointer("x", "f32")
        self.open()
        finish.open(code)

    def open(self) -> None:
        pass

    def inputs(self, states: dict[int, Any], stretch: ChannelVector, tap: Tap, seen: dict[int, IRValue]) -> Any:
        return fetch(self.x, self.pixel, states, stretch, tap, seen)

    def zero(self, stretch: ChannelVector) -> IRVariable:
        return self.code.variable(self.code.constant(0, IRType("f32", stretch.lanes)))

    def corner(self, place: WindowPosition) -> IRValue:
        """The flat place on a map of the first number of a window."""
        return flatOf(place.starts, self.axes)


class MaxPooling(Pooler):
    """The maximum of a window, and where it was found."""

    def open(self) -> None:
        self.indices = self.code.pointer("indices", "i32") if self.option == "indices" else None

    def begin(self, stretch: ChannelVector) -> tuple[IRVariable, IRVariable | None]:
        code, lanes = self.code, stretch.lanes
        best = code.variable(code.constant(float("-inf"), IRType("f32", lanes)))
        return best, code.variable(code.constant(-1, IRType("i32", lanes))) if self.indices else None

    def take(self, states: dict[int, Any], stretch: ChannelVector, tap: Tap, seen: dict[int, IRValue]) -> None:
        code = self.code
        offset = None
        for _, (best, where), value in self.inputs(states, stretch, tap, seen):
            old = best.value
            isBetter = ~(value <= old) & (old == old)
            best.value = code.select(isBetter, value, old)
            if where:
                if offset is None:
                    offset = code.splat(code.convert(code.i64(tap.offset), "i32"), stretch.lanes)
                where.value = code.select(isBetter, offset, where.value)

    def end(self, state: Any, stretch: ChannelVector, row: IRValue, place: WindowPosition) -> None:
        code, (best, where) = self.code, state
        self.finish.put(code, row, stretch.map, best.value, stretch.live)
        if where:
            # nothing above -inf: then the first number that there is
            firsts, isThere = zip(*(firstOf(code, s, axis) for s, axis in zip(place.starts, self.axes)))
            first = code.select(isThere[0] & isThere[1] & isThere[2], flatOf(firsts, self.axes), -1)
            corner, first = (
                code.splat(code.convert(each, "i32"), stretch.lanes) for each in (self.corner(place), first)
            )
            found = code.select(where.value < 0, first, where.value + corner)
            self.indices.store(row * self.maps + stretch.map, found, stretch.live)


def flatOf(places: Any, axes: tuple[ConvolutionAxis, ...]) -> IRValue:
    """The number of a pixel in its map, counted row by row."""
    (d, h, w), (_, high, wide) = places, axes
    return (d * high.length + h) * wide.length + w


def firstOf(code: IRBuilder, start: IRValue, axis: ConvolutionAxis) -> tuple[IRValue, IRValue]:
    """The first place of a window that is on the map, on one axis, and whether there is one."""
    skip = code.select(start < 0, (axis.dilation - 1 - start) // axis.dilation, 0)
    first = start + skip * axis.dilation
    return first, (skip < axis.size) & (first < axis.length)


class MaxPoolingGrad(Pooler):
    """What an input receives of the windows over it: the gradients of those that found their maximum there."""

    def open(self) -> None:
        self.indices = self.code.pointer("indices", "i32")

    def begin(self, stretch: ChannelVector) -> IRVariable:
        return self.zero(stretch)

    def take(self, states: dict[int, Any], stretch: ChannelVector, tap: Tap, seen: dict[int, IRValue]) -> None:
        code, (c, lanes, live) = self.code, stretch
        for p, state, value in self.inputs(states, stretch, tap, seen):
            found = self.indices.load((tap.input + p * tap.step) * self.maps + c, lanes, live)
            here = code.splat(code.convert(tap.output + p * tap.skip, "i32"), lanes)
            state.value = state.value + code.select(found == here, value, 0.0)

    def end(self, state: IRVariable, stretch: ChannelVector, row: IRValue, place: WindowPosition) -> None:
        self.finish.put(self.code, row, stretch.map, state.value, stretch.live)


class MeanPooling(Pooler):
    """The mean of a window."""

    def begin(self, stretch: ChannelVector) -> IRVariable:
        return self.zero(stretch)

    def take(self, states: dict[int, Any], stretch: ChannelVector, tap: Tap, seen: dict[int, IRValue]) -> None:
        for _, state, value in self.inputs(states, stretch, tap, seen):
            state.value = state.value + value

    def end(self, state: IRVariable, stretch: ChannelVector, row: IRValue, place: WindowPosition) -> None:
        share: Any = float(prod(self.size))
        if self.option == "inside":
            share = shareOf(self.code, place.starts, self.axes)
        self.finish.put(self.code, row, stretch.map, state.value / share, stretch.live)


def shareOf(code: IRBuilder, starts: Any, axes: tuple[ConvolutionAxis, ...]) -> IRValue:
    """How many numbers of a window are on the map, at least one on each axis."""
    share = code.i64(1)
    for start, axis in zip(starts, axes):
        on = code.min(start + axis.size, axis.length) - code.select(start > 0, start, 0)
        share = share * code.select(on > 1, on, 1)
    return code.convert(share, "f32")


class MeanPoolingGrad(Pooler):
    """What an input receives of the windows over it: a share of the gradient of each."""

    def begin(self, stretch: ChannelVector) -> IRVariable:
        return self.zero(stretch)

    def take(self, states: dict[int, Any], stretch: ChannelVector, tap: Tap, seen: dict[int, IRValue]) -> None:
        for p, state, value in self.inputs(states, stretch, tap, seen):
            if self.option == "inside":
                d, h, w = tap.places
                places = d, h, w + p * tap.step
                starts = [a * axis.stride - axis.before for a, axis in zip(places, self.axes)]
                value = value / shareOf(self.code, starts, self.axes)
            state.value = state.value + value

    def end(self, state: IRVariable, stretch: ChannelVector, row: IRValue, place: WindowPosition) -> None:
        sums = state.value
        if self.option == "plain":
            sums = sums / float(prod(self.size))
        self.finish.put(self.code, row, stretch.map, sums, stretch.live)
