"""The convolutions of published mobile networks, at their widths and map sizes.

Source    Howard et al., MobileNets (2017); Sandler et al., MobileNetV2 (2018); Howard et al., Searching for MobileNetV3
          (2019); Tan and Le, EfficientNet (2019); Ma et al., ShuffleNet V2 (2018); Han et al., GhostNet (2020); Cui et
          al., PP-LCNet (2021); Radosavovic et al., Designing Network Design Spaces (2020)
"""

from math import ceil
from typing import NamedTuple


class Layer(NamedTuple):
    """A convolution whose input is a square of `side` pixels."""

    inputs: int
    outputs: int
    side: int
    size: int = 1
    stride: int = 1
    groups: int = 1


class Block(NamedTuple):
    """An inverted residual: expansion, depthwise convolution, squeeze and excitation to `reduced`, projection."""

    size: int
    expanded: int
    outputs: int
    stride: int
    reduced: int = 0


def rounded(channels, scale=1.0):
    """A scaled width as these networks round it: to a multiple of 8, and at most a tenth down."""
    wanted = channels * scale
    nearest = max(8, int(wanted + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * wanted else nearest


def inverted(blocks, inputs, side, last):
    """The layers of inverted residuals, and of the pointwise one behind them."""
    for block in blocks:
        e = block.expanded
        if e != inputs:
            yield Layer(inputs, e, side)
        yield Layer(e, e, side, block.size, block.stride, e)
        side = ceil(side / block.stride)
        if block.reduced:
            yield from (Layer(e, block.reduced, 1), Layer(block.reduced, e, 1))
        yield Layer(e, block.outputs, side)
        inputs = block.outputs
    yield Layer(inputs, last, side)


def mobilenet1(side):
    outputs, inputs, side = [64, 128, 128, 256, 256, *[512] * 6, 1024, 1024], 32, ceil(side / 2)
    for i, o in enumerate(outputs):
        stride = 2 if o > inputs and i else 1
        yield Layer(inputs, inputs, side, 3, stride, inputs)
        side = ceil(side / stride)
        yield Layer(inputs, o, side)
        inputs = o


def mobilenet2(side):
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    blocks, inputs = [], 32
    for factor, outputs, count, stride in stages:
        for i in range(count):
            blocks.append(Block(3, factor * inputs, outputs, 1 if i else stride))
            inputs = outputs
    yield from inverted(blocks, 32, ceil(side / 2), 1280)


V3_LARGE = (  # size, expanded, outputs, stride, whether it is gated
    "3 16 16 1 0, 3 64 24 2 0, 3 72 24 1 0, 5 72 40 2 1, 5 120 40 1 1, 5 120 40 1 1, 3 240 80 2 0, 3 200 80 1 0, "
    "3 184 80 1 0, 3 184 80 1 0, 3 480 112 1 1, 3 672 112 1 1, 5 672 160 2 1, 5 960 160 1 1, 5 960 160 1 1"
)
V3_SMALL = (
    "3 16 16 2 1, 3 72 24 2 0, 3 88 24 1 0, 5 96 40 2 1, 5 240 40 1 1, 5 240 40 1 1, 5 120 48 1 1, 5 144 48 1 1, "
    "5 288 96 2 1, 5 576 96 1 1, 5 576 96 1 1"
)
GHOST = (
    "3 16 16 1 0, 3 48 24 2 0, 3 72 24 1 0, 5 72 40 2 1, 5 120 40 1 1, 3 240 80 2 0, 3 200 80 1 0, 3 184 80 1 0, "
    "3 480 112 1 1, 3 672 112 1 1, 5 672 160 2 1, 5 960 160 1 0, 5 960 160 1 1"
)


def parsed(table):
    """The rows of a table in numbers."""
    return [tuple(map(int, row.split())) for row in table.split(",")]


def mobilenet3(side, table, last):
    blocks = [Block(size, e, o, stride, rounded(e, 0.25) * gated) for size, e, o, stride, gated in parsed(table)]
    yield from inverted(blocks, 16, ceil(side / 2), last)


def efficientnet(side, width, depth):
    stages = (
        (3, 1, 16, 1, 1),
        (3, 6, 24, 2, 2),
        (5, 6, 40, 2, 2),
        (3, 6, 80, 2, 3),
        (5, 6, 112, 1, 3),
        (5, 6, 192, 2, 4),
    )
    blocks, inputs = [], rounded(32, width)
    stem = inputs
    for size, factor, outputs, stride, count in (*stages, (3, 6, 320, 1, 1)):
        for i in range(ceil(count * depth)):
            o, e = rounded(outputs, width), factor * inputs
            blocks.append(Block(size, e, o, 1 if i else stride, max(1, inputs // 4)))
            inputs = o
    yield from inverted(blocks, stem, ceil(side / 2), rounded(1280, width))


def shufflenet2(side, widths, last):
    inputs, side = 24, ceil(side / 4)
    for outputs in widths:
        half = outputs // 2
        yield from (
            Layer(inputs, inputs, side, 3, 2, inputs),
            Layer(inputs, half, side),
            Layer(half, half, side, 3, 2, half),
        )
        side = ceil(side / 2)
        yield from (Layer(inputs, half, side), Layer(half, half, side), Layer(half, half, side, 3, 1, half))
        inputs = outputs
    yield Layer(inputs, last, side)


def ghostnet(side):
    inputs, side = 16, ceil(side / 2)
    for size, e, o, stride, gated in parsed(GHOST):
        yield from (Layer(inputs, e // 2, side), Layer(e // 2, e // 2, side, 3, 1, e // 2))
        if stride > 1:
            yield Layer(e, e, side, size, 2, e)
        side = ceil(side / stride)
        if gated:
            yield from (Layer(e, rounded(e, 0.25), 1), Layer(rounded(e, 0.25), e, 1))
        yield from (Layer(e, o // 2, side), Layer(o // 2, o // 2, side, 3, 1, o // 2))
        inputs = o


def lcnet(side, scale):
    rows = ((3, 16, 32, 1, 0), (3, 32, 64, 2, 0), (3, 64, 64, 1, 0), (3, 64, 128, 2, 0), (3, 128, 128, 1, 0))
    rows += ((3, 128, 256, 2, 0), (5, 256, 256, 1, 0), (5, 256, 512, 2, 1), (5, 512, 512, 1, 1))
    side = ceil(side / 2)
    for size, a, b, stride, gated in rows:
        a, b = rounded(a, scale), rounded(b, scale)
        yield Layer(a, a, side, size, stride, a)
        side = ceil(side / stride)
        if gated:
            yield from (Layer(a, a // 4, 1), Layer(a // 4, a, 1))
        yield Layer(a, b, side)


def regnet(side, widths, group):
    inputs, side = 32, ceil(side / 2)
    for outputs in widths:
        yield from (Layer(inputs, outputs, side), Layer(outputs, outputs, side, 3, 2, outputs // group))
        yield Layer(inputs, outputs, side, 1, 2)
        side, inputs = ceil(side / 2), outputs
        yield from (Layer(outputs, outputs, side), Layer(outputs, outputs, side, 3, 1, outputs // group))


NETWORKS = {
    "MobileNet V1": mobilenet1,
    "MobileNet V2": mobilenet2,
    "MobileNet V3 large": lambda side: mobilenet3(side, V3_LARGE, 960),
    "MobileNet V3 small": lambda side: mobilenet3(side, V3_SMALL, 576),
    "EfficientNet B0": lambda side: efficientnet(side, 1.0, 1.0),
    "EfficientNet B1": lambda side: efficientnet(side, 1.0, 1.1),
    "EfficientNet B2": lambda side: efficientnet(side, 1.1, 1.2),
    "ShuffleNet V2 0.5": lambda side: shufflenet2(side, (48, 96, 192), 1024),
    "ShuffleNet V2 1.0": lambda side: shufflenet2(side, (116, 232, 464), 1024),
    "ShuffleNet V2 1.5": lambda side: shufflenet2(side, (176, 352, 704), 1024),
    "GhostNet": ghostnet,
    "PP-LCNet 0.35": lambda side: lcnet(side, 0.35),
    "PP-LCNet 0.75": lambda side: lcnet(side, 0.75),
    "PP-LCNet 1.0": lambda side: lcnet(side, 1.0),
    "RegNetX 200MF": lambda side: regnet(side, (24, 56, 152, 368), 8),
    "RegNetX 400MF": lambda side: regnet(side, (32, 64, 160, 384), 16),
    "RegNetY 400MF": lambda side: regnet(side, (48, 104, 208, 440), 8),
}


def layersOf(side):
    """Every different layer of all networks for images of `side` pixels."""
    return sorted({layer for layers in NETWORKS.values() for layer in layers(side)})
