"""MatMul: the batched matrix product."""

from puregraph.arguments import Flag
from puregraph.base.widen import asResultType
from puregraph.core.shape import broadcast, product
from puregraph.errors import need
from puregraph.kernels.reduce import unbroadcast
from puregraph.module import Module


class MatMul(Module):
    """y = A B, A being a or its transpose (transpA), B being b or its transpose (transpB)

    Leading axes broadcast as numpy has it; transposed are the last two.

    Shapes    A (..., i, j), B (..., j, k) -> y (..., i, k)
    Source    Giles 2008, An Extended Collection of Matrix Derivative Results, section 2.2.1
    Raises    ShapeError if one of them is no matrix, their j differ, or leading axes do not broadcast
    """

    reads = ("a", "b")
    keepsDtype = True

    def __init__(self, transpA: Flag = False, transpB: Flag = False, name=None):
        super().__init__(name)
        self.transpA, self.transpB = transpA, transpB

    def dataShapeFrom(self, a, b):
        hint = "make a vector a matrix: reshape it to one row or one column"
        need(len(a) >= 2 and len(b) >= 2, "matrices (..., i, j), (..., j, k)", [a, b], hint)
        (i, j), (rows, k) = (s[:-3:-1] if turn else s[-2:] for s, turn in ((a, self.transpA), (b, self.transpB)))
        need(j == rows, f"(..., {i}, {j}) times (..., {j}, {k})", [a, b], f"the inner sizes {j} and {rows} differ")
        return (*broadcast(a[:-2], b[:-2]), i, k)

    def updateData(self, a, b):
        a, b = asResultType(a, b)
        return oriented(a, self.transpA) @ oriented(b, self.transpB)

    def updateGrad(self, grad, a, b, y, needs):
        ga = gb = None
        if needs[0]:
            ga = unbroadcast(oriented(grad @ oriented(b, not self.transpB), self.transpA), a.shape)
        if needs[1]:
            gb = unbroadcast(oriented(oriented(a, not self.transpA) @ grad, self.transpB), b.shape)
        return ga, gb

    def flopsFrom(self, a, b):
        return 2 * a[-2 if self.transpA else -1] * product(self.dataShapeFrom(a, b))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (3, 4)]
        yield cls(transpA=True), [(2, 5, 3, 2), (5, 3, 4)]
        yield cls(transpB=True), [(2, 1, 3, 2), (4, 5, 2)]
        yield cls(transpA=True, transpB=True), [(3, 2), (2, 4, 3)]


def oriented(x, transposed):
    """x, or x with its last two axes transposed."""
    return x.swapaxes(-1, -2) if transposed else x
