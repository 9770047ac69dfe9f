"""FormulaWriters: a formula as elementwise operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.base.dtype import isFloating, promoted
from puregraph.errors import GraphError
from puregraph.formula.expr import Term, lower, rebuild
from puregraph.onnx.onnxwriter import OnnxStep, kindOf, writesOnnx
from puregraph.pointwise import Pointwise

NAMES = {
    "+": "Add",
    "-": "Sub",
    "*": "Mul",
    "/": "Div",
    "neg": "Neg",
    "<": "Less",
    "<=": "LessOrEqual",
    ">": "Greater",
    ">=": "GreaterOrEqual",
    "==": "Equal",
    "and": "And",
    "or": "Or",
    "not": "Not",
    "where": "Where",
    "pow": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "abs": "Abs",
    "sign": "Sign",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "isnan": "IsNaN",
    "isinf": "IsInf",
    "sqrt": "Sqrt",
    "exp": "Exp",
    "log": "Log",
    "erf": "Erf",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "tanh": "Tanh",
    "arcsin": "Asin",
    "arccos": "Acos",
    "arctan": "Atan",
    "arcsinh": "Asinh",
    "arccosh": "Acosh",
    "arctanh": "Atanh",
}
DIRECT = {  # formulas that are one operator
    "1 / (1 + exp(-x))": "Sigmoid",
    "sigmoid(x)": "Sigmoid",
    "tanh(x)": "Tanh",
    "relu(x)": "Relu",
    "softplus(x)": "Softplus",
}


@writesOnnx(Pointwise)
def formula(step: OnnxStep) -> None:
    """Each operation of the formula as a node, equal ones once."""
    module = step.module
    direct = DIRECT.get(str(module.formula)) if len(module.order) == 1 else None
    if direct is not None and all(map(isFloating, step.indtypes)):
        step.op(direct, step.x, out=step.y)
        return
    if any(kind is None for kind in step.indtypes):
        raise GraphError("the dtype of what it is given is not known")
    inputs = iter(zip(step.inputs, step.indtypes))
    given: dict[str, Any] = {
        n: (step.param(n), getattr(module, n).dtype) if module.holds(n) else next(inputs) for n in module.order
    }
    real = promoted(kind for _, kind in given.values() if kind.kind != "b") or np.dtype(np.float32)
    Expression(step, given, real).write(rebuild(module.formula.term, {}, lower), step.dtypes[0])


class Expression:
    """The nodes of a formula; `done` are the names of its terms, with whether they are booleans."""

    def __init__(self, step: OnnxStep, given: dict[str, Any], real: Any):
        self.step, self.given, self.real = step, given, real
        self.done: dict[Term, tuple[str, bool]] = {}

    def write(self, root: Term, dtype: Any) -> None:
        """The nodes, and a last one that gives the output in its dtype."""
        name, isBool = self.named(root)
        if isBool and dtype.kind == "b" or not isBool and dtype == self.real:
            last = self.step.writer.nodes[-1] if self.step.writer.nodes else None
            if last is not None and list(last.output) == [name] and name not in self.step.inputs:
                last.output[0], last.name = self.step.y, self.step.path
            else:
                self.step.op("Identity", name, out=self.step.y)
        else:
            self.step.op("Cast", name, out=self.step.y, to=kindOf(dtype))

    def named(self, t: Term) -> tuple[str, bool]:
        """The name of a term's value."""
        if t not in self.done:
            self.done[t] = self.made(t)
        return self.done[t]

    def made(self, t: Term) -> tuple[str, bool]:
        """The nodes of a term."""
        if t.op == "number":
            return self.step.constant(t.value, self.real), False
        if t.op == "name":
            name, dtype = self.given[t.value]
            if dtype.kind == "b" or dtype == self.real:
                return name, dtype.kind == "b"
            return self.step.op("Cast", name, to=kindOf(self.real)), False
        return self.operation(t)

    def operation(self, t: Term) -> tuple[str, bool]:
        """The node of an operation."""
        if t.op == "where":
            condition, a, b = t.args
            return self.step.op("Where", self.truth(condition), self.number(a), self.number(b)), False
        if t.op in ("and", "or", "not"):
            return self.step.op(NAMES[t.op], *map(self.truth, t.args)), True
        if t.op == "!=":
            return self.step.op("Not", self.step.op("Equal", *map(self.number, t.args))), True
        if t.op == "isfinite":
            x = self.number(t.args[0])
            return self.step.op("Not", self.step.op("Or", self.step.op("IsInf", x), self.step.op("IsNaN", x))), True
        values = [self.number(a) for a in t.args]
        if t.op in NAMES:
            return self.step.op(NAMES[t.op], *values), t.op in ("<", "<=", ">", ">=", "==", "isnan", "isinf")
        return self.composed(t.op, values), False

    def composed(self, op: str, values: list[str]) -> str:
        """What ONNX has no operator for."""
        make, one = self.step.op, lambda n: self.step.constant(n, self.real)
        if op == "expm1":
            return make("Sub", make("Exp", values[0]), one(1))
        if op == "log1p":
            return make("Log", make("Add", values[0], one(1)))
        if op == "erfc":
            return make("Sub", one(1), make("Erf", values[0]))
        if op == "trunc":
            return make("Mul", make("Sign", values[0]), make("Floor", make("Abs", values[0])))
        if op == "fmod":
            return make("Mod", *values, fmod=1)
        if op in ("%", "//") and isFloating(self.real):
            quotient = make("Floor", make("Div", *values))
            return quotient if op == "//" else make("Sub", values[0], make("Mul", quotient, values[1]))
        if op == "%":
            return make("Mod", *values)
        if op == "//":
            return make("Div", make("Sub", values[0], make("Mod", *values)), values[1])
        if op == "exp2":
            return make("Pow", one(2), values[0])
        if op in ("log2", "log10"):
            return make("Div", make("Log", values[0]), one(np.log(2 if op == "log2" else 10)))
        raise GraphError(f"the function {op} has no words in ONNX")

    def truth(self, t: Term) -> str:
        """A term as a boolean."""
        name, isBool = self.named(t)
        return name if isBool else self.step.op("Cast", name, to=kindOf(np.dtype(bool)))

    def number(self, t: Term) -> str:
        """A term as a number."""
        name, isBool = self.named(t)
        return self.step.op("Cast", name, to=kindOf(self.real)) if isBool else name
