"""Random arguments of reading and writing along an axis: any layout, shared indices, negative and repeated ones."""

import numpy as np
from orderings import AlongAxis


class Along(AlongAxis):
    """Draws x, an index of another length along the axis, and updates."""

    def __init__(self, seed, dtype, *sizes, isShort=False):
        super().__init__(seed, *sizes)
        self.dtype, n = np.dtype(dtype), self.shape[self.axis]
        at = self.axis % len(self.shape)
        count = int(self.rng.choice([1, 2, 5, 13, 40]))
        shape = [int(self.rng.integers(1, m + 1)) if isShort and self.isOn() else m for m in self.shape]
        shape[at] = count
        if self.isOn():  # rows share an index
            column = self.rng.integers(-n, n, [m if a == at else 1 for a, m in enumerate(shape)])
            self.index = np.broadcast_to(column, shape)
        else:
            self.index = self.laidOut(self.rng.integers(-n, n, shape))
        self.x = self.laidOut(self.values(dtype))
        self.updates = self.laidOut(np.resize(self.values(dtype), shape))

    def room(self, shape):
        """Memory for a result, row-major or not."""
        return self.laidOut(np.full(shape, 7, self.dtype)) if self.isOn() else np.full(shape, 7, self.dtype)


def same(a, b):
    """Whether bits are equal, but for those of nan."""
    isNan = (a != a) & (b != b)
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and (np.where(isNan, 0, a).tobytes() == np.where(isNan, 0, b).tobytes())
    )
