"""A pointwise expression, written once as text and read as numpy, CUDA C, its derivative, and text again.

elu = Formula("where(x > 0, x, alpha * expm1(x))")
elu(x=x, alpha=1.0)           an array
elu.derivative("x")           Formula('where(x > 0, 1, alpha * exp(x))')
elu.cuda()                    the body of a cupy.ElementwiseKernel
elu.put(x="x + bias")         another formula in place of a name: this is fusion
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Union

from puregraph.core.base.cachedproperty import CachedProperty
from puregraph.core.errors import FormulaError
from puregraph.ops import special
from puregraph.ops.formula.cwords import asVariable
from puregraph.ops.formula.expr import REMEMBERED, ZERO, Term, leaf, loose, lower, neat, read, rebuild, shorten, walk
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.formula.optable import CONSTANTS, INTEGERS, LOGICAL, TABLE

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

Part = Union[str, float, "Formula"]


class Formula:
    """An elementwise expression of named arrays; its functions and their derivatives are in `optable.TABLE`.

    Formulas are immutable values: equal expressions compare equal. Results have the promoted type of the float
    arguments (16-bit floats are computed in float32 and rounded once); ints, bools and Python numbers are converted to
    it. Overflow and similar faults give inf and nan without warnings, as on a GPU.
    """

    term: Term

    def __new__(cls, text: Part) -> Formula:
        return text if isinstance(text, Formula) else formulaOf(_term(text))

    @CachedProperty
    def names(self) -> tuple[str, ...]:
        """The variables, in order of first appearance."""
        return tuple(t.value for t in walk(self.term) if t.op == "name")

    @CachedProperty
    def flops(self) -> int:
        """Operations for one element, each distinct one once, as numpy or a fused kernel carries them out."""
        return sum(bool(t.args) for t in walk(rebuild(self.term, {}, lower)))

    def __call__(self, /, *, out: Any | None = None, **arrays: Any) -> AnyArray:
        names = self.names
        if "out" in names:  # then it is a variable
            arrays["out"], out = out, None
        if arrays.keys() != set(names):
            raise FormulaError(
                f"{shorten(str(self))} wants {', '.join(names) or 'no arrays'}; got {', '.join(arrays) or 'none'}"
            )
        return self._numpy(*[arrays[name] for name in names], out=out)

    @CachedProperty
    def _numpy(self) -> Callable[..., Any]:
        return self.numpy()

    def numpy(self, names: Iterable[str] | None = None) -> Callable[..., Any]:
        """A function of arrays in the order of `names` (default: `self.names`), with an optional `out`.

        A result that is just a variable is that array itself; one without variables is a 0-d number.
        """
        return _function(self, self.names if names is None else tuple(names))

    def derivative(self, name: str) -> Formula:
        """The partial derivative by one variable, as a Formula, which can be differentiated again."""
        return self.differential(**{name: 1})

    def differential(self, /, **changes: Part) -> Formula:
        """dy = sum over x of dy/dx dx, for given changes dx of variables: the derivative along a direction.

        It takes one forward sweep. Derivatives of all orders share subexpressions, so the n-th grows only as n^2.

        Raises    FormulaError where a function has no derivative (by the order of a polygamma)
        """
        return _differential(self, tuple((name, _term(part)) for name, part in changes.items()))

    def gradient(
        self, names: Iterable[str] | None = None, seed: Part = 1, output: str | None = None
    ) -> dict[str, Formula]:
        """The derivatives by several variables, times `seed`, in one sweep back over shared subexpressions.

        With `output`, they read the formula's value from the variable of that name instead of computing it again.
        Branches are differentiated separately: a discarded branch cannot make the result nan.

        Raises    FormulaError where a function has no derivative (by the order of a polygamma), or `output` is taken
        """
        names = self.names if names is None else tuple(names)
        if output in self.names:
            raise FormulaError(f"{shorten(str(self))} has a variable {output}; give its value another name")
        return dict(zip(names, _gradient(self, names, Formula(seed), output)))

    def put(self, /, **parts: Part) -> Formula:
        """The formula with variables replaced, all at once, by other formulas, texts or numbers."""
        unknown = [name for name in parts if name not in self.names]
        if unknown:
            raise FormulaError(
                f"{shorten(str(self))} has no {', '.join(unknown)}; its variables are {', '.join(self.names) or 'none'}"
            )
        return formulaOf(rebuild(self.term, {leaf(name): _term(part) for name, part in parts.items()}, neat))

    def cuda(self, output: str = "y", T: str = "T") -> str:
        """The body of a cupy.ElementwiseKernel that assigns `output`; `T` is the C type of intermediate values.

        A variable named like a word of C++ or CUDA, such as `float`, gets an underscore appended.
        """
        return cudaFrom([self], [output], T)

    def preamble(self, T: str = "T") -> str:
        """The C functions that `cuda` calls and CUDA lacks: the `preamble` of the kernel. Often empty."""
        return preambleFrom([self], T)

    @CachedProperty
    def _text(self) -> str:
        return _written(self.term)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Formula({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and self.term is other.term

    def __hash__(self) -> int:
        return hash(self.term)

    def __reduce__(self) -> tuple:
        return Formula, (self._text,)


def numpyFrom(formulas: Sequence[Formula], names: Iterable[str]) -> Interpreter:
    """One function of arrays for several formulas, with shared subexpressions; `out` is a sequence."""
    return _evaluator(tuple([f.term for f in formulas]), tuple(names))


def formulasOf(evaluator: Interpreter) -> list[Formula]:
    """The formulas that a function of arrays computes."""
    return [formulaOf(term) for term in evaluator.terms]


_evaluator = lru_cache(maxsize=REMEMBERED)(Interpreter)


@lru_cache(maxsize=REMEMBERED)
def _function(formula: Formula, names: tuple[str, ...]) -> Callable[..., Any]:
    evaluator = _evaluator((formula.term,), names)

    def function(*arrays: AnyArray, out: AnyArray | None = None) -> AnyArray:
        return evaluator(*arrays, out=out if out is None else (out,))[0]

    return function


def cudaFrom(formulas: Sequence[Formula], outputs: Sequence[str], T: str = "T", isWhole: bool = False) -> str:
    """One kernel body for several formulas, which may assign to their own inputs; `isWhole`: T is an integer type."""

    def c(t: Term) -> str:
        return INTEGERS[t.op] if isWhole and t.args else _c(t)

    roots = [rebuild(f.term, {}, lower) for f in formulas]
    taken = {asVariable(t.value) for t in walk(*roots) if t.op == "name"} | set(outputs)

    def phrase(t: Term, args: list[Phrase]) -> Phrase:
        if t.op == "number":
            return f"({T}){(wholeText if isWhole else floatText)(t.value)}", ATOM
        if t.op == "name":
            name = asVariable(t.value)
            return (name if T == "T" else f"({T}){name}"), ATOM
        text = c(t).replace("(T)", f"({T})").format(*[text for text, _ in args])
        return (text if c(t)[0].isalpha() else f"({text})"), ATOM

    def declare(name: str, t: Term, text: str) -> str:
        return f"const {'bool' if t.op in LOGICAL else T} {name} = {text};"

    def mentions(t: Term) -> list[int]:
        return [c(t).count(f"{{{i}}}") for i in range(len(t.args))]

    kept = set(roots) if len(roots) > 1 else set()  # an output may be an input that a later result reads
    lines, results = _spell(roots, phrase, declare, mentions, taken, kept)
    return "\n".join([*lines, *(f"{output} = {text};" for output, text in zip(outputs, results))])


def floatText(value: float) -> str:
    """A number as C has it."""
    return C_NUMBERS.get(str(float(value)), repr(float(value)))


def wholeText(value: float) -> str:
    """An integer of up to 64 bits in C; the smallest one has no literal and is written as a difference."""
    number = int(value)
    return "(-9223372036854775807ll - 1)" if number == -1 << 63 else f"{number}{'ll' if number < 1 << 63 else 'ull'}"


def preambleFrom(formulas: Sequence[Formula], T: str = "T") -> str:
    """The C functions that the body of `cudaFrom` needs before it."""
    order = walk(*[rebuild(f.term, {}, lower) for f in formulas])
    called = " ".join(_c(t) for t in order if t.args)
    parts: list[str] = []
    for name, text in reversed(special.CUDA.items()):  # a later one may call an earlier one
        if re.search(rf"\b{name}\(", " ".join([called, *parts])):
            parts.insert(0, text)
    if parts or any(t.op == "number" and not math.isfinite(t.value) for t in order):
        parts.insert(0, special.CUDA_LIMITS)
    return re.sub(r"\bT\b", T, "".join(parts))


@lru_cache(maxsize=REMEMBERED)
def formulaOf(term: Term) -> Formula:
    """A term as a Formula."""
    self = object.__new__(Formula)
    self.term = term
    return self


def _term(part: Part) -> Term:
    if isinstance(part, Formula):
        return part.term
    if isinstance(part, str):
        return read(part)
    if not isinstance(part, Real):
        raise FormulaError(f"wanted a formula, a text or a number, got {part!r:.100}")
    value = int(part) if isinstance(part, Integral) else float(part)
    if math.isnan(value):
        raise FormulaError("nan is not a number that a formula may have; pass it as a variable")
    return leaf(value)


# ---- derivatives: one sweep, back or forward, in which each adjoint or tangent is a value under a guard ----

Guard = Term | None  # the condition under which a value counts; it is 0 elsewhere; None: always


@lru_cache(maxsize=REMEMBERED)
def _gradient(formula: Formula, names: tuple[str, ...], seed: Formula, output: str | None) -> tuple[Formula, ...]:
    wanted = [leaf(name) for name in names]
    order, leads = walk(formula.term), set(wanted)
    leads.update(t for t in order if any(a in leads for a in t.args))
    adjoints: dict[Term, list[tuple[Guard, Term]]] = {formula.term: [(None, seed.term)]}
    for t in reversed(order):
        if not t.args or t not in leads or t not in adjoints:
            continue
        guard, g = _joined(adjoints.pop(t))
        for i, a in enumerate(t.args):
            if a in leads:
                part = _guarded(guard, _pulled(t, i, g))
                if part[1] is not ZERO:
                    adjoints.setdefault(a, []).append(part)
    known = {formula.term: leaf(output)} if output else {}
    return tuple(formulaOf(rebuild(_total(_merged(adjoints.get(name, []))), known, neat)) for name in wanted)


@lru_cache(maxsize=REMEMBERED)
def _differential(formula: Formula, changes: tuple[tuple[str, Term], ...]) -> Formula:
    tangents: dict[Term, tuple[Guard, Term]] = {leaf(name): (None, change) for name, change in changes}
    for t in walk(formula.term):
        moving = [(i, *tangents[a]) for i, a in enumerate(t.args) if a in tangents]
        parts = [_guarded(guard, _pulled(t, i, g)) for i, guard, g in moving]
        parts = [part for part in parts if part[1] is not ZERO]
        if parts:
            tangents[t] = _joined(parts)
    guard, value = tangents.get(formula.term, (None, ZERO))
    return formulaOf(_total({guard: value}))


def _pulled(t: Term, i: int, g: Term) -> Term:
    """g times the derivative of a term by its i-th argument."""
    pull = TABLE[t.op].pulls[i]
    if pull is None:
        raise FormulaError(f"{t.op} has no derivative by its argument {i + 1}, {shorten(_written(t.args[i]))}")
    return rebuild(read(pull), {leaf("g"): g, leaf("y"): t, **dict(zip(map(leaf, "abc"), t.args))}, loose)


def _guarded(guard: Guard, value: Term) -> tuple[Guard, Term]:
    """A value under a guard, with where(p, value, 0) rewritten as the value under `guard and p`."""
    if value.op == "where" and value.args[2] is ZERO:
        p, value, _ = value.args
    elif value.op == "where" and value.args[1] is ZERO:
        p, value = _opposite(value.args[0]), value.args[2]
    else:
        return guard, value
    conditions = guard.args if guard is not None and guard.op == "and" else (guard,)
    if _opposite(p) in conditions:
        return guard, ZERO
    return (p if guard is None else guard if p in conditions else neat("and", guard, p)), value


def _opposite(p: Term) -> Term:
    return p.args[0] if p.op == "not" else neat("not", p)


def _merged(parts: list[tuple[Guard, Term]]) -> dict[Guard, Term]:
    """The sum of the values under each guard; values under p and under not p are combined as where(p, ..., ...)."""
    total: dict[Guard, Term] = {}
    while parts:
        (guard, value), parts = parts[0], parts[1:]
        outer, p = guard.args if guard is not None and guard.op == "and" else (None, guard)
        other = p and _opposite(p)
        other = neat("and", outer, other) if outer and other else other
        if guard in total:
            total[guard] = loose("+", total[guard], value)
        elif other in total and p is not None:
            yes, no = (value, total.pop(other)) if p.op != "not" else (total.pop(other), value)
            parts.append((outer, neat("where", p if p.op != "not" else p.args[0], yes, no)))
        else:
            total[guard] = value
    return total


def _total(parts: dict[Guard, Term]) -> Term:
    total = ZERO
    for guard, value in parts.items():
        total = loose("+", total, value if guard is None else neat("where", guard, value, ZERO))
    return total


def _joined(parts: list[tuple[Guard, Term]]) -> tuple[Guard, Term]:
    """The sum of values under guards, as one value under one guard."""
    total = _merged(parts)
    if len(total) == 1:
        return next(iter(total.items()))
    guard: Guard = ZERO
    for one in total:
        guard = None if guard is None or one is None else neat("or", guard, one)
    return guard, _total(total)


# ---- writing: as text and as C, long expressions in several short ones -------------------------------------

Phrase = tuple[str, int]  # a text, and how tightly it binds
ATOM = 9
LEVELS = {"or": 1, "and": 2, "not": 3, **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), 4)}
LEVELS |= {"+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6, "neg": 7, "pow": 8}
C_NUMBERS = {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}
MAX_INLINE_TERMS = 60  # maximum number of terms of a text that is a single expression
MAX_UNNAMED_TERMS = 25  # in a longer text, terms that are shared or longer than this get a name


def _c(t: Term) -> str:
    return TABLE[t.op].cuda or "" if t.args else ""


def _spell(
    roots: Sequence[Term],
    phrase: Callable[[Term, list[Phrase]], Phrase],
    declare: Callable[[str, Term, str], str],
    mentions: Callable[[Term], list[int]],
    taken: set[str],
    kept: set[Term],
) -> tuple[list[str], list[str]]:
    """Declarations of the terms that get a variable (stored, shared or long); then the texts of the roots."""
    order = walk(*roots)
    count: Counter[Term] = Counter()
    for t in order:
        for a, times in zip(t.args, mentions(t)):
            count[a] += times
    free = (name for name in map("t{}".format, itertools.count(1)) if name not in taken)
    phrases: dict[Term, Phrase] = {}
    size: dict[Term, int] = {}
    lines = []
    for t in order:
        phrases[t] = phrase(t, [phrases[a] for a in t.args])
        size[t] = 1 + sum(size[a] for a in t.args)
        if t in kept or (t.args and (count[t] > 1 or (count[t] and size[t] > MAX_UNNAMED_TERMS))):
            name = next(free)
            lines.append(declare(name, t, phrases[t][0]))
            phrases[t], size[t] = (name, ATOM), 1
    return lines, [phrases[root][0] for root in roots]


def _written(root: Term) -> str:
    order = walk(root)
    size: dict[Term, int] = {}
    for t in order:
        size[t] = min(1 + sum(size[a] for a in t.args), MAX_INLINE_TERMS + 1)
    if size[root] <= MAX_INLINE_TERMS:
        phrases: dict[Term, Phrase] = {}
        for t in order:
            phrases[t] = _phrase(t, [phrases[a] for a in t.args])
        return phrases[root][0]
    taken = {t.value for t in order if t.op == "name"}
    lines, results = _spell(
        [root], _phrase, lambda name, _, text: f"{name} = {text}", lambda t: [1] * len(t.args), taken, set()
    )
    return "; ".join([*lines, *results])


def _phrase(t: Term, args: list[Phrase]) -> Phrase:
    def at(level: int, i: int) -> str:
        text, own = args[i]
        return text if own >= level else f"({text})"

    if t.op == "name":
        return t.value, ATOM
    if t.op == "number":
        text = CONSTANT_TEXTS.get(abs(t.value), repr(abs(t.value)))
        negative = math.copysign(1.0, t.value) < 0
        return ("-" + text, LEVELS["neg"]) if negative else (text, ATOM)
    level = LEVELS.get(t.op)
    if level is None:
        return f"{t.op}({', '.join(text for text, _ in args)})", ATOM
    if len(args) == 1:
        return ("not " if t.op == "not" else "-") + at(level, 0), level
    if t.op == "pow":
        return f"{at(ATOM, 0)} ** {at(LEVELS['neg'], 1)}", level
    return f"{at(level + (level == 4), 0)} {t.op} {at(level + 1, 1)}", level


CONSTANT_TEXTS = {value: name for name, value in CONSTANTS.items()}
