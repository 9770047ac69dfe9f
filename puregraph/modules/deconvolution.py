"""Transposed convolutions."""

from math import prod

from puregraph.core.arguments import Count, Flag, NotNegative
from puregraph.core.errors import need
from puregraph.core.shape import product, transposed
from puregraph.modules.convolution import _Convolution
from puregraph.modules.windows import axesNames, needRank, perAxis
from puregraph.ops.convolution.reference import convolve, convolveData
from puregraph.ops.convolution.windowgeometry import opposite, padded


class DeconvNd(_Convolution):
    """y[n, o, h] = b[o] + sum over c, t, a with h = a stride + t dilation - before of W[c, o, t] x[n, c, a]

    The adjoint, in its input, of the convolution with the same weight and options, with y's shape as its input's. With
    a stride, several lengths of y give the same of x: `postpad`, below the stride or the dilation, says how far y is
    longer than the shortest. The number of axes is that of `size`; `pad` is what that convolution pads, and here is cut
    off.

    Shapes    x (n, inmaps, *spatial), W (inmaps, outmaps / groups, *size), b (outmaps,) -> y (n, outmaps, *lengths),
              lengths = (length - 1) stride + dilation (size - 1) + 1 - before - after + postpad
    Source    Zeiler et al. 2010, Deconvolutional Networks; Dumoulin and Visin 2016, arXiv:1603.07285, relationship 14
    Raises    ShapeError if x has another rank or number of channels, or nothing is left of y; if groups do not divide
              the channels, or postpad is below neither stride nor dilation
    """

    isTransposed = True

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
        spatial = needRank(x, len(self.size), self.inmaps)
        names = axesNames(len(self.size))
        lengths = []
        for name, length, *window in zip(names, spatial, self.size, self.stride, self.pad, self.dilation, self.postpad):
            k, s, both, d, post = window
            need(length >= 1, f"a {name} of at least 1", x)
            least = max(1, -((d * (k - 1) + post - sum(both)) // s) + 1)
            need(length >= least, f"a {name} of at least {least}", x, "the padding takes all of y: use less of it")
            lengths.append(transposed(length, k, s, sum(both), d, post))
        return (x[0], self.outmaps, *lengths)

    @property
    def uncut(self):
        """The output length restored at the end of each axis: the whole strides in `postpad`."""
        return [post - post % s for post, s in zip(self.postpad, self.stride)]

    @property
    def layout(self):
        sides = [(before, max(0, after - more)) for (before, after), more in zip(self.pad, self.uncut)]
        return self.stride, tuple(sides), self.dilation, self.groups

    @property
    def beyond(self):
        """The zeros behind all windows, that y ends with."""
        return [(0, max(0, more - after)) for (_, after), more in zip(self.pad, self.uncut)]

    def reached(self, y):
        """y without the zeros behind all windows."""
        return padded(y, opposite(self.beyond))

    def apply(self, x, W):
        n, maps, *lengths = self.dataShapeFrom(x.shape)
        shape = (n, maps, *[length - more for length, (_, more) in zip(lengths, self.beyond)])
        return padded(convolveData(x, W, shape, *self.layout), self.beyond)

    def applyAdjoint(self, grad, W, shape):
        return convolve(self.reached(grad), W, *self.layout)

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
