"""The gradients of numpy's functions and of Kernels: one rule each, written with numpy again.

    rule(g, y, arguments, options, needs) -> one gradient per argument, None where there is none

`g` is the gradient of the result `y` (a tuple of them where there are several). A rule handed Variables records itself,
so its gradient is known too: second derivatives need no further table. Ufuncs and Formulas have no row here: theirs
follow from the formula's derivative; those of products of matrices are in `products`.

Source    Griewank, Walther 2008, Evaluating Derivatives, ch. 3
"""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np

from puregraph.accumulate import combine, isArray, shapeOf
from puregraph.device import isDeviceArray
from puregraph.errors import AutoDiffException
from puregraph.formula import Formula, formulasOf
from puregraph.interpreter import Interpreter
from puregraph.kernels.convolution import convolve, convolveData, convolveWeight
from puregraph.kernels.pooling import maxPool, maxPoolGrad, meanPool, meanPoolGrad
from puregraph.kernels.reduce import unbroadcast
from puregraph.kernels.scatter import addAt, gather, putClass, scatterAdd, takeClass
from puregraph.optable import TABLE
from puregraph.pointwise import asGradient, pullback
from puregraph.tracer import astype, tracerOf

Rule = Callable[[Any, Any, tuple, dict, tuple], Any]
VJPS: dict[Any, Rule] = {}
WRITING = {np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal}
CONSTANT = {
    np.count_nonzero, np.flatnonzero, np.argwhere, np.iscomplexobj, np.isrealobj, np.shares_memory, np.lexsort,
    np.may_share_memory, np.array_equiv, np.min_scalar_type, np.can_cast, np.shape, np.ndim, np.size, np.zeros_like,
    np.ones_like, np.empty_like, np.argmax, np.argmin, np.argsort, np.nonzero, np.result_type, np.array_equal,
    np.allclose, np.isclose, np.searchsorted, np.any, np.all,
}  # fmt: skip

FRESH = {np.zeros_like, np.ones_like, np.empty_like}  # of the constant ones: to be written into


def vjp(*functions: Any) -> Callable[[Callable], Callable]:
    """Register `rule(g, y, *arguments as the function names them)`, giving one gradient per argument that it takes."""

    def keep(rule: Callable) -> Callable:
        for function in functions:
            VJPS[function] = bound(function, rule)
        return rule

    return keep


