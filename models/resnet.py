"""ResNet: residual blocks, which learn what to add to their input."""

from puregraph.core.arguments import Count, takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import Add, BatchNorm, Conv2D, GlobalAvgPool, Linear, MaxPool2D, Pad, Relu, Slice

IMAGENET = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def conv(x, inmaps, outmaps, size, stride, name):
    """A convolution without bias, and its batch normalisation."""
    h = Conv2D(inmaps, outmaps, size, stride, size // 2, useBias=False, initscheme=("he", "out"), name=f"conv{name}")(x)
    return BatchNorm(outmaps, name=f"norm{name}")(h)


def projection(x, inmaps, outmaps, stride):
    """The shortcut of the ImageNet networks where shapes differ: a 1x1 convolution (option B of the paper)."""
    return x if stride == 1 and inmaps == outmaps else conv(x, inmaps, outmaps, 1, stride, "skip")


def padding(x, inmaps, outmaps, stride):
    """The shortcut of the CIFAR networks where shapes differ: every other pixel, and channels of zeros (option A)."""
    if stride == 1 and inmaps == outmaps:
        return x
    spread = (outmaps - inmaps) // 2
    thin = Slice((slice(None), slice(None), slice(None, None, stride), slice(None, None, stride)), name="thin")(x)
    return Pad(((spread, outmaps - inmaps - spread), (0, 0), (0, 0)), name="zeros")(thin)


def basic(inmaps, maps, stride, shortcut, name):
    """Two 3x3 convolutions and a shortcut; figure 2 of the paper."""
    x = Input(name="x").node()
    h = Relu(name="relu1")(conv(x, inmaps, maps, 3, stride, "1"))
    h = conv(h, maps, maps, 3, 1, "2")
    return Graph(x, Relu(name="relu2")(Add(name="add")(h, shortcut(x, inmaps, maps, stride))), name=name)


def bottleneck(inmaps, maps, stride, shortcut, name):
    """1x1, 3x3 and 1x1 convolutions and a shortcut; figure 5. The stride is in the 3x3, as is common now."""
    x = Input(name="x").node()
    h = Relu(name="relu1")(conv(x, inmaps, maps, 1, 1, "1"))
    h = Relu(name="relu2")(conv(h, maps, maps, 3, stride, "2"))
    h = conv(h, maps, 4 * maps, 1, 1, "3")
    return Graph(x, Relu(name="relu3")(Add(name="add")(h, shortcut(x, inmaps, 4 * maps, stride))), name=name)


def stages(counts, inmaps, maps, block, expansion, shortcut):
    """Stages of blocks, each with twice the channels at half the size of the one before."""
    for stage, count in enumerate(counts, 1):
        blocks = []
        for i in range(1, count + 1):
            stride = 2 if stage > 1 and i == 1 else 1
            blocks.append(block(inmaps, maps, stride, shortcut, f"block{i}"))
            inmaps = maps * expansion
        yield Sequential(*blocks, name=f"stage{stage}")
        maps *= 2


@takes(classes=Count, inmaps=Count)
def resnet(depth, classes=1000, inmaps=3, name=None):
    """The ImageNet networks.

    Shapes    x (n, inmaps, h, w) -> (n, classes); the paper has h = w = 224
    Source    He, Zhang, Ren, Sun 2016, arXiv:1512.03385, table 1
    Params    11,689,512 (18), 21,797,672 (34), 25,557,032 (50), 44,549,160 (101), 60,192,808 (152)
    Raises    ValueError for a depth that the paper does not have

    >>> resnet(18, classes=10).dataShapeFrom(("N", 3, 224, 224))
    ('N', 10)
    """
    if depth not in IMAGENET:
        raise ValueError(f"resnet: wanted a depth of {', '.join(map(str, IMAGENET))}, got {depth!r}")
    block, expansion = (basic, 1) if depth < 50 else (bottleneck, 4)
    return Sequential(
        Conv2D(inmaps, 64, 7, stride=2, pad=3, useBias=False, initscheme=("he", "out"), name="conv"),
        BatchNorm(64, name="norm"),
        Relu(name="relu"),
        MaxPool2D(3, stride=2, pad=1, name="pool"),
        *stages(IMAGENET[depth], 64, 64, block, expansion, projection),
        GlobalAvgPool(name="mean"),
        Linear(512 * expansion, classes, name="fc"),
        name=name or f"resnet{depth}",
    )


@takes(depth=Count, classes=Count, inmaps=Count)
def cifarResnet(depth, classes=10, inmaps=3, name=None):
    """The CIFAR networks: 6 n + 2 layers, three stages of 16, 32 and 64 channels, shortcuts without parameters.

    Shapes    x (n, inmaps, h, w) -> (n, classes); the paper has h = w = 32
    Source    He, Zhang, Ren, Sun 2016, arXiv:1512.03385, section 4.2
    Params    269,722 (20), 464,154 (32), 658,586 (44), 853,018 (56), 1,727,962 (110)
    Raises    ValueError for a depth that is not 6 n + 2

    >>> net = cifarResnet(20)
    >>> net.dataShapeFrom(("N", 3, 32, 32)), sum(param.size for param in net.params.values())
    (('N', 10), 269722)
    """
    if depth < 8 or depth % 6 != 2:
        raise ValueError(f"cifarResnet: wanted a depth of 6 n + 2, such as 20, 32, 44, 56 or 110, got {depth}")
    return Sequential(
        Conv2D(inmaps, 16, 3, pad=1, useBias=False, initscheme=("he", "out"), name="conv"),
        BatchNorm(16, name="norm"),
        Relu(name="relu"),
        *stages([(depth - 2) // 6] * 3, 16, 16, basic, 1, padding),
        GlobalAvgPool(name="mean"),
        Linear(64, classes, name="fc"),
        name=name or f"resnet{depth}",
    )


@takes(classes=Count)
def resnet18(classes=1000, **options):
    """`resnet` of depth 18: 11,689,512 parameters.

    >>> resnet18(classes=10).dataShapeFrom(("N", 3, 224, 224))
    ('N', 10)
    """
    return resnet(18, classes, **options)


@takes(classes=Count)
def resnet34(classes=1000, **options):
    """`resnet` of depth 34: 21,797,672 parameters.

    >>> resnet34().dataShapeFrom(("N", 3, 224, 224))
    ('N', 1000)
    """
    return resnet(34, classes, **options)


@takes(classes=Count)
def resnet50(classes=1000, **options):
    """`resnet` of depth 50: 25,557,032 parameters.

    >>> sum(param.size for param in resnet50().params.values())       # nothing is allocated
    25557032
    """
    return resnet(50, classes, **options)


@takes(classes=Count)
def resnet101(classes=1000, **options):
    """`resnet` of depth 101: 44,549,160 parameters.

    >>> resnet101()["stage3"].dataShapeFrom(("N", 512, 28, 28))
    ('N', 1024, 14, 14)
    """
    return resnet(101, classes, **options)


@takes(classes=Count)
def resnet152(classes=1000, **options):
    """`resnet` of depth 152: 60,192,808 parameters.

    >>> sum(param.size for param in resnet152().params.values())      # nothing is allocated
    60192808
    """
    return resnet(152, classes, **options)


@takes(classes=Count)
def resnet20(classes=10, **options):
    """`cifarResnet` of depth 20: 269,722 parameters.

    >>> resnet20(classes=100).dataShapeFrom(("N", 3, 32, 32))
    ('N', 100)
    """
    return cifarResnet(20, classes, **options)


@takes(classes=Count)
def resnet32(classes=10, **options):
    """`cifarResnet` of depth 32: 464,154 parameters.

    >>> resnet32().dataShapeFrom(("N", 3, 32, 32))
    ('N', 10)
    """
    return cifarResnet(32, classes, **options)


@takes(classes=Count)
def resnet44(classes=10, **options):
    """`cifarResnet` of depth 44: 658,586 parameters.

    >>> resnet44(inmaps=1).dataShapeFrom(("N", 1, 32, 32))
    ('N', 10)
    """
    return cifarResnet(44, classes, **options)


@takes(classes=Count)
def resnet56(classes=10, **options):
    """`cifarResnet` of depth 56: 853,018 parameters.

    >>> len(resnet56()["stage1"])                                     # blocks in each stage
    9
    """
    return cifarResnet(56, classes, **options)


@takes(classes=Count)
def resnet110(classes=10, **options):
    """`cifarResnet` of depth 110: 1,727,962 parameters.

    >>> len(resnet110()["stage1"])                                    # blocks in each stage
    18
    """
    return cifarResnet(110, classes, **options)
