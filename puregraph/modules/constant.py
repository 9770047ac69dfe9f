"""Arrays that are no input: Constant, Weight, Full, EyeLike, Range."""

import numpy as np

from puregraph.core.accumulate import needPlain
from puregraph.core.arguments import Dtype, Scalar, Whole
from puregraph.core.base.dtype import inferredType, isFloating, isNumeric, nativeType, needType, promoted
from puregraph.core.dim import Dim
from puregraph.core.errors import ArgumentError, need, show
from puregraph.core.machinememory import needMemory
from puregraph.core.param import FixedState, Param
from puregraph.core.shape import asShape, givenSizes, sizesOf, valueOf
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module


def zeros(shape, dtype):
    """Return zeros of a shape. Raises ShapeError if a size is not known."""
    need(all(type(size) is int for size in shape), "a shape of known sizes", show(shape))
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, ValueError):
        needMemory("a constant", shape, dtype)
        raise


class Constant(Module):
    """y = value: an array of numbers, saved with the network and never trained.

    `value` is an array, a number, or a list of them; otherwise `shape` and `dtype` are those of a value that a file
    loads. Integers, booleans and a float without axes are known ahead of data, so that shapes may depend on them.

    Shapes    -> y as value
    Source    ONNX operator Constant
    Raises    DtypeError if the value is not numeric
    """

    isDiscrete = True
    reads = ()
    flopsPerElement = 0

    def __init__(self, value=None, shape=None, dtype: Dtype | None = None, name=None):
        super().__init__(name)
        need(
            (value is None) != (shape is None),
            "a value, or else the shape of one",
            "neither" if value is None else "both",
        )
        needPlain(value, "Constant")
        array = zeros(asShape(shape), dtype or "float32") if value is None else numbersFrom(value, dtype)
        needType(isNumeric(array.dtype), "numbers for value", array.dtype)
        self.state = FixedState(array.shape, lambda rng, shape: array, array.dtype)
        self.initArgs = ((), {"shape": array.shape, "dtype": array.dtype.name, "name": name})
        _ = self.state.materialize()

    def dataShapeFrom(self):
        return self.state.shape

    def dataTypeFrom(self):
        return self.state.dtype

    def valueFrom(self):
        return self.state.materialize() if self.state.isAhead else None

    def updateData(self, state):
        return state.copy()

    def flopsFrom(self):
        return 0

    @classmethod
    def examples(cls):
        yield cls([1.5, -2.0]), []
        yield cls(3), []
        yield cls(shape=(2, 3), dtype="int32"), []


def numbersFrom(value, dtype):
    """Convert a user's value to an array.

    Raises    ArgumentError if numpy cannot convert it, such as rows of different lengths
    """
    try:
        return np.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"Constant: wanted an array of numbers, got {value!r:.60}: {error}") from None


class Weight(Module):
    """y = W: a trainable array of its own, which any number of nodes may read.

    `initial` is "zeros", "ones", a number, or a function of a random generator and the shape.

    Shapes    W (shape) -> y (shape)
    Source    torch.nn.Parameter; an initializer of ONNX that operators on floats read
    Raises    ShapeError if a size of `shape` is negative or not known

    >>> x = Input(name="x").node()
    >>> net = Graph(x, x * Weight((3,), initial=2.0, name="scale").node())
    >>> net(np.arange(3.0, dtype=np.float32)).tolist()
    [0.0, 2.0, 4.0]
    """

    reads = ()
    flopsPerElement = 0

    def __init__(self, shape, dtype: Dtype = "float32", name=None, initial="zeros"):
        super().__init__(name)
        self.W = Param(asShape(shape), initial, nativeType(dtype))

    def dataShapeFrom(self):
        return self.W.shape

    def dataTypeFrom(self):
        return self.W.dtype

    def updateData(self, W):
        return W.copy()

    def updateGrad(self, grad, W, y):
        return (grad,)

    def flopsFrom(self):
        return 0

    @classmethod
    def examples(cls):
        yield cls((2, 3)), []


class Full(Module):
    """y[i, j, ...] = value, for a shape that is an input.

    Shapes    sizes (rank) integers -> y (sizes)
    Source    the NumPy reference, numpy.full; ONNX operator ConstantOfShape
    Raises    ShapeError if a size is negative; DtypeError if the sizes are no integers
    """

    namesFloats = True
    reads = ()
    isDiscrete = True
    indices = shapeInputs = ("sizes",)
    followsValues = True
    flopsPerElement = 0

    def __init__(self, value: Scalar = 0.0, dtype: Dtype = "float32", name=None):
        super().__init__(name)
        self.value, self.dtype = value, nativeType(dtype)

    def dataShapeFrom(self, sizes):
        wanted = givenSizes(sizes, "sizes")
        return (None,) * sizes[0] if wanted is None else positive(wanted)

    def dataTypeFrom(self, sizes):
        inferredType(self, (sizes,))
        return self.dtype

    def valueFrom(self, sizes):
        value = valueOf(sizes)
        isKnown = value is not None and value.dtype.kind != "O" and self.dtype.kind in "iub"
        return self.updateData(value) if isKnown else None

    def updateData(self, sizes):
        shape = positive(sizesOf(sizes))  # CuPy ignores an empty one, hence (1, *shape)
        return np.full_like(sizes, self.value, shape=(1, *shape), dtype=self.dtype).reshape(shape)

    def sample(self, rng, sizes):
        return [np.full(sizes, 2)]

    def flopsFrom(self, *shapes):
        return 0

    @classmethod
    def examples(cls):
        yield cls(), [(2,)]
        yield cls(7, "int64"), [(1,)]
        yield cls(1, "bool"), [(0,)]


