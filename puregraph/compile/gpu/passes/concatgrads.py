"""Concatenated gradients: attention writes those of q, k and v where the gradient of their common projection is.

    concatenate([view(dq), view(dk), view(dv)])    becomes memory that dq, dk and dv are strided views of

cuDNN writes any strides; the copies that concatenate would read and write all three once more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.compile.gpu.passes.attentionbackward import AttendBack
from puregraph.compile.ir.strides import reshaped
from puregraph.compile.ir.value import Call, Value
from puregraph.compile.passes.dce import eliminateDeadCode


def concatenateGradients(schedule: Any) -> Any:
    """The schedule with each gradient of attention that is only concatenated written in place."""
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


def inPlace(schedule: Any, call: Call, concatenate: Call) -> Call | None:
    """The gradient of attention that writes a concatenation; None if that has other parts, or cuDNN no plan."""
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
    """The strides of a Value whose view, by transposes and reshapes, has these; None if there are none."""
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
