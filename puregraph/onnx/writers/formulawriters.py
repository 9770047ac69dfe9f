"""FormulaWriters: a formula as elementwise operators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from puregraph.core.base.dtype import isFloating, promoted
from puregraph.core.errors import GraphError
from puregraph.graph.pointwise import Pointwise
from puregraph.onnx.onnxwriter import OnnxStep, kindOf, writesOnnx
from puregraph.ops.formula.expr import Term, leaf, lower, read, rebuild, term, walk
from puregraph.ops.formula.formula import formulaOf, numpyFrom
from puregraph.ops.formula.optable import LOGICAL, TABLE, series

KEPT = {name for name, row in TABLE.items() if row.onnx and isinstance(row.numpy, str)}
DIRECT = {  # formulas that are one operator
    "1 / (1 + exp(-x))": "Sigmoid",
    "tanh(x)": "Tanh",
    "relu(x)": "Relu",
}

# minimax polynomial of degree 14, to 3e-10, of log(erfcx(u) / t) in 2 t - 1, with t = 2 / (2 + u)
TAIL = """
-0.6717940841603574 0.6726432205460096 0.0473433203673824 -0.046895482161018284 -0.00987298045936322
0.008823558177799494 0.0017613393650599215 -0.002339277724519433 -0.00015613427417103567 0.0006579538485008299
-7.119731174529279e-05 -0.00015463379140443504 4.1795896072937485e-05 2.0723071137511583e-05 -8.121255095289192e-06
"""
# Lanczos 1964 of order 9 and g = 7, to 15 digits; Giles 2010, to 7 digits, in powers of the shifted argument
GAMMAS = """
676.5203681218851 -1259.1392167224028 771.32342877765313 -176.61502916214059 12.507343278686905 -0.13857109526572012
9.9843695780195716e-6 1.5056327351493116e-7
"""
CENTRE = """
1.50140941 0.246640727 -0.00417768164 -0.00125372503 0.00021858087 -4.39150654e-06 -3.5233877e-06 3.43273939e-07
2.81022636e-08
"""
FAR = """
2.83297682 1.00167406 0.00943887047 -0.0076224613 0.00573950773 -0.00367342844 0.00134934322 0.000100950558
-0.000200214257
"""
# of x with m = |x|, q = 1 - m, w = -log(q (1 + m)), times s; far out one step of Newton for log(erfc(y)) = log(q)
QUANTILE = f"""
    p = w < 5; c = where(p, w, 0) - 2.5; f = sqrt(where(p, 9, where(w == inf, 9, w))) - 3;
    v = m * {series([*map(float, FAR.split())], "f")}; k = erfcx(v);
    y = sign(x) * (v + (log(k) - v * v - log(where(p, 1, q))) * k * sqrt(pi) / 2);
    s * where(w == inf, where(x < 0, -inf, inf), where(p, x * {series([*map(float, CENTRE.split())], "c")}, y))
