"""Costs of margins, pairs, regions and variances beside PyTorch's, or beside their definition: 30 random settings each."""

import numpy as np
import pytest
from costpeers import REDUCTIONS, agrees, reducedBy, scores

from puregraph import (
    NLL,
    SVM,
    ArcFace,
    Contrastive,
    CosineEmbedding,
    Dice,
    GaussianNLL,
    InfoNCE,
    L1Hinge,
    Lovasz,
    LovaszHinge,
    MarginRanking,
    MultiLabelMargin,
    MultiLabelSoftMargin,
    MultiMargin,
    NTXent,
    Triplet,
    Tversky,
)

pytestmark = pytest.mark.peers


class Setting:
    """Random sizes, a reduction, sample weights, and class weights."""

    def __init__(self, number):
        import torch

        self.number, self.rng = number, np.random.default_rng(number)
        self.n = 0 if number == 11 else int(self.rng.integers(1, 7))
        self.size = int(self.rng.integers(1, 6))
        self.reduction = REDUCTIONS[number % 3]
        self.sampleWeight = self.rng.random(self.n) if self.rng.random() < 0.5 else None
        self.weights = self.rng.uniform(0.1, 3, self.size).tolist() if self.rng.random() < 0.5 else None
        self.weight = None if self.weights is None else torch.tensor(self.weights, dtype=torch.float64)
        if number == 17:
            self.sampleWeight = np.zeros(self.n)
        self.margin = float(self.rng.uniform(0.1, 1.5))

    def normal(self, *shape):
        """Normal values, some of them extreme in every fourth setting."""
        shape = shape or (self.n, self.size)
        return scores(self.rng, shape) if self.number % 4 == 3 else self.rng.normal(size=shape)

    def check(self, cost, terms, *arrays):
        """Compare a cost with its terms in torch."""

        def theirs(*tensors):
            return reducedBy(terms(*tensors[:-1]), self.reduction, tensors[-1])

        agrees(cost, theirs, [*arrays, self.sampleWeight], self.rng, self.number % 5 == 0)


def multiMargin(case):
    from torch.nn import functional as f

    p, labels = int(case.rng.integers(1, 3)), case.rng.integers(0, case.size, case.n)
    cost = MultiMargin(p, case.margin, case.weights, reduction=case.reduction)

    def terms(x, t):
        return f.multi_margin_loss(x, t, p=p, margin=case.margin, weight=case.weight, reduction="none")

    if case.n:  # torch refuses an empty batch
        case.check(cost, terms, case.normal(), labels)


def multiLabelMargin(case):
    from torch.nn import functional as f

    labels = np.argsort(case.rng.random((case.n, case.size)), axis=1)
    labels = np.where(np.arange(case.size) < case.rng.integers(0, case.size + 1, (case.n, 1)), labels, -1)
    cost = MultiLabelMargin(reduction=case.reduction)
    case.check(cost, lambda x, t: f.multilabel_margin_loss(x, t, reduction="none"), case.normal(), labels)


def multiLabelSoftMargin(case):
    from torch.nn import functional as f

    cost = MultiLabelSoftMargin(case.weights, reduction=case.reduction)
    x, t = scores(case.rng, (case.n, 2, case.size)), case.rng.random((case.n, 2, case.size))
    case.check(cost, lambda x, t: f.multilabel_soft_margin_loss(x, t, weight=case.weight, reduction="none"), x, t)


def marginRanking(case):
    from torch.nn import functional as f

    signs = 2.0 * case.rng.integers(0, 2, (case.n, case.size)) - 1
    cost = MarginRanking(case.margin, reduction=case.reduction)

    def terms(a, b, t):
        return f.margin_ranking_loss(a, b, t, margin=case.margin, reduction="none")

    case.check(cost, terms, case.normal(), case.normal(), signs)


def cosineEmbedding(case):
    from torch.nn import functional as f

    signs = 2 * case.rng.integers(0, 2, case.n) - 1
    margin = case.margin - 1
    cost = CosineEmbedding(margin, reduction=case.reduction)

    def terms(a, b, t):
        return f.cosine_embedding_loss(a, b, t, margin=margin, reduction="none")

    case.check(cost, terms, case.normal(), case.normal(), signs)


