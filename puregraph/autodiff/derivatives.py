"""The gradients of numpy's functions and of Kernels: one rule each, written with numpy again.

    rule(g, y, arguments, options, needs) -> one gradient per argument, None where there is none

`g` is the gradient of the result `y` (a tuple of them where there are several). A rule handed Variables records itself,
so its gradient is known too: second derivatives need no further table. Ufuncs and Formulas have no row here: theirs
follow from the formula's derivative.

Source    Griewank, Walther 2008, Evaluating Derivatives, ch. 3; Giles 2008, An extended collection of matrix derivative
          results for forward and reverse mode automatic differentiation (matmul)
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from puregraph.algebra import combine, shapeOf
from puregraph.evaluator import Evaluator
from puregraph.formula import Formula, formulasOf
from puregraph.kernels.attention import attend, attendGrad
from puregraph.kernels.convolution import convolve, convolveData, convolveWeight
from puregraph.kernels.einsum import ontoDiagonal
from puregraph.kernels.pooling import maxPool, maxPoolGrad, meanPool, meanPoolGrad
from puregraph.kernels.reduce import unbroadcast
from puregraph.kernels.scatter import gather, putClass, scatterAdd, takeClass
from puregraph.pointwise import asGradient, pullback
from puregraph.standin import astype, standInOf
from puregraph.table import TABLE

Rule = Callable[[Any, Any, tuple, dict, tuple], Any]
VJPS: dict[Any, Rule] = {}
CONSTANT = {
    np.shape, np.ndim, np.size, np.zeros_like, np.ones_like, np.empty_like, np.argmax, np.argmin, np.argsort,
    np.nonzero, np.result_type, np.array_equal, np.allclose, np.isclose, np.searchsorted, np.any, np.all,
}  # fmt: skip


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
    names = NAMES.get(function) or tuple(inspect.signature(getattr(function, "reference", function)).parameters)

    def call(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
        given = {**dict(zip(names, arguments)), **options}
        found = rule(g, y, **{name: given[name] for name in wanted if name in given})
        return tuple(found) if type(found) is tuple else (found,) + (None,) * (len(arguments) - 1)

    return call


NAMES = {
    operator.getitem: ("x", "key"),
    np.concatenate: ("arrays", "axis"),
    np.where: ("condition", "x", "y"),
    np.dot: ("a", "b"),
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
    """The rule of a ufunc or of an Evaluator; None for anything else."""
    if isinstance(function, Evaluator):
        fresh = {name: f"v{i}" for i, name in enumerate(function.names)}
        formulas = [f.put(**{name: fresh[name] for name in f.names}) for f in formulasOf(function)]
        return formulaRule(formulas, tuple(fresh.values()), True)
    text = TEXTS.get(function)
    if text is None:
        return None
    names = tuple("abc"[: function.nin])
    return formulaRule([Formula(text)], names, False)


def textsOf() -> dict[Any, str]:
    """Every ufunc as a formula of a and b."""
    texts = {np.square: "square(a)", np.reciprocal: "reciprocal(a)", np.positive: "a", np.fabs: "abs(a)"}
    texts |= {np.logaddexp: "logaddexp(a, b)", np.exp2: "2 ** a", np.float_power: "a ** b"}
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
VJPS[astype] = lambda g, y, arguments, options, needs: (g.astype(arguments[0].dtype), *[None] * (len(arguments) - 1))


@vjp(np.where)
def whereRule(g, z, condition, x, y):
    """Each side gets the gradient where it was chosen."""
    return None, fit(np.where(condition, g, 0), x), fit(np.where(condition, 0, g), y)


@vjp(np.clip)
def clipRule(g, y, a, a_min=None, a_max=None):
    """Values inside get the gradient, at both bounds too; a bound gets it where it is what came out."""
    inside = np.equal(y, a)  # torch passes the gradient at both bounds
    return np.where(inside, g, 0), *outside(g, a, a_min, -1), *outside(g, a, a_max, 1)


def outside(g: Any, a: Any, bound: Any, side: int) -> tuple:
    """The gradient of a bound: where it is what came out."""
    return (None if bound is None else fit(np.where(np.greater(side * a, side * bound), g, 0), bound),)


# Sums and the like along axes -----------------------------------------------------------------------------------------


def kept(x: Any, axis: Any) -> tuple[int, ...]:
    """The shape of x with length one along the axes that a reduction takes away."""
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,))]
    return tuple([1 if i in axes else n for i, n in enumerate(x.shape)])


def spread(g: Any, x: Any, axis: Any) -> Any:
    """A gradient repeated along the axes that were summed away."""
    return np.broadcast_to(g.reshape(kept(x, axis)), x.shape)


@vjp(np.sum)
def sumRule(g, y, a, axis=None):
    """Every term gets the gradient of its sum."""
    return spread(g, a, axis)


@vjp(np.mean)
def meanRule(g, y, a, axis=None):
    """Every term gets an equal share."""
    return spread(g / (a.size // y.size), a, axis)


@vjp(np.var)
def varRule(g, y, a, axis=None, ddof=0):
    """d var / dx = 2 (x - mean) / (n - ddof)."""
    return spread(g * (2 / (a.size // y.size - ddof)), a, axis) * (a - a.mean(axis=axis, keepdims=True))


@vjp(np.std)
def stdRule(g, y, a, axis=None, ddof=0):
    """d std / dx = (x - mean) / (std (n - ddof))."""
    rest = a - a.mean(axis=axis, keepdims=True)
    return spread(g / (y * (a.size // y.size - ddof)), a, axis) * rest


@vjp(np.max, np.min)
def extremeRule(g, y, a, axis=None):
    """Equal extremes share evenly, as in torch's amax."""
    where = np.equal(a, np.broadcast_to(y.reshape(kept(a, axis)), a.shape)).astype(a.dtype)
    return spread(g, a, axis) * where / where.sum(axis=axis, keepdims=True)


