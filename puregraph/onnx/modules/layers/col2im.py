"""Col2Im: windows put back where they were in a picture, and added up."""

from itertools import product
from math import prod

import numpy as np

from puregraph.arguments import Counts, Pairs, Wholes
from puregraph.core.shape import product as sizeOf
from puregraph.errors import need
from puregraph.module import Module


class Col2Im(Module):
    """y[n, c, a stride + t dilation - before] += x[n, (c, t), a], a window, t a position in it: col2im

    Shapes    x (n, c prod(size), count of windows) -> y (n, c, *lengths)
    Source    ONNX operator Col2Im
    Raises    ShapeError if there are not as many windows, or the channels are no multiple of a window
    """

    reads = ()
    keepsDtype = True

    def __init__(self, lengths: Wholes, size: Counts, stride: Counts, pad: Pairs, dilation: Counts, name=None):
        super().__init__(name)
        self.lengths, self.size = tuple(lengths), tuple(size)
        self.stride, self.dilation = tuple(stride), tuple(dilation)
        self.pad = tuple((int(before), int(after)) for before, after in pad)

    @property
    def counts(self):
        """How many windows there are along each axis."""
        rows = zip(self.lengths, self.size, self.stride, self.pad, self.dilation)
        return [(n + sum(pad) - d * (k - 1) - 1) // s + 1 for n, k, s, pad, d in rows]

    def dataShapeFrom(self, x):
        need(len(x) == 3, "(n, channels of windows, windows)", x)
        need(min(self.counts, default=1) > 0, "windows that fit", self.size)
        need(x[2] == sizeOf(self.counts), f"{sizeOf(self.counts)} windows", x[2])
        each = prod(self.size)
        need(not isinstance(x[1], int) or x[1] % each == 0, f"a multiple of {each} channels", x[1])
        return (x[0], x[1] // each, *self.lengths)

    def positions(self):
        """(position in a window, the part of the padded picture that it is in for all windows)."""
        for t in product(*map(range, self.size)):
            rows = zip(t, self.counts, self.stride, self.dilation)
            yield t, tuple(slice(i * d, i * d + (count - 1) * s + 1, s) for i, count, s, d in rows)

    def updateData(self, x):
        n, c = x.shape[0], x.shape[1] // prod(self.size)
        x = x.reshape(n, c, *self.size, *self.counts)
        whole = [size + sum(pad) for size, pad in zip(self.lengths, self.pad)]
        y = np.zeros_like(x, shape=(n, c, *whole))
        for t, part in self.positions():
            y[(slice(None), slice(None), *part)] += x[(slice(None), slice(None), *t)]
        return np.ascontiguousarray(y[(slice(None), slice(None), *self.inside())])

    def inside(self):
        """Where the picture is in the padded one."""
        return [slice(before, before + size) for size, (before, _) in zip(self.lengths, self.pad)]

    def updateGrad(self, grad, x, y):
        padded = np.pad(grad, [(0, 0), (0, 0), *self.pad])
        rows = [padded[(slice(None), slice(None), *part)] for _, part in self.positions()]
        return np.stack(rows, 2).reshape(x.shape)

    @classmethod
    def examples(cls):
        yield cls((4,), (2,), (1,), [(0, 0)], (1,)), [(2, 6, 3)]
        yield cls((4, 5), (2, 2), (2, 1), [(1, 0), (0, 1)], (1, 2)), [(1, 8, 8)]
