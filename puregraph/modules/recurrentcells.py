"""RecurrentCells: RNN, GRU and LSTM with every option of ONNX; their gradients, step by step backward."""

from typing import Annotated, Any

import numpy as np

from puregraph.core.arguments import Count, Flag, NotNegative, choice, isNumber
from puregraph.core.errors import need
from puregraph.graph.module import Module


class _CellGradient:
    """Backpropagation through time for a RecurrentCells.

    `h`, `c` are the gradients of the states before a time step; `U`, `b`, `P` are the sums of the weight gradients.
    """

    def __init__(self, cells, R, P, h, c):
        self.cells, self.R, self.peep, self.h, self.c = cells, R, P, h, c
        self.U: Any = None
        self.b: Any = None
        self.P: Any = None

    def step(self, gy, h, c, kept, isOn):
        """Backpropagate through one time step, from states `h`, `c`. Returns the gradient of the sums p."""
        gh, gc = self.h if gy is None else self.h + (gy if isOn is None else np.where(isOn, gy, 0 * gy)), self.c
        if isOn is not None:
            held, (gh, gc) = (gh, gc), [np.where(isOn, g, 0 * g) for g in (gh, gc)]
        gp, self.h, self.c = getattr(self, self.cells.kind.lower())(gh, gc, h, c, kept)
        if isOn is not None:
            self.h, self.c = [np.where(isOn, new, old) for new, old in zip((self.h, self.c), held)]
        return gp

    def add(self, **grads):
        """Add gradients of weights."""
        for name, grad in grads.items():
            before = getattr(self, name)
            setattr(self, name, grad if before is None else before + grad)

    def rnn(self, gh, gc, h, c, slope):
        """The gradients of an RNN cell: of its sums, and of the states before it."""
        q = gh * slope
        self.add(U=np.matmul(h.T, q), b=q.sum(axis=0))
        return q, np.matmul(q, self.R), gc

    def gru(self, gh, gc, h, c, kept):
        """The gradients of a GRU cell."""
        z, r, g, before, zSlope, rSlope, gSlope = kept
        size, last = self.cells.hsize, self.R[2 * self.cells.hsize :]
        gg, back = gh * (1 - z) * gSlope, gh * z
        inner = gg * r if self.cells.isLinearFirst else gg
        ahead = np.matmul(inner, last)
        gr = gg * before if self.cells.isLinearFirst else ahead * h
        back = back + (ahead if self.cells.isLinearFirst else ahead * r)
        q = np.concatenate([gh * (h - g) * zSlope, gr * rSlope], axis=-1)
        shared = h if self.cells.isLinearFirst else before
        weights = [np.matmul(h.T, q), np.matmul(shared.T, inner)]
        self.add(U=np.concatenate(weights, axis=-1), b=np.concatenate([q, inner], axis=-1).sum(axis=0))
        return np.concatenate([q, gg], axis=-1), back + np.matmul(q, self.R[: 2 * size]), gc

    def lstm(self, gh, gc, h, c, kept):
        """The gradients of an LSTM cell."""
        i, f, g, o, y, cNew, iSlope, fSlope, gSlope, oSlope, ySlope = kept
        peep = None if self.peep is None else self.cells.parts(self.peep)
        qo = gh * y * oSlope
        gc = gc + gh * o * ySlope
        gc = gc if peep is None else gc + qo * peep[1]
        back, gi, gf = gc * f, gc * g, gc * c
        qi = (gi - gf if self.cells.isCoupled else gi) * iSlope
        qf = 0 * gf if self.cells.isCoupled else gf * fSlope
        q = np.concatenate([qi, qo, qf, gc * i * gSlope], axis=-1)
        if peep is not None:
            back = back + qi * peep[0] + qf * peep[2]
            self.add(P=np.concatenate([qi * c, qo * cNew, qf * c], axis=-1).sum(axis=0))
        self.add(U=np.matmul(h.T, q), b=q.sum(axis=0))
        return q, np.matmul(q, self.R), back


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ORDERS = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}  # ONNX's gate number for each gate of our layers
PLAIN = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
FUNCTIONS = {  # functions of x and two constants
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
SLOPES = {  # the derivatives, from x, y, and two constants
    "Relu": lambda x, y, a, b: np.where(x > 0, 1, 0 * x),
    "Tanh": lambda x, y, a, b: 1 - y * y,
    "Sigmoid": lambda x, y, a, b: y * (1 - y),
    "Affine": lambda x, y, a, b: a + 0 * x,
    "LeakyRelu": lambda x, y, a, b: np.where(x >= 0, 1, a + 0 * x),
    "ThresholdedRelu": lambda x, y, a, b: np.where(x > a, 1, 0 * x),
    "ScaledTanh": lambda x, y, a, b: a * b * (1 - np.tanh(b * x) ** 2),
    "HardSigmoid": lambda x, y, a, b: np.where((y > 0) & (y < 1), a, 0 * x),
    "Elu": lambda x, y, a, b: np.where(x >= 0, 1, a * np.exp(np.minimum(x, 0))),
    "Softsign": lambda x, y, a, b: (1 - np.abs(y)) ** 2,
    "Softplus": lambda x, y, a, b: 0.5 * (1 + np.tanh(0.5 * x)),
}
CONSTANTS = {  # the constants in use, and their defaults
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01, None),
    "ThresholdedRelu": (1.0, None),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0, None),
}


