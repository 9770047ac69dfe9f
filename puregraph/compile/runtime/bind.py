"""Bind: turn calls on Values into numpy calls on their arrays, which write to the memory of the results."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.weightgather import WeightGather
from puregraph.core.tracer import astype
from puregraph.ops.formula.interpreter import Interpreter, isLarge
from puregraph.ops.ir.value import Call, Value, changed, copy, fill, put

if TYPE_CHECKING:
    from puregraph.core.device import Array
    from puregraph.core.rules import ArrayFunction

WITH_OUT = {np.sum, np.mean, np.max, np.min, np.prod, np.var, np.std, np.any, np.all, np.amax, np.amin}
WITH_OUT |= {np.concatenate, np.stack}
MEANS = {np.mean, np.var, np.std}


class DeviationError(Exception):
    """The results of an opaque rule differ from those of its trial run."""


class Bound:
    """One numpy call: `function(*arguments, **options)`. `arguments` is a list, so that inputs can be replaced."""

    __slots__ = ("arguments", "call", "function", "options")

    def __init__(self, call: Call | None, function: ArrayFunction, arguments: list, options: dict[str, Any]):
        self.call, self.function, self.arguments, self.options = call, function, arguments, options


def bound(call: Call, array: Callable[[Value], Array], taken: int | None) -> list[Bound]:
    """A call as numpy calls. `array` gives the array of a Value; `taken` is the argument that is overwritten."""
    outs = [None if y is None or y.role == "object" else array(y) for y in call.outs]
    operands = [listed(a, array) for a in call.arguments]
    options = {k: changed(a, array) for k, a in call.options.items() if k != "target"}
    function = call.function

    def single(function: ArrayFunction, arguments: list, options: dict[str, Any] | None = None) -> list[Bound]:
        return [Bound(call, function, arguments, options or {})]

    if call.kind.isStore:
        return single(np.copyto, [call.options["target"].array, operands[0]])
    if call.kind.isUpdate:
        first = [] if sharesAll(outs[0], operands[0]) else single(np.copyto, [outs[0], operands[0]])
        return [*first, *single(function, [outs[0], *operands[1:]], options)]
    if isinstance(function, Interpreter):
        return single(*evaluated(function, operands, outs))
    if isinstance(function, np.ufunc):
        return single(function, operands, {**options, "out": tuple(outs)})
    out: Any = outs[0] if len(outs) == 1 else None
    if type(function) is WeightGather:
        return single(function.into, [out])
    if function is np.where:
        first = [] if taken == 2 else single(np.copyto, [out, operands[2]], {"casting": "unsafe"})
        return chosen(single, first, out, operands)
    if function is fill:
        return single(out.fill, operands)
    if function is astype:
        return single(np.copyto, [out, operands[0]], {"casting": "unsafe"})
    if function is copy:
        return single(np.copyto, [out, operands[0]])
    if function is put:
        first = [] if taken == 0 else single(np.copyto, [out, operands[0]])
        return [*first, *single(operator.setitem, [out, changed(call.arguments[1], array), operands[2]])]
    if function is np.reshape:
        return single(np.copyto, [out.reshape(call.arguments[0].shape), operands[0]])
    half = function in MEANS and out.dtype == np.float16  # numpy would round the sum before the division
    if not half and (function in WITH_OUT or isinstance(getattr(function, "__self__", None), np.ufunc)):
        return single(function, operands, {**options, "out": out})
    return single(Copying(function, outs, call.several), [changed(a, array) for a in call.arguments], options)


def sharesAll(a: Any, b: Any) -> bool:
    """True if two arrays of one layout are the same memory."""
    faces = [getattr(x, "__cuda_array_interface__", None) or x.__array_interface__ for x in (a, b)]
    return bool(faces[0]["data"] == faces[1]["data"])


def listed(a: Any, array: Callable[[Value], Array]) -> Any:
    """An argument with arrays in place of Values."""
    return array(a) if type(a) is Value else changed(a, array)


def chosen(single: Any, first: list[Bound], out: Any, operands: list) -> list[Bound]:
    """np.where(c, a, b): copy b, then overwrite it with a where c is true."""
    condition = operands[0]
    if condition.dtype != np.bool_:
        return single(Copying(np.where, [out], False), operands)
    return [*first, *single(np.copyto, [out, operands[1]], {"where": condition, "casting": "unsafe"})]


def evaluated(evaluator: Interpreter, operands: list, outs: list) -> tuple[Any, list]:
    """An Interpreter without its checks on each call; in blocks if arrays are large."""
    plan = evaluator.plan(tuple([getattr(a, "dtype", None) for a in operands]))
    if len(evaluator.steps) > 2 and isLarge(operands):
        return BlockwiseFormula(evaluator, plan), [operands, outs]
    return evaluator.evaluate, [plan, operands, outs]


class BlockwiseFormula:
    """An Interpreter that computes large arrays in blocks, if that is possible."""

    __slots__ = ("evaluator", "plan")

    def __init__(self, evaluator: Interpreter, plan: Any):
        self.evaluator, self.plan = evaluator, plan

    def __call__(self, operands: list, outs: list) -> None:
        if self.evaluator.blockwise(self.plan, operands, outs) is None:
            self.evaluator.evaluate(self.plan, operands, outs)


class Copying:
    """A function that allocates its result, which is then copied to the planned memory."""

    __slots__ = ("function", "outs", "several")

    def __init__(self, function: ArrayFunction, outs: list, several: bool):
        self.function, self.outs, self.several = function, outs, several

    def __call__(self, *arguments: Any, **options: Any) -> None:
        result = self.function(*arguments, **options)
        for out, y in zip(self.outs, result if self.several else (result,), strict=True):
            out[...] = y


class Running:
    """An opaque rule. `objects` passes values that are not arrays from one opaque rule to the next.

    Raises    DeviationError if its results differ from those of its trial run
    """

    __slots__ = ("call", "objects", "outs", "rule")

    def __init__(self, call: Call, outs: list, objects: dict[int, Any]):
        self.call, self.outs, self.objects, self.rule = call, outs, objects, call.function

    def __call__(self, *arguments: Any) -> None:
        operands = [
            self.objects[v.number] if type(v) is Value and v.role == "object" else a
            for v, a in zip(self.call.arguments, arguments)
        ]
        results = self.rule(*operands)
        if len(results) != len(self.outs):
            raise DeviationError(f"expected {len(self.outs)} results, got {len(results)}")
        for y, out, result in zip(self.call.outs, self.outs, results):
            if y is None:
                if result is not None:
                    raise DeviationError("expected None, got a result")
            elif y.role == "object":
                self.objects[y.number] = result
            else:
                if getattr(result, "shape", None) != y.shape or result.dtype != y.dtype:
                    raise DeviationError(f"expected {y.dtype}{list(y.shape)}, got another result")
                out[...] = result
