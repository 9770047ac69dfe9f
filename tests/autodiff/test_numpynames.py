"""Functions of numpy on Variables and in forward mode: values of numpy, derivatives of both orders."""

import numpy as np
import pytest
from directions import dataOf, verify

from puregraph.autodiff import AutoDiffException, Variable, grad
from puregraph.autodiff.derivatives.declarations import vjpOf
from puregraph.autodiff.derivatives.ufuncs import pullbackOf
from puregraph.ops.operation import declared

RNG = np.random.default_rng(3)
A, B, C = (
    RNG.permutation(15).reshape(3, 5) / 10 + 0.21,
    RNG.permutation(15).reshape(3, 5) / 9 - 0.7,
    RNG.random((2, 3, 4)),
)
S, V, W = RNG.normal(size=(4, 4)), RNG.normal(size=5), RNG.normal(size=3)
TALL, WIDE = RNG.normal(size=(5, 3)), RNG.normal(size=(2, 3, 5))
N = A.copy()
N[0, 2] = N[1, 1] = np.nan
M = RNG.random((3, 5)) > 0.5
L = np.linalg


def positive(a):
    return a @ np.swapaxes(a, -1, -2) + 2 * np.eye(a.shape[-2])


def symmetric(a):
    return a + np.swapaxes(a, -1, -2)


def joined(*parts):
    """Results of one number, whatever their signs are."""
    return sum((p * p * p).sum() if p.ndim > 1 else (p * np.arange(1, p.size + 1)).sum() for p in parts)


