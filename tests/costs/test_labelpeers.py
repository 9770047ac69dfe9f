"""Costs of labels and of probabilities beside PyTorch's: 30 random settings each, weights and ignored labels included."""

import numpy as np
import pytest
from costpeers import REDUCTIONS, agrees, reducedBy, scores

from puregraph import NLL, CrossEntropy, FocalCrossEntropy, SoftCrossEntropy

pytestmark = pytest.mark.peers


class LabelSetting:
    """Random scores, labels, class weights, ignored labels and sample weights."""

    def __init__(self, number):
        self.rng = rng = np.random.default_rng(number)
        self.classes = int(rng.integers(1, 6))
        spatial = rng.integers(1, 4, rng.integers(0, 3)).tolist()
        n = 0 if number == 7 else int(rng.integers(1, 7))
        self.x = scores(rng, (n, self.classes, *spatial))
        self.labels = rng.integers(0, self.classes, (n, *spatial))
        self.ignoreIndex = [None, -1, 0, -100][number % 4]
        if self.ignoreIndex is not None:
            self.labels = np.where(
                rng.random(self.labels.shape) < (1 if number == 13 else 0.3), self.ignoreIndex, self.labels
            )
        self.weights = rng.uniform(0.1, 3, self.classes).tolist() if rng.random() < 0.5 else None
        self.reduction = REDUCTIONS[number % 3]
        self.sampleWeight = rng.random(n) if rng.random() < 0.5 else None
        if number == 17:
            self.sampleWeight = np.zeros(n)
        self.smoothing = float(rng.random()) if rng.random() < 0.5 else 0.0
        self.isCompiled = number % 5 == 0

    @property
    def torchOptions(self):
        """The same options as torch calls them."""
        import torch

        weight = None if self.weights is None else torch.tensor(self.weights, dtype=torch.float64)
        return {"weight": weight, "ignore_index": -1000 if self.ignoreIndex is None else self.ignoreIndex}

    @property
    def divisor(self):
        """The weight of all labels that count."""
        counted = self.labels != self.ignoreIndex
        weights = np.ones(self.classes) if self.weights is None else np.array(self.weights)
        total = float((weights[np.where(counted, self.labels, 0)] * counted).sum())
        return total or 1.0

    def check(self, cost, terms):
        """Compare a cost with terms of torch, a function of scores and labels."""

        def theirs(x, labels, w):
            return reducedBy(terms(x, labels), self.reduction, w, self.divisor)

        agrees(cost, theirs, [self.x, self.labels, self.sampleWeight], self.rng, self.isCompiled)


@pytest.mark.parametrize("number", range(30))
def test_negative_log_likelihoods_are_those_of_torch(number):
    from torch.nn import functional as f

    case = LabelSetting(number)
    cost = NLL(case.weights, case.ignoreIndex, reduction=case.reduction)
    case.check(cost, lambda x, t: f.nll_loss(x, t, reduction="none", **case.torchOptions))


@pytest.mark.parametrize("number", range(30))
def test_reduced_cross_entropies_are_those_of_torch(number):
    from torch.nn import functional as f

    case = LabelSetting(number)
    cost = CrossEntropy(case.weights, case.ignoreIndex, case.smoothing, reduction=case.reduction)
    options = {"label_smoothing": case.smoothing, "reduction": "none", **case.torchOptions}
    case.check(cost, lambda x, t: f.cross_entropy(x, t, **options))


@pytest.mark.parametrize("number", range(30))
def test_focal_cross_entropies_are_their_definition(number):
    from torch.nn import functional as f

    case = LabelSetting(number)
    gamma = float(case.rng.integers(1, 4))
    case.x = case.rng.normal(size=case.x.shape)

    def terms(x, t):
        logs = x.log_softmax(1)
        share = f.nll_loss((1 - logs.exp()) ** gamma * logs, t, reduction="none", **case.torchOptions)
        return share

    cost = FocalCrossEntropy(gamma, case.weights, case.ignoreIndex, reduction=case.reduction)
    if case.classes > 1:  # one class has probability 1, and a power of 0
        case.check(cost, terms)


@pytest.mark.parametrize("number", range(30))
def test_cross_entropies_of_probabilities_are_those_of_torch(number):
    from torch.nn import functional as f

    case = LabelSetting(number)
    rng, axis = case.rng, 1 if case.rng.random() < 0.5 else -1
    target = rng.dirichlet(np.ones(case.classes), case.labels.shape)  # classes last
    weight = case.torchOptions["weight"]
    x = np.moveaxis(case.x, 1, -1)

    def theirs(x, t, w):
        x, t = x.movedim(axis, 1), t.movedim(axis, 1)
        terms = f.cross_entropy(x, t, weight=weight, label_smoothing=case.smoothing, reduction="none")
        return reducedBy(terms, case.reduction, w)

    if axis == 1:
        x, target = case.x, np.ascontiguousarray(np.moveaxis(target, -1, 1))
    cost = SoftCrossEntropy(case.weights, case.smoothing, axis, reduction=case.reduction)
    agrees(cost, theirs, [x, target, case.sampleWeight], rng, case.isCompiled)


def test_labels_as_probabilities_cost_the_same(rng):
    x, labels = rng.normal(size=(6, 4)), rng.integers(0, 4, 6)
    soft = SoftCrossEntropy(smoothing=0.1)(x, np.eye(4)[labels])
    np.testing.assert_allclose(soft, CrossEntropy(smoothing=0.1)(x, labels), rtol=1e-14)


def test_a_cost_of_a_focal_entropy_with_gamma_0_is_the_cross_entropy(rng):
    x, labels = rng.normal(size=(6, 4)), rng.integers(0, 4, 6)
    np.testing.assert_allclose(FocalCrossEntropy(0)(x, labels), CrossEntropy()(x, labels), rtol=1e-14)


def test_an_ignored_label_has_no_slope_for_any_gamma(rng):
    x = rng.standard_normal((4, 3))
    for gamma in (0, 0.3, 0.5, 1.0, 2.0):
        cost = FocalCrossEntropy(gamma=gamma, ignoreIndex=-1)
        cost(x, np.array([0, -1, 2, 1]))
        cost.backward()
        assert np.isfinite(cost.grad[0]).all() and not cost.grad[0][1].any() and cost.grad[0][0].all()
