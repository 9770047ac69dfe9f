"""VGG: depth from 3x3 convolutions alone."""

from puregraph.core.arguments import takes
from puregraph.graph.sequential import Sequential
from puregraph.modules import BatchNorm, Conv2D, Dropout, Flatten, Linear, MaxPool2D, Relu

STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
MAPS = (64, 128, 256, 512, 512)


@takes()
def vgg(depth, norm=False, classes=1000, inmaps=3, size=224, dropout=0.5, name=None):
    """Five stages of 3x3 convolutions, each halved by pooling, then three linear layers.

    Shapes    x (n, inmaps, size, size) -> (n, classes); the paper has 3 channels of 224
    Source    Simonyan, Zisserman 2015, arXiv:1409.1556, table 1, configurations A, B, D, E; `norm` adds batch
              normalisation after every convolution
    Params    132,863,336 (11), 133,047,848 (13), 138,357,544 (16), 143,667,240 (19); with norm 132,868,840,
              133,053,736, 138,365,992, 143,678,248
    Raises    ValueError for a depth that the paper does not have, or images too small to be halved five times

    >>> vgg(11, classes=10, size=32).dataShapeFrom(("N", 3, 32, 32))
    ('N', 10)
    """
    if depth not in STAGES:
        raise ValueError(f"vgg: wanted a depth of {', '.join(map(str, STAGES))}, got {depth!r}")
    if size < 32:
        raise ValueError(f"vgg: wanted a size of at least 32, got {size}")
    net = Sequential(name=name or f"vgg{depth}")
    for stage, (count, maps) in enumerate(zip(STAGES[depth], MAPS, strict=True), 1):
        net.append(Sequential(*layers(inmaps, maps, count, norm), MaxPool2D(2, name="pool"), name=f"stage{stage}"))
        inmaps = maps
    side = size // 32
    return net.append(
        Sequential(
            Flatten(),
            Linear(512 * side * side, 4096, initscheme="he", name="fc1"),
            Relu(),
            Dropout(dropout),
            Linear(4096, 4096, initscheme="he", name="fc2"),
            Relu(),
            Dropout(dropout),
            Linear(4096, classes, name="fc3"),
            name="head",
        )
    )


def layers(inmaps, maps, count, norm):
    """The convolutions of one stage, each with its norm and rectifier."""
    made = []
    for i in range(1, count + 1):
        made.append(Conv2D(inmaps, maps, 3, pad=1, initscheme=("he", "out"), name=f"conv{i}"))
        if norm:
            made.append(BatchNorm(maps, name=f"norm{i}"))
        made.append(Relu(name=f"relu{i}"))
        inmaps = maps
    return made


def vgg11(norm=False, **options):
    """`vgg` of depth 11 (configuration A): 132,863,336 parameters, 132,868,840 with norm.

    >>> sum(param.size for param in vgg11().params.values())          # nothing is allocated
    132863336
    """
    return vgg(11, norm, **options)


def vgg13(norm=False, **options):
    """`vgg` of depth 13 (configuration B): 133,047,848 parameters, 133,053,736 with norm.

    >>> vgg13(classes=10, size=64).dataShapeFrom(("N", 3, 64, 64))
    ('N', 10)
    """
    return vgg(13, norm, **options)


def vgg16(norm=False, **options):
    """`vgg` of depth 16 (configuration D): 138,357,544 parameters, 138,365,992 with norm.

    >>> vgg16()["stage5"].dataShapeFrom(("N", 512, 14, 14))
    ('N', 512, 7, 7)
    """
    return vgg(16, norm, **options)


def vgg19(norm=False, **options):
    """`vgg` of depth 19 (configuration E): 143,667,240 parameters, 143,678,248 with norm.

    >>> vgg19(norm=True).dataShapeFrom(("N", 3, 224, 224))
    ('N', 1000)
    """
    return vgg(19, norm, **options)