CASES = {
    "append": (lambda a, b: np.append(a, b, 0), A, B),
    "append flat": (lambda a, v: np.append(a, v), A, V),
    "insert": (lambda a, v: np.insert(a, [1, 3], v, 0), A, V),
    "insert columns": (lambda a, w: np.insert(a, 2, w, axis=1), A, W),
    "block": (lambda a, b: np.block([[a, b], [b, np.ones((3, 5))]]), A, B),
    "select": (lambda a, b: np.select([M, ~M & (A > 0.8)], [a, b], 0.5), A, B),
    "choose": (lambda a, b: np.choose(M.astype(int), [a, b]), A, B),
    "meshgrid": (lambda v, w: sum(x * (i + 1) for i, x in enumerate(np.meshgrid(v, w))), V, W),
    "broadcast_arrays": (lambda v, a: np.broadcast_arrays(v, a)[0] * a, V, A),
    "extract": (lambda a: np.extract(M, a), A),
    "diagflat": (lambda a: np.diagflat(a, 1), W),
    "partition": (lambda a: np.partition(a, 2, 1), A),
    "unstack": (lambda a: np.unstack(a, axis=1)[2], A),
    "matrix_transpose": (lambda a: np.matrix_transpose(a), C),
    "linalg.matrix_transpose": (lambda a: L.matrix_transpose(a), C),
    "linalg.diagonal": (lambda a: L.diagonal(a), C),
    "ptp": (lambda a: np.ptp(a, axis=1, keepdims=True), A),
    "quantile": (lambda a: np.quantile(a, [0.1, 0.5, 1], axis=1), A),
    "quantile of axes": (lambda a: np.quantile(a, 0.3, axis=(0, 2), keepdims=True), C),
    "percentile": (lambda a: np.percentile(a, 37), A),
    "median": (lambda a: np.median(a, axis=0), C),
    "nanquantile": (lambda a: np.nanquantile(N + a, [0.2, 0.7], axis=1), B),
    "nanpercentile": (lambda a: np.nanpercentile(N + a, 20, axis=0), B),
    "nanmedian": (lambda a: np.nanmedian(N + a), B),
    **{
        f"nan{name}": (lambda a, name=name: vars(np)[f"nan{name}"](N + a, axis=1), B)
        for name in "sum prod max min mean var std cumsum cumprod".split()
    },
    "cumprod": (lambda a: np.cumprod(a, axis=1), B),
    "cumulative_sum": (lambda a: np.cumulative_sum(a, axis=1, include_initial=True), A),
    "cumulative_prod": (lambda a: np.cumulative_prod(a, axis=0), A),
    "cov": (lambda a, b: np.cov(a, b), A, B),
    "cov of columns": (lambda a: np.cov(a, rowvar=False, ddof=0), A),
    "cov with weights": (lambda a: np.cov(a, fweights=[1, 3, 2, 1, 4], aweights=np.abs(V)), A),
    "cov with frequencies": (lambda a, b: np.cov(a, b, fweights=np.array([1, 3, 2, 1, 4]), ddof=2), A, B),
    "cov of weights": (lambda a, v: np.cov(a, None, True, False, None, None, v * v), A, V),
    "corrcoef": (lambda a: np.corrcoef(a), A),
    "trapezoid": (lambda a, x: np.trapezoid(a, x), A, np.sort(V)),
    "gradient": (lambda a: np.gradient(a, 0.5)[1] + np.gradient(a, axis=0), A),
    "interp": (lambda x, f: np.interp(x, np.arange(5.0), f), 1.3 * A + 0.1, V),
    "interp at points": (lambda p: np.interp(A, p, V), np.arange(5) / 2.0),
    "unwrap": (lambda a: np.unwrap(a), 9 * A),
    "ediff1d": (lambda a: np.ediff1d(a, 1.0), A),
    "kron": (lambda a, s: np.kron(a, s), A, TALL),
    "kron of other ranks": (lambda a, s: np.kron(a, s), W, TALL),
    "cross": (lambda a, b: np.cross(a, b, axis=0), A, B),
    "linalg.cross": (lambda a, b: L.cross(a, b), W, TALL),
    **{
        f"convolve {mode}": (lambda v, w, mode=mode: np.convolve(v, w, mode), V, W)
        for mode in ("full", "same", "valid")
    },
    **{
        f"correlate {mode}": (lambda v, w, mode=mode: np.correlate(v, w, mode), V, W)
        for mode in ("full", "same", "valid")
    },
    "vecdot": (lambda a, b: np.vecdot(a, b), A, B),
    "linalg.vecdot": (lambda a, b: L.vecdot(a, b, axis=0), A, B),
    "matvec": (lambda a, v: np.matvec(a, v), A, V),
    "vecmat": (lambda w, a: np.vecmat(w, a), W, A),
    "linalg.matmul": (lambda a, b: L.matmul(a, b), A, TALL),
    "linalg.outer": (lambda v, w: L.outer(v, w), V, W),
    "linalg.tensordot": (lambda a, b: L.tensordot(a, b, axes=2), A, B),
    "linalg.trace": (lambda a: L.trace(a, offset=1), C),
    "linalg.multi_dot": (lambda a, b, c: L.multi_dot([a, b, c]), A, TALL, A),
    "linalg.matrix_power": (lambda s: L.matrix_power(s, 5), S / 2),
    "linalg.matrix_power of an inverse": (lambda s: L.matrix_power(s, -2), S),
    "conjugate": (lambda a: np.conjugate(a), A),
    "imag": (lambda a: np.imag(a), A),
    "fix": (lambda a: np.fix(9 * a), A),
    "modf": (lambda a: np.modf(a)[0], 5 * A),
    "divmod": (lambda a, b: sum(np.divmod(a, b)), A, B + 3),
    "ldexp": (lambda a: np.ldexp(a, 3), A),
    "polyval": (lambda p, x: np.polyval(p, x), W, A),
    "polyadd": (lambda p, q: np.polyadd(p, q), W, V),
    "polysub": (lambda p, q: np.polysub(p, q), W, V),
    "polymul": (lambda p, q: np.polymul(p, q), W, V),
    "polyder": (lambda p: np.polyder(p, 2), V),
    "polyint": (lambda p: np.polyint(p, 2, [1.0, 2.0]), V),
    "vander": (lambda v: np.vander(v, 4), V),
    "linspace": (lambda a, b: np.linspace(a, b, 4, axis=1), V, V[::-1] * 2),
    "logspace": (lambda a: np.logspace(a, 1.5, 3, endpoint=False), W),
    "linalg.cholesky": (lambda a: L.cholesky(positive(a)), C),
    "linalg.eigh": (lambda a: joined(*L.eigh(symmetric(a))[:1], L.eigh(symmetric(a))[1] ** 2), S),
    "linalg.eigvalsh": (lambda a: L.eigvalsh(symmetric(a)), S),
    "linalg.svd": (lambda a: joined(*(x * x for x in L.svd(a, full_matrices=False))), TALL),
    "linalg.svd of wide": (lambda a: joined(*(x * x for x in L.svd(a, full_matrices=False))), WIDE),
    "linalg.svd of values": (lambda a: L.svd(a, compute_uv=False), WIDE),
    "linalg.svdvals": (lambda a: L.svdvals(a), TALL),
    "linalg.qr": (lambda a: joined(*L.qr(a)), TALL),
    "linalg.pinv": (lambda a: L.pinv(a), TALL),
    "linalg.pinv of wide": (lambda a: L.pinv(a), WIDE),
    "linalg.lstsq": (lambda a, b: L.lstsq(a, b)[0], TALL, V),
    "linalg.lstsq left": (lambda a, b: L.lstsq(a, b)[1], TALL, TALL[:, :2] ** 2),
    **{
        f"linalg.norm {p} of vectors": (lambda a, p=p: L.norm(a, p, axis=1, keepdims=True), B)
        for p in (0, 1, 3, 2.5, -1, np.inf, -np.inf)
    },
    **{
        f"linalg.norm {p}": (lambda a, p=p: L.norm(a, p, axis=(1, 2)), WIDE)
        for p in (*(1, -1, 2, -2), "nuc", np.inf, -np.inf)
    },
    "linalg.vector_norm": (lambda a: L.vector_norm(a, ord=3), A),
    "linalg.matrix_norm": (lambda a: L.matrix_norm(a, ord=1), WIDE),
    "linalg.cond": (lambda a: L.cond(a), TALL),
    "linalg.cond 1": (lambda a: L.cond(a, 1), S),
    "linalg.tensorinv": (lambda a: L.tensorinv(a.reshape(4, 2, 2), 1), S),
    "linalg.tensorsolve": (lambda a, b: L.tensorsolve(a.reshape(2, 2, 4), b), S, S[:2, :2]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values_and_both_derivatives(case):
    f, *xs = case
    if f(*xs).size:
        wanted = f(*xs)
        np.testing.assert_allclose(dataOf(f(*[Variable(x, requires_grad=True) for x in xs])), wanted, 1e-10, 1e-12)
        verify(np.random.default_rng(1), f, *xs, near=2e-5)


@pytest.mark.parametrize("n", [3, 4, 7])
def test_differences_that_leave_nothing_have_a_gradient_of_zeros(n):
    v = Variable(A, requires_grad=True)
    y = np.diff(v, n, axis=0)
    assert y.shape == (0, 5)
    np.testing.assert_array_equal(dataOf(grad(y, v, np.zeros((0, 5)))[0]), np.zeros((3, 5)))


def test_what_is_not_unique_is_refused():
    v = Variable(TALL, requires_grad=True)
    u, _, _ = L.svd(v)
    with pytest.raises(AutoDiffException, match="full_matrices=False"):
        grad(u, v, np.ones((5, 5)))
    with pytest.raises(AutoDiffException, match="at least as many rows as columns"):
        grad(L.qr(np.transpose(v))[1], v, np.ones((3, 5)))


NAMES = [(space, name) for space in (np, np.linalg, np.fft) for name in dir(space) if not name.startswith("_")]


def isOverridable(function):
    """Whether a function of numpy hands its call to what stands for an array."""
    return isinstance(function, np.ufunc) or type(function) is type(np.sum)


def test_most_functions_of_numpy_have_gradients():
    functions = {f"{space.__name__}.{name}": getattr(space, name) for space, name in NAMES}
    shared = {name: f for name, f in functions.items() if isOverridable(f)}
    known = [n for n, f in shared.items() if vjpOf(f) or pullbackOf(f) or declared(f, "composed")]
    assert len(shared) >= 344 and len(known) >= 230, f"{len(known)} of {len(shared)}"
