"""MaxPool2D: the maximum over windows of images."""

from puregraph.modules.maxpoolnd import MaxPoolNd


class MaxPool2D(MaxPoolNd):
    """y[n, c, a] = max over t of x[n, c, a stride + t - before]

    a and t being pairs (height, width). Padding is never chosen, NaN is greater than any other value, and of equal
    values the first counts. The stride is the size unless given. Options are an integer or a pair; `pad`, each side
    below the size, also ((top, bottom), (left, right)).

    Shapes    x (n, c, h, w) -> y (n, c, *count), count = (length + before + after - size) // stride + 1
    Source    Ranzato, Huang, Boureau, LeCun 2007, Unsupervised Learning of Invariant Feature Hierarchies, section 2
    Raises    ShapeError if x has another rank, or is too small for one window; if a side of pad is not below the size
    """

    rank = 2

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4, 5)]
        yield cls((3, 2), stride=(1, 2), pad=(1, 0)), [(2, 2, 4, 6)]
        yield cls(3, stride=2, pad=((2, 1), (0, 1))), [(1, 2, 5, 5)]
