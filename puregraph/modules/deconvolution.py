"""Transposed convolutions, also with weights that are inputs."""

from math import prod
from typing import Any

from puregraph.core.arguments import Count, Flag, NotNegative
from puregraph.core.errors import need
from puregraph.core.shape import product, transposed
from puregraph.modules.convolution import _Convolution, checkWindows, windowsOf
from puregraph.modules.windows import axesNames, halves, needRank, perAxis, sides
from puregraph.ops.convolution.reference import convolve, convolveData
from puregraph.ops.convolution.windowgeometry import opposite, padded


class _Transposed(_Convolution):
    """Base class of transposed convolutions."""

    postpad: Any  # an integer, or one for each axis
    isTransposed = True

    @staticmethod
    def sidesOf(pad, size, stride, dilation):
        """(before, after) for each axis; "same" makes y `stride` times as long as x."""
        if not isinstance(pad, str) or pad != "same":
            return sides(pad, size, stride, dilation)
        return tuple(halves(d * (k - 1) + 1 - s) for k, s, d in zip(size, stride, dilation))

    def postpads(self, rank):
        """Return the number of elements by which y is longer at the end of each axis."""
        return self.postpad

    def cut(self, size):
        """Return, for each axis, the padding of the convolution, and the zeros of y outside of all windows."""
        stride, pad, dilation = self.windows(size)
        more = [post - post % s for post, s in zip(self.postpads(len(size)), stride)]
        inside = tuple([(max(0, before), max(0, after - n)) for (before, after), n in zip(pad, more)])
        return inside, [(max(0, -before), max(0, n - after)) for (before, after), n in zip(pad, more)]

    def layout(self, lengths, size):
        stride, _, dilation = self.windows(size)
        return stride, self.cut(size)[0], dilation, self.groups

    def lengths(self, x, size):
        """The lengths of y."""
        names, lengths = axesNames(len(size)), []
        stride, pad, dilation = self.windows(size)
        for name, length, k, s, both, d, post in zip(
            names, x[2:], size, stride, pad, dilation, self.postpads(len(size))
        ):
            need(length >= 1, f"a {name} of at least 1", x)
            least = max(1, -((d * (k - 1) + post - sum(both)) // s) + 1)
            need(length >= least, f"a {name} of at least {least}", x, "the padding takes all of y: use less of it")
            lengths.append(transposed(length, k, s, sum(both), d, post))
        return lengths

    def reached(self, y, size):
        """Return y without the zeros outside of all windows."""
        return padded(y, opposite(self.cut(size)[1]))

    def apply(self, x, W):
        size, maps = W.shape[2:], W.shape[1] * self.groups
        around = self.cut(size)[1]
        lengths = [n - sum(both) for n, both in zip(self.lengths(x.shape, size), around)]
        return padded(convolveData(x, W, (x.shape[0], maps, *lengths), *self.layout(lengths, size)), around)

    def applyAdjoint(self, grad, W, shape):
        return convolve(self.reached(grad, W.shape[2:]), W, *self.layout(None, W.shape[2:]))


class DeconvNd(_Transposed):
    """y[n, o, h] = b[o] + sum over c, t, a with h = a stride + t dilation - before of W[c, o, t] x[n, c, a]

    The adjoint of the convolution from y to x with the same weight and options. With a stride, several lengths of y
    give the same length of x: `postpad`, below the stride or the dilation, is added to the shortest. The number of axes
    is that of `size`; `pad`, the padding of that convolution, is cut off y; a negative side adds zeros. "same" makes
    the lengths those of x times the stride.

    Shapes    x (n, inmaps, *spatial), W (inmaps, outmaps / groups, *size), b (outmaps,) -> y (n, outmaps, *lengths),
              lengths = (length - 1) stride + dilation (size - 1) + 1 - before - after + postpad
    Source    Zeiler et al. 2010, Deconvolutional Networks; Dumoulin and Visin 2016, arXiv:1603.07285, relationship 14
    Raises    ShapeError if x has another rank or number of channels, or nothing is left of y; if groups do not divide
              the channels, or postpad is below neither stride nor dilation
    """

    def __init__(
        self,
        inmaps: Count,
        outmaps: Count,
        size,
        stride=1,
        pad=0,
        dilation=1,
        postpad=0,
        useBias: Flag = True,
        initscheme=None,
        wscale: NotNegative = 1.0,
        groups: Count = 1,
        name=None,
    ):
        super().__init__(name)
        self.setWindows(inmaps, outmaps, size, stride, pad, dilation, groups)
        self.postpad = perAxis(postpad, len(self.size), "postpad", least=0)
        below = all(p < max(s, d) for p, s, d in zip(self.postpad, self.stride, self.dilation))
        limit = f"postpad below the stride {self.stride} or the dilation {self.dilation}"
        need(below, limit, self.postpad, "lower pad makes y longer too")
        self.setWeights(useBias, initscheme, wscale)

    def dataShapeFrom(self, x):
        needRank(x, len(self.size), self.inmaps)
        return (x[0], self.outmaps, *self.lengths(x, self.size))

    def flopsFrom(self, x):
        terms = self.outmaps // self.groups * prod(self.size)
        bias = 0 if self.b is None else product(self.dataShapeFrom(x))
        return 2 * terms * product(x) + bias

    @classmethod
    def examples(cls):
        yield cls(2, 3, size=(3,), stride=2, postpad=1), [(2, 2, 3)]
        yield cls(2, 4, size=(2, 1, 3), stride=(1, 2, 2), pad=((1, 0), (0, 0), (1, 2)), groups=2), [(1, 2, 3, 2, 3)]
        yield cls(2, 2, size=(3,), dilation=4, pad=1, postpad=3), [(2, 2, 3)]
        yield cls(1, 2, size=(3, 2), pad="same", useBias=False), [(1, 1, 3, 2)]
        yield cls(1, 2, size=(3, 2), stride=(2, 3), pad="same"), [(1, 1, 3, 2)]


class Deconv2D(DeconvNd):
    """y[n, o, h] = b[o] + sum over c, t, a with h = a stride + t dilation - before of W[c, o, t] x[n, c, a]

    h, t and a are pairs (height, width). This is the adjoint of the Conv2D from y to x with the same weight and
    options. `postpad`, below the stride or the dilation, makes y longer, because several lengths of y fit the same x.
    Options are an integer or a pair; `pad`, the width cut off y, also ((top, bottom), (left, right)) or "same".

    Shapes    x (n, inmaps, h, w), W (inmaps, outmaps / groups, *size), b (outmaps,) -> y (n, outmaps, *lengths),
              lengths = (length - 1) stride + dilation (size - 1) + 1 - before - after + postpad
    Source    Zeiler et al. 2010, Deconvolutional Networks; Dumoulin and Visin 2016, arXiv:1603.07285, relationship 14
    Raises    ShapeError if x has another rank or number of channels, or nothing is left of y; if groups do not divide
              the channels, or postpad is below neither stride nor dilation
    """

    rank = 2

    @classmethod
    def examples(cls):
        yield cls(2, 3, 3), [(2, 2, 3, 4)]
        yield cls(2, 1, 4, stride=2, pad=1), [(1, 2, 3, 2)]
        yield (
            cls(4, 6, (3, 2), stride=(2, 3), pad=((1, 0), (0, 1)), dilation=(1, 2), postpad=(1, 2), groups=2),
            [(2, 4, 3, 2)],
        )
        yield cls(3, 3, 3, pad="same", groups=3, useBias=False, initscheme="he"), [(1, 3, 3, 4)]


class Deconvolve(_Transposed):
    """y[n, o, h] = b[o] + sum over c, t, a with h = a stride + t dilation - before of W[c, o, t] x[n, c, a]

    A DeconvNd with W, b inputs. `postpad` may be of any size here; options are an integer or one per axis.

    Shapes    x (n, maps, *spatial), W (maps, o / groups, *size), b (o,) -> y (n, o, *lengths)
    Source    ONNX operator ConvTranspose; torch.nn.functional.conv_transpose2d
    Raises    ShapeError if the ranks or channels differ, or nothing is left of y

    >>> Deconvolve(stride=2)(np.array([[[1.0, 2.0]]]), np.array([[[3.0, 4.0]]])).tolist()
    [[[3.0, 4.0, 6.0, 8.0]]]
    """

    def __init__(self, stride=1, pad=0, dilation=1, postpad=0, groups: Count = 1, name=None):
        super().__init__(name)
        self.stride, self.pad, self.dilation, self.groups = stride, pad, dilation, groups
        self.postpad = 0 if postpad is None else postpad
        self.postpads(checkWindows(self))

    def windows(self, size):
        return windowsOf(self, size)

    def postpads(self, rank):
        return perAxis(self.postpad, rank, "postpad", least=0)

    def dataShapeFrom(self, x, W, b=None):
        fits = len(x) == len(W) > 2 and x[1] == W[0] and W[0] % self.groups == 0
        need(
            fits and 0 not in W,
            f"x (n, maps, *spatial) and W (maps, o / {self.groups}, *size), groups={self.groups}",
            [x, W],
        )
        maps = W[1] * self.groups
        need(b is None or b == (maps,), f"a bias of shape ({maps},)", b)
        return (x[0], maps, *self.lengths(x, W[2:]))

    def flopsFrom(self, x, W, b=None):
        return 2 * product(W[1:]) * product(x)

    @classmethod
    def examples(cls):
        yield cls((2,), ((1, 0),), (1,), (1,)), [(2, 2, 3), (2, 3, 3), (3,)]
        yield cls((1, 2), ((-1, 0), (0, 1)), (1, 2), groups=2), [(1, 2, 3, 2), (2, 2, 2, 2)]
        yield cls(2, postpad=3), [(1, 2, 3), (2, 1, 2)]