@vjp(np.prod)
def prodRule(g, y, a, axis=None):
    """d prod / dx = prod / x."""
    return spread(g * y, a, axis) / a


@vjp(np.cumsum)
def cumsumRule(g, y, a, axis=None):
    """Every term gets the gradients of all sums from its own on."""
    if axis is None:
        return np.flip(np.cumsum(np.flip(g))).reshape(a.shape)
    return np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)


# Products -------------------------------------------------------------------------------------------------------------


@vjp(np.matmul, np.dot)
def matmulRule(g, y, a, b):
    """y = A B: dA = G B^T, dB = A^T G, for stacks of matrices too; a vector is a matrix of one row or column."""
    A = a if a.ndim > 1 else a.reshape(1, -1)
    B = b if b.ndim > 1 else b.reshape(-1, 1)
    if max(A.ndim, B.ndim) > 2 and not g.ndim:
        g = g.reshape(1, 1)
    G = g if a.ndim > 1 and b.ndim > 1 else g.reshape(*(B if a.ndim == 1 else A).shape[:-2], A.shape[-2], B.shape[-1])
    dA, dB = G @ B.swapaxes(-1, -2), A.swapaxes(-1, -2) @ G
    return fit(dA, A).reshape(a.shape), fit(dB, B).reshape(b.shape)


NAMES[np.matmul] = ("a", "b")
VJPS[np.matmul] = bound(np.matmul, matmulRule)


def einsumRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """Each operand's gradient is the same sum with the result's gradient in its place."""
    equation, *xs = arguments
    if "." in equation:
        equation = equation.replace("...", "")
    terms, _, out = equation.replace(" ", "").partition("->")
    inputs = terms.split(",")
    if "->" not in equation:
        out = "".join(sorted(c for c in set(terms) - {","} if terms.count(c) == 1))
    found: list[Any] = [None]
    for i, (letters, x) in enumerate(zip(inputs, xs)):
        others = [(t, z) for j, (t, z) in enumerate(zip(inputs, xs)) if j != i]
        known = set(out).union(*[t for t, _ in others])
        distinct = "".join(dict.fromkeys(letters))
        target = "".join(c for c in distinct if c in known)
        part = np.einsum(",".join([out, *(t for t, _ in others)]) + "->" + target, g, *(z for _, z in others))
        part = part.reshape([x.shape[letters.index(c)] if c in known else 1 for c in distinct])
        found.append(ontoDiagonal(part, letters, x.shape))
    return tuple(found)


