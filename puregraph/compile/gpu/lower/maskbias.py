"""Attention masks: cuDNN adds a mask to the scores as a bias, which is stored in the dtype of the queries.

    bias = where(mask, 0, LOW), or maximum(mask, LOW) of a mask of floats
    y = where(seen, attend(q, k, v, bias), 0),  seen = max over j of mask > FLOOR, over j <= i if causal

LOW is finite, so the result of a query without visible keys is finite, too. It is then set to 0, and so is its
gradient, as in the Kernel. If the mask has a gradient, the Kernel computes attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.ops.attention import cudnn as attention
from puregraph.ops.attention.reference import FLOOR, attend, attendGrad
from puregraph.ops.formula import Formula
from puregraph.ops.formula.formula import numpyFrom
from puregraph.ops.ir.strides import contiguous
from puregraph.ops.ir.value import Call, Value

if TYPE_CHECKING:
    from types import NotImplementedType

    from puregraph.compile.trace.schedule import Schedule
    from puregraph.ops.cuda.libraries.cudnn import CudnnCall

LOW = {"float16": -6e4, "bfloat16": FLOOR, "float32": FLOOR}  # the bias that hides a key, by dtype of the queries


class MaskBias(NamedTuple):
    """The mask as an additive bias, its row maxima, and the correction for fully masked rows."""

    bias: Value
    peak: Value
    left: Formula


class MaskedAttend:
    """The function of an attention call with a bias: q, k, v, bias, causal and scale."""

    __name__ = "attend"

    def __init__(self, mask: MaskBias):
        self.mask = mask

    def launches(self, call: Call) -> CudnnCall | NotImplementedType:
        """The cuDNN call; NotImplemented if cuDNN has no plan."""
        q, k, v, bias, causal, scale = call.arguments
        return attention.attend(call.outs, q, k, v, causal, scale, tf32=call.origin.isTf32, bias=bias)


class MaskLowering:
    """Rewrites the calls of one schedule; a mask that several attentions share is converted once."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.masks: dict[tuple[int, str, tuple[int, int] | None], MaskBias] = {}

    def run(self) -> None:
        self.schedule.calls = [new for call in self.schedule.calls for new in self.calls(call)]

    def calls(self, call: Call) -> list[Call]:
        """The calls that replace a call, or the call itself."""
        if call.function is not attend:
            return [call]
        q, k, v, mask, causal, scale, *limits = call.arguments
        if any(limits) or type(mask) is not Value or q.dtype.name not in LOW or mask.dtype.name not in ("bool", *LOW):
            return [call]
        if LOW[q.dtype.name] > FLOOR and self.isRead(call.outs[1]):
            return [call]
        key = mask.number, q.dtype.name, (q.shape[2], k.shape[2]) if causal else None
        before = [] if key in self.masks else self.converted(mask, key, q.dtype, call)
        (y, lse), maskBias = call.outs, self.masks[key]
        unmasked = self.new(y.shape, y.dtype, y.strides)
        arguments = q, k, v, maskBias.bias, causal, scale
        done = Call(MaskedAttend(maskBias), arguments, {}, [unmasked, lse], "launch", call.origin, True)
        if done.function.launches(done) is NotImplemented:
            if before:
                del self.masks[key]
            return [call]
        lse.call = done
        return [*before, done, self.left(maskBias, unmasked, y, call)]

    def isRead(self, lse: Value) -> bool:
        """True if a call other than the gradient reads the log-sum-exp, which is FLOOR for a query without keys."""
        calls = (call for call in self.schedule.calls if call.function is not attendGrad)
        return any(v.root is lse for call in calls for v in call.values())

    def converted(self, mask: Value, key: Any, dtype: np.dtype, call: Call) -> list[Call]:
        """The calls that convert a mask."""
        isBool, low = mask.dtype == np.bool_, LOW[dtype.name]
        bias = self.new(mask.shape, dtype)
        written = Formula(f"where(x, 0, {low})" if isBool else f"maximum(x, {low})")
        calls = [pointwise(written, bias, call, x=mask)]
        seen, hidden = (bias, low) if isBool else (mask, FLOOR)
        if key[2] is not None:
            rows, keys = key[2]
            visible = self.new((*mask.shape[:-2], rows, keys), seen.dtype)
            reaches = self.triangle(rows, keys)
            calls.append(pointwise(Formula(f"where(reaches, x, {hidden})"), visible, call, reaches=reaches, x=seen))
            seen = visible
        peak = self.new((*seen.shape[:-1], 1), seen.dtype)
        peak.call = Call(np.max, (seen,), {"axis": -1, "keepdims": True}, [peak], "reduce", call.origin)
        left = Formula(f"where(peak > {low / 2 if isBool else FLOOR}, x, 0)")
        self.masks[key] = MaskBias(bias, peak, left)
        return [*calls, peak.call]

    def triangle(self, rows: int, keys: int) -> Value:
        """The constant mask of key j <= query i."""
        reaches = np.tri(rows, keys, dtype=bool)
        self.schedule.count += 1
        return Value(
            self.schedule.count, reaches.shape, reaches.dtype, reaches.strides, "constant", "j <= i", source=reaches
        )

    def left(self, mask: MaskBias, x: Value, y: Value, call: Call) -> Call:
        """The call y = x, with 0 for a query without visible keys."""
        return pointwise(mask.left, y, call, peak=mask.peak, x=x)

    def new(self, shape: Any, dtype: np.dtype, strides: Any = None) -> Value:
        """A new Value."""
        self.schedule.count += 1
        return Value(self.schedule.count, shape, dtype, strides or contiguous(shape, dtype.itemsize))


def pointwise(formula: Formula, y: Value, call: Call, **operands: Value) -> Call:
    """A pointwise call of a formula, with the origin of another call."""
    names, values = tuple(operands), tuple(operands.values())
    y.call = Call(numpyFrom([formula], names), values, {}, [y], "pointwise", call.origin, True)
    return y.call
