"""Attention backward: the gradient of attention by cuDNN, which computes from y the `rest` that the kernel reads.

    rest = sum over e of grad y

If a gradient comes through the log-sum-exp, it is also in `rest`, and the kernel is used instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.compile.gpu.lower.maskbias import MaskedAttend, MaskLowering
from puregraph.compile.passes.dce import eliminateDeadCode
from puregraph.core.tracer import astype
from puregraph.ops.attention import cudnn as attention
from puregraph.ops.attention.reference import attend, attendGrad
from puregraph.ops.ir.value import Call, Value

if TYPE_CHECKING:
    from types import NotImplementedType
    from typing import Any

    from puregraph.compile.trace.schedule import Schedule
    from puregraph.ops.cuda.libraries.cudnn import CudnnCall


class AttendBack:
    """The function of a call that reads y instead of `rest`; its last arguments are causal, scale and an optional bias.

    `parts`  the gradients as views of its result, if it has a single one
    """

    __name__ = "attendGrad"

    def __init__(self, parts: list[Value] | None = None):
        self.parts = parts

    def launches(self, call: Call) -> CudnnCall | NotImplementedType:
        """The cuDNN call; NotImplemented if cuDNN has no plan."""
        grad, q, k, v, y, lse, causal, scale, bias = call.arguments
        outs, isTf32 = self.parts or call.outs, call.origin.isTf32
        return attention.attendGrad(outs, grad, q, k, v, y, lse, causal, scale, tf32=isTf32, bias=bias)


def useLibraryAttention(schedule: Schedule) -> Schedule:
    """Use cuDNN for masked attention and for gradients of attention, if it has plans."""
    masks = MaskLowering(schedule)
    results = {call.outs[1].number: call.outs[0] for call in schedule.calls if call.function is attend}
    masks.run()
    calls = [new for call in schedule.calls for new in changed(call, masks, results)]
    if len(calls) > len(schedule.calls) or any(type(call.function) is AttendBack for call in calls):
        schedule.calls = calls
        eliminateDeadCode(schedule)
    return schedule


def changed(call: Call, masks: MaskLowering, results: dict[int, Value]) -> list[Call]:
    """The calls for a gradient of attention: it reads y if `rest` depends only on y and its gradient."""
    if call.function is not attendGrad:
        return [call]
    grad, q, k, v, mask, lse, rest, causal, scale, *more = call.arguments
    made, y = lse.call, results.get(lse.number)
    if y is None or any(more) or call.options or made is None or not isRest(rest, grad, y):
        return [call]
    if mask is None:
        back = Call(
            AttendBack(), (grad, q, k, v, y, lse, causal, scale, None), {}, call.outs, "launch", call.origin, True
        )
        return [call] if back.function.launches(back) is NotImplemented else [back]
    if type(made.function) is not MaskedAttend:
        return [call]
    maskBias, seen = made.function.mask, masks.new(grad.shape, grad.dtype, grad.strides)
    arguments = seen, q, k, v, y, lse, causal, scale, maskBias.bias
    back = Call(AttendBack(), arguments, {}, call.outs, "launch", call.origin, True)
    if back.function.launches(back) is NotImplemented:
        return [call]
    return [masks.left(maskBias, grad, seen, call), back]


def isRest(rest: Value, grad: Value, y: Value) -> bool:
    """True if `rest` is the sum of grad y over the last axis."""
    total = rest.call
    if total is None or total.function is not np.sum or total.options.get("axis") != -1:
        return False
    product = total.arguments[0].call
    if product is None or product.function is not np.multiply:
        return False
    return {narrow(v) for v in product.arguments} == {narrow(grad), narrow(y)}


def narrow(value: object) -> Any:
    """The value before a conversion."""
    made = getattr(value, "call", None)
    return made.arguments[0] if made is not None and made.function is astype else value
