"""Random graphs: every way in which nodes can hang together, drawn from one random generator.

The grammar of `graphgrammar` does not replace them. Here the shapes of outputs are computed by numpy alone, where the
grammar asks the library's own rules; nodes are linked by keyword and by an output's name; and everything is smooth and
in float64, so that derivatives can be compared with central differences and all ways back to the last bit.
"""

import math
import warnings

import numpy as np

from puregraph.core.errors import GraphWarning
from puregraph.graph import Graph
from puregraph.graph.function import Function
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import (
    Add,
    Concat,
    Flatten,
    Identity,
    Linear,
    MatMul,
    Mean,
    Mul,
    Reshape,
    Sigmoid,
    Slice,
    Split,
    Sub,
    Sum,
    Swish,
    Tanh,
    Transpose,
)

UNARY = (Tanh, Sigmoid, Swish, Identity)


class Parts(Function):
    """Two outputs, k x^2 and 3 x, of which a graph may use one."""

    outputNames = ("square", "triple")

    @staticmethod
    def forward(ctx, x, k=1):
        ctx.save_for_backward(x)
        ctx.k = k
        return k * x * x, 3 * x

    @staticmethod
    def backward(ctx, square, triple):
        (x,) = ctx.saved_variables
        return 2 * ctx.k * x * square + 3 * triple, None


class Builder:
    """A growing graph: `values` are (what a parent is given as, its shape)."""

    def __init__(self, rng, hasFunctions=True):
        self.rng = rng
        self.more = ["matmul", "nested", "again", "flatten", *(["function"] if hasFunctions else [])]
        self.count = 0
        self.shared = []
        self.inputs = [Input(name=f"x{i}").node() for i in range(rng.randint(1, 3))]
        self.shapes = [tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 4))) for _ in self.inputs]
        self.values = list(zip(self.inputs, self.shapes, strict=True))

    def name(self):
        self.count += 1
        return f"n{self.count}"

    def pick(self, accept=lambda shape: True):
        fitting = [v for v in self.values if accept(v[1])]
        return self.rng.choice(fitting) if fitting else None

    def keep(self, node, shape):
        self.values.append((node, shape))

    def grow(self):
        rules = ["unary", "linear", "binary", "keyword", "concat", "split", "slice", "transpose", "reshape", "reduce"]
        getattr(self, self.rng.choice([*rules, *self.more]))()

    def unary(self):
        value, shape = self.pick()
        self.keep(self.rng.choice(UNARY)(name=self.name()).node(value), shape)

    def linear(self):
        value, shape = self.pick()
        if not shape:
            return
        size = self.rng.randint(1, 4)
        module = Linear(shape[-1], size, useBias=self.rng.random() < 0.5, name=self.name())
        self.shared.append(module)
        self.keep(module.node(value), (*shape[:-1], size))

    def again(self):
        """A module that already stands somewhere, at one more node."""
        if self.shared:
            module = self.rng.choice(self.shared)
            found = self.pick(lambda s: s and s[-1] == module.W.shape[0])
            if found:
                self.keep(module.node(found[0], name=self.name()), (*found[1][:-1], module.W.shape[1]))

    def pair(self):
        a = self.pick()
        b = self.pick(lambda s: broadcasts(a[1], s))
        return a, b, np.broadcast_shapes(a[1], b[1])

    def binary(self):
        (a, _), (b, _), shape = self.pair()
        self.keep(self.rng.choice((Add, Mul, Sub))(name=self.name()).node(a, b), shape)

    def keyword(self):
        (a, _), (b, _), shape = self.pair()
        module = Sub(name=self.name())
        first, second = module.arguments
        self.keep(module.node(**{second: b, first: a}), shape)

    def concat(self):
        value, shape = self.pick(lambda s: s) or (None, None)
        if value is None:
            return
        axis = self.rng.randrange(len(shape))
        parts = [(value, shape)]
        for _ in range(self.rng.randint(1, 2)):
            parts.append(self.pick(lambda s: len(s) == len(shape) and without(s, axis) == without(shape, axis)))
        total = sum(s[axis] for _, s in parts)
        axis = axis if self.rng.random() < 0.5 else axis - len(shape)
        node = Concat(axis, name=self.name()).node(*[v for v, _ in parts])
        self.keep(node, tuple(total if i == axis % len(shape) else d for i, d in enumerate(shape)))

    def split(self):
        found = self.pick(lambda s: any(d > 1 for d in s))
        if not found:
            return
        value, shape = found
        axis = self.rng.choice([i for i, d in enumerate(shape) if d > 1])
        cut = self.rng.randint(1, shape[axis] - 1)
        node = Split(axis, (cut, shape[axis] - cut), name=self.name()).node(value)
        parts = [tuple(size if i == axis else d for i, d in enumerate(shape)) for size in (cut, shape[axis] - cut)]
        for slot in (0, 1):
            self.keep((node, slot if self.rng.random() < 0.5 else str(slot)), parts[slot])

    def slice(self):
        found = self.pick(lambda s: s)
        if not found:
            return
        value, shape = found
        axis = self.rng.randrange(len(shape))
        start, step = self.rng.randrange(shape[axis]), self.rng.choice((1, 2, -1))
        key = tuple(slice(start, None, step) if i == axis else slice(None) for i in range(axis + 1))
        self.keep(Slice(key, name=self.name()).node(value), np.zeros(shape)[key].shape)

    def transpose(self):
        value, shape = self.pick()
        axes = list(range(len(shape)))
        self.rng.shuffle(axes)
        self.keep(Transpose(tuple(axes), name=self.name()).node(value), tuple(shape[a] for a in axes))

    def reshape(self):
        found = self.pick(lambda s: len(s) >= 1)
        if found:
            value, shape = found
            self.keep(Reshape((-1, shape[-1]), name=self.name()).node(value), (math.prod(shape[:-1]), shape[-1]))

    def flatten(self):
        found = self.pick(lambda s: len(s) >= 2)
        if found:
            value, shape = found
            self.keep(Flatten(name=self.name()).node(value), (shape[0], math.prod(shape[1:])))

    def reduce(self):
        found = self.pick(lambda s: s)
        if found:
            value, shape = found
            axis, keep = self.rng.randrange(len(shape)), self.rng.random() < 0.5
            node = self.rng.choice((Sum, Mean))(axis, keepdims=keep, name=self.name()).node(value)
            self.keep(node, np.zeros(shape).sum(axis=axis, keepdims=keep).shape)

    def matmul(self):
        a = self.pick(lambda s: len(s) == 2)
        b = a and self.pick(lambda s: len(s) == 2 and s[0] == a[1][1])
        if b:
            self.keep(MatMul(name=self.name()).node(a[0], b[0]), (a[1][0], b[1][1]))

    def nested(self):
        found = self.pick(lambda s: s)
        if found:
            value, shape = found
            inner = Sequential(Linear(shape[-1], 2, name="fc"), Tanh(name="t"), name=self.name())
            self.keep(inner.node(value), (*shape[:-1], 2))
            if self.rng.random() < 0.5:
                self.keep(inner.node(value, name=self.name()), (*shape[:-1], 2))

    def function(self):
        value, shape = self.pick()
        node = Parts.node(value, k=self.rng.choice((1, 2)), name=self.name())
        self.keep((node, 0), shape)
        self.keep((node, "triple"), shape)

    def finish(self):
        """A Graph in float64 with a few of the values as outputs, and the shapes they must have."""
        count = self.rng.randint(1, 3)
        chosen = [*self.rng.sample(self.values, min(count, len(self.values))), self.values[-1]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)
            graph = Graph(self.inputs, [v for v, _ in chosen])
        return graph.calcMode("float64"), [s for _, s in chosen]


