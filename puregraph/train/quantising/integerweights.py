"""IntegerWeights: weights as integers of 8 or 4 bits, with a scale for each output or each group of terms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

BITS = {"int8": 8, "int4": 4}
ZERO4 = 8  # the zero point of 4 bits without a sign


class IntegerWeights(NamedTuple):
    """Integers, their scales and the axis of the scales; with `block`, one scale for each `block` elements along it."""

    integers: np.ndarray
    scale: np.ndarray
    axis: int
    block: int = 0

    @property
    def floats(self) -> np.ndarray:
        """The weights that these integers represent."""
        return (self.integers * self.spread).astype(np.float32)

    @property
    def spread(self) -> np.ndarray:
        """The scales, to broadcast with the integers."""
        if self.block:
            size = self.integers.shape[self.axis]
            return np.repeat(self.scale, self.block, self.axis).take(range(size), self.axis)
        return along(self.scale, self.axis, self.integers.ndim)

    @property
    def nbytes(self) -> int:
        """Bytes as stored: 4-bit integers in pairs, with a zero point for each scale."""
        if self.block:
            return packed(self).nbytes + self.scale.nbytes + self.scale.size
        return self.integers.nbytes + self.scale.nbytes


def along(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """Values along one axis of several, to broadcast."""
    return values.reshape(-1, *(1,) * (rank - axis - 1)) if values.ndim else values


def byChannel(
    W: np.ndarray, axis: int, bits: int = 8, trained: np.ndarray | None = None, perChannel: bool = True
) -> IntegerWeights:
    """Symmetric integers, s = max |W| / (2^(bits - 1) - 1) for each index of `axis`, or one s for all.

    `trained` are scales of training. Outputs whose weights are all zero have the scale 1.

    Source    Krishnamoorthi 2018, arXiv:1806.08342, section 2.3
    """
    levels = 2 ** (bits - 1) - 1
    axes = tuple([i for i in range(W.ndim) if i != axis]) if perChannel else None
    scale = scaleFrom(np.abs(W).max(axis=axes, initial=0), levels) if trained is None else trained
    integers = np.clip(np.rint(W / along(scale, axis, W.ndim)), -levels, levels).astype(np.int8)
    return IntegerWeights(integers, scale, axis)


def byGroup(
    W: np.ndarray, axis: int, group: int, trained: np.ndarray | None = None, outAxis: int = 1
) -> IntegerWeights:
    """Symmetric 4-bit integers of a matrix, s = max |W| / 7 for each `group` terms along `axis` of each output."""
    terms = W.shape[axis]
    starts = np.arange(0, terms, group)
    scale = scaleFrom(np.maximum.reduceat(np.abs(W), starts, axis=axis), 7)
    if trained is not None:
        scale = np.broadcast_to(along(trained, outAxis, 2), scale.shape).copy()
    made = IntegerWeights(np.zeros(W.shape, np.int8), scale, axis, group)
    return made._replace(integers=np.clip(np.rint(W / made.spread), -7, 7).astype(np.int8))


def scaleFrom(most: np.ndarray, levels: int) -> np.ndarray:
    """Scales with which `levels` steps reach the largest magnitudes; 1 for zeros."""
    scale = np.asarray(most / levels, np.float32)
    return np.where(scale > np.finfo(np.float32).tiny, scale, np.float32(1))


def packed(weights: IntegerWeights) -> np.ndarray:
    """Two integers in a byte: the first half along the axis in the low bits, the second half in the high bits."""
    axis = weights.axis
    values = (weights.integers + ZERO4).astype(np.uint8)
    if values.shape[axis] % 2:
        values = np.concatenate([values, np.full_like(values.take([0], axis), ZERO4)], axis)
    low, high = np.split(values, 2, axis)
    return low | high << 4
