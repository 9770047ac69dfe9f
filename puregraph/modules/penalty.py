"""Penalty: activations that add to the cost."""

from functools import cache

import numpy as np

from puregraph.core.arguments import NotNegative, Text
from puregraph.core.base.dtype import needFloats
from puregraph.core.base.widen import widen
from puregraph.core.errors import FormulaError, need
from puregraph.core.shape import product
from puregraph.graph.module import Module
from puregraph.graph.pointwise import asGradient
from puregraph.ops.formula import Formula


class Penalty(Module):
    """y = x, and a second output cost = weight / n sum of formula(x), n the samples: it is added to the network's cost

        Sequential(Linear(784, 64), Relu(), Penalty(1e-4, "abs(x)", name="sparse"), Linear(64, 10))

    The next node reads only y. Trainer, Validator and `net.compile(..., cost=...)` add `cost` to theirs, and the
    history has it as `"sparse loss"`, unless another node reads it: `(node, "cost")`. `net.backward(grad)` without a
    cost adds its gradient in trainMode, and not in evalMode.

    Shapes    x (n, ...) -> y as x, cost (), which for float16 is float32
    Source    Glorot, Bordes, Bengio 2011, Deep Sparse Rectifier Neural Networks, section 3.3, for "abs(x)"
    Raises    FormulaError for a formula that is not one of x; ShapeError if x has no axis

    >>> net = Sequential(Penalty(0.1, "x ** 2", name="small"))
    >>> print(net(np.array([[1.0, 2.0]])))
    [[1. 2.]]
    >>> net.backward(np.zeros((1, 2)))
    >>> print(net.grad)
    [[0.2 0.4]]
    """

    reads = ("x",)
    outputNames = ("y", "cost")
    edgeSlots = (0,)
    addedCost = 1

    def __init__(self, weight: NotNegative = 0.01, formula: Text = "abs(x)", name=None):
        super().__init__(name)
        self.weight, self.formula = weight, Formula(formula)
        if self.formula.names != ("x",):
            raise FormulaError(f"{type(self).__name__}: wanted a formula of x, such as 'abs(x)', got {self.formula}")

    def dataShapeFrom(self, x):
        need(len(x) > 0, "(n, ...), samples along the first axis", x)
        return [x, ()]

    def dataTypeFrom(self, x):
        needFloats([("x", x)])
        return [x, None if x is None else widen(np.zeros((), x)).dtype]

    def updateData(self, x):
        values = self.formula.numpy(("x",))(widen(x))
        return x, values.sum() * self.share(x)

    def updateGrad(self, grad, x, y, cost):
        dy, dc = grad
        if dc is None and not self.isTraining:
            return (dy,)
        wide = widen(x)
        seed = np.ones_like(wide, shape=(1,)).reshape(()) if dc is None else widen(dc)
        seed = np.broadcast_to(seed * self.share(x), x.shape)
        dx = asGradient(slopeOf(self.formula)(seed, wide), seed, x.shape).astype(x.dtype)
        return (dx if dy is None else dy + dx,)

    def share(self, x):
        """Return the factor of the sum: weight / n."""
        return self.weight / max(x.shape[0], 1)

    def flopsFrom(self, x):
        return (self.formula.flops + 1) * product(x)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3)]
        yield cls(0.5, "square(x) + log(cosh(x))"), [(2, 3, 2)]


@cache
def slopeOf(formula):
    """Return the function (seed, x) -> seed times the formula's derivative."""
    return formula.gradient(("x",), seed="seed")["x"].numpy(("seed", "x"))
