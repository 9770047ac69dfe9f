"""Code generation for formulas: every operation of the formula language as native code.

    y = emit(code, Formula("x * sigmoid(beta * x)"), {"x": x, "beta": beta})

A value may have any number of lanes, and is f32 or f64. Results follow numpy's also at inf, nan and -0; where a result
would be denormal it may be 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Union

import numpy as np

from puregraph.ops.formula import Formula
from puregraph.ops.formula.expr import TRUTHS, Term, leaf, lower, read, rebuild, term, walk
from puregraph.ops.formula.optable import LOGICAL, TABLE
from puregraph.ops.native.llvm.instructions import IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.math import erf, explog, gammafunctions, trig
from puregraph.ops.native.math.explog import Emission

Part = Union[Formula, Term, str]  # noqa: UP007 -- Python 3.10 evaluates it
FLOATS = {"f32": np.float32, "f64": np.float64}


def isKnown(x: IRValue) -> bool:
    """True if a value is a constant other than nan."""
    return x.name[0] != "%" and "0x7FF8" not in x.name and "0xFFF8" not in x.name


def larger(code: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The larger of two; nan if one is nan."""
    x, y = code.broadcast(x, y)
    if isKnown(y):
        return code.select(y > x, y, x)
    most = code.select(x > y, x, y)
    return most if isKnown(x) else code.select(x == x, most, x)


