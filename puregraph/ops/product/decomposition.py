"""Contractions: sums of products along named axes, as reductions, matrix products and transposed views."""

from __future__ import annotations

from math import prod
from string import ascii_letters
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.tracer import areRecorded
from puregraph.ops.ir.strides import broadcastShapes
from puregraph.ops.operation import op
from puregraph.ops.product.einsum import ontoDiagonal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import AnyArray, Axes
    from puregraph.core.shape import Shape

LETTERS = ascii_letters
BATCH = 2  # most batch axes of a native product


@op(np.matmul).decompose
def matmul(a: AnyArray, b: AnyArray) -> AnyArray:
    """A product of vectors and matrices; surplus batch axes are merged into one."""
    if not areRecorded(a, b) or a.ndim * b.ndim == 0:
        return NotImplemented
    if a.ndim > 1 < b.ndim:
        lead = broadcastShapes(a.shape[:-2], b.shape[:-2])
        if prod(b.shape[:-2]) == 1 or sum(n > 1 for n in lead) <= BATCH or 0 in lead:
            return NotImplemented
        a, b = (np.broadcast_to(x, (*lead, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in (a, b))
        return np.matmul(a, b).reshape(*lead, a.shape[-2], b.shape[-1])
    if b.ndim > 1:
        return np.matmul(np.expand_dims(a, 0), b)[..., 0, :]
    return added(a * b, -1) if a.shape[-1] == b.shape[0] else NotImplemented


def added(x: AnyArray, axis: Axes = None) -> AnyArray:
    """A sum in the dtype of its elements, like a matrix product; np.sum would widen narrow integers."""
    isWide = x.dtype.kind in "fc" or x.dtype.itemsize == 8
    return x.sum(axis=axis) if isWide else x.sum(axis=axis, dtype=x.dtype)


@op(np.einsum).decompose
def einsum(equation: Any, *xs: Any, optimize: Any = False) -> Any:
    """Contract two operands at a time, in the cheapest order."""
    if not isinstance(equation, str) or "." in equation or "->" not in equation or not areRecorded(*xs):
        return NotImplemented
    if any(x.size == 0 or x.dtype != xs[0].dtype for x in xs):
        return NotImplemented
    left, _, output = equation.replace(" ", "").partition("->")
    terms = [diagonals(x, letters) for x, letters in zip(xs, left.split(","), strict=True)]
    for pair in pathOf(equation, xs):
        second, first = (terms.pop(i) for i in sorted(pair, reverse=True))
        kept = {*output, *"".join(letters for _, letters in terms)}
        terms.append(together(first, second, kept, output))
    ((x, letters),) = terms
    x, letters = without(x, letters, set(output))
    return np.transpose(x, [letters.index(letter) for letter in output])


def pathOf(equation: str, xs: tuple[AnyArray, ...]) -> list[Shape]:
    """The two operands that each step contracts."""
    if len(xs) < 3:
        return [(0, 1)] * (len(xs) - 1)
    _, *path = np.einsum_path(equation, *[np.broadcast_to(0.0, x.shape) for x in xs], optimize="greedy")[0]
    return [pair for step in path for pair in pairs(step)]


def pairs(group: Any) -> list[Any]:
    """Pairwise contractions for a step of several operands."""
    first, *others = sorted(group, reverse=True)
    return [(first, others[0]), *[(i, LAST) for i in others[1:]]] if others else []


LAST = -1  # the result of the previous pair


def diagonals(x: AnyArray, letters: str) -> tuple[AnyArray, str]:
    """Take diagonals until each letter occurs once."""
    for letter in letters:
        if letters.count(letter) > 1:
            i, j = letters.index(letter), letters.rindex(letter)
            x, letters = np.diagonal(x, 0, i, j), letters[:i] + letters[i + 1 : j] + letters[j + 1 :] + letter
            return diagonals(x, letters)
    return x, letters


def without(x: AnyArray, letters: str, kept: set[str]) -> tuple[AnyArray, str]:
    """Sum over the letters that no other operand has."""
    lone = tuple([i for i, letter in enumerate(letters) if letter not in kept])
    return (added(x, lone), "".join(filter(kept.__contains__, letters))) if lone else (x, letters)


def together(first: tuple[Any, str], second: tuple[Any, str], kept: set[str], output: str) -> tuple[Any, str]:
    """The product of two operands, summed over the letters that no other operand has."""
    (x, aLetters), (y, bLetters) = first, second
    (a, aLetters), (b, bLetters) = without(x, aLetters, {*kept, *bLetters}), without(y, bLetters, {*kept, *aLetters})
    if output and output[-1] in aLetters and output[-1] not in bLetters:
        (a, aLetters), (b, bLetters) = (b, bLetters), (a, aLetters)
    both = [x for x in aLetters if x in bLetters]
    batch, summed = [x for x in both if x in kept], [x for x in both if x not in kept]
    rows, columns = [x for x in aLetters if x not in both], [x for x in bLetters if x not in both]
    letters = "".join([*batch, *rows, *columns])
    if summed and rows and columns:
        return product(grouped(a, aLetters, batch, rows, summed), grouped(b, bLetters, batch, summed, columns)), letters
    spread = [*batch, *rows, *columns, *summed]
    y = seen(a, aLetters, spread) * seen(b, bLetters, spread)
    return (added(y, tuple(range(len(letters), y.ndim))) if summed else y), letters


def grouped(x: AnyArray, letters: str, *groups: list[str]) -> tuple[Any, list[tuple[int, ...]]]:
    """The axes in groups, and the sizes of each group."""
    order = [letters.index(letter) for group in groups for letter in group]
    sizes = [tuple([x.shape[letters.index(letter)] for letter in group]) for group in groups]
    return np.transpose(x, order), sizes


def product(left: Any, right: Any) -> AnyArray:
    """A matrix product of operands with axes (batch, rows, summed) and (batch, summed, columns)."""
    (a, (batch, rows, summed)), (b, (_, _, columns)) = left, right
    a, b = a.reshape(*batch, prod(rows), prod(summed)), b.reshape(*batch, prod(summed), prod(columns))
    return np.matmul(a, b).reshape(*batch, *rows, *columns)


def seen(x: Any, letters: str, wanted: list[str]) -> Any:
    """x with its axes in this order; missing axes have length one."""
    x = np.transpose(x, [letters.index(letter) for letter in wanted if letter in letters])
    sizes = iter(x.shape)
    return x.reshape([next(sizes) if letter in letters else 1 for letter in wanted])


# Functions that are an einsum   -------- -------- -------- -------- -------- -------- -------- -----------------


@op(np.tensordot).decompose
def tensordot(a: AnyArray, b: AnyArray, axes: Any = 2) -> AnyArray:
    """Sums of products over given axes of both operands."""
    if isinstance(axes, int):
        axes = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    left, right = [list(axis) if isinstance(axis, (tuple, list)) else [axis] for axis in axes]
    aLetters, bLetters = list(LETTERS[: a.ndim]), list(LETTERS[a.ndim : a.ndim + b.ndim])
    for i, j in zip(left, right, strict=True):
        bLetters[j] = aLetters[i]
    output = [x for x in aLetters if x not in bLetters] + [x for x in bLetters if x not in aLetters]
    return einsum(f"{''.join(aLetters)},{''.join(bLetters)}->{''.join(output)}", a, b)


@op(np.dot).decompose
def dot(a: AnyArray, b: AnyArray) -> AnyArray:
    """The last axis of a is contracted with the last but one of b."""
    if not areRecorded(a, b) or a.ndim * b.ndim == 0:
        return NotImplemented
    return np.matmul(a, b) if b.ndim < 3 else tensordot(a, b, (-1, -2))


@op(np.inner).decompose
def inner(a: Any, b: Any) -> AnyArray:
    """The last axis of a is contracted with the last of b."""
    return tensordot(a, b, (-1, -1)) if areRecorded(a, b) and a.ndim * b.ndim else NotImplemented


@op(np.outer).decompose
def outer(a: AnyArray, b: AnyArray) -> AnyArray:
    """Each element of a times each of b."""
    return a.reshape(-1, 1) * b.reshape(1, -1) if areRecorded(a, b) else NotImplemented


@op(np.vdot).decompose
def vdot(a: AnyArray, b: AnyArray) -> AnyArray:
    """The sum of the products of all elements of a and b."""
    return added(a.reshape(-1) * b.reshape(-1)) if areRecorded(a, b) else NotImplemented


@op(np.trace).decompose
def trace(x: AnyArray, offset: int = 0, axis1: int = 0, axis2: int = 1) -> AnyArray:
    """The sum of a diagonal."""
    return np.diagonal(x, offset, axis1, axis2).sum(axis=-1) if x.dtype.kind == "f" else NotImplemented


@op(ontoDiagonal).decompose
def diagonal(values: AnyArray, letters: str, shape: Sequence[int]) -> AnyArray:
    """Values at indices that agree for equal letters, zero elsewhere."""
    grid = np.indices(shape, sparse=True)
    isOn: Any = np.ones((1,) * len(shape), bool)
    for i, letter in enumerate(letters):
        first = letters.index(letter)
        if first != i:
            isOn, values = isOn & (grid[i] == grid[first]), np.expand_dims(values, i)
    return np.where(isOn, np.broadcast_to(values, shape), values.dtype.type(0))
