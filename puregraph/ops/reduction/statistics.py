"""Statistics and sums of numpy, written by functions whose derivatives are known: order statistics, nan, covariances.

Where a function chooses elements by their values, the choice is made once and is constant, as it is almost everywhere.
"""

from __future__ import annotations

from math import prod

import numpy as np

from puregraph.core.tracer import Tracer
from puregraph.ops.operation import op
from puregraph.ops.reduction.cumulategrads import cumulateRule
from puregraph.ops.reduction.derivatives import axesOf


def valuesOf(x):
    """The array behind an array that is followed."""
    while isinstance(x, Tracer):
        x = x.carrier
    return np.asarray(x)


def rowsOf(a, axis):
    """The elements along the reduced axes as the last axis."""
    axes = axesOf(a, axis)
    left = [i for i in range(a.ndim) if i not in axes]
    return a.transpose((*left, *axes)).reshape([*(a.shape[i] for i in left), prod(a.shape[i] for i in axes)])


def kept(y, a, axis, keepdims, before=0):
    """A result with the reduced axes of length one, if they are kept; `before` axes are in front."""
    if not keepdims:
        return y
    axes = axesOf(a, axis)
    return y.reshape([*y.shape[:before], *(1 if i in axes else n for i, n in enumerate(a.shape))])


def orderStatistic(a, q, axis, keepdims, skipsNan):
    """y = s[k] + (s[k + 1] - s[k]) f of the sorted elements s, k + f = q (n - 1); n counts those that are not nan.

    Source    Hyndman, Fan 1996, Sample Quantiles in Statistical Packages, definition 7
    """
    if isinstance(q, Tracer):
        return NotImplemented
    rows = np.sort(rowsOf(a, axis), axis=-1)
    isNan = np.isnan(valuesOf(rows))
    count = (~isNan).sum(axis=-1, keepdims=True) if skipsNan else np.full((*rows.shape[:-1], 1), rows.shape[-1])
    position = np.asarray(q, rows.dtype).reshape(-1) * np.maximum(count - 1, 0)
    low = np.floor(position).astype(np.intp)
    first, second = (np.take_along_axis(rows, k, -1) for k in (low, np.minimum(low + 1, np.maximum(count - 1, 0))))
    y = first + (second - first) * (position - low).astype(rows.dtype)
    hasNone = isNan.all(axis=-1, keepdims=True) if skipsNan else isNan.any(axis=-1, keepdims=True)
    y = np.where(np.broadcast_to(hasNone, y.shape), np.nan, y) if hasNone.any() else y
    y = np.moveaxis(y, -1, 0).reshape((*np.shape(q), *rows.shape[:-1]))
    return kept(y, a, axis, keepdims, np.ndim(q))


def declareQuantiles(quantile, percentile, median, skipsNan):
    """Declare the three functions that are order statistics."""

    @op(quantile).composed
    def ofFraction(a, q, axis=None, method="linear", keepdims=False):
        return orderStatistic(a, q, axis, keepdims, skipsNan) if method == "linear" else NotImplemented

    @op(percentile).composed
    def ofPercent(a, q, axis=None, method="linear", keepdims=False):
        if method != "linear" or isinstance(q, Tracer):
            return NotImplemented
        return orderStatistic(a, np.true_divide(q, 100), axis, keepdims, skipsNan)

    @op(median).composed
    def ofHalf(a, axis=None, keepdims=False):
        return orderStatistic(a, 0.5, axis, bool(keepdims) and keepdims is True, skipsNan)


declareQuantiles(np.quantile, np.percentile, np.median, False)
declareQuantiles(np.nanquantile, np.nanpercentile, np.nanmedian, True)


@op(np.ptp).composed
def spreadOf(a, axis=None, keepdims=False):
    """max - min"""
    return np.max(a, axis=axis, keepdims=keepdims is True) - np.min(a, axis=axis, keepdims=keepdims is True)


def withoutNan(function, number):
    """Declare that of `function`, nan counts as a number, in the function of the other name."""

    def reduced(a, axis=None, **options):
        return function(np.where(np.isnan(valuesOf(a)), number, a), axis=axis, **options)

    return reduced


for ignoring, plain, number in (
    (np.nansum, np.sum, 0),
    (np.nanprod, np.prod, 1),
    (np.nanmax, np.max, -np.inf),
    (np.nanmin, np.min, np.inf),
    (np.nancumsum, np.cumsum, 0),
    (np.nancumprod, np.cumprod, 1),
):
    op(ignoring).composed(withoutNan(plain, number))


@op(np.nanmean).composed
def meanOfNumbers(a, axis=None, keepdims=False):
    """The sum over the count of what is not nan."""
    count = (~np.isnan(valuesOf(a))).sum(axis=axis, keepdims=keepdims is True)
    return np.nansum(a, axis=axis, keepdims=keepdims is True) / count


@op(np.nanvar).composed
def varianceOfNumbers(a, axis=None, ddof=0, keepdims=False):
    """The mean square of what is not nan, about its mean."""
    isNan = np.isnan(valuesOf(a))
    centered = np.where(isNan, 0, a - np.nanmean(a, axis=axis, keepdims=True))
    count = (~isNan).sum(axis=axis, keepdims=keepdims is True)
    return (centered * centered).sum(axis=axis, keepdims=keepdims is True) / (count - ddof)


@op(np.nanstd).composed
def deviationOfNumbers(a, axis=None, ddof=0, keepdims=False):
    """The root of the variance."""
    return np.sqrt(np.nanvar(a, axis=axis, ddof=ddof, keepdims=keepdims))


