"""Describe: write a step as formulas over the names of values."""

from __future__ import annotations

import operator
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.compile.gradientbuckets import BucketStart
from puregraph.compile.passes.nestlines import formulas
from puregraph.compile.trace.updaterule import CountStep, OpaqueOptimizer, UpdateScalars
from puregraph.ops.formula import Formula
from puregraph.ops.formula.expr import Term, leaf, rebuild, term, walk
from puregraph.ops.formula.formula import formulaOf
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.ir.value import Call, Value, put, text
from puregraph.ops.native.llvm.kernelcall import KernelCall

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

BRIEF = 12  # most letters of a term that may be repeated
MAX_FORMULA_LETTERS = 80  # longer formulas are written below the table
MAX_LISTED_ARGUMENTS = 8  # most arguments that are all listed
TRANSPOSES = (np.transpose, np.swapaxes, np.moveaxis)
NAMED = {np.flip: "flip", np.diagonal: "diagonal"}  # views that are shown by name
ALONE = re.compile(r"(^|\(|, )\(([^()]+ @ [^()]+)\)(?=,|\)|$)")  # a product that needs no parentheses
PREPARING = ("packweights", "packedmatrix", "copy")  # kernels that prepare operands of another one


class StepText(NamedTuple):
    """The text of a call: the values it computes that others read, and a formula."""

    path: str
    values: list[Value]
    text: str


