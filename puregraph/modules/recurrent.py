"""Recurrent layers: RNN, GRU, LSTM, and their common base."""

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from puregraph.core import initial
from puregraph.core.arguments import Count, Flag, NotNegative, Texts, choice, hinted
from puregraph.core.base.dtype import promoted
from puregraph.core.base.widen import widen
from puregraph.core.errors import DataError, need
from puregraph.core.param import Param
from puregraph.graph.module import Module
from puregraph.ops.recurrent.reference import (
    alive,
    backward,
    forward,
    gruBack,
    gruStep,
    lstmBack,
    lstmStep,
    parts,
    reluBack,
    reluStep,
    tanhBack,
    tanhStep,
)
from puregraph.ops.reduction.reference import total

DIRECTIONS = {"uni": 1, "bi": 2}


class _Recurrent(Module):
    """Base class. A subclass defines its states (`cell`), the number of `gates`, values `kept`, `step` and `back`."""

    step: Callable[..., Any]
    back: Callable[..., Any]
    reads: tuple[str, ...] = ("x", "h0", "lengths", "W", "U", "y")
    needsFloats = needsOneFloat = True
    indices = ("lengths",)
    zeroBeyond = "lengths"
    cell: tuple[str, ...] = ("h",)
    kept: tuple[str, ...] = ()
    gates = 1

    def __init__(
        self,
        insize: Count,
        hsize: Count,
        direction: Annotated[str, choice("uni", "bi")] = "uni",
        useBias: Flag = True,
        initscheme=None,
        wscale: NotNegative = 1.0,
        outputs: Texts = "y",
        name=None,
    ):
        super().__init__(name)
        self.hsize, self.sides = hsize, DIRECTIONS[direction]
        self.chosen = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        known = ("y", *self.cell)
        fits = self.chosen and set(self.chosen) <= set(known) and len(set(self.chosen)) == len(self.chosen)
        need(fits, f"outputs among {', '.join(map(repr, known))}, each once", repr(outputs))
        width = self.sides * self.gates * hsize
        self.W = Param((insize, width), initial.weights(initscheme, insize, hsize, wscale))
        self.U = Param((hsize, width), _Blocks(initial.OrthogonalStart(), hsize))
        self.addBiases(width, useBias)

    def addBiases(self, width, useBias):
        """Make the bias parameters of the cell, if any."""
        self.b = Param((width,)) if useBias else None

    @property
    def outputNames(self):
        return self.chosen

    @property
    def hidden(self):
        """Values that the gradient reads: y if it is no output, other states at every time step, and those `kept`."""
        return (*(() if "y" in self.chosen else ("y",)), *self.tracked)

    # Shapes -----------------------------------------------------------------------------------------------------------

    def dataShapeFrom(self, x, *others):
        insize = self.W.shape[0]
        need(len(x) == 3 and x[2] == insize, f"(n, t, {insize})", x, "samples first, then time steps")
        need(x[1] >= 1, "at least one time step in axis 1", x)
        last = (x[0], self.sides * self.hsize)
        for name, shape in zip(self.arguments[1:], others):
            wanted = last[:1] if name == "lengths" else last
            need(shape is None or shape == wanted, f"{name} of shape {wanted}", shape)
        shapes = [(*x[:2], last[1]) if name == "y" else last for name in self.chosen]
        return shapes if len(shapes) > 1 else shapes[0]

    def hiddenShapeFrom(self, x, *others):
        size = self.sides * self.hsize
        return [(*x[:2], 4 * size if name == "gates" else size) for name in self.hidden]

    def hiddenTypeFrom(self, *dtypes):
        wide = np.promote_types(self.W.dtype, np.float32)
        return [promoted([self.W.dtype, *dtypes[:1]]) if name == "y" else wide for name in self.hidden]

    def flopsFrom(self, x, *others):
        insize, width = self.W.shape
        return x[0] * x[1] * width * (2 * (insize + self.hsize) + 3)

    def sample(self, rng, x, *others):
        return [
            rng.integers(1, x[1] + 1, shape) if name == "lengths" else rng.standard_normal(shape)
            for name, shape in zip(self.arguments, (x, *others))
        ]

    # Rules ------------------------------------------------------------------------------------------------------------

    def run(self, x, first, lengths, W, b, *weights):
        """All outputs, visible and hidden."""
        dtype = x.dtype
        x, W, b = map(widen, (x, W, b))
        weights = tuple(map(widen, weights))
        x, first, on = self.enter(x, first, lengths)
        tracks = [
            forward(self.step, x, *self.side([W, b], i), self.side(weights, i), self.side(first, i), on, i == 1)
            for i in range(self.sides)
        ]
        values = dict(zip(("y", *self.tracked), joined(tracks)))
        for index, state in enumerate(self.cell):
            (last,) = joined([[track[index][:, 0 if i else -1]] for i, track in enumerate(tracks)])
            values[state] = last.astype(dtype, copy=False)
        y = values["y"] if on is None else np.where(on[:, :, None], values["y"], 0)
        values["y"] = y.astype(dtype, copy=False)
        made = tuple([values[name] for name in (*self.outputNames, *self.hidden)])
        return made if len(made) > 1 else made[0]

    def updateGrad(self, grad, *values, needs):
        """The gradient of every argument, in the order x, first states, lengths, W, b, other weights."""
        x, *others = values[: len(needs)]
        dtype, count = x.dtype, len(self.cell)
        W, _, U, *_ = others[count + 1 :]
        x, first, on = self.enter(widen(x), others[:count], others[count])
        made = dict(zip((*self.outputNames, *self.hidden), values[len(needs) :]))
        tracks = [widen(made[name]) for name in ("y", *self.tracked)]
        grads = self.seeds(grad, tracks[0], first, on)
        dp, *rest = joined([self.through(i, widen(U), tracks, first, grads, on) for i in range(self.sides)])
        result = [
            dp @ widen(W).T if needs[0] else None,
            *(g if s is not None else None for g, s in zip(rest, others[:count])),
            None,
            flat(x).T @ flat(dp) if needs[count + 2] else None,
            total(dp, (0, 1)) if needs[count + 3] else None,
            *(g if needed else None for g, needed in zip(rest[count:], needs[count + 4 :])),
        ]
        return tuple([None if g is None else g.astype(dtype, copy=False) for g in result])

    def seeds(self, grad, y, first, on):
        """The gradients of y and of the last states; zeros where there is none."""
        gradOf = dict(zip(self.outputNames, grad if len(self.outputNames) > 1 else [grad]))
        gy, *glast = (
            np.zeros_like(like) if gradOf.get(name) is None else widen(gradOf[name])
            for name, like in zip(("y", *self.cell), (y, *first))
        )
        return [gy if on is None else np.where(on[:, :, None], gy, 0), *glast]

    def through(self, i, U, tracks, first, grads, on):
        """Backpropagation through time in one direction: dp, the gradients of first states and of the weights."""
        after, first, (gy, *glast), (U,) = (self.side(values, i) for values in (tracks, first, grads, [U]))
        before = [earlier(track, s, on, i == 1) for track, s in zip(after, first)]
        count = len(first)
        dp, dq, gfirst = backward(self.back, U, before, after[:count], after[count:], gy, glast, on, i == 1)
        return dp, *gfirst, *self.weightGrads(before[0], dq)

    def weightGrads(self, h, dq):
        """Gradients of the recurrent weights: of U in q = h U, as one product over all time steps."""
        return [flat(h).T @ flat(dq)]

    @property
    def tracked(self):
        """The names of values kept for every time step besides y."""
        return (*(f"{state}s" for state in self.cell[1:]), *self.kept)

    def side(self, values, i):
        """The part of each value that belongs to the i-th direction."""
        return [v if v is None or self.sides == 1 else parts(v, self.sides)[i] for v in values]

    def enter(self, x, first, lengths):
        """x with zeros in the padding; the first states, zeros by default; the mask of valid time steps."""
        zeros = np.zeros_like(x, shape=(x.shape[0], self.sides * self.hsize))
        first = [zeros if s is None else widen(s) for s in first]
        if lengths is None:
            return x, first, None
        kind = type(self).__name__
        if lengths.dtype.kind not in "iu":
            raise DataError(f"{kind}: wanted lengths in whole numbers, got {lengths.dtype}; use .astype('int64')")
        try:
            on = alive(lengths, x.shape[1])
        except IndexError as error:
            raise DataError(f"{kind}: {error}") from None
        return np.where(on[:, :, None], x, 0), first, on