def contrastive(case):
    def terms(a, b, t):
        d = ((a - b) ** 2).sum(1)
        return 0.5 * (t * d + (1 - t) * (case.margin - (d + 1e-12).sqrt()).clamp_min(0) ** 2)

    cost = Contrastive(case.margin, reduction=case.reduction)
    case.check(cost, terms, case.normal(), case.normal(), case.rng.integers(0, 2, case.n).astype(float))


def triplet(case):
    from torch.nn import functional as f

    p, swap = int(case.rng.integers(1, 3)), bool(case.rng.random() < 0.5)
    cost = Triplet(case.margin, ("manhattan", "euclidean")[p - 1], swap, reduction=case.reduction)

    def terms(a, b, c):
        return f.triplet_margin_loss(a, b, c, margin=case.margin, p=p, swap=swap, reduction="none")

    case.check(cost, terms, case.normal(), case.normal(), case.normal())


def tripletOfDistance(case):
    from torch.nn import functional as f

    kind = ("squared", "cosine")[case.number % 2]

    def distance(a, b):
        if kind == "squared":
            return ((a - b + 1e-6) ** 2).sum(-1)
        return 1 - (a * b).sum(-1) / (((a * a).sum(-1) + 1e-12) * ((b * b).sum(-1) + 1e-12)).sqrt()

    def terms(a, b, c):
        return f.triplet_margin_with_distance_loss(
            a, b, c, distance_function=distance, margin=case.margin, reduction="none"
        )

    case.check(Triplet(case.margin, kind, reduction=case.reduction), terms, *[case.normal() for _ in range(3)])


def gaussian(case):
    from torch.nn import functional as f

    full, last = bool(case.rng.random() < 0.5), 1 if case.rng.random() < 0.5 else case.size
    cost = GaussianNLL(full, reduction=case.reduction)

    def terms(x, v, t):
        return f.gaussian_nll_loss(x, t, v, full=full, reduction="none")

    case.check(cost, terms, case.normal(), case.rng.random((case.n, last)) + 0.1, case.normal())


def svm(case):
    import torch

    mode = ("l1", "l2")[case.number % 2]

    def terms(x, t):
        signs = 2 * torch.nn.functional.one_hot(t, case.size) - 1
        return (1 - signs * x).clamp_min(0) ** (1 if mode == "l1" else 2)

    cost = SVM(mode, reduction=case.reduction)
    case.check(cost, terms, case.normal(), case.rng.integers(0, case.size, case.n))


def l1Hinge(case):
    import torch

    def terms(a, b, t):
        d = (a - b).abs()
        return torch.where(t[:, None] > 0, d, (1 - d).clamp_min(0))

    labels = case.rng.integers(0, 2, case.n)
    case.check(L1Hinge(reduction=case.reduction), terms, case.normal(), case.normal(), labels)


def infoNCE(case):
    import torch
    from torch.nn import functional as f

    both = bool(case.rng.random() < 0.5)

    def terms(a, b):
        s = f.normalize(a, dim=1) @ f.normalize(b, dim=1).T / case.margin
        labels = torch.arange(len(a))
        one = f.cross_entropy(s, labels, reduction="none")
        return 0.5 * (one + f.cross_entropy(s.T, labels, reduction="none")) if both else one

    if case.n:
        cost = InfoNCE(case.margin, both, reduction=case.reduction)
        case.check(cost, terms, 3 + case.normal(), 3 + case.normal())


def ntXent(case):
    import torch
    from torch.nn import functional as f

    def terms(a, b):
        n, z = len(a), f.normalize(torch.cat([a, b]), dim=1)
        s = (z @ z.T / case.margin).masked_fill(torch.eye(2 * n, dtype=bool), -np.inf)
        each = f.cross_entropy(s, torch.arange(2 * n).roll(n), reduction="none")
        return 0.5 * (each[:n] + each[n:])

    if case.n:
        case.check(NTXent(case.margin, reduction=case.reduction), terms, 3 + case.normal(), 3 + case.normal())


