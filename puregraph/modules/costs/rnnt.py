"""RNNT: labels without positions, for a transducer that scores every pair of a time step and a label before it."""

import numpy as np

from puregraph.core.errors import need, show
from puregraph.modules.costs.cost import needWeights
from puregraph.modules.costs.ctc import CTC
from puregraph.ops.alignment.transducer import transductions


class RNNT(CTC):
    """cost = mean over samples of -ln P, P the sum over all paths of the product of p[t, u, k]

    A path begins at t = u = 0. At (t, u) it takes label u, and goes to (t, u + 1), or a `blank`, to (t + 1, u);
    it ends with a blank at the last time step, when all labels are taken. p is the softmax of the scores x, which a
    network gives for time step t after the first u labels. Labels are padded by -1; `labelLengths` says how many count
    where they are padded by anything else, and `lengths` how many time steps a sample has. Without a time step its cost
    is inf, or 0 with `zeroInfinity`, and its gradient 0.

    Shapes    x (n, t, s + 1, c), labels (n, s) of integers, perhaps lengths (n,), labelLengths (n,), sampleWeight (n,)
              -> a scalar, or (n,) with "none"
    Source    Graves 2012, Sequence Transduction with Recurrent Neural Networks, arXiv:1211.3711, eq. 11 to 20
    Raises    ShapeError for shapes that do not fit; DataError naming a label that is no class, and its position;
              IndexError for lengths beyond the time steps or labels

    >>> x = np.zeros((1, 2, 2, 3))
    >>> round(float(RNNT()(x, np.array([[1]]))), 6)
    2.60269
    """

    aligned = staticmethod(transductions)

    def dataShapeFrom(self, x, labels, lengths=None, labelLengths=None, sampleWeight=None):
        need(len(x) == 4, "(n, time steps, labels + 1, classes)", x)
        wanted = (x[0], x[2] - 1)
        need(labels == wanted, f"labels of shape {show(wanted)}", labels, "x has a row more than there are labels")
        self.checkRest(x, lengths, labelLengths)
        needWeights(sampleWeight, x)
        return x[:1] if self.reduction == "none" else ()

    def divisors(self, counts, like):
        """No sample is divided by its labels."""
        return np.ones_like(like)

    @classmethod
    def examples(cls):
        yield cls(), [(3, 4, 3, 4), (3, 2)]
        yield cls(zeroInfinity=True, reduction="sum"), [(3, 5, 3, 4), (3, 2), (3,), (3,), (3,)]
        yield cls(2, reduction="none"), [(2, 3, 4, 5), (2, 3)]
