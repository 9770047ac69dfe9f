"""LSTM: one layer of long short-term memory along time."""

import numpy as np

from puregraph.core.param import Param
from puregraph.kernels.recurrent import lstmBack, lstmStep
from puregraph.modules.recurrent import _Recurrent


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
    """1 for the gate f, the second of four in each direction, else 0."""

    def __init__(self, size):
        self.size = size

    def __call__(self, rng, shape):
        values = np.zeros(shape)
        values.reshape(-1, 4, self.size)[:, 1] = 1
        return values
