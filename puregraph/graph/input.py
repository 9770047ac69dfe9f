"""Input: a named input of a graph."""

from puregraph.core.arguments import Dtype
from puregraph.core.base.dtype import isFloating, nativeType, needType
from puregraph.core.errors import need
from puregraph.core.parameterized import PRECISIONS, dtypeOf
from puregraph.core.shape import asShape, isInstance
from puregraph.graph.module import Inputs, Module

SPEC = Inputs(("x",))


class Input(Module):
    """y = x: a named input of a graph. Takes no time and no memory.

    `shape` and `dtype` declare the input and are checked without data; a symbol in the shape stands for any size. A
    single text argument is the name.

    Shapes    x any, or as declared -> y the same
    Source    the placeholder of every define-by-graph system
    Raises    ShapeError, DtypeError for an input that differs from the declaration
    """

    views = True
    reads = ()
    flopsPerElement = 0

    def __init__(self, shape=None, dtype: Dtype | None = None, name=None):
        super().__init__(shape if isinstance(shape, str) else name)
        self.shape = None if shape is None or isinstance(shape, str) else asShape(shape)
        self.dtype = None if dtype is None else nativeType(dtype)

    @property
    def inputSpec(self):
        return SPEC

    @property
    def isDeclared(self):
        """True if a shape or dtype is declared, and so checked."""
        return self.shape is not None or self.dtype is not None

    def calcMode(self, mode):
        """Convert a declared floating dtype, as for parameters."""
        super().calcMode(mode)
        isDtype = type(mode) is not str or mode not in PRECISIONS[1:]
        if isDtype and self.dtype is not None and isFloating(self.dtype):
            self.dtype = dtypeOf(mode)
            self.initArgs = ((), {"shape": self.shape, "dtype": self.dtype.name, "name": self.name})
        return self

    def followFloats(self, usual, dtype):
        """Convert a declared floating dtype, of any width, as `calcMode` does."""
        self.calcMode(dtype)

    def dataShapeFrom(self, x):
        if self.shape is not None:
            isOfOne = isInstance(x[1:], self.shape)
            hint = f"a shape has the axis of samples: Input({('N', *self.shape)})" if isOfOne else ""
            need(isInstance(x, self.shape), self.shape, x, hint)
        return x

    def dataTypeFrom(self, x):
        fits = x is None or self.dtype is None or x == self.dtype
        needType(fits, self.dtype, x, f"convert the data with .astype('{self.dtype}')")
        return self.dtype or x

    def updateData(self, x):
        return x

    def updateGrad(self, grad, x, y):
        return grad

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
