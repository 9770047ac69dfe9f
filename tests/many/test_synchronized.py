"""BatchNorm whose statistics are those of the whole batch, whoever has which samples of it."""

import numpy as np
import pytest
import recipes
from launched import lines
from rankpool import ran

import puregraph
from puregraph import SGD, BatchNorm, Conv2D, CrossEntropy, Flatten, Linear, Relu, Sequential, ShapeError, Trainer
from puregraph.core.param import Param
from puregraph.distributed import Grains, World
from puregraph.train import FunctionCallback, LockStep

pytestmark = pytest.mark.usefixtures("longIfSlow")


def trained(grains, synchronized=True, accumulate=1, batchsize=22):
    """A network in float64 after a few steps, the last of them smaller."""
    puregraph.seed(0)
    net = Sequential(Conv2D(1, 4, 3), BatchNorm(4, synchronized=synchronized), Relu(), Flatten(), Linear(144, 4))
    net.calcMode(np.float64)
    given = {"batchsize": batchsize, "accumulate": accumulate, "shuffle": False, "progress": "none"}
    trainer = Trainer(net, CrossEntropy(), SGD(0.1), grains=grains, **given)
    rng = np.random.default_rng(0)
    trainer.train(rng.standard_normal((50, 1, 8, 8)), rng.integers(0, 4, 50), epochs=2)
    return {**net.params, **net.states}


@pytest.mark.filterwarnings("ignore:accumulate")
@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_and_statistics_are_those_of_one_large_batch(accumulate):
    found, wanted = (trained(grains, accumulate=accumulate) for grains in (8, None))
    for path, stored in wanted.items():
        if accumulate == 1 or isinstance(stored, Param):  # else grains have the mean of what the batches give
            np.testing.assert_allclose(found[path].data, stored.data, rtol=1e-10, atol=1e-12, err_msg=path)


def test_without_it_each_grain_has_statistics_of_its_own():
    found, wanted = (trained(8, synchronized) for synchronized in (False, True))
    assert np.abs(found["conv2d.W"].data - wanted["conv2d.W"].data).max() > 1e-4


def test_grains_of_one_sample_and_grains_of_none_are_part_of_the_batch():
    found, wanted = (trained(grains, batchsize=16) for grains in (16, None))  # the last batch has two samples
    for path, stored in wanted.items():
        np.testing.assert_allclose(found[path].data, stored.data, rtol=1e-10, atol=1e-12, err_msg=path)


def test_a_step_is_compiled_between_the_layers_that_all_grains_meet_in():
    found, seen = [], []

    def look(trainer):
        lockstep = trainer.shared.lockstep
        pieces = [each for one in lockstep.pieces.values() for way in one.passes for each in way]
        seen[:] = [(each.partition.isOpen, each.eager, each.runs) for each in pieces]

    for compile in (True, False):
        trainer, data, target = recipes.synchronized(compile=compile, callbacks=[FunctionCallback(look)] * compile)
        trainer.optimizer = SGD(0.1)  # Adam would make much of rounding errors
        trainer.train(data, target, epochs=2)
        found.append(trainer)
    one, other = ({**each.net.params, **each.net.states} for each in found)
    for path in one:
        np.testing.assert_allclose(one[path].data, other[path].data, rtol=1e-4, atol=1e-6, err_msg=path)
    compiled = [(eager, runs) for isMet, eager, runs in seen if not isMet]
    assert len(compiled) == 4 * 3 and all(eager == 0 < runs for eager, runs in compiled)  # of grains of three sizes
    assert sum(isMet for isMet, _, _ in seen) == 2 * 3 and not any(runs for isMet, _, runs in seen if isMet)


