"""State of the optimizer in parts: each process updates its own elements, and the results are those of one process."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import recipes
from launched import lines
from rankpool import ran, ranAlone

from puregraph import SGD, Adam, CrossEntropy, DataError, Linear, Muon, PuregraphError, Sequential, Trainer
from puregraph.distributed import CountingWorld, World
from puregraph.distributed.collectives.treenorm import treeNorm
from puregraph.distributed.collectives.treesum import UNCUT_ELEMENTS, cutsOf
from puregraph.distributed.sharding import shardedupdate
from puregraph.distributed.worlds import current

pytestmark = pytest.mark.usefixtures("longIfSlow")

OUTCOMES = """
import json, sys, recipes
from rankpool import patch
from puregraph.distributed import world
from puregraph.distributed.sharding import shardedupdate
found = recipes.outcomes(sys.argv[1].split(","), shard="gradients")
patch(shardedupdate, "BUCKET", 50)  # elements: weights are exchanged in many parts
found["state"] = recipes.outcomes(["perceptron", "convolutional"], shard="state")
print(world().rank, json.dumps(found))
"""


SOME = ("perceptron", "matrices", "accumulated", "convolutional")


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("count", "names"),
    [(3, SOME), *[pytest.param(n, tuple(recipes.RECIPES), marks=pytest.mark.slow) for n in (1, 2, 4, 8)]],
)
def test_runs_with_parts_of_the_state_end_as_those_with_all_of_it(count, names, tmp_path):
    alone = recipes.outcomesAlone(names)
    done = ran(count, tmp_path, OUTCOMES, ",".join(names))
    found = [json.loads(line.partition(" ")[2]) for line in lines(done)]
    assert len(found) == count
    for row in found:
        assert row.pop("state") == {name: alone[name] for name in ("perceptron", "convolutional")}
        assert row == alone


EVERY = """
import json, recipes
ways = [dict(shard="state"), dict(shard="gradients"), dict(shard="parameters")]
print(json.dumps([recipes.everyOptimizer(**way) for way in ways]))
"""


@pytest.mark.mpi
@pytest.mark.parametrize("count", [3, *[pytest.param(n, marks=pytest.mark.slow) for n in (1, 2)]])
def test_every_optimizer_takes_the_steps_of_one_process_with_parts_of_its_state(count, tmp_path):
    alone = recipes.everyOptimizer()
    assert len(set(alone.values())) == len(alone) >= 21
    assert [json.loads(line) for line in lines(ran(count, tmp_path, EVERY))] == [[alone] * 3] * count


ARRAYS = """
import json, recipes
from pathlib import Path
from puregraph.distributed import world
ways = [dict(shard="state"), dict(shard="parameters"), dict(stages=2), dict(stages=2, shard="gradients")]
found = [recipes.outcome("matrices", **way) for way in ways]
for way in ways[1:]:
    trainer, data, target = recipes.matrices(**way)
    trainer.train(data, target, epochs=1, validation=(data[:20], target[:20]))
    trainer.save("run.h5")
    again = recipes.matrices()[0].resume("run.h5")
    again.train(data, target, epochs=recipes.epochsOf("matrices") - 1, validation=(data[:20], target[:20]))
    found.append(recipes.hashOf(again))
found.append(recipes.tensorAverage())
Path(f"found-{world().rank}").write_text(json.dumps(found))
"""


@pytest.mark.mpi
@pytest.mark.parametrize("count", [3, *[pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 5)]])
def test_rules_of_arrays_and_averages_are_those_of_one_process_however_a_run_is_divided(count, tmp_path):
    """Also of a run that is saved in parts and goes on without."""
    lines(ran(count, tmp_path, ARRAYS))
    wanted = recipes.outcomeAlone("matrices")
    assert len(list(tmp_path.glob("found-*"))) == count
    for path in tmp_path.glob("found-*"):
        assert json.loads(path.read_text()) == [wanted] * 7 + [recipes.tensorAverage()]


def test_a_rule_of_arrays_is_refused_where_a_parameter_is_cut_along_an_axis():
    trainer, data, target = recipes.inParts()
    trainer.optimizer = Muon()
    with pytest.raises(
        DataError, match=r"tensor=4: Muon updates 'gpt\.words\.W' as a whole, of which each process has a"
    ):
        trainer.train(data, target)


WEIGHED = """
import numpy as np, recipes
for shard in (None, "state", "gradients"):
    trainer, data, target = recipes.perceptron(shard=shard)
    weight = np.random.default_rng(4).random(72).astype(np.float32) * 2
    batches = [(data[:11], target[:11], weight[:11])]
    trainer.train(data, target, epochs=2, sampleWeight=weight, validation=(data, target, weight))
    trainer.train(batches)
    print("found", np.concatenate([p.data.reshape(-1) for p in trainer.net.params.values()]).tobytes().hex())
