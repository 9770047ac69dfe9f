"""Layers over lists of edges: next to the same layers with dense matrices of adjacency, written out in PyTorch."""

import numpy as np
import pytest
from leftovers import leftToNumpy
from natively import needsNative
from peers import compare

from puregraph import (
    DataError,
    GATConv,
    GCNConv,
    GINConv,
    Graph,
    Input,
    Linear,
    NeighborSum,
    SAGEConv,
    Sequential,
    Tanh,
)
from puregraph.core.errors import DtypeError, ShapeError
from puregraph.modules.costs import MSE

peers = pytest.mark.peers
LAYERS = {
    "gcn": lambda: GCNConv(5, 4),
    "sage": lambda: SAGEConv(5, 4),
    "sage max": lambda: SAGEConv(5, 4, "max"),
    "gin": lambda: NeighborSum(0.25, isTrained=True),
    "gat": lambda: GATConv(5, 4, heads=2),
    "gat mean": lambda: GATConv(5, 4, heads=3, concat=False, selfLoops=False),
}


def drawn(seed, i=3):
    """Features, edges with repeated ones, self loops, edges of -1 and nodes without any, and weights."""
    rng = np.random.default_rng(seed)
    n, e = int(rng.integers(1, 9)), int(rng.integers(0, 14)) if seed else 0
    edges = rng.integers(0, max(n - 1, 1), (2, e))
    edges[int(rng.integers(2)), : e // 5] = -1
    edges[:, e // 2 : e // 2 + 2] = edges[:, :1]
    return rng, rng.standard_normal((n, i)), edges, rng.uniform(-0.2, 1, e)


def adjacency(n, edges, weights=None):
    """A[i, j], the sum of the weights of edges from j to i."""
    A = np.zeros((n, n))
    for k, (j, i) in enumerate(edges.T):
        if min(i, j) >= 0:
            A[i, j] += 1 if weights is None else weights[k]
    return A


@peers
@pytest.mark.parametrize("selfLoops", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_gcn_is_the_product_with_the_normalized_matrix(seed, normalize, selfLoops):
    torch = pytest.importorskip("torch")
    rng, x, edges, weights = drawn(seed)

    def dense(x, edges, *others):
        *weights, W, b = others
        A = torch.zeros(len(x), len(x), dtype=x.dtype)
        for k, (j, i) in enumerate(edges.T.tolist()):
            if min(i, j) >= 0:
                A = A + torch.zeros_like(A).index_put(
                    (torch.tensor(i), torch.tensor(j)), weights[0][k] if weights else torch.tensor(1.0).double()
                )
        A = A + selfLoops * torch.eye(len(x)).double()
        degree = A.sum(1)
        s = torch.where(degree > 0, torch.where(degree > 0, degree, 1) ** -0.5, 0)
        return (s[:, None] * A * s if normalize else A) @ x @ W + b + 0 * sum(w.sum() for w in weights)

    compare(GCNConv(3, 2, selfLoops, normalize), dense, rng, x, edges)
    compare(GCNConv(3, 2, selfLoops, normalize), dense, rng, x, edges, weights)


@peers
@pytest.mark.parametrize("mode", ["mean", "sum", "max"])
@pytest.mark.parametrize("seed", range(10))
def test_sage_is_the_mean_sum_or_largest_of_rows(seed, mode):
    torch = pytest.importorskip("torch")
    rng, x, edges, _ = drawn(seed)
    A = adjacency(len(x), edges)

    def dense(x, edges, W, U, b):
        counts = torch.from_numpy(A)
        if mode == "max":
            rows = [x[counts[i] > 0].amax(0) if counts[i].any() else torch.zeros_like(x[0]) for i in range(len(x))]
            m = torch.stack(rows)
        else:
            m = counts @ x / (counts.sum(1, keepdim=True).clamp(min=1) if mode == "mean" else 1)
        return x @ U + m @ W + b

    compare(SAGEConv(3, 2, mode), dense, rng, x, edges)


@peers
@pytest.mark.parametrize("seed", range(10))
def test_gin_is_a_network_of_the_sum(seed):
    torch = pytest.importorskip("torch")
    rng, x, edges, _ = drawn(seed)
    A = adjacency(len(x), edges)
    compare(NeighborSum(0.3, isTrained=True), lambda x, _, e: (1 + e) * x + torch.from_numpy(A) @ x, rng, x, edges)
    network = Sequential(Linear(3, 4), Tanh(), Linear(4, 2)).calcMode(np.float64)
    y = GINConv(network, epsilon=0.5).calcMode(np.float64)([x, edges])
    assert np.allclose(y, network(1.5 * x + A @ x), rtol=1e-12)


@peers
@pytest.mark.parametrize("selfLoops", [True, False])
@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_gat_is_a_softmax_over_the_neighbors(seed, concat, selfLoops):
    torch = pytest.importorskip("torch")
    rng, x, edges, _ = drawn(seed)
    A = adjacency(len(x), edges) + selfLoops * np.eye(len(x))

    def dense(x, edges, W, U, b):
        counts = torch.from_numpy(A)
        h, (U, V) = (x @ W).reshape(len(x), 2, 2), U.reshape(2, 2, 2)
        z = (h * V).sum(-1)[:, None] + (h * U).sum(-1)[None]  # (i, j, heads)
        shares = torch.exp(torch.nn.functional.leaky_relu(z, 0.2)) * counts[:, :, None]
        total = shares.sum(1, keepdim=True)
        y = torch.einsum("ijh,jho->iho", shares / torch.where(total > 0, total, 1), h)
        return (y.flatten(1) if concat else y.mean(1)) + b

    compare(GATConv(3, 2, heads=2, concat=concat, selfLoops=selfLoops), dense, rng, x, edges)


@pytest.mark.parametrize("kind", LAYERS)
def test_large_scores_and_features_stay_finite(kind):
    x, edges = np.full((3, 5), 1e4, np.float32), np.array([[0, 1, 1], [1, 2, 2]])
    layer = LAYERS[kind]()
    y = layer(x, edges)
    layer.backward(np.ones_like(y))
    assert np.isfinite(y).all() and np.isfinite(layer.grad[0]).all()


@needsNative
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("edgeCount", [0, 7])
def test_compiled_layers_leave_nothing_to_numpy(kind, edgeCount):
    rng = np.random.default_rng(0)
    x, edges = Input(name="x").node(), Input(name="edges").node()
    net = Graph([x, edges], LAYERS[kind]().node(Linear(5, 5, name="in")(x), edges))
    data = [rng.standard_normal((6, 5)).astype(np.float32), rng.integers(-1, 6, (2, edgeCount))]
    wanted = net(data)
    target = rng.standard_normal(wanted.shape).astype(np.float32)
    net.backward(2 * (wanted - target) / target.size)
    eager = {path: param.grad.copy() for path, param in net.params.items()}
    program = net.compile([*(a.shape for a in data), target.shape], cost=MSE())
    for param in net.params.values():
        param.grad = np.full_like(param.grad, np.nan)
    program.run(*data, target)
    assert not edgeCount or leftToNumpy(program) == []
    for path, param in net.params.items():
        assert np.allclose(param.grad, eager[path], rtol=2e-4, atol=1e-5), path


def test_shapes_carry_symbols_and_wrong_ones_are_refused():
    for make in LAYERS.values():
        assert make().dataShapeFrom(("N", 5), (2, "E"))[0] == "N"
    with pytest.raises(ShapeError, match="sources of the edges, then their targets"):
        GCNConv(3, 2).dataShapeFrom((4, 3), (5, 2))
    with pytest.raises(ShapeError, match="one row for each node"):
        SAGEConv(3, 2).dataShapeFrom((4, 2), (2, 5))
    with pytest.raises(ShapeError, match="weights of shape"):
        GCNConv(3, 2).dataShapeFrom((4, 3), (2, 5), (4,))


@pytest.mark.parametrize("kind", LAYERS)
def test_edges_that_are_no_nodes_are_refused(kind):
    x = np.ones((3, 5), np.float32)
    for wrong in (3, -2):
        with pytest.raises(DataError, match="wanted indices from"):
            LAYERS[kind]()(x, np.array([[0, wrong], [1, 1]]))
    with pytest.raises(DtypeError, match="wanted integers for edges"):
        LAYERS[kind]()(x, np.ones((2, 1)))
