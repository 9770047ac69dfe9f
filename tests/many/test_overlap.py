"""Gradients that are exchanged while backward runs: what is sent when, and that no bit depends on it."""

import json
import os
import threading
from concurrent.futures import wait
from itertools import pairwise

import numpy as np
import pytest
import recipes
from launched import lines
from rankpool import ran, ranAlone

from puregraph import Adam, CrossEntropy, Sequential, Trainer, Transpose
from puregraph.compile import Program, gradientbuckets, withCost
from puregraph.compile.gradientbuckets import BucketStart, GradientBuckets, backwardOrder
from puregraph.distributed import BucketedSum, CountingWorld, Grains, Pending, World
from puregraph.distributed.collectives import backoff
from puregraph.distributed.collectives.exchangethread import EXCHANGING
from puregraph.distributed.collectives.sharedarena import SharedArena
from puregraph.distributed.collectives.treesum import UNCUT_ELEMENTS
from puregraph.distributed.worlds import current
from puregraph.models import gpt, lenet, mlp

pytestmark = pytest.mark.usefixtures("longIfSlow")

OUTCOMES = """
import json, sys, recipes
from rankpool import patch
from puregraph.compile import gradientbuckets
from puregraph.distributed import world
from puregraph.distributed.collectives.bucketedsum import BucketedSum
from puregraph.distributed.worlds.mpiworld import MpiWorld
from puregraph.train.objective import Objective
patch(gradientbuckets, "MIN_BUCKET_BYTES", 64)  # bytes: many buckets of small networks
patch(gradientbuckets, "TYPICAL_BUCKETS", 1000)
found = {"hashes": recipes.outcomes(sys.argv[1].split(",")), "one": recipes.outcome("perceptron", grains=world().size)}
some = ["perceptron", "accumulated"]
found["sharded"] = [recipes.outcomes(some, shard=shard) for shard in ("state", "gradients")]
found["interpreted"] = recipes.outcomes(some, compile=False)
shared = MpiWorld.sharedMemory
patch(MpiWorld, "sharedMemory", lambda self, sizes: None)  # as between machines
found["sent"] = recipes.outcomes(some)
MpiWorld.sharedMemory = shared
run, start, early, isRunning = Objective.learner, BucketedSum.start, [], []
def learner(self, *arguments, **named):
    program = run(self, *arguments, **named)
    def watched(*inputs, **numbers):
        isRunning.append(True)
        try:
            return type(program).run(program, *inputs, **numbers)
        finally:
            isRunning.pop()
    program.run = watched
    return program
def started(self):
    early.append(bool(isRunning))
    start(self)
patch(Objective, "learner", learner)
patch(BucketedSum, "start", started)
for name in sys.argv[2].split(","):
    for shard in (None, "state", "gradients") if name != "language" else (None,):
        recipes.outcome(name, shard=shard)
print(json.dumps([found, sum(early), len(early)]))
"""


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("count", "names", "watched"),
    [
        (3, ("perceptron", "accumulated"), ("perceptron",)),
        *[
            pytest.param(n, tuple(recipes.RECIPES), ("perceptron", "convolutional", "language"), marks=pytest.mark.slow)
            for n in (2, 3)
        ],
    ],
)
def test_buckets_that_leave_while_backward_runs_change_no_bit(count, names, watched, tmp_path):
    alone = recipes.outcomesAlone(names)
    done = ran(count, tmp_path, OUTCOMES, ",".join(names), ",".join(watched))
    rows = [json.loads(line) for line in lines(done)]
    assert len(rows) == count
    one = recipes.outcome("perceptron", grains=count)
    interpreted = recipes.outcomes(["perceptron", "accumulated"], compile=False)
    some = {name: alone[name] for name in ("perceptron", "accumulated")}
    for found, early, every in rows:
        wanted = {"hashes": alone, "one": one, "sharded": [some, some], "interpreted": interpreted, "sent": some}
        assert found == wanted
        assert (
            every > 30 * len(watched) and early > 0.9 * every
        )  # the rest: a grain without samples has no step to start them


