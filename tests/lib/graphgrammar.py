"""A grammar of graphs: any module, formula, reduction, view, slot, shared node and cost beside, before and after any other.

A rule takes a generator of random numbers and the shapes of its parents, and says what it makes of them: a class and its
arguments; or None where it takes no such shapes. What it draws depends on the generator alone, so that a line with its
seed is the same node again when something else of the graph is cut away or made smaller.
"""

import math
import random
from functools import cache, partial

from formulas import DOMAINS
from graphspec import SOURCES, GraphSpec, NodeSpec, Rebuilding, UnfitError, limitsOf, pruned
from layersizes import BATCHES, MAPS, channelOf

from puregraph import (
    BCE,
    GRU,
    LSTM,
    MSE,
    RNN,
    Abs,
    Add,
    And,
    ArgMax,
    ArgMin,
    Attention,
    AvgPool1D,
    AvgPool2D,
    BatchNorm,
    Cast,
    Clip,
    Concat,
    Conv1D,
    Conv2D,
    CrossEntropy,
    Deconv2D,
    Dropout,
    Einsum,
    Elu,
    Embedder,
    Equal,
    Flatten,
    Gather,
    Gelu,
    GlobalAvgPool,
    Greater,
    GreaterEqual,
    GroupNorm,
    HardSwish,
    Input,
    LayerNorm,
    LeakyRelu,
    Less,
    LessEqual,
    Linear,
    MatMul,
    Max,
    MaxPool1D,
    MaxPool2D,
    Mean,
    Min,
    Mod,
    Module,
    Mul,
    MulAddConst,
    Not,
    NotEqual,
    OneHot,
    Or,
    Pad,
    Pointwise,
    Position,
    Prepend,
    Relu,
    Reshape,
    Sequential,
    Sigmoid,
    Slice,
    SmoothL1,
    SoftMax,
    SoftPlus,
    Split,
    Sub,
    Sum,
    Swish,
    Tanh,
    Transpose,
    Upsample2D,
    Where,
    Xor,
    modules,
)
from puregraph.graph.derived import Derived
from puregraph.modules import costs

SIZES = (1, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 13, 16, 17)
LARGE, NONE = 1025, 0
MOST = 2600  # elements of one value
MOSTWORK = 400_000  # floating-point operations of one node
WIDEST, WIDEWORK = 36_000, 12_000_000  # the same where sizes are those of layers
OPTIMIZERS = (
    "SGD(0.05)",
    "MomentumSGD(0.05)",
    "NesterovSGD(0.02)",
    "Adam(0.01)",
    "AdamW(0.01)",
    "RMSProp(0.01)",
    "SGD(0.05, decay=0.1)",
)
RULES, WEIGHTS, DISCRETE, WIDE, PARENTS = {}, {}, {}, {}, {}
OTHERS = {"booleans": "b", "integers": "i", "alsoBooleans": "b", "alsoIntegers": "i", "discrete": "bi"}
ELEMENTWISE = ("arithmetic", "activation", "scaled", "formulaOfOne", "formulaOfTwo", "several")


def rule(weight, *parents, discrete=0, wide=0):
    """Register a rule; `parents` says which values it may stand on, see `GraphDraft.parents`.

    `discrete`  its weight in graphs that have booleans and integers among their values, if it is another one
    `wide`      its weight in graphs of the sizes of layers, if it is another one
    """

    def keep(function):
        name = function.__name__
        RULES[name], WEIGHTS[name], PARENTS[name] = function, weight, parents
        DISCRETE[name], WIDE[name] = discrete or weight, wide or weight
        return function

    return keep


def make(cls, *args, **kwargs):
    """What a rule says it makes."""
    return cls, args, kwargs


def axisOf(rng, shape):
    """One of the axes, from the front or from the back; often one of length one, where there is any."""
    ones = [i for i, size in enumerate(shape) if size == 1]
    axis = rng.choice(ones) if ones and rng.random() < 0.4 else rng.randrange(len(shape))
    return rng.choice((axis, axis - len(shape)))


# Elementwise ----------------------------------------------------------------------------------------------------------


@rule(10, "any")
def activation(rng, x):
    plain = (Relu, Sigmoid, Tanh, Swish, Gelu, Elu, LeakyRelu, HardSwish, SoftPlus, Clip)
    made = [*map(partial(make), plain), make(Gelu, approximate=True), make(Swish, 1.7), make(Clip, -0.5, 0.5)]
    return rng.choice(made)


