"""DFT, a Fourier transform; Unfold, the windows of an image as columns, and Col2Im, which adds them into an image."""

from itertools import product
from math import prod

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core.arguments import Count, Flag, Whole, Wholes
from puregraph.core.dim import Dim
from puregraph.core.errors import need
from puregraph.core.hostrule import onHost
from puregraph.core.shape import normalAxis
from puregraph.core.shape import product as sizeOf
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module
from puregraph.modules.windows import needRank, padding, perAxis, sides, windowShape, windowSize
from puregraph.ops.fourier.complexpair import ComplexPair
from puregraph.ops.fourier.derivatives import resized


class DFT(Module):
    """y[k] = sum over n of x[n] exp(-2 pi i k n / N); with `inverse` exp(+...) and divided by N

    The last axis holds real and imaginary part, or with length one only the real part. N is `length`: x is cut or
    zero-padded; by default all of x. With `oneSided` only the first N // 2 + 1 values are returned, which are enough
    for a real x; with `inverse` these are the input, and y is real.

    Shapes    x (..., n, ..., 1 or 2) -> y (..., N or N // 2 + 1, ..., 2), or (..., N, ..., 1)
    Source    ONNX operator DFT; Cooley, Tukey 1965, An algorithm for the machine calculation of complex Fourier series
    Raises    ShapeError if x has no such axis, or its last one is not of 1 or 2
    """

    reads = ()
    needsFloats = True

    def __init__(
        self,
        axis: Whole = -2,
        length: Count | None = None,
        inverse: Flag = False,
        oneSided: Flag = False,
        name=None,
    ):
        super().__init__(name)
        self.axis, self.length, self.inverse, self.oneSided = axis, length, inverse, oneSided

    def sizes(self, x):
        """(the axis, N) for an input."""
        need(len(x) >= 2 and x[-1] in (1, 2), "(..., 1 or 2), real or complex", x)
        axis = normalAxis(self.axis, len(x))
        need(axis != len(x) - 1, "an axis that is not the last", self.axis)
        full = 2 * (x[axis] - 1) if self.inverse and self.oneSided else x[axis]
        count = full if self.length is None else self.length
        need(isinstance(count, Dim) or count > 0, "at least one value to transform", x)
        return axis, count

    def dataShapeFrom(self, x):
        axis, count = self.sizes(x)
        isReal = self.inverse and self.oneSided
        kept = count // 2 + 1 if self.oneSided and not self.inverse else count
        return (*x[:axis], kept, *x[axis + 1 : -1], 1 if isReal else 2)

    def updateData(self, x):
        axis, count = self.sizes(x.shape)
        z = pairOf(x)
        if self.inverse and self.oneSided:
            return np.expand_dims(np.fft.irfft(z, count, axis), -1).astype(x.dtype, copy=False)
        y = (np.fft.ifft if self.inverse else np.fft.fft)(z, count, axis)
        if self.oneSided:
            y = y[(slice(None),) * axis + (slice(count // 2 + 1),)]
        return np.stack([y.real, y.imag], -1).astype(x.dtype, copy=False)

    def updateGrad(self, grad, x, y):
        return self.adjoint(grad, x.shape)

    def adjoint(self, grad, shape):
        """Return dx: the adjoint of the transform, applied to the gradient."""
        axis, count = self.sizes(shape)
        z = pairOf(grad)
        if self.inverse and self.oneSided:
            kept = count // 2 + 1
            z = np.fft.fft(z, count, axis)[(slice(None),) * axis + (slice(kept),)]
            twice = np.full(kept, 2 / count, z.real.dtype)
            twice[0] = 1 / count
            if count % 2 == 0:
                twice[-1] = 1 / count
            z = z * arrayLike(grad, twice.reshape(-1, *[1] * (z.ndim - 1 - axis)))
        else:
            z = np.fft.fft(z, count, axis, "forward") if self.inverse else np.fft.ifft(z, count, axis, "forward")
        parts = [resized(part, [shape[axis]], [axis]) for part in (z.real, z.imag)[: shape[-1]]]
        return np.stack(parts, -1).astype(grad.dtype, copy=False)

    def flopsFrom(self, x):
        axis, count = self.sizes(x)
        flops = 5
        for size in x[:-1]:
            flops = flops * size
        return flops * max(1, count.bit_length() if isinstance(count, int) else 1)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 5, 2)]
        yield cls(1, 6, oneSided=True), [(2, 4, 3, 1)]
        yield cls(0, 3, inverse=True), [(4, 2)]
        yield cls(-2, inverse=True, oneSided=True), [(2, 4, 2)]


def pairOf(x):
    """The complex numbers whose parts are along the last axis, or whose real part is."""
    return ComplexPair(x[..., 0], x[..., 1] if x.shape[-1] == 2 else np.zeros_like(x[..., 0]))


class _Columns(Module):
    """Base class: windows of `size` elements, and their `stride` and `dilation`, along each spatial axis."""

    reads: tuple[str, ...] = ()
    keepsDtype = True

    def setWindows(self, size, stride, pad, dilation):
        """Keep the options of windows, each with a number for every axis."""
        self.size = windowSize(size, None, type(self).__name__)
        rank = len(self.size)
        self.stride, self.dilation = perAxis(stride, rank, "stride"), perAxis(dilation, rank, "dilation")
        self.pad = sides(pad, self.size, self.stride, self.dilation)
        need(self.pad == "same" or min(map(min, self.pad)) >= 0, "pad of at least 0", pad)

    def counts(self, lengths):
        """The number of windows along each axis of these lengths."""
        return windowShape((1, 1, *lengths), self.size, self.stride, self.pad, self.dilation)

    def positions(self, counts):
        """Yield (position in a window, slices of the padded picture at that position of all windows)."""
        for t in product(*map(range, self.size)):
            rows = zip(t, counts, self.stride, self.dilation)
            yield t, tuple(slice(i * d, i * d + (count - 1) * s + 1, s) for i, count, s, d in rows)

    def columns(self, x):
        """The windows of x (n, c, *spatial) as columns (n, c prod(size), windows)."""
        counts = self.counts(x.shape[2:])
        pairs = padding(x.shape[2:], self.size, self.stride, self.pad, self.dilation)
        padded = np.pad(x, [(0, 0), (0, 0), *pairs])
        rows = [padded[(slice(None),) * 2 + part] for _, part in self.positions(counts)]
        return np.stack(rows, 2).reshape(x.shape[0], x.shape[1] * len(rows), prod(counts))


class Unfold(_Columns):
    """y[n, (c, t), a] = x[n, c, a stride + t dilation - before], a window, t a position in it: im2col

    `size` has a number for each spatial axis, the other options one or one for each; `pad` may be "same".

    Shapes    x (n, c, *spatial) -> y (n, c prod(size), windows)
    Source    Chellapilla, Puri, Simard 2006, High Performance Convolutional Neural Networks for Document Processing,
              section 2.1
    Raises    ShapeError if x has another rank, or is too small for one window

    >>> Unfold((2,))(np.array([[[1.0, 2.0, 3.0]]]))
    array([[[1., 2.],
            [2., 3.]]])
    """

    reads = ("x",)

    def __init__(self, size, stride=1, pad=0, dilation=1, name=None):
        super().__init__(name)
        self.setWindows(size, stride, pad, dilation)

    def dataShapeFrom(self, x):
        needRank(x, len(self.size))
        return (x[0], x[1] * prod(self.size), sizeOf(self.counts(x[2:])))

    def updateData(self, x):
        return self.columns(x)

    def updateGrad(self, grad, *values, needs):
        return derivedGrad(self.updateData, grad, values, needs)

    @classmethod
    def examples(cls):
        yield cls((2,)), [(2, 3, 5)]
        yield cls((2, 3), (2, 1), ((1, 0), (0, 1)), (1, 2)), [(1, 2, 4, 5)]
        yield cls((3, 2), 2, "same"), [(2, 1, 5, 4)]
        yield cls((1, 2, 2), pad=(0, 1, 0)), [(1, 2, 2, 2, 3)]


class Col2Im(_Columns):
    """y[n, c, a stride + t dilation - before] += x[n, (c, t), a], a window, t a position in it: the adjoint of Unfold

    Shapes    x (n, c prod(size), count of windows) -> y (n, c, *lengths)
    Source    ONNX operator Col2Im
    Raises    ShapeError if there are not as many windows, or the channels are no multiple of a window
    """

    def __init__(self, lengths: Wholes, size, stride=1, pad=0, dilation=1, name=None):
        super().__init__(name)
        self.setWindows(size, stride, pad, dilation)
        need(len(lengths) == len(self.size), f"lengths for each of the {len(self.size)} axes of size", lengths)
        self.lengths = tuple(lengths)
        self.pad = padding(self.lengths, self.size, self.stride, self.pad, self.dilation)

    def dataShapeFrom(self, x):
        need(len(x) == 3, "(n, channels of windows, windows)", x)
        windows, elements = prod(self.counts(self.lengths)), prod(self.size)
        need(x[2] == windows, f"{windows} windows", x[2])
        need(not isinstance(x[1], int) or x[1] % elements == 0, f"a multiple of {elements} channels", x[1])
        return (x[0], x[1] // elements, *self.lengths)

    @onHost
    def updateData(self, x):
        n, c, counts = x.shape[0], x.shape[1] // prod(self.size), self.counts(self.lengths)
        x = x.reshape(n, c, *self.size, *counts)
        paddedSizes = [size + sum(pad) for size, pad in zip(self.lengths, self.pad)]
        y = np.zeros_like(x, shape=(n, c, *paddedSizes))
        for t, part in self.positions(counts):
            y[(slice(None),) * 2 + part] += x[(slice(None),) * 2 + t]
        return np.ascontiguousarray(y[(slice(None),) * 2 + self.inside()])

    def inside(self):
        """The slices of the picture in the padded one."""
        return tuple(slice(before, before + size) for size, (before, _) in zip(self.lengths, self.pad))

    @onHost
    def updateGrad(self, grad, x, y):
        return self.columns(grad)

    @classmethod
    def examples(cls):
        yield cls((4,), (2,)), [(2, 6, 3)]
        yield cls((4, 5), (2, 2), (2, 1), [(1, 0), (0, 1)], (1, 2)), [(1, 8, 8)]