"""
WORDS = {  # functions without an ONNX operator; -0 counts as 0
    "expm1": "exp(a) - 1",
    "log1p": "log(a + 1)",
    "exp2": "2 ** a",
    "log2": "log(a) / log(2)",
    "log10": "log(a) / log(10)",
    "erfc": "1 - erf(a)",
    "trunc": "sign(a) * floor(abs(a))",
    "copysign": "where(b < 0, -abs(a), abs(a))",
    "cbrt": "sign(a) * abs(a) ** (1 / 3)",
    "hypot": """
        m = maximum(abs(a), abs(b)); n = minimum(abs(a), abs(b)); p = m == inf; f = where(p, 0, m);
        s = where(f == 0, 1, f); where(p, m, f * sqrt(1 + (n / s) ** 2))
    """,
    "atan2": """
        p = abs(a) > abs(b); n = where(p, b, a); d = where(p, a, b); s = where(d == 0, 1, d);
        r = arctan(where(d == 0, 0, where(abs(n) == inf, sign(n) * sign(d), n / s)));
        where(p, where(a < 0, -pi / 2, pi / 2) - r, where(b < 0, where(a < 0, -pi, pi), 0) + r)
    """,
    "erfcx": f"""
        u = where(a < 0, -a, a); t = 2 / (2 + u); s = 2 * t - 1;
        y = t * exp({series([*map(float, TAIL.split())], "s")});
        where(a < 0, 2 * exp(minimum(a, 0) ** 2) - y, y)
    """,
    "lgamma": f"""
        p = a < 0.5; z = where(p, -a, a - 1); t = z + 7.5;
        s = {" + ".join(f"({g}) / (z + {i})" for i, g in enumerate(GAMMAS.split(), 1))};
        y = log(2 * pi) / 2 + (z + 0.5) * log(t) - t + log(0.99999999999980993 + s);
        where(abs(a) == inf, inf, where(p, log(pi / abs(sin(pi * (a - floor(a))))) - y, y))
    """,
    "digamma": f"""
        p = a < 0.5; z = where(p, 1 - a, a); w = z + 6; u = 1 / (w * w);
        s = {" + ".join(f"1 / (z + {i})" for i in range(6))};
        y = log(w) - 0.5 / w - u * (1 / 12 - u * (1 / 120 - u * (1 / 252 - u * (1 / 240 - u / 132)))) - s;
        where(p, y - pi / tan(pi * (a - floor(a))), y)
    """,
    "erfinv": f"\n    x = a; m = abs(a); q = 1 - m; w = -log(q * (1 + m)); s = 1; {QUANTILE}",
    "ndtri": f"""
    x = 2 * a - 1; m = abs(x); q = 2 * minimum(a, 1 - a); w = -log(4 * a * (1 - a)); s = sqrt(2); {QUANTILE}
    """,
}


@writesOnnx(Pointwise)
def formula(step: OnnxStep) -> None:
    """Each operation of the formula as a node; equal ones are shared."""
    module = step.module
    direct = DIRECT.get(str(module.formula)) if len(module.order) == 1 else None
    if direct is not None and all(map(isFloating, step.indtypes)):
        step.op(direct, step.x, out=step.y)
        return
    if any(kind is None for kind in step.indtypes):
        raise GraphError("the dtype of an input is not known")
    inputs = iter(zip(step.inputs, step.indtypes))
    operands: dict[str, Any] = {
        n: (step.param(n), getattr(module, n).dtype) if module.holds(n) else next(inputs) for n in module.order
    }
    real = computedType([module.formula.term], {name: kind for name, (_, kind) in operands.items()})
    Expression(step, operands, real).write(spelled(module.formula), step.dtypes[0])


def computedType(roots: Iterable[Term], operands: dict[str, Any]) -> Any:
    """The dtype that terms are written in: a float if any of their operations gives floats of integers."""
    kind = promoted(dtype for dtype in operands.values() if dtype.kind != "b")
    if kind is not None and kind.kind not in "iu":
        return kind
    formulas = [formulaOf(t) for t in walk(*roots)]
    results = numpyFrom(formulas, tuple(operands)).plan(tuple(operands.values())).results
    floats = promoted(dtype for dtype in results if isFloating(dtype))
    return floats or kind or np.dtype(np.float32)


def spelled(formula: Any) -> Term:
    """The term of a formula, written in functions that ONNX has."""
    return rebuild(rebuild(formula.term, {}, opened), {}, words)


def opened(op: str, *args: Term) -> Term:
    """A function expanded by its definition, unless an operator for it keeps more digits."""
    return term(op, *args) if op in KEPT else lower(op, *args)


def words(op: str, *args: Term) -> Term:
    """A function, written in functions that ONNX has."""
    if op == "log1p" and args[0].op == "exp":
        return term("softplus", *args[0].args)
    text = WORDS.get(op)
    if text is None:
        return opened(op, *args)
    return rebuild(read(text), dict(zip(map(leaf, "ab"), args)), words)


class Expression:
    """The nodes of a formula; `done` maps its terms to names, and whether they are booleans."""

    def __init__(self, step: OnnxStep, operands: dict[str, Any], real: Any):
        self.step, self.operands, self.real = step, operands, real
        self.done: dict[Term, tuple[str, bool]] = {}

    def write(self, root: Term, dtype: Any) -> None:
        """Write the nodes; the last one computes the step's output in its dtype."""
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
        """The name of a term's value, and whether it is a boolean; its nodes are written once."""
        if t not in self.done:
            self.done[t] = self.made(t)
        return self.done[t]

    def made(self, t: Term) -> tuple[str, bool]:
        """Write the nodes of a term."""
        if t.op == "number":
            return self.step.constant(t.value, self.real), False
        if t.op == "name":
            name, dtype = self.operands[t.value]
            if dtype.kind == "b" or dtype == self.real:
                return name, dtype.kind == "b"
            return self.step.op("Cast", name, to=kindOf(self.real)), False
        return self.operation(t)

    def operation(self, t: Term) -> tuple[str, bool]:
        """Write the nodes of an operation."""
        if t.op == "where":
            condition, a, b = t.args
            return self.step.op("Where", self.truth(condition), self.number(a), self.number(b)), False
        kind = TABLE[t.op].onnx
        if kind and t.op in ("and", "or", "not"):
            return self.step.op(kind, *map(self.truth, t.args)), True
        if t.op == "!=" and all(self.named(a)[1] for a in t.args):
            return self.step.op("Xor", *map(self.truth, t.args)), True
        if t.op == "!=":
            return self.step.op("Not", self.step.op("Equal", *map(self.number, t.args))), True
        if t.op == "isfinite":
            x = self.number(t.args[0])
            return self.step.op("Not", self.step.op("Or", self.step.op("IsInf", x), self.step.op("IsNaN", x))), True
        values = [self.number(a) for a in t.args]
        if kind:
            return self.step.op(kind, *values), t.op in LOGICAL
        return self.composed(t.op, values), False

    def composed(self, op: str, values: list[str]) -> str:
        """A function without an ONNX operator, composed of others."""
        make = self.step.op
        if op == "fmod":
            return make("Mod", *values, fmod=1)
        if op in ("%", "//") and isFloating(self.real):
            return self.floored(op, *values)
        if op == "%":
            return make("Mod", *values)
        if op == "//":
            return make("Div", make("Sub", values[0], make("Mod", *values)), values[1])
        raise GraphError(f"the function {op} has no ONNX equivalent")

    def floored(self, op: str, a: str, b: str) -> str:
        """The remainder of floats with the sign of b, or the quotient that goes with it, as numpy computes them."""
        make, zero = self.step.op, self.step.constant(0, self.real)
        remainder = make("Mod", a, b, fmod=1)
        isOther = make("Xor", make("Less", remainder, zero), make("Less", b, zero))
        isOther = make("And", make("Not", make("Equal", remainder, zero)), isOther)
        if op == "%":
            return make("Where", isOther, make("Add", remainder, b), remainder)
        quotient = make("Round", make("Div", make("Sub", a, remainder), b))
        quotient = make("Where", isOther, make("Sub", quotient, self.step.constant(1, self.real)), quotient)
        return make("Where", make("Equal", b, zero), make("Div", a, b), quotient)

    def truth(self, t: Term) -> str:
        """A term as a boolean."""
        name, isBool = self.named(t)
        return name if isBool else self.step.op("Cast", name, to=kindOf(np.dtype(bool)))

    def number(self, t: Term) -> str:
        """A term as a number."""
        name, isBool = self.named(t)
        return self.step.op("Cast", name, to=kindOf(self.real)) if isBool else name
