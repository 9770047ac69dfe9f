"""Linear, an affine map of the last axis; Bilinear, of two vectors; GroupLinear, a map for each group."""

from typing import Annotated

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core import initial
from puregraph.core.arguments import Count, Flag, NotNegative, Size, choice
from puregraph.core.errors import need
from puregraph.core.param import Param
from puregraph.core.shape import broadcast, product
from puregraph.graph.module import Module
from puregraph.ops.reduction.reference import total, unbroadcast


class Linear(Module):
    """y = x W + b, or y = x W' + b with `transpose`, which lets W be the table of an Embedder

    Shapes    x (..., i), W (i, o), or (o, i) with `transpose`, b (o,) -> y (..., o); any number of leading axes
    Source    Rumelhart, Hinton, Williams 1986, Nature 323, eq. 1
    Raises    ShapeError if x has no axis, or its last one is not i
    """

    reads = ("x", "W")
    gives = "features last"

    def __init__(
        self,
        insize: Size,
        outsize: Size,
        useBias: Flag = True,
        initscheme=None,
        wscale: NotNegative = 1.0,
        transpose: Flag = False,
        name=None,
    ):
        super().__init__(name)
        self.transpose = transpose
        self.W = Param((outsize, insize) if transpose else (insize, outsize))
        self.W.initial = initial.weights(initscheme, insize, outsize, wscale)
        self.b = Param((outsize,)) if useBias else None

    def oriented(self, W):
        """W as (i, o)."""
        return W.T if self.transpose else W

    @property
    def sizes(self):
        """(i, o)"""
        return self.W.shape[::-1] if self.transpose else self.W.shape

    def dataShapeFrom(self, x):
        insize, outsize = self.sizes
        fits = len(x) >= 1 and x[-1] == insize
        isFlat = not fits and len(x) > 2 and None not in x and product(x[1:]) == insize
        need(fits, f"(..., {insize})", x, "Flatten() makes one axis of these" if isFlat else "")
        return (*x[:-1], outsize)

    def updateData(self, x, W, b, out=None):
        y = np.matmul(x, self.oriented(W), out=out)
        return y if b is None else np.add(y, b, out=y)

    def updateGrad(self, grad, x, W, b, y, needs):
        insize, outsize = self.sizes
        count = product(grad.shape[:-1])  # -1 is ambiguous where there are no inputs or outputs
        x, rows = x.reshape(count, insize), grad.reshape(count, outsize)
        left, right = (rows, x) if self.transpose else (x, rows)
        return (
            grad @ self.oriented(W).T if needs[0] else None,
            left.T @ right if needs[1] else None,
            total(rows, 0) if needs[2] else None,
        )

    def flopsFrom(self, x):
        insize, outsize = self.sizes
        return 2 * insize * product(self.dataShapeFrom(x)) + (0 if self.b is None else outsize * product(x[:-1]))

    @classmethod
    def examples(cls):
        yield cls(3, 4), [(5, 3)]
        yield cls(3, 4, useBias=False), [(1, 3)]
        yield cls(2, 3, initscheme="he"), [(2, 3, 2)]
        yield cls(3, 2), [(3,)]
        yield cls(3, 4, transpose=True), [(2, 5, 3)]


class Bilinear(Module):
    """y[o] = x1 W[o] x2 + b[o], x1 and x2 the vectors of the last axis

    Shapes    x1 (..., i), x2 (..., j), W (o, i, j), b (o,) -> y (..., o); leading axes broadcast
    Source    Tenenbaum, Freeman 2000, Separating Style and Content with Bilinear Models, eq. 1
    Raises    ShapeError if the last axes are not i and j, or leading axes do not broadcast
    """

    reads = ("x1", "x2", "W")
    needsFloats = True

    def __init__(
        self, insize1: Count, insize2: Count, outsize: Count, useBias: Flag = True, initscheme=None, name=None
    ):
        super().__init__(name)
        self.W = Param((outsize, insize1, insize2))
        self.W.initial = initial.weights(initscheme, insize1 * insize2, outsize, 1.0)
        self.b = Param((outsize,)) if useBias else None

    def dataShapeFrom(self, x1, x2):
        o, i, j = self.W.shape
        need(x1[-1:] == (i,) and x2[-1:] == (j,), f"(..., {i}) and (..., {j})", [x1, x2])
        return (*broadcast(x1[:-1], x2[:-1]), o)

    def updateData(self, x1, x2, W, b):
        y = forms(x1, x2, W)
        return y if b is None else y + b

    def updateGrad(self, grad, x1, x2, W, b, y, needs):
        o, i, j = W.shape
        gx1, gx2, _ = derivedGrad(forms, grad, (x1, x2, W), (*needs[:2], False))
        rows, products = grad.reshape(product(grad.shape[:-1]), o), pairs(x1, x2)
        gW = (rows.T @ products.reshape(len(rows), i * j)).reshape(o, i, j) if needs[2] else None
        return gx1, gx2, gW, total(rows, 0) if needs[3] else None

    def flopsFrom(self, x1, x2):
        return (2 * self.W.size + self.W.shape[0]) * product(self.dataShapeFrom(x1, x2)[:-1])

    @classmethod
    def examples(cls):
        yield cls(2, 3, 4), [(5, 2), (5, 3)]
        yield cls(3, 2, 1, useBias=False), [(2, 1, 3), (4, 2)]
        yield cls(2, 2, 3, initscheme="he"), [(2,), (2,)]


