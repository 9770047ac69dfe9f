"""TensorScatter: write updates into the arrays of a sequence, from a start position on for each sample."""

import numpy as np

from puregraph.core.arguments import Flag, Whole
from puregraph.core.base.widen import asResultType
from puregraph.core.errors import need
from puregraph.core.hostrule import onHost
from puregraph.core.shape import normalAxis
from puregraph.graph.module import Module


class TensorScatter(Module):
    """y = x, but y[n, ..., starts[n] + t, :] = updates[n, ..., t, :] along `axis`; `circular` goes on at the beginning.

    Shapes    x (n, ..., s, ...), updates (n, ..., t, ...), starts (n,) -> y as x
    Source    ONNX operator TensorScatter
    Raises    ShapeError if there is no such axis, or the updates are longer
    """

    reads = ("starts", "updates")
    keepsDtype = True
    indices = ("starts",)
    flopsPerElement = 0

    def __init__(self, axis: Whole = -2, circular: Flag = False, name=None):
        super().__init__(name)
        self.axis, self.circular = axis, circular

    def dataShapeFrom(self, x, updates, starts=None):
        axis = normalAxis(self.axis, len(x))
        otherSizes = x[:axis] + x[axis + 1 :]
        need(starts is None or starts == (x[0],), f"starts of shape ({x[0]},)", starts)
        need(
            axis > 0 and updates[:axis] + updates[axis + 1 :] == otherSizes,
            "updates like x but along the axis",
            [x, updates],
        )
        need(not updates[axis] > x[axis], f"updates of at most {x[axis]} along axis {axis}", updates)
        return x

    def key(self, x, updates, starts):
        """The index of the updates in x."""
        axis, count = normalAxis(self.axis, x.ndim), updates.shape[normalAxis(self.axis, x.ndim)]
        first = np.zeros(x.shape[0], np.int64) if starts is None else starts
        positions = first[:, None] + np.arange(count)
        positions = positions % x.shape[axis] if self.circular else positions
        need(not positions.size or positions.max() < x.shape[axis], "updates that end in x", x.shape)
        return (np.arange(x.shape[0])[:, None], *(slice(None),) * (axis - 1), positions)

    def moved(self, updates):
        """The updates with their axis moved to the second position, as indexing needs it."""
        axis = normalAxis(self.axis, updates.ndim)
        return updates if axis == 1 else np.moveaxis(updates, axis, 1)

    @onHost
    def updateData(self, x, updates, starts=None):
        x, updates = asResultType(x, updates)
        y = x.copy()
        y[self.key(x, updates, starts)] = self.moved(updates)
        return y

    @onHost
    def updateGrad(self, grad, x, updates, starts, y):
        key = self.key(x, updates, starts)
        gx = grad.copy()
        gx[key] = 0
        axis = normalAxis(self.axis, x.ndim)
        gUpdates = grad[key]
        return gx, gUpdates if axis == 1 else np.moveaxis(gUpdates, 1, axis), None

    def sample(self, rng, x, updates, *starts):
        return [rng.standard_normal(x), rng.standard_normal(updates), *[np.zeros(s, np.int64) for s in starts]]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 4, 3), (2, 2, 3), (2,)]
        yield cls(), [(2, 2, 4, 3), (2, 2, 2, 3)]
