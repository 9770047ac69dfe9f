"""Graph layers: GCNConv, SAGEConv, GATConv and NeighborSum, messages along edges that are summed at each node."""

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core import initial
from puregraph.core.arguments import Count, Flag, Fraction, Number, choice
from puregraph.core.base.dtype import promoted
from puregraph.core.base.widen import widen, widened
from puregraph.core.errors import need
from puregraph.core.param import Param
from puregraph.core.shape import product
from puregraph.graph.module import Module
from puregraph.modules.gathering import integers, refusing, rowsAt
from puregraph.ops.gather.alongaxis import putAlong
from puregraph.ops.gather.reference import scatterAdd


class _GraphLayer(Module):
    """Base class: features x of n nodes and edges (2, e) from sources to targets; a subclass writes `messages`."""

    messages: Callable[..., Any]
    reads: tuple[str, ...] = ("x", "edges", "W")
    needsFloats = True
    indices = ("edges",)

    def needGraph(self, x, edges, insize=None):
        """Refuse shapes that are not those of nodes and edges."""
        fits = len(x) == 2 and insize in (None, x[1])
        need(fits, ("n", "features" if insize is None else insize), x, "one row for each node of the graph")
        need(len(edges) == 2 and edges[0] == 2, (2, "e"), edges, "sources of the edges, then their targets")

    def updateData(self, x, edges, *others):
        with refusing(type(self).__name__):
            integers(edges, type(self).__name__)
            return self.messages(x, edges, *others)

    def updateGrad(self, grad, *values, needs):
        return derivedGrad(self.messages, grad, values, needs)

    def sample(self, rng, x, edges, *weights):
        need(x[0] or not edges[1], "a node for the edges", x)
        return [
            rng.standard_normal(x),
            rng.integers(0, max(x[0], 1), edges),
            *(rng.uniform(0.5, 1, s) for s in weights),
        ]


def ends(edges):
    """The sources and the targets of edges, both -1 where one of them is."""
    sources, targets = edges[0], edges[1]
    isNone = np.minimum(sources, targets) == -1
    return np.where(isNone, -1, sources), np.where(isNone, -1, targets)


class GCNConv(_GraphLayer):
    """y = S x W + b,   S = D^-1/2 (A + I) D^-1/2,   D the diagonal of row sums of A + I

    A[i, j] is the number of edges from j to i, or the sum of their `weights`; an edge from or to -1 is none. Without
    `selfLoops` I is left out, without `normalize` S = A + I. Where a row sum is not positive, the row of S is zero.

    Shapes    x (n, i), edges (2, e) integers, weights (e,), W (i, o), b (o,) -> y (n, o)
    Source    Kipf, Welling 2017, arXiv:1609.02907, eq. 2
    Raises    DataError if an index is below -1 or not below n; ShapeError for other shapes

    >>> layer = GCNConv(1, 1, useBias=False)
    >>> layer.W.data = np.ones((1, 1))
    >>> layer(np.array([[1], [3]], "float32"), np.array([[0], [1]])).round(4)  # one edge, from 0 to 1
    array([[1.    ],
           [2.2071]], dtype=float32)
    """

    reads = ("x", "edges", "weights", "W", "b")

    def __init__(
        self,
        insize: Count,
        outsize: Count,
        selfLoops: Flag = True,
        normalize: Flag = True,
        useBias: Flag = True,
        initscheme=None,
        name=None,
    ):
        super().__init__(name)
        self.selfLoops, self.normalize = selfLoops, normalize
        self.W = Param((insize, outsize), initial.weights(initscheme, insize, outsize, 1.0))
        self.b = Param((outsize,)) if useBias else None

    def dataShapeFrom(self, x, edges, weights=None):
        insize, outsize = self.W.shape
        self.needGraph(x, edges, insize)
        need(weights is None or weights == edges[1:], f"weights of shape {edges[1:]}", weights)
        return (x[0], outsize)

    def updateData(self, x, edges, weights=None, W=None, b=None):
        return super().updateData(x, edges, weights, W, b)

    @widened
    def messages(self, x, edges, weights, W, b):
        count, (sources, targets), h = x.shape[0], ends(edges), x @ W
        weights = np.ones_like(h, shape=targets.shape) if weights is None else weights
        scale = None
        if self.normalize:
            degree = scatterAdd(weights, targets, count) + float(self.selfLoops)
            scale = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0)[:, None]
            h = h * scale
        y = scatterAdd(rowsAt(h, sources) * weights[:, None], targets, count)
        y = y + h if self.selfLoops else y
        y = y if scale is None else y * scale
        return y if b is None else y + b

    def flopsFrom(self, x, edges, *weights):
        return 2 * x[0] * self.W.size + 2 * edges[1] * self.W.shape[1]

    @classmethod
    def examples(cls):
        yield cls(3, 2), [(4, 3), (2, 5)]
        yield cls(2, 3, useBias=False), [(3, 2), (2, 6), (6,)]
        yield cls(2, 3, selfLoops=False), [(5, 2), (2, 4)]
        yield cls(2, 2, normalize=False), [(3, 2), (2, 1), (1,)]


