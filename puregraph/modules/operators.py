"""Operators: arithmetic and slicing written with nodes, `2 * a - b[:, 0]`, makes nodes.

A number becomes a constant of a formula. They are put onto Node here, because Node stands below all modules and knows
none of them.
"""

from numbers import Integral, Real

from puregraph.errors import GraphError
from puregraph.modules.add import Add
from puregraph.modules.div import Div
from puregraph.modules.matmul import MatMul
from puregraph.modules.mul import Mul
from puregraph.modules.muladdconst import MulAddConst
from puregraph.modules.power import Power
from puregraph.modules.slice import Slice
from puregraph.modules.sub import Sub
from puregraph.node import Node
from puregraph.pointwise import Pointwise

# Sign, and what makes the module for two nodes, for a number on the right, and for one on the left.
OPERATORS = {
    "add": ("+", Add, lambda c: MulAddConst(b=c), lambda c: MulAddConst(b=c)),
    "sub": ("-", Sub, lambda c: MulAddConst(b=-c), lambda c: MulAddConst(a=-1.0, b=c)),
    "mul": ("*", Mul, lambda c: MulAddConst(a=c), lambda c: MulAddConst(a=c)),
    "truediv": ("/", Div, lambda c: Pointwise(formula="x / c", c=c), lambda c: Pointwise(formula="c / x", c=c)),
    "pow": ("**", lambda: Pointwise(formula="a ** b"), Power, lambda c: Pointwise(formula="c ** x", c=c)),
    "matmul": ("@", MatMul, None, None),
}


def operand(value, sign):
    """A node, or `(node, slot)`, that carries one value; None for what is neither.

    Raises    GraphError for a node of several outputs, and for an array
    """
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], Node):
        return value
    if not isinstance(value, Node):
        if hasattr(value, "shape"):
            raise GraphError(f"{sign} takes nodes and numbers, got an array: give it to the graph through an Input")
        return None
    names = value.module.outputNames
    if len(names) != 1:
        raise GraphError(
            f"{sign} takes one value, and '{value}' ({value.label}) has {len(names)} outputs ({', '.join(names)}): "
            f"pick one with Identity().node(({value}, {names[0]!r}))"
        )
    return value


def install(name, sign, both, right, left):
    """Give Node one operator and its reflected version."""

    def combine(node, other, number, join):
        node = operand(node, sign)
        if number and isinstance(other, Real) and not isinstance(other, bool):
            return number(int(other) if isinstance(other, Integral) else float(other)).node(node)
        other = operand(other, sign)
        return NotImplemented if other is None else join(node, other)

    setattr(Node, f"__{name}__", lambda self, other: combine(self, other, right, lambda a, b: both().node(a, b)))
    setattr(Node, f"__r{name}__", lambda self, other: combine(self, other, left, lambda a, b: both().node(b, a)))


for each, row in OPERATORS.items():
    install(each, *row)

Node.__neg__ = lambda self: MulAddConst(a=-1.0).node(operand(self, "-"))
Node.__getitem__ = lambda self, slc: Slice(slc).node(operand(self, "[]"))
Node.__iter__ = None  # a node that can be sliced would otherwise seem to have endlessly many elements
Node.__array_ufunc__ = None  # numpy leaves `np.float32(2) * node` to the node
