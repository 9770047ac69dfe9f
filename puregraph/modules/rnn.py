"""RNN: one layer of simple cells along time."""

from puregraph.arguments import Count, Flag, NotNegative, Texts, choice, hinted
from puregraph.kernels.recurrent import reluBack, reluStep, tanhBack, tanhStep
from puregraph.modules.recurrent import _Recurrent

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
        mode: hinted(choice(*MODES), "gated cells are LSTM and GRU") = "tanh",
        direction: choice("uni", "bi") = "uni",
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
