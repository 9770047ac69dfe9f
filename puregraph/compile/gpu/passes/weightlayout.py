"""Weight layout: store convolution weights and their gradients channels last for libraries, like feature maps.

cuDNN's fast kernels for 16 bits and tf32 need this layout; otherwise cuDNN transposes weights in its workspace each
time they are used: forward, and for the gradients of the input and of the weights. This pass transposes all weights
once, at the start of a step, in the launch that rounds them to 16 bits, and all gradients in one launch before the
first is read. Users see neither: parameters and their gradients keep their layout.

cuDNN's float32 kernels read the original layout.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from puregraph.compile.gpu.lower.kernelcalls import libraryOf
from puregraph.compile.gpu.passes.fusedoptimizer import FusedFormula
from puregraph.ops.convolution.cuda import filterlayout
from puregraph.ops.ir.channelslast import channelsLast
from puregraph.ops.ir.strides import isContiguous
from puregraph.ops.ir.value import Call, CallOrigin, Value
from puregraph.ops.kernel import MAKES, READS
from puregraph.ops.operation import declared

if TYPE_CHECKING:
    from types import NotImplementedType

    from puregraph.compile.trace.schedule import Schedule
    from puregraph.ops.cuda.runtime.launch import Launch

ORIGIN = CallOrigin("weights")


class WeightTranspose:
    """The function of a call that transposes filters."""

    __name__ = "transpose"

    def launches(self, call: Call) -> list[Launch] | NotImplementedType:
        """One launch for all filters of the same dtypes."""
        return filterlayout.transposed(call.arguments, call.outs)


def transposeWeights(schedule: Schedule) -> Schedule:
    """Store filters channels last if a library then has a plan."""
    return WeightLayout(schedule).run()


class WeightLayout:
    """Rewrites the calls of one schedule.

    `filters`  by number of a weight: the Value it was computed from, and the weight channels last
    `waiting`  gradients without a reader so far: (channels last, original layout)
    """

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.calls: list[Call] = []
        self.filters: dict[int, tuple[Value, Value]] = {}
        self.waiting: dict[int, tuple[Value, Value]] = {}

    def run(self) -> Schedule:
        """Rewrite all calls."""
        for call in self.schedule.calls:
            self.take(call)
        self.flush()
        first = [self.transposed(self.filters, ORIGIN)] if self.filters else []
        read = {v.root.number for call in self.calls for v in call.values()}
        read |= {v.root.number for v in self.schedule.kept()}
        calls = [fewer(c, read) if type(c.function) is FusedFormula and c.origin == ORIGIN else c for c in self.calls]
        self.schedule.calls = first + [call for call in calls if call is not None]
        return self.schedule

    def take(self, call: Call) -> None:
        """Rewrite the next call."""
        if self.waiting and any(v.root.number in self.waiting for v in call.values()):
            self.flush()
        use = declared(call.function, "weight")
        if use == READS and self.isOurs(call, call.arguments[1]):
            call = self.reading(call)
        elif use == MAKES and self.isOurs(call, call.outs[0]):
            call = self.making(call)
        self.calls.append(call)

    def isOurs(self, call: Call, W: Value) -> bool:
        """True if a call reads or writes filters in the original layout and a library prefers another."""
        isOther = prod(W.shape[2:]) > 1 and W.shape[1] > 1 and isContiguous(W.shape, W.strides, W.dtype.itemsize)
        return isOther and W.base is None and (W.dtype.itemsize == 2 or call.origin.isTf32)

    def reading(self, call: Call) -> Call:
        """The call that reads filters channels last; the same call if no library has a plan for it."""
        x, W, *settings = call.arguments
        source = sourceOf(W)
        if source.role != "param":
            return call
        known = self.filters.get(W.number)
        arguments = x, known[1] if known else self.last(W), *settings
        replacement = Call(call.function, arguments, call.options, call.outs, call.kind, call.origin, call.several)
        if libraryOf(replacement, replacement.outs[0]) is NotImplemented:
            return call
        self.filters[W.number] = source, replacement.arguments[1]
        for y in call.outs:
            y.call = replacement
        return replacement

    def making(self, call: Call) -> Call:
        """The call that makes the filter gradient channels last; the same call if no library has a plan for it."""
        (dW,) = call.outs
        last = self.last(dW)
        replacement = Call(call.function, call.arguments, call.options, [last], call.kind, call.origin, call.several)
        if libraryOf(replacement, last) is NotImplemented:
            return call
        last.call = replacement
        self.waiting[dW.number] = last, dW
        return replacement

    def last(self, W: Value) -> Value:
        """A new Value like another one, channels last."""
        self.schedule.count += 1
        strides = tuple([s * W.dtype.itemsize for s in channelsLast(W.shape)])
        return Value(self.schedule.count, W.shape, W.dtype, strides, name=W.name)

    def flush(self) -> None:
        """Transpose the waiting gradients."""
        if self.waiting:
            self.calls.append(self.transposed(self.waiting, CallOrigin("gradients", phase="backward")))
            self.waiting = {}

    def transposed(self, pairs: dict[int, tuple[Value, Value]], origin: CallOrigin) -> Call:
        """The call that computes the second Value of each pair from the first."""
        xs, ys = zip(*pairs.values())
        call = Call(WeightTranspose(), xs, {}, list(ys), "launch", origin, True)
        for y in ys:
            y.call = call
        return call


def sourceOf(W: Value) -> Value:
    """The parameter that filters are a copy of, or the filters themselves."""
    made = W.call
    if made is None or type(made.function) is not FusedFormula or made.origin != ORIGIN:
        return W
    return made.arguments[[y.number for y in made.outs].index(W.number)]


def fewer(call: Call, read: set[int]) -> Call | None:
    """A call that transposes many arrays, without unread ones."""
    pairs = [(x, y) for x, y in zip(call.arguments, call.outs) if y.number in read]
    if len(pairs) in (0, len(call.outs)):
        return call if pairs else None
    return call.function.call([x for x, _ in pairs], [y for _, y in pairs], call.origin)
