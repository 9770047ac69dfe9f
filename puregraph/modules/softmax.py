"""SoftMax, its logarithm, its relatives, and the indicator of the largest element."""

import numpy as np

from puregraph.core.arguments import Flag, Positive, Whole
from puregraph.core.base.widen import widened
from puregraph.core.errors import need
from puregraph.core.param import State
from puregraph.core.shape import normalAxis
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module
from puregraph.modules.dropout import bits, drawKey, unit
from puregraph.ops.order.reference import sortAlong
from puregraph.ops.reduction.reference import logSoftmax, softmax, total


class _AlongAxis(Module):
    """Base class of functions of the elements along an axis."""

    reads: tuple[str, ...] = ("y",)
    needsFloats = True
    flopsPerElement = 4

    def __init__(self, axis: Whole = 1, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, x):
        axis = normalAxis(self.axis, len(x))
        need(x[axis] >= 1, f"at least one score along axis {self.axis}", x)
        return x

    @classmethod
    def examples(cls):
        yield cls(), [(3, 4)]
        yield cls(), [(2, 3, 2, 2)]
        yield cls(axis=-1), [(2, 3, 4)]
        yield cls(axis=0), [(5,)]


class SoftMax(_AlongAxis):
    """y = exp(x - max x) / sum exp(x - max x), maximum and sum along the axis

    Shapes    x (any with that axis) -> y as x
    Source    Bridle 1990, Probabilistic Interpretation of Feedforward Classification Network Outputs, eq. 7
    Raises    ShapeError if x does not have the axis, or it has length 0
    """

    gives = "probabilities"

    def updateData(self, x):
        return softmax(x, self.axis)

    def updateGrad(self, grad, x, y):
        return softMaxGradient(grad, y, self.axis)


@widened
def softMaxGradient(grad, y, axis):
    """y (g - sum g y): the transposed Jacobian diag(y) - y y' times the gradient."""
    return y * (grad - total(grad * y, axis, keepdims=True))


class SoftMin(_AlongAxis):
    """y = exp(min x - x) / sum exp(min x - x), minimum and sum along the axis: the softmax of -x

    Shapes    x (any with that axis) -> y as x
    Source    Bridle 1990, Probabilistic Interpretation of Feedforward Classification Network Outputs, eq. 7, of -x
    Raises    ShapeError if x does not have the axis, or it has length 0
    """

    gives = "probabilities"

    def updateData(self, x):
        return softmax(-x, self.axis)

    def updateGrad(self, grad, x, y):
        return -softMaxGradient(grad, y, self.axis)


class SparseMax(_AlongAxis):
    """y = max(x - t, 0), with t such that y sums to 1 along the axis: probabilities, of which some are 0

    Over the sorted elements z_1 >= z_2 >= ... there are k with 1 + k z_k > z_1 + ... + z_k; t is the sum of these k
    less 1, over k.

    Shapes    x (any with that axis) -> y as x
    Source    Martins, Astudillo 2016, From Softmax to Sparsemax, arXiv:1602.02068, algorithm 1; the gradient: eq. 14
    Raises    ShapeError if x does not have the axis, or it has length 0
    """

    gives = "probabilities"

    def updateData(self, x):
        return sparseMax(x, normalAxis(self.axis, x.ndim))

    def updateGrad(self, grad, x, y):
        return sparseMaxGradient(grad, y, self.axis)


@widened
def sparseMax(x, axis):
    """Return the point of the simplex that is nearest to x."""
    x = x - x.max(axis=axis, keepdims=True)
    z, _ = sortAlong(x, axis, x.shape[axis], largest=True)
    sums = np.cumsum(z, axis=axis)
    counts = arrayLike(x, np.arange(1, x.shape[axis] + 1, dtype=x.dtype).reshape(-1, *(1,) * (x.ndim - axis - 1)))
    kept = 1 + counts * z > sums
    k = total(kept.astype(x.dtype), axis, keepdims=True)
    t = (total(np.where(kept, z, 0), axis, keepdims=True) - 1) / k
    return np.maximum(x - t, 0)


@widened
def sparseMaxGradient(grad, y, axis):
    """Return the gradient less its mean where y is above 0, and 0 elsewhere."""
    kept = (y > 0).astype(y.dtype)
    return kept * (grad - total(kept * grad, axis, keepdims=True) / total(kept, axis, keepdims=True))


class Entmax(_AlongAxis):
    """y = max(x / 2 - t, 0)^2, with t such that y sums to 1 along the axis: the 1.5-entmax

    Fewer elements are 0 than with SparseMax, with SoftMax none. Over the first k of the sorted elements z_1 >= z_2 ...
    of x / 2 the mean m and the sum s of (z - m)^2 give t_k = m - sqrt((1 - s) / k); t is that of the largest k with
    t_k <= z_k.

    Shapes    x (any with that axis) -> y as x
    Source    Peters, Niculae, Martins 2019, Sparse Sequence-to-Sequence Models, arXiv:1905.05702, algorithm 2; the
              gradient: eq. 10
    Raises    ShapeError if x does not have the axis, or it has length 0

    >>> Entmax()(np.array([[0.0, 0.0, 4.0]]))
    array([[0., 0., 1.]])
    """

    gives = "probabilities"

    def updateData(self, x):
        return entmax(x, normalAxis(self.axis, x.ndim))

    def updateGrad(self, grad, x, y):
        return entmaxGradient(grad, y, self.axis)


