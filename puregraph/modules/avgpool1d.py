"""AvgPool1D: the mean over windows of sequences."""

from puregraph.modules.avgpoolnd import AvgPoolNd


class AvgPool1D(AvgPoolNd):
    """y[n, c, a] = mean over t of x[n, c, a stride + t - before]

    Padding counts as zeros with includePad, and not at all without. The stride is the size unless given; `pad`, below
    the size, is an integer or ((before, after),).

    Shapes    x (n, c, l) -> y (n, c, m), m = (l + before + after - size) // stride + 1
    Source    LeCun, Bottou, Bengio, Haffner 1998, Gradient-Based Learning Applied to Document Recognition, section II
    Raises    ShapeError if x has another rank, or is too short for one window; if a side of pad is not below the size
    """

    rank = 1

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 5)]
        yield cls(3, stride=2, pad=((1, 2),)), [(1, 2, 6)]
        yield cls(3, stride=1, pad=1, includePad=False), [(2, 1, 4)]