class GroupLinear(Module):
    """y[n, g] = x[n, g] W[g] + b[g]: an affine map for each group

    With `inmode` "one" x has one group, which all maps get; with `wmode` "one" all groups have one W and b. `batchDim`
    is the axis of samples, 0 or 1, and groups are the other; `transpW` has W (g, o, i). Without `useW`, W is a second
    input.

    Shapes    x (n, g, i), W (g, i, o), b (g, o) -> y (n, g, o); with batchDim 1 x (g, n, i) -> y (g, n, o)
    Source    PuzzleLib's GroupLinear; np.matmul for each group
    Raises    ShapeError if x or W have other groups or sizes
    """

    reads = ("x", "W")
    needsFloats = True

    def __init__(
        self,
        groups: Count,
        insize: Count,
        outsize: Count,
        wscale: NotNegative = 1.0,
        useW: Flag = True,
        useBias: Flag = True,
        initscheme=None,
        inmode: Annotated[str, choice("full", "one")] = "full",
        wmode: Annotated[str, choice("full", "one")] = "full",
        batchDim: Size = 0,
        transpW: Flag = False,
        name=None,
    ):
        super().__init__(name)
        need(batchDim < 2, "batchDim as 0 or 1", batchDim)
        self.groups, self.sizes, self.batchDim, self.transpW = groups, (insize, outsize), batchDim, transpW
        self.ingroups, maps = (groups if mode == "full" else 1 for mode in (inmode, wmode))
        self.shape = (maps, outsize, insize) if transpW else (maps, insize, outsize)
        self.needsOneFloat = not useW
        if useW:
            self.W = Param(self.shape, initial.weights(initscheme, insize, outsize, wscale))
        self.b = Param((maps, outsize)) if useBias else None

    def dataShapeFrom(self, x, W=None):
        wanted = ("n", self.ingroups, self.sizes[0])
        fits = len(x) == 3 and (x[1 - self.batchDim], x[2]) == wanted[1:]
        need(fits, wanted if self.batchDim == 0 else (*wanted[1:2], "n", *wanted[2:]), x)
        need(W is None or W == self.shape, self.shape, W)
        return (*x[:1], self.groups, self.sizes[1]) if self.batchDim == 0 else (self.groups, x[1], self.sizes[1])

    def groupsFirst(self, x):
        """x with groups first, or y, whose groups are first, as x has them."""
        return x if self.batchDim else x.swapaxes(0, 1)

    def updateData(self, x, W, b):
        y = np.matmul(self.groupsFirst(x), W.swapaxes(1, 2) if self.transpW else W)
        y = np.broadcast_to(y if b is None else y + b[:, None], (self.groups, *y.shape[1:]))
        return self.groupsFirst(y)

    def updateGrad(self, grad, x, W, b, y, needs):
        g, rows, (maps, outsize) = self.groupsFirst(grad), self.groupsFirst(x), (self.shape[0], self.sizes[1])
        gx = gW = gb = None
        if needs[0]:
            gx = self.groupsFirst(unbroadcast(g @ (W if self.transpW else W.swapaxes(1, 2)), rows.shape))
        if needs[1]:
            left, right = (g, rows) if self.transpW else (rows, g)
            gW = unbroadcast(left.swapaxes(1, 2) @ right, self.shape)
        if needs[2]:
            gb = unbroadcast(g, (maps, 1, outsize)).reshape(maps, outsize)
        return gx, gW, gb

    def flopsFrom(self, x, W=None):
        return 2 * self.sizes[0] * product(self.dataShapeFrom(x))

    @classmethod
    def examples(cls):
        yield cls(2, 3, 4), [(5, 2, 3)]
        yield cls(3, 2, 2, inmode="one", transpW=True), [(4, 1, 2)]
        yield cls(2, 3, 1, wmode="one", batchDim=1), [(2, 4, 3)]
        yield cls(2, 3, 2, useW=False, useBias=False), [(1, 2, 3), (2, 3, 2)]


def pairs(x1, x2):
    """Return the products of all elements of two vectors, in one axis."""
    y = x1[..., :, None] * x2[..., None, :]
    return y.reshape(*y.shape[:-2], x1.shape[-1] * x2.shape[-1])


def forms(x1, x2, W):
    """Return x1 W[o] x2 for all o."""
    return np.matmul(pairs(x1, x2), W.reshape(len(W), W[0].size).T)
