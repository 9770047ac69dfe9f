"""Matching: match the values of a file with patterns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.patterns.pattern import CHAINS, PatternTerm

NUMBER_TOLERANCE = 1e-6  # relative tolerance of a number; larger if the dtype in the file is less precise
REPEATED = {"DequantizeLinear"}  # cheaper to compute twice than to compute with its result
LIMITS = (("min", -np.inf), ("max", np.inf))
DEFAULTS: dict[str, dict[str, Any]] = {
    "ReduceMean": {"keepdims": 1},
    "ReduceMax": {"keepdims": 1},
    "Softmax": {"axis": -1},
    "Trilu": {"upper": 1},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
}


class OperatorView(NamedTuple):
    """The origin of a value as patterns see it: operator, operands, and the outputs of the nodes that it stands for."""

    op: str
    args: tuple[OnnxValue, ...]
    nodes: tuple[OnnxValue, ...]


class Match(NamedTuple):
    """The values bound to a pattern's names, and the outputs of the nodes inside the pattern."""

    bindings: dict[str, Any]
    inside: tuple[OnnxValue, ...] = ()

    def named(self, name: str, value: Any) -> Match | None:
        """This match with a name bound to a value; None if the name is bound to another value."""
        if name in self.bindings:
            return self if isSame(self.bindings[name], value) else None
        return Match({**self.bindings, name: value}, self.inside)

    def isClosed(self) -> bool:
        """True if all nodes are in one graph, and no other node reads a value inside, unless it may be computed twice;
        the result comes first."""
        made = list({id(value): value for value in self.inside}.values())
        if any(value.origin.scope is not made[0].origin.scope for value in made):
            return False
        reads = Counter(id(operand) for value in made for operand in value.origin.inputs if operand is not None)
        return all(value.readers == reads[id(value)] or value.origin.type in REPEATED for value in made[1:])


def isSame(a: Any, b: Any) -> bool:
    """True if two values or two attributes are equal."""
    if isinstance(a, OnnxValue) and isinstance(b, OnnxValue):
        if a is b:
            return True
        x, y = (None if v.isWeight else v.numbers for v in (a, b))
        return x is not None and y is not None and x.dtype == y.dtype and x.size == 1 == y.size and bool(x == y)
    return type(a) is type(b) and a == b


def matches(term: PatternTerm, value: Any, match: Match) -> Iterator[Match]:
    """The matches of a value with a term."""
    if term.op == "number":
        if isNumber(value, term.number):
            yield match
    elif term.op in ("any", "known"):
        isThere = value is not None and (term.op == "any" or value.numbers is not None)
        named = match.named(term.name, value) if isThere else None
        if named is not None:
            yield named
    elif value is not None:
        for view in views(value):
            if view.op == term.op:
                yield from operands(term, view, match)


def operands(term: PatternTerm, view: OperatorView, match: Match) -> Iterator[Match]:
    """The matches of an operator's operands with a term."""
    started: Match | None = Match(match.bindings, (*match.inside, *view.nodes))
    for name, wanted in term.options:
        actual = optionOf(view, name)
        if isinstance(wanted, str):
            started = None if actual is None or started is None else started.named(wanted, actual)
        elif actual is None or not np.isclose(actual, wanted, NUMBER_TOLERANCE, 0):
            return
    if started is None:
        return
    if term.op not in CHAINS:
        if len(term.args) == len(view.args):
            yield from matchAll(term.args, view.args, started)
        return
    for args, nodes in groupings(view, len(term.args)):
        for order in permutations(args):
            yield from matchAll(term.args, order, Match(started.bindings, (*started.inside, *nodes)))


def matchAll(terms: tuple[PatternTerm, ...], values: tuple[OnnxValue, ...], match: Match) -> Iterator[Match]:
    """The matches of several values with several terms."""
    if not terms:
        yield match
        return
    for extended in matches(terms[0], values[0], match):
        yield from matchAll(terms[1:], values[1:], extended)


