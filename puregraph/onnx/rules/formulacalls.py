"""Calls of formulas and ufuncs, element by element, as operators of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.errors import GraphError
from puregraph.onnx.writers.formulawriters import Expression, computedType, spelled
from puregraph.ops.formula.expr import leaf, rebuild, term
from puregraph.ops.formula.formula import formulaOf
from puregraph.ops.formula.ufunctexts import ufuncFormula
from puregraph.ops.ir.value import Call, Value

if TYPE_CHECKING:
    from puregraph.onnx.rules.rulewriter import RuleWriter

BOOLEAN = {np.bitwise_and: "And", np.bitwise_or: "Or", np.invert: "Not", np.bitwise_xor: "Xor"}
COMPARED = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)


def formulas(writer: RuleWriter, call: Call) -> list[str]:
    """Write the terms of an Interpreter; returns the names of its results."""
    evaluator, names = call.function, list(call.function.names)
    arguments = dict(zip(names, call.arguments))
    dtypes = tuple([x.dtype if isinstance(x, Value) or isinstance(x, np.generic) else None for x in call.arguments])
    work = evaluator.plan(dtypes).work
    known: dict[Any, Any] = {}
    for name, x in arguments.items():
        if not isinstance(x, Value):
            known[leaf(name)] = leaf(x.item() if isinstance(x, np.generic) else x)
    arrays = {name: (writer.name(x), x.dtype) for name, x in arguments.items() if isinstance(x, Value)}
    roots = [rebuild(root, known, term) for root in evaluator.terms]
    real = work or computedType(roots, {name: dtype for name, (_, dtype) in arrays.items()})
    expression = Expression(writer.step, arrays, np.dtype(real))
    results = []
    for root, out in zip(roots, call.outs):
        name, isBool = expression.named(spelled(formulaOf(root)))
        results.append(name if out.dtype == (np.dtype(bool) if isBool else real) else writer.cast(name, out.dtype))
    return results


def ufunc(writer: RuleWriter, call: Call) -> str:
    """A ufunc, of operands that have its dtype."""
    out = call.outs[0]
    kinds = [x.dtype if isinstance(x, (Value, np.generic)) else type(x) for x in call.arguments]
    joint = np.result_type(*[np.empty(0, k) if isinstance(k, np.dtype) else k(1) for k in kinds])
    if call.function in BOOLEAN and out.dtype == np.dtype(bool):
        return writer.op(BOOLEAN[call.function], *[writer.name(x, bool) for x in call.arguments])
    formula = ufuncFormula(call.function)
    if formula is None:
        raise GraphError(f"its rule calls {call.name}, which has no ONNX equivalent")
    real = joint if call.function in COMPARED or out.dtype == np.dtype(bool) else out.dtype
    if call.function in (np.logical_and, np.logical_or, np.logical_not):
        real = np.dtype(bool)
    if real == np.dtype(bool) and call.function in COMPARED:
        real = np.dtype(np.int32)
    arrays = {name: (writer.name(x, real), np.dtype(real)) for name, x in zip("ab", call.arguments)}
    name, isBool = Expression(writer.step, arrays, np.dtype(real)).named(spelled(formula))
    return name if out.dtype == (np.dtype(bool) if isBool else real) else writer.cast(name, out.dtype)
