"""Operators: arithmetic, comparisons and slicing written with nodes, `2 * a - b[:, 0]`, makes nodes.

A number becomes a constant of a formula. `==` is True if both are the same node; Equal compares values. Node, a lower
layer that imports no modules, names these functions and loads them when one is first used.
"""

from numbers import Integral, Real

import numpy as np

from puregraph.core.errors import ArgumentError, GraphError
from puregraph.core.foreign import ATTRIBUTES
from puregraph.graph.node import Node
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.arithmetic import Add, Div, Mod, Mul, MulAddConst, Power, Sub
from puregraph.modules.comparison import And, Greater, GreaterEqual, Less, LessEqual, Not, Or, Xor
from puregraph.modules.identity import Identity
from puregraph.modules.product import MatMul
from puregraph.modules.slice import Slice


def operand(value, sign):
    """Return an operand if it is a node of one output, or `(node, slot)`; None for other values.

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


def operator(sign, both, right, left):
    """Return an operator and its reflected version. `both`, `right` and `left` make the module: for two nodes, for a
    number on the right, and for one on the left."""

    def combine(node, other, number, join):
        node = operand(node, sign)
        if number and isinstance(other, Real) and not isinstance(other, bool):
            return number(int(other) if isinstance(other, Integral) else float(other)).node(node)
        other = operand(other, sign)
        return NotImplemented if other is None else join(node, other)

    def plain(self, other):
        return combine(self, other, right, lambda a, b: both().node(a, b))

    def reflected(self, other):
        return combine(self, other, left, lambda a, b: both().node(b, a))

    return plain, reflected


add, radd = operator("+", Add, lambda c: MulAddConst(b=c), lambda c: MulAddConst(b=c))
sub, rsub = operator("-", Sub, lambda c: MulAddConst(b=-c), lambda c: MulAddConst(a=-1.0, b=c))
mul, rmul = operator("*", Mul, lambda c: MulAddConst(a=c), lambda c: MulAddConst(a=c))
truediv, rtruediv = operator(
    "/", Div, lambda c: Pointwise(formula="x / c", c=c), lambda c: Pointwise(formula="c / x", c=c)
)
power, rpower = operator("**", lambda: Pointwise(formula="a ** b"), Power, lambda c: Pointwise(formula="c ** x", c=c))
floordiv, rfloordiv = operator(
    "//",
    lambda: Pointwise(formula="a // b"),
    lambda c: Pointwise(formula="x // c", c=c),
    lambda c: Pointwise(formula="c // x", c=c),
)
mod, rmod = operator("%", Mod, lambda c: Pointwise(formula="x % c", c=c), lambda c: Pointwise(formula="c % x", c=c))
less, _ = operator("<", Less, lambda c: Pointwise(formula="x < c", c=c), None)
lessEqual, _ = operator("<=", LessEqual, lambda c: Pointwise(formula="x <= c", c=c), None)
greater, _ = operator(">", Greater, lambda c: Pointwise(formula="x > c", c=c), None)
greaterEqual, _ = operator(">=", GreaterEqual, lambda c: Pointwise(formula="x >= c", c=c), None)
both, _ = operator("&", And, None, None)
either, _ = operator("|", Or, None, None)
oneOf, _ = operator("^", Xor, None, None)
matmul, rmatmul = operator("@", MatMul, None, None)


OFNUMPY = {  # by numpy function: the operators if a node is on the left, and on the right
    np.add: (add, radd),
    np.subtract: (sub, rsub),
    np.multiply: (mul, rmul),
    np.true_divide: (truediv, rtruediv),
    np.power: (power, rpower),
    np.floor_divide: (floordiv, rfloordiv),
    np.remainder: (mod, rmod),
    np.matmul: (matmul, rmatmul),
    np.less: (less, greater),
    np.less_equal: (lessEqual, greaterEqual),
    np.greater: (greater, less),
    np.greater_equal: (greaterEqual, lessEqual),
    np.bitwise_and: (both, both),
    np.bitwise_or: (either, either),
    np.bitwise_xor: (oneOf, oneOf),
    np.equal: (lambda a, b: a is b, lambda a, b: False),
    np.not_equal: (lambda a, b: a is not b, lambda a, b: True),
}


def ufuncOfNumpy(self, ufunc, how, *inputs, **options):
    """Return the node of an operator between a node and a numpy scalar, `np.float32(2) * node`.

    Raises    ArgumentError for all other ufuncs, naming the module that does it
    """
    if ufunc not in OFNUMPY or how != "__call__":
        return functionOfNumpy(self, ufunc)
    left, right = [x[()] if type(x) is np.ndarray else x for x in inputs]  # numpy converts numbers to arrays
    return OFNUMPY[ufunc][0](left, right) if isinstance(left, Node) else OFNUMPY[ufunc][1](right, left)


def functionOfNumpy(self, function, *args):
    """Refuse a numpy function, which would need the values of a node.

    Raises    ArgumentError naming the module that does it
    """
    name = function.__name__
    hint = ATTRIBUTES["LinkedNode"].get(name, "modules are called on nodes, such as Relu()(node)")
    raise ArgumentError(f"np.{name} takes arrays, got a node, which has none before a pass; {hint}")


def absolute(self):
    """abs(x) as a node."""
    return Pointwise(formula="abs(x)").node(operand(self, "abs"))


def negative(self):
    """-x as a node."""
    return MulAddConst(a=-1.0).node(operand(self, "-"))


def inverse(self):
    """not x as a node."""
    return Not().node(operand(self, "~"))


def getitem(self, slc):
    """Return x[slc] as a node; for a node of several outputs, the output of this index or name, as in parts[0]."""
    if len(self.module.outputNames) == 1:
        return Slice(slc).node(operand(self, "[]"))
    if isinstance(slc, Integral) and -len(self.module.outputNames) <= int(slc) < 0:
        slc += len(self.module.outputNames)
    return Identity().node((self, slc))


def unpack(self):
    """Iterate over the outputs of a node, each as a node: mu, logVar = Split(axis=1, sections=(8, 8))(x)

    Raises    GraphError for a node of one output
    """
    names = self.module.outputNames
    if len(names) == 1:
        raise GraphError(f"'{self.name}' ({self.label}) has one output: x[:, 0] slices it, Split gives several")
    return iter([getitem(self, slot) for slot in range(len(names))])


def truth(self):
    """Raise an error, since `if x > 0`, `0 < x < 1` and `x and y` need the truth of a node that has no value yet.

    Raises    GraphError
    """
    raise GraphError(
        f"'{self.name}' ({self.label}) is a node, neither true nor false before a pass: Where()(condition, a, b) "
        "chooses between values, & and | combine conditions"
    )
