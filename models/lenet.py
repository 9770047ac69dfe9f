"""LeNet: the first convolutional network in daily use."""

from puregraph.core.arguments import takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import BatchNorm, Conv2D, Dropout, Flatten, Linear, MaxPool2D, Relu


@takes()
def lenet(inmaps=1, size=28, classes=10, maps=(6, 16), norm=False, dropout=0.0, name="lenet"):
    """Two convolutions with pooling, three linear layers, written as a graph of nodes; rectifiers and maximum pooling.

    The second convolution is 5x5 without padding as in the paper, or, for images below 20 pixels, 3x3 with padding.
    `norm` adds batch normalisation after the convolutions, `dropout` drops that part of their outputs: neither is
    in the paper, and both help on small sets of images.

    Shapes    x (n, inmaps, size, size) -> (n, classes)
    Source    LeCun, Bottou, Bengio, Haffner 1998, Proc. IEEE 86(11), LeNet-5
    Params    61,706 for 28x28 images of one channel and ten classes
    Raises    ValueError for images too small to be halved twice

    >>> lenet().dataShapeFrom(("N", 1, 28, 28))
    ('N', 10)
    """
    if size < 4:
        raise ValueError(f"lenet: wanted a size of at least 4, got {size}")
    kernel, pad = (5, 0) if size >= 20 else (3, 1)
    side = (size // 2 + 2 * pad - kernel + 1) // 2
    x = Input(name="image").node()
    h = Conv2D(inmaps, maps[0], 5, pad=2, initscheme="he", name="conv1")(x)
    h = BatchNorm(maps[0], name="norm1")(h) if norm else h
    h = MaxPool2D(2, name="pool1")(Relu(name="relu1")(h))
    h = Conv2D(maps[0], maps[1], kernel, pad=pad, initscheme="he", name="conv2")(h)
    h = BatchNorm(maps[1], name="norm2")(h) if norm else h
    h = MaxPool2D(2, name="pool2")(Relu(name="relu2")(h))
    h = Dropout(dropout, name="drop")(h) if dropout else h
    h = Flatten(name="flat")(h)
    h = Relu(name="relu3")(Linear(maps[1] * side * side, 120, initscheme="he", name="fc1")(h))
    h = Relu(name="relu4")(Linear(120, 84, initscheme="he", name="fc2")(h))
    return Graph(x, Linear(84, classes, name="fc3")(h), name=name)
