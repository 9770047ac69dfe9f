"""Direct convolution as implicit GEMM, and its two gradients, for any rank, layout, stride and dilation.

    forward    y[n, o, a]  = sum over c, t of W[o, c, t] x[n, c, a stride + t dilation - before]
    data       dx[n, c, h] = sum over o, t of W[o, c, t] grad[n, o, a], where h = a stride + t dilation - before
    weight     dW[o, c, t] = sum over n, a of grad[n, o, a] x[n, c, a stride + t dilation - before]

Positions are rows and channels are columns; no im2col matrix is stored. Positions of dx whose distance is a multiple of
the stride read the same taps: each such phase has a launch of its own, and none multiplies by zeros.

16-bit channels of another layout are first copied channels last, for only contiguous elements are read 16 bytes at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.ops.convolution.cuda.tonhwc import StridedOperand, toNhwc
from puregraph.ops.cuda.runtime.launch import Launch, stridesOf
from puregraph.ops.cuda.runtime.preprocess import STORED
from puregraph.ops.product.cuda.epilogue import EpilogueOperandText, EpilogueText, sizeOf, stored
from puregraph.ops.product.cuda.implicitgemm import contraction
from puregraph.ops.product.cuda.operandlayout import ContractionOperand, Limit, Space

if TYPE_CHECKING:
    from types import NotImplementedType

    from puregraph.core.protocols import Strided
    from puregraph.ops.convolution.reference import Window

LOADED_ELEMENTS = 8  # 16-bit elements that are loaded at once


class ConvOperand(NamedTuple):
    """An operand (n, c, *spatial), or a weight: its dtype, its array, and its strides; `channels` is the number of
    channels of a group, zero padding included."""

    dtype: str
    what: Any
    n: int
    c: int
    positions: tuple[int, ...]
    channels: int


def forward(
    y: Strided, x: Any, W: Strided, window: Any, groups: int, epilogue: EpilogueText | None = None
) -> list[Launch] | NotImplementedType:
    """y = x * W, or its epilogue, with rows (n, *positions) and channels as columns."""
    if not areFloats(x, W):
        return NotImplemented
    outer, inner = W.shape[0] // groups, W.shape[1]
    rank, (first, operand) = len(window.size), prepared(x, inner, groups)
    second, weight = preparedWeight(operand, W, W.shape[0], operand.channels)
    order = depthOrder(operand)
    strides, taps = multiplied(operand.positions, window.stride), multiplied(operand.positions, window.dilation)
    limits = [
        Limit(length, -before, (0, *oneHot(i, stride, rank)), order(0, oneHot(i, dilation, rank)))
        for i, (length, _, stride, (before, _), dilation) in enumerate(zip(*window))
        if reachesOut(window, i)
    ]
    start = -dot(operand.positions, [before for before, _ in window.pad])
    a = ContractionOperand(
        operand.dtype,
        operand.what,
        (operand.n, *strides),
        order(operand.c, taps),
        (operand.c * inner,),
        start,
        tuple(limits),
    )
    b = ContractionOperand(
        weight.dtype, weight.what, (weight.n,), order(weight.c, weight.positions), (weight.n * outer,)
    )
    space = Space((x.shape[0], *window.count), (outer,), order(operand.channels, window.size), (groups,))
    epilogue = (epilogue or epilogueOf(y)).moved(lambda c: grouped(c, outer))
    return after([*first, *second], contraction("convolution", space, a, b, epilogue))


def data(
    dx: Strided, grad: Strided, W: Strided, window: Window, groups: int, epilogue: EpilogueText | None = None
) -> list[Launch] | NotImplementedType:
    """dx of y = x * W, or its epilogue, with rows (n, *positions) and channels as columns."""
    if not areFloats(grad, W):
        return NotImplemented
    if not grad.shape[0]:
        return []
    outer, inner = W.shape[0] // groups, W.shape[1]
    rank, (first, operand) = len(window.size), prepared(grad, outer, groups)
    second, weight = preparedWeight(operand, W, operand.channels * groups, inner)
    order, launches = depthOrder(operand), [*first, *second]
    phases = list(product(*[list(phasesOf(*axis)) for axis in zip(*window)]))
    for phase in phases:
        limits = [
            Limit(count, p.first, (0, *oneHot(i, 1, rank)), order(0, oneHot(i, -p.back, rank)))
            for i, (p, count) in enumerate(zip(phase, window.count))
            if len(phases) > 1 or p.reachesOut(count)
        ]
        back, start = (
            multiplied(operand.positions, [-p.back for p in phase]),
            dot(operand.positions, [p.first for p in phase]),
        )
        lanes, group = (operand.n, *operand.positions), (operand.c * outer,)
        a = ContractionOperand(operand.dtype, operand.what, lanes, order(operand.c, back), group, start, tuple(limits))
        taps, tap = multiplied(weight.positions, [p.step for p in phase]), dot(weight.positions, [p.tap for p in phase])
        b = ContractionOperand(weight.dtype, weight.what, (weight.c,), order(weight.n, taps), (weight.n * outer,), tap)
        rows = (grad.shape[0], *(p.length for p in phase))
        space = Space(rows, (inner,), order(operand.channels, [p.taps for p in phase]), (groups,))
        ending = (epilogue or epilogueOf(dx)).moved(partial(phased, phase=phase, stride=window.stride, channels=inner))
        done = contraction("convolutionData", space, a, b, ending, isWhole=len(phases) > 1)
        if done is NotImplemented:
            return NotImplemented
        launches += done
    return launches


def weight(dW: Strided, grad: Strided, x: Strided, window: Window, groups: int) -> list[Launch] | NotImplementedType:
    """dW of y = x * W."""
    if not areFloats(grad, x):
        return NotImplemented
    outer, inner = dW.shape[0] // groups, dW.shape[1]
    first, slopes = prepared(grad, outer, groups, isPadded=False)
    rank, (second, operand) = len(window.size), prepared(x, inner, groups, isPadded=False)
    order = depthOrder(operand)
    strides, taps = multiplied(operand.positions, window.stride), multiplied(operand.positions, window.dilation)
    limits = [
        Limit(length, -before, order(0, oneHot(i, dilation, rank)), (0, *oneHot(i, stride, rank)))
        for i, (length, _, stride, (before, _), dilation) in enumerate(zip(*window))
        if reachesOut(window, i)
    ]
    start = -dot(operand.positions, [before for before, _ in window.pad])
    a = ContractionOperand(slopes.dtype, slopes.what, (slopes.c,), (slopes.n, *slopes.positions), (slopes.c * outer,))
    b = ContractionOperand(
        operand.dtype,
        operand.what,
        order(operand.c, taps),
        (operand.n, *strides),
        (operand.c * inner,),
        start,
        tuple(limits),
    )
    n, c, *positions = stridesOf(dW)
    epilogue = stored(dW, (n,), order(c, tuple(positions)), (n * outer,))
    space = Space((outer,), order(inner, window.size), (x.shape[0], *window.count), (groups,))
    return after([*first, *second], contraction("convolutionWeight", space, a, b, epilogue))


def areFloats(x: Strided, y: Strided) -> bool:
    """True if both have the same dtype, supported by contractions."""
    return x.dtype == y.dtype and STORED.get(x.dtype.name) in ("float", "double", "Half", "Bfloat")


def after(before: list[Launch], done: list[Launch] | NotImplementedType) -> list[Launch] | NotImplementedType:
    """Launches after others, if there are any."""
    return done if done is NotImplemented or not done else [*before, *done]


def epilogueOf(y: Strided) -> EpilogueText:
    """The epilogue that stores into an array (n, c, *spatial)."""
    n, c, *positions = stridesOf(y)
    return stored(y, (n, *positions), (c,))


def grouped(c: EpilogueOperandText, channels: int) -> EpilogueOperandText:
    """An operand over all channels, seen from each group of `channels`."""
    return c._replace(batch=(c.columns[0] * channels,))


# Layout ---------------------------------------------------------------------------------------------------------------


def prepared(x: Strided, channels: int, groups: int, isPadded: bool = True) -> tuple[list[Launch], ConvOperand]:
    """The operand in a layout that is read quickly, and the launches that copy it."""
    n, c, *positions = stridesOf(x)
    operand = ConvOperand(x.dtype.name, x, n, c, tuple(positions), channels)
    isOdd = groups == 1 and channels % LOADED_ELEMENTS and isPadded
    if sizeOf(operand.dtype) > 2 or not x.size or (c == 1 and not isOdd):
        return [], operand
    return channelsLast(x, x.shape[0], channels + -channels % LOADED_ELEMENTS if isOdd else channels, groups)


def preparedWeight(operand: ConvOperand, W: Strided, samples: int, channels: int) -> tuple[list[Launch], ConvOperand]:
    """The weight for such an operand, with as many filters and channels."""
    n, c, *positions = stridesOf(W)
    if (samples, channels) == W.shape[:2] and (c == 1 or operand.c != 1):
        return [], ConvOperand(W.dtype.name, W, n, c, tuple(positions), channels)
    return channelsLast(W, samples, channels, 1)


def channelsLast(x: Strided, samples: int, channels: int, groups: int) -> tuple[list[Launch], ConvOperand]:
    """An operand, copied channels last."""
    launch, y = toNhwc(StridedOperand(x.dtype.name, x, x.shape, stridesOf(x)), samples, channels * groups)
    n, *positions, c = stridesOf(y)
    return [launch], ConvOperand(x.dtype.name, y, n, c, tuple(positions), channels)


def depthOrder(operand: ConvOperand) -> Callable[[Any, Sequence[Any]], tuple[Any, ...]]:
    """Channels and taps in the order of memory, the contiguous one last."""
    isLast = operand.c <= min(map(abs, operand.positions), default=operand.c)
    return lambda c, taps: (*taps, c) if isLast else (c, *taps)


def multiplied(strides: Sequence[int], factors: Sequence[int]) -> tuple[int, ...]:
    """Strides times factors, axis by axis."""
    return tuple([s * f for s, f in zip(strides, factors)])


def dot(strides: Sequence[int], positions: Sequence[int]) -> int:
    """The offset of a position from the first."""
    return sum(multiplied(strides, positions))


def oneHot(i: int, value: int, rank: int) -> tuple[int, ...]:
    """A value on one axis of `rank`, and zero on the others."""
    return (0,) * i + (value,) + (0,) * (rank - i - 1)


def reachesOut(window: Any, i: int) -> bool:
    """True if windows reach beyond an end of an axis."""
    length, k, stride, (before, _), dilation = (axisValues[i] for axisValues in window)
    return before > 0 or (window.count[i] - 1) * stride - before + (k - 1) * dilation >= length


# Phases: positions that read the same taps ----------------------------------------------------------------------------


class Phase(NamedTuple):
    """Positions along one axis: start, start + stride, ..., `length` of them, with `taps` taps: tap, tap + step, ...
    The q-th position reads with the j-th tap the element at q + first - j back."""

    start: int
    length: int
    tap: int
    step: int
    taps: int
    first: int
    back: int

    def reachesOut(self, count: int) -> bool:
        """True if an element beyond the ends is read."""
        return self.first + self.length - 1 >= count or self.first - (self.taps - 1) * self.back < 0


def phasesOf(length: int, size: int, stride: int, pad: tuple[int, int], dilation: int) -> Iterator[Phase]:
    """The phases of an axis: h = a stride + t dilation - before, solved for a and t, for each h modulo the stride."""
    before, common = pad[0], gcd(stride, dilation)
    step = stride // common
    for start in range(min(stride, length)):
        tap = next((t for t in range(step) if (start + before - t * dilation) % stride == 0), size)
        taps = max(0, -(-(size - tap) // step))
        count = -(-(length - start) // stride)
        first = (start + before - tap * dilation) // stride
        yield Phase(start, count, tap if taps else 0, step, taps, first, dilation // common)


def phased(c: EpilogueOperandText, phase: Sequence[Phase], stride: Sequence[int], channels: int) -> EpilogueOperandText:
    """An operand over all positions and channels, restricted to one phase and one group of `channels`."""
    n, *positions = c.rows
    start = c.start + dot(positions, [p.start for p in phase])
    return grouped(c._replace(rows=(n, *multiplied(positions, stride)), start=start), channels)
