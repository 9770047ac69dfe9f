"""Training in stages: the bits of one process without stages, whoever has which stages of which grains."""

import json

import numpy as np
import pytest
import recipes
from launched import launched, lines
from rankpool import ran, ranAlone

from puregraph import SGD, Adam, CrossEntropy, DataError, GraphError, Linear, Relu, Sequential, Trainer
from puregraph.distributed import CountingWorld, Grains, TreeSum, World
from puregraph.distributed.collectives.treenorm import scatteredNorm, treeNorm
from puregraph.distributed.pipeline import GrainSums, PipelineSchedule, StageMove
from puregraph.distributed.pipeline.packedarray import blank, packed, unpacked
from puregraph.distributed.worlds.mesh import meshFor

pytestmark = pytest.mark.usefixtures("longIfSlow")


@pytest.mark.parametrize(("stages", "units"), [(1, 3), (2, 8), (4, 8), (4, 2), (3, 7)])
def test_one_forward_one_backward_is_as_fast_as_it_can_be(stages, units):
    found = PipelineSchedule(stages, stages, units)
    assert found.makespan == (units + stages - 1) * 3  # forward takes 1, backward 2
    assert found.bubble == pytest.approx((stages - 1) / (units + stages - 1))
    for stage, order in enumerate(found.orders):
        alive = np.cumsum([1 if move.isForward else -1 for move in order])
        assert alive.max() == min(stages - stage, units) and alive[-1] == 0


@pytest.mark.parametrize(("stages", "positions", "units"), [(8, 4, 8), (8, 2, 8), (6, 3, 6), (4, 1, 3), (12, 4, 16)])
def test_interleaved_stages_wait_less_and_each_keeps_no_more_microbatches(stages, positions, units):
    found = PipelineSchedule(stages, positions, units)
    assert found.bubble < max(PipelineSchedule(positions, positions, units).bubble, 1e-9)
    moves = [move for order in found.orders for move in order]
    assert len(moves) == len(set(moves)) == 2 * stages * units
    for position, order in enumerate(found.orders):
        assert {move.stage for move in order} == set(range(position, stages, positions))
        for stage in range(position, stages, positions):
            own = [move for move in order if move.stage == stage]
            assert np.cumsum([1 if move.isForward else -1 for move in own]).max() <= stages - stage
            assert (
                [m.unit for m in own if m.isForward] == [m.unit for m in own if not m.isForward] == list(range(units))
            )
    for move, end in found.done.items():
        if move.isForward and move.stage:
            assert found.done[move._replace(stage=move.stage - 1)] <= end - 1
        if not move.isForward and move.stage + 1 < stages:
            assert found.done[move._replace(stage=move.stage + 1)] <= end - 2
    assert found.done[StageMove(False, stages - 1, 0)] >= stages + 2


@pytest.mark.parametrize(("size", "stages", "grid"), [(4, 4, (4, 1)), (8, 4, (4, 2)), (3, 2, (1, 3)), (2, 4, (2, 1))])
def test_processes_share_stages_and_grains(size, stages, grid):
    found = [meshFor(CountingWorld(size, rank), stages) for rank in range(size)]
    assert {(each.stage.size, each.data.size) for each in found} == {grid}
    assert sorted(s for each in found for s in each.stagesOf(stages) if not each.data.index) == list(range(stages))
    assert all((each.data.world.size, each.stage.world.size) == grid[::-1] for each in found)
    assert [each.data.world.rank for each in found] == [each.data.index for each in found]
    assert [each.stage.world.rank for each in found] == [each.stage.index for each in found]


@pytest.mark.parametrize("count", [1, 3, 8])
def test_grains_that_come_one_by_one_are_added_as_the_tree(count, rng):
    leaves = rng.standard_normal((count, 100)).astype(np.float32)
    grains = Grains(count, World())
    tree, sums = (kind(World(), grains, 100, np.dtype(np.float32)) for kind in (TreeSum, GrainSums))
    leaves[1:2] = 0  # a grain without samples
    wanted = tree.reduce(tree.own(lambda grain, into: np.copyto(into, leaves[grain]))).copy()
    for _ in range(2):
        sums.begin()
        for grain in range(count):
            if grain != 1:
                array = sums.blank()
                array[...] = leaves[grain]
                sums.push(grain, array)
        np.testing.assert_array_equal(sums.total(), wanted)
    assert len(sums.spare) <= count.bit_length() + 1


