"""Products of matrices and vectors, and the determinant."""

from typing import Any

import numpy as np

from puregraph.core.arguments import Flag, Text
from puregraph.core.base.widen import asResultType, widened
from puregraph.core.errors import ArgumentError, need
from puregraph.core.hostrule import onHost
from puregraph.core.shape import broadcast, product
from puregraph.graph.module import Module
from puregraph.ops.product.einsum import contract, spread
from puregraph.ops.product.groupedproduct import groupedProduct, groupedProductGrad
from puregraph.ops.product.pairwisedot import pairDots, pairDotsGrad
from puregraph.ops.reduction.cumulate import cumulate
from puregraph.ops.reduction.reference import unbroadcast


class MatMul(Module):
    """y = A B, A being a or its transpose (transpA), B being b or its transpose (transpB)

    Leading axes broadcast as in numpy; the last two are transposed. A vector a counts as one row, a vector b as one
    column, and y lacks that axis.

    Shapes    A (..., i, j) or (j,), B (..., j, k) or (j,) -> y (..., i, k) without the axes that a vector lacks
    Source    Giles 2008, An Extended Collection of Matrix Derivative Results, section 2.2.1; ONNX operator MatMul
    Raises    ShapeError if one is a number, or a vector to transpose, their j differ, or leading axes do not broadcast

    >>> MatMul()(np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 3.0]]))
    array([1., 6.])
    """

    reads = ("a", "b")
    keepsDtype = True

    def __init__(self, transpA: Flag = False, transpB: Flag = False, name=None):
        super().__init__(name)
        self.transpA, self.transpB = transpA, transpB

    def dataShapeFrom(self, a, b):
        for x, turn in ((a, self.transpA), (b, self.transpB)):
            wanted, hint = "vectors or matrices (..., i, j), (..., j, k)", "a vector has no transpose"
            need(len(x) >= 2 or len(x) == 1 and not turn, wanted, [a, b], hint if len(x) else "")
        rows, columns = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
        i, j = rows[:-3:-1] if self.transpA else rows[-2:]
        inner, k = columns[:-3:-1] if self.transpB else columns[-2:]
        need(j == inner, f"(..., {i}, {j}) times (..., {j}, {k})", [a, b], f"the inner sizes {j} and {inner} differ")
        lead = broadcast(rows[:-2], columns[:-2])
        return (*lead, *((i,) if len(a) > 1 else ()), *((k,) if len(b) > 1 else ()))

    def updateData(self, a, b):
        a, b = asResultType(a, b)
        if a.ndim == 1 or b.ndim == 1:
            y = oriented(asRow(a), self.transpA) @ oriented(asColumn(b), self.transpB)
            return y.reshape(self.dataShapeFrom(a.shape, b.shape))
        return oriented(a, self.transpA) @ oriented(b, self.transpB)

    def updateGrad(self, grad, a, b, y, needs):
        if a.ndim == 1 or b.ndim == 1:
            rows, columns = asRow(a), asColumn(b)
            lead = broadcast(rows.shape[:-2], columns.shape[:-2])
            i, k = rows.shape[-1 if self.transpA else -2], columns.shape[-2 if self.transpB else -1]
            ga, gb = self.updateGrad(grad.reshape(*lead, i, k), rows, columns, y, needs)
            return ga if ga is None else ga.reshape(a.shape), gb if gb is None else gb.reshape(b.shape)
        ga = gb = None
        if needs[0]:
            ga = unbroadcast(oriented(grad @ oriented(b, not self.transpB), self.transpA), a.shape)
        if needs[1]:
            gb = unbroadcast(oriented(oriented(a, not self.transpA) @ grad, self.transpB), b.shape)
        return ga, gb

    def flopsFrom(self, a, b):
        return 2 * a[-2 if self.transpA else -1] * product(self.dataShapeFrom(a, b))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (3, 4)]
        yield cls(), [(3,), (3,)]
        yield cls(), [(3,), (2, 3, 4)]
        yield cls(), [(2, 1, 2, 3), (3,)]
        yield cls(transpA=True), [(2, 5, 3, 2), (5, 3, 4)]
        yield cls(transpB=True), [(2, 1, 3, 2), (4, 5, 2)]
        yield cls(transpA=True, transpB=True), [(3, 2), (2, 4, 3)]


