"""The derivatives of factorizations of matrices, of stacks of them, too.

Source    Giles 2008, An extended collection of matrix derivative results for forward and reverse mode automatic
          differentiation; Murray 2016, Differentiation of the Cholesky decomposition; Townsend 2016, Differentiating
          the singular value decomposition; Walter, Lehmann 2018, Algorithmic differentiation of linear algebra
          functions, 3.3; Golub, Pereyra 1973, The differentiation of pseudo-inverses, eq. 4.12
"""

from __future__ import annotations

import numpy as np

from puregraph.core.errors import AutoDiffException
from puregraph.ops.operation import op
from puregraph.ops.product.derivatives import transposed as t
from puregraph.ops.tangents import refuse


def diagonalOf(a):
    """The diagonals of matrices."""
    return np.diagonal(a, 0, -2, -1)


def ontoDiagonal(v):
    """Matrices with these diagonals."""
    return np.expand_dims(v, -1) * np.eye(v.shape[-1], dtype=v.dtype)


def symmetric(a):
    """(A + A^T) / 2"""
    return (a + t(a)) / 2


def lower(a):
    """The lower triangle, with half of the diagonal."""
    return np.tril(a) - ontoDiagonal(diagonalOf(a)) / 2


def gaps(v):
    """F_ij = 1 / (v_j - v_i), and 0 on the diagonal."""
    isSame = np.eye(v.shape[-1], dtype=bool)
    change = np.expand_dims(v, -2) - np.expand_dims(v, -1)
    return np.where(isSame, 0, 1 / np.where(isSame, 1, change))


def zeroIfNone(g, y):
    """A gradient, or zeros in the shape of y for None."""
    return np.zeros_like(y) if g is None else g


@op(np.linalg.cholesky).vjp
def choleskyRule(g, y, a):
    """A = L L^T: dA = sym(L^-T P(L^T G) L^-1), where P takes the lower triangle with half of its diagonal."""
    middle = lower(t(y) @ np.tril(g))
    return symmetric(np.linalg.solve(t(y), t(np.linalg.solve(t(y), t(middle)))))


@op(np.linalg.cholesky).jvp
def rooted(function, values, tangents, options):
    """The tangent L P(L^-1 t L^-T), of the symmetric part of t."""
    refuse(function, {k: v for k, v in options.items() if v}, "upper")
    y = function(*values, **options)
    inner = np.linalg.solve(y, t(np.linalg.solve(y, symmetric(tangents[0]))))
    return y, y @ lower(inner)


@op(np.linalg.eigh).vjp
def eighRule(g, y, a):
    """A = V diag(w) V^T: dA = sym(V (diag(gw) + F * (V^T gV)) V^T), F_ij = 1 / (w_j - w_i)."""
    w, v = y
    middle = 0 if g[1] is None else gaps(w) * (t(v) @ g[1])
    return symmetric(v @ (middle + ontoDiagonal(zeroIfNone(g[0], w))) @ t(v))


@op(np.linalg.eigh).jvp
def eigenTangents(function, values, tangents, options):
    """dw = diag(V^T t V), dV = V (F * (V^T t V)), of the symmetric part of t."""
    w, v = function(*values, **options)
    middle = t(v) @ symmetric(tangents[0]) @ v
    return (w, v), (diagonalOf(middle), v @ (gaps(w) * middle))


@op(np.linalg.eigvalsh).composed
def eigenvalues(a):
    """The eigenvalues w of a = V diag(w) V^T."""
    return np.linalg.eigh(a)[0]


def thin(u, vh, s):
    """Raise    AutoDiffException for singular vectors beyond the shorter side, which are not unique."""
    if u.shape[-1] != s.shape[-1] or vh.shape[-2] != s.shape[-1]:
        raise AutoDiffException("the gradient of svd is known with full_matrices=False only: the others are not unique")