VJPS[np.einsum] = einsumRule

# Views and moves ------------------------------------------------------------------------------------------------------


@vjp(np.reshape, np.ravel, np.squeeze, np.expand_dims)
def reshapeRule(g, y, a):
    """The gradient in the shape that came in."""
    return g.reshape(a.shape)


@vjp(np.copy)
def copyRule(g, y, a):
    """The gradient itself."""
    return g


@vjp(np.transpose)
def transposeRule(g, y, a, axes=None):
    """The gradient with its axes put back."""
    order = range(a.ndim)[::-1] if axes is None else [axis % a.ndim for axis in axes]
    return g.transpose(tuple(int(i) for i in np.argsort(list(order))))


@vjp(np.swapaxes)
def swapaxesRule(g, y, a, axis1, axis2):
    """The gradient with its axes put back."""
    return g.swapaxes(axis1, axis2)


@vjp(np.moveaxis)
def moveaxisRule(g, y, a, source, destination):
    """The gradient with its axes put back."""
    return np.moveaxis(g, destination, source)


@vjp(np.flip)
def flipRule(g, y, m, axis=None):
    """The gradient turned back."""
    return np.flip(g, axis)


@vjp(np.roll)
def rollRule(g, y, a, shift, axis=None):
    """The gradient rolled back."""
    return np.roll(g, tuple(-s for s in shift) if isinstance(shift, tuple) else -shift, axis)


@vjp(np.broadcast_to)
def broadcastRule(g, y, array):
    """The sum over what was repeated."""
    return fit(g, array)


@vjp(np.tril)
def trilRule(g, y, m, k=0):
    """The gradient of what was kept."""
    return np.tril(g, k)


@vjp(np.triu)
def triuRule(g, y, m, k=0):
    """The gradient of what was kept."""
    return np.triu(g, k)


@vjp(np.pad)
def padRule(g, y, array, pad_width, mode="constant", constant_values=0):
    """The gradient without its margins."""
    if mode != "constant":
        raise NotImplementedError(f"the gradient of np.pad is known for mode='constant' only, got {mode!r}")
    before = np.broadcast_to(pad_width, (array.ndim, 2))[:, 0]
    return g[tuple([slice(int(b), int(b) + n) for b, n in zip(before, array.shape)])]


def concatenateRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """Each array gets its own part."""
    arrays = arguments[0]
    axis = (arguments[1] if len(arguments) > 1 else options.get("axis", 0)) % y.ndim
    ends = np.cumsum([0, *(a.shape[axis] for a in arrays)]).tolist()
    parts = [g[(slice(None),) * axis + (slice(i, j),)] for i, j in zip(ends, ends[1:])]
    return (parts, *[None] * (len(arguments) - 1))


def stackRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """Each array gets its own slice."""
    axis = (arguments[1] if len(arguments) > 1 else options.get("axis", 0)) % y.ndim
    parts = [g[(slice(None),) * axis + (i,)] for i in range(len(arguments[0]))]
    return (parts, *[None] * (len(arguments) - 1))


VJPS[np.concatenate], VJPS[np.stack] = concatenateRule, stackRule


def splitRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """The parts put together; one without a gradient counts as zeros."""
    axis = arguments[2] if len(arguments) > 2 else options.get("axis", 0)
    parts = [np.zeros_like(part) if each is None else each for each, part in zip(g, y)]
    return (np.concatenate(parts, axis), *[None] * (len(arguments) - 1))


VJPS[np.split] = VJPS[np.array_split] = splitRule


@vjp(np.repeat)
def repeatRule(g, y, a, repeats, axis=None):
    """The sum over the repetitions of each value."""
    flat = a.reshape(-1) if axis is None else a
    places = np.repeat(np.arange(flat.shape[axis or 0]), repeats)
    return putAt(g, (slice(None),) * ((axis or 0) % flat.ndim) + (places,), flat.shape).reshape(a.shape)


