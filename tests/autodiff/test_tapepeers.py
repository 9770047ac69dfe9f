"""The gradients of functions of numpy on the tape, against PyTorch."""

import numpy as np
import pytest
from tapechecks import recording as recording
from tapechecks import some

from puregraph.autodiff import Variable, grad

PEERS = {
    "relu": (lambda x: np.maximum(x, 0 * x), lambda t, x: t.maximum(x, 0 * x)),
    "minimum": (lambda x: np.minimum(x, x[::-1]), lambda t, x: t.minimum(x, x.flip(0))),
    "abs": (np.abs, lambda t, x: x.abs()),
    "clip": (lambda x: np.clip(x, -1, 1), lambda t, x: x.clamp(-1, 1)),
    "clip by values": (
        lambda x: np.clip(x, x[:1] - 1, x[1:2]),
        lambda t, x: t.clamp(x, x[:1] - 1, x[1:2]),
    ),
    "amax": (lambda x: np.max(x, axis=1), lambda t, x: x.amax(1)),
    "amin": (lambda x: np.min(x, axis=(0, 1)), lambda t, x: x.amin((0, 1))),
    "max of all": (np.max, lambda t, x: x.max()),
    "prod": (lambda x: np.prod(x, axis=1), lambda t, x: x.prod(1)),
    "prod of all": (np.prod, lambda t, x: x.prod()),
    "std": (lambda x: np.std(x, axis=0, ddof=1), lambda t, x: x.std(0)),
    "var": (lambda x: np.var(x), lambda t, x: x.var(correction=0)),
    "norm": (lambda x: np.linalg.norm(x, axis=0), lambda t, x: x.norm(dim=0)),
    "square": (lambda x: x**2, lambda t, x: x**2),
    "third power": (lambda x: x**3, lambda t, x: x**3),
    "sign": (np.sign, lambda t, x: x.sign()),
    "hypot": (lambda x: np.hypot(x + 3, x), lambda t, x: t.hypot(x + 3, x)),
    "logaddexp": (lambda x: np.logaddexp(x, 2 * x), lambda t, x: t.logaddexp(x, 2 * x)),
    "remainder": (lambda x: np.remainder(x, 0.7), lambda t, x: t.remainder(x, 0.7)),
    "where": (lambda x: np.where(x > 0, x * x, -x), lambda t, x: t.where(x > 0, x * x, -x)),
    "sort": (
        lambda x: np.sort(x, 0) * np.arange(x.shape[0])[:, None],
        lambda t, x: x.sort(dim=0, stable=True)[0] * t.arange(x.shape[0])[:, None],
    ),
    "index": (lambda x: x[[0, 0, 1], [1, 1, 0]], lambda t, x: x[[0, 0, 1], [1, 1, 0]]),
    "softmax": (
        lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True),
        lambda t, x: x.exp() / x.exp().sum(1, keepdim=True),
    ),
    "einsum": (lambda x: np.einsum("ij,kj->ik", x, x), lambda t, x: t.einsum("ij,kj->ik", x, x)),
    "gram": (
        lambda x: np.linalg.det(x @ x.T + np.eye(3)),
        lambda t, x: t.linalg.det(x @ x.T + t.eye(3, dtype=x.dtype)),
    ),
}
POINTS = {
    "smooth": some(3, 4),
    "ties": np.array([[1.0, 1.0, -1.0, 0.0], [0.0, 1.0, 1.0, -1.0], [-1.0, 0.0, 0.0, 0.0]]),
}


@pytest.mark.peers
@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("name", PEERS)
def test_as_torch(name, points):
    import torch

    ours, theirs = PEERS[name]
    x = Variable(POINTS[points], requires_grad=True)
    t = torch.tensor(POINTS[points], requires_grad=True)
    y, z = ours(x), theirs(torch, t)
    assert y.shape == tuple(z.shape)
    seed = some(*y.shape, seed=5)
    (first,) = grad(y, x, seed, create_graph=True)
    (second,) = torch.autograd.grad(z, t, torch.tensor(seed), create_graph=True)
    assert np.allclose(first.data, second.detach().numpy(), rtol=1e-12, atol=1e-12)
    if points == "ties" and name in ("std", "prod", "prod of all", "norm"):
        return  # there the second derivative does not exist
    turn = some(3, 4, seed=6)
    (ours,) = grad(first, x, turn, allow_unused=True) if first.requires_grad else (None,)
    (theirs,) = (
        torch.autograd.grad(second, t, torch.tensor(turn), allow_unused=True) if second.requires_grad else (None,)
    )
    zero = np.zeros((3, 4))
    assert np.allclose(
        zero if ours is None else ours, zero if theirs is None else theirs.numpy(force=True), rtol=1e-10, atol=1e-10
    )
