"""Functions of numpy on Variables: values and gradients next to PyTorch's."""

import numpy as np
import pytest
from directions import dataOf
from test_numpynames import TALL, WIDE, A, B, C, L, M, S, W, positive, symmetric

from puregraph.autodiff import Variable, grad

pytestmark = pytest.mark.peers
torch = pytest.importorskip("torch")

TORCH = {
    "cholesky": (L.cholesky, torch.linalg.cholesky, positive(S)),
    "eigvalsh": (L.eigvalsh, torch.linalg.eigvalsh, symmetric(S)),
    "svdvals": (L.svdvals, torch.linalg.svdvals, WIDE),
    "pinv": (L.pinv, torch.linalg.pinv, TALL),
    "matrix_power": (lambda a: L.matrix_power(a, 3), lambda a: torch.linalg.matrix_power(a, 3), S),
    "median": (lambda a: np.quantile(a, 0.5, axis=1), lambda a: torch.quantile(a, 0.5, 1), C.reshape(4, 6)),
    "quantile": (lambda a: np.quantile(a, 0.3, axis=0), lambda a: torch.quantile(a, 0.3, 0), A),
    "cov": (np.cov, torch.cov, A),
    "corrcoef": (np.corrcoef, torch.corrcoef, A),
    "cumprod": (lambda a: np.cumprod(a, 1), lambda a: torch.cumprod(a, 1), np.where(M, A, 0)),
    "nuclear norm": (lambda a: L.norm(a, "nuc"), lambda a: torch.linalg.matrix_norm(a, "nuc"), TALL),
    "spectral norm": (lambda a: L.norm(a, 2), lambda a: torch.linalg.matrix_norm(a, 2), TALL),
    "norm of order 3": (lambda a: L.norm(a, 3, 1), lambda a: torch.linalg.vector_norm(a, 3, 1), B),
    "kron": (lambda a: np.kron(a, W), lambda a: torch.kron(a, torch.tensor(W)), A),
    "trapezoid": (np.trapezoid, torch.trapezoid, A),
    "qr": (lambda a: np.abs(L.qr(a)[1]), lambda a: torch.linalg.qr(a)[1].abs(), TALL),
    "cond": (L.cond, torch.linalg.cond, S),
}


@pytest.mark.parametrize(("ours", "theirs", "x"), TORCH.values(), ids=TORCH)
def test_gradients_are_those_of_torch(ours, theirs, x):
    a, v = torch.tensor(x, requires_grad=True), Variable(x, requires_grad=True)
    wanted, y = theirs(a), ours(v)
    np.testing.assert_allclose(dataOf(y), wanted.detach().numpy(), 1e-10, 1e-12)
    g = np.random.default_rng(0).standard_normal(wanted.shape)
    wanted.backward(torch.tensor(g))
    np.testing.assert_allclose(dataOf(grad(y, v, g)[0]), a.grad.numpy(), 1e-9, 1e-10)
