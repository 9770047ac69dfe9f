"""ProjectedLstm: the layer of RecurrentLayers whose h is a linear map of an LSTM's output."""

from puregraph.core.param import Param
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules.block.lstmstep import lstmStep, zeroState
from puregraph.modules.comparison import Less
from puregraph.modules.constant import Range
from puregraph.modules.control.scan import Scan
from puregraph.modules.joining import Concat, Split
from puregraph.modules.linear import Linear
from puregraph.modules.recurrent import _Open
from puregraph.modules.reshaping import Reshape
from puregraph.modules.shapeof import Shape

STATES = ("h", "c")


def projectedLstm(insize, hsize, projection, sides, useBias, starts, lengths, name):
    """i, f, g, o = s(a_i), s(a_f), tanh(a_g), s(a_o), the parts of a = x_t W + b + h_{t-1} U, and

        c_t = f c_{t-1} + i g,   h_t = (o tanh(c_t)) P,   from h_0 = c_0 = 0, or with `starts` from inputs after x

    With `lengths` a last input has the number of time steps of each sample: later ones change no state and give y = 0.

    Shapes    x (n, t, insize) (, h0 (n, d projection), c0 (n, d hsize)) (, lengths (n,)), for each of d = `sides`
              directions W (insize, 4 hsize), U (projection, 4 hsize), b (4 hsize,), P (hsize, projection)
              -> y (n, t, d projection), h (n, d projection), c (n, d hsize)
    Source    Sak, Senior, Beaufays 2014, arXiv:1402.1128, eq. 7 to 13, without peepholes
    """
    x = Input(name="x").node()
    first = [Input(name=f"{state}0").node() for state in STATES] if starts else []
    parts = [startsOf(x, first, k, size, sides) for k, size in enumerate((projection, hsize))]
    ends = [Input(name="lengths").node()] if lengths else []
    masks = [inside(x, ends[0])] if lengths else []
    directions = []
    for i in range(sides):
        end = "Reverse" if i else ""
        linear = Linear(insize, 4 * hsize, useBias, name=f"W{end}")
        if useBias:
            linear.b = Param((4 * hsize,), _Open(hsize))
        recurrent = Linear(projection, 4 * hsize, useBias=False, name="U")
        body = lstmStep(recurrent, Linear(hsize, projection, useBias=False, name="P"), lengths)
        scan = Scan(body, 2, [(1, bool(i))] * (1 + lengths), [(1, bool(i))], name=f"scan{end}")
        directions.append(scan.node(*(part[i] for part in parts), linear(x), *masks))
    if sides == 1:
        return Graph([x, *first, *ends], [(directions[0], k) for k in (2, 0, 1)], name=name)
    outs = [Concat(-1, name=out).node(*((scan, k) for scan in directions)) for out, k in (("y", 2), ("h", 0), ("c", 1))]
    return Graph([x, *first, *ends], outs, name=name)


def startsOf(x, first, k, size, sides):
    """Return the k-th first state of each direction: parts of the input, or zeros."""
    state = STATES[k]
    if first:
        parts = Split(-1, sides, name=f"{state}Parts").node(first[k]) if sides > 1 else None
        return [first[k]] if parts is None else [(parts, i) for i in range(sides)]
    return [zeroState(x, size, state)] * sides


def inside(x, lengths):
    """Return a node of bools (n, t): the time steps of a sequence x (n, t, ...) before the end of each sample."""
    count = Reshape((), name="steps").node(Shape(1, 2, name="times").node(x))
    return Less(name="inside").node(Range(name="range").node(count), Reshape((-1, 1), name="ends").node(lengths))
