"""RecurrentCells: recurrent layers in one direction with every option of ONNX; common ones are RNN, GRU and LSTM."""

import numpy as np

from puregraph import autodiff
from puregraph.arguments import Count, Flag, NotNegative, choice
from puregraph.errors import need
from puregraph.module import Module

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ORDERS = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}  # where ONNX has the gates of our layers
PLAIN = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
FUNCTIONS = {  # of x and two constants
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Sigmoid": lambda x, a, b: 0.5 * (1 + np.tanh(0.5 * x)),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "ThresholdedRelu": lambda x, a, b: np.where(x > a, x, 0 * x),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.minimum(np.maximum(a * x + b, 0), 1),
    "Elu": lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Softplus": lambda x, a, b: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
}
CONSTANTS = {  # those that are used, and what they are where left out
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01, None),
    "ThresholdedRelu": (1.0, None),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0, None),
}


class RecurrentCells(Module):
    """p = x_t W' + h_{t-1} R' + B, and from it h_t, in order of time or, with `isReversed`, against it.

        RNN   h = f(p)
        GRU   z, r = f(p_z), f(p_r);  g = f2(p_g) with r h_{t-1} for h_{t-1}, or if `isLinearFirst` with
              r (h_{t-1} R' + B) for h_{t-1} R' + B;  h = (1 - z) g + z h_{t-1}
        LSTM  i, o, f = f(p_i + P_i c), f(p_o + P_o c_t), f(p_f + P_f c);  c_t = f c + i f2(p_c);  h = o f3(c_t)

    `activations` are (name, alpha, beta) of f, f2, f3; what goes into f and f2 is cut off at -clip and clip unless it
    is 0; with `isCoupled` f = 1 - i. Time steps beyond `lengths` change no state and give y = 0.

    Shapes    x (t, n, i), W (gates h, i), R (gates h, h), B (2 gates h), lengths (n), h0, c0 (n, h), P (3 h) -> y
              (t, n, h), h (n, h), of an LSTM c (n, h)
    Source    ONNX operators RNN, GRU, LSTM
    Raises    ShapeError if the shapes do not fit
    """

    reads = ("x", "W", "R", "B", "lengths", "h0", "c0", "P")
    needsFloats = True
    indices = ("lengths",)

    def __init__(
        self,
        kind: choice(*GATES),
        hsize: Count,
        activations=None,
        clip: NotNegative = 0.0,
        isReversed: Flag = False,
        isLinearFirst: Flag = False,
        isCoupled: Flag = False,
        name=None,
    ):
        super().__init__(name)
        self.kind, self.hsize, self.clip, self.isReversed = kind, hsize, clip, isReversed
        self.isLinearFirst, self.isCoupled = isLinearFirst, isCoupled
        given = activations or [(each, 0.0, 0.0) for each in PLAIN[kind]]
        self.activations = tuple((name, float(alpha), float(beta)) for name, alpha, beta in given)
        known = len(given) == len(PLAIN[kind]) and all(each[0] in FUNCTIONS for each in given)
        need(known, f"{len(PLAIN[kind])} of {', '.join(FUNCTIONS)}", [each[0] for each in given])

    @property
    def outputNames(self):
        return ("y", "h", "c") if self.kind == "LSTM" else ("y", "h")

    def dataShapeFrom(self, x, W, R, B=None, lengths=None, h0=None, c0=None, P=None):
        need(len(x) == 3, "(t, n, i)", x)
        (t, n, i), h, width = x, self.hsize, GATES[self.kind] * self.hsize
        wanted = [(width, i), (width, h), (2 * width,), (n,), (n, h), (n, h), (3 * h,)]
        for name, shape, want in zip(self.reads[1:], (W, R, B, lengths, h0, c0, P), wanted):
            need(shape is None or shape == want, f"{name} of shape {want}", shape)
        return [(t, n, h), *[(n, h)] * (len(self.outputNames) - 1)]

    def updateData(self, x, W, R, B=None, lengths=None, h0=None, c0=None, P=None):
        found = self.run(x, W, R, B, lengths, h0, c0, P)
        return tuple(np.asarray(y, x.dtype) for y in found)

    def activated(self, index, x, clip=None):
        """One of the functions of x, which is cut off before."""
        name, alpha, beta = self.activations[index]
        clip = self.clip if clip is None else clip
        return FUNCTIONS[name](np.minimum(np.maximum(x, -clip), clip) if clip else x, alpha, beta)

    def run(self, x, W, R, B, lengths, h0, c0, P):
        """All outputs, of arrays or of Variables."""
        t, n, _ = x.shape
        h = np.zeros((n, self.hsize), x.dtype) if h0 is None else h0
        c = np.zeros((n, self.hsize), x.dtype) if c0 is None else c0
        width = GATES[self.kind] * self.hsize
        bW, bR = (0, np.zeros(width, x.dtype)) if B is None else (B[:width], B[width:])
        p, U = np.matmul(x, W.T) + bW, R.T
        rows = [np.zeros((n, self.hsize), x.dtype)] * t
        for k in range(t)[:: -1 if self.isReversed else 1]:
            after = self.step(p[k], h, c, U, bR, P)
            isOn = None if lengths is None else (k < lengths)[:, None]
            h, c = [new if isOn is None else np.where(isOn, new, old) for new, old in zip(after, (h, c))]
            rows[k] = h if isOn is None else np.where(isOn, h, 0 * h)
        y = np.stack(rows) if t else np.zeros((0, n, self.hsize), x.dtype)
        return (y, h, c) if self.kind == "LSTM" else (y, h)

    def step(self, p, h, c, U, b, P):
        """The states after a time step."""
        size = self.hsize
        part = [slice(i * size, (i + 1) * size) for i in range(4)]
        if self.kind == "GRU":
            q = np.matmul(h, U[:, : 2 * size]) + b[: 2 * size] + p[:, : 2 * size]
            z, r = self.activated(0, q[:, :size]), self.activated(0, q[:, size:])
            last, rest = U[:, part[2]], b[part[2]]
            inner = r * (np.matmul(h, last) + rest) if self.isLinearFirst else np.matmul(r * h, last) + rest
            return (1 - z) * self.activated(1, p[:, part[2]] + inner) + z * h, c
        q = p + np.matmul(h, U) + b
        if self.kind == "RNN":
            return self.activated(0, q), c
        peep = [0, 0, 0] if P is None else [P[part[i]] for i in range(3)]
        i = self.activated(0, q[:, part[0]] + peep[0] * c)
        f = 1 - i if self.isCoupled else self.activated(0, q[:, part[2]] + peep[2] * c)
        c = f * c + i * self.activated(1, q[:, part[3]])
        o = self.activated(0, q[:, part[1]] + peep[1] * c)
        return o * self.activated(2, c, 0), c

    def updateGrad(self, grad, *values, needs):
        arguments = values[:8]
        given = [
            autodiff.Variable(v, requires_grad=True) if needed and v is not None and name != "lengths" else v
            for name, v, needed in zip(self.reads, arguments, needs)
        ]
        pairs = [(y, g) for y, g in zip(self.run(*given), grad) if g is not None and isinstance(y, autodiff.Variable)]
        wanted = [v for v in given if isinstance(v, autodiff.Variable)]
        found = iter(autodiff.grad([y for y, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True))
        return tuple([next(found) if isinstance(v, autodiff.Variable) else None for v in given])

    def sample(self, rng, *shapes):
        named = zip(self.reads, shapes)
        return [rng.integers(1, shapes[0][0] + 1, s) if n == "lengths" else rng.standard_normal(s) for n, s in named]

    @classmethod
    def examples(cls):
        yield cls("RNN", 2), [(3, 2, 4), (2, 4), (2, 2)]
        gates = (("HardSigmoid", 0.2, 0.5), ("Softsign", 0, 0))
        yield cls("GRU", 2, gates, isReversed=True), [(3, 2, 1), (6, 1), (6, 2), (12,), (2,), (2, 2)]
        yield cls("GRU", 2, clip=0.5, isLinearFirst=True), [(2, 2, 1), (6, 1), (6, 2), (12,)]
        yield cls("LSTM", 2), [(3, 2, 1), (8, 1), (8, 2), (16,), (2,), (2, 2), (2, 2), (6,)]
        yield cls("LSTM", 1, isCoupled=True), [(2, 1, 3), (4, 3), (4, 1)]
