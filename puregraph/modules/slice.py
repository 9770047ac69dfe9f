"""Slice: numpy's basic indexing."""

from numbers import Integral

import numpy as np

from puregraph.core.dim import Dim
from puregraph.errors import need
from puregraph.module import Module


class Slice(Module):
    """y = x[slc]: a slice keeps an axis, an integer drops it, None adds one, and ... skips some.

    `Slice()[:, 0, ::2]` is the same as `Slice((slice(None), 0, slice(None, None, 2)))`. What is left of a symbolic axis
    must follow from the symbol: [1:] and [::2] do, [:4] does not.

    Shapes    x (any) -> y as in numpy
    Source    the NumPy reference, basic indexing; PuzzleLib's Slice
    Raises    ShapeError if x has fewer axes than `slc` names, or an integer is out of range
    """

    reads = ()
    views = True
    __iter__ = None  # `Slice()[...]` makes one; there is nothing to loop over
    flopsPerElement = 0

    def __init__(self, slc=(), name=None):
        super().__init__(name)
        parts = slc if isinstance(slc, tuple) else (slc,)
        wrong = [part for part in parts if not isBasic(part)]
        need(not wrong, "slc of slices, whole numbers, None and ...", wrong, "an array of indices is no slice")
        need(sum(part is ... for part in parts) <= 1, "at most one ...", parts)
        self.slc = tuple(int(part) if isinstance(part, Integral) else part for part in parts)

    def __getitem__(self, slc):
        return Slice(slc, self.name)

    @property
    def key(self):
        """The index with a ... in it, so that the result is an array even where no axis is left."""
        return self.slc if ... in self.slc else (*self.slc, ...)

    def dataShapeFrom(self, x):
        named = sum(part is not None and part is not ... for part in self.slc)
        need(named <= len(x), f"at least {named} axes", x)
        shape, sizes = [], iter(x)
        for part in self.key:
            if part is ...:
                shape += [next(sizes) for _ in range(len(x) - named)]
            elif part is None:
                shape.append(1)
            elif isinstance(part, slice):
                shape.append(lengthOf(part, next(sizes), x))
            else:
                least = max(part + 1, -part)
                need(next(sizes) >= least, f"an axis of at least {least} for the index {part}", x)
        return tuple(shape)

    def updateData(self, x):
        return x[self.key]

    def updateGrad(self, grad, x, y):
        gx = np.zeros_like(grad, shape=x.shape)
        gx[self.key] = grad
        return gx

    @classmethod
    def examples(cls):
        yield cls(0), [(3, 2)]
        yield cls((slice(None), slice(1, None))), [(2, 4, 2)]
        yield cls()[..., -1], [(2, 3)]
        yield cls()[1, 2], [(2, 3)]
        yield cls()[::-2, None, ..., 1:3], [(5, 2, 4)]
        yield cls()[:1, -1:], [(2, 3)]
        yield cls(), [(2, 3)]


def isBasic(part):
    """Whether numpy takes `part` as basic indexing."""
    if isinstance(part, slice):
        ends = (part.start, part.stop, part.step)
        return part.step != 0 and all(end is None or isWhole(end) for end in ends)
    return part is None or part is ... or isWhole(part)


def isWhole(part):
    """Whether `part` is an integer."""
    return isinstance(part, Integral) and not isinstance(part, bool)


def lengthOf(part, size, x):
    """The length of an axis after slicing; of a symbolic one where it follows from the symbol."""
    if not isinstance(size, Dim):
        return len(range(size)[part])
    step = 1 if part.step is None else int(part.step)
    first, last = (0, size) if step > 0 else (size - 1, -1)
    start, stop = (
        default if end is None else end + size if end < 0 else int(end)
        for end, default in ((part.start, first), (part.stop, last))
    )
    if step < 0:
        start, stop, step = stop + 1, start + 1, -step
    length = (stop - start + step - 1) // step
    if length <= 0:
        return 0
    inside = 0 - start <= 0 and stop - size <= 0
    need(inside, f"a number in place of {size} for [{asText(part)}]", x, f"what is left depends on how large {size} is")
    return length


def asText(part):
    """A slice as it is written: 1::2."""
    ends = ["" if end is None else str(end) for end in (part.start, part.stop)]
    return ":".join(ends if part.step is None else [*ends, str(part.step)])