"""


@pytest.mark.mpi
@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_runs_with_weights_of_samples_end_as_that_of_one_process(count, tmp_path):
    found = [lines(run(count, tmp_path, WEIGHED)) for run in (ranAlone, ran)]
    assert [len(each) for each in found] == [3, 3 * count] and len({*found[0], *found[1]}) == 1


class Weighing(CountingWorld):
    """A world that notes how many elements each process gives to every gathering."""

    def startAllGather(self, array, cuts):
        """What a process gives, by its rank."""
        self.given.append(np.diff(cuts).tolist())
        return super().startAllGather(array, cuts)


def test_each_process_gives_as_many_weights_as_the_others_to_every_gathering(monkeypatch):
    world = Weighing(3)
    world.given = []
    monkeypatch.setattr(current, "CURRENT", [world])
    monkeypatch.setattr(shardedupdate, "BUCKET", 48)
    trainer, data, target = recipes.perceptron(shard="state", batchsize=72)
    trainer.train(data, target)
    (size,) = np.diff(trainer.objective.buckets.cuts)
    gathered = [given for given in world.given if sum(given) <= 48][-math.ceil(size / 48) :]
    assert sum(map(sum, gathered)) == size
    assert all(max(given) - min(given) <= UNCUT_ELEMENTS for given in gathered), gathered


def test_what_is_made_after_a_run_starts_alike_whoever_had_which_part(monkeypatch):
    keys = set()
    for rank, shard in [(0, None), (0, "state"), (7, "state")]:
        monkeypatch.setattr(current, "CURRENT", [CountingWorld(8, rank)])
        trainer, data, target = recipes.perceptron(shard=shard)
        trainer.train(data, target)
        keys.add(Linear(3, 3).W.key)
    assert len(keys) == 1, keys


def largest(size, count):
    """So many elements divided by the processes, in whole blocks."""
    return UNCUT_ELEMENTS * math.ceil(math.ceil(size / UNCUT_ELEMENTS) / count)


MEMORY = """
import json, recipes
from puregraph.distributed import world
trainer, data, target = recipes.perceptron(shard="state")
trainer.train(data, target, epochs=2)
kept = sum(array.size for array in trainer.optimizer.state.values() if array.shape)
arrays = sum(array.nbytes for slot in trainer.optimizer.slots for array in slot.arrays.values())
trainer.train(data, target)
print(json.dumps([kept, arrays, sum(p.size for p in trainer.net.params.values())]))
"""


@pytest.mark.mpi
@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_each_process_keeps_its_part_of_the_state_alone(tmp_path, count):
    found = [json.loads(line) for line in lines(ran(count, tmp_path, MEMORY))]
    total = found[0][2]
    most = largest(total, count)
    assert sum(kept for kept, _, _ in found) == 2 * total  # m and v
    assert all(2 * (most - 2 * UNCUT_ELEMENTS) <= kept <= 2 * most and nbytes == 4 * kept for kept, nbytes, _ in found)


SUMS = """
import gc, recipes
from puregraph.distributed.collectives.bucketedsum import BucketedSum
from puregraph.train import FunctionCallback
def look(trainer):
    sums = sum(len(free) for each in gc.get_objects() if type(each) is BucketedSum for free in each.free)
    print(trainer.shard, sums > 0, any(param.grad is not None for param in trainer.net.params.values()))
for shard in ("state", "gradients"):
    trainer, data, target = recipes.perceptron(callbacks=[FunctionCallback(look)], shard=shard)
    trainer.train(data, target)
    del trainer
    gc.collect()
