"""Costs of one formula beside PyTorch's, or beside their definition where it has none: 30 random settings each."""

import numpy as np
import pytest
from costpeers import REDUCTIONS, agrees, reducedBy, scores, shapeOf

from puregraph import (
    BCE,
    MSE,
    Abs,
    Focal,
    Hinge,
    HingeEmbedding,
    Huber,
    KLDivergence,
    LogCosh,
    Poisson,
    Quantile,
    SmoothL1,
    SoftMargin,
    SquaredHinge,
    Tweedie,
)

pytestmark = pytest.mark.peers


def signs(rng, shape):
    """Targets of -1 and 1."""
    return 2.0 * rng.integers(0, 2, shape) - 1


def shares(rng, shape):
    """Targets from 0 to 1, some of them 0 or 1."""
    return np.clip(rng.normal(0.5, 0.5, shape), 0, 1)


def whole(rng, shape):
    """Counts as floats, a half in place of none: torch's gradient of a target of 0 is nan."""
    return np.maximum(rng.poisson(2.0, shape), 0.5)


def settings():
    """By name: what makes a cost of random options, its terms in torch, and its targets."""
    from torch.nn import functional as f

    def focal(x, t, gamma, alpha):
        p = x.sigmoid()
        near = p * t + (1 - p) * (1 - t)
        share = 1.0 if alpha is None else alpha * t + (1 - alpha) * (1 - t)
        entropy = f.binary_cross_entropy_with_logits(x, t, reduction="none")
        return share * (1 - near) ** gamma * entropy

    def tweedie(x, t, power):
        p = power
        return ((2 - p) * x).exp() / (2 - p) - t * ((1 - p) * x).exp() / (1 - p)

    def quantile(x, t, q):
        import torch

        return torch.maximum(q * (t - x), (q - 1) * (t - x))

    def logCosh(x, t):
        import torch

        d = (x - t).abs()
        return d + f.softplus(-2 * d, threshold=1e9) - torch.log(torch.tensor(2.0, dtype=d.dtype))

    none = {"reduction": "none"}
    normal = np.random.Generator.normal
    plain = lambda rng, shape: normal(rng, size=shape)  # noqa: E731
    drawn = lambda rng: float(rng.uniform(0.1, 0.9))  # noqa: E731
    return {
        "MSE": (lambda rng: ({}, MSE), lambda x, t: f.mse_loss(x, t, **none), plain),
        "Abs": (lambda rng: ({}, Abs), lambda x, t: f.l1_loss(x, t, **none), plain),
        "SmoothL1": (lambda rng: ({"beta": drawn(rng)}, SmoothL1), lambda x, t, beta: f.smooth_l1_loss(x, t, beta=beta, **none), plain),
        "Huber": (lambda rng: ({"delta": drawn(rng)}, Huber), lambda x, t, delta: f.huber_loss(x, t, delta=delta, **none), plain),
        "BCE": (lambda rng: ({}, BCE), lambda x, t: f.binary_cross_entropy_with_logits(x, t, **none), shares),
        "Focal": (
            lambda rng: ({"gamma": float(rng.integers(0, 4)), "alpha": drawn(rng) if rng.random() < 0.5 else None}, Focal),
            focal,
            shares,
        ),
        "SoftMargin": (lambda rng: ({}, SoftMargin), lambda x, t: f.softplus(-t * x, threshold=1e9), signs),
        "Hinge": (lambda rng: ({}, Hinge), lambda x, t: (1 - t * x).clamp_min(0), signs),
        "SquaredHinge": (lambda rng: ({}, SquaredHinge), lambda x, t: (1 - t * x).clamp_min(0) ** 2, signs),
        "HingeEmbedding": (
            lambda rng: ({"margin": drawn(rng)}, HingeEmbedding),
            lambda x, t, margin: f.hinge_embedding_loss(x, t, margin=margin, **none),
            signs,
        ),
        "LogCosh": (lambda rng: ({}, LogCosh), logCosh, plain),
        "Quantile": (lambda rng: ({"q": drawn(rng)}, Quantile), quantile, plain),
        "Poisson": (
            lambda rng: ({"full": rng.random() < 0.5}, Poisson),
            lambda x, t, full: f.poisson_nll_loss(x, t, full=full, **none),
            whole,
        ),
        "Tweedie": (lambda rng: ({"power": 1 + drawn(rng)}, Tweedie), tweedie, lambda rng, shape: rng.gamma(1.0, size=shape)),
        "KLDivergence": (
            lambda rng: ({"logs": rng.random() < 0.5}, KLDivergence),
            lambda x, t, logs: f.kl_div(x, t, log_target=logs, **none),
            lambda rng, shape: rng.random(shape) + 0.01,
        ),
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    "MSE Abs SmoothL1 Huber BCE Focal SoftMargin Hinge SquaredHinge HingeEmbedding LogCosh Quantile Poisson Tweedie "
    "KLDivergence".split(),
)
def test_a_cost_is_that_of_torch_in_thirty_settings(name):
    make, theirs, targets = settings()[name]
    for number in range(30):
        rng = np.random.default_rng(number)
        shape = shapeOf(rng)
        options, kind = make(rng)
        reduction = REDUCTIONS[number % 3]
        x = scores(rng, shape) if name not in ("Tweedie", "Poisson") else rng.normal(size=shape)
        weight = rng.random(shape[:1]) if rng.random() < 0.5 else None
        agrees(
            kind(**options, reduction=reduction),
            lambda x, t, w: reducedBy(theirs(x, t, **options), reduction, w),  # noqa: B023
            [x, targets(rng, shape), weight],
            rng,
            compiled=number % 5 == 0,
        )


