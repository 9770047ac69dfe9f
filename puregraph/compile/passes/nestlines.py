"""Nest lines: write a call as formulas and reductions over an index space."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.compile.passes.group import Axes
from puregraph.core.opensize import OpenSize
from puregraph.core.tracer import astype
from puregraph.ops.formula.expr import REMEMBERED, Term, leaf, lower, rebuild, term, walk
from puregraph.ops.formula.formula import Formula, formulaOf, formulasOf
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.formula.loopnest import INTEGERS, Operand, Reduce
from puregraph.ops.formula.optable import BOOLEANS, LOGICAL, TABLE
from puregraph.ops.gather.reference import putClass, takeClass
from puregraph.ops.ir.value import Call, Value, fill
from puregraph.ops.reduction.reference import firstIndex

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction

MAX_EXACT = 1 << 24  # integers below this are exact as floats
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
UFUNCS = {row.numpy: name for name, row in TABLE.items() if isinstance(row.numpy, np.ufunc)}
BITWISE = {np.bitwise_and: "and", np.bitwise_or: "or", np.invert: "not"}  # on booleans these are logic
UFUNCS |= {np.square: "square", np.reciprocal: "reciprocal", np.abs: "abs", np.true_divide: "/", **BITWISE}
REDUCTIONS = {np.sum: "sum", np.mean: "mean", np.max: "max", np.min: "min", np.add.reduce: "sum"}
REDUCTIONS |= {np.prod: "prod", np.any: "max", np.all: "min"}
REDUCTIONS |= {np.maximum.reduce: "max", np.minimum.reduce: "min", np.amax: "max", np.amin: "min"}
TRUTHS = (np.any, np.all)
WHOLE = (np.add, np.subtract, np.minimum, np.maximum)  # give whole numbers for whole numbers
FLOAT, BOOL = np.dtype(np.float32), np.dtype(bool)
FLOATS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
INTS = {dtype.name: kind for kind, dtype in INTEGERS.items()}
KINDS = {**FLOATS, **INTS, "bool": "bool"}  # the kind of an operand, by dtype name


@cache
def named(dtype: np.dtype) -> str:
    """The name of a dtype (cached: numpy builds the text on each access)."""
    return dtype.name


class FusionTarget(NamedTuple):
    """The dtype names that groups of a backend compute with (`floats`), read (`reads`), and read as `scalars`; True if
    they may store floats as bytes."""

    floats: frozenset[str]
    reads: frozenset[str]
    scalars: frozenset[str]
    storesBytes: bool = False

    def isRead(self, x: Value) -> bool:
        """True if groups can read this value's elements."""
        return named(x.dtype) in (self.scalars if x.size == 1 else self.reads) and x.role != "object"

    def isMade(self, y: Value, isReduced: bool) -> bool:
        """True if groups can compute this value: floats and booleans, and by reductions any dtype that they read."""
        kind = named(y.dtype)
        return y.size > 0 and (kind in self.reads if isReduced else kind in self.floats or kind == "bool")

    def canReduce(self, function: ArrayFunction, x: Value, y: Value) -> bool:
        """True if groups can reduce these dtypes: floats, or booleans in any, all and counts."""
        if x.dtype == BOOL:
            isCount = function is np.sum and y.dtype == np.int64 and x.size < MAX_EXACT
            return function in TRUTHS if y.dtype == BOOL else isCount
        return named(x.dtype) in self.floats and named(y.dtype) in self.floats and function not in TRUTHS

    def canFind(self, x: Value, value: object, axis: int) -> bool:
        """True if x has a float dtype and its indices along an axis are exact as floats."""
        return named(x.dtype) in self.floats and x.shape[axis] < MAX_EXACT

    def lines(self, call: Call) -> NestLines | None:
        """The lines of a call; None if it is neither pointwise nor a reduction, or has an unsupported dtype."""
        if call.kind.isElementwise or call.kind.isFill:
            nest = pointwise(call) if isExactIn(call) else None
        elif call.kind.isReduction:
            nest = reduction(call)
            isReduced = nest is not None and self.canReduce(call.function, call.arguments[0], call.outs[0])
            nest = nest if isReduced else None
        elif call.function is firstIndex:
            nest = firstLines(call) if self.canFind(*call.arguments) else None
        else:
            nest = byClass(call) if call.function is takeClass or call.function is putClass else None
        if nest is None:
            return None
        values, results = [v for v, _ in nest.operands.values()], [y for y, _, _ in nest.results]
        reduces = call.kind.isReduction or call.function is firstIndex
        isByte = self.storesBytes and isWithinByte(call)
        if not (all(map(self.isRead, values)) and (isByte or all(self.isMade(y, reduces) for y in results))):
            return None
        return nest if values or named(results[0].dtype) in self.floats else None


