"""Packing: the weights of a direct convolution in the order in which its kernel reads them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from puregraph.ops.convolution.native.directspec import DirectConvolution
from puregraph.ops.convolution.native.filtertaps import FilterTaps, overFilters
from puregraph.ops.native.llvm.bfloatpairs import interleavedPairs
from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall, madeFor

if TYPE_CHECKING:
    from typing import Any

UNROLLED = 128  # taps of a filter up to which packing is unrolled: code and compile time grow with them
SPARSE = 8  # if fewer than one tap in this many is packed, taps are read one by one instead of entire filters


def pack(
    name: str, of: DirectConvolution, W: Any, packed: Any, size: tuple[int, ...], isTransposed: bool, skip: int = 0
) -> KernelCall:
    """W (o, c / groups, *size) to panels at `skip` in `packed`; transposed for the data gradient.

    Panels are stored group by group, (panel, block of inputs, taps, inputs of a block, outputs of a panel); outputs
    of a panel beyond the last are undefined.
    """

    def make(of: DirectConvolution) -> KernelCall:
        t = of.tile
        blocks = of.inChannels // t.block
        positions = [(a * size[1] + b) * size[2] + c for a, b, c in product(*(line.taps for line in of.lines))]
        group = 2 if of.halves else 1
        filters = FilterTaps(of.outChannels if isTransposed else of.inChannels * group, prod(size), isTransposed)
        slots = {"W": W, "packed": packed, "skip": skip}
        inLoops = of.halves or prod(size) > min(UNROLLED, SPARSE * len(positions))
        if inLoops:
            slots["tap"] = positions[0]

        def write(code: IRBuilder) -> None:
            w, to = code.pointer("W", of.real), code.pointer("packed", of.factor)
            start = code.integer("skip")
            panel, block = code.task // blocks, code.task % blocks
            number, o = panel // of.panels, (panel % of.panels) * t.width
            to = to.at(start + code.task * (len(positions) * t.block * t.width))
            w = w.at(
                number * (of.outChannels * of.inChannels * filters.taps)
                + o * filters.lane
                + block * (t.block * group * filters.deep)
            )
            begin = 0
            for width in t.vectors:
                left = of.outChannels - o - begin if of.outChannels % t.width else None

                def put(i: IRValue, vectors: Sequence[IRValue], begin: int = begin) -> None:
                    for index, position in enumerate(positions):
                        to.store((i + index * t.block) * t.width + begin, vectors[position])

                if inLoops:
                    first = w.at(code.integer("tap") + begin * filters.lane)
                    packInLoops(code, of, filters, size, first, to.at(begin), width, left)
                    begin += width
                    continue
                span = code.i64(0), code.i64(t.block)
                overFilters(code, filters, w.at(begin * filters.lane), width, left, span, t.block, put)
                begin += width

        taps = [(len(line.taps), tapStep(line.taps)) if inLoops else line.taps for line in of.lines]
        key = f"pack {of._replace(n=0, lines=())} {taps} {t} {size} {isTransposed} {inLoops}"  # type: ignore[arg-type]
        return KernelCall(name, key, write, slots, of.groups * of.panels * blocks)

    return madeFor(make, of)


def packInLoops(
    code: IRBuilder,
    of: DirectConvolution,
    filters: FilterTaps,
    size: tuple[int, ...],
    w: IRPointer,
    to: IRPointer,
    width: int,
    left: IRValue | None,
) -> None:
    """Pack one vector of outputs for all inputs of a block, tap by tap, by gathers; `w` is at the first tap.

    In bfloat16 an input is a pair of channels.
    """
    t, counts = of.tile, [len(line.taps) for line in of.lines]
    indices = code.iota(width) * code.constant(filters.lane, IRType("i64"))
    mask = None if left is None else code.mask(left, width)
    with (
        code.loop(0, counts[0], unroll=1) as a,
        code.loop(0, counts[1], unroll=1) as b,
        code.loop(0, counts[2], unroll=1) as c,
        code.loop(0, t.block, unroll=1) as i,
    ):
        d, h, v = (k * tapStep(line.taps) for line, k in zip(of.lines, (a, b, c)))
        at = w.at((d * size[1] + h) * size[2] + v)
        channels = [2 * i, 2 * i + 1] if of.halves else [i]
        vectors = [at.at(channel * filters.deep).gather(indices, mask) for channel in channels]
        number = (a * counts[1] + b) * counts[2] + c
        weights = interleavedPairs(code, *vectors) if of.halves else vectors[0]
        to.store((number * t.block + i) * t.width, weights)


def tapStep(taps: tuple[int, ...]) -> int:
    """The distance between consecutive taps, which is constant within a phase."""
    return taps[1] - taps[0] if len(taps) > 1 else 0
