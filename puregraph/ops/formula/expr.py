"""Expr: the expression tree of a Formula, and the ways to build one tree from others.

Terms are hash-consed: equal subexpressions are one object, so each is computed once and equality is identity.
A term is put together from its parts by `term` (as written), `neat` (simplified where that is exact), `loose`
(also without 0 * a and 0 + a: derivatives) or `lower` (only what numpy and C have).
"""

from __future__ import annotations

import ast
import math
import operator
import textwrap
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NoReturn
from weakref import WeakValueDictionary

import numpy as np

from puregraph.core.base.mutex import Mutex
from puregraph.core.base.parsing import syntaxTree
from puregraph.core.errors import FormulaError
from puregraph.core.opensize import OpenSize
from puregraph.ops.formula.optable import ALIASES, ALLOWED, CONSTANTS, FUNCTIONS, LOGICAL, TABLE


class Term:
    """An operation on terms, or a leaf: a name or number, its `value`. Only `term` and `leaf` make one."""

    __slots__ = ("__weakref__", "args", "op", "value")
    op: str
    args: tuple[Term, ...]
    value: Any


POOL: WeakValueDictionary[Any, Term] = WeakValueDictionary()
LOCK = Mutex()
REMEMBERED = 512  # size of each cache of formulas
Build = Callable[..., Term]


def leaf(value: str | int | float) -> Term:
    """A name or a number."""
    return _pooled("name", (), str(value)) if isinstance(value, str) else _pooled("number", (), value)


def term(op: str, *args: Term) -> Term:
    """The term as written; only the sign of a number belongs to the number."""
    if op == "neg" and args[0].op == "number":
        return leaf(-args[0].value)
    return _pooled(op, args, None)


def _pooled(op: str, args: tuple[Term, ...], value: object) -> Term:
    isOpen = type(value) is OpenSize
    key = (op, args, value if isOpen else repr(value))  # repr: 2, 2.0 and -0.0 are different texts
    # as `POOL.get`, but faster: formulas consist of very many terms
    known = POOL.data.get(key)  # type: ignore[attr-defined]
    pooled = known() if known is not None else None
    if pooled is not None:
        return pooled
    with LOCK.lock:
        pooled = POOL.get(key)
        if pooled is None:
            pooled = Term()
            pooled.op, pooled.args, pooled.value = op, args, value
            pooled = POOL.setdefault(key, pooled)  # a signal handler may have made it meanwhile
        return pooled


ZERO, ONE = leaf(0), leaf(1)


def walk(*roots: Term) -> list[Term]:
    """Every term once, after its arguments, in reading order."""
    order: list[Term] = []
    seen: set[Term] = set()
    try:
        for root in roots:
            if root not in seen:
                _visit(root, seen, order)
    except RecursionError:
        return _walkDeep(roots)
    return order


def _visit(root: Term, seen: set[Term], order: list[Term]) -> None:
    """Append a term, and before it its arguments, and theirs."""
    for a in root.args:
        if a not in seen:
            _visit(a, seen, order)
    seen.add(root)
    order.append(root)


def _walkDeep(roots: Sequence[Term]) -> list[Term]:
    """`walk` without recursion, for terms as deep as anything; slower."""
    order, seen, stack = [], set(), list(reversed(roots))
    while stack:
        missing = [a for a in stack[-1].args if a not in seen]
        if missing:
            stack += reversed(missing)
            continue
        t = stack.pop()
        if t not in seen:
            seen.add(t)
            order.append(t)
    return order


def rebuild(root: Term, known: dict[Term, Term], build: Build) -> Term:
    """The term with each `known` part replaced, and every operation above it put together by `build`."""
    done = dict(known)
    for t in walk(root):
        if t not in done:
            done[t] = build(t.op, *[done[a] for a in t.args]) if t.args else t
    return done[root]


# ---- reading -----------------------------------------------------------------------------------------------

