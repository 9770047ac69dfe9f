"""Concatenated gradients: attention writes the gradients of q, k and v into the gradient of their common projection.

    concatenate([view(dq), view(dk), view(dv)])    becomes memory with dq, dk and dv as strided views

cuDNN writes any strides; separate copies would read and write all three gradients once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.gpu.passes.attentionbackward import AttendBack
from puregraph.compile.passes.dce import eliminateDeadCode
from puregraph.ops.ir.strides import reshaped
from puregraph.ops.ir.value import Call, Value

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule


def concatenateGradients(schedule: Schedule) -> Schedule:
    """Write gradients of attention that are only concatenated directly into the concatenation."""
    readers: dict[int, list[Call]] = {v.root.number: [] for v in schedule.kept()}
    for call in schedule.calls:
        for v in () if call.kind.isView else call.values():
            readers.setdefault(v.root.number, []).append(call)
    kept = {v.root.number for v in schedule.kept()}
    replaced: dict[int, Call] = {}
    for call in schedule.calls:
        if type(call.function) is AttendBack and not kept.intersection(y.number for y in call.outs):
            users = readers.get(call.outs[0].number, [])
            if len(users) == 1 and users[0].function is np.concatenate:
                written = inPlace(schedule, call, users[0])
                if written is not None:
                    replaced |= {id(call): written, id(users[0]): written}
    if replaced:
        schedule.calls = [replaced.get(id(call), call) for call in schedule.calls]
        schedule.calls = list({id(call): call for call in schedule.calls}.values())
        eliminateDeadCode(schedule)
    return schedule


def inPlace(schedule: Schedule, call: Call, concatenate: Call) -> Call | None:
    """The gradient of attention that writes a concatenation; None if it has other parts, or cuDNN has no plan."""
    (y,), pieces = concatenate.outs, concatenate.arguments[0]
    axis = concatenate.options.get("axis", 0)
    if [x.root.number for x in pieces] != [x.number for x in call.outs] or axis is None or y.base is not None:
        return None
    parts, start = [], 0
    for piece, grad in zip(pieces, call.outs):
        strides = stridesBack(piece, grad, y.strides)
        if strides is None or piece.dtype != y.dtype or piece.size != grad.size:
            return None
        schedule.count += 1
        part = Value(schedule.count, grad.shape, grad.dtype, strides, name=grad.name)
        part.base, part.offset = y, start * y.strides[axis]
        parts.append(part)
        start += piece.shape[axis]
    back = Call(AttendBack(parts), call.arguments, {}, [y], "launch", call.origin, True)
    if back.function.launches(back) is NotImplemented:
        return None
    y.call = back
    return back


def stridesBack(view: Value, root: Value, strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of `root` that give its view, by transposes and reshapes, these strides; None if there are none."""
    while view is not root:
        made: Any = view.call
        (x, *order), (seen,) = made.arguments, made.outs
        if made.function is np.transpose and len(order) == 1 and order[0] is not None:
            strides = tuple([strides[axis] for axis in np.argsort(order[0])])
        elif made.function is np.reshape:
            result = reshaped(seen.shape, strides, x.shape, x.dtype.itemsize)
            if result is None:
                return None
            strides = result
        else:
            return None
        view = x
    return strides