@pytest.mark.parametrize("name", ["MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "SoftMarginLoss", "PoissonNLLLoss", "HingeEmbeddingLoss"])  # fmt: skip
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reductions_are_those_of_torch(rng, name, reduction):
    from torch import nn

    kind = {
        "MSELoss": MSE,
        "L1Loss": Abs,
        "SmoothL1Loss": SmoothL1,
        "HuberLoss": Huber,
        "SoftMarginLoss": SoftMargin,
        "KLDivLoss": KLDivergence,
        "PoissonNLLLoss": Poisson,
        "HingeEmbeddingLoss": HingeEmbedding,
    }[name]
    target = (
        np.where(rng.random((5, 3)) < 0.5, 1.0, -1.0) if "Margin" in name or "Hinge" in name else rng.random((5, 3))
    )
    target = target.astype(int) if name == "SoftMarginLoss" else target
    agrees(kind(reduction=reduction), getattr(nn, name)(reduction=reduction), [rng.normal(size=(5, 3)), target], rng)


@pytest.mark.parametrize("logs", [False, True])
def test_the_divergence_of_samples_is_torchs_batchmean(rng, logs):
    import torch
    from torch import nn

    x, t = torch.log_softmax(torch.tensor(rng.normal(size=(5, 4, 3))), 1).numpy(), rng.random((5, 4, 3)) + 0.1
    agrees(
        KLDivergence(logs=logs, reduction="batchmean"),
        nn.KLDivLoss(reduction="batchmean", log_target=logs),
        [x, t],
        rng,
    )
    scored = KLDivergence(scores=True, logs=logs, reduction="batchmean")
    raw = rng.normal(size=(5, 4, 3))
    agrees(
        scored, lambda x, t: nn.KLDivLoss(reduction="batchmean", log_target=logs)(x.log_softmax(1), t), [raw, t], rng
    )


def test_a_target_of_zero_costs_no_divergence():
    cost = KLDivergence(reduction="none")
    np.testing.assert_array_equal(cost(np.array([[-1.0, -2.0]]), np.array([[0.0, 1.0]])), [[0.0, 2.0]])


def test_poisson_of_means_is_torchs(rng):
    from torch import nn

    x, t = rng.random((4, 3)) + 0.1, rng.poisson(3.0, (4, 3)).astype(float)
    for full in (False, True):
        agrees(Poisson(logs=False, full=full), nn.PoissonNLLLoss(log_input=False, full=full), [x, t], rng)
