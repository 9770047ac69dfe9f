"""Predicates: if backward reads only a condition of values, such as `0 <= x and x <= 6`, store one byte for each."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from puregraph.core.opensize import numberOf
from puregraph.ops.formula.expr import REMEMBERED, Term, leaf, rebuild, term, walk
from puregraph.ops.formula.formula import formulaOf, numpyFrom
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.formula.optable import LOGICAL
from puregraph.ops.ir.value import Call, Value

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

MIN_PREDICATED_BYTES = 1 << 14  # smallest value, in bytes, that is worth it
ASKED = "x"


def storePredicates(schedule: Schedule) -> Schedule:
    """Make formulas of the backward pass read predicates, stored by the forward pass, instead of values."""
    readers: dict[int, list[Call]] = {}
    for call in schedule.calls:
        if not call.kind.isView and call.origin.phase != "forward":
            for v in call.values():
                readers.setdefault(v.root.number, []).append(call)
    kept = {v.root.number for v in schedule.kept()}
    calls: list[Call] = []
    for call in schedule.calls:
        calls.append(call)
        if call.origin.phase != "forward" or not call.kind.isElementwise:
            continue
        for y in call.outs:
            later = readers.get(y.number, ())
            if (
                not later
                or y.base is not None
                or numberOf(y.nbytes) < MIN_PREDICATED_BYTES
                or y.dtype.kind != "f"
                or y.number in kept
            ):
                continue
            question = same(asked(reader, y) for reader in later)
            if question is not None:
                calls.append(answering(schedule, call, y, question))
                for reader in later:
                    exchange(reader, y, calls[-1].outs[0], question)
    schedule.calls = calls
    return schedule


def same(questions: Iterable[Term | None]) -> Term | None:
    """The only condition on a value; None if there are several, or the value is also read directly."""
    conditions = set(questions)
    return conditions.pop() if len(conditions) == 1 else None


def asked(call: Call, value: Value) -> Term | None:
    """The condition on a value that a call reads, as a term of `x`; None if it reads more than a condition."""
    if not isinstance(call.function, Interpreter):
        return None
    indices = [i for i, a in enumerate(call.arguments) if a is value]
    if len(indices) != 1 or any(v.root is value and v is not value for v in call.values()):
        return None
    return questionOf(call.function, indices[0])


@lru_cache(maxsize=REMEMBERED)
def questionOf(evaluator: Interpreter, index: int) -> Term | None:
    """The only condition on an argument, whose other operands are constants, as a term of `x`; otherwise None."""
    name = leaf(evaluator.names[index])
    inside = {t for t in walk(*evaluator.terms) if t.op in LOGICAL and leavesOf(t) == {name}}
    outermost = inside - {a for t in inside for a in walk(*t.args)}
    if len(outermost) != 1:
        return None
    (question,) = outermost
    answered = [rebuild(t, {question: leaf(0)}, term) for t in evaluator.terms]
    return None if name in walk(*answered) else rebuild(question, {name: leaf(ASKED)}, term)


def leavesOf(root: Term) -> set[Term]:
    """The names in a term."""
    return {t for t in walk(root) if t.op == "name"}


def answering(schedule: Schedule, call: Call, value: Value, question: Term) -> Call:
    """The call that stores the predicate, in the layout of the value."""
    schedule.count += 1
    strides = tuple([s // value.dtype.itemsize for s in value.strides])
    answer = Value(schedule.count, value.shape, np.dtype(np.bool_), strides, name=f"{value.name}.answer")
    answer.call = Call(
        numpyFrom((formulaOf(question),), (ASKED,)), (value,), {}, [answer], "pointwise", call.origin, True
    )
    return answer.call


def exchange(call: Call, value: Value, answer: Value, question: Term) -> None:
    """Make a call read the predicate."""
    evaluator = call.function
    (index,) = [i for i, a in enumerate(call.arguments) if a is value]
    name = leaf(evaluator.names[index])
    condition = rebuild(question, {leaf(ASKED): name}, term)
    terms = [formulaOf(rebuild(t, {condition: name}, term)) for t in evaluator.terms]
    call.function = numpyFrom(terms, evaluator.names)
    call.arguments = tuple([answer if a is value else a for a in call.arguments])
