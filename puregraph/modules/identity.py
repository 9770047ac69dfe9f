"""Identity, Cast, which changes only the dtype, and StopGradient."""

from puregraph.core.arguments import Dtype
from puregraph.core.base.dtype import isFloating, nativeType
from puregraph.core.dim import Dim
from puregraph.core.shape import valueOf
from puregraph.core.tracer import changingAs
from puregraph.graph.module import Module


class Identity(Module):
    """y = x

    Shapes    x (any) -> y the same
    Source    He, Zhang, Ren, Sun 2016, arXiv:1603.05027, eq. 2: the shortcut
    """

    reads = ()
    gives = "as taken"
    views = True
    flopsPerElement = 0
    followsValues = True

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x

    def updateGrad(self, grad, x, y):
        return grad

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(), [()]


class Cast(Module):
    """y = x as `dtype`, as numpy's astype converts: floats are truncated to integers, and all but 0 is True.

    Between floats the gradient goes straight through, in the dtype of x; through integers and booleans there is none.

    Shapes    x (any) -> y the same
    Source    the NumPy reference, numpy.ndarray.astype; ONNX operator Cast
    Raises    ArgumentError for a dtype that is not numeric
    """

    namesFloats = True
    reads = ()

    def __init__(self, dtype: Dtype, name=None):
        super().__init__(name)
        self.dtype = nativeType(dtype)
        self.isDiscrete = not isFloating(self.dtype)

    def dataShapeFrom(self, x):
        return x

    def dataTypeFrom(self, x):
        return self.dtype

    def valueFrom(self, x):
        value = valueOf(x)
        if value is None:
            return None
        if value.dtype.kind != "O" or not any(isinstance(size, Dim) for size in value.ravel().tolist()):
            return value.astype(self.dtype)
        isWide = self.dtype.kind == "i" and self.dtype.itemsize >= 4  # sizes of arrays are below 2^31
        return value if isWide else None

    def updateData(self, x):
        return x.astype(self.dtype)

    def updateGrad(self, grad, x, y):
        return grad.astype(x.dtype) if isFloating(x.dtype) else None

    def flopsFrom(self, x):
        return 0

    @classmethod
    def examples(cls):
        yield cls("float64"), [(2, 3)]
        yield cls("int64"), [(2, 3)]
        yield cls("bool"), [(3,)]


class StopGradient(Module):
    """y = x, and no gradient or tangent passes: what x depends on is not trained through this node

    Shapes    x any -> y the same
    Source    PyTorch's detach, TensorFlow's stop_gradient; Bengio, Leonard, Courville 2013, arXiv:1308.3432

    >>> x = Input(name="x").node()
    >>> net = Graph(x, Linear(3, 3, name="fc")(x) + StopGradient()(Linear(3, 3, name="target")(x))).trainMode()
    >>> y = net(np.ones((2, 3), np.float32))
    >>> net.backward(np.ones((2, 3), np.float32))
    >>> net["fc"].W.grad is not None, net["target"].W.grad is None
    (True, True)
    """

    isDiscrete = True
    keepsDtype = True
    views = True
    gives = "as taken"
    flopsPerElement = 0

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return changingAs(x)

    @classmethod
    def examples(cls):
        yield cls(), [(3, 4)]
        yield cls(), [()]
