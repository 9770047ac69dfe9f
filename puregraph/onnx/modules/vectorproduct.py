"""VectorProduct: the matrix product of matrices or vectors."""

from puregraph.core.base.widen import asResultType
from puregraph.core.errors import need
from puregraph.core.shape import broadcast, product
from puregraph.graph.module import Module
from puregraph.ops.reduction.reference import unbroadcast


class VectorProduct(Module):
    """y = a b; a vector a counts as one row, a vector b as one column, and y lacks that axis.

    Shapes    a (..., i, j) or (j,), b (..., j, k) or (j,) -> y (..., i, k), without i or k for a vector
    Source    ONNX operator MatMul; the NumPy reference, numpy.matmul
    Raises    ShapeError if the inner sizes differ, or leading axes do not broadcast
    """

    reads = ("a", "b")
    keepsDtype = True

    def dataShapeFrom(self, a, b):
        need(len(a) >= 1 and len(b) >= 1, "vectors or matrices", [a, b])
        inner = b[-2] if len(b) > 1 else b[0]
        need(a[-1] == inner, "the same inner sizes", [a, b])
        lead = broadcast(a[:-2], b[:-2])
        return (*lead, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))

    def updateData(self, a, b):
        a, b = asResultType(a, b)
        return (self.row(a) @ self.column(b)).reshape(self.dataShapeFrom(a.shape, b.shape))

    def row(self, a):
        """a as a matrix."""
        return a[None] if a.ndim == 1 else a

    def column(self, b):
        """b as a matrix."""
        return b[:, None] if b.ndim == 1 else b

    def updateGrad(self, grad, a, b, y, needs):
        rows, columns = self.row(a), self.column(b)
        lead = broadcast(rows.shape[:-2], columns.shape[:-2])
        g = grad.reshape(*lead, rows.shape[-2], columns.shape[-1])
        ga = unbroadcast(g @ columns.swapaxes(-1, -2), rows.shape).reshape(a.shape) if needs[0] else None
        gb = unbroadcast(rows.swapaxes(-1, -2) @ g, columns.shape).reshape(b.shape) if needs[1] else None
        return ga, gb

    def flopsFrom(self, a, b):
        return 2 * a[-1] * product(self.dataShapeFrom(a, b))

    @classmethod
    def examples(cls):
        yield cls(), [(3,), (3,)]
        yield cls(), [(3,), (2, 3, 4)]
        yield cls(), [(2, 1, 2, 3), (3,)]
        yield cls(), [(2, 3), (3, 4)]