@widened
def entmax(x, axis):
    """Return the probabilities of the 1.5-entmax."""
    x = (x - x.max(axis=axis, keepdims=True)) / 2
    z, _ = sortAlong(x, axis, x.shape[axis], largest=True)
    k = arrayLike(x, np.arange(1, x.shape[axis] + 1, dtype=x.dtype).reshape(-1, *(1,) * (x.ndim - axis - 1)))
    mean = np.cumsum(z, axis=axis) / k
    spread = np.cumsum(z * z, axis=axis) - k * mean * mean
    t = mean - np.sqrt(np.maximum((1 - spread) / k, 0))
    kept = t <= z
    count = total(kept.astype(x.dtype), axis, keepdims=True)
    t = total(np.where(k == count, t, 0), axis, keepdims=True)
    return np.square(np.maximum(x - t, 0))


@widened
def entmaxGradient(grad, y, axis):
    """s g - s sum(s g) / sum(s), with s = sqrt(y)."""
    isIn = y > 0
    s = np.where(isIn, np.sqrt(np.where(isIn, y, 1)), 0)
    return s * (grad - total(s * grad, axis, keepdims=True) / total(s, axis, keepdims=True))


class GumbelSoftMax(_AlongAxis):
    """y = softmax((x + g) / temperature) along the axis, g = -ln(-ln u), u uniform in (0, 1): a soft sample of a class

    With `hard` y is 1 at the largest element and 0 elsewhere, with the gradient of the soft sample. The random bits,
    the hidden output `draw`, are a function of two States: `key` names the stream, and `count` grows with each pass, in
    evalMode too.

    Shapes    x (any with that axis) -> y as x
    Source    Jang, Gu, Poole 2017, arXiv:1611.01144, eq. 2; Maddison, Mnih, Teh 2017, arXiv:1611.00712
    Raises    ShapeError if x does not have the axis, or it has length 0
    """

    gives = "probabilities"
    reads = ("x", "draw")
    hidden = ("draw",)
    draws = "count"
    drawsAlways = True  # in evalMode too: it is part of the model

    def __init__(self, temperature: Positive = 1.0, hard: Flag = False, axis: Whole = -1, name=None):
        super().__init__(axis, name)
        self.temperature, self.hard = temperature, hard
        self.key = State((), drawKey, np.uint64)
        self.count = State((), dtype=np.int64)

    @property
    def passesStraight(self):
        """True if the gradient is not that of the values."""
        return self.hard

    def hiddenShapeFrom(self, x):
        return [x]

    def hiddenTypeFrom(self, x):
        return [np.dtype(np.int32)]

    def soft(self, x, draw):
        """The soft sample for random bits."""
        g = -np.log(-np.log(unit(draw).astype(x.dtype)))
        return softmax((x + g) / self.temperature, self.axis)

    def updateData(self, x, key, count):
        draw = bits(x.shape, key, count)
        count += 1
        soft = self.soft(x, draw)
        return largest(soft, self.axis) if self.hard else soft, draw

    def updateGrad(self, grad, x, key, count, y, draw):
        return softMaxGradient(grad, self.soft(x, draw), self.axis) / self.temperature, None, None

    @classmethod
    def examples(cls):
        yield cls(), [(3, 4)]
        yield cls(0.5, hard=True, axis=1), [(2, 3, 2)]


class LogSoftMax(_AlongAxis):
    """y = x - max x - ln sum exp(x - max x), maximum and sum along the axis

    Shapes    x (any with that axis) -> y as x
    Source    ONNX operator LogSoftmax
    Raises    ShapeError if x does not have the axis, or it has length 0
    """

    flopsPerElement = 5

    def __init__(self, axis: Whole = -1, name=None):
        super().__init__(axis, name)

    def updateData(self, x):
        return logSoftmax(x, self.axis)

    def updateGrad(self, grad, x, y):
        return logSoftMaxGradient(grad, y, self.axis)


@widened
def logSoftMaxGradient(grad, y, axis):
    """g - softmax(x) sum g: the transposed Jacobian times the gradient."""
    return grad - np.exp(y) * total(grad, axis, keepdims=True)


class HardMax(_AlongAxis):
    """y = 1 where x is first the largest along the axis, else 0; without a gradient.

    Shapes    x (any with that axis) -> y as x
    Source    ONNX operator Hardmax
    Raises    ShapeError if x does not have the axis, or it has length 0
    """

    reads = ()
    isDiscrete = True
    needsFloats, keepsDtype = False, True
    flopsPerElement = 1

    def __init__(self, axis: Whole = -1, name=None):
        super().__init__(axis, name)

    def updateData(self, x):
        return largest(x, self.axis)


def largest(x, axis):
    """Return 1 where x is first the largest along the axis, else 0."""
    axis = normalAxis(axis, x.ndim)
    positions = np.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - axis - 1))
    return (x.argmax(axis=axis, keepdims=True) == arrayLike(x, positions)).astype(x.dtype)
