"""Models composed of small operators as exporters write them, in any order of operands, and with a fault put in."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

GRAIN = 1e-3  # how far a number is off that is put in as a fault


class Composer:
    """Adds nodes to a model; `spoil` is (kind, index): of the numbers one that is off, of the axes one that is another,
    of the inner values one that somebody else reads, or that is an output."""

    def __init__(self, rng, opset, spoil=(None, 0)):
        self.rng, self.opset, self.spoil = rng, opset, spoil
        self.nodes, self.tensors, self.inputs, self.made = [], [], [], []
        self.counts = {"number": 0, "axis": 0}

    def isSpoiled(self, kind):
        """Whether this one is to be off."""
        self.counts[kind] += 1
        return self.spoil == (kind, self.counts[kind] - 1)

    def input(self, *shape):
        """An input of the model."""
        name = f"x{len(self.inputs)}"
        self.inputs.append((name, shape))
        return name

    def op(self, kind, *names, **attributes):
        """A node; sums and products with their operands in any order."""
        names = list(names)
        if kind in ("Add", "Mul") and self.rng.integers(2):
            names.reverse()
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [out], name=out, **attributes))
        self.made += [out] if kind != "Transpose" else []  # what is only moved may be read by others
        return out

    def number(self, value, isFree=False):
        """A constant of one element; `isFree` are those that may be any number."""
        if not isFree and self.isSpoiled("number"):
            value = value * (1 + GRAIN) if value else GRAIN
        return self.array(np.array(value, np.float32), bool(self.rng.integers(2)))

    def array(self, array, isWeight=True):
        """An initializer, or a node that gives a constant."""
        name = f"c{len(self.tensors)}:{len(self.nodes)}"
        tensor = numpy_helper.from_array(np.asarray(array), name)
        if isWeight:
            self.tensors.append(tensor)
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def product(self, *names):
        """A product of several in any order and grouping."""
        names = [str(name) for name in self.rng.permutation(names)]
        while len(names) > 1:
            i = int(self.rng.integers(len(names) - 1))
            names[i : i + 2] = [self.op("Mul", *names[i : i + 2])]
        return names[0]

    def by(self, x, value):
        """Times or divided by a number."""
        if self.rng.integers(2):
            return self.op("Mul", x, self.number(value))
        return self.op("Div", x, self.number(1 / value))

    def square(self, x):
        """The square as a power or as a product."""
        return self.op("Mul", x, x) if self.rng.integers(2) else self.op("Pow", x, self.number(2.0))

    def mean(self, x, axis=-1):
        """The mean over an axis, which stays."""
        axis = -2 if self.isSpoiled("axis") else axis
        if self.opset >= 18:
            return self.op("ReduceMean", x, self.array(np.array([axis]), False), keepdims=1)
        return self.op("ReduceMean", x, axes=[axis], keepdims=1)

    def model(self, y):
        """The whole model."""
        outputs = [y]
        kind, index = self.spoil
        inner = [name for name in self.made if name != y]
        if kind == "reader":
            outputs.append(self.op("Neg", inner[index % len(inner)]))
        elif kind == "output":
            outputs.append(inner[index % len(inner)])
        ends = [
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.inputs],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        ]
        graph = helper.make_graph(self.nodes, "composed", *ends, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)


def gelu(c):
    x = c.input("N", 3, 3)
    grown = c.op("Add", c.op("Erf", c.by(x, 2**-0.5)), c.number(1.0))
    return c.product(x, grown, c.number(0.5))


def geluTanh(c):
    x = c.input("N", 3, 3)
    cube = c.op("Pow", x, c.number(3.0)) if c.rng.integers(2) else c.op("Mul", x, c.op("Mul", x, x))
    wide = c.by(c.op("Add", x, c.by(cube, 0.044715)), (2 / np.pi) ** 0.5)
    return c.product(x, c.op("Add", c.op("Tanh", wide), c.number(1.0)), c.number(0.5))


def swish(c):
    x = c.input("N", 3, 3)
    wide = x if c.rng.integers(2) else c.op("Mul", x, c.array(np.float32(1.7), False))
    return c.op("Mul", x, c.op("Sigmoid", wide))


def mish(c):
    x = c.input("N", 3, 3)
    if c.rng.integers(2):
        plus = c.op("Softplus", x)
    else:
        plus = c.op("Log", c.op("Add", c.op("Exp", x), c.number(1.0)))
    return c.op("Mul", x, c.op("Tanh", plus))


def hardSwish(c):
    x = c.input("N", 3, 3)
    clipped = c.op("Clip", c.op("Add", x, c.number(3.0)), c.number(0.0), c.number(6.0))
    return c.by(c.op("Mul", x, clipped), 1 / 6) if c.rng.integers(2) else c.op("Mul", x, c.by(clipped, 1 / 6))


def weight(c, *shape):
    """Numbers of a layer."""
    return c.array(c.rng.standard_normal(shape).astype(np.float32))


def linear(c):
    x = c.input("N", 3, 4) if c.rng.integers(2) else c.input("N", 4)
    return c.op("Add", c.op("MatMul", x, weight(c, 4, 5)), weight(c, 5))


def layerNorm(c):
    x = c.input("N", 3, 3)
    rest = c.op("Sub", x, c.mean(x))
    root = c.op("Sqrt", c.op("Add", c.mean(c.square(rest)), c.number(1e-3, True)))
    y = c.op("Div", rest, root) if c.rng.integers(2) else c.op("Mul", rest, c.op("Div", c.number(1.0), root))
    kind = c.rng.integers(3)
    y = c.op("Mul", y, weight(c, 3)) if kind else y
    return c.op("Add", y, weight(c, 3)) if kind == 2 else y


def rmsNorm(c):
    x = c.input("N", 3, 3)
    root = c.op("Sqrt", c.op("Add", c.mean(c.square(x)), c.number(1e-3, True)))
    y = c.op("Div", x, root) if c.rng.integers(2) else c.op("Mul", x, c.op("Reciprocal", root))
    return c.op("Mul", y, weight(c, 3)) if c.rng.integers(2) else y


def attention(c):
    q, k, v = (c.input("N", 2, 3, 4) for _ in "qkv")
    keys = c.op("Transpose", k, perm=[0, 1, 3, 2])
    how = c.rng.integers(4)
    free = [c.array(np.float32(0.7), False) for _ in range(2)]
    q = c.op("Mul", q, free[0]) if how in (1, 3) else q
    keys = c.op("Mul", keys, free[1]) if how == 3 else keys
    scores = c.op("MatMul", q, keys)
    scores = c.op("Mul", scores, free[0]) if how == 2 else scores
    masked, low = c.rng.integers(4), c.array(np.array(-np.inf, np.float32), False)
    seen = np.tri(3, dtype=bool) if c.rng.integers(2) else np.array([[1, 0, 1], [0, 1, 1], [1, 1, 1]], bool)
    if masked == 1:
        scores = c.op("Add", scores, c.array(np.where(seen, 0, -np.inf).astype(np.float32), False))
    elif masked > 1:
        chosen = c.array(seen if masked == 2 else ~seen, False)
        scores = c.op("Where", chosen, *((scores, low) if masked == 2 else (low, scores)))
    axis = -2 if c.isSpoiled("axis") else -1
    return c.op("MatMul", c.op("Softmax", scores, axis=axis), v)


COMPOSED = {  # what makes the operators, and the module that they are
    "Gelu": gelu,
    "Gelu by tanh": geluTanh,
    "Swish": swish,
    "Mish": mish,
    "HardSwish": hardSwish,
    "Linear": linear,
    "LayerNorm": layerNorm,
    "RmsNorm": rmsNorm,
    "Attention": attention,
}


def composed(name, seed, opset, spoil=(None, 0)):
    """A model, and what may be put in as a fault: how many numbers, axes, and inner values there are."""
    composer = Composer(np.random.default_rng(seed), opset, spoil)
    y = COMPOSED[name](composer)
    counts = dict(composer.counts, reader=len(composer.made) - 1, output=len(composer.made) - 1)
    return composer.model(y), counts
