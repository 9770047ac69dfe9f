"""MaxPool1D: the maximum over windows of sequences."""

from puregraph.modules.maxpoolnd import MaxPoolNd


class MaxPool1D(MaxPoolNd):
    """y[n, c, a] = max over t of x[n, c, a stride + t - before]

    Padding is never chosen, NaN is greater than any other value, and of equal values the first counts. The stride is
    the size unless given; `pad`, below the size, is an integer or ((before, after),).

    Shapes    x (n, c, l) -> y (n, c, m), m = (l + before + after - size) // stride + 1
    Source    Ranzato, Huang, Boureau, LeCun 2007, Unsupervised Learning of Invariant Feature Hierarchies, section 2
    Raises    ShapeError if x has another rank, or is too short for one window; if a side of pad is not below the size
    """

    rank = 1

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 5)]
        yield cls(3, stride=2, pad=((1, 2),)), [(1, 2, 6)]
