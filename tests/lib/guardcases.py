"""Random graphs of a few modules at sizes that no kernel was tuned for, for programs that run inside guard bands."""

import numpy as np

from puregraph import (
    GRU,
    LSTM,
    RNN,
    Add,
    Attention,
    AvgPool2D,
    BatchNorm,
    Concat,
    Conv1D,
    Conv2D,
    Conv3D,
    CumProd,
    CumSum,
    Deconv2D,
    Einsum,
    Embedder,
    Gather,
    Gelu,
    Graph,
    GroupNorm,
    HardSwish,
    Input,
    LayerNorm,
    Linear,
    MatMul,
    Max,
    MaxPool2D,
    Mean,
    Mul,
    Pad,
    PairDot,
    Relu,
    Sequential,
    Sigmoid,
    SoftMax,
    Sum,
    Swish,
    Tanh,
    Tile,
    TopKValues,
    Transpose,
    Upsample2D,
)

LARGE = (184, 200, 240, 360, 480, 672, 960)  # multiples of 8 of which most are not multiples of 16
ODD_EIGHTS = tuple(range(8, 131, 16))
BATCHES = (1, 2, 3, 7, 33)


class CaseDrawer:
    """Draws a graph and its inputs; equal seeds draw equal ones."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def pick(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]

    def number(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def array(self, *shape):
        return self.rng.standard_normal(shape).astype(np.float32)

    def integers(self, high, *shape):
        return self.rng.integers(0, high, shape)

    def channels(self, isLarge=False):
        return self.pick(*self.pick(tuple(range(1, 131)), ODD_EIGHTS, LARGE if isLarge else ODD_EIGHTS))

    def batch(self):
        return self.pick(*BATCHES)

    def map(self, least=1):
        return self.pick((14, 14), *[(self.number(least, max(9, least)), self.number(least, max(9, least)))] * 4)

    def pointwise(self):
        n, a, b = self.pick(1, 2, 3), self.channels(True), self.channels(True)
        return [Conv2D(a, b, 1, stride=self.pick(1, 1, 2), useBias=bool(self.number(0, 1)))], [
            self.array(n, a, *self.map())
        ]

    def convolution(self):
        n, a, b = self.batch(), self.channels(), self.channels()
        size, stride = (self.number(1, 5), self.number(1, 5)), (self.number(1, 3), self.number(1, 3))
        pad, dilation = self.number(0, 2), self.pick(1, 1, 2)
        x = self.array(min(n, 3), a, *self.map(dilation * 4 + 1))
        return [Conv2D(a, b, size, stride=stride, pad=pad, dilation=dilation)], [x]

    def square(self):
        n, a, b = self.pick(1, 2, 3), self.pick(16, 32, 48, self.channels()), self.pick(16, 64, self.channels())
        return [Conv2D(a, b, 3, pad=1, useBias=False), BatchNorm(b), Relu()], [self.array(n + 1, a, *self.map(3))]

    def grouped(self):
        groups = self.pick(2, 3, 4)
        a, b = groups * self.pick(1, 3, 8, 12, 24, 40), groups * self.pick(1, 3, 8, 12, 24, 40)
        size = self.pick(1, 3, 5)
        return [Conv2D(a, b, size, pad=size // 2, groups=groups)], [self.array(self.pick(1, 2), a, *self.map())]

    def depthwise(self):
        a, size = max(2, self.channels(True)), self.pick(2, 3, 5, 7)
        conv = Conv2D(a, a, size, pad=size // 2, stride=self.pick(1, 2, 3), dilation=self.pick(1, 1, 2), groups=a)
        return [conv], [self.array(self.pick(1, 2, 3), a, *self.map(9 if size > 3 else 5))]

    def transposed(self):
        groups, size = self.pick(1, 1, 2), self.number(1, 5)
        a, b = groups * self.number(1, 40), groups * self.number(1, 40)
        conv = Deconv2D(a, b, size, stride=self.pick(1, 2, 3), pad=self.pick(0, min(1, size - 1)), groups=groups)
        return [conv], [self.array(self.pick(1, 2), a, *self.map(2))]

    def lines(self):
        a, b, size = self.channels(), self.channels(), self.number(1, 9)
        x = self.array(self.pick(1, 2, 3), a, self.number(size, 70))
        return [Conv1D(a, b, size, pad=self.pick(0, size // 2), stride=self.pick(1, 2))], [x]

    def cubes(self):
        a, b, size = self.number(1, 40), self.number(1, 40), self.pick(1, 3)
        return [Conv3D(a, b, size, pad=size // 2, stride=self.pick(1, 2))], [self.array(2, a, 3, *self.map(3))]

    def product(self):
        m, k, n = self.pick(1, self.number(1, 70)), self.pick(self.number(1, 130), 200, 360, 513), self.channels(True)
        if self.number(0, 1):
            return [Linear(k, n, transpose=bool(self.number(0, 1)))], [self.array(m, k)]
        ta, tb = bool(self.number(0, 1)), bool(self.number(0, 1))
        batch = self.pick((), (self.number(1, 4),))
        a, b = self.array(*batch, *((k, m) if ta else (m, k))), self.array(*batch, *((n, k) if tb else (k, n)))
        return [MatMul(ta, tb)], [a, b]

    def einsum(self):
        sizes = dict(zip("ijkl", (self.number(1, 33) for _ in range(4))))
        equation = self.pick(
            "ij,jk->ik", "ijk,ikl->ijl", "ijk,jl->ilk", "ij,ij->i", "ijkl,jl->ik", "iij->j", "ij,ik->ijk"
        )
        terms = equation.split("->")[0].split(",")
        return [Einsum(equation)], [self.array(*(sizes[c] for c in term)) for term in terms]

    def pairs(self):
        n, d = self.batch(), self.number(1, 40)
        return [PairDot()], [self.array(n, d) for _ in range(self.number(2, 30))]

    def attention(self):
        n, heads, groups = self.pick(1, 2), self.pick(1, 2), self.pick(1, 3)
        t, s, d = self.number(1, 130), self.number(1, 130), self.pick(self.number(1, 130), 24, 64)
        isCausal = bool(self.number(0, 1))
        s = t if isCausal else s
        x = [self.array(n, heads * groups, t, d), self.array(n, heads, s, d), self.array(n, heads, s, self.pick(d, 40))]
        x += self.pick([], [self.array(n, heads * groups, t, s)], [self.array(n, 1, 1, s)])
        return [Attention(causal=isCausal)], x

    def recurrent(self):
        cell, insize, units = self.pick(LSTM, GRU, RNN), self.number(1, 70), self.number(1, 70)
        module = cell(insize, units, direction=self.pick("uni", "bi"), outputs=self.pick(["y", "h"], "h", "y"))
        return [module], [self.array(self.batch(), self.number(1, 9), insize)]

    def pooling(self):
        size, c = self.pick(2, 3, (2, 3), (3, 1)), self.channels()
        kind = self.pick(MaxPool2D, AvgPool2D)
        module = self.pick(
            kind(size, stride=self.pick(1, 2, 3)), Upsample2D(2), Upsample2D(2, "linear"), Pad((1, 2, 0, 1))
        )
        return [module], [self.array(self.pick(1, 2, 3), c, *self.map(3))]

    def norm(self):
        n, c = self.batch(), self.channels()
        h, w = self.map()
        groups = self.pick(1, 2, 4)
        return self.pick(
            ([BatchNorm(c)], [self.array(n + 1, c, h, w)]),
            ([LayerNorm(c)], [self.array(n, h, c)]),
            ([LayerNorm((h, c))], [self.array(n, h, c)]),
            ([GroupNorm(groups, c * groups)], [self.array(n, c * groups, h, w)]),
            ([SoftMax(axis=self.number(1, 3))], [self.array(n, c, h, w)]),
            ([SoftMax()], [self.array(n, 1000)]),
        )

    def reduction(self):
        shape = [self.pick(1, 2, 3, 5, 8, 13, 16, 17, 24, 33) for _ in range(self.number(1, 4))]
        axes = self.rng.choice(len(shape), self.number(1, len(shape)), replace=False)
        return [self.pick(Sum, Mean, Max)(axis=tuple(sorted(axes.tolist())))], [self.array(*shape)]

    def cumulation(self):
        shape = [self.pick(1, 2, 3, 5, 8, 13, 16, 17, 24, 33, 70) for _ in range(self.number(1, 4))]
        module = self.pick(CumSum, CumProd)(
            self.number(0, len(shape) - 1), bool(self.number(0, 1)), bool(self.number(0, 1))
        )
        return [module, *self.pick([], [Tanh()])], [self.array(*shape)]

    def ordering(self):
        shape = [self.pick(1, 2, 3, 5, 8, 13, 33, 70, 200) for _ in range(self.number(1, 3))]
        axis, x = self.number(0, len(shape) - 1), Input(name="x").node()
        node = TopKValues(self.number(1, shape[axis]), axis, bool(self.number(0, 1))).node(x)
        return Graph(x, Tanh().node((node, 0))), [self.array(*shape)]

    def movement(self):
        shape = [self.pick(1, 2, 3, 5, 8, 13, 16, 17, 24, 33) for _ in range(self.number(2, 4))]
        axis = self.number(0, len(shape) - 1)
        x, index = self.array(*shape), self.integers(shape[axis], self.number(1, 9), self.number(1, 9))
        wider = [*shape[:axis], self.number(1, 20), *shape[axis + 1 :]]
        return self.pick(
            ([Transpose(self.rng.permutation(len(shape)).tolist()), Tanh()], [x]),
            ([Gather(axis=axis)], [x, index]),
            ([Embedder(shape[0] + 3, shape[-1])], [self.integers(shape[0], self.batch(), 5)]),
            ([Concat(axis)], [x, self.array(*wider), x]),
            ([Tile([self.number(1, 3) for _ in shape])], [x]),
            ([Gelu(), Swish()], [x]),
        )

    def network(self):
        """A small network of convolutions, norms, residuals and gates."""
        x = node = Input(name="x").node()
        c, (h, w) = self.pick(3, 8, 16, 24), self.map(4)
        given = self.array(self.pick(2, 3), c, h, w)
        for _ in range(self.number(2, 4)):
            o = self.pick(*ODD_EIGHTS, *LARGE)
            kind = self.pick("point", "point", "norm", "square", "depthwise", "residual", "gate")
            if kind == "point":
                node, c = Relu()(Conv2D(c, o, 1)(node)), o
            elif kind == "norm":
                node, c = Relu()(BatchNorm(o)(Conv2D(c, o, 1, useBias=False)(node))), o
            elif kind == "square":
                o = self.pick(*ODD_EIGHTS)
                node, c = HardSwish()(Conv2D(c, o, 3, pad=1)(node)), o
            elif kind == "depthwise" and c > 1:
                node = Relu()(Conv2D(c, c, 3, pad=1, groups=c)(node))
            elif kind == "residual":
                node = Add()(node, Conv2D(o, c, 1)(Relu()(Conv2D(c, o, 1)(node))))
            elif kind == "gate":
                squeezed = Relu()(Conv2D(c, 8, 1)(AvgPool2D((h, w))(node)))
                node = Mul()(node, Sigmoid()(Conv2D(8, c, 1)(squeezed)))
        return Graph(x, Linear(c, self.number(1, 70))(Mean(axis=(2, 3))(node))), [given]


KINDS = [name for name, kind in vars(CaseDrawer).items() if callable(kind) and not name.startswith("_")]
KINDS = [name for name in KINDS if name not in ("pick", "number", "array", "integers", "channels", "batch", "map")]


def graphOf(modules, count):
    """A graph of modules one behind the other, the first with `count` inputs."""
    if isinstance(modules, Graph):
        return modules
    if count == 1:
        return Sequential(*modules)
    inputs = [Input(name=f"x{i}").node() for i in range(count)]
    node = modules[0].node(*inputs)
    for module in modules[1:]:
        node = module.node(node)
    return Graph(inputs, node)


def drawn(kind, seed):
    """The graph and the inputs of a kind and a seed."""
    drawer = CaseDrawer([seed, KINDS.index(kind)])
    modules, inputs = getattr(drawer, kind)()
    return graphOf(modules, len(inputs)), inputs
