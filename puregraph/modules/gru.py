"""GRU: one layer of gated recurrent units along time."""

from puregraph.core.param import Param
from puregraph.kernels.recurrent import gruBack, gruStep
from puregraph.kernels.reduce import total
from puregraph.modules.recurrent import _Recurrent, flat


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
        """Of U and of d, which is the last third of q."""
        return [*super().weightGrads(h, dq), total(flat(dq)[:, 2 * self.hsize :], 0)]

    @classmethod
    def examples(cls):
        yield cls(3, 4), [(2, 5, 3)]
        yield cls(3, 2, useBias=False, outputs=("y", "h")), [(2, 4, 3), (2, 2)]
        yield cls(2, 3, direction="bi", outputs="h"), [(4, 3, 2), (4, 6), (4,)]
