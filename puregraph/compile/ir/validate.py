"""Validate: check the invariants of a schedule between passes.

A value is computed once, before it is read. Shapes and dtypes agree with the call. A view stays inside the memory of
its base. A parameter or state is not read after the call that stores to it. Calls with effects keep their order,
unless the pass adds or replaces them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.base.environment import variable
from puregraph.core.errors import PuregraphError
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.ir.value import LEAVES, Call, Value

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule
    from puregraph.core.rules import ArrayFunction

REPLACING = ("predicate", "startBuckets")  # passes that add or replace calls with effects


class PassError(PuregraphError):
    """A pass returned an invalid schedule, or one with another meaning."""


def validated(change: Callable[[Any], Any], schedule: Schedule) -> Schedule:
    """Apply a pass; with PUREGRAPH_VERIFY=1 also validate its result.

    Raises    PassError naming the pass, the call and the violated invariant
    """
    if not variable("VERIFY", False):
        return change(schedule)
    before = effects(schedule.calls)
    result = change(schedule)
    try:
        validate(result)
        if change.__name__ not in REPLACING:
            checkEffects(before, effects(result.calls))
    except PassError as error:
        raise PassError(f"after the pass {change.__name__}: {error}") from None
    return result


def validate(schedule: Schedule) -> None:
    """Check one schedule.

    Raises    PassError
    """
    made: set[int] = set()
    stored: dict[int, Call] = {}
    old = {value.root.number: id(target) for target, value in schedule.held}
    for call in schedule.calls:
        for v in () if call.kind.isView else call.values():  # a view reads no elements
            checkRead(call, v, made)
            if old.get(v.root.number) in stored:
                raise PassError(f"{call!r} reads %{v.number} after {stored[old[v.root.number]]!r} overwrote it")
        for y in call.outs:
            if y is None:
                continue
            if y.number in made:
                raise PassError(f"{call!r} computes %{y.number} a second time")
            made.add(y.number)
            checkView(call, y)
        checkShapes(call)
        for inner in carriedOut(call):
            if inner.kind.isStore:
                stored[id(inner.options["target"])] = inner
    for v in schedule.kept():
        if v.root.role not in LEAVES and v.root.number not in made:
            raise PassError(f"%{v.number} is read after the step, but no call computes it")


def isBroadcast(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """True if an array of one shape can be broadcast to the other."""
    return len(shape) <= len(to) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(to)))


def carriedOut(call: Call) -> list[Call]:
    """The calls that a call replaces, or the call itself."""
    if call.kind.isNative:
        return call.function.calls
    return getattr(call, "calls", None) or [call]


def effects(calls: list[Call]) -> tuple[list[ArrayFunction], set[int]]:
    """The Python calls and opaque rules in order, and the targets of stores."""
    effectful = [inner for call in calls for inner in carriedOut(call) if inner.kind.hasEffect]
    stores = {id(inner.options["target"]) for inner in effectful if inner.kind.isStore}
    return [inner.function for inner in effectful if not inner.kind.isStore], stores


def checkEffects(before: tuple[list[ArrayFunction], set[int]], after: tuple[list[ArrayFunction], set[int]]) -> None:
    """Check that calls with effects are the same, in the same order; reads of their targets order the stores."""
    if len(before[0]) != len(after[0]) or any(a is not b for a, b in zip(before[0], after[0])):
        raise PassError(f"expected the calls with effects {names(before[0])}, got {names(after[0])}")
    if before[1] != after[1]:
        raise PassError(f"expected stores to {len(before[1])} targets, got {len(after[1])}")


def names(functions: list[ArrayFunction]) -> str:
    """The short names of functions."""
    return ", ".join(getattr(f, "__name__", type(f).__name__) for f in functions) or "none"


def checkRead(call: Call, v: Value, made: set[int]) -> None:
    """Check that a value that a call reads has been computed."""
    if v.root.role not in LEAVES and v.root.number not in made:
        raise PassError(f"{call!r} reads %{v.number} before it is computed")


def checkView(call: Call, y: Value) -> None:
    """Check that a view is inside the memory of its base."""
    if y.base is None or 0 in y.shape:
        return
    ends = [(n - 1) * s for n, s in zip(y.shape, y.strides)]
    first = y.offset + sum(e for e in ends if e < 0)
    last = y.offset + sum(e for e in ends if e > 0) + y.dtype.itemsize
    least, most = extent(y.base)
    if first < least or last > most:
        raise PassError(f"{call!r}: %{y.number} runs from byte {first} to {last} of %{y.base.number}, which has {most}")


def extent(v: Value) -> tuple[int, int]:
    """The start and end of a value's bytes, relative to its first element."""
    ends = [(n - 1) * s for n, s in zip(v.shape, v.strides)]
    return sum(e for e in ends if e < 0), sum(e for e in ends if e > 0) + v.dtype.itemsize


def readBy(call: Call) -> list[list[Value]]:
    """The values that each result of an elementwise call reads; a formula may need only some of the arguments."""
    if isinstance(call.function, Interpreter):
        return [
            [call.arguments[i] for i in sorted(indices) if type(call.arguments[i]) is Value]
            for indices in call.function.reads
        ]
    return [call.values()] * len(call.outs)


def checkShapes(call: Call) -> None:
    """Check that the shapes and dtypes of results agree with the call."""
    if call.kind.name == "group":
        return
    shapes = [v.shape for v in call.values()]
    outs = [y for y in call.outs if y is not None]
    if call.kind.isElementwise and outs:
        for y, read in zip(call.outs, readBy(call)):
            wanted = np.broadcast_shapes(*[v.shape for v in read])
            if y is not None and not isBroadcast(wanted, y.shape):
                raise PassError(f"{call!r}: wanted %{y.number} of shape {wanted}, got {y.shape}")
    if call.function is np.matmul:
        a, b = (v.shape for v in call.values())
        inner = b[-2] if len(b) > 1 else b[0]
        if a[-1] != inner:
            raise PassError(f"{call!r}: wanted equal lengths to sum over, got {a} and {b}")
    if call.kind.isView and outs[0].dtype != call.values()[0].dtype:
        raise PassError(f"{call!r}: expected a view of {call.values()[0].dtype}, got {outs[0].dtype}")
    if call.kind.name == "copy" and len(shapes) == 1:
        if outs[0].size % max(1, math.prod(shapes[0])):
            raise PassError(f"{call!r}: wanted as many elements as {shapes[0]} has, got {outs[0].shape}")