def bound(function: Any, rule: Callable) -> Rule:
    """A rule that is handed its arguments in one order, however the call gave them."""
    wanted = tuple(inspect.signature(rule).parameters)[2:]
    names = namesOf(function)

    def call(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
        given = {**dict(zip(names, arguments)), **options}
        found = rule(g, y, **{name: given[name] for name in wanted if name in given})
        return tuple(found) if type(found) is tuple else (found,) + (None,) * (len(arguments) - 1)

    call.reads = {*wanted, *(names if hasattr(function, "reference") else HARMLESS)}  # type: ignore[attr-defined]
    return call


HARMLESS = {"keepdims", "dtype", "out"}  # the result says it all
PLAIN = {*HARMLESS, "axis", "order", "casting", "subok", "copy", "optimize"}  # of rules that take a call as it is


def namesOf(function: Any) -> tuple[str, ...]:
    """What a function calls its arguments, in order."""
    known = NAMES.get(function)
    if known is None:
        known = NAMES[function] = tuple(parametersOf(function))
    return known


@cache
def parametersOf(function: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name; none where it does not tell."""
    try:
        return dict(inspect.signature(getattr(function, "reference", function)).parameters)
    except (TypeError, ValueError):  # a ufunc, or something else written in C
        return {}


def refused(function: Any, rule: Rule, arguments: tuple, options: dict[str, Any]) -> str:
    """The options of a call that its rule does not know and that change the result, in words; usually none."""
    given = {**dict(zip(namesOf(function), arguments)), **options} if hasattr(rule, "reads") else options
    reads = getattr(rule, "reads", PLAIN)
    return ", ".join([f"{k}={v!r:.40}" for k, v in given.items() if k not in reads and not isDefault(function, k, v)])


def isDefault(function: Any, name: str, value: Any) -> bool:
    """Whether an option has the value that it has when left out."""
    if value is None or value is np._NoValue:
        return True
    if isinstance(function, np.ufunc):
        return value is True
    parameter = parametersOf(function).get(name)
    return parameter is not None and type(value) is type(parameter.default) and value == parameter.default


def positioned(
    function: Any, arguments: tuple, options: dict[str, Any], isVariable: Callable[[Any], bool]
) -> tuple[tuple, dict[str, Any]]:
    """A call with its Variables given by position, whatever it was that the caller gave by name."""
    late = [k for k, v in options.items() if k != "out" and holds(v, isVariable)]
    if not late:
        return arguments, options
    names = namesOf(function)
    if not set(late) <= set(names):
        raise AutoDiffException(f"{function.__name__}: a Variable cannot be given as {', '.join(late)}")
    options, placed = dict(options), list(arguments)
    parameters = parametersOf(function)
    for name in names[len(arguments) : 1 + max(map(names.index, late))]:
        parameter = parameters.get(name)
        isLost = parameter is None and name not in options
        if isLost or parameter is not None and parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            raise AutoDiffException(f"{function.__name__}: a Variable cannot be given as {', '.join(late)}")
        placed.append(options.pop(name) if name in options else parameter.default)  # type: ignore[union-attr]
    return tuple(placed), options


def holds(value: Any, isVariable: Callable[[Any], bool]) -> bool:
    """Whether a value is a Variable, or has one in it."""
    return isVariable(value) or type(value) in (list, tuple) and any(holds(v, isVariable) for v in value)


NAMES = {
    operator.getitem: ("x", "key"),
    np.concatenate: ("arrays", "axis"),
    np.where: ("condition", "x", "y"),
}

# Pointwise ------------------------------------------------------------------------------------------------------------


def formulaRule(formulas: list[Formula], names: tuple[str, ...], several: bool) -> Rule:
    """The rule of pointwise expressions of named arguments, from their derivatives."""

    def rule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
        grads, values = (g, y) if several else ((g,), (y,))
        parts: list[list[Any]] = [[] for _ in arguments]
        for formula, each, value in zip(formulas, grads, values):
            if each is None:
                continue
            found = iter(pullback(formula, names, needs)(each, *arguments, value))
            for part, a, needed in zip(parts, arguments, needs):
                if needed:
                    part.append(asGradient(next(found), each, shapeOf(a)))
        return tuple([combine(part) if part else None for part in parts])

    return rule


@cache
def pullbackOf(function: Any) -> Rule | None:
    """The rule of a ufunc or of an Interpreter; None for anything else."""
    if isinstance(function, Interpreter):
        fresh = {name: f"v{i}" for i, name in enumerate(function.names)}
        formulas = [f.put(**{name: fresh[name] for name in f.names}) for f in formulasOf(function)]
        return formulaRule(formulas, tuple(fresh.values()), True)
    text = TEXTS.get(function)
    if text is None:
        return None
    formula = Formula(text)
    names = tuple("abc"[: getattr(function, "nin", len(formula.names))])
    return formulaRule([formula], names, False)


def textsOf() -> dict[Any, str]:
    """Every ufunc, and what else is pointwise, as a formula of a and b: only its derivatives are used."""
    texts = {
        np.square: "square(a)",
        np.reciprocal: "reciprocal(a)",
        np.positive: "a",
        np.real: "a",
        np.fabs: "abs(a)",
        np.exp2: "2 ** a",
        np.float_power: "a ** b",
        np.logaddexp: "logaddexp(a, b)",
        np.logaddexp2: "logaddexp(a * log(2), b * log(2)) / log(2)",
        np.fmax: "where(isnan(a), b, where(isnan(b), a, maximum(a, b)))",
        np.fmin: "where(isnan(a), b, where(isnan(b), a, minimum(a, b)))",
        np.heaviside: "heaviside(a, b)",
        np.floor_divide: "floor(a / b)",
        np.degrees: "a * (180 / pi)",
        np.rad2deg: "a * (180 / pi)",
        np.radians: "a * (pi / 180)",
        np.deg2rad: "a * (pi / 180)",
        np.sinc: "sinc(a)",
    }
    for name, row in TABLE.items():
        if isinstance(row.numpy, np.ufunc):
            infix = {"neg": "-a", "not": "not a", "pow": "a ** b"}.get(name, f"a {name} b")
            calls = f"{name}({', '.join('abc'[: row.numpy.nin])})"
            texts[row.numpy] = (
                calls if name.isidentifier() and name not in ("neg", "not", "pow", "and", "or") else infix
            )
    return texts


TEXTS = textsOf()


def plain(rule: Callable) -> Rule:
    """A rule of an operator that is called by position only, without the detour over names."""
    return lambda g, y, arguments, options, needs: rule(g, *arguments, *needs)


def fit(g: Any, a: Any) -> Any:
    """A gradient summed back to the shape of an operand that was repeated."""
    return g if g.shape == shapeOf(a) else unbroadcast(g, shapeOf(a))


VJPS[np.add] = plain(lambda g, a, b, na, nb: (fit(g, a) if na else None, fit(g, b) if nb else None))
VJPS[np.subtract] = plain(lambda g, a, b, na, nb: (fit(g, a) if na else None, fit(-g, b) if nb else None))
VJPS[np.multiply] = plain(lambda g, a, b, na, nb: (fit(g * b, a) if na else None, fit(g * a, b) if nb else None))
VJPS[np.negative] = plain(lambda g, a, na: (-g,))


def astypeRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """The dtype that there was."""
    return (g.astype(arguments[0].dtype), *[None] * (len(arguments) - 1))


VJPS[astype] = VJPS[getattr(np, "astype", astype)] = astypeRule


@vjp(np.where)
def whereRule(g, z, condition, x, y):
    """Each side where it was chosen."""
    return None, fit(np.where(condition, g, 0), x), fit(np.where(condition, 0, g), y)


@vjp(np.clip)
def clipRule(g, y, a, a_min=None, a_max=None, min=None, max=None):
    """torch's: at both bounds the gradient is the value's, beyond it is the bound's."""
    low = next((x for x in (a_min, min) if x is not None and x is not np._NoValue), -np.inf)
    high = next((x for x in (a_max, max) if x is not None and x is not np._NoValue), np.inf)
    inside = np.logical_and(np.less_equal(low, a), np.less_equal(a, high))
    below = np.logical_and(np.less(a, low), np.less(low, high))
    above = np.logical_or(np.greater(a, high), np.greater(low, high))
    return tuple([fit(np.where(p, g, 0), x) for p, x in ((inside, a), (below, low), (above, high))])


@vjp(np.nan_to_num)
def nanToNumRule(g, y, x, nan=0, posinf=None, neginf=None):
    """dx = g where x was a number."""
    return np.where(np.isfinite(x), g, 0)


@vjp(np.round, np.around)
def roundRule(g, y, a, decimals=0):
    """y stays between its steps: dx = 0."""
    return np.zeros_like(g)


@vjp(np.full_like)
def fullLikeRule(g, y, a, fill_value, shape=None):
    """y = v everywhere: dv = sum g."""
    return None, fit(g, fill_value)


# Sums and the like along axes -----------------------------------------------------------------------------------------


def axesOf(x: Any, axis: Any) -> tuple[int, ...]:
    """The axes that a reduction takes away, counted from the front."""
    return tuple(range(x.ndim)) if axis is None else tuple([a % x.ndim for a in listOf(axis)])


def listOf(value: Any) -> list[Any]:
    """What may be one number or several."""
    return list(value) if isinstance(value, (tuple, list, np.ndarray)) else [value]


def spread(g: Any, x: Any, axis: Any) -> Any:
    """A gradient repeated along the axes that were summed away."""
    axes = axesOf(x, axis)
    return np.broadcast_to(g.reshape([1 if i in axes else n for i, n in enumerate(x.shape)]), x.shape)


def counted(x: Any, axis: Any) -> int:
    """How many values a reduction takes together, at least one: of none there is no gradient to divide."""
    return max(1, prod([x.shape[i] for i in axesOf(x, axis)]))


@vjp(np.sum)
def sumRule(g, y, a, axis=None):
    """y = sum x: dx = g."""
    return spread(g, a, axis)


@vjp(np.mean)
def meanRule(g, y, a, axis=None):
    """y = sum x / n: dx = g / n."""
    return spread(g / counted(a, axis), a, axis)


@vjp(np.average)
def averageRule(g, y, a, axis=None, weights=None):
    """y = sum w x / sum w: dx = g w / sum w, dw = g (x - y) / sum w."""
    if weights is None:
        return meanRule(g, y, a, axis)
    w, axis = weights if isArray(weights) else np.asarray(weights), axesOf(a, axis)
    if w.ndim != a.ndim:
        w = w.reshape([n if i in axesOf(a, axis) else 1 for i, n in enumerate(a.shape)])
    share = spread(g / np.broadcast_to(w, a.shape).sum(axis=axis).reshape(y.shape), a, axis)
    return share * w, None, unbroadcast(share * (a - spread(y, a, axis)), w.shape).reshape(np.shape(weights))


@vjp(np.var)
def varRule(g, y, a, axis=None, ddof=0, correction=0):
    """y = sum (x - m)^2 / (n - c): dx = 2 g (x - m) / (n - c)."""
    return spread(g * (2 * rest(a, axis, ddof, correction)), a, axis) * centered(a, axis)


@vjp(np.std)
def stdRule(g, y, a, axis=None, ddof=0, correction=0):
    """y = sqrt v: dx = g (x - m) / (y (n - c)), and 0 where y is, as in torch."""
    isZero = np.equal(y, 0)
    slope = np.where(isZero, 0, g / np.where(isZero, 1, y))
    return spread(slope * rest(a, axis, ddof, correction), a, axis) * centered(a, axis)


def rest(a: Any, axis: Any, ddof: Any, correction: Any) -> float:
    """1 / (n - c)."""
    free = counted(a, axis) - (ddof or (0 if correction is np._NoValue else correction))
    return 1 / free if free else float("nan")


def centered(a: Any, axis: Any) -> Any:
    """x - mean x."""
    return a - a.mean(axis=axis, keepdims=True)


@vjp(np.max, np.min, np.amax, np.amin)
def extremeRule(g, y, a, axis=None):
    """Equal extremes share evenly, as in torch's amax."""
    isOne = np.logical_or(np.equal(a, spread(y, a, axis)), np.not_equal(a, a)).astype(a.dtype)
    return spread(g, a, axis) * (isOne / isOne.sum(axis=axis, keepdims=True))


@vjp(np.prod)
def prodRule(g, y, a, axis=None):
    """y = x1 x2 ...: dx1 = g x2 ..., by division unless there are zeros."""
    if not np.any(np.equal(a, 0)):
        return spread(g * y, a, axis) / a
    axes = axesOf(a, axis)
    order = [i for i in range(a.ndim) if i not in axes] + list(axes)
    lead = [a.shape[i] for i in order[: a.ndim - len(axes)]]
    n = counted(a, axis)
    rows = a.transpose(order).reshape([*lead, 1, n])
    others = np.prod(np.where(np.eye(n, dtype=bool), 1, rows), axis=-1)
    others = others.reshape([a.shape[i] for i in order]).transpose([int(i) for i in np.argsort(order)])
    return spread(g, a, axis) * others


@vjp(np.cumsum)
def cumsumRule(g, y, a, axis=None):
    """The sums from the other end."""
    if axis is None:
        return np.flip(np.cumsum(np.flip(g))).reshape(a.shape)
    return np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)


@vjp(np.diff)
def diffRule(g, y, a, n=1, axis=-1):
    """The differences of what came before and after, with the other sign, n times."""
    for _ in range(n):
        width = [(1, 1) if i == axis % a.ndim else (0, 0) for i in range(a.ndim)]
        g = -np.diff(np.pad(g, width), axis=axis)
    return g


@vjp(np.sort)
def sortRule(g, y, a, axis=-1, kind=None, stable=None):
    """Back to the places where the values were."""
    return takeAlongRule(g, y, a, np.argsort(a, axis=axis), axis)


# Views and moves ------------------------------------------------------------------------------------------------------


@vjp(np.reshape, np.ravel, np.squeeze, np.expand_dims)
def reshapeRule(g, y, a, shape=None, axis=None):
    """The old shape again."""
    return g.reshape(a.shape)


def atleastRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """The old shape again."""
    grads = g if type(y) is tuple else (g,)
    return tuple([each if each is None else each.reshape(np.shape(a)) for each, a in zip(grads, arguments)])


VJPS[np.atleast_1d] = VJPS[np.atleast_2d] = VJPS[np.atleast_3d] = atleastRule


@vjp(np.copy)
def copyRule(g, y, a, order="K"):
    """dx = g."""
    return g


@vjp(np.transpose)
def transposeRule(g, y, a, axes=None):
    """The inverse permutation."""
    order = range(a.ndim)[::-1] if axes is None else [axis % a.ndim for axis in axes]
    return g.transpose(tuple(int(i) for i in np.argsort(list(order))))


@vjp(np.swapaxes)
def swapaxesRule(g, y, a, axis1, axis2):
    """Once more."""
    return g.swapaxes(axis1, axis2)


@vjp(np.moveaxis)
def moveaxisRule(g, y, a, source, destination):
    """The way back."""
    return np.moveaxis(g, destination, source)


@vjp(np.flip)
def flipRule(g, y, m, axis=None):
    """Once more."""
    return np.flip(g, axis)


@vjp(np.roll)
def rollRule(g, y, a, shift, axis=None):
    """The other way round."""
    return np.roll(g, [-s for s in listOf(shift)] if np.ndim(shift) else -shift, axis)


@vjp(np.broadcast_to)
def broadcastRule(g, y, array, shape=None):
    """The sum over what was repeated."""
    return fit(g, array)


@vjp(np.tril)
def trilRule(g, y, m, k=0):
    """What was kept."""
    return np.tril(g, k)


@vjp(np.triu)
def triuRule(g, y, m, k=0):
    """What was kept."""
    return np.triu(g, k)


@vjp(np.pad)
def padRule(g, y, array, pad_width, constant_values=0):
    """What is not padding."""
    before = np.broadcast_to(pad_width, (array.ndim, 2))[:, 0]
    return g[tuple([slice(int(b), int(b) + n) for b, n in zip(before, array.shape)])]


@vjp(np.diagonal)
def diagonalRule(g, y, a, offset=0, axis1=0, axis2=1):
    """Onto the diagonal; zero beside it."""
    i = np.arange(y.shape[-1])
    shape = np.moveaxis(np.broadcast_to(np.empty(()), a.shape), (axis1, axis2), (0, 1)).shape
    dx = putAt(np.moveaxis(g, -1, 0), (i + max(-offset, 0), i + max(offset, 0)), shape)
    return np.moveaxis(dx, (0, 1), (axis1, axis2))


@vjp(np.trace)
def traceRule(g, y, a, offset=0, axis1=0, axis2=1):
    """The same for every place of the diagonal."""
    rows, columns = a.shape[axis1], a.shape[axis2]
    n = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    each = np.broadcast_to(g.reshape((*g.shape, 1)), (*g.shape, n))
    return diagonalRule(each, each, a, offset, axis1, axis2)


@vjp(np.diag)
def diagRule(g, y, v, k=0):
    """Out of a diagonal, or onto it."""
    return np.diagonal(g, k) if v.ndim == 1 else diagonalRule(g, y, v, k)


def parts(g: Any, arrays: Any, axis: int) -> Any:
    """A gradient cut into those of what was joined along an axis."""
    ends = np.cumsum([0, *[a.shape[axis] for a in arrays]]).tolist()
    return [g[(slice(None),) * axis + (slice(i, j),)] for i, j in zip(ends, ends[1:])]


def joined(rule: Callable) -> Rule:
    """A rule `(g, y, arrays, axis)` of what joins a list of arrays; one array counts as the list of its rows."""

    def call(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
        given = arguments[0]
        axis = arguments[1] if len(arguments) > 1 else options.get("axis", 0)
        found = rule(g, y, [a if isArray(a) else np.asarray(a) for a in given], axis)
        return (np.stack(found) if isArray(given) else found, *[None] * (len(arguments) - 1))

    return call


@joined
def concatenateRule(g, y, arrays, axis):
    """Each its part."""
    if axis is None:
        ends = parts(g, [np.empty(a.size) for a in arrays], 0)
        return [part.reshape(a.shape) for part, a in zip(ends, arrays)]
    return parts(g, arrays, axis % y.ndim)


@joined
def stackRule(g, y, arrays, axis):
    """Each its part."""
    return [g[(slice(None),) * (axis % y.ndim) + (i,)] for i in range(len(arrays))]


@joined
def vstackRule(g, y, arrays, axis):
    """Each its rows."""
    rows = [np.empty((1 if a.ndim < 2 else a.shape[0], 0)) for a in arrays]
    return [part.reshape(a.shape) for part, a in zip(parts(g, rows, 0), arrays)]


@joined
def hstackRule(g, y, arrays, axis):
    """Each its columns."""
    flat = [np.empty((1,) if a.ndim == 0 else a.shape) for a in arrays]
    return [part.reshape(a.shape) for part, a in zip(parts(g, flat, min(1, y.ndim - 1)), arrays)]


VJPS[np.concatenate], VJPS[np.stack], VJPS[np.vstack], VJPS[np.hstack] = (
    concatenateRule,
    stackRule,
    vstackRule,
    hstackRule,
)


def splitRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """All parts together again; zeros for one that nobody read."""
    axis = arguments[2] if len(arguments) > 2 else options.get("axis", 0)
    found = [np.zeros_like(part) if each is None else each for each, part in zip(g, y)]
    return (np.concatenate(found, axis), *[None] * (len(arguments) - 1))


VJPS[np.split] = VJPS[np.array_split] = splitRule


@vjp(np.repeat)
def repeatRule(g, y, a, repeats, axis=None):
    """The sum over the copies."""
    flat = a.reshape(-1) if axis is None else a
    axis = (axis or 0) % flat.ndim
    places = np.repeat(np.arange(flat.shape[axis]), repeats)
    return putAt(g, (slice(None),) * axis + (places,), flat.shape).reshape(a.shape)


@vjp(np.tile)
def tileRule(g, y, A, reps):
    """The sum over the copies."""
    times = listOf(reps)
    shape = (1,) * (len(times) - A.ndim) + tuple(A.shape)
    times = [1] * (len(shape) - len(times)) + times
    pairs = [int(n) for pair in zip(times, shape) for n in pair]
    return g.reshape(pairs).sum(axis=tuple(range(0, len(pairs), 2))).reshape(A.shape)


@vjp(operator.getitem)
def getitemRule(g, y, x, key):
    """Back to the places that were read."""
    return putAt(g, key, x.shape)


@vjp(np.take)
def takeRule(g, y, a, indices, axis=None):
    """Back to the places that were read."""
    if axis is None:
        return putAt(g, (indices,), (a.size,)).reshape(a.shape)
    return putAt(g, (slice(None),) * (axis % a.ndim) + (indices,), a.shape)


@vjp(np.take_along_axis)
def takeAlongRule(g, y, arr, indices, axis=-1):
    """Back to the places that were read."""
    if axis is None:
        return putAt(g, (indices,), (arr.size,)).reshape(arr.shape)
    sizes = [m if n != 1 else 1 for m, n in zip(y.shape, arr.shape)]
    grid: list[Any] = list(np.ogrid[tuple([slice(n) for n in sizes])])
    grid[axis] = indices
    return putAt(g, tuple(grid), arr.shape)


def putAt(g: Any, key: Any, shape: Any) -> Any:
    """dx[key] += g, zero elsewhere: the adjoint of x[key].

    Shapes    g as x[key] -> dx (shape)
    """
    if tracerOf((g,)) is not None:
        return g.handle(putAt, (g, key, shape), {})
    dx = np.zeros_like(g, shape=shape)
    if isBasic(key):
        dx[key] = g
    elif isDeviceArray(dx):
        to = sys.modules["cupy"].asarray
        keys = tuple([to(k) if isinstance(k, np.ndarray) else k for k in (key if isinstance(key, tuple) else (key,))])
        places = to(np.arange(prod(shape)).reshape(shape))[keys]
        return scatterAdd(g.reshape(-1, 1), places.reshape(-1), prod(shape)).reshape(shape)
    else:
        np.add.at(dx, key, g)
    return dx


def isBasic(key: Any) -> bool:
    """Whether an index names no place twice: of slices, whole numbers and masks."""
    parts = key if type(key) is tuple else (key,)
    return all(isinstance(part, (int, slice, type(None), type(Ellipsis))) or isMask(part) for part in parts)


def isMask(part: Any) -> bool:
    """Whether an index is an array of bools."""
    return isArray(part) and part.dtype == bool


def setAt(x: Any, key: Any, new: Any) -> Any:
    """x with y[key] = new, as another array.

    Shapes    x (any), new as x[key], or what spreads to it -> y as x
    """
    tracer = tracerOf((x, new))
    if tracer is not None:
        return tracer.handle(setAt, (x, key, new), {})
    y = x.copy()
    y[key] = new
    return y


@vjp(setAt)
def setAtRule(g, y, x, key, new):
    """To what was kept, and to what came in its place."""
    return setAt(g, key, 0), None, fit(g[key], new)


VJPS[putAt] = lambda g, y, arguments, options, needs: (g[arguments[1]], None, None)

# Kernels: each is linear in what it moves, and has its adjoint beside it ----------------------------------------------


@vjp(convolve)
def convolveRule(g, y, x, W, stride, pad, dilation, groups):
    """Linear in x and in W."""
    lay = (stride, pad, dilation, groups)
    return convolveData(g, W, x.shape, *lay), convolveWeight(g, x, W.shape[2:], *lay), None, None, None, None


@vjp(convolveData)
def convolveDataRule(g, y, grad, W, shape, stride, pad, dilation, groups):
    """Linear in the gradient and in W."""
    lay = (stride, pad, dilation, groups)
    return convolve(g, W, *lay), convolveWeight(grad, g, W.shape[2:], *lay), *[None] * 5


@vjp(convolveWeight)
def convolveWeightRule(g, y, grad, x, size, stride, pad, dilation, groups):
    """Linear in the gradient and in x."""
    lay = (stride, pad, dilation, groups)
    return convolve(x, g, *lay), convolveData(grad, g, x.shape, *lay), *[None] * 5


@vjp(maxPool)
def maxPoolRule(g, y, x, size, stride, pad, dilation=1):
    """Back to the places that were the largest."""
    return None if g[0] is None else maxPoolGrad(g[0], whole(y[1]), x.shape, size, stride, pad, dilation)


@vjp(maxPoolGrad)
def maxPoolGradRule(g, y, grad, indices, shape, *windows):
    """What is at those places."""
    maps = prod(shape[:2])
    found = addAtRule(g.reshape(maps, -1), y, grad, indices.reshape(maps, -1), None)
    return found.reshape(indices.shape)


@vjp(addAt)
def addAtRule(g, y, values, index, size):
    """What is at those places."""
    return np.where(index < 0, 0, np.take_along_axis(g, np.maximum(index, 0), 1))


@vjp(meanPool)
def meanPoolRule(g, y, x, size, stride, pad, includePad=True):
    """Evenly over each window."""
    return meanPoolGrad(g, x.shape, size, stride, pad, includePad)


@vjp(meanPoolGrad)
def meanPoolGradRule(g, y, grad, size, stride, pad, includePad=True):
    """The mean of each window."""
    return meanPool(g, size, stride, pad, includePad)


@vjp(gather)
def gatherRule(g, y, table, index):
    """Back to the rows that were read."""
    return scatterAdd(g, index, table.shape[0])


@vjp(scatterAdd)
def scatterAddRule(g, y, grad, index):
    """The rows that were added to."""
    return gather(g, index)


@vjp(takeClass)
def takeClassRule(g, y, x, labels):
    """Back to the classes that were read."""
    return putClass(g, labels, x.shape[1])


@vjp(putClass)
def putClassRule(g, y, values, labels):
    """The classes that were put."""
    return takeClass(g, labels)


def whole(value: Any) -> Any:
    """Indices as the array that they are, also out of a Variable."""
    return getattr(value, "data", value) if tracerOf((value,)) is not None else value