def joined(sides):
    """The results of the directions, concatenated along the last axis."""
    return [parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1) for parts in zip(*sides)]


def flat(x):
    """Samples and time steps as one axis."""
    return x.reshape(-1, x.shape[-1])


def earlier(track, first, on, reverse):
    """The states before each time step: the states after it, shifted by one, with the first state in front."""
    start = first[:, None]
    if on is not None:  # in reverse, a sample's last valid time step follows the first state, not padding
        track = np.where(on[:, :, None], track, start)
    return np.concatenate([track[:, 1:], start] if reverse else [start, track[:, :-1]], axis=1)


class _Blocks:
    """Initializer of a row of square blocks, each drawn separately."""

    def __init__(self, start, size):
        self.start, self.size = start, size

    def __call__(self, rng, shape):
        blocks = shape[1] // self.size
        return np.concatenate([self.start(rng, (self.size, self.size)) for _ in range(blocks)], axis=1)


MODES = {"tanh": (tanhStep, tanhBack), "relu": (reluStep, reluBack)}


class RNN(_Recurrent):
    """h_t = tanh(x_t W + b + h_{t-1} U), from h_0 = 0 or as given; max(..., 0) in the mode "relu"

    Samples come first, then time steps; Transpose((1, 0, 2)) transposes data with time steps first. `outputs` names
    what comes out, one name or several: "y", all h_t; "h", the last one. With direction "bi" a second layer of cells
    runs from the last time step to the first, and its values follow the first one's in the last axis. With
    `lengths`, time steps beyond them change no state and give y = 0. U starts orthogonal, b at 0.

    PyTorch has the transposes of W and U, and two biases that are added; "bi" has the two directions concatenated.

    Shapes    x (n, t, i), h0 (n, d hsize), lengths (n,); W (i, d hsize), U (hsize, d hsize), b (d hsize,), d = 2 for
              "bi", else 1 -> y (n, t, d hsize), h (n, d hsize)
    Source    Elman 1990, Finding Structure in Time, Cognitive Science 14; Schuster, Paliwal 1997, Bidirectional
              Recurrent Neural Networks, IEEE Transactions on Signal Processing 45, figure 3
    Raises    ShapeError if x is not (n, t, i) or has no time step; DataError if a length is not from 0 to t
    """

    def __init__(
        self,
        insize: Count,
        hsize: Count,
        mode: Annotated[str, hinted(choice(*MODES), "gated cells are LSTM and GRU")] = "tanh",
        direction: Annotated[str, choice("uni", "bi")] = "uni",
        useBias: Flag = True,
        initscheme=None,
        wscale: NotNegative = 1.0,
        outputs: Texts = "y",
        name=None,
    ):
        super().__init__(insize, hsize, direction, useBias, initscheme, wscale, outputs, name)
        self.step, self.back = MODES[mode]

    def updateData(self, x, h0=None, lengths=None, W=None, b=None, U=None):
        return self.run(x, [h0], lengths, W, b, U)

    @classmethod
    def examples(cls):
        yield cls(3, 4), [(2, 5, 3)]
        yield cls(3, 2, mode="relu", useBias=False, outputs="h"), [(2, 4, 3), (2, 2)]
        yield cls(2, 3, direction="bi", outputs=("h", "y")), [(4, 3, 2), (4, 6), (4,)]


