"""Dim: a size that is not known yet, and the arithmetic of such sizes.

A symbolic size is a polynomial with whole coefficients over symbols, floor divisions and minima, kept in one canonical
form that prints and compares as text: equal polynomials are always equal, equal floor divisions where a constant, a
common factor or a division inside can be taken out. Numbers stay plain ints.
"""

from __future__ import annotations

import ast
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from numbers import Integral
from typing import Any, NamedTuple

from puregraph.core.base.parsing import syntaxTree
from puregraph.core.errors import Fault, ShapeError, need

Size = Any  # an int or a Dim
Terms = dict[tuple, int]  # {factors: coefficient}, each factor the name of a symbol, a Floor or a Minimum

TERMS = 200  # most terms of a size; real networks have a handful
MAX_COEFFICIENT_BITS = 4096  # most bits of a coefficient
MAX_DEGREE = 64
LENGTH = 10_000  # most characters of a size

SIZE = 'a size of at least 0, or a symbol such as "N" or "2*N + 1"'


class DataDependent(str):
    """The name of a symbol whose size depends on the data: it may be 0, which other symbols are not."""

    __slots__ = ()


class Floor(NamedTuple):
    """The factor `over // under` of a term, where it cannot be divided further."""

    over: Size
    under: Size

    def __str__(self) -> str:
        return f"{group(self.over)}//{group(self.under)}"


class Minimum(NamedTuple):
    """The factor `min(one, other)` of a term, where neither is known to be the smaller one."""

    one: Size
    other: Size

    def __str__(self) -> str:
        return f"min({self.one}, {self.other})"


def termsOf(size: Size) -> Terms:
    """A size as a polynomial: factors to their count."""
    return size.terms if isinstance(size, Dim) else {(): int(size)}


def order(factors: Iterable) -> list:
    """The sort key of factors: names first, then floor divisions and minima."""
    return [(not isinstance(factor, str), str(factor)) for factor in factors]


def degree(term: tuple[tuple, int]) -> tuple[int, list]:
    """The sort key of terms: most factors first, then alphabetically, floor divisions last."""
    return -len(term[0]), order(term[0])


def leading(size: Size) -> tuple[tuple, int]:
    """The first term as a person would write it."""
    return min(termsOf(size).items(), key=degree)


def group(size: Size) -> str:
    """Write a factor, in brackets if it needs them."""
    text = str(size)
    return text if text.isidentifier() or text.isdigit() or isinstance(size, Minimum) else f"({text})"


def write(terms: Terms) -> str:
    """A polynomial as text."""
    text = ""
    for factors, count in sorted(terms.items(), key=lambda term: (term[1] < 0, degree(term))):
        parts = [*([abs(count)] if abs(count) != 1 or not factors else []), *factors]
        sign = (" - " if count < 0 else " + ") if text else "-" * (count < 0)
        text += sign + (str(parts[0]) if len(parts) == 1 and sign != "-" else "*".join(map(group, parts)))
    return text


def build(terms: Terms) -> Size:
    """Make a size from terms: an int if only a constant is left, otherwise a Dim."""
    terms = {factors: count for factors, count in terms.items() if count}
    if not any(terms):
        return terms.get((), 0)
    large = len(terms) > TERMS or any(
        n.bit_length() > MAX_COEFFICIENT_BITS or len(f) > MAX_DEGREE for f, n in terms.items()
    )
    need(not large, f"a size of at most {TERMS} terms", f"one of {len(terms)} terms, or of very long ones")
    text = write(terms) if not large else ""
    need(len(text) <= LENGTH, f"a size of at most {LENGTH} characters", f"one of {len(text)}")
    dim = str.__new__(Dim, text)
    dim.terms = terms
    return dim


def add(a: Size, b: Size) -> Size:
    """a + b"""
    total = defaultdict(int, termsOf(a))
    for factors, count in termsOf(b).items():
        total[factors] += count
    return build(total)


def multiply(a: Size, b: Size) -> Size:
    """a * b"""
    total: Terms = defaultdict(int)
    count = len(termsOf(a)) * len(termsOf(b))
    need(count <= TERMS**2, f"a size of at most {TERMS} terms", f"one of {count} terms")
    for left, count in termsOf(a).items():
        for right, times in termsOf(b).items():
            total[tuple(sorted(left + right, key=lambda factor: order([factor])))] += count * times
    return build(total)


