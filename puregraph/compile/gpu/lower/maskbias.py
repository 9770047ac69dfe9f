"""Attention masks: cuDNN adds a mask to the scores as a bias, for which it is stored in the dtype of the queries.

    bias = where(mask, 0, LOW), or maximum(mask, LOW) of a mask of floats
    y = where(seen, attend(q, k, v, bias), 0),  seen = max over j of mask > FLOOR

LOW is finite: what a query that sees no key has computed is then finite as well, and taken away, with its gradient, as
the Kernel has no key for it. A mask that has a gradient itself, or stands beside a causal one, stays with the Kernel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from puregraph.compile.ir.strides import contiguous
from puregraph.compile.ir.value import Call, Value
from puregraph.cuda.libraries import attention
from puregraph.formula import Formula
from puregraph.formula.formula import numpyFrom
from puregraph.kernels.attention import FLOOR, attend

LOW = {"float16": -6e4, "bfloat16": FLOOR, "float32": FLOOR}  # hides a key, in each dtype of queries


class MaskBias(NamedTuple):
    """A mask as a bias, the largest of each row, and the formula of what is left of a row that has such a one."""

    bias: Value
    peak: Value
    left: Formula


class MaskedAttend:
    """The function of a call that computes attention with a bias: q, k, v, bias and scale."""

    __name__ = "attend"

    def __init__(self, mask: MaskBias):
        self.mask = mask

    def launches(self, call: Call) -> Any:
        """The cuDNN call; NotImplemented where cuDNN has no plan."""
        q, k, v, bias, scale = call.arguments
        return attention.attend(call.outs, q, k, v, False, scale, tf32=call.origin.isTf32, bias=bias)


class MaskLowering:
    """Rewrites the calls of one schedule; masks that several attentions read are converted once."""

    def __init__(self, schedule: Any):
        self.schedule = schedule
        self.masks: dict[tuple[int, str], MaskBias] = {}

    def run(self) -> None:
        self.schedule.calls = [new for call in self.schedule.calls for new in self.calls(call)]

    def calls(self, call: Call) -> list[Call]:
        """A call, or those that replace it."""
        if call.function is not attend:
            return [call]
        q, k, v, mask, causal, scale = call.arguments
        if type(mask) is not Value or causal or q.dtype.name not in LOW or mask.dtype.name not in ("bool", *LOW):
            return [call]
        key = mask.number, q.dtype.name
        before = [] if key in self.masks else self.converted(mask, q.dtype, call)
        (y, lse), found = call.outs, self.masks[key]
        whole = self.new(y.shape, y.dtype, y.strides)
        done = Call(MaskedAttend(found), (q, k, v, found.bias, scale), {}, [whole, lse], "launch", call.origin, True)
        if done.function.launches(done) is NotImplemented:
            if before:
                del self.masks[key]
            return [call]
        lse.call = done
        return [*before, done, self.left(found, whole, y, call)]

    def converted(self, mask: Value, dtype: Any, call: Call) -> list[Call]:
        """The calls that convert a mask."""
        isBool, low = mask.dtype == np.bool_, LOW[dtype.name]
        bias = self.new(mask.shape, dtype)
        peak = self.new((*mask.shape[:-1], 1), dtype if isBool else mask.dtype)
        written = Formula(f"where(x, 0, {low})" if isBool else f"maximum(x, {low})")
        left = Formula(f"where(peak > {low / 2 if isBool else FLOOR}, x, 0)")
        self.masks[mask.number, dtype.name] = MaskBias(bias, peak, left)
        seen = bias if isBool else mask
        options = {"axis": -1, "keepdims": True}
        calls = [Call(numpyFrom([written], ("x",)), (mask,), {}, [bias], "pointwise", call.origin, True)]
        calls.append(Call(np.max, (seen,), options, [peak], "reduce", call.origin))
        bias.call, peak.call = calls
        return calls

    def left(self, mask: MaskBias, x: Value, y: Value, call: Call) -> Call:
        """y = x, and 0 where a query sees no key."""
        y.call = Call(numpyFrom([mask.left], ("peak", "x")), (mask.peak, x), {}, [y], "pointwise", call.origin, True)
        return y.call

    def new(self, shape: Any, dtype: Any, strides: Any = None) -> Value:
        """A new Value."""
        self.schedule.count += 1
        return Value(self.schedule.count, shape, dtype, strides or contiguous(shape, dtype.itemsize))