class SAGEConv(_GraphLayer):
    """y[i] = x[i] U + m[i] W + b, m[i] the mean, sum or largest of x[j] over the edges from j to i

    The product of [x, m] with one matrix, whose blocks are U and W. A node that no edge leads to has m = 0; an edge
    from or to -1 is none.

    Shapes    x (n, i), edges (2, e) integers, W, U (i, o), b (o,) -> y (n, o)
    Source    Hamilton, Ying, Leskovec 2017, arXiv:1706.02216, algorithm 1
    Raises    DataError if an index is below -1 or not below n; ShapeError for other shapes

    >>> SAGEConv(8, 16, mode="max").dataShapeFrom(("N", 8), (2, "E"))
    ('N', 16)
    """

    reads = ("x", "edges", "W", "U", "b")

    def __init__(
        self,
        insize: Count,
        outsize: Count,
        mode: Annotated[str, choice("mean", "sum", "max")] = "mean",
        useBias: Flag = True,
        initscheme=None,
        name=None,
    ):
        super().__init__(name)
        self.mode = mode
        self.W, self.U = (Param((insize, outsize), initial.weights(initscheme, insize, outsize, 1.0)) for _ in range(2))
        self.b = Param((outsize,)) if useBias else None

    def dataShapeFrom(self, x, edges):
        insize, outsize = self.W.shape
        self.needGraph(x, edges, insize)
        return (x[0], outsize)

    def updateData(self, x, edges, W, U, b):
        return super().updateData(x, edges, W, U, b)

    @widened
    def messages(self, x, edges, W, U, b):
        y = x @ U + self.neighbors(x, *ends(edges)) @ W
        return y if b is None else y + b

    def neighbors(self, x, sources, targets):
        """The mean, sum or largest of each node's neighbors."""
        rows, count = rowsAt(x, sources), x.shape[0]
        if self.mode == "sum":
            return scatterAdd(rows, targets, count)
        degree = scatterAdd(np.ones_like(x, shape=targets.shape), targets, count)[:, None]
        if self.mode == "mean":
            return scatterAdd(rows, targets, count) / np.maximum(degree, 1)
        return np.where(degree > 0, largest(np.full_like(x, -np.inf), rows, targets), 0)

    def flopsFrom(self, x, edges):
        return 4 * x[0] * self.W.size + edges[1] * self.W.shape[0]

    @classmethod
    def examples(cls):
        yield cls(3, 2), [(4, 3), (2, 5)]
        yield cls(2, 3, "sum", useBias=False), [(3, 2), (2, 6)]
        yield cls(2, 3, "max"), [(5, 2), (2, 7)]


class NeighborSum(_GraphLayer):
    """y[i] = (1 + epsilon) x[i] + the sum of x[j] over the edges from j to i

    With `isTrained` epsilon is a parameter. An edge from or to -1 is none.

    Shapes    x (n, i), edges (2, e) integers, epsilon (1,) -> y (n, i)
    Source    Xu, Hu, Leskovec, Jegelka 2019, arXiv:1810.00826, eq. 4.1, without the network
    Raises    DataError if an index is below -1 or not below n; ShapeError for other shapes

    >>> NeighborSum()(np.array([[1.0], [2.0], [4.0]]), np.array([[0, 1], [2, 2]]))
    array([[1.],
           [2.],
           [7.]])
    """

    reads = ("x", "edges", "epsilon")

    def __init__(self, epsilon: Number = 0.0, isTrained: Flag = False, name=None):
        super().__init__(name)
        self.start = epsilon
        self.epsilon = Param((1,), epsilon) if isTrained else None

    def dataShapeFrom(self, x, edges):
        self.needGraph(x, edges)
        return x

    def updateData(self, x, edges, epsilon):
        return super().updateData(x, edges, epsilon)

    @widened
    def messages(self, x, edges, epsilon):
        sources, targets = ends(edges)
        return x * (1 + (self.start if epsilon is None else epsilon)) + scatterAdd(rowsAt(x, sources), targets, len(x))

    def flopsFrom(self, x, edges):
        return 2 * product(x) + edges[1] * x[1]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (2, 5)]
        yield cls(0.5, isTrained=True), [(3, 2), (2, 6)]


