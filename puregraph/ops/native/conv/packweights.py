"""Packing: the weights of a direct convolution in the order in which its kernel reads them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from puregraph.ops.native.conv.direct import DirectConvolution
from puregraph.ops.native.conv.filtertaps import FilterTaps, overFilters
from puregraph.ops.native.llvm.instructions import IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall


def pack(
    name: str, of: DirectConvolution, W: Any, packed: Any, size: tuple[int, ...], isTransposed: bool, skip: int = 0
) -> KernelCall:
    """W (o, c / groups, *size) to panels at `skip` in `packed`; transposed for the data gradient.

    Panels are stored group by group, (panel, block of inputs, taps, inputs of a block, outputs of a panel); outputs
    of a panel beyond the last are undefined.
    """
    t = of.tile
    blocks = of.inChannels // t.block
    positions = [(a * size[1] + b) * size[2] + c for a, b, c in product(*(line.taps for line in of.lines))]
    filters = FilterTaps(of.outChannels if isTransposed else of.inChannels, prod(size), isTransposed)

    def write(code: IRBuilder) -> None:
        w, to = code.pointer("W", "f32"), code.pointer("packed", "f32")
        start = code.integer("skip")
        panel, block = code.task // blocks, code.task % blocks
        group, o = panel // of.panels, (panel % of.panels) * t.width
        to = to.at(start + code.task * (len(positions) * t.block * t.width))
        w = w.at(
            group * (of.outChannels * of.inChannels * filters.taps)
            + o * filters.lane
            + block * (t.block * filters.deep)
        )
        begin = 0
        for width in t.vectors:
            left = of.outChannels - o - begin if of.outChannels % t.width else None

            def put(i: IRValue, vectors: Sequence[IRValue], begin: int = begin) -> None:
                for number, position in enumerate(positions):
                    to.store((i + number * t.block) * t.width + begin, vectors[position])

            span = code.i64(0), code.i64(t.block)
            overFilters(code, filters, w.at(begin * filters.lane), width, left, span, t.block, put)
            begin += width

    key = f"pack {of} {t} {size} {isTransposed}"
    return KernelCall(name, key, write, {"W": W, "packed": packed, "skip": skip}, of.groups * of.panels * blocks)
