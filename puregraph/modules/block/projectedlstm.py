"""ProjectedLstm: the layer of RecurrentLayers whose h is a linear map of an LSTM's output."""

from puregraph.core.param import Param
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules.activation import Sigmoid, Tanh
from puregraph.modules.constant import Constant, Full
from puregraph.modules.control.scan import Scan
from puregraph.modules.joining import Concat, Split
from puregraph.modules.linear import Linear
from puregraph.modules.recurrent import _Open
from puregraph.modules.shapeof import Shape

STATES = ("h", "c")


def projectedLstm(insize, hsize, projection, sides, useBias, starts, name):
    """i, f, g, o = s(a_i), s(a_f), tanh(a_g), s(a_o), the parts of a = x_t W + b + h_{t-1} U, and

        c_t = f c_{t-1} + i g,   h_t = (o tanh(c_t)) P,   from h_0 = c_0 = 0, or with `starts` from inputs after x

    Shapes    x (n, t, insize) (, h0 (n, d projection), c0 (n, d hsize)), for each of d = `sides` directions W (insize,
              4 hsize), U (projection, 4 hsize), b (4 hsize,), P (hsize, projection)
              -> y (n, t, d projection), h (n, d projection), c (n, d hsize)
    Source    Sak, Senior, Beaufays 2014, arXiv:1402.1128, eq. 7 to 13, without peepholes
    """
    x = Input(name="x").node()
    first = [Input(name=f"{state}0").node() for state in STATES] if starts else []
    parts = [startsOf(x, first, k, size, sides) for k, size in enumerate((projection, hsize))]
    directions = []
    for i in range(sides):
        end = "Reverse" if i else ""
        linear = Linear(insize, 4 * hsize, useBias, name=f"W{end}")
        if useBias:
            linear.b = Param((4 * hsize,), _Open(hsize))
        body = step(hsize, projection)
        scan = Scan(body, 2, [(1, bool(i))], [(1, bool(i))], name=f"scan{end}")
        directions.append(scan.node(*(part[i] for part in parts), linear(x)))
    if sides == 1:
        return Graph([x, *first], [(directions[0], k) for k in (2, 0, 1)], name=name)
    outs = [Concat(-1, name=out).node(*((scan, k) for scan in directions)) for out, k in (("y", 2), ("h", 0), ("c", 1))]
    return Graph([x, *first], outs, name=name)


def startsOf(x, first, k, size, sides):
    """Return the k-th first state of each direction: parts of the input, or zeros."""
    state = STATES[k]
    if first:
        parts = Split(-1, sides, name=f"{state}Parts").node(first[k]) if sides > 1 else None
        return [first[k]] if parts is None else [(parts, i) for i in range(sides)]
    sizes = Concat(0, name=f"{state}Sizes")
    width = Constant([size], name=f"{state}Width").node()
    return [Full(name=f"{state}Zeros").node(sizes.node(Shape(0, 1, name=f"{state}Count").node(x), width))] * sides


def step(hsize, projection):
    """Return the Graph of one time step: h, c and x W + b -> the new h and c, and h again."""
    h, c, a = (Input(name=name).node() for name in (*STATES, "a"))
    recurrent = Linear(projection, 4 * hsize, useBias=False, name="U")
    gates = Split(1, 4, name="gates").node(a + recurrent(h))
    i, f, o = (Sigmoid(name=name).node((gates, k)) for name, k in (("i", 0), ("f", 1), ("o", 3)))
    new = f * c + i * Tanh(name="g").node((gates, 2))
    y = Linear(hsize, projection, useBias=False, name="P")(o * Tanh(name="tanh").node(new))
    return Graph([h, c, a], [y, new, y])