"""


@pytest.mark.mpi
def test_sums_of_gradients_are_let_go_before_weights_are_updated(tmp_path):
    assert set(lines(ran(3, tmp_path, SUMS))) == {"state True False", "gradients False False"}


def test_cuts_are_between_blocks_and_pieces_of_nearly_one_size():
    for size in (0, 1, 15, 16, 17, 1000, 4096):
        for count in (1, 2, 3, 8):
            cuts = cutsOf(size, count)
            assert (cuts[0], cuts[-1], len(cuts)) == (0, size, count + 1)
            assert all(cut % UNCUT_ELEMENTS == 0 or cut == size for cut in cuts)
            assert max(np.diff(cuts)) <= largest(size, count)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000, 4099])
def test_a_norm_is_that_of_all_elements(rng, size):
    x = rng.standard_normal(size).astype(np.float32)
    assert treeNorm(World(), [[(0, size)]], [x]) == pytest.approx(np.linalg.norm(x.astype(np.float64)), rel=1e-14)


def test_in_a_world_that_only_counts_a_norm_is_that_of_the_own_piece():
    for _ in range(20):
        np.full(2, np.nan)  # which the memory of a new array may then hold
        runs = [[(0, UNCUT_ELEMENTS)], [(UNCUT_ELEMENTS, 2 * UNCUT_ELEMENTS)]]
        assert treeNorm(CountingWorld(2, 1), runs, [np.ones(UNCUT_ELEMENTS, np.float32)]) == UNCUT_ELEMENTS**0.5


class Told(World):
    """Process `rank` of several that hear from each other through a list: who comes last knows what all have said."""

    def __init__(self, rank, size, said):
        self.rank, self.size, self.said = rank, size, said

    def allGather(self, array, cuts):
        self.said.append(array[cuts[self.rank] : cuts[self.rank + 1]].copy())
        for one, begin in zip(self.said, cuts):
            array[begin : begin + len(one)] = one


@pytest.mark.parametrize("count", [2, 3, 5, 8])
@pytest.mark.parametrize("size", [7, 100, 4099, 65536])
def test_a_norm_has_the_same_bits_whoever_has_which_piece(rng, size, count):
    x = rng.standard_normal(size).astype(np.float32)
    whole = treeNorm(World(), [[(0, size)]], [x])
    for bounds in (
        [0, size],
        [0, size // 3 // UNCUT_ELEMENTS * UNCUT_ELEMENTS, size // 2 // UNCUT_ELEMENTS * UNCUT_ELEMENTS, size],
    ):
        cuts, said = [(a, cutsOf(b - a, count)) for a, b in pairwise(bounds)], []
        runs = [[(a + each[r], a + each[r + 1]) for a, each in cuts] for r in range(count)]
        found = [treeNorm(Told(r, count, said), runs, [x[a:b] for a, b in runs[r]]) for r in range(count)]
        assert found[-1] == whole


THAWED = """
import json, recipes
from puregraph.train import FunctionCallback
def thaw(trainer):
    params = list(trainer.net.params.values())
    params[0].trainable = trainer.step >= 7
    params[2].trainable = trainer.step < 12
for shard in (None, "state", "parameters"):
    trainer, data, target = recipes.perceptron(callbacks=[FunctionCallback(thaw)], shard=shard)
    trainer.net.params["0.W" if "0.W" in trainer.net.params else next(iter(trainer.net.params))].trainable = False
    trainer.train(data, target, epochs=2)
    trainer.train(data, target, epochs=2)
    print(recipes.hashOf(trainer))
"""


@pytest.mark.mpi
def test_parameters_that_are_thawed_and_frozen_meanwhile_are_exchanged_from_then_on(tmp_path):
    found = [lines(run(3, tmp_path, THAWED)) for run in (ranAlone, ran)]
    assert [len(each) for each in found] == [3, 9] and len({*found[0], *found[1]}) == 1


SETTINGS = """
import recipes
from puregraph import Cosine
from puregraph.train import FunctionCallback
def turn(trainer):
    first = next(iter(trainer.net.params.values()))
    if trainer.step == 4:
        trainer.optimizer.learnRate, first.rate = 0.03, 0.5
    if trainer.step == 7:
        trainer.optimizer.decay, first.decay = 0.1, False
    if trainer.step == 9:
        first.data = first.data * 2
for shard in (None, "gradients", "parameters"):
    trainer, data, target = recipes.perceptron(callbacks=[FunctionCallback(turn)], shard=shard)
    trainer.optimizer.schedule = Cosine(20)
    trainer.train(data, target, epochs=3)
    print(recipes.hashOf(trainer))
"""


@pytest.mark.mpi
def test_settings_and_weights_that_callbacks_change_hold_for_parts_as_well(tmp_path):
    found = {line for run in (ranAlone, ran) for line in lines(run(3, tmp_path, SETTINGS))}
    assert len(found) == 1


NOTFINITE = """
import itertools, numpy as np, puregraph
from puregraph import CrossEntropy, Linear, Module, MomentumSGD, Sequential, Trainer
from puregraph.core.errors import NotFiniteError
class Wild(Module):
    def dataShapeFrom(self, x):
        return x
    def updateData(self, x):
        return x.copy()
    def updateGrad(self, grad, x, y, needs):
        return grad * (np.nan if trainer.step == 2 else 1)
