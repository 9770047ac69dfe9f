"""TimeDistributed: a module at each time step."""

from puregraph.core.arguments import ModuleLike, takes
from puregraph.core.errors import ArgumentError
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules.block.blockname import blockNamed
from puregraph.modules.joining import Concat
from puregraph.modules.reshaping import Flatten, Reshape
from puregraph.modules.shapeof import Shape


@blockNamed
@takes(module=ModuleLike)
def TimeDistributed(module, name=None):
    """y[n, t] = module(x[n, t]): the steps of all samples are one batch of n t samples for it.

    `module` is a module or a graph of one input and one output. Its first axis is that of samples.

    Shapes    x (n, t, ...) -> y (n, t, ...), the axes behind t those that the module takes and gives
    Source    Keras' TimeDistributed
    Raises    ArgumentError for a module of several outputs; ShapeError if x has no axis t

    >>> from puregraph.modules import Conv2D
    >>> TimeDistributed(Conv2D(3, 8, 3)).dataShapeFrom(("N", "T", 3, 32, 32))
    ('N', 'T', 8, 30, 30)
    """
    if len(module.outputNames) != 1:
        got = ", ".join(module.outputNames)
        raise ArgumentError(f"TimeDistributed: wanted a module of one output, got {module.brief()} with {got}")
    x = Input(name="x").node()
    y = module.node(Flatten(0, end=1, name="steps")(x))
    sizes = Concat(axis=0, name="sizes").node(Shape(0, 2, name="times")(x), Shape(1, name="size")(y))
    return Graph(x, Reshape(name="sequence", keepsZero=True).node(y, sizes), name=name)