@pytest.mark.parametrize("size", [1, 16, 100, 1000])
def test_a_norm_of_scattered_elements_is_that_of_the_row(size, rng):
    row = rng.standard_normal(size).astype(np.float32)
    cuts = sorted({0, size, *rng.integers(0, size + 1, 5).tolist()})
    runs = [(a, b) for a, b in zip(cuts, cuts[1:])]
    missing = runs[len(runs) // 2]
    row[slice(*missing)] = 0
    runs = [run for run in runs if run != missing or len(runs) == 1]
    found = scatteredNorm(World(), size, [runs], [row[a:b] for a, b in runs])
    assert found == treeNorm(World(), [[(0, size)]], [row])


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1)])
def test_what_a_stage_sends_arrives_as_it_was_stored(order, rng):
    array = rng.standard_normal((3, 2, 4)).astype(np.float32).transpose(order)
    data = blank(array.shape, array.dtype)
    data[...] = packed(array)
    found = unpacked(data, array.shape, array.dtype)
    np.testing.assert_array_equal(found, array)
    assert found.strides == array.strides


@pytest.fixture
def alone():
    """The hashes of runs of one process without stages."""
    return recipes.outcomesAlone(tuple(STAGES))


STAGES = {"perceptron": 3, "several": 2, "accumulated": 2, "convolutional": 4}


def test_one_process_with_all_stages_ends_as_without(alone):
    assert recipes.outcome("perceptron", stages=3) == alone["perceptron"]
    assert recipes.outcome("convolutional", stages=4) == alone["convolutional"]


OUTCOMES = """
import json, recipes
from puregraph.distributed import world
stages = {"perceptron": 3, "several": 2, "accumulated": 3, "convolutional": 6}
found = {name: recipes.outcome(name, stages=count) for name, count in stages.items()}
print(world().rank, json.dumps(found))
"""

PARTED = """
import json, sys, recipes
from rankpool import patch
from puregraph.distributed.pipeline.stagepass import StagePass
held, forward, backward = [], StagePass.forward, StagePass.backward
def watched(function):
    def run(self, *arguments):
        found = function(self, *arguments)
        held.extend(param for param in self.params if param.array is not None)
        return found
    return run
patch(StagePass, "forward", watched(forward))
patch(StagePass, "backward", watched(backward))
names, stages = sys.argv[1].split(","), int(sys.argv[2])
found = {name: recipes.outcome(name, stages=stages, shard="parameters") for name in names}
assert not held, held
print(json.dumps(found))
"""


@pytest.mark.mpi
@pytest.mark.parametrize("count", [3, *[pytest.param(count, marks=pytest.mark.slow) for count in (2, 4, 6, 8)]])
def test_processes_with_stages_end_as_one_without(alone, count, tmp_path):
    done = ran(count, tmp_path, OUTCOMES, timeout=580)
    found = [json.loads(line.partition(" ")[2]) for line in lines(done)]
    assert len(found) == count and all(row == alone for row in found)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("count", "stages", "names"),
    [
        (3, 3, ("perceptron",)),
        *[pytest.param(n, 2, (*STAGES, "language"), marks=pytest.mark.slow) for n in (2, 3, 4)],
    ],
)
def test_stages_with_weights_in_pieces_end_alike_and_never_have_a_whole_one(count, stages, names, tmp_path):
    found = [json.loads(line) for line in lines(ran(count, tmp_path, PARTED, ",".join(names), stages))]
    assert found == [recipes.outcomesAlone(names)] * count


TIED = """
import numpy as np, puregraph, recipes
from puregraph import Adam, CrossEntropy, Linear, Relu, Sequential, Trainer
rng = np.random.default_rng(1)
data, target = rng.standard_normal((40, 6)).astype(np.float32), rng.integers(0, 6, 40)
for stages, shard in ((None, None), (2, None), (3, None), (4, None), (3, "parameters")):
    puregraph.seed(1)
    net = Sequential(Linear(6, 6, name="in"), Relu(), Linear(6, 6), Relu(), Linear(6, 6, name="out"))
    net["out"].W = net["in"].W
    trainer = Trainer(net, CrossEntropy(), Adam(1e-2, clipNorm=0.5), batchsize=16, stages=stages, shard=shard, **recipes.GRAINS)
    trainer.train(data, target, epochs=3)
    print(recipes.hashOf(trainer))
"""


@pytest.mark.mpi
@pytest.mark.parametrize("count", [3, *[pytest.param(count, marks=pytest.mark.slow) for count in (2, 4)]])
def test_an_array_that_two_stages_share_is_the_same_in_both_after_each_step(count, tmp_path):
    assert len(set(lines(ran(count, tmp_path, TIED)))) == 1


