"""The same results to the bit, however many processes compute the grains of each batch."""

import gc
import json
import weakref

import numpy as np
import pytest
import recipes
from rankpool import ran, ranAlone

from puregraph import SGD, CrossEntropy, DataError, Dropout, Linear, Sequential, Trainer
from puregraph.core import initial
from puregraph.distributed import CountingWorld, World
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import TreeSum, spansIn

pytestmark = pytest.mark.usefixtures("longIfSlow")

OUTCOMES = """
import json, recipes
from puregraph.distributed import world
found = json.dumps(recipes.outcomes())
print(world().rank, found)
"""


def rowsOf(done):
    """What each process has printed behind its rank."""
    assert done.returncode == 0, done.stdout + done.stderr
    return {int(line.split()[0]): json.loads(line.partition(" ")[2]) for line in done.stdout.splitlines()}


@pytest.fixture
def alone():
    """The hashes of all runs in one process that nobody has launched."""
    return recipes.outcomesAlone()


@pytest.mark.mpi
@pytest.mark.parametrize("count", [3, *[pytest.param(count, marks=pytest.mark.slow) for count in (1, 2, 4, 8)]])
def test_runs_of_one_to_eight_processes_end_with_equal_weights_states_and_history(alone, count, tmp_path):
    found = rowsOf(ran(count, tmp_path, OUTCOMES))
    assert set(found) == set(range(count))
    assert all(row == alone for row in found.values())


def test_runs_differ_in_what_they_compute(alone):
    assert len(set(alone.values())) == len(alone)
    assert recipes.outcome("perceptron", grains=4) != alone["perceptron"]


@pytest.mark.mpi
def test_without_grains_equal_counts_of_processes_give_equal_bits(tmp_path):
    text = """
        import json, recipes
        from puregraph.distributed import world
        print(world().rank, json.dumps([recipes.outcome("perceptron", grains=None) for _ in range(2)]))
    """
    found = rowsOf(ran(3, tmp_path, text))
    assert len({each for row in found.values() for each in row}) == 1


def test_grains_leave_what_is_learnt_nearly_as_it_was():
    with_, without = (recipes.perceptron(grains=g, metrics=[]) for g in (8, None))
    for trainer, data, target in (with_, without):
        trainer.train(data, target, epochs=3)
    for path, param in with_[0].net.params.items():
        np.testing.assert_allclose(param.data, without[0].net.params[path].data, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(with_[0].history.column("loss"), without[0].history.column("loss"), rtol=1e-5)


def test_one_grain_is_a_batch_that_nobody_cuts():
    assert recipes.outcome("convolutional", grains=1) == recipes.outcome("convolutional", grains=None)


def test_metrics_of_grains_are_those_of_whole_batches():
    rows = []
    for grains in (8, None):
        trainer, data, target = recipes.perceptron(grains=grains)
        trainer.optimizer.learnRate = 0.0
        trainer.train(data, target)
        rows.append(trainer.history[-1]["accuracy"])
    assert rows[0] == rows[1]


def test_statistics_of_a_step_are_the_mean_of_those_of_its_grains():
    puregraph_net = recipes.convolutional()[0].net
    trainer, data, target = recipes.convolutional(shuffle=False, batchsize=16)
    norm = next(m for m in trainer.net.modules().values() if type(m).__name__ == "BatchNorm")
    conv = next(m for m in puregraph_net.modules().values() if type(m).__name__ == "Conv2D")
    trainer.optimizer.learnRate = 0.0
    trainer.train(data[:16], target[:16])
    y = conv(data[:16]).reshape(8, 2, 4, -1)
    mean = y.mean(axis=(1, 3)).mean(0)
    var = y.transpose(0, 2, 1, 3).reshape(8, 4, -1).var(-1, ddof=1).mean(0)
    np.testing.assert_allclose(norm.mean.data, 0.1 * mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(norm.var.data, 0.9 + 0.1 * var, rtol=1e-4)
    assert norm.count.data == 1


def test_masks_of_grains_differ_and_their_counter_goes_on_by_one():
    initial.seed(0)
    drop = Dropout(0.5)
    seen = []
    net = Sequential(Linear(6, 6), drop, name="net")
    original = drop.updateData

    def watched(x, key, count):
        found = original(x, key, count)
        seen.append(found[1].tobytes())
        return found

    drop.updateData = watched
    trainer = Trainer(net, CrossEntropy(), SGD(0.0), batchsize=16, grains=8, compile=False, progress="none")
    trainer.train(np.ones((16, 6), np.float32), np.zeros(16, int))
    assert len(seen) == 8 == len(set(seen))
    assert drop.count.data == 1


@pytest.mark.parametrize("count", [1, 2, 5, 8, 13])
def test_spans_cover_each_grain_once(count):
    for size in range(1, count + 1):
        bounds = [count * r // size for r in range(size + 1)]
        spans = [span for a, b in zip(bounds, bounds[1:]) for span in spansIn(count, a, b)]
        assert [g for a, b in spans for g in range(a, b)] == list(range(count))


def test_a_sum_has_the_shape_of_one_tree_whatever_the_number_of_processes(rng):
    leaves = rng.standard_normal((8, 1001)).astype(np.float32)

    def leaf(grain, into):
        into[...] = leaves[grain]

    whole = TreeSum(World(), Grains(8, World()), 1001, np.dtype(np.float32))
    total = whole.reduce(whole.own(leaf)).copy()
    np.testing.assert_allclose(total, leaves.astype(np.float64).sum(0), atol=1e-5)
    a = leaves
    np.testing.assert_array_equal(total, ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7])))