def tversky(case):
    alpha, beta, smooth = case.rng.random(3)
    kind = ("sigmoid", "softmax")[case.number % 2]
    shape = (case.n, case.size, 3, 2)

    def terms(x, t):
        p = x.sigmoid() if kind == "sigmoid" else x.softmax(1)
        h, f, m = ((y).sum((2, 3)) for y in (p * t, p * (1 - t), (1 - p) * t))
        return 1 - (h + smooth) / (h + alpha * f + beta * m + smooth)

    cost = Tversky(alpha, beta, smooth, kind, reduction=case.reduction)
    case.check(cost, terms, case.normal(*shape), case.rng.random(shape))


def dice(case):
    def terms(x, t):
        p = x.sigmoid()
        return 1 - (2 * (p * t).sum(1) + case.margin) / (p.sum(1) + t.sum(1) + case.margin)

    case.check(Dice(case.margin, reduction=case.reduction), terms, case.normal(), case.rng.random((case.n, case.size)))


def jaccard(errors, inside):
    """The extension by its definition: the set of the k largest errors grows, and each step adds to the loss."""
    import torch

    order = torch.argsort(errors, descending=True)
    total, before = torch.zeros((), dtype=errors.dtype), 0.0
    for k in range(1, len(order) + 1):
        wrong = set(order[:k].tolist())
        there = {i for i in range(len(order)) if inside[i] > 0}
        predicted = there ^ wrong
        union = len(there | predicted)
        loss = 1 - len(there & predicted) / union if union else 0.0
        total = total + errors[order[k - 1]] * (loss - before)
        before = loss
    return total


def lovaszHinge(case):
    import torch

    def terms(x, t):
        rows = [jaccard((1 - (2 * b - 1) * a).clamp_min(0), b) for a, b in zip(x, t)]
        return torch.stack(rows) if rows else x.sum(1)

    case.check(
        LovaszHinge(reduction=case.reduction), terms, case.normal(), case.rng.integers(0, 2, (case.n, case.size))
    )


def lovasz(case):
    import torch

    labels = case.rng.integers(0, case.size, (case.n, 4))

    def terms(x, t):
        rows = []
        for a, b in zip(x.softmax(1), t):
            kinds = b.unique().tolist()
            rows.append(sum(jaccard(((b == c).double() - a[c]).abs(), b == c) for c in kinds) / len(kinds))
        return torch.stack(rows) if rows else x.sum((1, 2))

    case.check(Lovasz(reduction=case.reduction), terms, case.normal(case.n, case.size, 4), labels)


CASES = (
    *(multiMargin, multiLabelMargin, multiLabelSoftMargin, marginRanking, cosineEmbedding, contrastive, triplet),
    *(tripletOfDistance, gaussian, svm, l1Hinge, infoNCE, ntXent, tversky, dice, lovaszHinge, lovasz),
)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_cost_is_that_of_torch_in_thirty_settings(make):
    for number in range(30):
        make(Setting(number))


@pytest.mark.parametrize("number", range(30))
def test_arcface_is_its_definition_of_angles(number):
    """Columns of any length, and angles that are beyond pi with the margin."""
    import torch

    case = Setting(number)
    insize, classes = (int(k) for k in case.rng.integers((2, 1), (6, 7)))
    scale, margin = float(case.rng.uniform(1, 64)), case.margin
    cost = ArcFace(insize, classes, margin=margin, scale=scale, reduction=case.reduction)
    cost.calcMode("float64")
    cost.W.data = case.normal(insize, classes) * 10 ** case.rng.uniform(-3, 1, classes)
    W = torch.tensor(np.array(cost.W.data), requires_grad=True)

    def terms(x, labels):
        cosines = (x / x.norm(dim=1, keepdim=True)) @ (W / W.norm(dim=0, keepdim=True))
        isRight = torch.nn.functional.one_hot(labels, classes) > 0
        right = cosines[isRight]
        angles = right.acos() + margin
        wider = torch.where(angles < np.pi, angles.cos(), right - margin * np.sin(margin))
        return -(scale * torch.where(isRight, wider[:, None], cosines)).log_softmax(1)[isRight]

    case.check(cost, terms, case.normal(case.n, insize), case.rng.integers(0, classes, case.n))
    np.testing.assert_allclose(cost.W.grad, W.grad.numpy(), rtol=1e-9, atol=1e-9 * max(1, abs(W.grad.numpy()).max()))


def test_nll_of_no_class_weight_is_refused():
    with pytest.raises(ValueError, match="NLL: wanted weights of at least 0"):
        NLL(weights=[0, 0])