class GroupedMatMul(Module):
    """y[b] = x[b] W[g], g being the group of block b: `counts` has the number of blocks of each group, in order

    Blocks beyond all groups belong to the last one. Experts of a mixture are such groups.

    Shapes    x (blocks, m, k), W (groups, k, n), counts (groups,) of integers -> y (blocks, m, n)
    Source    Gale et al. 2022, arXiv:2211.15841, section 5
    Raises    ShapeError if x or W is no stack of matrices, their k differ, or there is no count for each group

    >>> GroupedMatMul().dataShapeFrom((5, 2, 3), (4, 3, 6), (4,))        # five blocks of two rows, four groups
    (5, 2, 6)
    """

    reads = ("x", "W", "counts")
    indices = ("counts",)
    needsOneFloat = True

    def dataShapeFrom(self, x, W, counts):
        need(len(x) == len(W) == 3 and x[2] == W[1], "x (blocks, m, k), W (groups, k, n)", [x, W])
        need(W[0] and counts == W[:1], f"counts of shape {W[:1]}, for at least one group", counts)
        return (*x[:2], W[2])

    def sample(self, rng, x, W, counts):
        """Return floats, and counts of up to all blocks together."""
        most = x[0] // counts[0]
        return [*(rng.standard_normal(shape) for shape in (x, W)), rng.integers(0, most + 1, counts)]

    def updateData(self, x, W, counts):
        return groupedProduct(x, W, firstOf(counts))

    def updateGrad(self, grad, x, W, counts, y, needs):
        first = firstOf(counts)
        dx = groupedProduct(grad, W.swapaxes(-1, -2), first) if needs[0] else None
        return dx, groupedProductGrad(grad, x, first) if needs[1] else None, None

    def flopsFrom(self, x, W, counts):
        return 2 * product(x) * W[2]

    @classmethod
    def examples(cls):
        yield cls(), [(7, 2, 3), (3, 3, 4), (3,)]
        yield cls(), [(2, 3, 5), (1, 5, 2), (1,)]


def firstOf(counts):
    """The number of the first block of each group."""
    return cumulate(counts.astype(np.int64), 0, "sum", True)


def asRow(a):
    """a, or a vector as a matrix of one row."""
    return a[None] if a.ndim == 1 else a


def asColumn(b):
    """b, or a vector as a matrix of one column."""
    return b[:, None] if b.ndim == 1 else b


def oriented(x, transposed):
    """x, or x with its last two axes transposed."""
    return x.swapaxes(-1, -2) if transposed else x