def test_a_ring_s_bytes_are_sent_where_processes_divide_the_grains():
    world = CountingWorld(4, rank=1)
    tree = TreeSum(world, Grains(8, world), 4096, np.dtype(np.float32))
    tree.reduce(tree.own(lambda grain, into: into.fill(grain)))
    assert world.nbytes == 2 * 3 * 16384 // 4


def test_sums_are_freed_with_the_last_reference_to_them():
    tree = TreeSum(World(), Grains(4, World()), 64, np.dtype(np.float32))
    tree.own(lambda grain, into: into.fill(grain))
    freed = weakref.ref(tree)
    gc.disable()
    try:
        del tree
        assert freed() is None  # without the garbage collector: these are the largest arrays of a step
    finally:
        gc.enable()


def test_batches_that_cannot_be_cut_are_refused_before_the_first_step():
    trainer, data, target = recipes.perceptron(batchsize=4)
    with pytest.raises(DataError, match="grains=8: wanted batches of at least as many samples, got batchsize 4"):
        trainer.train(data, target)
    with pytest.raises(DataError, match="grains=4: wanted at least one for each of 8 processes"):
        Grains(4, CountingWorld(8))
    with pytest.raises(DataError, match="grains: wanted a whole number of at least 1, got 0"):
        recipes.perceptron(grains=0)


def test_grains_too_small_for_statistics_are_refused_before_the_first_step():
    trainer, data, target = recipes.convolutional(batchsize=8)
    net = Sequential(Linear(10, 4), recipes.BatchNorm(4))
    trainer = Trainer(net, CrossEntropy(), SGD(0.1), batchsize=8, grains=8, progress="none")
    with pytest.raises(ValueError, match="at least two values of each map in trainMode"):
        trainer.train(np.ones((16, 10), np.float32), np.zeros(16, int))


def test_a_cost_that_is_not_finite_names_batch_grain_and_sample():
    trainer, data, target = recipes.perceptron(shuffle=False)
    data[20, 3] = np.nan
    with pytest.raises(recipes.puregraph.PuregraphError, match=r"epoch 1, batch 2, grain 3 of 8.*data \(sample 0\)"):
        trainer.train(data, target)


def test_a_state_that_grains_count_in_different_ways_is_refused():
    class Seen(recipes.puregraph.Module):
        def __init__(self):
            super().__init__()
            self.count = recipes.puregraph.State((), dtype=np.int64)

        def dataShapeFrom(self, x):
            return x

        def updateData(self, x, count):
            count += int((x > 0).sum())
            return x

        def updateGrad(self, grad, x, count, y):
            return grad, None

    net = Sequential(Linear(10, 4), Seen())
    trainer = Trainer(net, CrossEntropy(), SGD(0.1), batchsize=16, grains=8, compile=False, progress="none")
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="grains of one batch change it in different ways"):
        trainer.train(rng.standard_normal((16, 10)).astype(np.float32), np.zeros(16, int))


GATHERED = """
import json
import recipes
from puregraph import AveragePrecision, LogLoss, RocAuc
from puregraph.distributed import world
figures = []
for stages in (None, 3):
    metrics = RocAuc(classes=4), AveragePrecision(4, "micro"), LogLoss(), RocAuc(4, thresholds=9, name="binned")
    trainer, data, target = recipes.perceptron(metrics=list(metrics), stages=stages)
    trainer.train(data, target, epochs=2, validation=(data[:20], target[:20]))
    figures += [{name: value for name, value in row.items() if name != "seconds"} for row in trainer.history]
print(world().rank, json.dumps(figures))
"""


@pytest.mark.mpi
def test_metrics_that_need_all_samples_are_equal_for_several_processes(tmp_path):
    alone = rowsOf(ranAlone(1, tmp_path, GATHERED))[0]
    found = rowsOf(ran(3, tmp_path, GATHERED))
    assert set(found) == {0, 1, 2} and all(row == alone for row in found.values())
    assert all(0 < row[name] < 1 for row in alone for name in ("rocauc", "averageprecision", "val rocauc", "binned"))
