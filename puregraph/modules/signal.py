"""DFT, a Fourier transform, and Col2Im, which adds columns of windows into an image."""

from itertools import product
from math import prod

import numpy as np

from puregraph.core.arguments import Count, Counts, Flag, Pairs, Whole, Wholes, optional
from puregraph.core.base.widen import widened
from puregraph.core.dim import Dim
from puregraph.core.errors import need
from puregraph.core.hostrule import onHost
from puregraph.core.shape import normalAxis
from puregraph.core.shape import product as sizeOf
from puregraph.graph.module import Module


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
        length: optional(Count) = None,
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

    @onHost
    def updateData(self, x):
        return self.transformed(x)

    @widened
    def transformed(self, x):
        """Return y."""
        axis, count = self.sizes(x.shape)
        z = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
        if self.inverse and self.oneSided:
            return np.fft.irfft(z, count, axis).astype(x.dtype)[..., None]
        y = (np.fft.ifft if self.inverse else np.fft.fft)(z, count, axis)
        if self.oneSided:
            y = y[(slice(None),) * axis + (slice(count // 2 + 1),)]
        return np.stack([y.real, y.imag], -1).astype(x.dtype, copy=False)

    @onHost
    def updateGrad(self, grad, x, y):
        return self.adjoint(grad, x.shape)

    @widened
    def adjoint(self, grad, shape):
        """Return dx: the adjoint of the transform, applied to the gradient."""
        axis, count = self.sizes(shape)
        n = shape[axis]
        if self.inverse and self.oneSided:
            z = np.fft.rfft(grad[..., 0], count, axis) / count
            twice = np.full(z.shape[axis], 2.0)
            twice[0] = 1
            if count % 2 == 0:
                twice[-1] = 1
            z = z * twice.reshape(-1, *[1] * (z.ndim - 1 - axis))
        else:
            z = grad[..., 0] + 1j * grad[..., 1]
            if self.oneSided:
                z = resized(z, count, axis)
            z = np.fft.fft(z, count, axis) / count if self.inverse else np.fft.ifft(z, count, axis) * count
        z = resized(z, n, axis)
        parts = [z.real] if shape[-1] == 1 else [z.real, z.imag]
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


def resized(z, count, axis):
    """z cut, or filled up with zeros, along an axis."""
    z = z[(slice(None),) * axis + (slice(count),)]
    widths = [(0, 0)] * z.ndim
    widths[axis] = (0, count - z.shape[axis])
    return np.pad(z, widths)


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
        arguments = {"lengths": lengths, "size": size, "stride": stride, "pad": pad, "dilation": dilation}
        for argument, values in arguments.items():
            need(len(values) == len(size), f"{argument} for each of the {len(size)} axes of size", values)
        self.lengths, self.size = tuple(lengths), tuple(size)
        self.stride, self.dilation = tuple(stride), tuple(dilation)
        self.pad = tuple((int(before), int(after)) for before, after in pad)

    @property
    def counts(self):
        """The number of windows along each axis."""
        rows = zip(self.lengths, self.size, self.stride, self.pad, self.dilation)
        return [(n + sum(pad) - d * (k - 1) - 1) // s + 1 for n, k, s, pad, d in rows]

    def dataShapeFrom(self, x):
        need(len(x) == 3, "(n, channels of windows, windows)", x)
        need(min(self.counts, default=1) > 0, "size, lengths and dilation of windows that fit", self.size)
        need(x[2] == sizeOf(self.counts), f"{sizeOf(self.counts)} windows", x[2])
        elements = prod(self.size)
        need(not isinstance(x[1], int) or x[1] % elements == 0, f"a multiple of {elements} channels", x[1])
        return (x[0], x[1] // elements, *self.lengths)

    def positions(self):
        """Yield (position in a window, slices of the padded picture at that position of all windows)."""
        for t in product(*map(range, self.size)):
            rows = zip(t, self.counts, self.stride, self.dilation)
            yield t, tuple(slice(i * d, i * d + (count - 1) * s + 1, s) for i, count, s, d in rows)

    @onHost
    def updateData(self, x):
        n, c = x.shape[0], x.shape[1] // prod(self.size)
        x = x.reshape(n, c, *self.size, *self.counts)
        paddedSizes = [size + sum(pad) for size, pad in zip(self.lengths, self.pad)]
        y = np.zeros_like(x, shape=(n, c, *paddedSizes))
        for t, part in self.positions():
            y[(slice(None), slice(None), *part)] += x[(slice(None), slice(None), *t)]
        return np.ascontiguousarray(y[(slice(None), slice(None), *self.inside())])

    def inside(self):
        """The slices of the picture in the padded one."""
        return [slice(before, before + size) for size, (before, _) in zip(self.lengths, self.pad)]

    @onHost
    def updateGrad(self, grad, x, y):
        padded = np.pad(grad, [(0, 0), (0, 0), *self.pad])
        rows = [padded[(slice(None), slice(None), *part)] for _, part in self.positions()]
        return np.stack(rows, 2).reshape(x.shape)

    @classmethod
    def examples(cls):
        yield cls((4,), (2,), (1,), [(0, 0)], (1,)), [(2, 6, 3)]
        yield cls((4, 5), (2, 2), (2, 1), [(1, 0), (0, 1)], (1, 2)), [(1, 8, 8)]
