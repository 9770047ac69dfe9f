"""Biases of attention scores by the distance of key and query: learned ones in buckets, and ALiBi's fixed slopes."""

import math

import numpy as np

from puregraph.core.arguments import Count, Flag, takes
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.arithmetic import Clip, MulAddConst
from puregraph.modules.constant import Constant, Range
from puregraph.modules.embedding import Embedder
from puregraph.modules.gathering import Gather
from puregraph.modules.reshaping import Reshape, Transpose
from puregraph.modules.shapeof import Shape


def distances(x, name):
    """The position of each key less that of each query, (t, t) integers, for a sequence x (n, t, ...)."""
    length = Reshape((), name=f"{name}length")(Shape(1, 2, name=f"{name}lengths")(x))
    positions = Range(name=f"{name}range")(length)
    keys, queries = (
        Reshape(shape, name=f"{name}{k}")(positions) for k, shape in (("keys", (1, -1)), ("queries", (-1, 1)))
    )
    return keys - queries


@takes(heads=Count)
def alibiBias(x, heads, name="alibi"):
    """Make a node of biases that fall with the distance of key and query: -m_h |j - i|, for a node x (n, t, ...).

    m_h is 2^(-8 h / heads) for h = 1 ... heads. If heads is no power of two, the slopes of the next lower power are
    followed by every second one of twice that power.

    Shapes    x (n, t, ...) -> (heads, t, t)
    Source    Press, Smith, Lewis 2021, arXiv:2108.12409, section 3, and its code for other numbers of heads

    >>> from puregraph import Graph, Input
    >>> x = Input(name="x").node()
    >>> Graph(x, alibiBias(x, 2))(np.zeros((1, 3, 4), np.float32))[:, 0, 2].tolist()
    [-0.125, -0.0078125]
    """
    power = 2 ** int(math.log2(heads))
    exponents = [-8 * h / power for h in range(1, power + 1)] + [-4 * h / power for h in range(1, 2 * power, 2)]
    slopes = np.exp2(exponents[:heads]).astype(np.float32).reshape(heads, 1, 1)
    far = Pointwise(formula="-slope * abs(far)", name=name)
    return far.node(Constant(slopes, name=f"{name}slopes").node(), distances(x, name))


def bucketsOf(distances, buckets, far, bothWays):
    """The bucket of each distance of a key from its query: one each for near ones, then by logarithm up to `far`."""
    offset = np.zeros(len(distances), np.int64)
    if bothWays:
        buckets //= 2
        offset, distances = buckets * (distances > 0), np.abs(distances)
    else:
        distances = -np.minimum(distances, 0)
    near = buckets // 2
    logs = np.log(np.maximum(distances, 1).astype(np.float32) / near) / math.log(far / near) * (buckets - near)
    return offset + np.where(distances < near, distances, np.minimum(near + logs.astype(np.int64), buckets - 1))


@takes(heads=Count, buckets=Count, far=Count, bothWays=Flag)
def relativeBias(x, heads, buckets=32, far=128, bothWays=True, name="relative"):
    """Make a node of learned biases by the distance of key and query, in `buckets`, for a node x (n, t, ...).

    Half of the buckets are of single distances, the others grow by logarithm up to `far`, from which on all are alike.
    With `bothWays` later keys have buckets of their own, else they share that of distance 0.

    Shapes    x (n, t, ...), W (buckets, heads) of an Embedder named `name` and "bias" -> (heads, t, t)
    Source    Raffel et al. 2019, arXiv:1910.10683, section 2.1

    >>> from puregraph import Graph, Input
    >>> x = Input(name="x").node()
    >>> Graph(x, relativeBias(x, heads=4)).dataShapeFrom(("N", 7, 16))
    (4, 7, 7)
    """
    table = bucketsOf(np.arange(-far, far + 1), buckets, far, bothWays)
    index = Clip(0, 2 * far, name=f"{name}near")(MulAddConst(1, far, name=f"{name}from")(distances(x, name)))
    bucket = Gather(name=f"{name}bucket").node(Constant(table, name=f"{name}table").node(), index)
    bias = Embedder(buckets, heads, initscheme="gaussian", wscale=0.1, name=f"{name}bias")(bucket)
    return Transpose((2, 0, 1), name=f"{name}heads")(bias)
