"""Fused optimizer: update all parameters with one launch for each dtype and layout (multi-tensor apply)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.ops.cuda.nests import optimizerstep
from puregraph.ops.formula import Formula
from puregraph.ops.formula.formula import formulasOf
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.ir.value import Call, CallOrigin, Value

if TYPE_CHECKING:
    from types import NotImplementedType

    from puregraph.ops.cuda.runtime.launch import Launch


class ParameterUpdate(NamedTuple):
    """The update of one parameter: formulas of its arrays by name, the arrays, and the scalars."""

    formulas: dict[str, Formula]
    arrays: dict[str, Value]
    numbers: dict[str, Any]


class FusedUpdate:
    """The function of a call that updates many parameters; if the number `stop` is 1, it updates nothing."""

    __name__ = "update"

    def __init__(self, members: Sequence[ParameterUpdate], calls: Sequence[Call], stop: Value | None):
        self.members, self.calls, self.stop = list(members), list(calls), stop

    def launches(self) -> list[Launch] | NotImplementedType:
        """One launch for each set of formulas; NotImplemented if a parameter does not fit."""
        kinds: dict[Any, list[ParameterUpdate]] = {}
        for member in self.members:
            kinds.setdefault(tuple(member.formulas.items()), []).append(member)
        starts: list[Any] = []
        for formulas, members in kinds.items():
            arrays, numbers = [m.arrays for m in members], [m.numbers for m in members]
            made = optimizerstep.launches(dict(formulas), arrays, numbers, skip=self.stop)
            if made is NotImplemented:
                return NotImplemented
            starts += made
        return starts


class FusedFormula:
    """The function of a call that applies a formula of x and scalars to every array, in few launches."""

    def __init__(self, name: str, formula: Formula, numbers: Sequence[str] = ()):
        self.__name__, self.formula, self.numbers = name, formula, tuple(numbers)

    def call(self, xs: Sequence[Value], ys: Sequence[Value], origin: CallOrigin, *numbers: Value) -> Call:
        """The call that computes ys from xs."""
        call = Call(self, (*xs, *numbers), {}, list(ys), "launch", origin, True)
        for y in ys:
            y.call = call
        return call

    def launches(self, call: Call) -> list[Launch] | NotImplementedType:
        """One launch for each kind of arrays; NotImplemented if an array has gaps."""
        xs, numbers = call.arguments[: len(call.outs)], call.arguments[len(call.outs) :]
        arrays = [{"x": x, "y": y} for x, y in zip(xs, call.outs)]
        starts = optimizerstep.launches({"y": self.formula}, arrays, [dict(zip(self.numbers, numbers))] * len(arrays))
        return starts if starts is NotImplemented else [launch._replace(name=self.__name__) for launch in starts]


def memberOf(call: Call, targets: dict[int, Value]) -> ParameterUpdate | None:
    """The update of a parameter, or None if it has no formulas; `targets` are the Values that its results replace."""
    if not isinstance(call.function, Interpreter) or any(y.number not in targets for y in call.outs):
        return None
    shape = call.outs[0].shape
    operands = dict(zip(call.function.names, call.arguments))
    arrays = {n: v for n, v in operands.items() if type(v) is Value and v.role != "scalar" and v.shape == shape}
    arrays |= {y.name: targets[y.number] for y in call.outs}
    numbers = {n: v for n, v in operands.items() if n not in arrays}
    if any(type(v) is Value and v.shape != () for v in numbers.values()) or not optimizerstep.areAlike(
        [*arrays.values()]
    ):
        return None
    return ParameterUpdate(dict(zip([y.name for y in call.outs], formulasOf(call.function))), arrays, numbers)


def together(calls: Sequence[Call], members: Sequence[ParameterUpdate], stop: Value | None, origin: CallOrigin) -> Call:
    """One call that replaces many updates."""
    function = FusedUpdate(members, calls, stop)
    reads = [v for m in members for v in (*m.arrays.values(), *m.numbers.values()) if type(v) is Value]
    reads = list({v.number: v for v in [*reads, *([] if stop is None else [stop])]}.values())
    outs = [y for call in calls for y in call.outs]
    return Call(function, tuple(reads), {}, outs, "launch", origin, True)