NOTFINITE = """
import json, numpy as np, recipes
from rankpool import patch
from puregraph import PuregraphError
from puregraph.compile import gradientbuckets
patch(gradientbuckets, "MIN_BUCKET_BYTES", 64)
patch(gradientbuckets, "TYPICAL_BUCKETS", 1000)
trainer, data, target = recipes.perceptron(shuffle=False)
wrong = data.copy()
wrong[16 + 15] = np.nan  # of the last process, while others have sent their buckets already
try:
    trainer.train(wrong, target)
    said = "nothing"
except PuregraphError as error:
    said = str(error)
trainer.train(data, target, epochs=2)
print(json.dumps([said, recipes.hashOf(trainer)]))
"""


@pytest.mark.mpi
def test_a_cost_that_is_not_finite_on_one_process_stops_all_and_the_next_run_goes_on_alike(tmp_path):
    rows = [json.loads(line) for run in (ranAlone, ran) for line in lines(run(3, tmp_path, NOTFINITE))]
    assert len(rows) == 4
    assert {said.partition(";")[0] for said, _ in rows} == {"epoch 1, batch 2, grain 8 of 8: the cost is nan"}
    assert len({found for _, found in rows}) == 1


def bucketed(net, size, shape, monkeypatch, **options):
    """A program of a network with a cost, and its buckets, of so many bytes at least."""
    monkeypatch.setattr(gradientbuckets, "MIN_BUCKET_BYTES", size)
    monkeypatch.setattr(gradientbuckets, "TYPICAL_BUCKETS", 1000)
    net.trainMode()
    buckets = GradientBuckets(backwardOrder(net, list(net.params.values())), 4, UNCUT_ELEMENTS)
    given = {"grads": "one", "updGrad": False, "guarded": True, "scaled": True, **options}
    return Program(withCost(net, CrossEntropy(), 1, 1, False), [shape, shape[:1]], None, True, **given), buckets, given


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("make", "shape"), [(lambda: mlp(64, (64, 32), 10), (16, 64)), (lenet, (8, 1, 28, 28))])
def test_each_bucket_starts_with_its_gradients_as_they_are_after_the_step(make, shape, added, monkeypatch, rng):
    net = make()
    plain, buckets, options = bucketed(net, 256, shape, monkeypatch, added=added)
    program = Program(plain.graph, plain.shapes, None, True, **options, buckets=buckets)
    x, t = rng.standard_normal(shape).astype(np.float32), rng.integers(0, 10, shape[0])
    before = {path: rng.standard_normal(p.shape).astype(np.float32) for path, p in net.params.items()}
    found = []
    for each in (plain, program):
        for path, param in net.params.items():
            param.grad = before[path].copy()
        seen = {}
        buckets.start = lambda number, grads, seen=seen: seen.update({number: {i: g.copy() for i, g in grads.items()}})
        each.run(x, t, scale=0.5)
        found.append([param.grad.copy() for param in buckets.params])
    assert list(seen) == list(range(len(buckets.groups))) and len(seen) > 2
    gradients = {i: grad for grads in seen.values() for i, grad in grads.items()}
    for i, (grad, other) in enumerate(zip(*found)):
        np.testing.assert_array_equal(grad, other)
        np.testing.assert_array_equal(grad, gradients[i])


def test_a_start_stands_behind_its_last_gradient_and_before_the_rest_of_backward(monkeypatch):
    net = mlp(64, (64, 32), 10)
    plain, buckets, options = bucketed(net, 256, (16, 64), monkeypatch)
    program = Program(plain.graph, plain.shapes, None, True, **options, buckets=buckets)
    calls = program.plan.schedule.calls
    starts = [i for i, call in enumerate(calls) if type(call.function) is BucketStart]
    made = {y.number: i for i, call in enumerate(calls) for y in call.outs if y is not None}
    for at in starts:
        assert max(made[v.number] for v in calls[at].values()) < at
    assert starts[0] < max(made.values()) - 2
    without = [call for call in calls if type(call.function) is not BucketStart]
    assert [str(call) for call in without] == [str(call) for call in plain.plan.schedule.calls]


