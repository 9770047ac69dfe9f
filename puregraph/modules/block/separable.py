"""SeparableConv: a convolution of each map by itself, then one of size 1 of all maps."""

from puregraph.core.arguments import Count, Flag, takes
from puregraph.graph.sequential import Sequential
from puregraph.modules.block.blockname import blockNamed
from puregraph.modules.convolution import ConvNd


@blockNamed
@takes(inmaps=Count, outmaps=Count, multiplier=Count, useBias=Flag)
def SeparableConv(inmaps, outmaps, size, stride=1, pad=0, dilation=1, multiplier=1, useBias=True, name=None):
    """y = P * (D * x), * a convolution: D makes `multiplier` maps of each map by itself, P has size 1 and the bias

    The options of D are those of `ConvNd`; the number of spatial axes is that of `size`.

    Shapes    x (n, inmaps, *spatial); D (inmaps multiplier, 1, *size), P (outmaps, inmaps multiplier, 1, ...),
              b (outmaps,) -> y (n, outmaps, *count), count as `ConvNd`
    Source    Chollet 2017, arXiv:1610.02357, section 3; Keras' SeparableConv2D
    Raises    ShapeError if the shapes do not fit

    >>> SeparableConv(3, 16, (3, 3), pad="same").dataShapeFrom(("N", 3, "H", "W"))
    ('N', 16, 'H', 'W')
    """
    depth = ConvNd(inmaps, inmaps * multiplier, size, stride, pad, dilation, useBias=False, groups=inmaps, name="depth")
    return Sequential(
        depth, ConvNd(inmaps * multiplier, outmaps, (1,) * len(depth.size), useBias=useBias, name="point"), name=name
    )
