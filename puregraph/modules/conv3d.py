"""Conv3D: convolution over the depth, height and width of volumes or videos."""

from puregraph.modules.convnd import ConvNd


class Conv3D(ConvNd):
    """y[n, o, a] = b[o] + sum over c, t of W[o, c, t] x[n, g c, a stride + t dilation - before]

    g c being the channels of the group that o belongs to, a and t triples (depth, height, width), and x zero outside.
    `size`, `stride` and `dilation` are an integer or such a triple; `pad` is an integer, a triple, three pairs
    (before, after), or "same" (stride 1 only), which keeps every length.

    Shapes    x (n, inmaps, d, h, w), W (outmaps, inmaps / groups, *size), b (outmaps,) -> y (n, outmaps, *count),
              count = (length + before + after - dilation (size - 1) - 1) // stride + 1 for each of the three
    Source    Ji, Xu, Yang, Yu 2013, 3D Convolutional Neural Networks for Human Action Recognition, eq. 2
    Raises    ShapeError if x has another rank or number of channels, or is too small for one window; if groups do not
              divide the channels
    """

    rank = 3

    @classmethod
    def examples(cls):
        yield cls(2, 3, 2), [(2, 2, 3, 2, 4)]
        yield (
            cls(2, 4, (2, 1, 3), stride=(2, 1, 2), pad=((1, 0), (0, 1), (2, 1)), dilation=(1, 1, 2), groups=2),
            [(1, 2, 3, 3, 4)],
        )
        yield cls(1, 2, 3, pad="same", useBias=False), [(1, 1, 2, 3, 2)]
