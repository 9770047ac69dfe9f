"""Input: a named input of a graph."""

from puregraph.module import Module


class Input(Module):
    """y = x: a named input of a graph. Takes no time and no memory.

    Shapes    x any -> y the same
    Source    the placeholder of every define-by-graph system
    """

    views = True
    reads = ()
    flopsPerElement = 0

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x

    def updateGrad(self, grad, x, y):
        return grad

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
