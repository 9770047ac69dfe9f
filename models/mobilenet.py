"""MobileNet: depthwise separable convolutions: each channel filtered alone, then all mixed at each position."""

from puregraph.core.arguments import takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import Add, BatchNorm, Clip, Conv2D, Dropout, GlobalAvgPool, Linear

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def layer(inmaps, outmaps, size, stride, groups, name, linear=False):
    """A convolution without bias, its batch normalisation and, unless it is the linear one, ReLU6."""
    options = {"useBias": False, "initscheme": ("he", "out")} | ({"groups": groups} if groups > 1 else {})
    conv = Conv2D(inmaps, outmaps, size, stride, size // 2, **options, name=f"conv{name}")
    made = [conv, BatchNorm(outmaps, name=f"norm{name}")]
    return made if linear else [*made, Clip(name=f"relu{name}")]


def inverted(inmaps, outmaps, stride, expansion, name):
    """Wider by a 1x1 convolution, depthwise 3x3, narrower by a linear 1x1; a shortcut where shapes agree."""
    inner = inmaps * expansion
    path = Sequential(
        *(layer(inmaps, inner, 1, 1, 1, "1") if expansion > 1 else ()),
        *layer(inner, inner, 3, stride, inner, "2"),
        *layer(inner, outmaps, 1, 1, 1, "3", linear=True),
        name="path",
    )
    x = Input(name="x").node()
    h = path.node(x)
    return Graph(x, Add(name="add")(x, h) if stride == 1 and inmaps == outmaps else h, name=name)


def rounded(channels, width):
    """Channels times the width, as a multiple of 8 that is at most a tenth too small."""
    found = max(8, int(channels * width + 4) // 8 * 8)
    return found if found >= 0.9 * channels * width else found + 8


@takes()
def mobilenet(classes=1000, inmaps=3, width=1.0, dropout=0.2, name="mobilenet"):
    """MobileNet v2: a convolution, 17 inverted residual blocks, a 1x1 convolution, the mean, a linear layer.

    `width` multiplies all channels, but not those of the last convolution below a width of 1.

    Shapes    x (n, inmaps, h, w) -> (n, classes); the paper has h = w = 224
    Source    Sandler, Howard, Zhu, Zhmoginov, Chen 2018, arXiv:1801.04381, table 2
    Params    3,504,872 for a thousand classes

    >>> mobilenet(classes=10).dataShapeFrom(("N", 3, 224, 224))
    ('N', 10)
    """
    channels, last = rounded(32, width), rounded(1280, max(1.0, width))
    stem, blocks = layer(inmaps, channels, 3, 2, 1, ""), []
    for expansion, outmaps, count, stride in STAGES:
        wide = rounded(outmaps, width)
        for i in range(count):
            blocks.append(inverted(channels, wide, 1 if i else stride, expansion, f"block{len(blocks) + 1}"))
            channels = wide
    return Sequential(
        *stem,
        *blocks,
        *layer(channels, last, 1, 1, 1, "last"),
        GlobalAvgPool(name="mean"),
        Dropout(dropout, name="drop"),
        Linear(last, classes, name="fc"),
        name=name,
    )