LANGUAGE = """
import recipes
print(recipes.outcome("language", stages=4), recipes.outcome("convolutional", stages=4))
print(recipes.outcome("convolutional", stages=4, compile=False))
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_a_language_model_with_a_shared_array_ends_as_without_stages(tmp_path):
    language = recipes.outcome("language")
    convolutional, eager = (recipes.outcome("convolutional", compile=compile) for compile in (True, False))
    for count in (1, 2, 3, 4, 8):
        done = launched(count, tmp_path, LANGUAGE, timeout=580)
        assert set(lines(done)) == {f"{language} {convolutional}", eager}, count


SAVING = """
import sys, recipes
from puregraph import Checkpoint
trainer, data, target = recipes.perceptron(stages=int(sys.argv[1]), shard=None if sys.argv[2] == "None" else sys.argv[2])
trainer.callbacks[:0] = [Checkpoint("run.h5", every=7, keep=9)]
trainer.train(data, target, epochs=4)
print("hash", recipes.hashOf(trainer))
"""

RESUMING = """
import recipes
for stages, shard in ((3, None), (None, None), (3, "state"), (2, "gradients"), (3, "parameters")):
    trainer, data, target = recipes.perceptron(stages=stages, shard=shard)
    trainer.resume("run-7.h5")
    trainer.train(data, target, epochs=2)
    if stages:  # what is there is divided in another way, and back
        trainer.shard = None if shard else "state"
    trainer.train(data, target)
    trainer.shard = shard
    trainer.train(data, target)
    print("hash", recipes.hashOf(trainer))
"""


@pytest.mark.mpi
def test_a_run_in_stages_goes_on_to_the_bit_with_others_and_without(tmp_path):
    (found,) = set(lines(ran(3, tmp_path, SAVING, 3, None)))
    assert len(list(tmp_path.glob("run-7.h5*"))) == 4  # the file, and what three processes have
    assert set(lines(ranAlone(1, tmp_path, RESUMING))) == {found}


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("saving", "stages", "shard", "counts"),
    [(3, 3, None, (2, 3, 6)), (6, 3, "state", (1, 6)), (4, 2, "gradients", (3,)), (4, 2, "parameters", (3,))],
)
def test_what_was_saved_in_stages_goes_on_to_the_bit_on_any_number_of_processes(
    saving, stages, shard, counts, tmp_path
):
    (found,) = set(lines(launched(saving, tmp_path, SAVING, stages, shard)))
    for count in counts:
        assert set(lines(launched(count, tmp_path, RESUMING, timeout=280))) == {found}


LOOKED = """
import numpy as np, recipes
from puregraph.train import FunctionCallback
seen, kept = [], {}
def look(trainer):
    if trainer.stages:
        kept.update({stage: each.most for stage, each in trainer.shared.pipeline.passes.items()})
    seen.append(np.concatenate([p.data.reshape(-1) for p in trainer.net.params.values()]).tobytes())
for stages in (None, 3):
    trainer, data, target = recipes.perceptron(stages=stages, callbacks=[FunctionCallback(look)])
    trainer.train(data, target)
half = len(seen) // 2
data[40, 2] = np.nan
trainer, _, _ = recipes.perceptron(stages=3, shuffle=False)
try:
    trainer.train(data, target)
except Exception as error:
    print(str(error))
print(seen[:half] == seen[half:], recipes.hashOf(trainer))
print("kept", kept)
"""


@pytest.mark.mpi
def test_who_looks_after_a_step_or_goes_on_from_nan_sees_all_weights(tmp_path):
    found = lines(ran(3, tmp_path, LOOKED))
    kept = [line for line in found if line.startswith("kept")]
    assert kept == ["kept {0: 3}", "kept {1: 2}", "kept {2: 1}"]  # microbatches, of eight, as the schedule promises
    found = [line for line in found if line not in kept]
    assert len(found) == 6 and len({line for line in found if line.startswith("True ")}) == 1, found
    assert sum(line.startswith("epoch 1, batch 3, grain 5 of 8: the cost is nan") for line in found) == 3
    assert sum(line.startswith("True ") for line in found) == 3


def train(net=None, optimizer=None, **options):
    """A step of a small network in stages."""
    net = net or Sequential(Linear(4, 4), Relu(), Linear(4, 3))
    given = {"batchsize": 8, "grains": 4, "progress": "none", **options}
    x = np.ones((8, 4), np.float32)
    Trainer(net, CrossEntropy(), optimizer or SGD(0.1), **given).train(x, np.zeros(8, int))


def test_what_cannot_be_trained_in_stages_is_refused():
    with pytest.raises(DataError, match="stages=2: microbatches are the grains of a batch: give grains as well"):
        train(stages=2, grains=None)
    with pytest.raises(DataError, match="stages: wanted a whole number of at least 1, got 0"):
        train(stages=0)
    with pytest.raises(GraphError, match="can be cut in 3 at most, wanted 4"):
        train(stages=4)

    class Odd(Adam):
        def update(self):
            return super().update()

    with pytest.raises(DataError, match="stages=2: Odd updates in a way of its own"):
        train(optimizer=Odd(), stages=2)
