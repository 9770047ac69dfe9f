"""Open sizes: record how a compiled step depends on its sizes, so that it can be made for other sizes, too.

Rules calculate with an `OpenSize` as with an int. Its `SizeTape` records each expression, and each question whose
answer the step depends on: a comparison, or a use as a plain number (by `range`, by numpy, in a text). For other sizes
the tape computes all expressions again; the step is valid for them if every answer is the same.

A `decided` function may decide differently for other sizes: it is called again, and the numbers that it returns are
open, too. An `unchanging` function must return the same again. `smallest` and `largest` are `min` and `max` that do not
record which size it is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, NamedTuple

CALCULATIONS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "/": operator.truediv,
    "min": min,
    "max": max,
    "float": float,
    "ceil": math.ceil,
    "round": round,
}
QUESTIONS: dict[str, Callable[[Any, Any], bool]] = {"<": operator.lt, "<=": operator.le, "==": operator.eq}
COMMUTATIVE = ("+", "*", "min", "max")
NEUTRAL_NUMBERS = {("+", 0), ("-", 0), ("*", 1), ("//", 1)}
UNLIKE = object()  # the result of a decision that a step does not hold for


def calculation(name: str) -> tuple[Any, Any]:
    """An operator, and the one with its operands swapped."""

    def method(self: OpenSize, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        if type(other) is int:
            if (name, other) in NEUTRAL_NUMBERS:
                return self
            if name == "*" and other == 0:
                return 0
        return self.tape.calculated(name, self, other)

    def swapped(self: OpenSize, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        return method(self, other) if name in COMMUTATIVE else self.tape.calculated(name, other, self)

    return method, swapped


def pinnedBy(rule: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """An operator that needs numbers, and the one with its operands swapped."""

    def method(self: OpenSize, other: Any) -> Any:
        return rule(self.tape.pinned(self), operator.index(other)) if isinstance(other, int) else NotImplemented

    def swapped(self: OpenSize, other: Any) -> Any:
        return rule(operator.index(other), self.tape.pinned(self)) if isinstance(other, int) else NotImplemented

    return method, swapped


def question(name: str) -> tuple[Any, Any]:
    """A comparison, and the one with its sides swapped."""

    def ask(self: OpenSize, left: Any, right: Any) -> Any:
        if type(left) is type(right) and left.index == right.index and left.tape is right.tape:
            return name != "<"
        return self.tape.answered(name, left, right)

    def method(self: OpenSize, other: Any) -> Any:
        return ask(self, self, other) if isinstance(other, (int, float)) else NotImplemented

    def swapped(self: OpenSize, other: Any) -> Any:
        return ask(self, other, self) if isinstance(other, (int, float)) else NotImplemented

    return method, swapped


class ClosedStepError(TypeError):
    """A step cannot have open sizes; the message says why."""


class Question(NamedTuple):
    """A comparison of two numbers, by their indices, and the answer."""

    rule: Callable[[Any, Any], bool]
    left: int
    right: int
    answer: bool


class SizeTape:
    """The expressions of some symbols, and the questions that were answered for the numbers `hints`.

    `numbers` are the symbols, the constants and the results of expressions, for the hints; `lines` compute the results
    for others: an index in `numbers`, a rule, and the indices of two operands, of one, or of none for a rule that takes
    its operands from all numbers. `close` ends the recording.
    """

    def __init__(self, hints: Sequence[int]):
        self.isOpen = True
        self.numbers: list[Any] = list(hints)
        self.lines: list[tuple[int, Callable[..., Any], int, int]] = []
        self.questions: list[Question] = []
        self.known: dict[Any, Any] = {}
        self.fixed: set[int] = set()  # the indices of sizes that were asked for as numbers
        self.symbols = [OpenSize(self, i, hint) for i, hint in enumerate(hints)]

    def added(self, number: Any, rule: Callable[..., Any] | None = None, left: int = -1, right: int = -1) -> int:
        """The index of a new number, a constant if no rule computes it."""
        self.checkOpen()
        index = len(self.numbers)
        self.numbers.append(number)
        if rule is not None:
            self.lines.append((index, rule, left, right))
        return index

    def indexOf(self, operand: Any) -> int:
        """The index of a size or a constant."""
        if type(operand) is OpenSize:
            if operand.tape is not self:
                raise ClosedStepError("a rule calculates with sizes of another rule")
            return operand.index
        key = type(operand), repr(operand)  # 0.0 and -0.0 are equal, but not the same
        if key not in self.known:
            self.known[key] = self.added(operand)
        return self.known[key]

    def calculated(self, name: str, *operands: Any) -> Any:
        """The result of a calculation: a plain number if all sizes in it are fixed."""
        if all(map(self.isFixed, operands)):
            return CALCULATIONS[name](*map(numberOf, operands))
        if name in COMMUTATIVE and type(operands[0]) is not OpenSize:
            operands = operands[::-1]
        rule, indices = CALCULATIONS[name], tuple(map(self.indexOf, operands))
        key = name, *indices
        if key not in self.known:
            number = rule(*map(numberOf, operands))
            self.known[key] = OpenSize(self, self.added(number, rule, *indices), number)
        return self.known[key]

    def answered(self, name: str, left: Any, right: Any) -> bool:
        """The answer to a question, for the hints."""
        rule = QUESTIONS[name]
        answer = bool(rule(numberOf(left), numberOf(right)))
        if self.isFixed(left) and self.isFixed(right):
            return answer
        question = Question(rule, self.indexOf(left), self.indexOf(right), answer)
        if question not in self.known:
            self.checkOpen()
            self.known[question] = None
            self.questions.append(question)
        return answer

    def pinned(self, size: OpenSize) -> Any:
        """The number of a size, which it has to have from now on."""
        self.answered("==", size, size.number)
        self.fixed.add(size.index)
        return size.number

    def isFixed(self, operand: Any) -> bool:
        """True for a constant, and a size that has to have its number."""
        return type(operand) is not OpenSize or operand.tape is self and operand.index in self.fixed

    def decided(self, rule: Callable[..., Any], arguments: tuple, isFixed: bool) -> Any:
        """The result of a function; its numbers are sizes unless it `isFixed`."""
        if all(map(self.isFixed, sizesIn(arguments))):
            return rule(*numbered(arguments))
        key = rule, arguments, *[repr(a) for a in arguments if type(a) is float]
        if key not in self.known:
            decision = Decision(rule, arguments, isFixed)
            index = self.added(decision.result, decision.again)
            self.known[key] = decision.result if isFixed else self.opened(decision.result, index)
        return self.known[key]

    def opened(self, result: Any, index: int) -> Any:
        """A result of `decided`, at an index, with sizes for its numbers."""
        if type(result) in (int, float):
            return OpenSize(self, index, result)
        if isinstance(result, tuple):
            parts = [self.added(part, operator.itemgetter(i), index) for i, part in enumerate(result)]
            return rebuilt(result, list(map(self.opened, result, parts)))
        return result

    def checkOpen(self) -> None:
        """Raise ClosedStepError if the recording has ended: what is new now holds for the hints alone."""
        if not self.isOpen:
            raise ClosedStepError("what follows from a size was asked after its step was made")

    def close(self) -> None:
        """End the recording: what is known by then is answered on, and nothing new."""
        self.isOpen = False

    def __call__(self, symbols: Sequence[int]) -> list[Any] | None:
        """All numbers for these symbols; None if the step does not hold for them."""
        numbers = self.numbers.copy()
        numbers[: len(symbols)] = symbols
        try:
            for index, rule, left, right in self.lines:
                if right >= 0:
                    numbers[index] = rule(numbers[left], numbers[right])
                elif left >= 0:
                    numbers[index] = rule(numbers[left])
                else:
                    numbers[index] = result = rule(numbers)
                    if result is UNLIKE:
                        return None
        except (ZeroDivisionError, OverflowError):
            return None
        for rule, left, right, answer in self.questions:
            if rule(numbers[left], numbers[right]) != answer:
                return None
        return numbers


class Decision:
    """A call of a `decided` or `unchanging` function."""

    def __init__(self, rule: Callable[..., Any], arguments: tuple, isFixed: bool):
        self.rule, self.arguments, self.isFixed = rule, arguments, isFixed
        self.result = rule(*numbered(arguments))

    def again(self, numbers: Sequence[Any]) -> Any:
        """The result for other numbers of its tape; UNLIKE if it differs in more than its numbers."""
        result = self.rule(*numbered(self.arguments, lambda size: numbers[size.index]))
        isSame = result == self.result if self.isFixed else isAlike(result, self.result)
        return result if isSame else UNLIKE


class OpenSize:
    """A size that may be any number, within a tape; to rules it is an int."""

    __slots__ = ("index", "number", "tape")
    __array_ufunc__ = None

    def __init__(self, tape: SizeTape, index: int, number: Any):
        self.tape, self.index, self.number = tape, index, number

    __class__ = property(lambda self: type(self.number))  # rules ask isinstance(size, int)

    def __hash__(self) -> int:
        return hash((OpenSize, id(self.tape), self.index))

    def __index__(self) -> int:
        return self.tape.pinned(self)

    def __float__(self) -> float:
        return float(self.tape.pinned(self))

    def __bool__(self) -> bool:
        return self != 0

    def __repr__(self) -> str:
        return repr(self.tape.pinned(self))

    def __format__(self, how: str) -> str:
        return format(self.tape.pinned(self), how)

    def __getattr__(self, name: str) -> Any:
        if name == "bit_length":
            return self.tape.pinned(self).bit_length
        raise AttributeError(f"an open size has no attribute {name!r}")

    def __neg__(self) -> Any:
        return 0 - self

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __ceil__(self) -> Any:
        return self.tape.calculated("ceil", self)

    def __round__(self) -> Any:
        return self.tape.calculated("round", self)

    __int__ = __index__
    __add__, __radd__ = calculation("+")
    __sub__, __rsub__ = calculation("-")
    __mul__, __rmul__ = calculation("*")
    __floordiv__, __rfloordiv__ = calculation("//")
    __mod__, __rmod__ = calculation("%")
    __truediv__, __rtruediv__ = calculation("/")
    __divmod__, __rdivmod__ = pinnedBy(divmod)
    __pow__, __rpow__ = pinnedBy(operator.pow)
    __lshift__, __rlshift__ = pinnedBy(operator.lshift)
    __rshift__, __rrshift__ = pinnedBy(operator.rshift)
    __and__, __rand__ = pinnedBy(operator.and_)
    __lt__, __gt__ = question("<")
    __le__, __ge__ = question("<=")
    __eq__ = question("==")[0]

    def __ne__(self, other: object) -> Any:
        answer = self.__eq__(other)
        return answer if answer is NotImplemented else not answer


# Sizes in other objects -----------------------------------------------------------------------------------------------


def numberOf(size: Any) -> Any:
    """The number of a size for the hints; anything else as it is."""
    return size.number if type(size) is OpenSize else size


def numberIn(size: Any, numbers: Sequence[Any]) -> Any:
    """The number of a size among those of its tape; anything else as it is."""
    return numbers[size.index] if type(size) is OpenSize else size


def sizesIn(argument: Any) -> list[OpenSize]:
    """The open sizes in tuples of tuples."""
    if type(argument) is OpenSize:
        return [argument]
    return [size for part in argument for size in sizesIn(part)] if isinstance(argument, tuple) else []


def isOpen(argument: Any) -> bool:
    """True if an argument is an open size, or a tuple with one in it."""
    return type(argument) is OpenSize or isinstance(argument, tuple) and any(map(isOpen, argument))


def numbered(argument: Any, number: Callable[[OpenSize], Any] = numberOf) -> Any:
    """An argument with numbers in place of open sizes."""
    if type(argument) is OpenSize:
        return number(argument)
    if isinstance(argument, tuple) and isOpen(argument):
        return rebuilt(argument, [numbered(part, number) for part in argument])
    return argument


def isSameShape(shape: tuple, other: tuple) -> bool:
    """True if two shapes are equal; asks of no size unless they have one rank, as == of tuples does."""
    return len(shape) == len(other) and shape == other


def isSameForAll(shape: tuple, other: tuple) -> bool:
    """True if two shapes are equal; an open size and a constant are different, without asking for which size not."""
    return len(shape) == len(other) and all(isOpen(n) == isOpen(m) and n == m for n, m in zip(shape, other))


def rebuilt(tuples: tuple, parts: list[Any]) -> Any:
    """A tuple of the same type with other parts."""
    return type(tuples)(*parts) if hasattr(tuples, "_fields") else tuple(parts)


def isAlike(one: Any, other: Any) -> bool:
    """True if two results are equal but for their numbers."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(isAlike, one, other))
    return type(one) in (int, float) or one == other


