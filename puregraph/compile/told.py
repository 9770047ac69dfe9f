"""Told: what a step does, as formulas of the names of values."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from puregraph.compile.fuse import formulas
from puregraph.compile.targets import GradientOf
from puregraph.compile.update import Finish, Foreign, Prelude
from puregraph.compile.value import Call, Value, put, text
from puregraph.evaluator import Evaluator
from puregraph.formula import formulaOf
from puregraph.terms import Term, leaf, rebuild, term, walk

BRIEF = 12  # letters of what may be written twice
TURNED = (np.transpose, np.swapaxes, np.moveaxis)
NAMED = {np.flip: "flip", np.diagonal: "diagonal"}  # views whose name says something
PREPARING = ("packing", "pack", "move")  # works that another one needs


class Line(NamedTuple):
    """What a call of a step says: the values that it makes and somebody reads, and a text."""

    path: str
    values: list[Value]
    text: str


class Teller:
    """Tells the steps of one schedule; values without a name are called t1, t2, ... in the order in which they come.

    `rules` are the formulas of updates, which are the same for most parameters: (name, text).
    """

    def __init__(self) -> None:
        self.marks: dict[int, str] = {}
        self.rules: dict[tuple[str, ...], str] = {}
        self.known: dict[int, Term] = {}
        self.path = ""

    def lines(self, call: Call) -> list[Line]:
        """The lines of a step: a result each, and what several of them read."""
        calls = call.function.calls if call.kind == "native" else [call]
        stored = {y.number for y in call.outs if y is not None}
        uses = Counter(v.root.number for c in calls for v in c.values())
        self.known, found = {}, []
        for c in calls:
            self.path = c.place.path
            if c.place.phase == "update" and isinstance(c.function, Evaluator):
                found.append(self.update(c))
                continue
            for ys, t in self.results(c):
                y = ys[0] if ys else None
                isLine = y is None or any(each.number in stored for each in ys) or uses[y.number] > 1 and not isBrief(t)
                if not isLine:
                    self.known[y.number] = t
                    continue
                left = ", ".join(map(self.nameOf, ys))
                found.append(Line(self.path, ys, f"{left} = {written(t)}" if left else written(t)))
                self.known.update((each.number, leaf(self.nameOf(each))) for each in ys)
        return found

    # Calls ----------------------------------------------------------------------------------------------------------

    def results(self, call: Call) -> list[tuple[list[Value], Term]]:
        """What a call makes, as terms; several values of one term come together."""
        made = [y for y in call.outs if y is not None and y.role != "object"]
        found = formulas(call) if call.kind == "pointwise" else None
        if found:
            given = {leaf(f"v{v.number}"): self.term(v) for v in call.values()}
            return [([y], rebuild(f.term, given, term)) for y, f in found]
        return [(made, self.whole(call))]

    def whole(self, call: Call) -> Term:
        """A call that is no formula."""
        function, given = call.function, call.arguments
        if call.kind == "product" and function is np.matmul:
            return leaf(f"({' @ '.join(self.factor(v) for v in given)})")
        if call.kind == "fill":
            return leaf(f"{given[0]:.6g}")
        if call.kind == "host":
            return leaf(hosted(call))
        if call.kind == "store":
            kind = "gradient" if isinstance(call.options["target"], GradientOf) else "state"
            return leaf(f"{self.text(given[0])} -> {kind}")
        if function is put:
            before = self.text(given[0]) if type(given[0]) is Value else f"{given[0]:.6g}"
            return leaf(f"put({before}, [{keyText(given[1])}], {self.text(given[2])})")
        values = [self.text(v) for v in call.values()]
        if call.kind == "reduce":
            axis = call.options.get("axis", given[1] if len(given) > 1 else None)
            values += [] if axis is None else [text(axis)]
        return leaf(f"{call.name.removesuffix('.reduce')}({', '.join(values)})")

    def update(self, call: Call) -> Line:
        """What an optimizer does with a parameter: the rule stands below the table."""
        names = [y.name for y in call.outs]
        grad = next((v for n, v in zip(call.function.names, call.arguments) if n == "grad"), None)
        lines, done = [], {}
        for name, t in zip(names, call.function.terms):
            lines.append(f"{name} = {written(rebuild(t, done, term))}")
            if leaf(name) not in walk(t) or name != "param":
                done[t] = leaf(name)
        number = self.rules.setdefault(tuple(lines), f"{call.place.label}{len(self.rules) + 1 if self.rules else ''}")
        given = "" if grad is None else self.text(grad)
        return Line(self.path, list(call.outs), f"{', '.join(names)} = {number}({given})")

    # Values ---------------------------------------------------------------------------------------------------------

    def term(self, v: Value) -> Term:
        """A value as a part of a formula."""
        if v.number in self.known:
            return self.known[v.number]
        made = v.call
        if v.base is not None and not v.name and made is not None and type(made.arguments[0]) is Value:
            inner = self.term(made.arguments[0])
            if made.function in TURNED:
                return leaf(f"{bound(inner)}.T")
            if made.function is operator.getitem:
                key = keyText(made.arguments[1])
                return leaf(f"{bound(inner)}[{key}]") if key else inner
            return leaf(f"{NAMED[made.function]}({written(inner)})") if made.function in NAMED else inner
        if v.role == "constant":
            return leaf(float(v.source)) if v.size == 1 and v.dtype.kind in "fiub" else leaf("constant")
        return leaf(self.nameOf(v))

    def text(self, v: Value) -> str:
        """A value as an argument."""
        return written(self.term(v))

    def factor(self, v: Value) -> str:
        """A value as a factor of a product."""
        return bound(self.term(v))

    def nameOf(self, v: Value) -> str:
        """The name of a value, without what it has in common with the path of the step."""
        if not v.name:
            return self.marks.setdefault(v.number, f"t{len(self.marks) + 1}")
        isGrad, parts = v.name.startswith("grad:"), v.name.removeprefix("grad:").split(".")
        own = self.path.removeprefix("grad:").split(".")
        while len(parts) > 1 and own and parts[0] == own[0]:
            parts, own = parts[1:], own[1:]
        if isGrad and v.call is not None and v.call.place.path == v.name:
            parts = [*parts[:-1], f"{parts[-1]}.dx"]
        return ".".join(parts)


def isBrief(t: Term) -> bool:
    """Whether a term is short enough to be written wherever it is read."""
    return len(written(t)) <= BRIEF


def written(t: Term) -> str:
    """A term as text, its numbers to six digits."""
    numbers = {each: leaf(rounded(each.value)) for each in walk(t) if each.op == "number"}
    found = str(formulaOf(rebuild(t, numbers, term)))
    return found[1:-1] if t.op == "name" and found.startswith("(") and found.endswith(")") else found


def rounded(number: Any) -> Any:
    """A number as one reads it."""
    near = float(f"{number:.6g}")
    return int(near) if near.is_integer() and abs(near) < 1e6 else near


def bound(t: Term) -> str:
    """A term as text that binds strongly."""
    found = written(t)
    return f"({found})" if t.args or " " in found and not found.endswith(")") or " @ " in found else found


def keyText(key: Any) -> str:
    """An index as one writes it, without a tail that takes all."""
    parts = list(key) if isinstance(key, tuple) else [key]
    while parts and (parts[-1] is Ellipsis or parts[-1] == slice(None)):
        parts.pop()
    if all(k is None or k is Ellipsis or k == slice(None) for k in parts):
        return ""
    return ", ".join(":" if k == slice(None) else text(k) for k in parts)


def hosted(call: Call) -> str:
    """What Python does between two parts of a step."""
    function = call.function
    if isinstance(function, Prelude):
        return f"{', '.join(dict.fromkeys(name for _, name, _ in function.numbers))} of this update"
    if isinstance(function, Finish):
        return "the update is counted"
    if isinstance(function, Foreign):
        return f"{type(function.optimizer).__name__}.update()"
    return call.name


def by(call: Call) -> str:
    """What carries a step out."""
    if call.kind != "native":
        return "Python" if call.kind in ("host", "rule") else "numpy"
    names = dict.fromkeys(getattr(w.write, "func", w.write).__module__.rpartition(".")[2] for w in call.function.works)
    return "+".join([n for n in names if n not in PREPARING] or names)
