"""Mamba: a selective state space, whose decay, input and output are computed from each time step."""

from math import ceil

import numpy as np

from puregraph.core.arguments import Count, Flag, takes
from puregraph.core.param import Param
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.activation import SoftPlus, Swish
from puregraph.modules.block.blockname import blockNamed
from puregraph.modules.constant import Constant, Full, Weight
from puregraph.modules.control.scan import Scan
from puregraph.modules.convolution import Conv1D
from puregraph.modules.joining import Concat, Split
from puregraph.modules.linear import Linear
from puregraph.modules.reduction import Sum
from puregraph.modules.reshaping import Transpose, Unsqueeze
from puregraph.modules.shapeof import Shape

STEPS = (1e-3, 1e-1)  # bounds of the first step sizes


@blockNamed
@takes(size=Count, states=Count, expand=Count, kernel=Count, rank=Count | None, useBias=Flag)
def Mamba(size, states=16, expand=2, kernel=4, rank=None, useBias=False, name=None):
    """u, z = the halves of x in,   u = silu(conv(u)),   d, B, C = the parts of u x,   d = softplus(d dt + b), and

        h_t = exp(d_t A) h_{t-1} + d_t u_t B_t',   y_t = (h_t C_t + D u_t) silu(z_t) out,   A = -exp(logA), h_0 = 0

    The width inside is `expand` times the size; conv is causal, of `kernel` time steps, a channel by itself; d has
    `rank` numbers before dt, ceil(size / 16) by default. A starts at -1, ..., -states, D at 1, and softplus(b) between
    0.001 and 0.1. `useBias` adds biases to in and out. Time steps run in a Scan.

    Shapes    x (n, t, size) -> y as x; h (n, expand size, states), d, u (n, expand size), B, C (n, states) at each t
    Source    Gu and Dao 2023, arXiv:2312.00752, algorithm 2 and figure 3
    Raises    ShapeError if x is not (n, t, size)

    >>> Mamba(8, states=4).dataShapeFrom(("N", "T", 8))
    ('N', 'T', 8)
    """
    inner, rank = expand * size, rank or ceil(size / 16)
    x = Input(name="x").node()
    halves = Split(-1, 2, name="halves").node(Linear(size, 2 * inner, useBias, name="in")(x))
    conv = Conv1D(inner, inner, kernel, pad=[(kernel - 1, 0)], groups=inner, name="conv")
    u = Transpose((0, 2, 1), name="times")(conv(Transpose((0, 2, 1), name="channels").node((halves, 0))))
    u = Swish(name="silu")(u)
    chosen = Linear(inner, rank + 2 * states, useBias=False, name="x-proj")(u)
    parts = Split(-1, sections=(rank, states, states), name="parts").node(chosen)
    steps = Linear(rank, inner, name="dt")
    steps.b = Param((inner,), firstSteps)
    d = SoftPlus(name="softplus")(steps.node((parts, 0)))
    decay = Weight((inner, states), name="logA")
    decay.W = Param((inner, states), firstDecay)
    sizes = Shape(0, 1, name="n")(x), Constant([inner, states], name="sizes").node()
    h = Full(name="zeros")(Concat(0, name="start").node(*sizes))
    scan = Scan(step(), 1, [(1, False)] * 4, [(1, False)], name="scan")
    read = (scan.node(h, d, u, (parts, 1), (parts, 2), decay.node()), 1)
    skip = Weight((inner,), name="D", initial="ones").node()
    y = Pointwise(formula="(read + skip * u) * z * sigmoid(z)", name="gate").node(read, skip, u, (halves, 1))
    return Graph(x, Linear(inner, size, useBias, name="out")(y), name=name)


def step():
    """Return the Graph of one time step: h, d, u, B, C and log(-A) -> the new h, and its product with C."""
    inputs = h, d, u, b, c, a = [Input(name=name).node() for name in ("h", "d", "u", "B", "C", "logA")]
    d, u = (Unsqueeze((2,), name=name)(node) for name, node in (("dColumn", d), ("uColumn", u)))
    b, c = (Unsqueeze((1,), name=name)(node) for name, node in (("BRow", b), ("CRow", c)))
    new = Pointwise(formula="exp(-d * exp(a)) * h + d * u * b", name="new").node(d, a, h, u, b)
    return Graph(inputs, [new, Sum(axis=2, name="y")(new * c)])


def firstSteps(rng, shape):
    """Biases whose softplus is log-uniform within STEPS."""
    low, high = np.log(STEPS)
    return np.log(np.expm1(np.exp(rng.uniform(low, high, shape))))


def firstDecay(rng, shape):
    """log(1), ..., log(states) in each row."""
    return np.broadcast_to(np.log(np.arange(1, shape[1] + 1)), shape).copy()
