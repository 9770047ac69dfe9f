"""GINConv: the sum of a node's neighbors and itself, then a network."""

from puregraph.core.arguments import Flag, ModuleLike, Number, takes
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules.block.blockname import blockNamed
from puregraph.modules.graphlayers import NeighborSum


@blockNamed
@takes(network=ModuleLike, epsilon=Number, isTrained=Flag)
def GINConv(network, epsilon=0.0, isTrained=False, name=None):
    """y[i] = network((1 + epsilon) x[i] + the sum of x[j] over the edges from j to i)

    With `isTrained` epsilon is a parameter. An edge from or to -1 is none.

    Shapes    x (n, i), edges (2, e) integers -> y (n, o), (n, o) from the network
    Source    Xu, Hu, Leskovec, Jegelka 2019, arXiv:1810.00826, eq. 4.1
    Raises    as `NeighborSum`

    >>> GINConv(Sequential(Linear(8, 16), Relu(), Linear(16, 16))).dataShapeFrom([("N", 8), (2, "E")])
    ('N', 16)
    """
    x, edges = Input(name="x").node(), Input(name="edges").node()
    return Graph([x, edges], network(NeighborSum(epsilon, isTrained, name="sum").node(x, edges)), name=name)
