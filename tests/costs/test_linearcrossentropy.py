"""LinearCrossEntropy: beside PyTorch's linear layer and cross-entropy, compiled, and the memory that it takes."""

import numpy as np
import pytest
from costpeers import near, scores

import puregraph as pg
from puregraph import CrossEntropy, Linear, LinearCrossEntropy
from puregraph.compile import Program
from puregraph.graph import Graph, Input


def compiled(cost, arrays, seed):
    """Value and gradient of x as a compiled step gives them; gradients of parameters are in `cost`."""
    nodes = [Input(name=f"i{i}").node() for i in range(len(arrays))]
    program = Program(Graph(nodes, cost(*nodes)), [a.shape for a in arrays], [a.dtype for a in arrays], grads=(True,))
    return program.run(*arrays, seed), program.grad[0]


@pytest.mark.peers
@pytest.mark.parametrize("number", range(30))
def test_it_is_linear_and_cross_entropy_of_torch(number):
    import torch
    from torch.nn import functional as f

    rng = np.random.default_rng(number)
    insize, classes, blocks = (int(k) for k in rng.integers((1, 1, 1), (5, 7, 6)))
    shape = (int(rng.integers(0 if number % 5 == 0 else 1, 9)), *rng.integers(1, 4, number % 3).tolist())
    reduction, smoothing = ("mean", "sum", "none")[number % 3], 0.2 * (number % 4 == 0)
    weights = rng.random(classes) + 0.1 if number % 2 else None
    ignored = -100 if number % 5 < 2 else None
    x, labels = scores(rng, (*shape, insize)), rng.integers(0, classes, shape)
    if ignored is not None:
        labels = np.where(rng.random(shape) < 0.3, ignored, labels)
    options = {"useBias": number % 4 < 2, "transpose": number % 7 < 3, "blocks": blocks, "reduction": reduction}
    cost = LinearCrossEntropy(insize, classes, weights=weights, ignoreIndex=ignored, smoothing=smoothing, **options)
    cost.calcMode(np.float64)
    params = [p for p in (cost.W, cost.b) if p is not None]
    for p in params:
        p.data = rng.normal(size=p.shape)
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, *[p.data for p in params])]
    z = tensors[0] @ (tensors[1].T if cost.transpose else tensors[1]) + (tensors[2] if len(params) > 1 else 0)
    terms = f.cross_entropy(
        z.reshape(-1, classes),
        torch.tensor(labels.reshape(-1)),
        None if weights is None else torch.tensor(weights),
        reduction="sum" if reduction == "mean" else reduction,
        label_smoothing=smoothing,
        ignore_index=-100,
    )
    if reduction == "mean":
        factors = np.ones(classes) if weights is None else weights
        terms = terms / (np.where(labels < 0, 0, factors[labels * (labels >= 0)]).sum() or 1)
    wanted = terms.reshape(shape) if reduction == "none" else terms
    seed = rng.normal(size=tuple(wanted.shape))
    wanted.backward(torch.tensor(seed))
    for how in ("eager", "eval", "compiled"):
        cost.evalMode() if how == "eval" else cost.trainMode()
        if how == "compiled":
            value, dx = compiled(cost, [x, labels], seed)
        else:
            value = cost(x, labels)
            cost.backward(seed)
            dx = cost.grad[0]
        near(value, wanted.detach().numpy(), 1e-10, f"{how} value")
        near(dx, tensors[0].grad.numpy(), 1e-10, f"{how} gradient of x")
        if how != "eval":
            for p, t in zip(params, tensors[1:]):
                near(p.grad, t.grad.numpy(), 1e-10, f"{how} gradient of {p.shape}")


def steps(positions, insize, classes, blocks, **options):
    """A training step of Linear and CrossEntropy, and one of both in blocks, with equal weights."""
    linear = Linear(insize, classes, name="fc")
    cost = LinearCrossEntropy(insize, classes, blocks=blocks, name="fc", **options)
    cost.W.data, cost.b.data = linear.W.data, linear.b.data
    for last in (lambda x, t: CrossEntropy(**options)(linear(x), t), cost):
        x, t = Input(name="x").node(), Input(name="t").node()
        below = Linear(insize, insize, name="below", initscheme="he")
        below.W.data = np.eye(insize, dtype=np.float32)
        net = Graph([x, t], last(below(x), t))
        shapes, dtypes = [(positions, insize), (positions,)], [np.float32, np.int64]
        yield net, net.compile(shapes, dtypes=dtypes, optimizer=pg.SGD(0.1))


def test_the_scores_of_all_positions_are_never_made(rng):
    """With gradients added up in the arrays of parameters, memory is that of one block."""
    (first, two), (second, blocked) = steps(512, 16, 3000, 16)
    x, labels = rng.normal(size=(512, 16)).astype(np.float32), rng.integers(0, 3000, 512)
    np.testing.assert_allclose(blocked.run(x, labels), two.run(x, labels), rtol=1e-6)
    for module, name in (("fc", "W"), ("fc", "b"), ("below", "W")):
        after, wanted = (getattr(net[module], name).data for net in (second, first))
        np.testing.assert_allclose(after, wanted, atol=1e-6)
    assert blocked.bytes < two.bytes / 10


def test_sample_weights_have_a_gradient(rng):
    x, labels, weight = rng.normal(size=(4, 3, 2)), rng.integers(0, 5, (4, 3)), rng.random(4)
    cost, linear = LinearCrossEntropy(2, 5, blocks=3), Linear(2, 5)
    cost.calcMode(np.float64)
    linear.W, linear.b = cost.W, cost.b
    value = cost(x, labels, weight)
    cost.backward(np.ones(()))
    other = CrossEntropy(axis=-1)
    np.testing.assert_allclose(value, other(linear(x), labels, weight), rtol=1e-12)
    other.backward(np.ones(()))
    np.testing.assert_allclose(cost.grad[2], other.grad[2], rtol=1e-10)


def test_a_table_of_words_can_be_shared(rng):
    """As the output layer of a language model."""
    words = pg.Embedder(7, 4, name="words")
    cost = LinearCrossEntropy(4, 7, useBias=False, transpose=True, blocks=2, name="cost")
    cost.W = words.W
    x, labels = Input(name="x").node(), Input(name="labels").node()
    net = Graph([x, labels], cost(words(x), labels))
    ids, targets = rng.integers(0, 7, (3, 5)), rng.integers(0, 7, (3, 5))
    net(ids, targets)
    net.backward(np.ones((), np.float32))
    wanted = words.W.grad.copy()
    program = net.compile([ids.shape, targets.shape], dtypes=[np.int64] * 2, optimizer=pg.SGD(0.0))
    program.run(ids, targets)
    np.testing.assert_allclose(words.W.grad, wanted, atol=1e-6)