def decided(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A pure function of sizes, other constants, and tuples of both, that is called again for other symbols."""

    return again(rule, False)


def unchanging(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A pure function as `decided`, whose result a step depends on: for other symbols it has to be the same."""

    return again(rule, True)


def again(rule: Callable[..., Any], isFixed: bool) -> Callable[..., Any]:
    """A function whose calls with open sizes a tape repeats; options that are named are no sizes."""

    @wraps(rule)
    def decide(*arguments: Any, **options: Any) -> Any:
        sizes = sizesIn(arguments)
        if not sizes:
            return rule(*arguments, **options)
        return sizes[0].tape.decided(partial(rule, **options) if options else rule, arguments, isFixed)

    return decide


def smallest(*sizes: Any) -> Any:
    """min(*sizes), whatever size is the smallest."""
    return joined("min", sizes)


def largest(*sizes: Any) -> Any:
    """max(*sizes), whatever size is the largest."""
    return joined("max", sizes)


def joined(name: str, sizes: tuple) -> Any:
    """The smallest or the largest of some sizes."""
    total = sizes[0]
    for other in sizes[1:]:
        size = next((x for x in (total, other) if type(x) is OpenSize), None)
        total = CALCULATIONS[name](total, other) if size is None else size.tape.calculated(name, total, other)
    return total


def floating(size: Any) -> Any:
    """float(size), open if the size is."""
    return size.tape.calculated("float", size) if type(size) is OpenSize else float(size)


class OpenScalar(NamedTuple):
    """The source of a constant whose one number is open: like an array it has a dtype and `item`."""

    size: OpenSize
    dtype: Any

    def item(self) -> Any:
        return self.size


class SizedText(str):
    """A text that has sizes in it: `template.format(*sizes)`."""

    __slots__ = ("sizes", "template")
    template: str
    sizes: tuple[Any, ...]


def sized(template: str, *sizes: Any) -> str:
    """`template.format(*sizes)`; open sizes in it stay open."""
    text = template.format(*map(numberOf, sizes))
    if isOpen(sizes):
        text = SizedText(text)
        text.template, text.sizes = template, sizes
    return text