@vjp(operator.getitem)
def getitemRule(g, y, x, key):
    """Zeros, with the gradient added where it was taken."""
    return putAt(g, key, x.shape)


@vjp(np.take)
def takeRule(g, y, a, indices, axis=None):
    """Zeros, with the gradient added where it was taken."""
    if axis is None:
        return putAt(g, (indices,), (a.size,)).reshape(a.shape)
    return putAt(g, (slice(None),) * (axis % a.ndim) + (indices,), a.shape)


@vjp(np.take_along_axis)
def takeAlongRule(g, y, arr, indices, axis):
    """Zeros, with the gradient added where it was taken."""
    grid = list(np.ogrid[tuple([slice(n) for n in indices.shape])])
    grid[axis] = indices
    return putAt(g, tuple(grid), arr.shape)


def putAt(g: Any, key: Any, shape: Any) -> Any:
    """dx[key] += g, zero elsewhere: the adjoint of x[key].

    Shapes    g as x[key] -> dx (shape)
    """
    if standInOf((g,)) is not None:
        return g.handle(putAt, (g, key, shape), {})
    dx = np.zeros_like(g, shape=shape)
    if isBasic(key):
        dx[key] = g
    else:
        np.add.at(dx, key, g)
    return dx


def isBasic(key: Any) -> bool:
    """Whether an index names no place twice."""
    parts = key if type(key) is tuple else (key,)
    return all(isinstance(part, (int, slice, type(None), type(Ellipsis))) for part in parts)


VJPS[putAt] = lambda g, y, arguments, options, needs: (g[arguments[1]], None, None)

# Kernels: each is linear in what it moves, and has its adjoint beside it ----------------------------------------------


@vjp(convolve)
def convolveRule(g, y, x, W, stride, pad, dilation, groups):
    """Its two adjoints."""
    lay = (stride, pad, dilation, groups)
    return convolveData(g, W, x.shape, *lay), convolveWeight(g, x, W.shape[2:], *lay), None, None, None, None


@vjp(convolveData)
def convolveDataRule(g, y, grad, W, shape, stride, pad, dilation, groups):
    """Its two adjoints."""
    lay = (stride, pad, dilation, groups)
    return convolve(g, W, *lay), convolveWeight(grad, g, W.shape[2:], *lay), *[None] * 5


@vjp(convolveWeight)
def convolveWeightRule(g, y, grad, x, size, stride, pad, dilation, groups):
    """Its two adjoints."""
    lay = (stride, pad, dilation, groups)
    return convolve(x, g, *lay), convolveData(grad, g, x.shape, *lay), *[None] * 5


@vjp(maxPool)
def maxPoolRule(g, y, x):
    """Each window's gradient goes to its maximum."""
    return None if g[0] is None else maxPoolGrad(g[0], whole(y[1]), x.shape)


@vjp(maxPoolGrad)
def maxPoolGradRule(g, y, grad, indices, shape):
    """Each window takes what lies at its maximum."""
    flat = g.reshape(*shape[:2], -1)
    places = np.maximum(indices, 0).reshape(*shape[:2], -1)
    found = np.take_along_axis(flat, places, 2).reshape(indices.shape)
    return np.where(indices < 0, 0, found), None, None


@vjp(meanPool)
def meanPoolRule(g, y, x, size, stride, pad, includePad=True):
    """Each window's gradient is shared evenly."""
    return meanPoolGrad(g, x.shape, size, stride, pad, includePad)


@vjp(meanPoolGrad)
def meanPoolGradRule(g, y, grad, size, stride, pad, includePad=True):
    """The mean of each window."""
    return meanPool(g, size, stride, pad, includePad)


@vjp(gather)
def gatherRule(g, y, table, index):
    """Rows add up where they were taken."""
    return scatterAdd(g, index, table.shape[0])