def groupings(view: OperatorView, wanted: int) -> Iterator[tuple[tuple, tuple]]:
    """The ways to group a sum or product into `wanted` operands, with the nodes between."""
    if len(view.args) == wanted:
        yield view.args, ()
    for i, value in enumerate(view.args if len(view.args) < wanted else ()):
        for inner in views(value):
            if inner.op == view.op:
                args = view.args[:i] + inner.args + view.args[i + 1 :]
                for groupedArgs, nodes in groupings(OperatorView(view.op, args, ()), wanted):
                    yield groupedArgs, (*inner.nodes, *nodes)


def views(value: OnnxValue) -> Iterator[OperatorView]:
    """The forms in which patterns see the node that made a value; an Identity is skipped."""
    nodes: tuple[OnnxValue, ...] = ()
    while value.origin is not None:
        origin = value.origin
        nodes = (*nodes, value)
        isKept = origin.type == "Cast" and origin.inputs[0] is not None and origin.inputs[0].dtype == value.dtype
        if origin.type != "Identity" and not isKept or origin.inputs[0].origin is None:
            yield from forms(value, nodes)
            return
        value = origin.inputs[0]


def forms(value: OnnxValue, nodes: tuple[OnnxValue, ...]) -> Iterator[OperatorView]:
    """The equivalent forms of the node that made a value, such as Add for Sub of a number."""
    origin = value.origin
    kind, args = origin.type, tuple(origin.inputs)
    if kind == "Neg":
        kind, args = "Mul", (args[0], scalar(-1.0))
    elif kind == "Reciprocal":
        kind, args = "Div", (scalar(1.0), args[0])
    elif kind in ("Sub", "Div") and (by := single(args[1])) is not None and (kind == "Sub" or by):
        yield OperatorView(kind, args, nodes)
        other = scalar(-by if kind == "Sub" else 1 / by)
        other.isWeight = args[1].isWeight
        kind, args = "Add" if kind == "Sub" else "Mul", (args[0], other)
    elif kind == "Mul" and args[0] is args[1]:
        yield OperatorView("Pow", (args[0], scalar(2.0)), nodes)
    elif kind == "Clip" and origin.version < 11:
        args = (args[0], *(scalar(origin.attributes.get(name, inf)) for name, inf in LIMITS))
    elif kind.startswith("Reduce") or kind in ("Unsqueeze", "Squeeze"):
        args = args[:1]
    yield OperatorView(kind, args, nodes)


def scalar(value: float) -> OnnxValue:
    """A number as a value."""
    return OnnxValue.of("", np.asarray(value, np.float64))


def single(value: Any) -> float | None:
    """The only element of a value known ahead of data; None if unknown, or if there are several."""
    numbers = None if value is None else value.numbers
    return None if numbers is None or numbers.size != 1 else float(numbers.reshape(()))


def numberOf(value: Any) -> float | None:
    """The only element of a value that is known ahead of data and not trained; None for other values."""
    return None if value is None or value.isWeight else single(value)


def isNumber(value: Any, wanted: float) -> bool:
    """True if a value has one element, equal to this number within the precision of its dtype."""
    numbers = None if value is None else value.numbers
    if numbers is None or numbers.size != 1:
        return False
    close = max(NUMBER_TOLERANCE, float(np.finfo(numbers.dtype).eps)) if numbers.dtype.kind == "f" else 0.0
    return bool(np.isclose(float(numbers.reshape(())), wanted, close, 0))


def optionOf(view: OperatorView, name: str) -> Any:
    """An attribute or its default; axes as a tuple counted from the last, None if unknown; `use` is the operator's
    node."""
    value = view.nodes[-1]
    origin, x = value.origin, value.origin.inputs[0]
    if name == "use":
        return origin
    if name == "axes":
        axes = origin.attributes.get("axes")
        if axes is None and len(origin.inputs) > 1 and origin.inputs[1] is not None:
            axes = origin.inputs[1].numbers
        rank = value.rank if origin.type == "Unsqueeze" else x.rank
        return None if axes is None or not rank else tuple(sorted(int(a) % rank - rank for a in np.ravel(axes)))
    if name == "axis":
        axis = origin.attributes.get("axis", -1 if origin.version >= 13 else 1)
        if not x.rank or origin.version < 13 and axis % x.rank != x.rank - 1:
            return None
        return axis % x.rank - x.rank
    return origin.attributes.get(name, DEFAULTS.get(origin.type, {}).get(name))