def words():
    """A GPT whose words are also what it predicts by: a weight whose gradient is the sum of the first and the last."""
    return Sequential(gpt(17, 6, layers=4, heads=2, size=8), Transpose((0, 2, 1)), name="net")


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("make", "shapes"), [(lambda: mlp(64, (32,) * 5, 10), (16, 64)), (words, (4, 6))])
def test_buckets_start_all_along_backward(make, shapes, added, monkeypatch):
    net = make()
    monkeypatch.setattr(gradientbuckets, "MIN_BUCKET_BYTES", 64)
    monkeypatch.setattr(gradientbuckets, "TYPICAL_BUCKETS", 1000)
    net.trainMode()
    buckets = GradientBuckets(backwardOrder(net, list(net.params.values())), 4, UNCUT_ELEMENTS)
    given = {"grads": "one", "updGrad": False, "scaled": True, "added": added, "buckets": buckets}
    targets = shapes if make is words else shapes[:1]
    program = Program(withCost(net, CrossEntropy(), 1, 1, False), [shapes, targets], None, True, **given)
    calls = program.plan.schedule.calls
    starts = [i for i, call in enumerate(calls) if type(call.function) is BucketStart]
    assert starts[0] < 0.5 * len(calls) and starts[len(starts) // 2] < 0.8 * len(calls), (starts, len(calls))


def test_a_table_says_of_each_bucket_what_it_takes_and_what_hides_it(monkeypatch):
    monkeypatch.setattr(current, "CURRENT", [CountingWorld(4)])
    monkeypatch.setattr(gradientbuckets, "MIN_BUCKET_BYTES", 4096)
    trainer = Trainer(mlp(64, (64, 32), 10), CrossEntropy(), Adam(), 64, progress="none")
    rng = np.random.default_rng(0)
    trainer.train(rng.standard_normal((64, 64)).astype(np.float32), rng.integers(0, 10, 64))
    (program,) = trainer.objective.programs.kept.values()
    notes = [line for line in program.table().splitlines() if line.startswith("bucket ")]
    buckets = trainer.objective.buckets
    assert len(notes) == len(buckets.groups) > 1
    sizes = [buckets.nbytes(number) for number in range(len(notes))]
    assert 0 <= sum(sizes) - 4 * sum(param.size for param in trainer.net.params.values()) < 64 * len(sizes)
    for number, (line, size) in enumerate(zip(notes, sizes), 1):
        assert line.startswith(f"bucket {number}: {size:,} bytes, allToAll + allGather in ")
    assert "hidden by the " in notes[0] and notes[-1].endswith("hidden by nothing")


def test_parameters_come_in_the_order_in_which_backward_makes_their_gradients():
    net = mlp(8, (6, 4), 3)
    names = {id(param): path for path, param in net.params.items()}
    order = [names[id(param)].split(".")[0] for param in backwardOrder(net, list(net.params.values()))]
    assert order == ["out", "out", "fc2", "fc2", "fc1", "fc1"]
    net.params["fc2.W"].trainable = False
    assert backwardOrder(net, list(net.params.values()))[-1] is net.params["fc2.W"]


@pytest.mark.parametrize("size", [0, 64, 1000])
def test_buckets_end_at_blocks_and_have_each_parameter_once(size, monkeypatch):
    monkeypatch.setattr(gradientbuckets, "MIN_BUCKET_BYTES", size)
    monkeypatch.setattr(gradientbuckets, "TYPICAL_BUCKETS", 1000)
    params = list(mlp(10, (7, 33, 5), 3).params.values())
    buckets = GradientBuckets(params, 4, UNCUT_ELEMENTS)
    assert sorted(i for group in buckets.groups for i in group) == list(range(len(params)))
    assert (
        all(cut % UNCUT_ELEMENTS == 0 for cut in buckets.cuts[:-1]) and (np.diff(buckets.cuts) >= UNCUT_ELEMENTS).all()
    )
    for group, (begin, end) in zip(buckets.groups, pairwise(buckets.cuts)):
        spans = [buckets.spans[i] for i in group]
        assert spans[0][0] == begin and end - UNCUT_ELEMENTS < spans[-1][1] <= end  # no parameter is in two buckets
        assert all(one[1] == other[0] for one, other in pairwise(spans))
    assert [b - a for a, b in buckets.spans] == [param.size for param in params]


@pytest.mark.parametrize("bounds", [[0, 1001], [0, 16, 960, 1001]])
def test_a_sum_in_buckets_is_the_sum_in_one(bounds, rng):
    leaves = rng.standard_normal((8, 1001)).astype(np.float32)
    tree = BucketedSum(World(), Grains(8, World()), np.dtype(np.float32), bounds, ["a", "b", "c"][: len(bounds) - 1])

    def leaf(grain, into):
        for number, (begin, end) in enumerate(pairwise(bounds)):
            into[number][...] = leaves[grain, begin:end]
        if grain == 7:
            tree.start()

    for _ in range(2):
        tree.add(leaf)
        tree.finish()
        a = leaves
        total = ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]))
        np.testing.assert_array_equal(np.concatenate([tree.total[n] for n in range(len(bounds) - 1)]), total)


