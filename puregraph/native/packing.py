"""Packing: the weights of a convolution in the order in which its kernels use them."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from puregraph.native.code import Code
from puregraph.native.correlation import Correlation, flat
from puregraph.native.work import Work


def pack(name: str, of: Correlation, W: Any, packed: Any, size: tuple[int, ...], isTurned: bool, skip: int = 0) -> Work:
    """W (o, c / groups, *size) to panels at `skip` in `packed`; turned, the outputs are what the weight calls inputs.

    Panels lie group by group, (panel, block of inputs, taps, inputs of a block, outputs of a panel); outputs that a
    panel has beyond the last are zeros.
    """
    of = flat(of)
    t = of.tile
    blocks = of.depth // t.block
    positions = [(a * size[1] + b) * size[2] + c for a, b, c in product(*(line.taps for line in of.lines))]
    taps = prod(size)
    inner = of.maps if isTurned else of.depth
    lane, deep = (taps, inner * taps) if isTurned else (inner * taps, taps)

    def write(code: Code) -> None:
        w, to = code.pointer("W", "f32"), code.pointer("packed", "f32")
        start = code.integer("skip")
        panel, block = code.task // blocks, code.task % blocks
        group, o = panel // of.panels, (panel % of.panels) * t.width
        to = to.at(start + code.task * (len(positions) * t.block * t.width))
        w = w.at(group * (of.maps * of.depth * taps) + o * lane + block * (t.block * deep))
        begin = 0
        for width in t.vectors:
            mask = code.mask(of.maps - o - begin, width)
            each = code.steps(width) * lane
            with code.loop(0, t.block) as i:
                for number, position in enumerate(positions):
                    found = w.at(i * deep + (begin * lane + position)).gather(each, mask)
                    to.store((i + number * t.block) * t.width + begin, found)
            begin += width

    key = f"pack {of} {t} {size} {isTurned}"
    return Work(name, key, write, {"W": W, "packed": packed, "skip": skip}, of.groups * of.panels * blocks)
