"""Tensors in parts: the bits of one process that has all parts, whoever has which, and what the whole network gives."""

import json

import numpy as np
import pytest
import recipes
from launched import launched, lines

import puregraph
from puregraph import (
    SGD,
    Adam,
    CrossEntropy,
    DataError,
    Embedder,
    Gelu,
    LayerNorm,
    Linear,
    MomentumSGD,
    Mul,
    MultiOptimizer,
    Relu,
    Sequential,
    Trainer,
)
from puregraph.distributed import CountingWorld
from puregraph.distributed.tensor import splitTensors
from puregraph.distributed.worlds.mesh import meshFor
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.models import gpt, mlp, multiHeadAttention


def rolesOf(split):
    """The role of each layer that is divided, by its path."""
    items = split.layout.steps.items
    return {items[i].path: role for i, role in split.layout.roles.items() if role != "within"}


def gradients(graph, x, g):
    """The output of a pass, and the gradients of all parameters by their ids."""
    graph.trainMode()
    y = graph(x)
    graph.backward(g, updGrad=False)
    return np.array(y), {id(p): np.array(p.grad) for p in graph.params.values()}


def assertGradients(net, split, x, rng, tolerance):
    """The parts give what the whole network gives, and the gradients of its parameters."""
    y = net(x)
    g = rng.standard_normal(y.shape).astype(y.dtype)
    y, wanted = gradients(net, x, g)
    z, found = gradients(split.graph, x, g)
    np.testing.assert_allclose(z, y, tolerance, tolerance)
    for param in net.params.values():
        np.testing.assert_allclose(gathered(split, param, found), wanted[id(param)], tolerance, tolerance)


def gathered(split, param, found):
    """The gradient of a parameter, of those of its parts if it is divided."""
    parts, whole = split.parts.get(id(param)), np.full(param.shape, np.nan, param.dtype)
    for part in parts or ():
        part.cut.put(found[id(part)], whole, part.part, split.group.parts)
    return whole if parts else found[id(param)]


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_a_language_model_in_parts_has_the_gradients_of_the_whole(parts, rng):
    net = gpt(19, 6, layers=2, heads=4, size=8).calcMode(np.float64)
    split = splitTensors(net, parts, (3, 6))
    pairs = {"attn.qkv": "columns", "attn.out": "rows", "mlp.fc1": "columns", "mlp.fc2": "rows"}
    blocks = {f"block{i}.{path}": role for i in (1, 2) for path, role in pairs.items()}
    assert rolesOf(split) == {"words": "table", **blocks, "scores": "joined"}  # the table of both has 19 rows
    assertGradients(net, split, rng.integers(0, 19, (3, 6)), rng, 1e-12)


def gated():
    """A product of two Linear, one of which is activated, and a Linear."""
    x = Input(name="x").node()
    h = Mul(name="gate").node(Relu(name="relu")(Linear(6, 8, name="up")(x)), Linear(6, 8, name="side")(x))
    return Graph(x, Linear(8, 5, name="down")(h))


@pytest.mark.parametrize(
    ("net", "roles"),
    [
        (lambda: mlp(6, (8, 8), 4), {"fc1": "columns", "fc2": "rows", "out": "joined"}),
        (lambda: mlp(6, (8, 8), 3), {"fc1": "columns", "fc2": "rows"}),  # three outputs are not two times as many
        (gated, {"up": "columns", "side": "columns", "down": "rows"}),
        (
            lambda: Sequential(Linear(6, 8, name="a"), LayerNorm(8), Linear(8, 4, transpose=True, name="b")),
            {"a": "joined", "b": "joined"},
        ),
        (
            lambda: Sequential(Linear(6, 8, useBias=False, transpose=True, name="a"), Gelu(), Linear(8, 4, transpose=True, name="b")),
            {"a": "columns", "b": "rows"},
        ),
    ],
)  # fmt: skip
def test_a_linear_is_divided_by_columns_and_the_next_one_by_rows(net, roles, rng):
    net = net().calcMode(np.float64)
    split = splitTensors(net, 2, (3, 6))
    assert rolesOf(split) == roles
    assertGradients(net, split, rng.standard_normal((3, 6)), rng, 1e-12)


