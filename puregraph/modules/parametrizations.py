"""Derived parameters: weights that are normed, orthogonal, of low rank, quantised or masked, in place of an array."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import initial
from puregraph.core.arguments import Count, Fraction, NotNegative, Whole, takes
from puregraph.core.base.widen import widen
from puregraph.core.device import toDevice, toHost
from puregraph.core.errors import ArgumentError, need
from puregraph.core.hostrule import onHost
from puregraph.core.param import FixedState, Param, State
from puregraph.core.tracer import changingAs
from puregraph.graph.derived import Derived

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


def outputAxis(shape: tuple[int, ...], axis: int | None) -> int:
    """Return the axis of a weight's outputs: by default the last one of a matrix, as in Linear, else the first."""
    if axis is None:
        return len(shape) - 1 if len(shape) < 3 else 0
    need(-len(shape) <= axis < len(shape), f"an axis of a parameter with {len(shape)} axes", axis)
    return axis % len(shape)


def others(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """All axes but one."""
    return tuple([i for i in range(len(shape)) if i != axis])


def holding(values: AnyArray, kind: type[Param | State] = Param) -> Param | State:
    """Return a new Param or State with a copy of an array."""
    stored = kind(tuple(values.shape), dtype=values.dtype)
    stored.adopt(values.copy())
    return stored


class WeightNorm(Derived):
    """W = g v / ||v||, where the norm of v is taken for each output by itself

    Direction and length are trained separately. `axis` is that of the outputs: by default the last one of a matrix, as
    in Linear, and the first one of kernels.

    Shapes    v as W, g as W with sizes of 1 but for the axis of the outputs
    Source    Salimans, Kingma 2016, arXiv:1602.07868, eq. 2 and 3
    Raises    ArgumentError for anything but a Param, ShapeError for an axis that it does not have

    >>> fc = Linear(3, 4)
    >>> fc.W = WeightNorm(fc.W)
    >>> list(fc.params)
    ['W.v', 'W.g', 'b']
    """

    reads = ("v", "g")

    @takes(axis=Whole | None)
    def __init__(self, of: Param, axis: int | None = None):
        super().__init__(of, axis=axis)

    def declare(self, of: Param) -> None:
        axis = outputAxis(of.shape, self.settings["axis"])
        v = of.materialize()
        self.v = holding(v)
        self.g = holding(np.sqrt(np.sum(v**2, axis=others(of.shape, axis), keepdims=True)))

    def updateData(self, v: AnyArray, g: AnyArray) -> AnyArray:
        axes = others(v.shape, outputAxis(v.shape, self.settings["axis"]))
        return v * (g / np.sqrt(np.sum(v**2, axis=axes, keepdims=True)))

    def updateGrad(
        self, grad: AnyArray, v: AnyArray, g: AnyArray, y: AnyArray, needs: tuple[bool, ...]
    ) -> tuple[AnyArray | None, ...]:
        axes = others(v.shape, outputAxis(v.shape, self.settings["axis"]))
        norm = np.sqrt(np.sum(v**2, axis=axes, keepdims=True))
        along = np.sum(grad * v, axis=axes, keepdims=True) / norm
        dv = g / norm * (grad - v * (along / norm)) if needs[0] else None
        return dv, along if needs[1] else None


class SpectralNorm(Derived):
    """W = V / sigma,   sigma = u V v, approximately the largest singular value of V as a matrix

    In trainMode each pass improves u and v by `iterations` of u = V v / ||V v||, v = u V / ||u V||; 15 of them are made
    at the start. Gradients take u and v as constants.

    Shapes    V as W; u (outputs,), v (all other elements,)
    Source    Miyato et al. 2018, arXiv:1802.05957, algorithm 1
    Raises    ArgumentError for anything but a Param, ShapeError for an axis that it does not have

    >>> fc = Linear(3, 4)
    >>> fc.W = SpectralNorm(fc.W)
    >>> round(float(np.linalg.norm(fc.W.data, 2)), 1)
    1.0
    """

    hidden = ("sigma", "left", "right")
    passesStraight = True
    reads = ("sigma", "left", "right", "y")

    @takes(axis=Whole | None, iterations=Count, epsilon=NotNegative)
    def __init__(self, of: Param, axis: int | None = None, iterations: int = 1, epsilon: float = 1e-12):
        super().__init__(of, axis=axis, iterations=iterations, epsilon=epsilon)

    def declare(self, of: Param) -> None:
        self.V = holding(of.materialize())
        matrix = self.matrixOf(self.V.materialize())
        rng = np.random.default_rng(0)
        left, right = (toDevice(rng.standard_normal(n).astype(of.dtype)) for n in matrix.shape)
        for _ in range(15):
            left, right = self.improved(matrix, right)
        self.u, self.v = holding(left, State), holding(right, State)

    def matrixOf(self, V: AnyArray) -> AnyArray:
        """Return the parameter as a matrix with a row for each output."""
        axis = outputAxis(V.shape, self.settings["axis"])
        return np.transpose(V, (axis, *others(V.shape, axis))).reshape(V.shape[axis], -1)

    def shaped(self, matrix: AnyArray, shape: tuple[int, ...]) -> AnyArray:
        """Return a matrix with a row for each output in the shape of the parameter."""
        axis = outputAxis(shape, self.settings["axis"])
        order = (axis, *others(shape, axis))
        wide = matrix.reshape([shape[i] for i in order])
        return np.transpose(wide, np.argsort(order).tolist())

    def improved(self, matrix: AnyArray, right: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return u and v after one more power iteration."""
        epsilon = self.settings["epsilon"]
        left = matrix @ right
        left = left / np.maximum(np.sqrt(np.sum(left**2)), epsilon)
        right = left @ matrix
        return left, right / np.maximum(np.sqrt(np.sum(right**2)), epsilon)

    def hiddenShapeFrom(self) -> list[tuple[int, ...]]:
        return [(), self.u.shape, self.v.shape]

    def hiddenTypeFrom(self, *dtypes: np.dtype | None) -> list[np.dtype]:
        return [self.u.dtype] * 3

    def updateData(self, V: AnyArray, u: Any, v: Any) -> tuple[AnyArray, ...]:
        matrix, left, right = self.matrixOf(V), u, v
        if self.isTraining:
            for _ in range(self.settings["iterations"]):
                left, right = self.improved(matrix, right)
            u[...] = left
            v[...] = right
        else:
            left, right = u + 0, v + 0
        sigma = np.sum(left * (matrix @ right))
        return (V / sigma).astype(V.dtype), sigma, left, right

    def updateGrad(
        self,
        grad: AnyArray,
        V: AnyArray,
        u: AnyArray,
        v: AnyArray,
        y: AnyArray,
        sigma: AnyArray,
        left: AnyArray,
        right: AnyArray,
        needs: tuple[bool, ...],
    ) -> tuple[AnyArray | None, ...]:
        outer = self.shaped(left[:, None] * right[None, :], grad.shape)
        return ((grad - np.sum(grad * y) * outer) / sigma).astype(V.dtype), None, None


class Orthogonal(Derived):
    """W = Q (I - A / 2)^-1 (I + A / 2), the first columns of it,   A = L - L^T, L the lower triangle of X

    The Cayley map: W^T W = I at every step of the training. Q is an orthogonal matrix near the parameter that it
    replaces, and X begins at 0. A parameter with more columns than rows is the transpose of one with more rows; of
    kernels, all axes but the first are columns.

    Shapes    X as the matrix; Q (n, n) with n the longer side
    Source    Helfrich, Willmott, Ye 2018, arXiv:1707.09520, eq. 2; PyTorch's orthogonal, map "cayley"
    Raises    ArgumentError for anything but a Param with two axes or more

    >>> fc = Linear(4, 3)
    >>> fc.W = Orthogonal(fc.W)
    >>> np.allclose(fc.W.data.T @ fc.W.data, np.eye(3), atol=1e-6)
    True
    """

    reads = ("X", "Q")

    def declare(self, of: Param) -> None:
        if len(of.shape) < 2:
            raise ArgumentError(f"Orthogonal: wanted a parameter with two axes or more, got shape {of.shape}")
        matrix = self.tall(toHost(of.materialize()))
        full, upper = np.linalg.qr(matrix.astype(np.float64), mode="complete")
        signs = np.ones(len(full))
        signs[: matrix.shape[1]] = np.where(np.diagonal(upper) < 0, -1.0, 1.0)
        self.X = holding(toDevice(np.zeros_like(matrix)))
        self.Q = holding(toDevice((full * signs).astype(of.dtype)), FixedState)

    def tall(self, W: AnyArray) -> AnyArray:
        """The parameter as a matrix with at least as many rows as columns."""
        matrix = W.reshape(W.shape[0], -1)
        return matrix.T if matrix.shape[0] < matrix.shape[1] else matrix

    def back(self, matrix: AnyArray) -> AnyArray:
        """Return a matrix in the shape of the parameter."""
        rows = self.shape[0]
        isUpright = matrix.shape[0] == rows and matrix.shape[1] * rows == self.size
        return (matrix if isUpright else matrix.T).reshape(self.shape)

    def cayley(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """I - A / 2, and (I - A / 2)^-1 (I + A / 2)."""
        n, k = X.shape
        lower = squared(X * np.tri(n, k, -1, X.dtype))
        half = (lower - lower.T) / 2
        eye = np.eye(n, dtype=X.dtype)
        return eye - half, np.linalg.solve(eye - half, eye + half)

    @onHost
    def updateData(self, X: AnyArray, Q: AnyArray) -> AnyArray:
        return self.back((widen(Q) @ self.cayley(widen(X))[1])[:, : X.shape[1]]).astype(X.dtype)

    @onHost
    def updateGrad(
        self, grad: AnyArray, X: AnyArray, Q: AnyArray, y: AnyArray, needs: tuple[bool, ...]
    ) -> tuple[AnyArray | None, ...]:
        n, k = X.shape
        kind, X, Q = X.dtype, widen(X), widen(Q)
        minus, mapped = self.cayley(X)
        right = np.linalg.solve(minus.T, Q.T @ squared(self.tall(grad))) @ (mapped + np.eye(n, dtype=X.dtype)).T / 2
        return ((right - right.T)[:, :k] * np.tri(n, k, -1, X.dtype)).astype(kind), None


def squared(matrix: AnyArray) -> AnyArray:
    """Return the matrix with columns of 0 appended until it is square."""
    n, k = matrix.shape
    return np.concatenate([matrix, np.zeros((n, n - k), matrix.dtype)], axis=1)


class LoRA(Derived):
    """W = W0 + alpha / rank A B,   W0 the original, not trained, A (n, rank), B (rank, m)

    The change of a matrix by one of low rank: A begins at random, B at 0. `merge()` adds it to W0, `unmerge()`
    subtracts it again; `bake()` replaces all of it by one array. Rows are the first axis of a parameter, columns all
    others.

    Shapes    A (n, rank), B (rank, m) for a parameter of n rows and m columns
    Source    Hu et al. 2021, arXiv:2106.09685, section 4.1
    Raises    ArgumentError for a rank below 1, and for a parameter without two axes

    >>> net = Sequential(Linear(64, 64, name="a"), Relu(), Linear(64, 8, name="b"))
    >>> LoRA.on(net, "a.W", rank=4)
    1
    >>> [path for path, param in net.params.items() if param.trainable]
    ['a.W.A', 'a.W.B', 'a.b', 'b.W', 'b.b']
    """

    reads = ("A", "B")

    @takes(rank=Count, alpha=NotNegative | None)
    def __init__(self, of: Param, rank: int = 8, alpha: float | None = None):
        self.begin()
        super().__init__(of, rank=rank, alpha=float(rank if alpha is None else alpha))

    def begin(self) -> None:
        self.merged = False

    def declare(self, of: Param) -> None:
        if len(of.shape) < 2:
            raise ArgumentError(f"LoRA: wanted a parameter with two axes or more, got shape {of.shape}")
        rank, rows = self.settings["rank"], of.shape[0]
        self.W0 = holding(of.materialize(), FixedState)
        self.A = Param((rows, rank), initial.Uniform(1 / math.sqrt(rows)), of.dtype)
        self.B = Param((rank, of.size // rows), "zeros", of.dtype)

    def change(self, A: AnyArray, B: AnyArray) -> AnyArray:
        """alpha / rank A B in the shape of the parameter."""
        return ((A * (self.settings["alpha"] / self.settings["rank"])) @ B).reshape(self.shape)

    def updateData(self, W0: AnyArray, A: AnyArray, B: AnyArray) -> AnyArray:
        return W0 + 0 if self.merged else W0 + self.change(A, B)

    def updateGrad(
        self, grad: AnyArray, W0: AnyArray, A: AnyArray, B: AnyArray, y: AnyArray, needs: tuple[bool, ...]
    ) -> tuple[AnyArray | None, ...]:
        matrix, scale = grad.reshape(A.shape[0], -1), self.settings["alpha"] / self.settings["rank"]
        isOpen = not self.merged
        dA = matrix @ B.T * scale if needs[1] and isOpen else None
        dB = A.T @ matrix * scale if needs[2] and isOpen else None
        return None, dA, dB

    def merge(self) -> None:
        """Add A B to W0, so that nothing is computed in a pass."""
        if not self.merged:
            self.W0.data = self.W0.data + self.change(self.A.data, self.B.data)
            self.merged = True

    def unmerge(self) -> None:
        """Subtract A B from W0 again."""
        if self.merged:
            self.W0.data = self.W0.data - self.change(self.A.data, self.B.data)
            self.merged = False


class FakeQuantise(Derived):
    """W = s round(V / s),   s = max |V| / (2^(bits - 1) - 1) for each output by itself

    Training adapts to weights of few bits. Gradients and tangents pass as if nothing were rounded (straight through).

    Shapes    V as W
    Source    Bengio, Leonard, Courville 2013, arXiv:1308.3432, section 4; Jacob et al. 2018, arXiv:1712.05877
    Raises    ArgumentError for less than 2 bits, or more than 16

    >>> fc = Linear(3, 4)
    >>> fc.W = FakeQuantise(fc.W, bits=4)
    >>> len(np.unique(fc.W.data[:, 0])) <= 15
    True
    """

    reads = ()
    passesStraight = True

    @takes(bits=Count, axis=Whole | None)
    def __init__(self, of: Param, bits: int = 8, axis: int | None = None):
        if not 2 <= bits <= 16:
            raise ArgumentError(f"FakeQuantise: wanted bits from 2 to 16, got {bits!r}")
        super().__init__(of, bits=bits, axis=axis)

    def declare(self, of: Param) -> None:
        self.V = holding(of.materialize())

    def updateData(self, V: AnyArray) -> AnyArray:
        axes = others(V.shape, outputAxis(V.shape, self.settings["axis"]))
        most = np.max(np.absolute(V), axis=axes, keepdims=True)
        step = np.where(most > 0, most, 1) / (2 ** (self.settings["bits"] - 1) - 1)
        return changingAs(np.rint(V / step) * step, V)

    def updateGrad(self, grad: AnyArray, V: AnyArray, y: AnyArray) -> tuple[AnyArray | None, ...]:
        return (grad + 0,)


class Masked(Derived):
    """W = mask V,   for pruning: where the mask is 0, W is 0 and V is not trained

    Without a mask, the fraction `keep` of the elements is kept: those of largest absolute value.

    Shapes    V and mask as W
    Source    Han et al. 2015, arXiv:1506.02626, section 3
    Raises    ArgumentError for a mask of another shape, or a share that is not from 0 to 1

    >>> fc = Linear(10, 10)
    >>> fc.W = Masked(fc.W, keep=0.2)
    >>> int((fc.W.data != 0).sum())
    20
    """

    reads = ("mask",)

    @takes(keep=Fraction)
    def __init__(self, of: Param, mask: AnyArray | None = None, keep: float = 0.5):
        if mask is not None and np.shape(mask) != of.shape:
            raise ArgumentError(f"Masked: wanted a mask of shape {of.shape}, got {np.shape(mask)}")
        self.chosen = None if mask is None else toHost(mask).copy()
        super().__init__(of, keep=keep)

    def declare(self, of: Param) -> None:
        V = of.materialize()
        chosen, self.chosen = self.chosen, None
        if chosen is None:
            order = np.argsort(-np.abs(toHost(V)).reshape(-1), kind="stable")
            chosen = np.zeros(V.size)
            chosen[order[: round(self.settings["keep"] * V.size)]] = 1
        self.V = holding(V)
        self.mask = holding(toDevice(chosen.reshape(V.shape).astype(of.dtype)), FixedState)

    def updateData(self, V: AnyArray, mask: AnyArray) -> AnyArray:
        return V * mask

    def updateGrad(
        self, grad: AnyArray, V: AnyArray, mask: AnyArray, y: AnyArray, needs: tuple[bool, ...]
    ) -> tuple[AnyArray | None, ...]:
        return grad * mask, None


class Standardised(Derived):
    """W = (V - mean) / sqrt(variance + epsilon), mean and variance for each output by itself

    Shapes    V as W
    Source    Qiao et al. 2019, arXiv:1903.10520, eq. 3 to 5
    Raises    ArgumentError for anything but a Param, ShapeError for an axis that it does not have

    >>> conv = Conv2D(3, 4, 3)
    >>> conv.W = Standardised(conv.W)
    >>> np.allclose(conv.W.data.std(axis=(1, 2, 3)), 1, atol=1e-3)
    True
    """

    reads = ("V", "y")

    @takes(axis=Whole | None, epsilon=NotNegative)
    def __init__(self, of: Param, axis: int | None = None, epsilon: float = 1e-5):
        super().__init__(of, axis=axis, epsilon=epsilon)

    def declare(self, of: Param) -> None:
        self.V = holding(of.materialize())

    def updateData(self, V: AnyArray) -> AnyArray:
        axes = others(V.shape, outputAxis(V.shape, self.settings["axis"]))
        centered = V - np.mean(V, axis=axes, keepdims=True)
        return centered / np.sqrt(np.mean(centered**2, axis=axes, keepdims=True) + self.settings["epsilon"])

    def updateGrad(self, grad: AnyArray, V: AnyArray, y: AnyArray) -> tuple[AnyArray | None, ...]:
        axes = others(V.shape, outputAxis(V.shape, self.settings["axis"]))
        centered = V - np.mean(V, axis=axes, keepdims=True)
        root = np.sqrt(np.mean(centered**2, axis=axes, keepdims=True) + self.settings["epsilon"])
        mean, along = (np.mean(x, axis=axes, keepdims=True) for x in (grad, grad * y))
        return ((grad - mean - y * along) / root,)