@pytest.mark.parametrize(("batchsize", "samples"), [(8, 20), (16, 27)])
def test_grains_of_one_vector_are_part_of_the_batch_too(batchsize, samples):
    found = []
    for compile in (True, False):
        puregraph.seed(0)
        net = Sequential(Linear(6, 5), BatchNorm(5, synchronized=True), Relu(), Linear(5, 3))
        given = {"batchsize": batchsize, "grains": 8, "shuffle": False, "progress": "none", "compile": compile}
        rng = np.random.default_rng(0)
        data, target = rng.standard_normal((samples, 6)).astype(np.float32), rng.integers(0, 3, samples)
        Trainer(net, CrossEntropy(), SGD(0.1), **given).train(data, target, epochs=2)
        found.append({**net.params, **net.states})
    for path, stored in found[0].items():
        np.testing.assert_allclose(stored.data, found[1][path].data, rtol=1e-4, atol=1e-6, err_msg=path)


OUTCOME = """
import recipes, sys
pairs = [
    (recipes.outcome("synchronized"), recipes.outcome("synchronized", compile=False, shard="state")),
    (recipes.outcome("synchronized", stages=3, shard="parameters"), recipes.vectors(stages=2)),
]
sys.stdout.write("".join([f"{one} {other}\\n" for one, other in pairs]))  # at once: others write as well
"""


@pytest.mark.mpi
@pytest.mark.parametrize("count", [3, *[pytest.param(count, marks=pytest.mark.slow) for count in (2, 8)]])
def test_equal_bits_for_any_number_of_processes_and_in_stages(tmp_path, count):
    alone = recipes.outcomeAlone("synchronized")
    wanted = {f"{alone} {recipes.outcome('synchronized', compile=False)}", f"{alone} {recipes.vectors()}"}
    assert set(lines(ran(count, tmp_path, OUTCOME))) == wanted


STAGED = """
import recipes, sys
ways = [(2, None), (2, "state"), (2, "gradients"), (2, "parameters"), (4, None), (4, "parameters")]
given = [dict(stages=stages, shard=shard) for stages, shard in ways]
pairs = [(recipes.outcome("synchronized", **each), recipes.vectors(**each)) for each in given]
pairs += [[recipes.outcome("synchronized", stages=2, **each) for each in ({"accumulate": 2}, {"compile": False})]]
sys.stdout.write("".join([f"{one} {other}\\n" for one, other in pairs]))
"""


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.filterwarnings("ignore:accumulate")
def test_stages_that_wait_for_the_whole_batch_end_alike_however_it_is_divided(tmp_path):
    outcomes = [recipes.outcome("synchronized", **way) for way in ({}, {"accumulate": 2}, {"compile": False})]
    wanted = {f"{outcomes[0]} {recipes.vectors()}", f"{outcomes[1]} {outcomes[2]}"}
    for count in (1, 2, 4, 8):
        found = [line for line in lines(ran(count, tmp_path, STAGED, timeout=580)) if len(line) == 129]
        assert len(found) == 7 * count and set(found) == wanted, count


def test_one_value_has_no_variance():
    norm = BatchNorm(3, synchronized=True)
    norm.trainMode()
    with pytest.raises(ShapeError, match="at least two values of each map in trainMode"):
        norm(np.ones((1, 3), np.float32))
    with pytest.raises(ShapeError, match="at least two values of each map in trainMode"):
        norm.updateTogether([(np.ones((1, 3), np.float32), *[None] * 5)], lambda sums, length: sum(sums))


def test_an_error_of_a_rule_names_its_node():
    class Faulty(puregraph.Module):
        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            raise ValueError("no such thing")

    graph = Sequential(BatchNorm(3, synchronized=True), Faulty(name="faulty"))
    graph.trainMode()
    given = {0: [np.ones((4, 3), np.float32)]}
    with pytest.raises(ValueError, match="no such thing") as found:
        LockStep(World(), Grains(1, World())).run(graph, given[0], given, {0: {}}, {0: 1.0})
    assert "at 'faulty' (Faulty)" in "".join([str(found.value), *getattr(found.value, "__notes__", [])])