@pytest.mark.peers
@pytest.mark.parametrize("parts", [2, 4])
def test_attention_in_parts_has_the_gradients_that_torch_finds(parts, rng):
    import torch

    net = multiHeadAttention(8, 4, causal=True).calcMode(np.float64)
    split = splitTensors(net, parts, (3, 5, 8))
    x, g = rng.standard_normal((3, 5, 8)), rng.standard_normal((3, 5, 8))
    y, found = gradients(split.graph, x, g)
    peers = {path: torch.tensor(param.data, requires_grad=True) for path, param in net.params.items()}
    qkv = torch.tensor(x) @ peers["qkv.W"] + peers["qkv.b"]
    heads = [each.reshape(3, 5, 4, 2).transpose(1, 2) for each in qkv.chunk(3, -1)]
    h = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(3, 5, 8)
    wanted = h @ peers["out.W"] + peers["out.b"]
    wanted.backward(torch.tensor(g))
    np.testing.assert_allclose(y, wanted.detach().numpy(), 1e-10, 1e-10)
    for path, param in net.params.items():
        grad = gathered(split, param, found)
        np.testing.assert_allclose(grad, peers[path].grad.numpy(), 1e-10, 1e-10, err_msg=path)


def test_heads_that_see_another_sequence_are_divided_too(rng):
    net = multiHeadAttention(8, 2, cross=True, masked=True).calcMode(np.float64)
    split = splitTensors(net, 2, (3, 4, 8), (3, 5, 8), (3, 1, 4, 5))
    assert rolesOf(split) == {"kv": "columns", "q": "columns", "out": "rows"}
    x = [rng.standard_normal((3, 4, 8)), rng.standard_normal((3, 5, 8)), rng.standard_normal((3, 1, 4, 5)) > -1]
    assertGradients(net, split, x, rng, 1e-12)


def test_columns_are_exact_to_the_bit(rng):
    layer = Linear(24, 32)
    net, x = Sequential(layer), rng.standard_normal((5, 24)).astype(np.float32)
    split = splitTensors(net, 4, (5, 24))
    g = rng.standard_normal((5, 32)).astype(np.float32)
    for compiled in (False, True):
        outputs = [each.compile((5, 24)).run(x) if compiled else each(x) for each in (net, split.graph)]
        np.testing.assert_array_equal(*outputs)
    _, wanted = gradients(net, x, g)
    _, found = gradients(split.graph, x, g)
    for param in (layer.W, layer.b):
        whole = np.empty_like(wanted[id(param)])
        for part in split.parts[id(param)]:
            part.cut.put(found[id(part)], whole, part.part, 4)
        np.testing.assert_array_equal(whole, wanted[id(param)])


def test_a_word_that_no_part_has_is_refused():
    split = splitTensors(Sequential(Embedder(5, 4)), 2, (3,))
    assert np.isfinite(split.graph(np.array([0, 4, -1]))).all()
    for wrong in (5, -2):
        with pytest.raises((DataError, IndexError)):
            split.graph(np.array([0, wrong, 1]))


@pytest.mark.parametrize(("size", "parts", "grid"), [(4, 4, (4, 1)), (8, 4, (4, 2)), (3, 4, (1, 3)), (6, 4, (2, 3))])
def test_processes_share_parts_and_grains(size, parts, grid):
    found = [meshFor(CountingWorld(size, rank), tensor=parts) for rank in range(size)]
    assert {(each.tensor.size, each.data.size) for each in found} == {grid}
    assert all((each.tensor.world.size, each.data.world.size) == grid for each in found)
    for each in found:
        assert each.rankAt(data=0) == each.tensor.index and each.rankAt(tensor=0) == each.data.index * grid[0]
        assert each.tensor.world.rank == each.tensor.index and each.data.world.rank == each.data.index


def test_one_process_with_all_parts_trains_as_the_whole_network():
    costs = []
    for tensor in (4, None):
        trainer, data, target = recipes.inParts(tensor=tensor, compile=False)
        trainer.train(data, target, epochs=3, validation=(data, target))
        costs.append([[row["loss"], row["val loss"], row["val accuracy"]] for row in trainer.history])
    np.testing.assert_allclose(*costs, 1e-4)


OUTCOMES = """
import json, recipes, sys
from puregraph import Checkpoint
from puregraph.distributed import world
found = {}
for name, options in json.loads(sys.argv[1]):
    trainer, data, target = getattr(recipes, name)(**options)
    trainer.callbacks[:0] = [Checkpoint(f"{name}.h5", every=7, keep=9)]
    trainer.train(data, target, epochs=3, validation=(data, target))
    found[name] = recipes.hashOf(trainer)
print(json.dumps(found))
"""