NATIVE = frozenset(("float32", "float64", "bool", *INTS))
CPU = FusionTarget(frozenset(("float32", "float64")), NATIVE, NATIVE, storesBytes=True)
GPU = FusionTarget(frozenset(FLOATS), frozenset(KINDS), frozenset(KINDS))


class NestLines(NamedTuple):
    """A call as lines of a nest over its index space.

    `operands` has the Values that it reads, by name in the lines; each comes with the axes of the space for its axes.
    `lines` are the intermediate lines. `results` are (Value, formula or Reduce, axes). With a `divisor` the reduction
    is a mean: its sum is divided at the end.
    """

    space: tuple[int, ...]
    operands: dict[str, tuple[Value, Axes]]
    lines: list[tuple[str, Formula]]
    results: list[tuple[Value, Any, Axes]]
    divisor: int = 0

    @property
    def isReduced(self) -> bool:
        """True if a result is a reduction."""
        return any(isinstance(x, Reduce) for _, x, _ in self.results)

    @property
    def arithmetic(self) -> str:
        """The dtype to compute in: float64 if a result is, or an operand of more than one element."""
        values = [*(y for y, _, _ in self.results), *(x for x, _ in self.operands.values() if x.size > 1)]
        return "f64" if any(v.dtype == np.float64 for v in values) else "f32"


def aligned(value: Value, rank: int) -> Axes:
    """The axes of the space for a broadcast operand's axes."""
    first = rank - len(value.shape)
    return tuple([None if n == 1 else first + i for i, n in enumerate(value.shape)])


def pointwise(call: Call) -> NestLines | None:
    """The lines of a pointwise call; None if its results differ in shape."""
    written = formulas(call)
    if written is None or len({y.shape for y in call.outs}) > 1:
        return None
    space, rank = call.outs[0].shape, len(call.outs[0].shape)
    operands = {n: (x, aligned(x, rank)) for n, x in written[0].items()}
    return NestLines(space, operands, [], [(y, f, aligned(y, rank)) for y, f in zip(call.outs, written[1])])


def isExactIn(call: Call) -> bool:
    """True if float arithmetic gives numpy's result.

    That is so if numpy computes in the float dtype of the result, or if integers are only converted, or compared
    with small constants.
    """
    kinds = [x.dtype for x in call.values()]
    isFormula = isinstance(call.function, Interpreter)
    isBoolean = isFormula and bool(kinds) and all(d.kind == "b" for d in kinds)
    areWhole = any(d.kind in "iu" for d in (*kinds, *(y.dtype for y in call.outs)))
    if not (isBoolean or areWhole) or call.function is astype or call.function is fill:
        return True
    written = formulas(call)
    if written is None:
        return False
    if isBoolean:  # in numpy, a sum of two booleans is a boolean
        return all(t.op in (*LOGICAL, "where") for f in written[1] for t in walk(f.term) if t.args)
    integers = {name for name, x in written[0].items() if x.dtype.kind in "iu"}
    isWhole = all(d.kind in "iub" for d in kinds)
    if all(isThreshold(f, integers) and not (isWhole and isComputed(f)) for f in written[1]):
        return True
    if isFormula or not all(isinstance(d, np.dtype) for d in kinds):
        return any(d.kind not in "iub" for d in kinds)
    return call.outs[0].dtype == np.float64 or np.result_type(*kinds) in [d for d in kinds if d.kind == "f"]