def positive(sizes):
    """Return sizes as a shape. Raises ShapeError if one is negative."""
    need(not any(size < 0 for size in sizes), "sizes of at least 0", tuple(sizes))
    return tuple(sizes)


class EyeLike(Module):
    """y[i, j] = 1 where j = i + diagonal, else 0, in the shape of x.

    Shapes    x (n, m) -> y (n, m)
    Source    ONNX operator EyeLike; the NumPy reference, numpy.eye
    Raises    ShapeError if x is no matrix

    >>> EyeLike(1, "int64")(np.zeros((2, 3))).tolist()
    [[0, 1, 0], [0, 0, 1]]
    """

    namesFloats = True
    reads = ()
    isDiscrete = True
    flopsPerElement = 0

    def __init__(self, diagonal: Whole = 0, dtype: Dtype = "float32", name=None):
        super().__init__(name)
        self.diagonal, self.dtype = diagonal, nativeType(dtype)

    def dataShapeFrom(self, x):
        need(len(x) == 2, "a matrix", x)
        return x

    def dataTypeFrom(self, x):
        return self.dtype

    def updateData(self, x):
        rows, columns = x.shape
        return arrayLike(x, np.eye(rows, columns, k=self.diagonal, dtype=self.dtype))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(1, "int64"), [(3, 3)]


class Range(Module):
    """y = start, start + step, start + 2 step, ..., below stop: integers, or floats of one dtype.

    As in numpy's arange, a single input is the stop, and the start is 0. If the inputs are known ahead of data, so is
    the length.

    Shapes    start (), stop (), step () -> y (max(0, ceil((stop - start) / step)))
    Source    the NumPy reference, numpy.arange; ONNX operator Range
    Raises    ShapeError if an input is not one number, or the length is not finite; DtypeError for other dtypes
    """

    reads = ()
    isDiscrete = True
    shapeInputs = ("start", "stop", "step")
    followsValues = True
    flopsPerElement = 0

    def dataShapeFrom(self, start, stop=None, step=None):
        limits = [s for s in (start, stop, step) if s is not None]
        need(all(s == () for s in limits), "one number for each input", limits)
        values = [valueOf(s) for s in limits]
        return (None if any(v is None for v in values) else lengthOf(*ends([numberIn(v) for v in values])),)

    def dataTypeFrom(self, *dtypes):
        known = [d for d in dtypes if d is not None]
        areAlike = all(d.kind in "iub" for d in known) or all(d == known[0] and isFloating(d) for d in known)
        needType(areAlike, "integers, or floats of one dtype", ", ".join(map(str, known)))
        return promoted(dtypes)

    def updateData(self, start, stop=None, step=None):
        limits = [x for x in (start, stop, step) if x is not None]
        first, last, distance = ends([numberIn(x) for x in limits])
        dtype = np.result_type(*[x.dtype for x in limits])
        if isFloating(dtype):
            count = np.arange(lengthOf(first, last, distance)).astype(dtype)
            return arrayLike(start, (first + count * distance).astype(dtype))
        need(distance != 0, "a step other than 0", distance)
        return arrayLike(start, np.arange(first, last, distance, dtype=dtype))

    def valueFrom(self, start, stop=None, step=None):
        values = [valueOf(s) for s in (start, stop, step) if s is not None]
        isKnown = all(v is not None and v.dtype.kind in "iub" for v in values)
        return self.updateData(*values) if isKnown else None

    def sample(self, rng, start, *rest):
        return [np.array(n) for n in (2, 9, 3)[: 1 + len(rest)]]

    def flopsFrom(self, *shapes):
        return 0

    @classmethod
    def examples(cls):
        yield cls(), [()]
        yield cls(), [(), ()]
        yield cls(), [(), (), ()]


def numberIn(x):
    """Return the only element of an array as a number."""
    return x.dtype.type(float(x)) if isFloating(x.dtype) else sizesOf(x)[0]


def ends(limits):
    """(start, stop, step); the step, or all but the stop, may be left out."""
    return (0, *limits, 1) if len(limits) == 1 else (*limits, *[1] * (3 - len(limits)))


def lengthOf(start, stop, step):
    """The number of elements."""
    need(isinstance(step, Dim) or step != 0, "a step other than 0", step)
    if any(isinstance(n, Dim) for n in (start, stop, step)):
        count = -((start - stop) // step)
        return 0 if count < 0 else count
    if not isinstance(stop, int):  # floats
        count = np.ceil((stop - start) / step)
        need(np.isfinite(count), "a finite start, stop and step", [start, stop, step])
        return max(0, int(count))
    return len(range(start, stop, step))
