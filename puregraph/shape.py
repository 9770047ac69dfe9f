"""Shapes whose sizes may be symbols: ("N", 16, "H", "W"), and the small algebra that shape rules use.

A symbolic size is a polynomial with whole coefficients over symbols and floor divisions, kept in one
canonical form that prints and compares as text: equal polynomials are always equal, equal floor divisions
where a constant, a common factor or a division inside can be taken out. Numbers stay plain ints.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from numbers import Integral
from typing import Any, NamedTuple

from puregraph.errors import Fault, ShapeError, need, show

Size = Any  # an int or a Dim
Shape = tuple[Size, ...]
Terms = dict[tuple, int]  # {factors: coefficient}, each factor the name of a symbol or a Floor

SIZE = 'a size of at least 0, or a symbol such as "N" or "2*N + 1"'
SHAPE = 'a shape, a tuple of sizes or symbols such as (32, 256) or ("N", 256)'


class Floor(NamedTuple):
    """The factor `over // under` of a term, where it cannot be divided further."""

    over: Size
    under: Size

    def __str__(self) -> str:
        return f"{group(self.over)}//{group(self.under)}"


def termsOf(size: Size) -> Terms:
    return size.terms if isinstance(size, Dim) else {(): int(size)}


def order(factors: Iterable) -> list:
    return [(isinstance(factor, Floor), str(factor)) for factor in factors]


def degree(term: tuple[tuple, int]) -> tuple[int, list]:
    """What terms are sorted by: those with most factors first, then alphabetically, floor divisions last."""
    return -len(term[0]), order(term[0])


def leading(size: Size) -> tuple[tuple, int]:
    return min(termsOf(size).items(), key=degree)


def group(size: Size) -> str:
    text = str(size)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def write(terms: Terms) -> str:
    text = ""
    for factors, count in sorted(terms.items(), key=lambda term: (term[1] < 0, degree(term))):
        parts = [*([abs(count)] if abs(count) != 1 or not factors else []), *factors]
        sign = (" - " if count < 0 else " + ") if text else "-" * (count < 0)
        text += sign + (str(parts[0]) if len(parts) == 1 and sign != "-" else "*".join(map(group, parts)))
    return text


def build(terms: Terms) -> Size:
    """An int where nothing but a constant is left, else a Dim."""
    terms = {factors: count for factors, count in terms.items() if count}
    if not any(terms):
        return terms.get((), 0)
    dim = str.__new__(Dim, write(terms))
    dim.terms = terms
    return dim


def add(a: Size, b: Size) -> Size:
    total = defaultdict(int, termsOf(a))
    for factors, count in termsOf(b).items():
        total[factors] += count
    return build(total)


def multiply(a: Size, b: Size) -> Size:
    total: Terms = defaultdict(int)
    for left, count in termsOf(a).items():
        for right, times in termsOf(b).items():
            total[tuple(sorted(left + right, key=lambda factor: order([factor])))] += count * times
    return build(total)


def without(factors: tuple, divisor: tuple) -> tuple | None:
    left = list(factors)
    for factor in divisor:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def divide(over: Size, under: Size) -> Size:
    """`over // under`: what divides leaves the fraction, and a constant that stays is in (-under, 0]."""
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
    while True:
        for factors, count in sorted(termsOf(over).items(), key=degree):
            left = without(factors, lead)
            times = count // size if factors else -(-count // size)
            if left is not None and times:
                share = build({left: times})
                quotient, over = quotient + share, over - share * under
                break
        else:
            return quotient, over


def most(size: Size) -> float:
    """The largest value for symbols of at least 1, where a bound is known, else infinity."""
    total: float = 0
    for factors, count in termsOf(size).items():
        lows = [least(factor) for factor in factors]
        if factors and (count > 0 or min(lows) < 0):
            return math.inf
        total += count * math.prod(lows)
    return total


def least(factor: str | Floor) -> float:
    if not isinstance(factor, Floor):
        return 1
    low = -most(-factor.over)
    if low == -math.inf or most(-factor.under) > -1:
        return -math.inf
    return min(low, 0) if isinstance(factor.under, Dim) else low // factor.under


def pair(rule: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """An operator and its reflected version; "text" + dim and "%s" % dim mean what they do for any str."""

    def method(self: Dim, other: Any) -> Any:
        if isinstance(other, str) and not isinstance(other, Dim):
            raise TypeError(f"{other!r} is text; write Dim({other!r}) to calculate with it")
        return rule(self, other) if isinstance(other, (Dim, Integral)) else NotImplemented

    def reflected(self: Dim, other: Any) -> Any:
        return rule(other, self) if isinstance(other, Integral) else NotImplemented

    return method, reflected


def compare(rule: Callable[[float, int], bool]) -> Any:
    def method(self: Dim, other: Any) -> Any:
        return rule(most(self - other), 0) if isinstance(other, (Dim, Integral)) else NotImplemented

    return method


class Dim(str):
    """A symbolic size such as Dim("N"): a str that holds its canonical expression and can be calculated with.

    Formula: + - * // % with ints and Dims give a Dim, or an int where the symbols cancel: N - N is 0.
    Order: `>=` and `>` hold unless refuted for all positive symbols, `<` and `<=` only when proven for all
    (so H >= 3 holds, H < 3 does not, and an upper limit is written `limit - H >= 0`).
    Raises: ShapeError where the text is no expression, or has no symbol.
    """

    __slots__ = ("terms",)
    __array_ufunc__ = None  # numpy integers leave arithmetic to Dim
    terms: Terms

    def __new__(cls, text: str) -> Dim:
        size = read(text)
        need(isinstance(size, Dim), wanted="an expression with a symbol", given=repr(text))
        return size

    def __reduce__(self) -> tuple[Any, ...]:
        return Dim, (str(self),)

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
    return ast.parse(text.strip(), mode="eval").body


def calculate(node: ast.AST, sizes: Mapping[str, Any]) -> Size:
    match node:
        case ast.Constant(value=number) if type(number) is int:
            return number
        case ast.Name(id=name):
            return sizes[name] if name in sizes else build({(name,): 1})
        case ast.UnaryOp(op=op, operand=a) if type(op) in OPERATIONS:
            return OPERATIONS[type(op)](calculate(a, sizes))
        case ast.BinOp(left=a, op=op, right=b) if type(op) in OPERATIONS:
            return OPERATIONS[type(op)](calculate(a, sizes), calculate(b, sizes))
    raise ValueError(f"{type(node).__name__} has no place in a size")


def read(text: str, sizes: Mapping[str, Any] | None = None) -> Size:
    try:
        return calculate(parse(text), sizes or {})
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError) as error:
        hint = "sizes are written with names, whole numbers, + - * // % and parentheses"
        raise ShapeError(Fault(SIZE, repr(text), hint)) from error


def asSize(size: Any) -> Size:
    """One size as an int or a Dim.

    Raises: ShapeError where it is neither a whole number of at least 0 nor an expression of symbols.
    """
    isText = isinstance(size, str)
    need(isText or isinstance(size, Integral) and not isinstance(size, bool), wanted=SIZE, given=repr(size))
    value = size if isinstance(size, Dim) else read(size) if isText else int(size)
    need(not value < 0, wanted=SIZE, given=size)
    return value


def asShape(shape: Any) -> Shape:
    """The shape that a user wrote, as a tuple of ints and Dims.

    Raises: ShapeError where it is no tuple or list, or one of its sizes is none.
    """
    hint = f"write ({shape!r},) for one dimension" if isinstance(shape, (str, Integral)) else ""
    need(isinstance(shape, (tuple, list)), wanted=SHAPE, given=repr(shape), hint=hint)
    return tuple(size if type(size) is int and size >= 0 else asSize(size) for size in shape)


def isShape(shape: Any) -> bool:
    """Whether this is one shape, not a list of shapes; () and [] are the shape of a number."""
    return isinstance(shape, (tuple, list)) and all(
        isinstance(size, (str, Integral)) and not isinstance(size, bool) for size in shape
    )


def showShape(shape: Sequence) -> str:
    """A shape as people write it, without quotes: (N, 16, H//2)."""
    return show(tuple(shape) if isShape(shape) else shape)


def product(dims: Iterable) -> Size:
    """The product of sizes: the number of elements of a shape."""
    return math.prod(dims)


def broadcast(*shapes: Sequence) -> Shape:
    """The common shape by numpy's rule; a symbol goes with 1 and with the same symbol.

    Raises: ShapeError with all the shapes where two sizes differ and neither is 1.
    """
    rank = max(map(len, shapes), default=0)
    result = []
    for column in zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes)):
        sizes = [size for size in dict.fromkeys(column) if size != 1] or [1]
        hint = f"{sizes[0]} and {sizes[-1]} differ, and neither is 1"
        need(len(sizes) == 1, wanted="shapes that broadcast", given=list(map(tuple, shapes)), hint=hint)
        result.append(sizes[0])
    return tuple(result)


