"""Pattern: the graph of small operators that one module is composed of, written as a formula in ONNX's operators."""

from __future__ import annotations

import ast
from functools import cache
from typing import Any, NamedTuple

ARITHMETIC = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Pow: "Pow"}
FORMS = frozenset(ARITHMETIC.values())  # operators that may be written as others
CHAINS = ("Add", "Mul")  # operators that match in any order and grouping


class PatternTerm(NamedTuple):
    """An operator with its operands, a "number", a value that is "known" ahead of data, or "any" value.

    `name` is the name bound to a value; `options` are attributes: a number must equal that in the file, a name is bound
    to it.
    """

    op: str
    args: tuple[PatternTerm, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    name: str = ""
    number: float = 0.0


class Pattern:
    """The graph of operators that a text describes.

        x * Sigmoid(Known(beta) * x)
        x / Sqrt(ReduceMean(x ** 2, axes=axes, keepdims=1) + Known(epsilon))

    A name matches any value, the same one wherever it occurs; `Known(name)` matches a value known ahead of data, and a
    number an array of one element equal to it. Sums and products match in any order and grouping. Subtracting a number
    counts as a sum, dividing by one as a product, `x * x` as `x ** 2`. Other calls are operators, attributes by name.
    """

    def __init__(self, text: str):
        self.text = text
        self.root = parsed(ast.parse(text.strip(), mode="eval").body)
        self.size = count(self.root)
        self.kinds = frozenset(kindsOf(self.root)) - FORMS


def kindsOf(term: PatternTerm) -> list[str]:
    """The operators in a term."""
    kinds = [] if term.op in ("any", "known", "number") else [term.op]
    return kinds + [kind for argument in term.args for kind in kindsOf(argument)]


def count(term: PatternTerm) -> int:
    """The number of operators in a term."""
    return sum(map(count, term.args)) + (term.op not in ("any", "known", "number"))


@cache
def number(value: float) -> PatternTerm:
    """A number."""
    return PatternTerm("number", number=float(value))


def parsed(node: Any) -> PatternTerm:
    """The term of an expression.

    Raises    SyntaxError for text that is not a pattern
    """
    if isinstance(node, ast.Name):
        return PatternTerm("any", name=node.id)
    if isinstance(node, ast.Constant):
        return number(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = parsed(node.operand)
        return number(-inner.number) if inner.op == "number" else chain("Mul", (inner, number(-1)))
    if isinstance(node, ast.BinOp):
        return arithmetic(ARITHMETIC[type(node.op)], parsed(node.left), parsed(node.right))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise SyntaxError(f"a pattern has operators, names and numbers, not {ast.unparse(node)}")
    args = tuple(map(parsed, node.args))
    if node.func.id == "Known":
        return PatternTerm("known", name=args[0].name)
    options = tuple((str(word.arg), optionFrom(word.value)) for word in node.keywords)
    return PatternTerm(node.func.id, args, options)


def optionFrom(node: Any) -> Any:
    """The name that an attribute is bound to, or the number that it must equal."""
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def arithmetic(op: str, a: PatternTerm, b: PatternTerm) -> PatternTerm:
    """A term of two operands, in the form that `matching.forms` gives values of the file."""
    if op == "Sub" and b.op == "number":
        return chain("Add", (a, number(-b.number)))
    if op == "Div" and b.op == "number":
        return chain("Mul", (a, number(1 / b.number)))
    return chain(op, (a, b)) if op in CHAINS else PatternTerm(op, (a, b))


def chain(op: str, args: tuple[PatternTerm, ...]) -> PatternTerm:
    """A sum or product, with all nested terms as operands."""
    flat = [inner for a in args for inner in (a.args if a.op == op else (a,))]
    return PatternTerm(op, tuple(flat))