@op(np.cov).composed
def covariance(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, *, dtype=None):
    """C = (X - mean X) w (X - mean X)^T / n, of the variables in the rows of X, w = fweights aweights, or 1.

    n = sum w - ddof sum w aweights / sum w, as numpy has it; the mean is weighted as well.
    """
    if dtype is not None:
        return NotImplemented
    parts = [np.atleast_2d(x) for x in (m, y) if x is not None]
    parts = [x.T if not rowvar and x.shape[0] != 1 else x for x in parts]
    x = np.concatenate(parts, axis=0) if len(parts) > 1 else parts[0]
    ddof = (not bias) * 1 if ddof is None else ddof
    weights = [w for w in (fweights, aweights) if w is not None]
    if not weights:
        x = x - np.mean(x, axis=1, keepdims=True)
        return np.squeeze(x @ x.T / (x.shape[1] - ddof))
    w = np.prod(np.stack([np.multiply(v, np.float64(1)) for v in weights]), axis=0)
    total = np.sum(w)
    count = total - ddof * (1.0 if aweights is None else np.sum(w * aweights) / total)
    x = x - np.sum(x * w, axis=1, keepdims=True) / total
    return np.squeeze((x * w) @ x.T / count)


@op(np.corrcoef).composed
def correlation(x, y=None, rowvar=True):
    """R = C / (d d^T), where d is the root of the diagonal of the covariances C."""
    c = np.cov(x, y, rowvar)
    if not c.ndim:
        return c / c
    d = np.sqrt(np.diagonal(c))
    return c / d.reshape(-1, 1) / d


@op(np.cumprod).vjp
def cumprodRule(g, y, a, axis=None):
    """The rule of the kernel, which is exact where an element is 0, too."""
    if axis is None:
        return cumulateRule(g, y, a.reshape(-1), 0, "product").reshape(a.shape)
    return cumulateRule(g, y, a, axis, "product")


def cumulative(function, first):
    """The composition of a cumulative function of the array API."""

    def along(x, axis=None, include_initial=False):
        axis = 0 if axis is None else axis
        y = function(x, axis=axis)
        if not include_initial:
            return y
        start = np.full_like(valuesOf(y).take([0], axis), first)
        return np.concatenate([start, y], axis=axis)

    return along


op(np.cumulative_sum).composed(cumulative(np.cumsum, 0))
op(np.cumulative_prod).composed(cumulative(np.cumprod, 1))


@op(np.trapezoid).composed
def trapezoids(y, x=None, dx=1.0, axis=-1):
    """The sum of (x[i + 1] - x[i]) (y[i + 1] + y[i]) / 2"""
    y = np.moveaxis(y, axis, -1) if np.ndim(y) > 1 else y
    d = dx if x is None else np.diff(x) if np.ndim(x) == 1 else np.diff(np.moveaxis(x, axis, -1))
    return (d * (y[..., 1:] + y[..., :-1]) / 2).sum(axis=-1)


@op(np.gradient).composed
def slopes(f, *spacing, axis=None, edge_order=1):
    """Central differences inside, one-sided ones at the ends, for an even spacing."""
    if edge_order != 1 or any(np.ndim(h) for h in spacing):
        return NotImplemented
    axes = axesOf(f, axis)
    steps = spacing * len(axes) if len(spacing) == 1 else spacing or (1.0,) * len(axes)
    ys = []
    for a, h in zip(axes, steps):
        lead = (slice(None),) * a
        ends = ((1, 2), (0, 1), (2, None), (None, -2), (-1, None), (-2, -1))
        keys = [(*lead, slice(*part)) for part in ends]
        parts = [f[key] for key in keys]
        inside = (parts[2] - parts[3]) / (2.0 * h)
        ys.append(np.concatenate([(parts[0] - parts[1]) / h, inside, (parts[4] - parts[5]) / h], axis=a))
    return ys[0] if len(ys) == 1 else tuple(ys)


@op(np.interp).composed
def interpolated(x, xp, fp, left=None, right=None, period=None):
    """y = fp[i] + (x - xp[i]) (fp[i + 1] - fp[i]) / (xp[i + 1] - xp[i]) from xp[i] to xp[i + 1]; the ends outside."""
    if period is not None or np.size(valuesOf(xp)) < 2:
        return NotImplemented
    at, points = valuesOf(x), valuesOf(xp)
    i = np.clip(np.searchsorted(points, at, side="right") - 1, 0, points.size - 2)
    xp, fp = (v if isinstance(v, Tracer) else np.asarray(v) for v in (xp, fp))
    y = fp[i] + (x - xp[i]) * ((fp[i + 1] - fp[i]) / (xp[i + 1] - xp[i]))
    y = np.where(at < points[0], fp[0] if left is None else left, y)
    return np.where(at > points[-1], fp[-1] if right is None else right, y)


@op(np.unwrap).composed
def unwrapped(p, discont=None, axis=-1, period=2 * np.pi):
    """p with multiples of the period added, which are constant."""
    values = valuesOf(p)
    return p + (np.unwrap(values, discont, axis, period=period) - values)


@op(np.ediff1d).composed
def differences(ary, to_end=None, to_begin=None):
    """Differences of neighbours, between what is put before and after."""
    parts = [to_begin, np.diff(np.ravel(ary)), to_end]
    return np.concatenate([np.ravel(part) for part in parts if part is not None])
