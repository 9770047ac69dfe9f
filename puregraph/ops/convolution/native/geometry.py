"""The geometry of a convolution: windows over inputs, always with three axes (missing ones have length one)."""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class ConvolutionAxis(NamedTuple):
    """One axis of a sliding window: the input's length, and the window's size, stride, padding and dilation."""

    length: int
    size: int = 1
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def count(self) -> int:  # type: ignore[override]
        """The number of windows: the length of the output."""
        reach = self.dilation * (self.size - 1) + 1
        return max(0, (self.length + self.before + self.after - reach) // self.stride + 1)


class Geometry(NamedTuple):
    """A convolution: samples, input and output channels (of all groups), and its three axes.

    Unless it `isPlain`, which asks for direct sums, it may run as a Winograd convolution where that is faster; more
    often so where its weight `isFixed`, that is, packed once for many uses. `real` is the kind of all elements; with
    `halves`, factors may be rounded to bfloat16.
    """

    n: int
    c: int
    o: int
    groups: int
    axes: tuple[ConvolutionAxis, ConvolutionAxis, ConvolutionAxis]
    isPlain: bool = False
    isFixed: bool = False
    real: str = "f32"
    halves: bool = False

    @property
    def taps(self) -> int:
        return prod(axis.size for axis in self.axes)

    @property
    def pixels(self) -> int:
        """Pixels of an input channel."""
        return prod(axis.length for axis in self.axes)

    @property
    def outputPixels(self) -> int:
        """Pixels of an output channel."""
        return prod(axis.count for axis in self.axes)

    @property
    def isDepthwise(self) -> bool:
        """True if each channel has its own filter."""
        return self.groups == self.c == self.o and self.groups > 1

    @property
    def isPointwise(self) -> bool:
        """True if each output pixel is computed from the input pixel at the same position."""
        return all(axis == ConvolutionAxis(axis.length) for axis in self.axes)

    @property
    def text(self) -> str:
        """The text for tables."""
        size = "x".join(str(a.size) for a in self.axes if a.length > 1 or a.size > 1) or "1"
        where = "x".join(str(a.length) for a in self.axes if a.length > 1) or "1"
        return f"{size} {self.c}->{self.o} @{where}"


def geometry(
    shape: Sequence[int],
    weight: tuple[int, ...],
    stride: Any = 1,
    pad: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    isPlain: bool = False,
    isFixed: bool = False,
    real: str = "f32",
    halves: bool = False,
) -> Geometry:
    """From x (n, c, *spatial) and W (o, c / groups, *size); the rest is one value for all axes or one for each."""
    rank = len(shape) - 2
    pads = [pair(p) for p in perAxis(pad, rank)]
    axes = [
        ConvolutionAxis(whole(length), int(size), int(s), before, after, int(d))
        for length, size, s, (before, after), d in zip(
            shape[2:], weight[2:], perAxis(stride, rank), pads, perAxis(dilation, rank)
        )
    ]
    if len(axes) > 3:
        raise ValueError(f"wanted at most three axes of space, got {len(axes)}")
    front = [ConvolutionAxis(1)] * (3 - len(axes))
    lines: Any = (*front, *axes)
    return Geometry(
        whole(shape[0]), whole(shape[1]), int(weight[0]), int(groups), lines, isPlain, isFixed, real, halves
    )


def whole(number: Any) -> int:
    """A number of any whole kind as an int; open sizes stay open."""
    return number if isinstance(number, int) else int(number)


def perAxis(value: Any, rank: int) -> tuple[Any, ...]:
    """A value for each axis, where one may stand for all."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank


def pair(pad: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Padding before and after, where one value may stand for both."""
    before, after = pad if isinstance(pad, (tuple, list)) else (pad, pad)
    return int(before), int(after)


class AxisMap(NamedTuple):
    """An axis of a correlation: the inputs summed into each output, and the position of the output.

    Output a is the sum over i of tap `taps[i]` of the weight times input a stride + first + i step, where that is
    inside; its position is start + a skip on an axis of `full` outputs.
    """

    length: int
    count: int  # type: ignore[assignment]
    stride: int
    first: int
    step: int
    taps: tuple[int, ...]
    start: int = 0
    skip: int = 1
    full: int = 0

    def isInside(self, a: int, i: int) -> bool:
        """True if output a has an input for tap i."""
        return 0 <= a * self.stride + self.first + i * self.step < self.length


def forwardLine(axis: ConvolutionAxis) -> AxisMap:
    """The axis of a convolution."""
    return AxisMap(
        axis.length,
        axis.count,
        axis.stride,
        -axis.before,
        axis.dilation,
        tuple(range(axis.size)),
        full=axis.count,
    )


def dataLines(axis: ConvolutionAxis) -> list[AxisMap]:
    """The axes of its adjoint: one for each phase, the distance from an input to the first window modulo the stride.

    Input h receives tap t from window a where h = a stride + t dilation - before. Inputs that differ by the stride
    receive the same taps, so that each phase is a correlation of stride one with some of the taps.
    """
    lines = []
    for phase in range(min(axis.stride, axis.length)):
        far = phase + axis.before
        taps = [t for t in reversed(range(axis.size)) if (far - t * axis.dilation) % axis.stride == 0]
        lines.append(
            AxisMap(
                length=axis.count,
                count=-(-(axis.length - phase) // axis.stride),
                stride=1,
                first=(far - taps[0] * axis.dilation) // axis.stride if taps else 0,
                step=axis.dilation // gcd(axis.dilation, axis.stride),
                taps=tuple(taps),
                start=phase,
                skip=axis.stride,
                full=axis.length,
            )
        )
    return lines
