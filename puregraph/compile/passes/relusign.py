"""ReLU sign: if only `x > 0` is read of a relu's input, read it from the result, so that x is not kept."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from puregraph.ops.formula import Formula
from puregraph.ops.formula.expr import REMEMBERED, leaf, term, walk
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.ir.value import Value

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

RELU = Formula("relu(x)").term


def readReluSigns(schedule: Schedule) -> Schedule:
    """Make formulas that only test x > 0 read relu(x), which is positive for the same elements."""
    results: dict[int, Value] = {}
    for call in schedule.calls:
        if not isinstance(call.function, Interpreter):
            continue
        if results:
            call.arguments = tuple(
                [
                    results[a.number] if type(a) is Value and a.number in results and asksSign(call.function, i) else a
                    for i, a in enumerate(call.arguments)
                ]
            )
        if call.function.terms == (RELU,) and call.outs[0].dtype == call.arguments[0].dtype:
            results[call.arguments[0].number] = call.outs[0]
    return schedule


@lru_cache(maxsize=REMEMBERED)
def asksSign(evaluator: Interpreter, index: int) -> bool:
    """True if an argument is only tested for being positive."""
    name = leaf(evaluator.names[index])
    sign = term(">", name, leaf(0))
    order = walk(*evaluator.terms)
    return sign in order and all(t is sign or name not in t.args for t in order) and name not in evaluator.terms