def broadcasts(a, b):
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


def without(shape, axis):
    return (*shape[:axis], *shape[axis + 1 :])


def randomGraph(rng, most=12, hasFunctions=True):
    """A random graph, its input shapes, and the output shapes it must have; perhaps without a user's own Function."""
    builder = Builder(rng, hasFunctions)
    for _ in range(rng.randint(1, most)):
        builder.grow()
    graph, outshapes = builder.finish()
    return graph, builder.shapes, outshapes


def faultyGraph(rng):
    """A random graph with one node that cannot fit, its input shapes, and the path of that node."""
    builder = Builder(rng)
    for _ in range(rng.randint(0, 8)):
        builder.grow()
    value, shape = builder.pick()
    size = shape[-1] + 1 if shape else 2
    wrong = [Linear(size, 2, name="wrong").node(value), MatMul(name="wrong").node(value, Linear(1, 1).node(value))]
    wrong.append(Split(-1, (1, size), name="wrong").node(value))
    wrong.append(Reshape((math.prod(shape) + 1,), name="wrong").node(value))
    wrong.append(Transpose(tuple(range(len(shape) + 1)), name="wrong").node(value))
    if shape and shape[-1] > 1:
        other = Slice((Ellipsis, slice(0, 0)), name="cut").node(value)
        wrong.append(Add(name="wrong").node(value, other))
        wrong.append(Mul(name="wrong").node(other, value))
    node = rng.choice([wrong[0], *wrong[2:]])
    builder.keep(node, None)
    later = Tanh(name="later").node((node, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        return Graph(builder.inputs, [later]), builder.shapes, "wrong"