def assertSame(count, folder, runs, path):
    """Processes end as one that has all parts, and one goes on from what they have saved."""
    found = [json.loads(line) for line in lines(launched(count, folder, OUTCOMES, json.dumps(runs), timeout=580))]
    assert len(found) == count and all(row == found[0] for row in found)
    for name, options in runs:
        for saved in (None, folder / f"{name}-7.h5"):
            trainer, data, target = getattr(recipes, name)(**options)
            if saved is not None:
                trainer.resume(saved)
            trainer.train(data, target, epochs=3, validation=(data, target))
            assert recipes.hashOf(trainer) == found[0][name], (name, saved)
    net = puregraph.load(folder / f"{path}-7.h5")
    assert net.params.keys() == trainer.net.params.keys()


@pytest.mark.mpi
def test_two_processes_with_parts_end_as_one_that_has_all(tmp_path):
    assertSame(2, tmp_path, [("perceptron", {"tensor": 2}), ("inParts", {"compile": False, "grains": 2})], "inParts")


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_processes_with_parts_end_as_one_that_has_all(count, tmp_path):
    runs = [
        ("perceptron", {"tensor": 2}),
        ("several", {"tensor": 4}),
        ("accumulated", {"tensor": 2, "accumulate": 2}),
        ("inParts", {}),
    ]
    assertSame(count, tmp_path, runs, "inParts")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_what_was_trained_in_parts_goes_on_whole_and_again_in_parts(accumulate):
    rng = np.random.default_rng(1)
    data, target = rng.standard_normal((40, 6)).astype(np.float32), rng.integers(0, 4, 40)
    outcomes = []
    for tensor in (None, 2):
        puregraph.seed(1)
        optimizer = MultiOptimizer({"*.b": MomentumSGD(1e-2), "*": Adam(1e-2)}, clipNorm=0.5)
        trainer = Trainer(
            mlp(6, (8,), 4), CrossEntropy(), optimizer, 8, tensor=tensor, accumulate=accumulate, **recipes.GRAINS
        )
        trainer.train(data, target)
        trainer.net["out"].W.data *= 0.5
        trainer.train(data, target)
        optimizer.learnRate = 0.5
        trainer.resume(trainer.save(None))
        trainer.train(data, target)
        outcomes.append([trainer.loss, *[p.data.copy() for p in trainer.net.params.values()]])
        assert len(trainer.optimizer.slots) == 4 and trainer.optimizer.step == 3 * (5 if accumulate == 1 else 3)
    for one, two in zip(*outcomes):
        np.testing.assert_allclose(one, two, 1e-4, 1e-5)


def train(net=None, optimizer=None, shape=(8, 4), **options):
    """A step of a small network in parts."""
    net = net or Sequential(Linear(4, 6, name="a"), Relu(), Linear(6, 2, name="b"))
    given = {"batchsize": 8, "progress": "none", **options}
    x = np.ones(shape, np.float32)
    Trainer(net, CrossEntropy(), optimizer or SGD(0.1), **given).train(x, np.zeros(8, int))


def test_what_cannot_be_divided_is_refused():
    train(tensor=2)
    with pytest.raises(DataError, match="tensor=4: 'a' .Linear. has 6 outputs, which 4 ranks cannot share equally"):
        train(tensor=4)
    with pytest.raises(DataError, match="tensor: wanted a whole number of parts of at least 1, got 0"):
        train(tensor=0)
    with pytest.raises(DataError, match="tensor=2: shard='state' divides weights in another way"):
        train(tensor=2, shard="state")
    with pytest.raises(DataError, match="tensor=2: there is nothing to divide in"):
        train(Sequential(LayerNorm(4)), tensor=2)
    with pytest.raises(DataError, match=r"tensor=4: 'attention' \(Attention\) has 2 heads, which 4 ranks cannot share"):
        splitTensors(multiHeadAttention(8, 2), 4, (3, 4, 8))

    class Odd(Adam):
        def update(self):
            return super().update()

    with pytest.raises(DataError, match="tensor=2: Odd updates in a way of its own"):
        train(optimizer=Odd(), tensor=2)