@rule(5, "any")
def scaled(rng, x):
    return make(MulAddConst, rng.choice((0.7, -1.3)), rng.choice((0, 0.3)))


@rule(6, "any")
def formulaOfOne(rng, x):
    return make(Pointwise, formula=expression(rng, ("x",), 3))


@rule(5, "any", "broadcast")
def formulaOfTwo(rng, a, b):
    return make(Pointwise, formula=f"{expression(rng, ('a', 'b'), 3)} + 0.1 * a * b")


@rule(10, "any", "broadcast")
def arithmetic(rng, a, b):
    return make(rng.choice((Add, Mul, Sub)))


@rule(3, "any", "broadcast", "broadcast")
def several(rng, a, b, c):
    return make(rng.choice((Add, Mul)))


@rule(1, "any")
def dropout(rng, x):
    return make(Dropout, 0)


@cache
def functions():
    """How every function of one argument in the table of formulas is written of any u, in its domain."""
    from puregraph.ops.formula.optable import TABLE

    families = ("isnan", "isfinite", "isinf", "erfinv", "ndtri", "digamma", "trigamma", "lgamma", "sign", "tan")
    found = []
    for name, row in TABLE.items():
        if len(row.pulls) == 1 and name.isidentifier() and name not in ("neg", "not", *families):
            low, high = DOMAINS.get(name, (None, None))
            found.append(f"{name}({{}})" if low is None else f"{name}({low} + {high - low} * sigmoid({{}}))")
    steep = ("sinh", "cosh", "exp", "gamma", "i0", "i1", "square", "digamma", "erfcx")
    return [f.replace("{}", "tanh({})") if f.startswith(steep) else f for f in found]


TWO = (
    "{} + {}",
    "{} - {}",
    "{} * {}",
    "{} / (1.5 + tanh({}))",
    "maximum({}, {})",
    "minimum({}, {})",
    "hypot({}, 1 + {})",
)
TWO += ("{} + 0.7 * {}", "0.3 - {} * {}", "where({} > 0.1, {}, 0.3)", "logaddexp({}, {})", "arctan2({}, 2 + tanh({}))")


