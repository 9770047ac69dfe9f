"""Attention backward: the gradient of attention by cuDNN, which computes from y what the kernel reads as `rest`.

    rest = sum over e of grad y

A gradient that comes through the log-sum-exp would be a part of `rest` as well: then the kernel stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.compile.ir.value import Call, Value
from puregraph.compile.passes.dce import eliminateDeadCode
from puregraph.core.tracer import astype
from puregraph.cuda.libraries import attention
from puregraph.kernels.attention import attend, attendGrad


class AttendBack:
    """The function of a call that reads y in place of `rest`; its last arguments are causal and scale.

    `parts`  the gradients as views of its one result, if it has but one
    """

    __name__ = "attendGrad"

    def __init__(self, parts: list[Value] | None = None):
        self.parts = parts

    def launches(self, call: Call) -> Any:
        """The cuDNN call; NotImplemented where cuDNN has no plan."""
        grad, q, k, v, y, lse, causal, scale = call.arguments
        return attention.attendGrad(
            self.parts or call.outs, grad, q, k, v, y, lse, causal, scale, tf32=call.origin.isTf32
        )


def useLibraryAttention(schedule: Any) -> Any:
    """The schedule with each gradient of attention for which cuDNN has a plan as a call that reads y."""
    calls = [changed(call) if call.function is attendGrad else call for call in schedule.calls]
    if any(type(call.function) is AttendBack for call in calls):
        schedule.calls = calls
        eliminateDeadCode(schedule)
    return schedule


def changed(call: Call) -> Call:
    """A gradient of attention that reads y, if `rest` is computed from y and its gradient alone."""
    grad, q, k, v, mask, lse, rest, causal, scale, *more = call.arguments
    made = lse.call
    if mask is not None or any(more) or call.options or made is None or made.function is not attend:
        return call
    y = made.outs[0]
    if made.outs[1] is not lse or not isRest(rest, grad, y):
        return call
    back = Call(AttendBack(), (grad, q, k, v, y, lse, causal, scale), {}, call.outs, "launch", call.origin, True)
    return call if back.function.launches(back) is NotImplemented else back


def isRest(rest: Value, grad: Value, y: Value) -> bool:
    """Whether a value is the sum over the last axis of the product of two."""
    total = rest.call
    if total is None or total.function is not np.sum or total.options.get("axis") != -1:
        return False
    product = total.arguments[0].call
    if product is None or product.function is not np.multiply:
        return False
    return {narrow(v) for v in product.arguments} == {narrow(grad), narrow(y)}


def narrow(value: Any) -> Any:
    """The value before it was widened."""
    made = getattr(value, "call", None)
    return made.arguments[0] if made is not None and made.function is astype else value
