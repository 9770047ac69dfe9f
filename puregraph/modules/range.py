"""Range: integers at equal distances."""

import numpy as np

from puregraph.base.dtype import inferredType, promoted
from puregraph.core.dim import Dim
from puregraph.core.shape import sizesOf, valueOf
from puregraph.core.tracer import arrayLike
from puregraph.errors import need
from puregraph.module import Module


class Range(Module):
    """y = start, start + step, start + 2 step, ..., up to but without stop; inputs are integers.

    As with numpy's arange a lone input is the stop, and the start is 0 then. Where the inputs are known ahead of data,
    so is the length.

    Shapes    start (), stop (), step () -> y (max(0, ceil((stop - start) / step)))
    Source    the NumPy reference, numpy.arange; ONNX operator Range
    Raises    ShapeError if an input is not one number; DtypeError if it is no integer
    """

    reads = ()
    isDiscrete = True
    indices = shapeInputs = ("start", "stop", "step")
    followsValues = True
    flopsPerElement = 0

    def dataShapeFrom(self, start, stop=None, step=None):
        given = [s for s in (start, stop, step) if s is not None]
        need(all(s == () for s in given), "one number for each input", given)
        values = [valueOf(s) for s in given]
        return (None if any(v is None for v in values) else lengthOf(*ends([sizesOf(v)[0] for v in values])),)

    def dataTypeFrom(self, *dtypes):
        inferredType(self, dtypes)
        return promoted(dtypes)

    def updateData(self, start, stop=None, step=None):
        given = [x for x in (start, stop, step) if x is not None]
        first, last, distance = ends([sizesOf(x)[0] for x in given])
        need(distance != 0, "a step other than 0", distance)
        dtype = np.result_type(*[x.dtype for x in given])
        return arrayLike(start, np.arange(first, last, distance, dtype=dtype))

    def valueFrom(self, start, stop=None, step=None):
        values = [valueOf(s) for s in (start, stop, step) if s is not None]
        isKnown = all(v is not None and v.dtype.kind != "O" for v in values)
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


def ends(given):
    """Start, stop and step, of which the last, or all but the stop, may be left out."""
    return (0, *given, 1) if len(given) == 1 else (*given, *[1] * (3 - len(given)))


def lengthOf(start, stop, step):
    """How many numbers there are."""
    need(isinstance(step, Dim) or step != 0, "a step other than 0", step)
    if any(isinstance(n, Dim) for n in (start, stop, step)):
        count = -((start - stop) // step)
        return 0 if count < 0 else count
    return len(range(start, stop, step))