class GRU(_Recurrent):
    """r, z = s(a_r + q_r), s(a_z + q_z), g = tanh(a_g + r (q_g + d)), the parts of a = x_t W + b, q = h_{t-1} U

        h_t = (1 - z) g + z h_{t-1},   from h_0 = 0 or as given;   s(a) = 1 / (1 + exp(-a))

    Samples come first, then time steps; Transpose((1, 0, 2)) transposes data with time steps first. `outputs` names
    what comes out, one name or several: "y", all h_t; "h", the last one. With direction "bi" a second layer of cells
    runs from the last time step to the first, and its values follow the first one's in the last axis. With
    `lengths`, time steps beyond them change no state and give y = 0. r, z, g and q_g + d are the hidden output
    `gates`, in float32 or better. U starts orthogonal in each gate, b and d at 0.

    PyTorch has the transposes of W and U; its two biases are added but for the last third of the second, which is d;
    "bi" has the two directions concatenated.

    Shapes    x (n, t, i), h0 (n, k hsize), lengths (n,); W (i, 3 k hsize), U (hsize, 3 k hsize), b (3 k hsize,),
              d (k hsize,), k = 2 for "bi", else 1 -> y (n, t, k hsize), h (n, k hsize)
    Source    Cho et al. 2014, arXiv:1406.1078, eq. 5 to 8, with U before r as in version 1, so that one product serves
              all gates
    Raises    ShapeError if x is not (n, t, i) or has no time step; DataError if a length is not from 0 to t
    """

    reads = ("x", "h0", "lengths", "W", "U", "y", "gates")
    kept = ("gates",)
    gates = 3
    step, back = staticmethod(gruStep), staticmethod(gruBack)

    def addBiases(self, width, useBias):
        super().addBiases(width, useBias)
        self.d = Param((self.sides * self.hsize,)) if useBias else None

    def updateData(self, x, h0=None, lengths=None, W=None, b=None, U=None, d=None):
        return self.run(x, [h0], lengths, W, b, U, d)

    def weightGrads(self, h, dq):
        """Gradients of U and of d, which is the last third of q."""
        return [*super().weightGrads(h, dq), total(flat(dq)[:, 2 * self.hsize :], 0)]

    @classmethod
    def examples(cls):
        yield cls(3, 4), [(2, 5, 3)]
        yield cls(3, 2, useBias=False, outputs=("y", "h")), [(2, 4, 3), (2, 2)]
        yield cls(2, 3, direction="bi", outputs="h"), [(4, 3, 2), (4, 6), (4,)]


