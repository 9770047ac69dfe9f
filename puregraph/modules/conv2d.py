"""Conv2D: convolution over the height and width of images."""

from puregraph.modules.convnd import ConvNd


class Conv2D(ConvNd):
    """y[n, o, a] = b[o] + sum over c, t of W[o, c, t] x[n, g c, a stride + t dilation - before]

    g c being the channels of the group that o belongs to, a and t pairs (height, width), and x zero outside. `size`,
    `stride` and `dilation` are an integer or such a pair; `pad` is an integer, a pair, ((top, bottom), (left, right)),
    or "same" (stride 1 only), which keeps height and width and puts an odd row or column of zeros after.

    Shapes    x (n, inmaps, h, w), W (outmaps, inmaps / groups, *size), b (outmaps,) -> y (n, outmaps, *count),
              count = (length + before + after - dilation (size - 1) - 1) // stride + 1 for height and width
    Source    LeCun, Bottou, Bengio, Haffner 1998, Gradient-Based Learning Applied to Document Recognition, section II;
              dilation: Yu and Koltun 2016, arXiv:1511.07122, eq. 2; groups: Krizhevsky et al. 2012, section 3.2
    Raises    ShapeError if x has another rank or number of channels, or is too small for one window; if groups do not
              divide the channels
    """

    rank = 2

    @classmethod
    def examples(cls):
        yield cls(2, 3, 3), [(2, 2, 5, 4)]
        yield cls(1, 2, (3, 2), stride=2, pad=1), [(2, 1, 5, 5)]
        yield cls(4, 6, (2, 3), stride=(1, 2), pad=((0, 2), (3, 1)), dilation=(2, 1), groups=2), [(2, 4, 4, 6)]
        yield cls(3, 6, 3, pad="same", groups=3, useBias=False), [(1, 3, 3, 5)]
        yield cls(3, 2, 1, initscheme="he"), [(2, 3, 2, 3)]
        yield cls(1, 1, 5, stride=3, pad=2, wscale=0.1, initscheme="gaussian"), [(1, 1, 6, 7)]