@vjp(scatterAdd)
def scatterAddRule(g, y, grad, index):
    """Rows are taken from where they went."""
    return gather(g, index)


@vjp(takeClass)
def takeClassRule(g, y, x, labels):
    """Each value goes to the class that it came from."""
    return putClass(g, labels, x.shape[1])


@vjp(putClass)
def putClassRule(g, y, values, labels):
    """Each value is taken from the class that it went to."""
    return takeClass(g, labels)


def attendRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """Block by block, as the module has it; the log-sum-exp has a gradient too."""
    gy, glse = g
    q, k, v, mask, causal, scale = arguments
    out, lse = y
    gy = np.zeros_like(out) if gy is None else gy
    rest = (gy * out).sum(axis=-1, keepdims=True)
    ofMask = bool(needs[3])
    rest = rest if glse is None else rest - glse
    return (*attendGrad(gy, q, k, v, mask, lse, rest, causal, scale, ofMask), *[None] * (3 - ofMask))


VJPS[attend] = attendRule


def attendGradRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """With a, b, c, m for the gradients of dq, dk, dv, dmask, and p, ds as in the Kernel; here all scores at once:

    gds = scale (a k' + q b') + m, gp = grad c' + gds (grad v' - rest), gs = gp p, that of the scores.
    """
    grad, q, k, v, mask, lse, rest, causal, scale = arguments[:9]
    shape, heads = q.shape, k.shape[1]
    folded = (shape[0], heads, shape[1] // heads, *shape[2:3])

    def rows(x: Any) -> Any:  # (n, h, t, d) as (n, h / g, g, t, d)
        return x.reshape(*folded, x.shape[-1])

    def columns(x: Any) -> Any:  # (n, h / g, s, d) as (n, h / g, 1, s, d)
        return x.reshape(*x.shape[:2], 1, *x.shape[2:])

    def turned(x: Any) -> Any:
        return x.swapaxes(-1, -2)

    a, b, c = [np.zeros_like(x) if each is None else each for each, x in zip(g, (q, k, v))]
    m = g[3] if len(g) > 3 else None
    Q, K, V, G, A, B, C = rows(q), columns(k), columns(v), rows(grad), rows(a), columns(b), columns(c)
    scores = scale * (Q @ turned(K))
    wide = (*shape[:3], k.shape[2])
    if mask is not None:
        full = np.broadcast_to(mask, wide).reshape(scores.shape)
        scores = np.where(full, scores, -np.inf) if mask.dtype.kind == "b" else scores + full
    if causal:
        scores = np.where(np.tril(np.ones_like(whole(q), shape=wide[2:], dtype=bool)), scores, -np.inf)
    p, free = np.exp(scores - rows(lse)), G @ turned(V) - rows(rest)
    ds = p * free
    gds = scale * (A @ turned(K) + Q @ turned(B))
    gds = gds if m is None else gds + np.broadcast_to(m, wide).reshape(scores.shape)
    gp = G @ turned(C) + gds * free
    gfree, gs = gds * p, gp * p
    found = [
        (p @ C + gfree @ V).reshape(grad.shape),
        (scale * (gs @ K + ds @ B)).reshape(q.shape),
        (scale * (turned(gs) @ Q + turned(ds) @ A)).sum(axis=2),
        (turned(gfree) @ G).sum(axis=2),
        fit(gs.reshape(wide), mask) if needs[4] else None,
        -gs.sum(axis=-1).reshape(lse.shape),
        -gfree.sum(axis=-1).reshape(rest.shape),
    ]
    return (*found, *[None] * (len(arguments) - 7))


VJPS[attendGrad] = attendGradRule


def ontoDiagonalRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """The diagonal."""
    values, letters, _ = arguments
    distinct = "".join(dict.fromkeys(letters))
    return fit(np.einsum(f"{letters}->{distinct}", g), values), None, None


VJPS[ontoDiagonal] = ontoDiagonalRule


def whole(value: Any) -> Any:
    """Indices as the array that they are, also out of a Variable."""
    return getattr(value, "data", value) if standInOf((value,)) is not None else value