for how, shard in itertools.product(("skip", "raise"), (None, "state", "parameters")):
    puregraph.seed(0)
    net = Sequential(Linear(4, 30, name="one"), Wild(), Linear(30, 3, name="two"))
    optimizer = MomentumSGD(0.1, onNonFinite=how)
    trainer = Trainer(net, CrossEntropy(), optimizer, batchsize=8, grains=4, shard=shard,
                      compile=False, progress="none")
    rng = np.random.default_rng(0)
    try:
        trainer.train(rng.standard_normal((40, 4)).astype(np.float32), rng.integers(0, 3, 40))
        print(how, optimizer.step, optimizer.norm > 0)
    except NotFiniteError as error:
        print(how, error)
"""


@pytest.mark.mpi
def test_a_gradient_that_is_not_finite_is_named_or_skipped_by_all(tmp_path):
    found = lines(ran(3, tmp_path, NOTFINITE))
    assert len(found) == 18 and found[9:] == ["skip 4 True"] * 9
    assert all("the gradient of 'one.W', 'one.b'" in line and "two" not in line for line in found[:9]), found


REFUSED = """
import recipes
from puregraph import PuregraphError, SGD
trainer, data, target = recipes.perceptron(shard="state")
trainer.train(data, target)
other, _, _ = recipes.perceptron()
other.net, other.objective.net, other.objective.sizes, other.optimizer = trainer.net, trainer.net, None, trainer.optimizer
try:
    other.train(data, target)
except PuregraphError as error:
    print(error)
"""


@pytest.mark.mpi
def test_a_state_in_parts_is_not_taken_for_a_whole_one(tmp_path):
    found = lines(ran(3, tmp_path, REFUSED))
    assert len(found) == 3 and all("has its state in parts" in line and "trainer.save" in line for line in found)


SAVED = """
import recipes
from puregraph import Checkpoint
from puregraph.serialize.checkpoint import load
from puregraph.core.errors import CheckpointError
from puregraph.distributed import world
trainer, data, target = recipes.perceptron(shard="gradients", callbacks=[Checkpoint("run.h5", every=7)])
trainer.train(data, target, epochs=2)
whole = recipes.hashOf(trainer)
print(whole)
loaded = load(trainer.save(None))
assert loaded.optimizer.step == trainer.optimizer.step
try:
    trainer.net.save(f"own-{world().rank}.h5", trainer.optimizer)
except CheckpointError as error:
    assert "is in parts" in str(error), error
again, data, target = recipes.perceptron(shard="state")
again.resume("run.h5").train(data, target, epochs=2)
print(recipes.hashOf(again))
"""


@pytest.mark.mpi
def test_parts_of_the_state_are_saved_as_one(tmp_path):
    found = lines(ran(3, tmp_path, SAVED))
    assert len(found) == 6 and len(set(found)) == 1
    assert not list(tmp_path.glob("own*"))
    trainer, data, target = recipes.perceptron()
    trainer.resume(tmp_path / "run.h5").train(data, target, epochs=2)
    assert recipes.hashOf(trainer) == found[0]


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(DataError, match='shard: wanted None, "state", "gradients" or "parameters", got True'):
        recipes.perceptron(shard=True)


@pytest.mark.mpi
def test_an_optimizer_with_an_update_of_its_own_is_refused(tmp_path):
    text = """
        import recipes
        from puregraph import SGD
        class Own(SGD):
            def update(self):
                return super().update()
        trainer, data, target = recipes.perceptron(shard="state")
        trainer.optimizer = Own(0.1)
        try:
            trainer.train(data, target)
        except recipes.puregraph.DataError as error:
            print(error)
    """
    assert all("Own updates in a way of its own" in line for line in lines(ran(3, tmp_path, text)))


def test_alone_there_is_nothing_to_divide():
    hashes = {
        recipes.outcome("perceptron", shard=shard, grains=None) for shard in (None, "state", "gradients", "parameters")
    }
    assert len(hashes) == 1
    net = Sequential(Linear(3, 2))
    trainer = Trainer(net, CrossEntropy(), Adam(1e-2), shard="state", progress="none")
    trainer.train(np.ones((8, 3), np.float32), np.zeros(8, int))
    assert all(slot.part is None for slot in trainer.optimizer.slots)


def test_a_part_of_the_state_is_refused_by_an_update_of_all():
    net = Sequential(Linear(3, 2))
    optimizer = SGD(0.1).setupOn(net)
    optimizer.slots[0].part = (0, 2)
    net.trainMode()
    net(np.ones((2, 3), np.float32))
    net.backward(np.ones((2, 2), np.float32))
    with pytest.raises(PuregraphError, match="has its state in parts"):
        optimizer.update()