def isWithinByte(call: Call) -> bool:
    """True if a call stores floats as bytes, and they are known to be whole and in range, so that nothing is lost."""
    (y,), x = call.outs[:1], call.arguments[0] if call.arguments else None
    if call.function is not astype or y.dtype.kind not in "iu" or y.dtype.itemsize > 1 or type(x) is not Value:
        return False
    ends, least, most = np.iinfo(y.dtype), x.call, None
    if least is not None and least.function is np.minimum and x.dtype.kind == "f":
        inner, most = least.arguments[0], numberOf(least.arguments[1])
        low = numberOf(inner.call.arguments[1]) if isCallOf(inner, np.maximum) else None
        if most is not None and low is not None and ends.min <= low <= most <= ends.max:
            return isWhole(x)
    return False


def isCallOf(value: object, function: Any) -> bool:
    """True if a Value is the result of a function."""
    return type(value) is Value and value.call is not None and value.call.function is function


def isWhole(value: Any) -> bool:
    """True if all elements of floats are known to be whole numbers."""
    number, made = numberOf(value), value.call if type(value) is Value else None
    if number is not None or made is None:
        return number is not None and number % 1 == 0
    if made.function is astype:
        return made.arguments[0].dtype.kind in "iub"
    return made.function is np.rint or made.function in WHOLE and all(map(isWhole, made.arguments))


def isThreshold(formula: Formula, integers: Set[str]) -> bool:
    """True if integers are only compared with constants that are exact as floats: rounding keeps their order."""
    leaves = {leaf(name) for name in integers}
    for t in walk(formula.term):
        if leaves.intersection(t.args):
            others = [a for a in t.args if a not in leaves]
            isNumber = len(others) == 1 and others[0].op == "number"
            if t.op not in COMPARISONS or not isNumber or abs(others[0].value) >= MAX_EXACT:
                return False
    return formula.term not in leaves


def isComputed(formula: Formula) -> bool:
    """True if a formula does more than logic and selection, or has a constant that is too large for floats."""
    order = walk(formula.term)
    isLarge = any(t.op == "number" and type(t.value) is int and abs(t.value) >= MAX_EXACT for t in order)
    return isLarge or any(t.args and t.op not in (*LOGICAL, "where") for t in order)


def byClass(call: Call) -> NestLines | None:
    """The lines of takeClass or putClass: one element of each row, by its class."""
    x, labels = call.arguments[:2]
    (y,) = call.outs
    line = Formula("where(axis1 == k, x, 0)")
    if call.function is takeClass:
        rowAxes = tuple([a for a in range(x.ndim) if a != 1])
        operands = {"x": (x, aligned(x, x.ndim)), "k": (labels, rowAxes)}
        return NestLines(x.shape, operands, [("p", line)], [(y, Reduce("sum", "p", frozenset([1])), rowAxes)])
    rowAxes = tuple([a for a in range(y.ndim) if a != 1])
    return NestLines(y.shape, {"x": (x, rowAxes), "k": (labels, rowAxes)}, [], [(y, line, aligned(y, y.ndim))])


def firstLines(call: Call) -> NestLines:
    """The lines of firstIndex: the first index whose element equals the value, or is nan like the value."""
    x, value, axis = call.arguments
    (y,) = call.outs
    keptAxes = tuple([a for a in range(x.ndim) if a != axis])
    most = MAX_EXACT if x.dtype.kind == "f" else 1 << 62  # more than any index
    line = Formula(f"where(x == v or x != x, axis{axis}, {most})")
    operands = {"x": (x, aligned(x, x.ndim)), "v": (value, aligned(value, x.ndim))}
    return NestLines(x.shape, operands, [("p", line)], [(y, Reduce("min", "p", frozenset([axis])), keptAxes)])


def formulas(call: Call) -> tuple[dict[str, Value], list[Formula]] | None:
    """The Values that a pointwise call reads, by name, and the formulas of its results; None without formulas."""
    written = formulasFor(call)
    if written is None:
        return None
    names, lines = written
    values, numbers = {}, {}
    for name, a in zip(names, call.arguments):
        number = numberOf(a)
        if number is not None:
            numbers[name] = leaf(number)
        elif type(a) is Value:
            values[name] = a
        else:
            return None
    if all(isBoolean(a) for a in call.arguments):
        lines = [logical(f) for f in lines]
    return values, [filled(f, numbers) for f in lines] if numbers else lines


def isBoolean(a: object) -> bool:
    """True if an argument is boolean."""
    return a.dtype == BOOL if type(a) is Value else isinstance(a, (bool, np.bool_))


