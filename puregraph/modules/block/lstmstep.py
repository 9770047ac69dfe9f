"""lstmStep: one time step of an LSTM with any products, for the body of a Scan; and the zeros that it begins with."""

from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules.activation import Sigmoid, Tanh
from puregraph.modules.comparison import Where
from puregraph.modules.constant import Constant, Full
from puregraph.modules.joining import Concat, Split
from puregraph.modules.reshaping import Unsqueeze
from puregraph.modules.shapeof import Shape


def lstmStep(recurrent, projection=None, masked=False):
    """i, f, g, o = s(a_i), s(a_f), tanh(a_g), s(a_o), the parts of a + recurrent(h) along axis 1

        c' = f c + i g,   h' = projection(o tanh(c'))

    With `masked` a fourth input says which samples this time step is of: others keep h and c, and give 0.

    Shapes    h, c and a, the products of x_t with the bias (, mask (n,)) -> h', c', and h' as the output of a Scan
    """
    h, c, a = (Input(name=name).node() for name in ("h", "c", "a"))
    gates = Split(1, 4, name="gates").node(a + recurrent.node(h))
    i, f, o = (Sigmoid(name=name).node((gates, k)) for name, k in (("i", 0), ("f", 1), ("o", 3)))
    new = f * c + i * Tanh(name="g").node((gates, 2))
    y = o * Tanh(name="tanh").node(new)
    y = y if projection is None else projection.node(y)
    if not masked:
        return Graph([h, c, a], [y, new, y])
    mask = Input(name="mask").node()
    isInside = Unsqueeze((1,), name="isInside").node(mask)
    kept = [Where(name=f"kept{name}").node(isInside, *pair) for name, pair in (("H", (y, h)), ("C", (new, c)))]
    return Graph([h, c, a, mask], [*kept, Where(name="y").node(isInside, y, y * 0.0)])


def zeroState(x, size, state, *rest):
    """Return a node of zeros, (n, size, *rest) for a sequence x (n, t, ...); `rest` are nodes of further sizes."""
    width = Constant([size], name=f"{state}Width").node()
    sizes = Concat(0, name=f"{state}Sizes").node(Shape(0, 1, name=f"{state}Count").node(x), width, *rest)
    return Full(name=f"{state}Zeros").node(sizes)