class PairDot(Module):
    """y[n, p] = <x_i[n], x_j[n]> for all pairs i > j in the order (1, 0), (2, 0), (2, 1), (3, 0), ...

    Shapes    f times x_i (n, d) -> y (n, f (f - 1) / 2)
    Source    Rendle 2010, Factorization Machines, eq. 1; Naumov et al. 2019, arXiv:1906.00091, section 2.1.4
    Raises    ShapeError if there are fewer than two inputs, or their shapes are not all (n, d)
    """

    reads = ("xs",)
    keepsDtype = True

    def dataShapeFrom(self, *xs):
        need(len(xs) >= 2, "at least two inputs", list(xs))
        need(len(xs[0]) == 2 and all(x == xs[0] for x in xs), "inputs of one shape (n, d)", list(xs))
        return (xs[0][0], len(xs) * (len(xs) - 1) // 2)

    def updateData(self, *xs):
        return pairDots(*asResultType(*xs))

    def updateGrad(self, grad, *values, needs):
        *xs, _ = values
        grads = pairDotsGrad(grad, *xs)
        return tuple([grads[:, i] if wanted else None for i, wanted in enumerate(needs)])

    def flopsFrom(self, *xs):
        return 2 * xs[0][1] * product(self.dataShapeFrom(*xs))

    @classmethod
    def examples(cls):
        yield cls(), [(3, 2)] * 2
        yield cls(), [(2, 3)] * 4


class Einsum(Module):
    """y[k] = sum over i of x1[i1] x2[i2] ..., where letters name axes: Einsum("ij,jk->ik") is the matrix product

    A letter that the output lacks is summed over; one that an input has twice is its diagonal. Without `->`
    the output has, in alphabetical order, the letters that occur only once. The gradient of an input is itself such a
    sum, of the output's gradient with all other inputs, broadcast along axes that only this input has.

    Shapes    one for each group of letters, with one size for each letter -> the sizes of the letters after `->`
    Source    the NumPy reference, numpy.einsum; Laue, Mitterreiter, Giesen 2020, A Simple and Efficient Tensor Calculus
    Raises    ArgumentError for an invalid equation; ShapeError if the inputs do not fit it
    """

    reads = ("xs",)
    keepsDtype = True

    def __init__(self, equation: Text, name=None):
        super().__init__(name)
        self.inputLetters, self.output = parts(equation)

    def sizes(self, shapes):
        """The size of each letter."""
        groups = self.inputLetters
        wanted = ", ".join(f"({', '.join(letters)})" for letters in groups)
        fits = len(shapes) == len(groups) and all(len(s) == len(letters) for s, letters in zip(shapes, groups))
        need(fits, f"inputs of shapes {wanted}", list(shapes), f"the equation has {len(groups)} inputs")
        sizeOf: dict[str, Any] = {}
        for shape, letters in zip(shapes, groups):
            for size, letter in zip(shape, letters):
                need(sizeOf.setdefault(letter, size) == size, f"one size for {letter} in {wanted}", list(shapes))
        return sizeOf

    def dataShapeFrom(self, *xs):
        sizes = self.sizes(xs)
        return tuple(sizes[letter] for letter in self.output)

    def updateData(self, *xs):
        return contract(f"{','.join(self.inputLetters)}->{self.output}", *xs)

    def updateGrad(self, grad, *values, needs):
        return tuple([self.gradient(grad, values[:-1], i) if wanted else None for i, wanted in enumerate(needs)])

    def gradient(self, grad, xs, i):
        """The gradient of input i: first of its distinct letters, then spread onto the diagonal of repeated letters."""
        inputLetters, x = self.inputLetters[i], xs[i]
        others = [self.output, *self.inputLetters[:i], *self.inputLetters[i + 1 :]]
        distinct = dict.fromkeys(inputLetters)
        shared = [letter for letter in distinct if any(letter in letters for letters in others)]
        dx = contract(f"{','.join(others)}->{''.join(shared)}", grad, *xs[:i], *xs[i + 1 :])
        shape = [x.shape[inputLetters.index(letter)] if letter in shared else 1 for letter in distinct]
        return spread(dx.reshape(shape), inputLetters, x.shape)

    def flopsFrom(self, *xs):
        return len(self.inputLetters) * product(self.sizes(xs).values())

    @classmethod
    def examples(cls):
        yield cls("ij,jk->ik"), [(2, 3), (3, 4)]
        yield cls("ij->i"), [(2, 3)]
        yield cls("ii->i"), [(3, 3)]
        yield cls("bij,bjk,k"), [(2, 3, 4), (2, 4, 2), (2,)]
        yield cls("iji,j->"), [(3, 2, 3), (2,)]
        yield cls("ij->ji"), [(2, 3)]


def parts(equation):
    """The letters of each input, and of the output.

    Raises    ArgumentError for anything else than letters, commas and one arrow
    """
    text = equation.replace(" ", "") if isinstance(equation, str) else ""
    left, arrow, output = text.partition("->")
    groups = left.split(",")
    letters = "".join(groups)
    if not arrow:
        output = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    plain = text and text.isascii() and all(not group or group.isalpha() for group in (*groups, output))
    if not plain or len(set(output)) < len(output) or not set(output) <= set(letters):
        raise ArgumentError(
            f"Einsum: wanted letters for the axes of each input, as in 'ij,jk->ik', after -> each at most once "
            f"and of those before, got {equation!r}"
        )
    return groups, output


class Determinant(Module):
    """y = det x; its gradient is the matrix of cofactors, also where x is singular.

    Shapes    x (..., n, n) -> y (...)
    Source    ONNX operator Det; the gradient: Giles 2008, section 2.2.4
    Raises    ShapeError if x is no square matrix
    """

    reads = ("x",)
    needsFloats = True

    def dataShapeFrom(self, x):
        need(len(x) >= 2 and x[-1] == x[-2], "square matrices", x)
        return x[:-2]

    @onHost
    def updateData(self, x):
        return determinants(x)

    @onHost
    def updateGrad(self, grad, x, y):
        return grad[..., None, None] * cofactors(x)

    @classmethod
    def examples(cls):
        yield cls(), [(3, 3)]
        yield cls(), [(2, 2, 2)]


@widened
def determinants(x):
    """The determinant of each matrix."""
    return np.asarray(np.linalg.det(x), x.dtype)


@widened
def cofactors(x):
    """The cofactors of each matrix U S V: det(U V) U T V, T the products of all singular values but one."""
    u, s, v = np.linalg.svd(x)
    others = np.where(np.eye(s.shape[-1], dtype=bool), s.dtype.type(1), s[..., None, :]).prod(-1)
    sign = np.linalg.det(u) * np.linalg.det(v)
    return np.asarray(sign[..., None, None] * ((u * others[..., None, :]) @ v), x.dtype)
