"""Fused state updates: update states at the end of a step, with one launch for each kind.

    count += 1;    mean = where(go, new mean, mean)

Each update would be a launch of a few threads: the counters of all normalisations and, in a predicated step, their
statistics, which wait for its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from puregraph.compile.gpu.passes.fusedoptimizer import ParameterUpdate, together
from puregraph.compile.passes.dce import eliminateDeadCode
from puregraph.compile.passes.fusion import LOOKAHEAD
from puregraph.compile.passes.nestlines import formulas
from puregraph.ops.cuda.nests.optimizerstep import areAlike
from puregraph.ops.formula import Formula
from puregraph.ops.ir.value import LEAVES, Call, CallOrigin, Value

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

ORIGIN = CallOrigin("states", phase="update")


class Sources(NamedTuple):
    """The call that computes each Value of a schedule, with its position, and the number of reads, by Value number."""

    makers: dict[int, tuple[int, Call]]
    reads: dict[int, int]


def fuseStateUpdates(schedule: Schedule) -> Schedule:
    """Combine state updates that no reduction can store into one call at the end of the step."""
    makers = {y.number: (i, call) for i, call in enumerate(schedule.calls) for y in call.outs if y is not None}
    reads: dict[int, int] = {}
    for v in (*(v for call in schedule.calls if not call.kind.isView for v in call.values()), *schedule.kept()):
        reads[v.root.number] = reads.get(v.root.number, 0) + 1
    sources, old = Sources(makers, reads), {id(target): value for target, value in schedule.held}
    updates: dict[int, tuple[Call, ParameterUpdate]] = {}
    for target, value in schedule.stores:
        state = old.get(id(target))
        member = None if state is None else updateOf(value, state, sources)
        if member is not None:
            call = makers[value.number][1]
            updates[id(call)] = call, member
    if len(updates) > 1:
        calls, members = zip(*updates.values())
        combined = together(calls, members, None, ORIGIN)
        schedule.calls = [*(call for call in schedule.calls if id(call) not in updates), combined]
        for y in combined.outs:
            y.call = combined
        eliminateDeadCode(schedule)
    return schedule


def updateOf(value: Value, state: Value, sources: Sources) -> ParameterUpdate | None:
    """The update of a state as a formula of the state, arrays of its size and scalars.

    None if it has another form, or if a call just before it computes an operand: one launch then computes both.
    """
    end, call = sources.makers.get(value.number, (0, None))
    read = None if call is None or value.base is not None or sources.reads[value.number] > 1 else lineOf(call)
    if read is None:
        return None
    operands, line = merged(*read, sources)
    others = {n: v for n, v in operands.items() if v is not state}
    names = {n: f"x{i}" for i, n in enumerate(others)} | {n: "y" for n, v in operands.items() if v is state}
    large = {names[n]: v for n, v in others.items() if v.shape == state.shape and v.dtype.kind == state.dtype.kind}
    arrays = {"y": state} | large
    numbers = {names[n]: v for n, v in others.items() if names[n] not in arrays}
    isNear = any(end - sources.makers.get(v.root.number, (-LOOKAHEAD, 0))[0] < LOOKAHEAD for v in arrays.values())
    if isNear or any(v.shape != () for v in numbers.values()) or not areAlike([*arrays.values(), value]):
        return None
    return ParameterUpdate({"y": line.put(**names)}, arrays, numbers)


def lineOf(call: Call) -> tuple[dict[str, Value], Formula] | None:
    """The Values that an elementwise call reads, by name, and its formula; None if it has several."""
    written = formulas(call) if call.kind.isElementwise and len(call.outs) == 1 else None
    return None if written is None else (written[0], written[1][0])


def merged(operands: dict[str, Value], line: Formula, sources: Sources) -> tuple[dict[str, Value], Formula]:
    """Inline operands that have no other reader and depend on no computed value; returns operands and formula."""
    wanted = dict(operands)
    for name, v in operands.items():
        maker = sources.makers.get(v.number)
        read = lineOf(maker[1]) if maker is not None and sources.reads[v.root.number] == 1 else None
        if read is not None and all(x.root.role in LEAVES for x in read[0].values()):
            innerNames = {n: f"{name}{n}" for n in read[0]}
            line = line.put(**{name: read[1].put(**innerNames)})
            del wanted[name]
            wanted |= {innerNames[n]: x for n, x in read[0].items()}
    return wanted, line
