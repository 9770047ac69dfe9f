"""Call nests: the loop nest of a call that is in no group, in integer arithmetic or in float64."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from puregraph.compile.passes.fusion import Fuser
from puregraph.compile.passes.group import Group
from puregraph.compile.passes.nestlines import (
    BOOL,
    COMPARISONS,
    KINDS,
    REDUCTIONS,
    TRUTHS,
    FusionTarget,
    NestLines,
    filled,
    firstLines,
    formulasFor,
    isExactIn,
    named,
    numberOf,
    operand,
    pointwise,
    reduction,
)
from puregraph.core.tracer import astype
from puregraph.ops.formula.expr import Term, leaf, lower, rebuild, walk
from puregraph.ops.formula.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand
from puregraph.ops.formula.optable import INTEGERS, TABLE
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.reduction.reference import firstIndex

WRAPPING = ("+", "-", "*", "//", "neg", "abs")  # these may overflow; others give the same result in wider integers
ROUNDING = ("floor", "ceil", "round", "trunc")
WORD = np.dtype(np.int32)  # the narrowest integers that GPU lanes exchange


def callNest(call: Call, target: FusionTarget) -> LoopNest | None:
    """The loop nest of a call on integers and booleans, or in float64; None if it has none."""
    values = [*call.values(), *(y for y in call.outs if y is not None)]
    if not all(named(v.dtype) in KINDS and v.role != "object" for v in values):
        return None
    kind, lines = None, None
    if call.kind.isElementwise:
        kind = computedIn(call) or ("f64" if isExactInDouble(call, target) else None)
        lines = None if kind is None else pointwise(call)
    elif call.kind.isReduction or call.function is firstIndex:
        kind = reducedIn(call)
        lines = None if kind is None else reduction(call) if call.kind.isReduction else firstLines(call)
    return None if lines is None or kind is None else nestOf(call, lines, target, kind)


def nestOf(call: Call, lines: NestLines, target: FusionTarget, kind: str) -> LoopNest | None:
    """The loop nest of a call's lines, computed in this kind."""
    group = Group(lines.space, 0)
    if not Fuser([call], target).join(group, lines, call):
        return None
    operands = operandsOf(group, call.outs)
    return None if operands is None else LoopNest(group.space, operands[0], tuple(group.lines), operands[1], kind)


def operandsOf(group: Group, stored: Iterable[Value]) -> tuple[dict[str, Operand], dict[str, Operand]] | None:
    """A group's loads and stores as operands of a nest, by name; None if a nest cannot read their layout."""
    loads = {n: operand(group.space, v, axes) for n, (v, axes) in group.loads.items()}
    stores = {group.names[v.number]: operand(group.space, v, group.axes[v.number]) for v in stored}
    return None if None in (*loads.values(), *stores.values()) else (loads, stores)  # type: ignore[return-value]


def isExactInDouble(call: Call, target: FusionTarget) -> bool:
    """True if float64 gives numpy's result; on a GPU also for comparisons of at most 32 bits, and step counts."""
    values = [*call.values(), *call.outs]
    dtypes = {named(v.dtype) for v in values}
    if not dtypes <= target.scalars or dtypes == target.floats:
        return False
    isCompared = all(v.dtype.itemsize <= 4 for v in values) and all(y.dtype == BOOL for y in call.outs)
    isFloat = "float64" in target.floats and any(v.dtype.kind == "f" for v in values)
    return isExactIn(call) or isFloat and (isCompared or all(v.size == 1 for v in values))


def computedIn(call: Call) -> str | None:
    """The integer kind whose arithmetic gives numpy's result for a pointwise call, or None."""
    values, outs = call.values(), [y.dtype for y in call.outs]
    if not values or any(v.dtype.kind not in "iub" for v in values):
        return None
    if call.function is astype:
        return KINDS[named(outs[0])] if outs[0].kind in "iu" else None
    written = formulasFor(call)
    types = None if written is None else typesIn(*written, call.arguments)
    if types is None or types[1] != outs:
        return None
    dtype = np.result_type(*(d for d in types[0].values() if d != BOOL), *(v.dtype for v in values))
    numbers = [*(t.value for t in types[0] if t.op == "number"), *map(numberOf, call.arguments)]
    isWhole = dtype.kind in "iu" and all(n is None or isIn(n, dtype) for n in numbers)
    isWide = all(d in (dtype, BOOL) for t, d in types[0].items() if t.op in WRAPPING)
    return KINDS[named(dtype)] if isWhole and isWide else None


def isIn(number: float, dtype: np.dtype) -> bool:
    """True if an integer dtype can represent a number."""
    return dtype.kind in "iu" and number % 1 == 0 and np.iinfo(dtype).min <= number <= np.iinfo(dtype).max


def typesIn(
    names: Sequence[str], formulas: Sequence[Formula], arguments: Sequence[Value | int]
) -> tuple[dict[Term, Any], list[Any]] | None:
    """The dtype that numpy computes each operation in (bool for a number), and the dtypes of the results.

    None for operations that are not exact in a single integer dtype, or that numpy refuses.
    """
    known: dict[Term, Any] = {leaf(n): standsFor(a) for n, a in zip(names, arguments)}
    numbers = {n: leaf(a) for n, a in zip(names, arguments) if type(a) is int}
    roots = [rebuild(filled(f, numbers).term, {}, lower) for f in formulas]
    dtypes: dict[Term, Any] = {}
    for t in walk(*roots):
        if t.op == "number":
            known[t], dtypes[t] = t.value, BOOL
        if not t.args:
            continue
        operands = [known[a] for a in t.args]
        try:
            with np.errstate(all="ignore"):
                known[t] = +operands[0] if t.op in ROUNDING else TABLE[t.op].numpy(*operands)
            dtypes[t] = np.result_type(*operands) if t.op in COMPARISONS else known[t].dtype
        except (TypeError, ValueError, OverflowError):
            return None
        isLogic = t.op == "+" and dtypes[t] == BOOL  # 1 + 1 is 1
        isCut = t.op == "where" and any(a.op == "number" and not isIn(a.value, dtypes[t]) for a in t.args[1:])
        if t.op not in INTEGERS or isLogic or isCut:
            return None
    return dtypes, [np.asarray(known[root]).dtype for root in roots]


def standsFor(a: Any) -> Any:
    """A stand-in for an argument: a one-element array for a Value, float64 for a float, other numbers unchanged."""
    return np.ones(1, a.dtype) if type(a) is Value else np.float64(a) if type(a) is float else a


def reducedIn(call: Call) -> str | None:
    """The integer kind that gives numpy's result for a reduction, or None.

    Sums and products are the same for signed and unsigned integers; only unsigned overflow is defined.
    """
    x, (y,) = call.arguments[0], call.outs
    if type(x) is not Value or x.dtype.kind not in "iub" or y.dtype.kind not in "iub":
        return None
    how, isWide = REDUCTIONS.get(call.function), x.dtype.itemsize >= WORD.itemsize
    if call.function is firstIndex:
        return "u64" if x.dtype == np.uint64 else "i64"
    if how in ("sum", "prod"):
        return "u64"
    isTruth = call.function in TRUTHS and x.dtype != BOOL
    return None if how is None or isTruth else KINDS[named(x.dtype if isWide else WORD)]
