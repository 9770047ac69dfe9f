"""AdaptiveSoftmax: beside PyTorch's, and as a distribution over all classes."""

import numpy as np
import pytest
from costpeers import near, reducedBy, scores

from puregraph import AdaptiveSoftmax, ArgumentError
from puregraph.compile import Program
from puregraph.graph import Graph, Input


def drawn(rng, **options):
    """A cost of random sizes, in float64."""
    insize, clusters = int(rng.integers(4, 9)), int(rng.integers(1, 3))
    classes = int(rng.integers(clusters + 1, 12))
    cutoffs = np.sort(rng.permutation(np.arange(1, classes))[:clusters]).tolist()
    cost = AdaptiveSoftmax(insize, classes, cutoffs, factor=2, **options)
    cost.calcMode(np.float64)
    for p in cost.params.values():
        p.data = rng.normal(size=p.shape)
    return cost


def theirs(cost):
    """The module of torch with the same parameters, and a function from its gradients to ours."""
    import torch

    insize = cost.W.shape[0]
    module = torch.nn.AdaptiveLogSoftmaxWithLoss(
        insize, cost.classes, cost.cutoffs, 2.0, cost.b is not None, dtype=torch.float64
    )
    first, start = 0, 0
    with torch.no_grad():
        module.head.weight.copy_(torch.tensor(cost.W.data.T.copy()))
        if cost.b is not None:
            module.head.bias.copy_(torch.tensor(cost.b.data.copy()))
        for (down, up), (size, count) in zip(module.tail, cost.sizes):
            down.weight.copy_(torch.tensor(cost.D.data[:, first : first + size].T.copy()))
            up.weight.copy_(torch.tensor(cost.U.data[start : start + size * count].reshape(size, count).T.copy()))
            first, start = first + size, start + size * count

    def slopes():
        def of(p):
            return np.zeros(tuple(p.shape)) if p.grad is None else p.grad.numpy()

        return {
            "W": of(module.head.weight).T,
            "D": np.concatenate([of(down.weight).T for down, _ in module.tail], axis=1),
            "U": np.concatenate([of(up.weight).T.reshape(-1) for _, up in module.tail]),
            **({} if cost.b is None else {"b": of(module.head.bias)}),
        }

    return module, slopes


@pytest.mark.peers
@pytest.mark.parametrize("number", range(30))
def test_it_is_that_of_torch(number):
    import torch

    rng = np.random.default_rng(number)
    reduction = ("mean", "sum", "none")[number % 3]
    cost = drawn(rng, useBias=number % 2 == 0, reduction=reduction)
    n = int(rng.integers(0 if number % 7 == 0 else 1, 9))
    x, labels, weight = scores(rng, (n, cost.W.shape[0])), rng.integers(0, cost.classes, n), rng.random(n)
    module, slopes = theirs(cost)
    tensor, weights = torch.tensor(x, requires_grad=True), torch.tensor(weight, requires_grad=True)
    wanted = reducedBy(-module(tensor, torch.tensor(labels)).output, reduction, weights)
    seed = rng.normal(size=tuple(wanted.shape))
    wanted.backward(torch.tensor(seed))
    nodes = [Input(name=f"i{i}").node() for i in range(3)]
    shapes, dtypes = [x.shape, labels.shape, weight.shape], [x.dtype, labels.dtype, weight.dtype]
    program = Program(Graph(nodes, cost(*nodes)), shapes, dtypes, grads=(True,))
    for how in ("eager", "compiled"):
        if how == "eager":
            value = cost(x, labels, weight)
            cost.backward(seed)
            grads = cost.grad
        else:
            value, grads = program.run(x, labels, weight, seed), program.grad
        near(value, wanted.detach().numpy(), 1e-10, f"{how} value")
        near(grads[0], tensor.grad.numpy(), 1e-10, f"{how} gradient of x")
        near(grads[2], weights.grad.numpy(), 1e-10, f"{how} gradient of weights")
        for name, slope in slopes().items():
            near(getattr(cost, name).grad, slope, 1e-10, f"{how} gradient of {name}")


def test_its_probabilities_add_up_to_one(rng):
    cost = drawn(rng, reduction="none")
    x = rng.normal(size=(5, cost.W.shape[0]))
    logs = cost.logProbabilities(x)
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1, rtol=1e-12)
    for k in range(cost.classes):
        np.testing.assert_allclose(-logs[:, k], cost(x, np.full(5, k)), rtol=1e-12)


def test_cutoffs_that_do_not_fit_are_refused():
    for cutoffs in ((5, 3), (3, 10), (3, 3)):
        with pytest.raises(ArgumentError, match="wanted cutoffs that rise, below 10"):
            AdaptiveSoftmax(8, 10, cutoffs)
    with pytest.raises(ArgumentError, match="wanted at least 4\\^2 features for 2 cutoffs, got 8"):
        AdaptiveSoftmax(8, 10, (2, 5))
