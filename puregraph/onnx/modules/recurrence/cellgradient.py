"""CellGradient: the way back through the time steps of recurrent cells, by hand."""

import numpy as np


class CellGradient:
    """The way back through the time steps of a RecurrentCells: `h`, `c` are gradients of the states before a step, `U`,
    `b`, `P` sums of those of the weights."""

    def __init__(self, cells, R, P, h, c):
        self.cells, self.R, self.peep, self.h, self.c = cells, R, P, h, c
        self.U = self.b = self.P = None

    def step(self, gy, h, c, rest, isOn):
        """The gradient of what comes from x, for that of the output of a step; `h`, `c` are the states before it."""
        gh, gc = self.h if gy is None else self.h + (gy if isOn is None else np.where(isOn, gy, 0 * gy)), self.c
        if isOn is not None:
            held, (gh, gc) = (gh, gc), [np.where(isOn, g, 0 * g) for g in (gh, gc)]
        gp, self.h, self.c = getattr(self, self.cells.kind.lower())(gh, gc, h, c, rest)
        if isOn is not None:
            self.h, self.c = [np.where(isOn, new, old) for new, old in zip((self.h, self.c), held)]
        return gp

    def add(self, **grads):
        """Add gradients of weights."""
        for name, grad in grads.items():
            before = getattr(self, name)
            setattr(self, name, grad if before is None else before + grad)

    def rnn(self, gh, gc, h, c, slope):
        """The gradients of the sums in an RNN, and of the states before."""
        q = gh * slope
        self.add(U=np.matmul(h.T, q), b=q.sum(axis=0))
        return q, np.matmul(q, self.R), gc

    def gru(self, gh, gc, h, c, rest):
        """Those of a GRU."""
        z, r, g, before, zSlope, rSlope, gSlope = rest
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

    def lstm(self, gh, gc, h, c, rest):
        """Those of an LSTM."""
        i, f, g, o, y, cNew, iSlope, fSlope, gSlope, oSlope, ySlope = rest
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
