"""LSTM: layers of long short-term memory that read a sequence, and a linear layer that classifies it."""

from puregraph.core.arguments import takes
from puregraph.graph.sequential import Sequential
from puregraph.modules import LSTM, Dropout, Linear


@takes()
def lstm(insize=28, hsize=256, layers=2, classes=10, direction="uni", dropout=0.0, name="lstm"):
    """A classifier of sequences of any length: the last layer returns its last state, the others all of theirs.

    With direction "bi" every layer reads both ways. `dropout` drops that part of the inputs of the next layer.

    Shapes    x (n, t, insize) -> (n, classes)
    Source    Graves, Mohamed, Hinton 2013, arXiv:1303.5778, section 2, with the classes of whole sequences; dropout:
              Zaremba, Sutskever, Vinyals 2014, arXiv:1409.2329, section 3.1
    Params    819,722 for 28-256-256-10
    Raises    ValueError for less than one layer

    >>> lstm(insize=28, hsize=64, classes=10).dataShapeFrom(("N", "T", 28))
    ('N', 10)
    """
    if layers < 1:
        raise ValueError(f"lstm: wanted at least one layer, got {layers}")
    net, width = Sequential(name=name), hsize * (2 if direction == "bi" else 1)
    for i in range(1, layers + 1):
        net.append(LSTM(insize, hsize, direction, outputs="h" if i == layers else "y", name=f"lstm{i}"))
        if dropout:
            net.append(Dropout(dropout, name=f"drop{i}"))
        insize = width
    return net.append(Linear(width, classes, name="out"))