def without(factors: tuple, divisor: tuple) -> tuple | None:
    """Remove a divisor's factors; None if it does not divide them."""
    left = list(factors)
    for factor in divisor:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def divide(over: Size, under: Size) -> Size:
    """Return `over // under`: divisible terms leave the fraction, whose constant is then in (-under, 0]."""
    whole = not isinstance(under, Dim)
    if whole and under == 0:
        raise ZeroDivisionError(f"{over} // 0")
    if whole and not isinstance(over, Dim):
        return over // under
    if leading(under)[1] < 0:
        return divide(-over, -under)
    if whole and leading(over)[1] < 0:  # floor(-a / b) = -floor((a + b - 1) / b)
        return -divide(under - 1 - over, under)
    common = math.gcd(*termsOf(under).values(), *(n for f, n in termsOf(over).items() if f or not whole))
    over, under = (build({f: n // common for f, n in termsOf(size).items()}) for size in (over, under))
    quotient, rest = longDivision(over, under)
    if isinstance(under, Dim) and len(under.terms) > 1 and rest != 0:
        quotient, rest = 0, over
    if not isinstance(rest, Dim) and (whole or rest == 0):
        return quotient + (rest and rest // under)
    constant = termsOf(rest).get((), 0)
    inner: Any = next(iter(leading(rest)[0]), None)
    nested = whole and isinstance(inner, Floor) and not isinstance(inner.under, Dim)
    if nested and rest - constant == build({(inner,): 1}):  # (a//b + c)//d = (a + c*b)//(b*d)
        return quotient + divide(inner.over + constant * inner.under, inner.under * under)
    return quotient + build({(Floor(rest, under),): 1})


def longDivision(over: Size, under: Size) -> tuple[Size, Size]:
    """`(quotient, rest)` with over = quotient * under + rest."""
    lead, size = leading(under)
    quotient: Any = 0
    for _ in range(TERMS):
        for factors, count in sorted(termsOf(over).items(), key=degree):
            left = without(factors, lead)
            times = count // size if factors else -(-count // size)
            if left is not None and times:
                share = build({left: times})
                quotient, over = quotient + share, over - share * under
                break
        else:
            return quotient, over
    raise ShapeError(Fault(f"a quotient of at most {TERMS} terms", f"{over!s:.80} // {under!s:.80}"))


def minimum(a: Size, b: Size) -> Size:
    """Return the smaller of two sizes, or a Minimum if it depends on the symbols."""
    if most(a - b) <= 0:
        return a
    if most(b - a) <= 0:
        return b
    one, other = sorted((a, b), key=lambda size: (not isinstance(size, Dim), str(size)))
    return build({(Minimum(one, other),): 1})


def most(size: Size) -> float:
    """The largest value for symbols of at least 1, or 0 where they depend on the data; infinity without a bound."""
    total: float = 0
    for factors, count in termsOf(size).items():
        lows = [least(factor) for factor in factors]
        if lows and min(lows) < 0:
            return math.inf
        total += count * math.prod(map(greatest, factors) if count > 0 else lows)
    return total


def greatest(factor: str | Floor | Minimum) -> float:
    """The largest value of a factor, where a bound is known, else infinity."""
    return min(map(most, factor)) if isinstance(factor, Minimum) else math.inf


def least(factor: str | Floor | Minimum) -> float:
    """The smallest value of a factor, where a bound is known, else -infinity; see `most`."""
    if isinstance(factor, str):
        return 0 if isinstance(factor, DataDependent) else 1
    if isinstance(factor, Minimum):
        return min(-most(-size) for size in factor)
    low = -most(-factor.over)
    if low == -math.inf or most(-factor.under) > -1:
        return -math.inf
    return min(low, 0) if isinstance(factor.under, Dim) else low // factor.under


def dependsOnData(size: Size) -> bool:
    """True if a size contains a symbol that depends on the data; such a size may be 0."""
    parts = [factor for factors in termsOf(size) for factor in factors]
    return any(isinstance(f, DataDependent) if isinstance(f, str) else any(map(dependsOnData, f)) for f in parts)


def pair(rule: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """An operator and its reflected version; "text" + dim and "%s" % dim mean what they do for any str."""

    def method(self: Dim, other: object) -> Any:
        if isinstance(other, str) and not isinstance(other, Dim):
            raise TypeError(f"{other!r} is text; write Dim({other!r}) to calculate with it")
        return rule(self, other) if isinstance(other, (Dim, Integral)) else NotImplemented

    def reflected(self: Dim, other: object) -> Size:
        return rule(other, self) if isinstance(other, Integral) else NotImplemented

    return method, reflected


def compare(rule: Callable[[float, int], bool]) -> Any:
    """An order that holds unless it can be refuted; see `Dim`."""

    def method(self: Dim, other: Size) -> Any:
        return rule(most(self - other), 0) if isinstance(other, (Dim, Integral)) else NotImplemented

    return method


class Dim(str):
    """A symbolic size such as Dim("N"): a str that holds its canonical expression and can be calculated with.

    Formula: + - * // % with ints and Dims give a Dim, or an int where the symbols cancel: N - N is 0. `minimum` too.
    Order: `>=` and `>` hold unless refuted for all positive symbols, `<` and `<=` only when proven for all
    (so H >= 3 holds, H < 3 does not, and an upper limit is written `limit - H >= 0`).
    Raises    ShapeError if the text is not an expression, or has no symbol
    """

    __slots__ = ("terms",)
    __array_ufunc__ = None  # numpy integers leave arithmetic to Dim
    terms: Terms

    def __new__(cls, text: str) -> Dim:
        size = read(text)
        need(isinstance(size, Dim), wanted="an expression with a symbol", given=repr(text))
        return size

    def __reduce__(self) -> tuple:
        return build, (self.terms,)

    @property
    def isOfData(self) -> bool:
        """True if this is a single symbol whose size depends on the data."""
        (factors, count), *others = self.terms.items()
        return not others and count == 1 and len(factors) == 1 and isinstance(factors[0], DataDependent)

    def __neg__(self) -> Size:
        return multiply(self, -1)

    def __pos__(self) -> Dim:
        return self

    __add__, __radd__ = pair(add)
    __sub__, __rsub__ = pair(lambda a, b: add(a, -b))
    __mul__, __rmul__ = pair(multiply)
    __floordiv__, __rfloordiv__ = pair(divide)
    __mod__, __rmod__ = pair(lambda a, b: a - divide(a, b) * b)
    __lt__, __le__ = compare(operator.lt), compare(operator.le)
    __ge__, __gt__ = compare(operator.ge), compare(operator.gt)


OPERATIONS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


@lru_cache(maxsize=4096)
def parse(text: str) -> ast.expr:
    """The expression of a text."""
    if len(text) > LENGTH:
        raise ValueError(f"a size of {len(text)} characters, more than {LENGTH}")
    return syntaxTree(text.strip(), "eval").body  # type: ignore[attr-defined]


def calculate(node: ast.AST, sizes: Mapping[str, Any]) -> Size:
    """The value of an expression; nothing but arithmetic on sizes is allowed in it."""
    match node:
        case ast.Constant(value=number) if type(number) is int:
            return number
        case ast.Name(id=name):
            return sizes[name] if name in sizes else build({(name,): 1})
        case ast.UnaryOp(op=op, operand=a) if type(op) in OPERATIONS:
            return OPERATIONS[type(op)](calculate(a, sizes))
        case ast.BinOp(left=a, op=op, right=b) if type(op) in OPERATIONS:
            return OPERATIONS[type(op)](calculate(a, sizes), calculate(b, sizes))
        case ast.Call(func=ast.Name(id="min"), args=[a, b], keywords=[]):
            return minimum(calculate(a, sizes), calculate(b, sizes))
    raise ValueError(f"{type(node).__name__} is not allowed in a size")


def read(text: str, sizes: Mapping[str, Any] | None = None) -> Size:
    """A text as a size; `sizes` gives symbols their values.

    Raises    ShapeError if it is no expression of sizes
    """
    need(isinstance(text, str), wanted=SIZE, given=repr(text))
    try:
        return calculate(parse(text), sizes or {})
    except ShapeError:
        raise
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError) as error:
        hint = "sizes are written with names, whole numbers, + - * // %, min(a, b) and parentheses"
        raise ShapeError(Fault(SIZE, f"{text!r:.200}", hint)) from error
