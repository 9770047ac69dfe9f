"""A multi-layer perceptron."""

from puregraph.core.arguments import takes
from puregraph.graph.sequential import Sequential
from puregraph.modules import Dropout, Flatten, Linear, Relu


@takes()
def mlp(insize=784, hidden=(512, 512), outsize=10, dropout=0.0, name="mlp"):
    """Linear layers with rectifiers between them; the input is flattened first.

    Shapes    x (n, ...) with `insize` elements each -> (n, outsize)
    Source    Rumelhart, Hinton, Williams 1986, Nature 323
    Params    669,706 for 784-512-512-10
    Raises    ValueError for an integer in place of a tuple of sizes

    >>> mlp(784, (100, 50), 10).dataShapeFrom(("N", 784))
    ('N', 10)
    """
    if isinstance(hidden, int):
        raise ValueError(f"mlp: wanted the sizes of the hidden layers in a tuple, as in ({hidden},), got {hidden}")
    net = Sequential(Flatten(), name=name)
    for i, size in enumerate(hidden):
        net.extend([Linear(insize, size, initscheme="he", name=f"fc{i + 1}"), Relu(name=f"relu{i + 1}")])
        if dropout:
            net.append(Dropout(dropout, name=f"drop{i + 1}"))
        insize = size
    return net.append(Linear(insize, outsize, name="out"))