@lru_cache(maxsize=REMEMBERED)
def logical(formula: Formula) -> Formula:
    """A formula of booleans with logic for arithmetic, like numpy; unchanged if integers occur."""
    root = rebuild(formula.term, {}, lower)
    ops = {t.op for t in walk(root)}
    if not ops & {*BOOLEANS, "abs"} or ops - {*BOOLEANS, *LOGICAL, "abs", "where", "name"}:
        return formula

    def build(op: str, *args: Term) -> Term:
        return args[0] if op == "abs" else term(BOOLEANS.get(op, op), *args)

    return formulaOf(rebuild(root, {}, build))


def formulasFor(call: Call) -> tuple[Sequence[str], list[Formula]] | None:
    """The formulas of a pointwise call's results, and the names of its arguments in them."""
    function, options = call.function, call.options
    if isinstance(function, Interpreter):
        return function.names, formulasOf(function)
    if options.keys() - {"copy"} or len(call.outs) != 1:
        return None
    if function is fill:
        return "a", [Formula("a")]
    if function is astype:
        (y,), x = call.outs, call.arguments[0]
        isTruth = type(x) is Value and y.dtype == BOOL != x.dtype
        return ("a", [Formula("a != 0" if isTruth else "a")]) if type(x) is Value else None
    op = "where" if function is np.where else UFUNCS.get(function)
    if op is None or len(call.arguments) != len(TABLE[op].pulls):
        return None
    if function in BITWISE and not all(map(isBoolean, call.arguments)):
        return None
    return operation(op)


@cache
def operation(op: str) -> tuple[str, list[Formula]]:
    """The names of the arguments of an operator from the table, and its formula."""
    names = "abc"[: len(TABLE[op].pulls)]
    return names, [formulaOf(term(op, *map(leaf, names)))]


def numberOf(a: object) -> Any:
    """The constant number of an argument; None if it may vary or is nan. Large integers stay integers."""
    if type(a) is Value:
        isKnown = a.role == "constant" and a.shape == () and a.dtype.kind in "fiub"
        a = a.source.item() if isKnown else None
    if type(a) is OpenSize:
        return a
    if isinstance(a, (bool, int, float, np.integer, np.floating, np.bool_)) and not math.isnan(a):
        return float(a) if float(a) == a else int(a)
    return None


def reduction(call: Call) -> NestLines | None:
    """The lines of a reduction; a mean is a sum with the number of elements as divisor."""
    how = REDUCTIONS.get(call.function)
    if how is None or call.options.keys() - {"axis", "keepdims"} or len(call.arguments) > 2:
        return None
    x, y = call.arguments[0], call.outs[0]
    if type(x) is not Value or 0 in x.shape or not x.shape:
        return None
    axis = call.arguments[1] if len(call.arguments) > 1 else call.options.get("axis")
    chosen = range(x.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = frozenset(a % x.ndim for a in chosen)
    keptAxes = tuple([None if a in axes else a for a in range(x.ndim)])
    if y.ndim != x.ndim:
        keptAxes = tuple([a for a in keptAxes if a is not None])
    count = math.prod(x.shape[a] for a in axes) if how == "mean" else 0
    name, lines = "x", []
    if x.dtype == BOOL:
        name, lines = "p", [("p", Formula("where(x, 1.0, 0.0)"))]
    reduce = Reduce("sum" if count else how, name, axes)
    return NestLines(x.shape, {"x": (x, aligned(x, x.ndim))}, lines, [(y, reduce, keptAxes)], count)


def operand(space: tuple[int, ...], value: Value, axes: Axes) -> Operand | None:
    """A Value as an operand of a nest; None if a stride is not a multiple of the element size."""
    size, steps = value.dtype.itemsize, [0] * len(space)
    for a, s in zip(axes, value.strides):
        if a is not None:
            if s % size:
                return None
            steps[a] += s // size
    return Operand(KINDS[named(value.dtype)], value, tuple(steps))


def filled(line: Formula, parts: Mapping[str, Term]) -> Formula:
    """The formula with some names replaced by terms."""
    return formulaOf(rebuild(line.term, {leaf(n): t for n, t in parts.items()}, term))
