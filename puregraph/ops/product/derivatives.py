"""The derivatives of matrix products and other functions of matrices.

Source    Giles 2008, An extended collection of matrix derivative results for forward and reverse mode automatic
          differentiation
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.accumulate import isArray
from puregraph.core.errors import AutoDiffException
from puregraph.ops.operation import MULTILINEAR, op
from puregraph.ops.product.einsum import spread as spreadOver
from puregraph.ops.reduction.derivatives import alongAxis, listOf, spread
from puregraph.ops.reduction.reference import fit, unbroadcast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import AnyArray
    from puregraph.core.rules import ArrayFunction

op(np.kron, np.cross, np.convolve, np.multiply.outer).declare(jvp=MULTILINEAR)


def arrayOf(x: AnyArray) -> AnyArray:
    """An operand that may have been a list or a number."""
    return x if isArray(x) else np.asarray(x)


def transposed(A: AnyArray) -> AnyArray:
    """A^T, of every matrix of a stack."""
    return A.swapaxes(-1, -2)


@op(np.matmul).multilinear
def matmulRule(g: AnyArray, y: AnyArray, arguments: tuple, options: dict, needs: tuple) -> tuple[AnyArray | None, ...]:
    """y = A B: dA = G B^T, dB = A^T G, for stacks of matrices too; a vector is a matrix of one row or column."""
    a, b = map(arrayOf, arguments)
    A = a if a.ndim > 1 else a.reshape(1, -1)
    B = b if b.ndim > 1 else b.reshape(-1, 1)
    shape = g.shape if b.ndim > 1 else (*g.shape, 1)
    G = g.reshape(shape if a.ndim > 1 else (*shape[:-1], 1, shape[-1]))
    return (
        unbroadcast(G @ transposed(B), A.shape).reshape(a.shape) if needs[0] else None,
        unbroadcast(transposed(A) @ G, B.shape).reshape(b.shape) if needs[1] else None,
    )


@op(np.tensordot).multilinear
def tensordotRule(g: AnyArray, y: AnyArray, a: AnyArray, b: AnyArray, axes: Any = 2) -> tuple[AnyArray, ...]:
    """The gradient of each operand: g contracted with the other operand over its free axes."""
    if isinstance(axes, int):
        axes = (range(a.ndim - axes, a.ndim), range(axes))
    first, second = ([int(i) % x.ndim for i in listOf(chosen)] for x, chosen in zip((a, b), map(tupled, axes)))
    freeA = [i for i in range(a.ndim) if i not in first]
    freeB = [i for i in range(b.ndim) if i not in second]
    ofA = freeA + [first[second.index(i)] for i in sorted(second)]
    ofB = [second[first.index(i)] for i in sorted(first)] + freeB
    ga = np.tensordot(g, b, (list(range(len(freeA), g.ndim)), freeB))
    gb = np.tensordot(a, g, (freeA, list(range(len(freeA)))))
    return ga.transpose([ofA.index(i) for i in range(a.ndim)]), gb.transpose([ofB.index(i) for i in range(b.ndim)])


def tupled(axes: Any) -> int | Sequence[int]:
    """Axes that may be a range."""
    return tuple(axes) if isinstance(axes, range) else axes


@op(np.dot).multilinear
def dotRule(g, y, a, b):
    """A product of numbers, of matrices, or a sum over the last axis of a and the last but one of b."""
    a, b = arrayOf(a), arrayOf(b)
    if not a.ndim or not b.ndim:
        return fit(g * b, a), fit(g * a, b)
    return tensordotRule(g, y, a, b, ([a.ndim - 1], [max(b.ndim - 2, 0)]))


@op(np.inner).multilinear
def innerRule(g, y, a, b):
    """A sum over the last axes."""
    a, b = arrayOf(a), arrayOf(b)
    if not a.ndim or not b.ndim:
        return fit(g * b, a), fit(g * a, b)
    return tensordotRule(g, y, a, b, ([a.ndim - 1], [b.ndim - 1]))


@op(np.vdot).multilinear
def vdotRule(g, y, a, b):
    """The sum of all products."""
    a, b = arrayOf(a), arrayOf(b)
    return g * b.reshape(a.shape), g * a.reshape(b.shape)


@op(np.outer).multilinear
def outerRule(g, y, a, b):
    """y_ij = a_i b_j: da = G b, db = a G."""
    a, b = arrayOf(a), arrayOf(b)
    return (g @ b.reshape(-1)).reshape(a.shape), (a.reshape(-1) @ g).reshape(b.shape)


def spelled(equation: str, xs: list[AnyArray]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with letters for the axes behind an ellipsis."""
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in equation]
    counts = [x.ndim - len(t.replace("...", "")) if "..." in t else 0 for t, x in zip(terms, xs)]
    hidden = "".join(spare[: max(counts)])
    terms = [t.replace("...", hidden[len(hidden) - n :]) for t, n in zip(terms, counts)]
    if not arrow:
        out = "..." + "".join(sorted(c for c in set(left) - set(",.") if left.count(c) == 1))
    return terms, out.replace("...", hidden)


