"""U-Net: down to a small size with many channels and up again, with shortcuts at every size."""

from puregraph.core.arguments import takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import BatchNorm, Concat, Conv2D, Deconv2D, MaxPool2D, Relu


def double(inmaps, outmaps, norm, name):
    """Two 3x3 convolutions with rectifiers, padded so that sizes stay; `norm` normalises after each."""
    made = []
    for i, maps in enumerate((inmaps, outmaps), 1):
        made.append(Conv2D(maps, outmaps, 3, pad=1, useBias=not norm, initscheme="he", name=f"conv{i}"))
        made += [BatchNorm(outmaps, name=f"norm{i}")] if norm else []
        made.append(Relu(name=f"relu{i}"))
    return Sequential(*made, name=name)


@takes()
def unet(inmaps=1, classes=2, maps=64, depth=4, norm=False, name="unet"):
    """Double convolutions, `depth` times halved by pooling with twice the channels, then doubled by deconvolution.

    Convolutions are padded, where those of the paper are not, so that classes have the positions of the image, whose
    height and width must be multiples of 2^depth. `norm` adds batch normalisation, which the paper does not have.

    Shapes    x (n, inmaps, h, w) -> scores (n, classes, h, w), as CrossEntropy takes them
    Source    Ronneberger, Fischer, Brox 2015, arXiv:1505.04597, figure 1
    Params    31,030,658 for one channel and two classes
    Raises    ValueError for a depth below 1

    >>> unet(depth=2, classes=3).dataShapeFrom(("N", 1, 64, 64))      # a score of each class for each pixel
    ('N', 3, 64, 64)
    """
    if depth < 1:
        raise ValueError(f"unet: wanted a depth of at least 1, got {depth}")
    x = Input(name="image").node()
    h = double(inmaps, maps, norm, "down0").node(x)
    levels = []
    for level in range(1, depth + 1):
        levels.append((h, maps))
        h = double(maps, 2 * maps, norm, f"down{level}").node(MaxPool2D(2, name=f"pool{level}")(h))
        maps *= 2
    for level, (skip, maps) in reversed(list(enumerate(levels))):
        h = Deconv2D(2 * maps, maps, 2, stride=2, initscheme="he", name=f"grow{level}")(h)
        h = double(2 * maps, maps, norm, f"up{level}").node(Concat(axis=1, name=f"join{level}")(skip, h))
    return Graph(x, Conv2D(maps, classes, 1, name="scores")(h), name=name)
