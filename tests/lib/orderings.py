"""Random arrays for operations along an axis: any layout, with nan, infinities, signed zeros and ties."""

import numpy as np

SIZES = (1, 2, 3, 5, 8, 13, 17, 33, 70)
MOST = 40_000


class AlongAxis:
    """Draws a shape, an axis and arrays; equal seeds draw equal ones."""

    def __init__(self, seed, sizes=SIZES, most=MOST):
        self.rng = np.random.default_rng(seed)
        rank = int(self.rng.integers(1, 5))
        self.shape = tuple(int(n) for n in self.rng.choice(sizes, rank))
        while np.prod(self.shape) > most:
            self.shape = self.shape[1:]
        self.axis = int(self.rng.integers(-len(self.shape), len(self.shape)))

    def pick(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]

    def isOn(self):
        return bool(self.rng.integers(2))

    def values(self, dtype):
        """Numbers of which some are equal; of floats sometimes a few that are not finite, or -0."""
        if np.dtype(dtype).kind != "f":
            return self.rng.integers(-5, 6, self.shape).astype(dtype)
        x = self.rng.standard_normal(self.shape).astype(dtype)
        if self.isOn():
            x = np.round(x * 2) / 2
        if self.rng.random() < 0.3:
            x.reshape(-1)[self.rng.integers(0, x.size, 3)] = self.rng.choice([np.nan, np.inf, -np.inf, -0.0], 3)
        return x

    def laidOut(self, x):
        """The same in another order of axes, with gaps, some axes backwards."""
        order, rank = self.rng.permutation(x.ndim), x.ndim
        steps = [self.pick(1, 1, 2, -1, -2) for _ in range(rank)]
        room = np.full([n * abs(s) for n, s in zip(np.array(x.shape)[order], steps)], -9, x.dtype)
        view = room[tuple(slice(None, None, s) for s in steps)].transpose(np.argsort(order))
        view[...] = x
        return view
