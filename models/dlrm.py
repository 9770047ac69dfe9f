"""DLRM: a recommender that predicts clicks, from dense features and from categories of any size."""

from puregraph.core.arguments import takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import Concat, Embedder, Linear, PairDot, Relu, Slice

CRITEO = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)  # the categories of the 26 columns of the Criteo Kaggle data


def network(insize, sizes, name, last):
    """Linear layers with rectifiers; the last one has a rectifier only if asked for."""
    net = Sequential(name=name)
    for i, size in enumerate(sizes, 1):
        net.append(Linear(insize, size, initscheme="he", name=f"fc{i}"))
        if last or i < len(sizes):
            net.append(Relu(name=f"relu{i}"))
        insize = size
    return net


@takes()
def dlrm(dense=13, tables=CRITEO, size=16, bottom=(512, 256, 64), top=(512, 256), name="dlrm"):
    """Dense features through a network, each category through a table, the dot products of each two vectors, a network.

    A table that is missing a category has zeros for -1. A table is allocated when its data is first read.

    Shapes    dense (n, dense), sparse (n, len(tables)) integers -> scores (n, 1), as BCE takes them
    Source    Naumov et al. 2019, arXiv:1906.00091, figure 1 and section 5
    Params    540,677,217 for the Criteo Kaggle data
    Raises    ValueError without tables

    >>> dlrm(dense=4, tables=(10, 200)).dataShapeFrom(("N", 4), ("N", 2))
    ('N', 1)
    """
    if not tables:
        raise ValueError("dlrm: wanted the sizes of the tables, at least one, got none")
    features, categories = Input(name="dense").node(), Input(name="sparse").node()
    h = network(dense, (*bottom, size), "bottom", last=True).node(features)
    vectors = []
    for i, count in enumerate(tables):
        column = Slice((slice(None), i), name=f"column{i + 1}")(categories)
        vectors.append(Embedder(count, size, wscale=count**-0.5, name=f"table{i + 1}")(column))
    pairs = PairDot(name="pairs")(h, *vectors)
    width = size + len(tables) * (len(tables) + 1) // 2
    scores = network(width, (*top, 1), "top", last=False)
    return Graph([features, categories], scores.node(Concat(axis=1, name="all")(h, pairs)), name=name)