SIGNS: dict[type, str] = {ast.USub: "neg", ast.Not: "not", ast.And: "and", ast.Or: "or"}
SIGNS |= {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "pow"}
SIGNS |= {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


@lru_cache(maxsize=REMEMBERED)
def read(text: str) -> Term:
    """The term that a text describes. The text is parsed, never executed."""
    try:
        return _Reader(text).visit(syntaxTree(textwrap.dedent(text).strip()))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, FormulaError):
            raise
        raise FormulaError(
            f"cannot read the formula {shorten(text)}: {error or type(error).__name__}; {ALLOWED}"
        ) from None


def shorten(text: str) -> str:
    """A text in quotes, short enough for a message."""
    return repr(text if len(text) <= 200 else text[:200] + "...")


class _Reader(ast.NodeVisitor):
    def __init__(self, text: str):
        self.text = text
        self.bound: dict[str, Term] = {}

    def refuse(self, what: str) -> NoReturn:
        raise FormulaError(f"cannot read the formula {shorten(self.text)}: {what}; {ALLOWED}")

    def generic_visit(self, node: ast.AST) -> NoReturn:
        self.refuse(f"{type(node).__name__} is not allowed")

    def sign(self, node: ast.AST) -> str:
        return SIGNS.get(type(node)) or self.generic_visit(node)

    def visit_Module(self, node: ast.Module) -> Term:
        if not node.body or not isinstance(node.body[-1], ast.Expr):
            self.refuse("there is no result at its end")
        for statement in node.body[:-1]:
            if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
                self.refuse("only `name = formula` may come before the result")
            self.bound[self.name(statement.targets[0])] = self.visit(statement.value)
        return self.visit(node.body[-1].value)

    def name(self, node: ast.AST) -> str:
        if not isinstance(node, ast.Name):
            self.generic_visit(node)
        if node.id in TABLE or node.id in CONSTANTS or not node.id.isascii():
            self.refuse(f"{node.id} cannot be the name of a variable")
        return node.id

    def visit_Name(self, node: ast.Name) -> Term:
        if node.id in CONSTANTS:
            return leaf(CONSTANTS[node.id])
        name = self.name(node)
        return self.bound.get(name) or leaf(name)

    def visit_Constant(self, node: ast.Constant) -> Term:
        value = node.value
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            self.refuse(f"{value!r} is not a number")
        if isinstance(value, int) and value > 2**1000:
            self.refuse("an integer is too large")
        return leaf(value)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Term:
        operand = self.visit(node.operand)
        return operand if isinstance(node.op, ast.UAdd) else term(self.sign(node.op), operand)

    def visit_BinOp(self, node: ast.BinOp) -> Term:
        return term(self.sign(node.op), self.visit(node.left), self.visit(node.right))

    def visit_BoolOp(self, node: ast.BoolOp) -> Term:
        return self.chain(self.sign(node.op), [self.visit(value) for value in node.values])

    def visit_Compare(self, node: ast.Compare) -> Term:
        sides = [self.visit(side) for side in (node.left, *node.comparators)]
        return self.chain("and", [term(self.sign(op), a, b) for op, a, b in zip(node.ops, sides, sides[1:])])

    def chain(self, op: str, parts: list[Term]) -> Term:
        whole = parts[0]
        for part in parts[1:]:
            whole = term(op, whole, part)
        return whole

    def visit_IfExp(self, node: ast.IfExp) -> Term:
        return term("where", self.visit(node.test), self.visit(node.body), self.visit(node.orelse))

    def visit_Call(self, node: ast.Call) -> Term:
        name = node.func.id if isinstance(node.func, ast.Name) else "this"
        name = ALIASES.get(name, name)
        if name not in FUNCTIONS:
            self.refuse(f"{name} is not one of the functions")
        wanted, count = len(TABLE[name].pulls), len(node.args) + len(node.keywords)
        if wanted != count or node.keywords:
            self.refuse(f"{name} wants {wanted} argument{'s' * (wanted > 1)}, got {count}")
        return term(name, *[self.visit(argument) for argument in node.args])


# ---- building ----------------------------------------------------------------------------------------------