def expression(rng, names, depth):
    """A random formula."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(names)
    inner = partial(expression, rng, names, depth - 1)
    if rng.random() < 0.5:
        return rng.choice(functions()).format(inner())
    return f"({rng.choice(TWO).format(inner(), inner())})"


# Reductions and norms -------------------------------------------------------------------------------------------------


@rule(12, "ranked")
def reduction(rng, x):
    axes = [axisOf(rng, x), axisOf(rng, x), tuple(rng.sample(range(len(x)), rng.randint(1, len(x)))), None]
    return make(rng.choice((Sum, Mean, Max, Min)), axis=rng.choice(axes), keepdims=rng.random() < 0.5)


@rule(6, "computed")
def extremum(rng, x):
    return make(rng.choice((Max, Min)), axis=axisOf(rng, x), keepdims=rng.random() < 0.5)


@rule(8, "ranked")
def softmax(rng, x):
    return make(SoftMax, axis=axisOf(rng, x))


@rule(10, "ranked")
def layerNorm(rng, x):
    count = rng.randint(1, min(2, len(x)))
    return make(LayerNorm, x[-count:] if count > 1 else x[-1], affine=rng.random() < 0.8)


@rule(8, "mapped")
def batchNorm(rng, x):
    return make(BatchNorm, x[1], affine=rng.random() < 0.8)


@rule(4, "mapped")
def groupNorm(rng, x):
    return make(
        GroupNorm, rng.choice([g for g in range(1, x[1] + 1) if x[1] % g == 0]), x[1], affine=rng.random() < 0.8
    )


# Products -------------------------------------------------------------------------------------------------------------


@rule(12, "ranked")
def linear(rng, x):
    size = rng.choice(SIZES)
    return make(Linear, x[-1], size, useBias=rng.random() < 0.7, transpose=rng.random() < 0.2)


@rule(4, "ranked")
def nested(rng, x):
    size, middle = rng.choice(SIZES), rng.choice((Tanh, Swish, Relu))
    return make(Sequential, Linear(x[-1], size, name="a"), middle(name="b"), LayerNorm(size, name="c"))


@rule(4, "matrix", "matrix")
def product(rng, a, b):
    for transpA, transpB in rng.sample([(False, False), (True, False), (False, True), (True, True)], 4):
        if a[-2 if transpA else -1] == b[-1 if transpB else -2]:
            return make(MatMul, transpA=transpA, transpB=transpB)
    return None


@rule(3, "ranked", "ranked", "ranked")
def einsumOfThree(rng, a, b, c):
    return einsum(rng, a, b, c)


@rule(6, "ranked", "ranked")
def einsum(rng, *shapes):
    letters, sizes, groups = "abcdefghijkl", {}, []
    for shape in shapes:
        own = ""
        for size in shape:
            known = [c for c, s in sizes.items() if s == size and (c not in own or rng.random() < 0.1)]
            letter = rng.choice(known) if known and rng.random() < 0.7 else letters[len(sizes)]
            sizes[letter] = size
            own += letter
        groups.append(own)
    kept = [c for c, size in sizes.items() if rng.random() < (0.5 if size > 1 else 0.3)]
    rng.shuffle(kept)
    return make(Einsum, f"{','.join(groups)}->{''.join(kept)}") if math.prod(sizes.values()) <= 20 * MOST else None


# Views and copies -----------------------------------------------------------------------------------------------------


@rule(5, "ranked", "alike")
def concat(rng, a, b):
    axes = [
        i for i in range(len(a)) if len(b) == len(a) and all(p == q for j, (p, q) in enumerate(zip(a, b)) if j != i)
    ]
    return make(Concat, rng.choice(axes)) if axes else None


@rule(6, "ranked")
def split(rng, x):
    axes = [i for i, size in enumerate(x) if size > 1]
    if not axes:
        return None
    axis = rng.choice(axes)
    cut = rng.randint(1, x[axis] - 1)
    return make(Split, axis, (cut, x[axis] - cut))


@rule(6, "ranked")
def slices(rng, x):
    parts = []
    for size in x[: rng.randint(1, len(x))]:
        start = rng.randrange(max(size, 1))
        choices = [slice(None), slice(start, None), slice(None, None, -1), slice(None, None, 2), slice(None, start + 1)]
        parts.append(rng.choice([*choices, *([start] if size else [])]))
    return make(Slice, tuple(parts))


@rule(6, "ranked")
def transpose(rng, x):
    axes = list(range(len(x)))
    rng.shuffle(axes)
    return make(Transpose, tuple(axes))


@rule(6, "any")
def reshape(rng, x):
    size = math.prod(x)
    front = [d for d in range(1, min(size, 40) + 1) if size % d == 0] or [1]
    first = rng.choice(front)
    second = rng.choice([d for d in front if size // first % d == 0] if size else [1])
    shapes = [(size,), (1, size), (size, 1), (first, size // first), (first, second, size // first // second), (*x, 1)]
    return make(Reshape, rng.choice([*shapes, (1, *x)]))


@rule(2, "mapped")
def flatten(rng, x):
    return make(Flatten)


@rule(3, "ranked")
def pad(rng, x):
    mode = rng.choice(("constant", "edge", "reflect"))
    return make(Pad, (rng.randint(0, 2), rng.randint(0, 2)), mode=mode)


# Windows, sequences, lookups ------------------------------------------------------------------------------------------


@rule(4, "sequence")
def overTime(rng, x):
    maps, size = x[1], rng.randint(1, 3)
    conv = make(Conv1D, maps, rng.choice((1, 2, 4)), size, pad=rng.choice((0, 1, "same")), useBias=rng.random() < 0.7)
    pools = [make(MaxPool1D, size), make(AvgPool1D, size), make(GlobalAvgPool)]
    return rng.choice([conv, conv, *pools, make(Position, x[1] + 1, x[2]), make(Prepend, 1, x[2])])


@rule(6, "image")
def image(rng, x):
    maps, size = x[1], rng.choice((1, 2, 3, (3, 1), (1, 2)))
    groups = maps if rng.random() < 0.2 else 1
    out = groups * rng.choice((1, 2, 4))
    conv = make(Conv2D, maps, out, size, stride=rng.choice((1, 1, 2)), pad=rng.choice((0, 1)), groups=groups)
    pools = [make(MaxPool2D, size), make(AvgPool2D, size), make(GlobalAvgPool), make(Upsample2D)]
    return rng.choice([conv, conv, conv, *pools, make(Upsample2D, mode="linear")])


@rule(0, "image", wide=90)
def layer(rng, x):
    maps, out = x[1], channelOf(rng)
    options = {"useBias": rng.random() < 0.7}
    if rng.random() < 0.6:
        return make(Conv2D, maps, out, 1, stride=rng.choice((1, 1, 2)), **options)
    size = rng.choice((1, 2, 3, 3, 5, (3, 1), (1, 2)))
    options |= {"stride": rng.choice((1, 1, 2)), "pad": rng.choice((0, 1, "same")), "dilation": rng.choice((1, 1, 2))}
    groups = rng.choice([1, maps, *(g for g in (2, 3, 4, 8) if maps % g == 0)])
    each = 1 if groups > 1 and rng.random() < 0.6 else math.ceil(out / groups)
    return make(rng.choice((Conv2D, Conv2D, Conv2D, Deconv2D)), maps, groups * each, size, groups=groups, **options)


@rule(0, "sequence", wide=12)
def layerOverTime(rng, x):
    size = rng.choice((1, 1, 2, 3))
    return make(Conv1D, x[1], channelOf(rng), size, pad=rng.choice((0, 1, "same")), useBias=rng.random() < 0.7)


@rule(0, "ranked", wide=24)
def dense(rng, x):
    return make(Linear, x[-1], channelOf(rng), useBias=rng.random() < 0.7, transpose=rng.random() < 0.2)


@rule(2, "sequence")
def recurrent(rng, x):
    outputs = rng.choice(("y", "h", ("y", "h")))
    kind = rng.choice((RNN, GRU, LSTM))
    return make(kind, x[2], rng.choice((1, 2, 3)), direction=rng.choice(("uni", "bi")), outputs=outputs)


@rule(2, "image", "image", "image")
def attention(rng, q, k, v):
    return make(Attention, causal=rng.random() < 0.5)


@rule(3, "indices")
def embedder(rng, x):
    return make(Embedder, rng.choice((1, 3, 17)), rng.choice(SIZES))


@rule(2, "ranked", "indices")
def gather(rng, x, index):
    return make(Gather, axis=rng.randrange(len(x)))


# Booleans and integers ------------------------------------------------------------------------------------------------


@rule(0, "any", "broadcast", discrete=40)
def comparison(rng, a, b):
    return make(rng.choice((Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual)))


@rule(0, "integers", "alsoIntegers", discrete=20)
def comparisonOfIntegers(rng, a, b):
    return make(rng.choice((Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual)))


@rule(0, "booleans", "alsoBooleans", discrete=16)
def logic(rng, a, b):
    return make(rng.choice((And, Or, Xor)))


@rule(0, "booleans", discrete=8)
def negation(rng, x):
    return make(Not)


@rule(0, "booleans", "broadcast", "broadcast", discrete=40)
def choice(rng, condition, a, b):
    return make(Where)


@rule(0, "booleans", "alsoIntegers", "alsoIntegers", discrete=12)
def choiceOfIntegers(rng, condition, a, b):
    return make(Where)


@rule(0, "booleans", "broadcast", discrete=16)
def masked(rng, mask, x):
    return make(Mul)


@rule(0, "ranked", discrete=32)
def position(rng, x):
    return make(rng.choice((ArgMax, ArgMin)), axis=axisOf(rng, x), keepdims=rng.random() < 0.5)


@rule(0, "any", discrete=12)
def whole(rng, x):
    return make(Sequential, Clip(-9, 9, name="a"), Cast("int64", name="b"))


@rule(0, "integers", "alsoIntegers", discrete=20)
def integerArithmetic(rng, a, b):
    return make(rng.choice((Add, Sub, Mul, Mod)))


@rule(0, "integers", discrete=16)
def oneHot(rng, x):
    return make(OneHot, rng.choice((1, 2, 3, 5)), dtype="bool")


@rule(0, "places", discrete=20)
def lookup(rng, x):
    return make(Embedder, max(SIZES), rng.choice(SIZES))


@rule(0, "discrete", discrete=20)
def movedIntegers(rng, x):
    return rng.choice((reshape, transpose, slices) if x else (reshape,))(rng, x)


@rule(0, "integers", discrete=12)
def reductionOfIntegers(rng, x):
    return make(rng.choice((Sum, Max, Min)), axis=axisOf(rng, x) if x else None, keepdims=rng.random() < 0.5)


# Costs ----------------------------------------------------------------------------------------------------------------


@rule(3, "ranked", "target")
def distance(rng, x, target):
    return make(rng.choice((MSE, Abs, SmoothL1)))


@rule(2, "ranked", "probability")
def binary(rng, x, target):
    return make(BCE, posWeight=rng.choice((1.0, 2.5)))


@rule(0)
def probability(rng, x):
    return make(Pointwise, formula="0.02 + 0.96 * sigmoid(x)")


@rule(5, "mapped", "labels")
def crossEntropy(rng, x, labels):
    weights = [rng.choice((0.5, 1.0, 2.0)) for _ in range(x[1])] if rng.random() < 0.3 else None
    return make(CrossEntropy, weights=weights, ignoreIndex=None, smoothing=rng.choice((0.0, 0.1)))


# Every example of every module ----------------------------------------------------------------------------------------


LEFT = (Dropout, Input, costs.Cost, *Derived.__subclasses__())  # and parameters that modules compute


@cache
def examples():
    """(class, arguments, options, input shapes) of every example in the library whose results are the same each time."""
    found = []
    exported = [getattr(package, name) for package in (modules, costs) for name in package.__all__]
    for cls in [c for c in exported if isinstance(c, type) and issubclass(c, Module) and c not in LEFT]:
        for module, shapes in cls.examples():
            args, kwargs = module.initArgs
            if cls is Cast or module.isDiscrete or module.masks:
                continue  # the other nodes compute with floats of one kind
            if cls in (costs.CTC, costs.RNNT) and len(shapes) > 2:
                continue  # lengths have a limit of their own each
            found.append((cls, args, kwargs, [tuple(s) for s in shapes]))
    return found


@rule(8, "example")
def example(rng, *given):
    cls, args, kwargs, shapes = rng.choice(examples())
    return (cls, args, kwargs) if list(given) == shapes else None


@rule(0)
def row(rng, x, wanted):
    return make(Reshape, (1, math.prod(x)))


@rule(0)
def resized(rng, x, wanted):
    return make(Linear, x[-1], math.prod(wanted))


@rule(0)
def shaped(rng, x, wanted):
    return make(Reshape, wanted)


# Drawing --------------------------------------------------------------------------------------------------------------


class GraphDraft(Rebuilding):
    """A graph that grows, line by line."""

    def __init__(self, rng, weights=WEIGHTS):
        super().__init__(RULES)
        self.rng, self.weights = rng, weights
        self.most, self.mostWork = (WIDEST, WIDEWORK) if weights is WIDE else (MOST, MOSTWORK)
        for _ in range(rng.randint(1, 2)):
            self.source(self.freshShape())

    def freshShape(self):
        """The shape of an input."""
        while self.weights is WIDE:
            batch, maps = self.rng.choice(BATCHES), self.rng.choice(MAPS)
            shape = batch, channelOf(self.rng), *maps[: self.rng.choice((0, 1, 2, 2, 2, 2))]
            if math.prod(shape) <= self.most // 2:
                return shape
        while True:
            shape = [self.rng.choice(SIZES) for _ in range(self.rng.choice((1, 2, 2, 2, 3, 3, 4)))]
            chance = self.rng.random()
            if chance < 0.08:
                shape[self.rng.randrange(len(shape))] = LARGE if chance > 0.01 else NONE
            if math.prod(shape) <= MOST:
                return tuple(shape)

    def source(self, shape, kind="input"):
        """A new input."""
        self.add(NodeSpec(kind, shape=tuple(shape)))
        return len(self.lines) - 1, 0

    def values(self, accept=lambda shape: True, kinds="f"):
        """What there is of floats, or of other kinds of dtypes."""
        return [
            (i, slot)
            for i, types in enumerate(self.types)
            for slot, (shape, dtype) in enumerate(zip(self.shapes[i], types))
            if dtype.kind in kinds and accept(shape)
        ]

    def pick(self, accept=lambda shape: True, kinds="f"):
        """One of the values, a late one more often than an early one.

        Raises    UnfitError if there is none
        """
        found = self.values(accept, kinds)
        if not found:
            raise UnfitError("nothing of such a shape")
        return found[max(self.rng.randrange(len(found)) for _ in range(self.rng.choice((1, 1, 2))))]

    def shape(self, value):
        return self.shapes[value[0]][value[1]]

    def parents(self, kinds):
        """Values for a rule, one for each of its kinds."""
        found = []
        for kind in kinds:
            first = self.shape(found[0]) if found else ()
            if kind == "any":
                found.append(self.pick())
            elif kind in ("ranked", "matrix", "mapped", "sequence", "image"):
                least = {"ranked": 1, "matrix": 2, "mapped": 2, "sequence": 3, "image": 4}[kind]
                exact = kind in ("sequence", "image")
                found.append(self.pick(lambda s, n=least, e=exact: len(s) == n if e else len(s) >= n))
            elif kind == "computed":
                found.append(self.computed())
            elif kind == "broadcast":
                found.append(self.beside(found[0]))
            elif kind == "alike":
                found.append(self.pick(lambda s, first=first: len(s) == len(first)))
            elif kind == "target":
                same = self.values(lambda s, first=first: s == first)
                found.append(self.rng.choice([*same, None]) or self.source(first))
            elif kind == "probability":
                found.append(self.probability(first))
            elif kind == "labels":
                found.append(self.whole((first[0], *first[2:])))
            elif kind in OTHERS:
                shape = first if kind.startswith("also") else None
                found.append(self.pick(lambda s, t=shape: t is None or broadcasts(s, t), OTHERS[kind]))
            elif kind == "places":
                known = [v for v in self.values(kinds="i") if self.bounds.get(v, max(SIZES) + 1) <= max(SIZES)]
                found.append(self.rng.choice(known) if known else self.whole((3,)))
            elif kind == "indices":
                found.append(self.whole(tuple(self.rng.choice((1, 2, 3, 5)) for _ in range(self.rng.randint(1, 2)))))
        return found

    def whole(self, shape):
        """An input of whole numbers, one that is there or a new one."""
        found = [(i, 0) for i, line in enumerate(self.lines) if line.rule == "indices" and line.shape == shape]
        return self.rng.choice(found) if found and self.rng.random() < 0.5 else self.source(shape, "indices")

    def computed(self):
        """A value that arithmetic gives, which may be there, or is made of another one."""
        sums = [v for v in self.values(len) if self.lines[v[0]].rule in ELEMENTWISE]
        if sums and self.rng.random() < 0.5:
            return self.rng.choice(sums)
        value = self.pick(len)
        self.add(NodeSpec("scaled", self.rng.getrandbits(32), (value,)))
        one = len(self.lines) - 1, 0
        other = self.rng.choice((value, self.beside(one)))
        self.add(NodeSpec("arithmetic", self.rng.getrandbits(32), (other, one)))
        return len(self.lines) - 1, 0

    def probability(self, shape):
        """A value of a shape from 0 to 1."""
        same = self.values(lambda s: s == shape)
        self.add(NodeSpec("probability", 0, (self.rng.choice(same),)))
        return len(self.lines) - 1, 0

    def beside(self, value):
        """A value that broadcasts with another: often one that it is made of, else any; a new input by chance."""
        shape = self.shape(value)
        found = self.values(lambda s: broadcasts(s, shape))
        above = [v for v in self.lines[value[0]].parents if v in found]
        if above and self.rng.random() < 0.4:
            return self.rng.choice(above)
        if found and self.rng.random() < 0.85:
            return self.rng.choice(found)
        kept = [1 if self.rng.random() < 0.3 else d for d in shape]
        return self.source(kept[self.rng.randint(0, len(kept)) :])

    def adaptedTo(self, module, shapes):
        """Values of the shapes that a module is to have."""
        whole = [limit is not None for limit in limitsOf(module, shapes)]
        found = [self.adapted(s, w) for s, w in zip(shapes, whole, strict=True)]
        return (found[0], self.probability(shapes[0])) if isinstance(module, BCE) else tuple(found)

    def adapted(self, wanted, isWhole):
        """A value of a shape: one that is there, one that is brought to it, or a new input."""
        if isWhole:
            return self.whole(wanted)
        same = self.values(lambda s: s == wanted)
        if same and self.rng.random() < 0.7:
            return self.rng.choice(same)
        size = math.prod(wanted)
        if self.rng.random() < 0.25 or size == 0:
            return self.source(wanted)
        value = self.pick(lambda s: 0 < math.prod(s) <= 300)
        for name in ("row", "resized", "shaped"):
            if name != "resized" or math.prod(self.shape(value)) != size:
                self.add(NodeSpec(name, 0, (value,), wanted))
                value = len(self.lines) - 1, 0
        return value

    def grow(self):
        """One more node, of any kind; nothing where what was drawn does not fit."""
        before = len(self.lines), dict(self.limits)
        try:
            names, weights = list(self.weights), list(self.weights.values())
            self.growBy(self.rng.choices(names, weights)[0], self.rng.getrandbits(32))
            last = self.modules[-1], [self.shape(p) for p in self.lines[-1].parents]
            if any(None in s for s in self.shapes[-1]):
                raise UnfitError("a size that depends on the data")
            if any(math.prod(s) > self.most for s in self.shapes[-1]) or last[0].flopsFrom(*last[1]) > self.mostWork:
                raise UnfitError("too large")
        except UnfitError:
            for kept in (self.lines, self.modules, self.edges, self.shapes, self.types):
                del kept[before[0] :]
            self.limits = before[1]
            self.bounds = {v: n for v, n in self.bounds.items() if v[0] < before[0]}

    def growBy(self, name, seed):
        """A node of a kind."""
        again = [
            i for i, m in enumerate(self.modules) if self.lines[i].parents and m.params and self.lines[i].again < 0
        ]
        if again and self.rng.random() < 0.06:
            line = self.lines[i := self.rng.choice(again)]
            shapes = [self.shape(p) for p in line.parents]
            self.add(line._replace(parents=self.adaptedTo(self.modules[i], shapes), again=i))
            return
        if name == "example":
            cls, args, kwargs, shapes = random.Random(seed).choice(examples())
            parents = self.adaptedTo(cls(*args, **kwargs), shapes)
        else:
            parents = self.parents(PARENTS[name])
        self.add(NodeSpec(name, seed, tuple(parents)))


def broadcasts(a, b):
    """Whether two shapes go together."""
    return all(p == q or 1 in (p, q) for p, q in zip(reversed(a), reversed(b), strict=False))


def randomSpec(seed, most=7, isDiscrete=False, isWide=False):
    """The spec of a seed.

    `isDiscrete`  booleans and integers are among its values
    `isWide`      its inputs and layers have the sizes of layers in published networks
    """
    rng = random.Random(seed)
    draft = GraphDraft(rng, DISCRETE if isDiscrete else WIDE if isWide else WEIGHTS)
    wanted = rng.randint(1, 2 * most if isDiscrete else most)
    for _ in range(4 * most):
        if sum(line.rule not in SOURCES for line in draft.lines) >= wanted:
            break
        draft.grow()
    used = {p for line in draft.lines for p in line.parents}
    values = [v for v in draft.values() if draft.lines[v[0]].rule not in SOURCES] or draft.values()
    ends = [v for v in values if v not in used]
    outputs = tuple(dict.fromkeys([*ends[-4:], *rng.sample(values, min(len(values), rng.randint(0, 2)))])) or (
        values[-1],
    )
    forwardOnly = rng.random() < 0.1
    given = () if forwardOnly else tuple(rng.random() < 0.9 for _ in outputs)
    if given and not any(given):
        given = (True,) * len(outputs)
    if isDiscrete:
        others = [v for v in draft.values(kinds="bi") if draft.lines[v[0]].rule not in SOURCES]
        others = rng.sample(others, min(len(others), rng.randint(0, 2)))
        outputs, given = (*outputs, *others), given and (*given, *[False] * len(others))
    spec = GraphSpec(
        lines=tuple(draft.lines),
        outputs=outputs,
        dtype="float64" if rng.random() < 0.2 else "float32",
        train=not forwardOnly and rng.random() < 0.8,
        given=given,
        optimizer=rng.choice(OPTIMIZERS) if given and rng.random() < 0.4 else "",
        seed=rng.getrandbits(32),
    )
    return pruned(spec)