@op(np.einsum).multilinear
def einsumRule(
    g: AnyArray, y: AnyArray, arguments: tuple, options: dict, needs: tuple
) -> tuple[AnyArray | None, ...] | None:
    """The gradient of each operand: the same contraction, with g in place of the operand."""
    equation, *operands = arguments
    if not isinstance(equation, str):
        raise AutoDiffException("the gradient of einsum needs the equation as text, as in einsum('ij,jk', a, b)")
    xs = [arrayOf(x) for x in operands]
    inputs, out = spelled(equation, xs)
    grads: list[Any] = [None]
    for i, (letters, x) in enumerate(zip(inputs, xs)):
        if not needs[i + 1]:
            grads.append(None)
            continue
        others = [(t, z) for j, (t, z) in enumerate(zip(inputs, xs)) if j != i]
        known = set(out).union(*[t for t, _ in others])
        distinct = "".join(dict.fromkeys(letters))
        target = "".join(c for c in distinct if c in known)
        part = np.einsum(",".join([out, *(t for t, _ in others)]) + "->" + target, g, *(z for _, z in others))
        part = part.reshape([part.shape[target.index(c)] if c in known else 1 for c in distinct])
        sizes = [x.shape[letters.index(c)] for c in distinct]
        part = unbroadcast(part, tuple([min(n, m) for n, m in zip(sizes, part.shape)]))
        grads.append(spreadOver(part, letters, x.shape))
    return tuple(grads)


@op(np.linalg.norm).vjp
def normRule(g, y, x, ord=None, axis=None):
    """y = sqrt sum x^2: dx = g x / y, and 0 where y is 0, as in torch; others are composed (`matrixfunctions`)."""
    isZero = np.equal(y, 0)
    return spread(np.where(isZero, 0, g / np.where(isZero, 1, y)), x, axis) * x


@op(np.linalg.norm).jvp
def length(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[AnyArray, AnyArray]:
    """The tangent of the Euclidean norm y: sum x t / y, and 0 where y is 0, as in the gradient."""
    axis, keepdims = alongAxis(values, options, 2)
    order = values[1] if len(values) > 1 else options.get("ord")
    isVector = isinstance(axis, int) or (axis is None and values[0].ndim == 1)
    if not (order is None or order == 2 and isVector):
        raise AutoDiffException(f"forward mode knows no tangent of numpy.linalg.norm with ord={order!r}")
    y = function(*values, **options)
    change = (values[0] * tangents[0]).sum(axis=axis, keepdims=keepdims)
    return y, np.where(y == 0, 0, change / np.where(y == 0, 1, y))


@op(np.linalg.inv).vjp
def invRule(g, y, a):
    """Y = A^-1: dA = -Y^T G Y^T."""
    return -(transposed(y) @ g @ transposed(y))


@op(np.linalg.inv).jvp
def inverted(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent of Y = A^-1, -Y t Y."""
    y = function(*values)
    return y, -(y @ tangents[0] @ y)


@op(np.linalg.solve).vjp
def solveRule(g, y, a, b):
    """A Y = B: dB = A^-T G, dA = -dB Y^T."""
    a, b = arrayOf(a), arrayOf(b)
    G, Y = (v if b.ndim > 1 else v.reshape((*v.shape, 1)) for v in (g, y))
    dB = np.linalg.solve(transposed(a), G)
    return unbroadcast(-(dB @ transposed(Y)), a.shape), unbroadcast(dB if b.ndim > 1 else dB.reshape(g.shape), b.shape)


@op(np.linalg.solve).jvp
def solved(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent of Y in A Y = B: the solution of A X = tb - ta Y."""
    a, b = values
    y = function(a, b)
    ta, tb = tangents
    rest = np.zeros_like(y) if tb is None else tb
    return y, function(a, rest if ta is None else rest - ta @ y)


@op(np.linalg.det).vjp
def detRule(g, y, a):
    """y = det A: dA = g y A^-T."""
    return (g * y).reshape((*y.shape, 1, 1)) * transposed(np.linalg.inv(a))


@op(np.linalg.det).jvp
def determinant(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent of y = det A, y trace(A^-1 t)."""
    y = function(*values)
    return y, y * np.trace(np.linalg.solve(values[0], tangents[0]), axis1=-2, axis2=-1)


@op(np.linalg.slogdet).vjp
def slogdetRule(g, y, a):
    """y = ln |det A|: dA = g A^-T; its sign is constant."""
    return None if g[1] is None else g[1].reshape((*y[1].shape, 1, 1)) * transposed(np.linalg.inv(a))