@op(np.linalg.svd).vjp
def svdRule(g, y, a, full_matrices=True, compute_uv=True):
    """A = U S V^T: dA = U (E S + S H + diag(gs)) V^T and what leaves the spaces of U and of V.

    E = F * (U^T gU - gU^T U), H = F * (V^T gV - gV^T V), F_ij = 1 / (s_j^2 - s_i^2).
    """
    if not isinstance(y, tuple):
        u, s, vh = np.linalg.svd(a, full_matrices=False)
        return u @ (np.expand_dims(g, -1) * vh)
    u, s, vh = y
    gu, gs, gvh = (zeroIfNone(part, whose) for part, whose in zip(g, y))
    if g[0] is not None or g[2] is not None:
        thin(u, vh, s)
    k = s.shape[-1]
    u, gu, vh, gvh = u[..., :k], gu[..., :k], vh[..., :k, :], gvh[..., :k, :]
    v, gv, factors, row, column = t(vh), t(gvh), gaps(s * s), np.expand_dims(s, -2), np.expand_dims(s, -1)
    ofU, ofV = t(u) @ gu, t(v) @ gv
    middle = factors * (ofU - t(ofU)) * row + column * (factors * (ofV - t(ofV))) + ontoDiagonal(gs)
    da = u @ middle @ vh
    if a.shape[-2] > k and g[0] is not None:
        da = da + ((gu - u @ ofU) / row) @ vh
    if a.shape[-1] > k and g[2] is not None:
        da = da + (u / row) @ t(gv - v @ ofV)
    return da


@op(np.linalg.svd).jvp
def singularTangents(function, values, tangents, options):
    """ds = diag(P), dU = U (F * (P S + S P^T)) and the rest, dV likewise, where P = U^T t V."""
    y, change = function(*values, **options), tangents[0]
    u, s, vh = y if isinstance(y, tuple) else np.linalg.svd(values[0], full_matrices=False)
    if isinstance(y, tuple):
        thin(u, vh, s)
    v, factors, row, column = t(vh), gaps(s * s), np.expand_dims(s, -2), np.expand_dims(s, -1)
    p = t(u) @ change @ v
    if not isinstance(y, tuple):
        return y, diagonalOf(p)
    du = u @ (factors * (p * row + column * t(p))) + (change @ v - u @ p) / row
    dv = v @ (factors * (column * p + t(p) * row)) + (t(change) @ u - v @ t(p)) / row
    return tuple(y), (du, diagonalOf(p), t(dv))


@op(np.linalg.svdvals).composed
def singularValues(x):
    """The singular values s of x = U diag(s) V^T."""
    return np.linalg.svd(x, compute_uv=False)


@op(np.linalg.qr).vjp
def qrRule(g, y, a):
    """A = Q R: dA = (gQ + Q C(M)) R^-T, M = R gR^T - gQ^T Q, C copies the lower triangle above the diagonal."""
    if not isinstance(y, tuple) or a.shape[-2] < a.shape[-1]:
        raise AutoDiffException("the gradient of qr needs matrices with at least as many rows as columns")
    q, r = y
    gq, gr = zeroIfNone(g[0], q), zeroIfNone(g[1], r)
    m = r @ t(gr) - t(gq) @ q
    copied = np.tril(m) + t(np.tril(m, -1))
    return t(np.linalg.solve(r, t(gq + q @ copied)))


@op(np.linalg.qr).jvp
def triangularTangents(function, values, tangents, options):
    """dQ = t R^-1 - Q (Q^T t R^-1 - W), dR = (Q^T t R^-1 - W) R, W antisymmetric from the strict lower triangle."""
    y = function(*values, **options)
    if not isinstance(y, tuple) or values[0].shape[-2] < values[0].shape[-1]:
        raise AutoDiffException("the tangent of qr is known of matrices with at least as many rows as columns")
    q, r = y
    ratio = t(np.linalg.solve(t(r), t(tangents[0])))
    x = t(q) @ ratio
    strict = np.tril(x, -1)
    rest = x - (strict - t(strict))
    return (q, r), (ratio - q @ rest, rest @ r)


@op(np.linalg.pinv).vjp
def pinvRule(g, y, a):
    """Y = A^+: dA = -Y^T G Y^T + (I - A Y) G^T Y Y^T + Y^T Y G^T (I - Y A), of constant rank."""
    left, right = np.eye(a.shape[-2], dtype=a.dtype) - a @ y, np.eye(a.shape[-1], dtype=a.dtype) - y @ a
    return -(t(y) @ g @ t(y)) + left @ t(g) @ y @ t(y) + t(y) @ y @ t(g) @ right


@op(np.linalg.pinv).jvp
def pseudoinverted(function, values, tangents, options):
    """The tangent -Y t Y + Y Y^T t^T (I - A Y) + (I - Y A) t^T Y^T Y, of constant rank."""
    y, a, change = function(*values, **options), values[0], tangents[0]
    left, right = np.eye(a.shape[-2], dtype=a.dtype) - a @ y, np.eye(a.shape[-1], dtype=a.dtype) - y @ a
    return y, -(y @ change @ y) + y @ t(y) @ t(change) @ left + right @ t(change) @ t(y) @ y