def smaller(code: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The smaller of two; nan if one is nan."""
    x, y = code.broadcast(x, y)
    if isKnown(y):
        return code.select(y < x, y, x)
    least = code.select(x < y, x, y)
    return least if isKnown(x) else code.select(x == x, least, x)


def sign(code: IRBuilder, x: IRValue) -> IRValue:
    """-1, 0 or 1; nan for nan."""
    one = code.call("copysign", code.constant(1.0, x.type), x)
    return code.select((x > 0.0) | (x < 0.0), one, code.select(x == 0.0, 0.0, x))


def fmod(code: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The remainder of x / y with the sign of x."""
    return x % y


def modulo(code: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The remainder of x / y with the sign of y."""
    x, y = code.broadcast(x, y)
    remainder = x % y
    remainder = code.select((remainder != 0.0) & ((remainder < 0.0) ^ (y < 0.0)), remainder + y, remainder)
    return code.select(remainder == 0.0, code.call("copysign", code.constant(0.0, x.type), y), remainder)


def floorDivide(code: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The whole number below x / y, from the remainder, as numpy has it."""
    setup = "m = fmod(a, b); d = (a - m) / b - (m != 0 and (b < 0) != (m < 0)); f = floor(d);"
    text = "where(b == 0, a / b, where(d == 0, copysign(0, a / b), where(d - f > 0.5, f + 1, f)))"
    return emit(code, f"{setup} {text}", {"a": x, "b": y})


def wholeDivision(code: IRBuilder, x: IRValue, y: IRValue) -> tuple[IRValue, IRValue]:
    """floor(x / y) and x - y floor(x / y) of integers, both 0 where y is 0."""
    x, y = code.broadcast(x, y)
    if x.type.isUnsigned:
        safe = code.select(y == 0, 1, y)
        return code.select(y == 0, 0, x // safe), x % safe
    safe = code.select((y == 0) | (y == -1), 1, y)  # the least integer has no quotient by -1
    quotient, remainder = code.binary("fdiv", "sdiv", x, safe), code.binary("frem", "srem", x, safe)
    isBelow = (remainder != 0) & ((remainder < 0) ^ (y < 0))
    quotient = code.select(isBelow, quotient - 1, quotient)
    quotient = code.select(y == 0, 0, code.select(y == -1, -x, quotient))
    return quotient, code.select(isBelow, remainder + y, remainder)


def where(code: IRBuilder, condition: IRValue, x: IRValue, y: IRValue) -> IRValue:
    """x where the condition holds, elsewhere y."""
    lanes = max(condition.lanes, x.lanes, y.lanes)
    of = IRType(x.kind, lanes)
    condition = condition if condition.lanes == 1 else code.splat(condition, lanes)
    return code.select(condition, code.cast(x, of), code.cast(y, of))


def isFinite(code: IRBuilder, x: IRValue) -> IRValue:
    """True if |x| < ∞; nan is not."""
    return code.call("fabs", x) < math.inf


def called(intrinsic: str) -> Emission:
    """An operation that is one intrinsic of LLVM."""
    return lambda code, *values: code.call(intrinsic, *values)


def defined(text: str) -> Emission:
    """A function that the table defines by others."""
    return lambda code, *values: emit(code, text, dict(zip("abc", values)))


EMIT: dict[str, Emission] = {
    "+": lambda code, a, b: a + b,
    "-": lambda code, a, b: a - b,
    "*": lambda code, a, b: a * b,
    "/": lambda code, a, b: a / b,
    "//": floorDivide,
    "%": modulo,
    "fmod": fmod,
    "neg": lambda code, a: -a,
    "<": lambda code, a, b: a < b,
    "<=": lambda code, a, b: a <= b,
    ">": lambda code, a, b: a > b,
    ">=": lambda code, a, b: a >= b,
    "==": lambda code, a, b: a == b,
    "!=": lambda code, a, b: a != b,
    "and": lambda code, a, b: a & b,
    "or": lambda code, a, b: a | b,
    "not": lambda code, a: ~a,
    "where": where,
    "pow": explog.power,
    "maximum": larger,
    "minimum": smaller,
    "abs": called("fabs"),
    "sign": sign,
    "floor": called("floor"),
    "ceil": called("ceil"),
    "round": called("rint"),
    "trunc": called("trunc"),
    "isnan": lambda code, a: a != a,
    "isfinite": isFinite,
    "isinf": lambda code, a: code.call("fabs", a) == math.inf,
    "copysign": called("copysign"),
    "sqrt": called("sqrt"),
}
EMIT |= {op: vars(module)[op] for module in (explog, trig, erf, gammafunctions) for op in TABLE if op in vars(module)}

FACTORS: dict[str, Callable[..., tuple[IRValue, IRValue]]] = {  # the factors of operations that end with a product
    "*": lambda code, a, b: (a, b),
    "exp": explog.expFactors,
}
QUICK: dict[str, Emission] = {"exp below": explog.expBelow}  # the functions that `quick` substitutes


def lowered(part: Part) -> Term:
    """A formula, or its text, rewritten in operations that have an emission, as far as possible."""
    term = part.term if isinstance(part, Formula) else read(part) if isinstance(part, str) else part
    return rebuild(term, {}, lower)


def lacking(*parts: Part) -> list[str]:
    """The operations of formulas that native code has no emission for; most often none."""
    order = walk(*[lowered(part) for part in parts])
    return sorted({t.op for t in order if t.args and t.op not in EMIT})


def emit(code: IRBuilder, part: Part, values: Mapping[str, IRValue], kind: str | None = None) -> IRValue:
    """The value of a formula of named values, see `emitAll`; a comparison gives i1."""
    return emitAll(code, [part], values, kind)[0]


def emitIntegers(code: IRBuilder, part: Part, values: Mapping[str, IRValue], kind: str) -> IRValue:
    """The value of a formula in two's complement arithmetic of one integer type, as numpy's; a comparison gives i1.

    `WHOLE` has its operations.
    """
    root = lowered(part)
    done: dict[Term, IRValue] = {leaf(name): value for name, value in values.items()}
    for t in walk(root):
        if t.op == "number":
            done[t] = code.constant(int(t.value), IRType(kind))
        elif t.args:
            truths = TRUTHS.get(t.op, (False,) * len(t.args))
            args = [asTruth(done[a]) if truth else asNumber(code, done[a], kind) for a, truth in zip(t.args, truths)]
            done[t] = WHOLE[t.op](code, *args)
    return done[root] if root.op in LOGICAL else asNumber(code, done[root], kind)


def emitAll(
    code: IRBuilder, parts: Sequence[Part], values: Mapping[str, IRValue], kind: str | None = None
) -> list[IRValue]:
    """The values of several formulas; common subexpressions are computed once.

    All values are converted to a kind of floats: f64 if one is f64, else f32, unless `kind` is set. A formula gives the
    same bits wherever it is computed: the formula alone decides which products become an fma, not LLVM. So a
    rematerialized value equals the first one, and may be compared with it.
    """
    if kind is None:
        kind = "f64" if any(v.kind == "f64" for v in values.values()) else "f32"
    roots = [lowered(part) for part in parts]
    if kind == "f32":
        roots = [rebuild(root, {}, quick) for root in roots]
    order = walk(*roots)
    products = fusedIn(order, roots)
    factors: dict[Term, tuple[IRValue, IRValue]] = {}
    done: dict[Term, IRValue] = {leaf(name): value for name, value in values.items()}
    flags, code.flags = code.flags, ""
    for t in order:
        if t.op == "number":
            with np.errstate(over="ignore"):
                done[t] = code.constant(float(FLOATS[kind](t.value)), IRType(kind))
        elif t.args:
            truths = TRUTHS.get(t.op, (False,) * len(t.args))
            known = [a for a in t.args if a not in factors]
            operands = [asTruth(done[a]) if truth else asNumber(code, done[a], kind) for a, truth in zip(known, truths)]
            if t in products:
                factors[t] = FACTORS[t.op](code, *operands)
            elif len(known) < len(t.args):
                done[t] = fused(code, t, factors, operands[0])
            else:
                done[t] = (EMIT[t.op] if t.op in EMIT else QUICK[t.op])(code, *operands)
    code.flags = flags
    return [done[root] if root.op in LOGICAL else asNumber(code, done[root], kind) for root in roots]


def factorsOf(code: IRBuilder, part: Part, values: Mapping[str, IRValue], kind: str) -> list[IRValue] | None:
    """The two factors of a formula that ends with a product; None for any other."""
    root = lowered(part)
    return emitAll(code, root.args, values, kind) if root.op == "*" else None


def fusedIn(order: Sequence[Term], roots: Sequence[Term]) -> set[Term]:
    """The products that are read by one sum or difference only: both become one fma."""
    readers = Counter(a for t in order for a in t.args)
    readers.update(roots)
    products: set[Term] = set()
    for t in order:
        if t.op in ("+", "-"):
            products.update([a for a in t.args if a.op in FACTORS and readers[a] == 1][:1])
    return products


def fused(code: IRBuilder, t: Term, factors: Mapping[Term, tuple[IRValue, IRValue]], other: IRValue) -> IRValue:
    """A sum or difference of a product and another value: an fma where the CPU has one."""
    isFirst = t.args[0] in factors
    x, y = factors[t.args[0 if isFirst else 1]]
    if t.op == "-":
        x, other = (x, -other) if isFirst else (-x, other)
    return code.call("fmuladd", x, y, other)


def quick(op: str, *args: Term) -> Term:
    """The term strength-reduced where float32 allows: division by a constant as a product, `expBelow` for exp(-x^2)."""
    if op == "/" and args[1].op == "number" and 2.0**-100 < abs(args[1].value) < 2.0**100:
        return term("*", args[0], leaf(1 / args[1].value))
    if op == "exp" and args[0].op == "neg" and isSquare(args[0].args[0]):
        return term("exp below", *args)
    if op == "exp" and args[0].op == "*" and args[0].args[0].op == "number" and isSquare(args[0].args[1]):
        return term("exp below" if args[0].args[0].value < 0 else op, *args)
    return term(op, *args)


def isSquare(t: Term) -> bool:
    """True if a term is a product of a term with itself."""
    return t.op == "*" and t.args[0] is t.args[1]


def asTruth(x: IRValue) -> IRValue:
    """Values as truth values: True if not 0."""
    return x if x.kind == "i1" else x != 0


def asNumber(code: IRBuilder, x: IRValue, kind: str) -> IRValue:
    """Values converted to another kind."""
    return code.convert(x, kind)


EMIT |= {op: defined(row.numpy) for op, row in TABLE.items() if isinstance(row.numpy, str)}
WHOLE: dict[str, Emission] = {  # of `optable.INTEGERS`, in the arithmetic of integers
    **{op: EMIT[op] for op in ("+", "-", "*", "neg", "<", "<=", ">", ">=", "==", "!=", "and", "or", "not")},
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), lambda code, a: a),
    "//": lambda code, a, b: wholeDivision(code, a, b)[0],
    "%": lambda code, a, b: wholeDivision(code, a, b)[1],
    "sign": lambda code, a: code.select(a > 0, 1, code.select(a < 0, -1, a)),
    "maximum": lambda code, a, b: code.select(a > b, a, b),
    "minimum": lambda code, a, b: code.select(a < b, a, b),
    "abs": lambda code, a: code.select(a < 0, -a, a),
    "where": lambda code, c, a, b: code.select(c, a, b),
}