class LSTM(_Recurrent):
    """i, f, g, o = s(a_i), s(a_f), tanh(a_g), s(a_o), the parts of a = x_t W + b + h_{t-1} U; s(a) = 1 / (1 + exp(-a))

        c_t = f c_{t-1} + i g,   h_t = o tanh(c_t),   from h_0 = c_0 = 0 or as given

    Samples come first, then time steps; Transpose((1, 0, 2)) transposes data with time steps first. `outputs` names
    what comes out, one name or several: "y", all h_t; "h" and "c", the last states. With direction "bi" a second layer
    of cells runs from the last time step to the first, and its values follow the first one's in the last axis. With
    `lengths`, time steps beyond them change no state and give y = 0. All c_t and the gates are the hidden
    outputs `cs` and `gates`, in float32 or better. U starts orthogonal in each gate, b at 1 for the gate f, else at 0.

    PyTorch has the transposes of W and U, and two biases that are added; "bi" has the two directions concatenated.

    Shapes    x (n, t, i), h0, c0 (n, d hsize), lengths (n,); W (i, 4 d hsize), U (hsize, 4 d hsize), b (4 d hsize,),
              d = 2 for "bi", else 1 -> y (n, t, d hsize), h, c (n, d hsize)
    Source    Hochreiter, Schmidhuber 1997, Neural Computation 9(8); the gate f: Gers, Schmidhuber, Cummins 2000, Neural
              Computation 12(10), eq. 3.1; its bias: Jozefowicz, Zaremba, Sutskever 2015, section 2.2
    Raises    ShapeError if x is not (n, t, i) or has no time step; DataError if a length is not from 0 to t
    """

    reads = ("x", "h0", "c0", "lengths", "W", "U", "y", "cs", "gates")
    cell = ("h", "c")
    kept = ("gates",)
    gates = 4
    step, back = staticmethod(lstmStep), staticmethod(lstmBack)

    def addBiases(self, width, useBias):
        self.b = Param((width,), _Open(self.hsize)) if useBias else None

    def updateData(self, x, h0=None, c0=None, lengths=None, W=None, b=None, U=None):
        return self.run(x, [h0, c0], lengths, W, b, U)

    @classmethod
    def examples(cls):
        yield cls(3, 4), [(2, 5, 3)]
        yield cls(3, 2, useBias=False, outputs=("y", "h", "c")), [(2, 4, 3), (2, 2), (2, 2)]
        yield cls(2, 3, outputs="h"), [(3, 4, 2), (3, 3), (3, 3), (3,)]
        yield cls(2, 3, direction="bi", outputs=("c", "y")), [(4, 3, 2), (4, 6), (4, 6), (4,)]


class _Open:
    """Initializer of LSTM biases: 1 for the gate f, the second of four in each direction, else 0."""

    def __init__(self, size):
        self.size = size

    def __call__(self, rng, shape):
        values = np.zeros(shape)
        values.reshape(-1, 4, self.size)[:, 1] = 1
        return values