CONSTANT: dict[str, Callable[[Any, Any], Any]] = {"<": operator.lt, "<=": operator.le, "==": operator.eq}
CONSTANT |= {">": operator.gt, ">=": operator.ge, "!=": operator.ne, "pow": math.pow}
CONSTANT |= {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def neat(op: str, *args: Term) -> Term:
    """The term, simplified where no result changes; constants are evaluated in float64."""
    if op in CONSTANT and args[0].op == args[1].op == "number":
        return _constant(op, *args)
    match op, args:
        case "neg", (Term(op="neg", args=(a,)),):
            return a
        case "not", (Term(op="not", args=(Term() as a,)),) if a.op in LOGICAL:
            return a
        case "+", (a, Term(op="neg", args=(b,))):
            return neat("-", a, b)
        case "+", (Term(op="neg", args=(a,)), b):
            return neat("-", b, a)
        case "-", (a, Term(op="neg", args=(b,))):
            return neat("+", a, b)
        case ("-", (a, Term(op="number", value=0))) | ("*" | "/" | "pow", (a, Term(op="number", value=1))):
            return a
        case ("*", (a, Term(op="number", value=-1))) | ("*", (Term(op="number", value=-1), a)):
            return neat("neg", a)
        case "*", (Term(op="number", value=1), a):
            return a
        case "pow", (_, Term(op="number", value=0)):
            return ONE
        case "and" | "or", (Term(op="number") as number, other) | (other, Term(op="number") as number):
            if bool(number.value) == (op == "or"):
                return ONE if number.value else ZERO
            if other.op in LOGICAL:
                return other
        case "and" | "or", (a, b) if a is b and a.op in LOGICAL:
            return a
        case "where", (Term(op="number", value=number), a, b):
            return a if number else b
        case "where", (_, a, b) if a is b:
            return a
        case "where", (Term(op="not", args=(c,)), a, b):
            return neat("where", c, b, a)
        case "where", (c, Term(op="where", args=(d, a, _)), b) if c is d:
            return neat("where", c, a, b)
        case "where", (c, a, Term(op="where", args=(d, _, b))) if c is d:
            return neat("where", c, a, b)
    return term(op, *args)


def _constant(op: str, a: Term, b: Term) -> Term:
    try:
        value = CONSTANT[op](a.value, b.value)
        if math.isfinite(value):
            return leaf(int(value) if isinstance(value, bool) else value)
    except (OverflowError, ZeroDivisionError, ValueError):
        pass  # evaluated at run time, where the result is inf or nan
    return term(op, a, b)


def loose(op: str, *args: Term) -> Term:
    """The term, simplified as a derivative may be: its 0 * a is 0, whatever a is; numbers and signs go to the front."""
    match op, args:
        case "*" | "/", (Term(op="number", value=0), _):
            return ZERO
        case "*", (_, Term(op="number", value=0)):
            return ZERO
        case ("+", (a, Term(op="number", value=0))) | ("+", (Term(op="number", value=0), a)):
            return a
        case "-", (Term(op="number", value=0), a):
            return loose("neg", a)
        case "*" | "/", (a, b) if _isGuarded(a):
            return _outside(a, lambda a: loose(op, a, b))  # the guard then encloses the entire product
        case "*", (a, b) if _isGuarded(b):
            return _outside(b, lambda b: loose(op, a, b))
        case "+" | "-", (a, b) if _alike(a, b):
            return loose("*", neat(op, _times(a)[0], _times(b)[0]), _times(a)[1])
        case "+" | "-", (Term(op="+" | "-" as inner, args=(a, b)), c) if _alike(b, c):
            return loose("+", a, loose(op, b if inner == "+" else loose("neg", b), c))
        case "+", (a, Term(op="+" | "-" as inner, args=(b, c))) if _alike(a, b):
            return loose(inner, loose("+", a, b), c)
        case "-", (Term(op="neg", args=(a,)), b):
            return loose("neg", loose("+", a, b))
        case "+" | "-", (a, Term(op="*", args=(Term(op="number", value=n), b))) if n < 0:
            return loose("-" if op == "+" else "+", a, neat("*", leaf(-n), b))
        case "+", (Term(op="*", args=(Term(op="number", value=n), a)), b) if n < 0:
            return loose("-", b, neat("*", leaf(-n), a))
        case "neg", (Term(op="-", args=(a, b)),):
            return term("-", b, a)
        case "neg", (Term(op="*", args=(Term(op="number") as number, a)),):
            return neat("*", leaf(-number.value), a)
        case "*" | "/", (Term(op="number") as number, Term(op="neg", args=(a,))):
            return loose(op, leaf(-number.value), a)
        case ("*" | "/", (Term(op="neg", args=(a,)), b)) | ("*" | "/", (a, Term(op="neg", args=(b,)))):
            return loose("neg", loose(op, a, b))
        case "/", (Term(op="*", args=(Term(op="number") as number, a)), b):
            return loose("*", number, loose("/", a, b))
        case "*", (a, Term(op="number") as number) if a.op != "number":
            return loose("*", number, a)
        case "*", (Term(op="number") as number, Term(op="*", args=(Term(op="number") as other, a))):
            both = neat("*", number, other)
            if both.op == "number" and 1e-30 < abs(both.value) < 1e30:  # within the range of float32
                return loose("*", both, a)
        case "*", (a, Term(op="*", args=(Term(op="number") as number, b))) | (
            Term(op="*", args=(Term(op="number") as number, a)),
            b,
        ) if a.op != "number":
            return loose("*", number, loose("*", a, b))
    return neat(op, *args)


def _isGuarded(t: Term) -> bool:
    """True if a term is where(p, a, 0) or where(p, 0, a)."""
    return t.op == "where" and ZERO in t.args[1:]


def _outside(t: Term, build: Callable[[Term], Term]) -> Term:
    """Build from the guarded value and put the same guards around the result."""
    guards = []
    while _isGuarded(t):
        p, a, b = t.args
        guards.append((p, b is ZERO))
        t = a if b is ZERO else b
    value = build(t)
    for p, first in reversed(guards):
        value = neat("where", p, value, ZERO) if first else neat("where", p, ZERO, value)
    return value


def _times(t: Term) -> tuple[Term, Term]:
    """The numeric factor of a term, 1 or -1 without one, and the other factor."""
    if t.op == "neg":
        return leaf(-1), t.args[0]
    return (t.args[0], t.args[1]) if t.op == "*" and t.args[0].op == "number" else (ONE, t)


def _alike(a: Term, b: Term) -> bool:
    """True if two terms differ only by a numeric factor, or in the order of two factors."""
    a, b = _times(a)[1], _times(b)[1]
    return a is b or (a.op == b.op == "*" and a.args == b.args[::-1])


TRUTHS = {
    "and": (True, True),
    "or": (True, True),
    "not": (True,),
    "where": (True, False, False),
}  # which arguments are truth values; of other operations none


def lower(op: str, *args: Term) -> Term:
    """The term in what numpy and C both have: definitions opened, powers multiplied out, constants evaluated."""
    meaning = TABLE[op].numpy
    if isinstance(meaning, str):
        return rebuild(read(meaning), dict(zip(map(leaf, "abc"), args)), lower)
    truths = TRUTHS.get(op, (False,) * len(args))
    args = tuple(a if truth else number(a) for a, truth in zip(args, truths))
    if op == "where" and args[0].op == "number":
        return args[1] if args[0].value else args[2]
    if all(a.op == "number" for a in args):
        with np.errstate(all="ignore"):
            return leaf(float(meaning(*[np.float64(a.value) for a in args])))
    if op == "pow" and args[1].op == "number":
        return _power(args[0], args[1].value) or term(op, *args)
    return term(op, *args)


def number(t: Term) -> Term:
    """The term as a number: 1 for true, 0 for false."""
    return term("where", t, ONE, ZERO) if t.op in LOGICAL else t


def _power(a: Term, n: float) -> Term | None:
    if n < 0:
        below = _power(a, -n)
        return below and term("/", ONE, below)
    if n == 0.5:
        return term("sqrt", a)
    if not n <= 8 or n != int(n):
        return None
    if n < 2:
        return a if n else ONE
    half = _power(a, n // 2)
    even = half and term("*", half, half)
    return term("*", even, a) if even and n % 2 else even
