"""Deconv2D: transposed convolution, which enlarges images."""

from puregraph.modules.deconvnd import DeconvNd


class Deconv2D(DeconvNd):
    """y[n, o, h] = b[o] + sum over c, t, a with h = a stride + t dilation - before of W[c, o, t] x[n, c, a]

    h, t and a being pairs (height, width): the adjoint, in its input, of the Conv2D with the same weight and options,
    with y's shape as its input's. `postpad`, below the stride or the dilation, makes y longer, where several lengths of
    y give the same of x. Options are an integer or a pair; `pad` also ((top, bottom), (left, right)), what is cut off
    y, or "same".

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