def symbols(shape: Sequence) -> tuple[str, ...]:
    """The names of the symbols in a shape, in the order of their first appearance."""
    return tuple(dict.fromkeys(name for size in shape for name in re.findall(r"[^\W\d]\w*", str(size))))


def bind(shape: Sequence, sizes: Mapping[str, Any], complete: bool = False) -> Shape:
    """The shape with sizes in the place of symbols: bind(("N", "H//2"), {"N": 32, "H": 9}) is (32, 4).

    Raises: ShapeError where a size becomes negative or, if `complete`, where a symbol is left.
    """
    values = {name: asSize(size) for name, size in sizes.items()}
    bound = tuple(read(size, values) if isinstance(size, str) else size for size in shape)
    place = f"{showShape(shape)} with " + ", ".join(f"{name} = {size}" for name, size in values.items())
    need(not any(size < 0 for size in bound), wanted="sizes of at least 0", given=bound, hint=f"from {place}")
    missing = ", ".join(symbols(bound))
    need(not (complete and missing), wanted=f"sizes for all symbols ({missing} missing)", given=tuple(shape))
    return bound


def window(size: Size, kernel: int, stride: int = 1, pad: int = 0, dilation: int = 1) -> Size:
    """The length that a convolution or pooling leaves; `pad` counts both sides together.

    Formula: (size + pad - dilation * (kernel - 1) - 1) // stride + 1
    Raises: ShapeError where the window does not fit once.
    """
    extent = dilation * (kernel - 1) + 1
    need(size + pad >= extent, wanted=f"at least {extent - pad}", given=size, hint="the window is larger")
    return (size + pad - extent) // stride + 1


def transposed(size: Size, kernel: int, stride: int = 1, pad: int = 0, dilation: int = 1, outpad: int = 0) -> Size:
    """The length that a transposed convolution makes; `pad` counts both sides together.

    Formula: (size - 1) * stride - pad + dilation * (kernel - 1) + outpad + 1
    Raises: ShapeError where nothing is left.
    """
    length = (size - 1) * stride - pad + dilation * (kernel - 1) + outpad + 1
    need(length >= 1, wanted="a length of at least 1", given=length, hint=f"{size} is small for pad {pad}")
    return length


def normalAxis(axis: Any, rank: int, what: str = "axis") -> int:
    """The axis counted from the first: -1 of rank 3 is 2.

    Raises: ShapeError where it is no whole number, or out of range.
    """
    whole = isinstance(axis, Integral) and not isinstance(axis, bool)
    wanted = f"{what} from {-rank} to {rank - 1}" if rank else f"a shape with dimensions for {what}"
    need(whole and -rank <= axis < rank, wanted=wanted, given=axis)
    return int(axis) % rank