def isActivation(entry):
    """True for the name of an activation with two constants."""
    isTriple = isinstance(entry, (tuple, list)) and len(entry) == 3
    return isTriple and isinstance(entry[0], str) and all(isNumber(constant) for constant in entry[1:])


class RecurrentCells(Module):
    """p = x_t W' + h_{t-1} R' + B, and from it h_t, in order of time or, with `isReversed`, against it.

        RNN   h = f(p)
        GRU   z, r = f(p_z), f(p_r);  g = f2(p_g) with r h_{t-1} for h_{t-1}, or if `isLinearFirst` with
              r (h_{t-1} R' + B) for h_{t-1} R' + B;  h = (1 - z) g + z h_{t-1}
        LSTM  i, o, f = f(p_i + P_i c), f(p_o + P_o c_t), f(p_f + P_f c);  c_t = f c + i f2(p_c);  h = o f3(c_t)

    `activations` are (name, alpha, beta) of f, f2, f3; the inputs of f and f2 are clipped to [-clip, clip], unless clip
    is 0; with `isCoupled` f = 1 - i. Time steps beyond `lengths` change no state and give y = 0.

    Shapes    x (t, n, i), W (gates h, i), R (gates h, h), B (2 gates h), lengths (n), h0, c0 (n, h), P (3 h) -> y
              (t, n, h), h (n, h), of an LSTM c (n, h)
    Source    ONNX operators RNN, GRU, LSTM
    Raises    ShapeError if the shapes do not fit
    """

    reads = ("x", "W", "R", "B", "lengths", "h0", "c0", "P")
    needsFloats = needsOneFloat = True
    indices = ("lengths",)

    def __init__(
        self,
        kind: Annotated[str, choice(*GATES)],
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
        isList = activations is None or isinstance(activations, (tuple, list))
        need(isList and all(map(isActivation, activations or ())), "activations as (name, alpha, beta)", activations)
        triples = activations or [(entry, 0.0, 0.0) for entry in PLAIN[kind]]
        self.activations = tuple((name, float(alpha), float(beta)) for name, alpha, beta in triples)
        known = len(triples) == len(PLAIN[kind]) and all(entry[0] in FUNCTIONS for entry in triples)
        need(
            known,
            f"{len(PLAIN[kind])} activations, each one of {', '.join(FUNCTIONS)}",
            [entry[0] for entry in triples],
        )

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
        outputs, _ = self.run(x, W, R, B, lengths, h0, c0, P)
        return tuple([y.astype(x.dtype, copy=False) for y in outputs])

    def order(self, t):
        """The time steps in the order of computation."""
        return range(t)[:: -1 if self.isReversed else 1]

    def run(self, x, W, R, B, lengths, h0, c0, P):
        """All outputs, and the values that each time step keeps for its gradient."""
        t, n, _ = x.shape
        h = np.zeros_like(x, shape=(n, self.hsize)) if h0 is None else h0
        c = np.zeros_like(x, shape=(n, self.hsize)) if c0 is None else c0
        width = GATES[self.kind] * self.hsize
        p, b = np.matmul(x, W.T), 0
        if B is not None:
            p, b = p + B[:width], B[width:]
        rows = [h] * t
        kept: list[Any] = [None] * t
        for k in self.order(t):
            hNew, cNew, forGrad = self.step(p[k], h, c, R.T, b, P)
            kept[k] = h, c, forGrad
            isOn = None if lengths is None else (k < lengths)[:, None]
            h, c = [new if isOn is None else np.where(isOn, new, old) for new, old in ((hNew, h), (cNew, c))]
            rows[k] = h if isOn is None else np.where(isOn, h, x.dtype.type(0))
        y = np.stack(rows) if t else np.zeros_like(x, shape=(0, n, self.hsize))
        return ((y, h, c) if self.kind == "LSTM" else (y, h)), kept

    def gate(self, index, x, clip=None):
        """One activation of x, clipped first, and its derivative."""
        name, alpha, beta = self.activations[index]
        clip = self.clip if clip is None else clip
        inside = np.minimum(np.maximum(x, -clip), clip) if clip else x
        y = FUNCTIONS[name](inside, alpha, beta)
        slope = SLOPES[name](inside, y, alpha, beta)
        return y, np.where((x >= -clip) & (x <= clip), slope, 0 * x) if clip else slope

    def parts(self, x):
        """The gates along the last axis."""
        return [x[..., i * self.hsize : (i + 1) * self.hsize] for i in range(GATES[self.kind])]

    def step(self, p, h, c, U, b, P):
        """The states after a time step, and what their gradient is computed from."""
        if self.kind == "GRU":
            return self.reset(p, h, c, U, b)
        q = p + np.matmul(h, U) + b
        if self.kind == "RNN":
            y, slope = self.gate(0, q)
            return y, c, slope
        qi, qo, qf, qc = self.parts(q)
        peep: Any = None if P is None else self.parts(P)
        i, iSlope = self.gate(0, qi if P is None else qi + peep[0] * c)
        f, fSlope = (1 - i, None) if self.isCoupled else self.gate(0, qf if P is None else qf + peep[2] * c)
        g, gSlope = self.gate(1, qc)
        cNew = f * c + i * g
        o, oSlope = self.gate(0, qo if P is None else qo + peep[1] * cNew)
        y, ySlope = self.gate(2, cNew, 0)
        return o * y, cNew, (i, f, g, o, y, cNew, iSlope, fSlope, gSlope, oSlope, ySlope)

    def reset(self, p, h, c, U, b):
        """The step of a GRU."""
        size, has = self.hsize, type(b) is not int
        (pz, pr, pg), gates, last = self.parts(p), U[:, : 2 * size], U[:, 2 * size :]
        q, bias = np.matmul(h, gates), b[2 * size :] if has else 0
        q = q + b[: 2 * size] if has else q
        (z, zSlope), (r, rSlope) = self.gate(0, pz + q[:, :size]), self.gate(0, pr + q[:, size:])
        before = np.matmul(h, last) + bias if self.isLinearFirst else r * h
        inner = r * before if self.isLinearFirst else np.matmul(before, last) + bias
        g, gSlope = self.gate(1, pg + inner)
        return (1 - z) * g + z * h, c, (z, r, g, before, zSlope, rSlope, gSlope)

    def updateGrad(self, grad, x, W, R, B, lengths, h0, c0, P, *outputs, needs):
        t, n, _ = x.shape
        _, kept = self.run(x, W, R, B, lengths, h0, c0, P)
        gy, gh, gc = [*grad, None][:3]
        zeros = np.zeros_like(x, shape=(n, self.hsize))
        back = _CellGradient(self, R, P, zeros if gh is None else gh, zeros if gc is None else gc)
        gp: list[Any] = [None] * t
        for k in reversed(self.order(t)):
            before, cell, forGrad = kept[k]
            isOn = None if lengths is None else (k < lengths)[:, None]
            gp[k] = back.step(None if gy is None else gy[k], before, cell, forGrad, isOn)
        grads = dict(zip(self.reads, (None,) * 8)) | {"h0": back.h, "c0": back.c}
        if t:
            rows = np.stack(gp).reshape(-1, W.shape[0])
            grads["x"] = np.matmul(rows, W).reshape(x.shape)
            grads["W"] = np.matmul(rows.T, x.reshape(t * n, x.shape[2]))
            grads["B"] = np.concatenate([rows.sum(axis=0), back.b])
            grads |= {"R": back.U.T, "P": back.P}
        else:
            grads |= {name: np.zeros_like(v) for name, v in zip("xWRBP", (x, W, R, B, P)) if v is not None}
        operands = zip(self.reads, (x, W, R, B, lengths, h0, c0, P), needs)
        return tuple(
            [None if v is None or not needed or grads[name] is None else grads[name] for name, v, needed in operands]
        )

    def sample(self, rng, *shapes):
        named = zip(self.reads, shapes)
        t = shapes[0][0]
        return [rng.integers(min(1, t), t + 1, s) if n == "lengths" else rng.standard_normal(s) for n, s in named]

    @classmethod
    def examples(cls):
        yield cls("RNN", 2), [(3, 2, 4), (2, 4), (2, 2)]
        gates = (("HardSigmoid", 0.2, 0.5), ("Softsign", 0, 0))
        yield cls("GRU", 2, gates, isReversed=True), [(3, 2, 1), (6, 1), (6, 2), (12,), (2,), (2, 2)]
        yield cls("GRU", 2, clip=0.5, isLinearFirst=True), [(2, 2, 1), (6, 1), (6, 2), (12,)]
        yield cls("LSTM", 2), [(3, 2, 1), (8, 1), (8, 2), (16,), (2,), (2, 2), (2, 2), (6,)]
        yield cls("LSTM", 1, isCoupled=True), [(2, 1, 3), (4, 3), (4, 1)]