class Opened(Pending):
    """What is over as soon as a test says so."""

    isOpen = False

    def isDone(self):
        return self.isOpen


class Counting(World):
    """A world that counts collectives that are over."""

    done, waiting = 0, None

    def finished(self):
        """Count one."""
        self.done += 1


def test_who_writes_waits_for_those_that_still_read_and_counts_no_collective_for_that():
    worlds = [Counting(), Counting()]
    worlds[1].rank = 1
    memory = [np.zeros(128 + 4 * 64, np.uint8) for _ in worlds]
    one, two = (SharedArena(world, memory, [1, 1], [0, 32, 64], np.dtype(np.float32)) for world in worlds)
    one.rows[0][0][1][...] = 7
    assert (two.rows[0][0][1] == 7).all() and not two.rows[0][0][0].any()
    first = one.reach(1)
    assert not first.isDone() and one.reach(0) is not None
    two.leave(1), two.leave(0)
    first.wait()
    assert worlds[0].done == 1 and first.isDone()
    one.leave(1)
    later = threading.Timer(0.05, two.leave, [1])
    later.start()
    one.waitFree()
    assert two.counts[1][1] == 2 and (worlds[0].done, worlds[0].waiting) == (1, None)
    later.join()


def given(pendings):
    """An exchange that waits for these, one after the other."""
    yield from pendings
    return pendings


def test_an_exchange_that_waits_holds_no_other_one_up():
    world, first, second = World(), [Opened(), Opened()], [Opened()]
    futures = [EXCHANGING.submit(world, str(n), given(each)) for n, each in enumerate([first, second])]
    second[0].isOpen = True
    assert futures[1].result(timeout=30) is second and not futures[0].done()
    first[0].isOpen = first[1].isOpen = True
    assert futures[0].result(timeout=30) is first
    assert world.waiting is None and world.bucket == ""


def test_who_starts_a_bucket_sends_it_at_once_unless_the_thread_is_at_work():
    begun = []

    def noted(label, pending):
        begun.append((label, threading.current_thread() is threading.main_thread()))
        yield pending

    pendings = [Opened(), Opened()]
    futures = [EXCHANGING.submit(World(), "", noted("first", pendings[0]))]
    assert begun == [("first", True)]
    with EXCHANGING.lock:  # as the thread has it while it adds up what has come
        futures.append(EXCHANGING.submit(World(), "", noted("second", pendings[1])))
        assert len(begun) == 1
    for pending in pendings:
        pending.isOpen = True
    EXCHANGING.drive(futures)
    assert [label for label, _ in begun] == ["first", "second"] and all(future.done() for future in futures)


@pytest.mark.parametrize("isComputing, most", [(False, 1 / 16), (True, 1)])
def test_a_wait_is_hardly_longer_for_its_pauses_unless_others_want_the_core(monkeypatch, isComputing, most):
    world, now, pauses = World(), [0.0], []

    def sleep(seconds):
        pauses.append((now[0], seconds))
        now[0] += seconds

    monkeypatch.setattr(backoff.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(backoff.time, "sleep", sleep)
    world.isComputing = isComputing
    found = backoff.Backoff(world)
    while now[0] < 0.1:
        now[0] += 1e-5  # what a look takes
        found.pause()
    assert all(seconds <= max(most * since, backoff.MIN_SLEEP_SECONDS) for since, seconds in pauses)
    assert pauses[-1][1] == backoff.MAX_SLEEP_SECONDS
    assert pauses[0][0] == (1e-5 if isComputing else pytest.approx(backoff.SPINNING, abs=2e-5))


def test_what_an_exchange_raises_is_raised_where_its_result_is_wanted():
    def failing():
        yield Pending()
        raise ValueError("no such thing")

    failed, fine = (EXCHANGING.submit(World(), "", each) for each in (failing(), given([])))
    EXCHANGING.settle()
    assert str(failed.exception()) == "no such thing" and fine.result() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_exchanges_with_a_thread_of_its_own():
    assert EXCHANGING.submit(World(), "", given([])).result() == []  # the parent's thread has begun
    child = os.fork()
    if child == 0:
        done = EXCHANGING.submit(World(), "", given([]))
        os._exit(0 if wait([done], timeout=30).done else 1)
    assert os.waitpid(child, 0)[1] == 0