class Describer:
    """Describes the steps of one schedule; values without a name are called t1, t2, ... in order of appearance.

    `rules` are the formulas written once below the table: update rules, which most parameters share, and long formulas.
    """

    def __init__(self, schedule: Schedule):
        self.held = {id(target): value for target, value in schedule.held}
        self.marks: dict[int, str] = {}
        self.rules: dict[str, str] = {}
        self.known: dict[int, Term] = {}
        self.path = ""

    def lines(self, call: Call) -> list[StepText]:
        """The lines of a step: one for each result, and one for each term that several results share."""
        calls = call.function.calls if call.kind.isNative else [call]
        stored = {y.number for y in call.outs if y is not None}
        uses = Counter(v.root.number for c in calls for v in c.values())
        self.known, texts = {}, []
        for c in calls:
            self.path = c.origin.path
            if c.origin.phase == "update" and isinstance(c.function, Interpreter):
                texts.append(self.update(c))
                continue
            for ys, t in self.results(c):
                y = ys[0] if ys else None
                isUsed = any(value.number in stored for value in ys)
                if y is not None and not isUsed and (uses[y.number] < 2 or isBrief(t)):
                    self.known[y.number] = t
                    continue
                left = ", ".join(map(self.nameOf, ys))
                texts.append(StepText(self.path, ys, f"{left} = {written(t)}" if left else written(t)))
                self.known.update((value.number, leaf(self.nameOf(value))) for value in ys)
        return texts

    # Calls ----------------------------------------------------------------------------------------------------------

    def results(self, call: Call) -> list[tuple[list[Value], Term]]:
        """The results of a call as terms; values with the same term are grouped."""
        made = [y for y in call.outs if y is not None and y.role != "object"]
        elementwise = formulas(call) if call.kind.isElementwise else None
        if elementwise:
            read, lines = elementwise
            operands = {leaf(n): self.term(v) for n, v in read.items()}
            terms = [rebuild(f.term, operands, term) if isShort(f.term) else self.noted(read, f) for f in lines]
            return [([y], t) for y, t in zip(call.outs, terms)]
        return [(made, self.callTerm(call))]

    def noted(self, read: dict[str, Value], formula: Formula) -> Term:
        """A long formula, replaced by a name that is defined below the table."""
        letters = dict(zip(dict.fromkeys(read.values()), "xyzuvw"))
        plain = {leaf(n): leaf(letters[v]) for n, v in read.items()}
        name = self.ruled(f"({', '.join(letters.values())}) = {written(rebuild(formula.term, plain, term))}", "f")
        return leaf(f"{name}({', '.join(map(self.text, letters))})")

    def callTerm(self, call: Call) -> Term:
        """The term of a call that is not a formula."""
        function, arguments = call.function, call.arguments
        if call.kind.isContraction and function is np.matmul:
            return leaf(f"({' @ '.join(self.factor(v) for v in arguments)})")
        if call.kind.isFill:
            return leaf(f"{arguments[0]:.6g}")
        if call.kind.isHost:
            return leaf(hosted(call))
        if call.kind.isStore:
            held = self.held.get(id(call.options["target"]))
            return leaf(f"{'gradient' if held is None else self.nameOf(held)} = {self.text(arguments[0])}")
        if function is put:
            before = self.text(arguments[0]) if type(arguments[0]) is Value else f"{arguments[0]:.6g}"
            return leaf(f"put({before}, [{keyText(arguments[1])}], {self.text(arguments[2])})")
        values = [self.text(v) for v in call.values()]
        if len(values) > MAX_LISTED_ARGUMENTS:
            values = [*values[: MAX_LISTED_ARGUMENTS // 2], "...", values[-1]]
        if call.kind.isReduction:
            axis = call.options.get("axis", arguments[1] if len(arguments) > 1 else None)
            axis = axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis
            values += [] if axis is None else [text(axis)]
        return leaf(f"{call.name.removesuffix('.reduce')}({', '.join(values)})")

    def ruled(self, text: str, label: str) -> str:
        """The name of a formula whose definition is below the table."""
        if text not in self.rules:
            count = sum(name.rstrip("0123456789") == label for name in self.rules.values())
            self.rules[text] = f"{label}{count + 1}" if count else label
        return self.rules[text]

    def notes(self) -> list[str]:
        """The definitions below the table."""
        return [name + text for text, name in self.rules.items()]

    def update(self, call: Call) -> StepText:
        """The update of a parameter, by the name of a rule below the table."""
        names = [y.name for y in call.outs]
        grad = next((v for n, v in zip(call.function.names, call.arguments) if n == "grad"), None)
        lines: list[str] = []
        done: dict[Any, Any] = {}
        for name, t in zip(names, call.function.terms):
            lines.append(f"{name} = {written(rebuild(t, done, term))}")
            if leaf(name) not in walk(t) or name != "param":
                done[t] = leaf(name)
        rule = self.ruled(f": {'; '.join(lines)}", call.origin.label)
        gradText = "" if grad is None else self.text(grad)
        return StepText(self.path, list(call.outs), f"{', '.join(names)} = {rule}({gradText})")

    # Values ---------------------------------------------------------------------------------------------------------

    def term(self, v: Value) -> Term:
        """A value as a part of a formula."""
        if v.number in self.known:
            return self.known[v.number]
        made = v.call
        if v.base is not None and not v.name and made is not None and type(made.arguments[0]) is Value:
            inner = self.term(made.arguments[0])
            if made.function in TRANSPOSES:
                strong = bound(inner)
                isBack = v.ndim == 2 and strong.endswith(".T")
                return leaf(strong.removesuffix(".T") if isBack else f"{strong}.T")
            if made.function is operator.getitem:
                key = keyText(made.arguments[1])
                return leaf(f"{bound(inner)}[{key}]") if key else inner
            return leaf(f"{NAMED[made.function]}({written(inner)})") if made.function in NAMED else inner
        if v.role == "constant":
            return leaf(float(v.source.item())) if v.size == 1 and v.dtype.kind in "fiub" else leaf("constant")
        return leaf(self.nameOf(v))

    def text(self, v: Value) -> str:
        """A value as an argument."""
        return written(self.term(v))

    def factor(self, v: Value) -> str:
        """A value as a factor of a product."""
        return bound(self.term(v))

    def nameOf(self, v: Value) -> str:
        """The name of a value, without the prefix that it shares with the path of the step.

        x.dx is the gradient of the input of node x, x.dy the gradient of its output.
        """
        if not v.name:
            return self.marks.setdefault(v.number, f"t{len(self.marks) + 1}")
        kind, _, name = v.name.rpartition(":")
        parts, pathParts = name.split("."), self.path.rpartition(":")[2].split(".")
        if pathParts[0] in parts:
            parts = parts[parts.index(pathParts[0]) :]
        isNear = parts[0] == pathParts[0]
        while len(parts) > 1 and pathParts and parts[0] == pathParts[0]:
            parts, pathParts = parts[1:], pathParts[1:]
        if kind == "grad" and v.call is not None and v.call.origin.path == v.name:
            parts = [*parts, "dx"]
        elif kind in ("sum", "d"):
            parts = [*parts, "dy"]
        return ".".join(parts if isNear else parts[-2:])


def isBrief(t: Term) -> bool:
    """True if a term is short enough to be repeated at each reader."""
    return len(written(t)) <= BRIEF


def isShort(t: Term) -> bool:
    """True if a formula is short enough to be written inline."""
    return len(written(t)) <= MAX_FORMULA_LETTERS


def written(t: Term) -> str:
    """A term as text, with constants of six digits."""
    numbers = {constant: leaf(rounded(constant.value)) for constant in walk(t) if constant.op == "number"}
    return ALONE.sub(r"\1\2", str(formulaOf(rebuild(t, numbers, term))))


def rounded(number: object) -> float:
    """A number in short form."""
    near = float(f"{number:.6g}")
    return int(near) if near.is_integer() and abs(near) < 1e6 else near


def bound(t: Term) -> str:
    """A term as text, in parentheses if it needs them as an operand."""
    plain = written(t)
    return f"({plain})" if t.args or " " in plain and not plain.endswith(")") or " @ " in plain else plain


def keyText(key: object) -> str:
    """An index in Python notation, without trailing full slices."""
    parts = list(key) if isinstance(key, tuple) else [key]
    while parts and (parts[-1] is Ellipsis or parts[-1] == slice(None)):
        parts.pop()
    if all(k is None or k is Ellipsis or k == slice(None) for k in parts):
        return ""
    return ", ".join(":" if k == slice(None) else text(k) for k in parts)


def hosted(call: Call) -> str:
    """A Python call between two parts of a step."""
    function = call.function
    if isinstance(function, UpdateScalars):
        return f"{', '.join(dict.fromkeys(name for _, name, _ in function.numbers))} of this update"
    if isinstance(function, CountStep):
        return "the update is counted"
    if isinstance(function, OpaqueOptimizer):
        return f"{type(function.optimizer).__name__}.update()"
    if isinstance(function, BucketStart):
        return f"{len(call.arguments)} gradients are sent"
    return call.name


def by(call: Call) -> str:
    """The name of a step's kernel: the first that does more than prepare operands, with a + if there are more.

    "bf16" follows if it multiplies bfloat16.
    """
    if isinstance(call.function, BucketStart) and call.function.buckets.device is not None:
        return "NCCL"
    if not call.kind.isNative:
        return "Python" if call.kind.isHost or call.kind.isOpaque else "numpy"
    names = dict.fromkeys(w.by for w in call.function.works)
    first, *others = [n for n in names if n not in PREPARING] or list(names) or ["nothing"]
    halves = " bf16" if any(isinstance(w, KernelCall) and w.halves for w in call.function.works) else ""
    return f"{first}{'+' if others else ''}{halves}"
