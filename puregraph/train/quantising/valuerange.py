"""ValueRange: the range of an activation that its integers cover, measured on samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.errors import DataError

METHODS = ("minmax", "percentile", "entropy")
HISTOGRAM_BINS = 2048  # of a histogram
THRESHOLD_STRIDE_BINS = 16  # bins between two thresholds that are compared by entropy
LEAST_SCALE = float(np.finfo(np.float32).tiny) * 1024  # below it quotients overflow
ENDS = {"uint8": (0, 255), "int8": (-128, 127)}


class ValueRange:
    """The values of one activation over all samples: their limits, then a histogram between the limits.

    `observe` is called with every batch, then, unless the method is "minmax", `count` with every batch again.
    """

    def __init__(self, name: str):
        self.name, self.low, self.high = name, 0.0, 0.0  # a range has 0, which padding and ReLU need exact
        self.counts = np.zeros(HISTOGRAM_BINS)

    def observe(self, x: Any) -> None:
        """Widen the limits.

        Raises    DataError for nan and infinity
        """
        if not x.size:
            return
        low, high = float(x.min()), float(x.max())
        if not np.isfinite(low) or not np.isfinite(high):
            raise DataError(
                f"quantise: {self.name} is nan or infinite for some samples; a scale needs finite values: check the "
                "samples and the weights"
            )
        self.low, self.high = min(self.low, low), max(self.high, high)

    def count(self, x: Any, method: str) -> None:
        """Add values to the histogram: of magnitudes for "entropy", else between the limits."""
        limits = (0.0, max(-self.low, self.high)) if method == "entropy" else (self.low, self.high)
        if limits[0] < limits[1]:
            self.counts += np.histogram(np.abs(x) if method == "entropy" else x, HISTOGRAM_BINS, limits)[0]

    def limits(self, method: str, percentile: float) -> tuple[float, float]:
        """The range that integers cover: all values, the middle `percentile` percent, or that of least divergence."""
        if method == "minmax" or not self.counts.any():
            return self.low, self.high
        if method == "percentile":
            edges = np.linspace(self.low, self.high, HISTOGRAM_BINS + 1)
            tail, shares = (1 - percentile / 100) / 2, np.cumsum(self.counts) / self.counts.sum()
            first = int(np.searchsorted(shares, tail, "right"))
            last = min(int(np.searchsorted(shares, 1 - tail)), HISTOGRAM_BINS - 1)
            return min(0.0, edges[first]), max(0.0, edges[last + 1])
        most = max(-self.low, self.high) * threshold(self.counts, 128 if self.low < 0 else 256) / HISTOGRAM_BINS
        return max(self.low, -most), min(self.high, most)


def threshold(counts: np.ndarray, levels: int) -> int:
    """The number of bins for which KL(P || Q) is least: P the histogram with all larger values in its last bin, Q the
    same bins in `levels` steps.

    Source    Migacz 2017, 8-bit Inference with TensorRT, GPU Technology Conference, slides 25 to 38
    """
    counts = counts.copy()
    counts[0] = counts[1]  # zeros are exact with any scale
    if not counts.any():
        return HISTOGRAM_BINS
    divergences = {}
    for size in range(levels, HISTOGRAM_BINS + 1, THRESHOLD_STRIDE_BINS):
        kept = counts[:size]
        clipped = kept.copy()
        clipped[-1] += counts[size:].sum()
        step = np.arange(size) * levels // size
        sums, used = np.bincount(step, kept), np.bincount(step, kept > 0)
        spread = np.where(kept > 0, (sums / np.maximum(used, 1))[step], 0)
        if not spread.any():
            continue
        p, q = clipped / clipped.sum(), np.maximum(spread / spread.sum(), 1e-12)
        isIn = p > 0
        divergences[size] = float(np.sum(p[isIn] * np.log(p[isIn] / q[isIn])))
    return min(divergences, key=lambda size: divergences[size]) if divergences else HISTOGRAM_BINS


def scaleOf(limits: tuple[float, float], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point with which `dtype` covers a range that has 0; 1 and 0 for a range of zeros alone.

    Source    Jacob and others 2018, arXiv:1712.05877, section 3.1
    """
    least, most = ENDS[dtype]
    scale = np.float32((limits[1] - limits[0]) / (most - least))
    if not scale > LEAST_SCALE:
        return np.array(1, np.float32), np.array(0, dtype)
    zero = np.clip(np.rint(least - limits[0] / scale), least, most)
    return np.array(scale), np.array(zero).astype(dtype)


def rounded(x: Any, scale: np.ndarray, zero: np.ndarray) -> Any:
    """Floats as integers with this scale and zero point would represent them."""
    ends = np.iinfo(zero.dtype)
    steps = np.clip(np.rint(x / scale) + zero, ends.min, ends.max)
    return (steps - zero).astype(np.float32) * scale