class GATConv(_GraphLayer):
    """y[i] = sum over j of a[i, j] h[j] + b, j the sources of edges to i and i itself, for each head of h = x W

        a[i, j] = the softmax over j of e[i, j],   e[i, j] = max(z, slope z),   z = h[j] U[0] + h[i] U[1]

    The results of heads are concatenated, or their mean is taken without `concat`. A repeated edge counts as often;
    an edge from or to -1 is none. Without `selfLoops` i itself is left out, and a node that no edge leads to has b.
    The largest e[i, j] of each node is the hidden output `peaks`.

    Shapes    x (n, i), edges (2, e) integers, W (i, heads outsize), U (2, heads outsize), b as the last axis of y
              -> y (n, heads outsize), or (n, outsize) without `concat`
    Source    Velickovic et al. 2018, arXiv:1710.10903, eq. 3 to 6, without the last nonlinearity
    Raises    DataError if an index is below -1 or not below n; ShapeError for other shapes

    >>> GATConv(8, 16, heads=4).dataShapeFrom(("N", 8), (2, "E"))
    ('N', 64)
    """

    reads = ("x", "edges", "W", "U", "b", "peaks")
    hidden = ("peaks",)

    def __init__(
        self,
        insize: Count,
        outsize: Count,
        heads: Count = 1,
        concat: Flag = True,
        slope: Fraction = 0.2,
        selfLoops: Flag = True,
        useBias: Flag = True,
        initscheme=None,
        name=None,
    ):
        super().__init__(name)
        self.heads, self.concat, self.slope, self.selfLoops = heads, concat, slope, selfLoops
        self.W = Param((insize, heads * outsize), initial.weights(initscheme, insize, outsize, 1.0))
        self.U = Param((2, heads * outsize), initial.weights(initscheme, outsize, 1, 1.0))
        self.b = Param((heads * outsize if concat else outsize,)) if useBias else None

    def dataShapeFrom(self, x, edges):
        self.needGraph(x, edges, self.W.shape[0])
        return (x[0], self.W.shape[1] // (1 if self.concat else self.heads))

    def hiddenShapeFrom(self, x, edges):
        return [(x[0], self.heads)]

    def hiddenTypeFrom(self, *dtypes):
        return [np.promote_types(self.W.dtype, np.float32)]

    def updateData(self, x, edges, W, U, b):
        with refusing(type(self).__name__):
            _, e, loops, targets = self.scores(widen(x), integers(edges, type(self).__name__), *map(widen, (W, U)))
            peaks = largest(loops if self.selfLoops else np.full_like(loops, -np.inf), e, targets)
            peaks = np.where(peaks > -np.inf, peaks, 0)
            return self.messages(x, edges, W, U, b, peaks), peaks

    def updateGrad(self, grad, *values, needs):
        arguments = (*values[: len(needs)], values[-1])  # the softmax does not depend on its peaks
        return derivedGrad(self.messages, grad, arguments, (*needs, False))[:-1]

    def scores(self, x, edges, W, U):
        """h (n, heads, outsize), the scores of edges (e, heads) and of self loops (n, heads), and the targets."""
        sources, targets = ends(edges)
        h, shape = x @ W, (x.shape[0], 2, self.heads, W.shape[1] // self.heads)
        products = (h[:, None] * U).reshape(shape).sum(-1)
        fromSource, fromTarget = products[:, 0], products[:, 1]
        z, loops = rowsAt(fromSource, sources) + rowsAt(fromTarget, targets), fromSource + fromTarget
        return (
            h.reshape(shape[0], *shape[2:]),
            np.maximum(z, self.slope * z),
            np.maximum(loops, self.slope * loops),
            targets,
        )

    def messages(self, x, edges, W, U, b, peaks):
        count, dtype = x.shape[0], promoted([x.dtype, W.dtype])
        x, W, U, b = map(widen, (x, W, U, b))
        h, e, loops, targets = self.scores(x, edges, W, U)
        shares = np.exp(e - rowsAt(peaks, targets))
        total = scatterAdd(shares, targets, count)
        y = scatterAdd(rowsAt(h, ends(edges)[0]) * shares[:, :, None], targets, count)
        if self.selfLoops:
            loops = np.exp(loops - peaks)
            total, y = total + loops, y + h * loops[:, :, None]
        y = y / np.where(total > 0, total, 1)[:, :, None]
        y = y.reshape(count, W.shape[1]) if self.concat else y.mean(1)
        y = y if b is None else y + b
        return y.astype(dtype, copy=False)

    def flopsFrom(self, x, edges):
        width = self.W.shape[1]
        return 2 * x[0] * (self.W.size + 3 * width) + edges[1] * (3 * width + 6 * self.heads)

    @classmethod
    def examples(cls):
        yield cls(3, 2, heads=2), [(4, 3), (2, 5)]
        yield cls(2, 2, heads=3, slope=0.5, useBias=False), [(3, 2), (2, 6)]
        yield cls(2, 3, heads=2, concat=False, selfLoops=False), [(5, 2), (2, 7)]


def largest(start, rows, targets):
    """The largest of each node's start and the rows of the edges that lead to it."""
    isEdge = np.broadcast_to((targets >= 0)[:, None], rows.shape)
    index = np.broadcast_to(np.maximum(targets, 0)[:, None], rows.shape)
    return putAlong(start, index, np.where(isEdge, rows, -np.inf), 0, "maximum")
