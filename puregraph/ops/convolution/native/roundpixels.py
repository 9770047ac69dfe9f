"""Rounded pixels: channels-last feature maps as pairs of bfloat16 channels, which direct convolutions multiply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.bfloatpairs import contiguousPairs
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided
    from puregraph.ops.convolution.native.geometry import Geometry

FEWEST = 16  # input channels from which on rounding pays off
TASK_ELEMENTS = 1 << 15  # elements of a task


def isRounded(g: Geometry, isData: bool) -> bool:
    """True if a direct convolution, or its data gradient, sums over pairs of bfloat16 channels."""
    inputs = g.o if isData else g.c
    return g.halves and g.groups == 1 and inputs % 2 == 0 and inputs >= FEWEST


def roundPixels(x: Any, pixels: int, channels: int, xPixel: int, to: Strided) -> KernelCall:
    """to[pixel, i] = the pair of channels 2 i and 2 i + 1 of x, whose pixels are `xPixel` elements apart."""
    lanes = jit.lanes(4)
    chunk = max(1, TASK_ELEMENTS // channels)

    def write(code: IRBuilder) -> None:
        source, goal = code.pointer("x", "f32"), code.pointer("pairs", "i32")
        count, width, step = code.integer("pixels"), code.integer("channels"), code.integer("xPixel")
        share = code.integer("chunk")
        first = code.task * share
        end = width - width % (2 * lanes)
        with code.loop(first, code.min(first + share, count), unroll=1) as pixel:
            line, target = source.at(pixel * step), goal.at(pixel * (width / 2))
            with code.loop(0, end, 2 * lanes, unroll=1) as c:
                target.store(c / 2, contiguousPairs(code, line.load(c, lanes), line.load(c + lanes, lanes)))
            with code.when(end < width):
                left = width - end
                x, y = (line.load(end + v, lanes, code.mask(left - v, lanes)) for v in (0, lanes))
                target.store(end / 2, contiguousPairs(code, x, y), code.mask(left / 2, lanes))

    slots = {"x": x, "pairs": to, "pixels": pixels, "channels": channels, "xPixel": xPixel, "chunk": chunk}
    return KernelCall(f"round {pixels}x{channels}", f"round pixels {lanes}", write, slots, -(-pixels // chunk))
