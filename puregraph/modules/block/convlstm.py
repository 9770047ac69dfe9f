"""ConvLSTM: an LSTM whose products are convolutions, over sequences of lines, images or volumes."""

from puregraph.core.arguments import Count, Flag, Texts, takes
from puregraph.core.errors import need
from puregraph.core.param import Param
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules.block.blockname import blockNamed
from puregraph.modules.block.lstmstep import lstmStep, zeroState
from puregraph.modules.control.scan import Scan
from puregraph.modules.convolution import ConvNd
from puregraph.modules.joining import Concat
from puregraph.modules.recurrent import _Open
from puregraph.modules.reshaping import Flatten, Reshape
from puregraph.modules.shapeof import Shape


@blockNamed
@takes(inmaps=Count, outmaps=Count, useBias=Flag, starts=Flag, outputs=Texts)
def ConvLSTM(inmaps, outmaps, size, stride=1, pad=0, dilation=1, useBias=True, starts=False, outputs="y", name=None):
    """i, f, g, o = s(a_i), s(a_f), tanh(a_g), s(a_o), the parts of a = b + W * x_t + U * h_{t-1}, * a convolution

        c_t = f c_{t-1} + i g,   h_t = o tanh(c_t),   from h_0 = c_0 = 0, or with `starts` from inputs after x

    The convolution of x has the options of `ConvNd`, that of h stride 1 and pad "same"; the number of spatial axes is
    that of `size`. `outputs` names one output or several: "y", all h_t; "h" and "c", the last states. Gates do not
    read c: there are no peepholes, as in Keras. b starts at 1 for the gate f, else at 0.

    Shapes    x (n, t, inmaps, *spatial) (, h0, c0 (n, outmaps, *count)); W (4 outmaps, inmaps, *size), U (4 outmaps,
              outmaps, *size), b (4 outmaps,) -> y (n, t, outmaps, *count), h, c (n, outmaps, *count), count as `ConvNd`
    Source    Shi, Chen, Wang, Yeung, Wong, Woo 2015, arXiv:1506.04214, eq. 3, without the products of c
    Raises    ShapeError if shapes do not fit, or for an unknown or repeated output

    >>> ConvLSTM(3, 8, size=(3, 3), pad="same").dataShapeFrom(("N", "T", 3, "H", "W"))
    ('N', 'T', 8, 'H', 'W')
    """
    chosen = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    fits = chosen and set(chosen) <= {"y", "h", "c"} and len(set(chosen)) == len(chosen)
    need(fits, "outputs among 'y', 'h', 'c', each once", repr(outputs))
    x = Input(name="x").node()
    conv = ConvNd(inmaps, 4 * outmaps, size, stride, pad, dilation, useBias, name="x-conv")
    if useBias:
        conv.b = Param((4 * outmaps,), _Open(outmaps))
    a = conv.node(Flatten(0, end=1, name="joined").node(x))  # all time steps in one convolution
    if starts:
        states = [Input(name=state).node() for state in ("h0", "c0")]
    else:
        states = [zeroState(x, outmaps, "h", Shape(2, name="count").node(a))] * 2
    sizes = Concat(0, name="times").node(Shape(0, 2, name="nt").node(x), Shape(1, name="rest").node(a))
    a = Reshape(name="a", keepsZero=True).node(a, sizes)
    recurrent = ConvNd(outmaps, 4 * outmaps, conv.size, pad="same", useBias=False, name="h-conv")
    scan = Scan(lstmStep(recurrent), 2, [(1, False)], [(1, False)], name="scan").node(*states, a)
    outs = [(scan, ("h", "c", "y").index(output)) for output in chosen]
    return Graph([x, *states] if starts else x, outs if len(outs) > 1 else outs[0], name=name)
