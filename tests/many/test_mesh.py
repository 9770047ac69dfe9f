"""Mesh and Sharding: where a rank is, what it holds, and that all three ways to divide a run say so with them."""

import numpy as np
import pytest
import recipes

from puregraph import Adam, ArgumentError
from puregraph.core.param import Param
from puregraph.distributed import CountingWorld, Mesh, Sharding, World
from puregraph.distributed.collectives.treenorm import treeNorm
from puregraph.distributed.sharding import ShardedUpdate, ShardRow
from puregraph.distributed.sharding.shardedstate import wholeState
from puregraph.distributed.sharding.sharding import cutsAmong, shardSize
from puregraph.distributed.tensor.tensorlayout import ParamCut, PartOrder
from puregraph.distributed.worlds import current
from puregraph.train import FunctionCallback


@pytest.mark.parametrize(("data", "stage", "tensor"), [(1, 1, 1), (3, 2, 1), (2, 3, 2), (5, 1, 4)])
def test_each_rank_has_a_place_of_its_own(data, stage, tensor):
    size = data * stage * tensor
    meshes = [Mesh(CountingWorld(size, rank), data=data, stage=stage, tensor=tensor) for rank in range(size)]
    assert len({mesh.coordinates for mesh in meshes}) == size
    for rank, mesh in enumerate(meshes):
        assert mesh.rankAt() == rank
        assert mesh.rankAt(*meshes[size - 1 - rank].coordinates) == size - 1 - rank
        for axis, wanted in zip((mesh.stage, mesh.data, mesh.tensor), (stage, data, tensor)):
            assert (axis.size, axis.world.size, axis.world.rank) == (wanted, wanted, axis.index)
    with pytest.raises(ArgumentError, match=f"are not {size} ranks"):
        Mesh(CountingWorld(size), data=data + 1, stage=stage, tensor=tensor)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_element_is_held_once_and_the_norm_has_the_bits_of_one_rank(count, rng):
    shapes = [(5, 7), (16,), (1,), (3, 33), (64, 2)]
    params = [Param(shape) for shape in shapes]
    total = sum(param.size for param in params)
    cuts = cutsAmong(params, total, count)
    assert max(np.diff(cuts)) == shardSize(total, count)
    assert np.diff(cuts).tolist() == [shardSize(total, count, rank) for rank in range(count)]
    places = dict(zip(map(id, params), np.cumsum([0, *[param.size for param in params]]).tolist()))
    row = ShardRow(params, cuts, range(count), count)
    shardings = [Sharding(CountingWorld(count, rank), [row], places, total) for rank in range(count)]
    for param in params:
        held = [n for sharding in shardings for n in range(*sharding.held(param))]
        assert held == list(range(param.size))
    whole = rng.standard_normal(total).astype(np.float32)
    for rank, sharding in enumerate(shardings):
        piece = whole[cuts[rank] : cuts[rank + 1]]
        for param in params:
            begin, (first, last) = places[id(param)], sharding.held(param)
            np.testing.assert_array_equal(sharding.gradient([piece], param), whole[begin + first : begin + last])
            array = whole[begin : begin + param.size].reshape(param.shape)
            np.testing.assert_array_equal(sharding.shard(param, array), sharding.gradient([piece], param))
    if count == 1:
        assert shardings[0].norm([whole]) == treeNorm(World(), [[(0, total)]], [whole])


@pytest.mark.parametrize(("axis", "groups"), [(0, 1), (1, 1), (1, 3)])
def test_elements_in_the_order_of_parts_come_back_to_their_places(axis, groups, rng):
    array = rng.standard_normal((8, 12)).astype(np.float32)
    order = PartOrder(ParamCut(axis, groups, array.shape[axis]), 4, array.shape)
    flat = order.flat(array)
    assert order.bounds == [0, 24, 48, 72, 96] and not np.array_equal(flat, array.reshape(-1)) or axis == 0
    np.testing.assert_array_equal(order.shaped(flat), array)


@pytest.mark.parametrize("way", [{"shard": "state"}, {"stages": 2}, {"tensor": 2}])
def test_every_way_to_divide_a_run_has_a_mesh_and_updates_what_its_sharding_says(way, monkeypatch):
    steps = []
    if "shard" in way:
        monkeypatch.setattr(current, "CURRENT", [CountingWorld(2)])
    callbacks = [FunctionCallback(lambda trainer: steps.append(trainer.shared))]
    trainer, data, target = recipes.perceptron(callbacks=callbacks, **way)
    trainer.train(data, target)
    step = steps[-1]
    assert type(step.mesh) is Mesh and type(step.sharded) is ShardedUpdate and type(step.sharded.sharding) is Sharding
    assert isinstance(trainer.optimizer, Adam)
    assert {id(slot.param) for slot in step.slots} == {id(param) for param in step.sharded.sharding.params}
    gathered = wholeState(trainer.optimizer)
    assert all(gathered[f"m/{slot.path}"].shape == slot.param.shape for slot in trainer.optimizer.slots), [*gathered]
