"""Input: a named input of a graph."""

from puregraph.module import Module


class Input(Module):
    """y = x: a named input of a graph. Takes no time and no memory.

    Shapes    x any -> y the same
    Source    the placeholder of every define-by-graph system
    """

    views = True
    reads = ()

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x

    def updateGrad(self, grad, x, y):
        return grad

    def flopsFrom(self, x):
        return 0

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
