"""Conv1D: convolution over the length of sequences."""

from puregraph.modules.convnd import ConvNd


class Conv1D(ConvNd):
    """y[n, o, a] = b[o] + sum over c, t of W[o, c, t] x[n, g c, a stride + t dilation - before]

    g c being the channels of the group that o belongs to, and x zero outside. `size`, `stride` and `dilation` are
    integers; `pad` is an integer, ((before, after),), or "same" (stride 1 only), which keeps the length.

    Shapes    x (n, inmaps, l), W (outmaps, inmaps / groups, size), b (outmaps,) -> y (n, outmaps, m),
              m = (l + before + after - dilation (size - 1) - 1) // stride + 1
    Source    Waibel et al. 1989, Phoneme Recognition Using Time-Delay Neural Networks, section II
    Raises    ShapeError if x has another rank or number of channels, or is too short for one window; if groups do not
              divide the channels
    """

    rank = 1

    @classmethod
    def examples(cls):
        yield cls(2, 3, 3), [(2, 2, 5)]
        yield cls(4, 6, 2, stride=2, pad=((2, 1),), dilation=3, groups=2), [(3, 4, 7)]
        yield cls(3, 3, 4, pad="same", groups=3, useBias=False, initscheme="he"), [(1, 3, 4)]
