"""Plans of several processes: what they promise is what a step then takes."""

import gc
import json
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from launched import launched, lines
from natively import unverified
from processes import environment
from rankpool import ran

from puregraph import SGD, Adam, BatchNorm, CrossEntropy, Dropout, Linear, MomentumSGD, Relu, Sequential, Trainer
from puregraph.cli import main
from puregraph.core.errors import ArgumentError, ShapeError
from puregraph.distributed import Cluster, CountingWorld, LinkSpeed
from puregraph.distributed.dataparallel import DataParallelPlan
from puregraph.distributed.pipeline import PipelinePlan
from puregraph.distributed.plan.measure import linkFrom
from puregraph.distributed.sharding import shardedupdate
from puregraph.distributed.worlds import current
from puregraph.models import mlp
from puregraph.train import FunctionCallback

MODEL = "puregraph.models:lenet"


def network():
    """A network with running statistics and counters of random numbers."""
    return Sequential(Linear(10, 16), BatchNorm(16), Relu(), Dropout(0.1), Linear(16, 4), name="net")


def counted(monkeypatch, ranks, rank, shard, grains):
    """The collectives of one step of a process of a world that only counts."""
    world = CountingWorld(ranks, rank)
    monkeypatch.setattr(current, "CURRENT", [world])
    marks = []
    data, target = np.ones((48, 10), np.float32), np.zeros(48, int)
    trainer = Trainer(
        network(), CrossEntropy(), Adam(1e-3), 48, shard=shard, grains=grains, shuffle=False, progress="none",
        callbacks=[FunctionCallback(lambda trainer: marks.append(len(world.calls)))],
    )  # fmt: skip
    trainer.train(data, target, epochs=3)
    return world.calls[marks[0] : marks[1]]


@pytest.mark.parametrize("shard", [None, "state", "gradients", "parameters"])
@pytest.mark.parametrize(
    ("ranks", "grains"), [(3, (1, 2)), *[pytest.param(n, (1, 2, 4), marks=pytest.mark.slow) for n in (2, 3, 4)]]
)
def test_a_plan_names_each_collective_of_a_step_with_its_bytes(monkeypatch, ranks, grains, shard):
    monkeypatch.setattr(shardedupdate, "BUCKET", 100)
    plan = DataParallelPlan(network(), [(48, 10)], Cluster(ranks), Adam)
    for each in grains:
        split = next(s for s in plan.splits if (s.shard, s.grains) == (shard, each * ranks))
        every = [counted(monkeypatch, ranks, rank, shard, each * ranks) for rank in range(ranks)]
        found = max(every, key=lambda calls: sum(call.nbytes for call in calls))
        read = [sum(call.nbytes for call in calls if call.name == "read") for calls in (*every, split.calls)]
        assert read.pop() == pytest.approx(np.mean(read), abs=2)  # who has little of small weights reads more
        found, calls = ([call for call in calls if call.name != "read"] for calls in (found, split.calls))
        assert [call.name for call in found] == [call.name for call in calls]
        for call, wanted in zip(found, calls):
            assert call.nbytes == pytest.approx(wanted.nbytes, abs=4 * 16 * ranks)  # pieces are whole blocks


@unverified
@pytest.mark.parametrize("shard", ["gradients", "parameters"])
def test_the_arrays_of_a_process_take_the_memory_that_was_planned(monkeypatch, shard):
    """Counted are the arena of its program and all arrays of numpy, at the peak of the third step."""
    monkeypatch.setattr(current, "CURRENT", [CountingWorld(4, 1)])
    width, found = 512, []
    net = mlp(width, (width,) * 6, 10)
    data, target = np.ones((64, width), np.float32), np.arange(64) % 10

    def look(trainer):
        if trainer.step == 2:
            gc.collect()
            tracemalloc.reset_peak()
        if trainer.step == 3:
            peak = tracemalloc.get_traced_memory()[1]
            python = tracemalloc.DomainFilter(False, np.lib.tracemalloc_domain)
            objects = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([python]).traces)
            found.append(peak - objects + trainer.objective.programs.workspace.array.nbytes)

    trainer = Trainer(net, CrossEntropy(), Adam(1e-3), 64, shard=shard, grains=4, shuffle=False, prefetch=0,
                      progress="none", callbacks=[FunctionCallback(look)])  # fmt: skip
    tracemalloc.start()
    try:
        trainer.train(data, target, epochs=3)
    finally:
        tracemalloc.stop()
    split = next(
        s for s in DataParallelPlan(net, [(64, width)], Cluster(4), Adam).splits if (s.shard, s.grains) == (shard, 4)
    )
    whole = 4 * sum(param.size for param in net.params.values())
    assert found[0] == pytest.approx(split.memory, rel=0.15)
    assert found[0] < (2 if shard == "parameters" else 3) * whole  # of 4 for weights, their gradients and Adam alone


MEASURED = """
import gc, json, sys, time
import numpy as np, puregraph
from puregraph import Adam, CrossEntropy, Trainer
from puregraph.distributed import world
from puregraph.models import mlp
from puregraph.train import FunctionCallback
shard, grains, width = sys.argv[1] if sys.argv[1] != "nothing" else None, int(sys.argv[2]), int(sys.argv[3])
def status(name):
    return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
def run(width, steps):
    rng, times = np.random.default_rng(0), []
    def look(trainer):
        times.append(time.perf_counter())
        pages.append(status("RssShmem"))
    data, target = rng.standard_normal((64, width)).astype(np.float32), rng.integers(0, 10, 64)
    trainer = Trainer(mlp(width, (width,) * 6, 10), CrossEntropy(), Adam(1e-3), 64, shard=shard, grains=grains,
                      shuffle=False, progress="none",
                      callbacks=[FunctionCallback(look)])
    trainer.train(data, target, epochs=steps)
    return min(np.diff(times))
pages = []
run(64, 2)
gc.collect()
before, shared, pages = status("VmRSS"), status("RssShmem"), []
open("/proc/self/clear_refs", "w").write("5")
seconds = run(width, 4)
others = max(max(pages) - shared - int(sys.argv[4]), 0)  # pages of theirs that were read here
print(json.dumps([status("VmHWM") - before - others, seconds]))
"""


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "shard", "grains"), [(2, "nothing", 4), (4, "state", 4), (4, "gradients", 4), (4, "parameters", 4)]
)
def test_each_process_takes_the_memory_that_was_planned(tmp_path, ranks, shard, grains):
    width = 896
    plan = DataParallelPlan(mlp(width, (width,) * 6, 10), [(64, width)], Cluster(ranks), Adam)
    split = next(s for s in plan.splits if (s.shard or "nothing", s.grains) == (shard, grains))
    whole = 4 * sum(param.size for param in plan.params)
    own = whole // ranks if shard == "parameters" else whole  # that all processes read: weights, or gradients
    given = MEASURED, shard, grains, width, own
    launched(ranks, tmp_path, *given)  # native code is then there: LLVM takes memory as well
    for line in lines(launched(ranks, tmp_path, *given)):
        taken, _ = json.loads(line)
        assert taken == pytest.approx(split.memory, rel=0.2), (taken, split.memory)


PIPELINE = """
import gc, json, sys, tracemalloc
import numpy as np
from rankpool import patch
from puregraph import Adam, CrossEntropy, Trainer
from puregraph.distributed import Cluster, world
from puregraph.models import mlp
from puregraph.distributed.pipeline import PipelineStep, PipelinePlan
run, width = PipelineStep.learnAll, int(sys.argv[1])
def look(self):
    if self.trainer.step == 2:
        gc.collect()
        tracemalloc.reset_peak()
    if self.trainer.step == 3:
        peak = tracemalloc.get_traced_memory()[1]
        python = tracemalloc.DomainFilter(False, np.lib.tracemalloc_domain)
        objects = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([python]).traces)
        programs = [program for each in self.pipeline.passes.values() for program in each.programs.values()]
        window = 0 if self.weights is None else self.weights.window.own.nbytes
        found.append(peak - objects + sum(program.workspace.array.nbytes for program in programs) + window)
    run(self)
patch(PipelineStep, "learnAll", look)
data, target = np.ones((64, width), np.float32), np.arange(64) % 10
for way in sys.argv[2:]:
    stages, shard = int(way[0]), way[1:] or None
    net, found = mlp(width, (width,) * 6, 10), []
    plan = PipelinePlan(net, [(64, width)], Cluster(world().size), Adam).split(stages, shard, 8)
    tracemalloc.start()
    Trainer(net, CrossEntropy(), Adam(1e-3), 64, shard=shard, stages=stages, grains=8, shuffle=False, prefetch=0,
            progress="none").train(data, target, epochs=4)
    tracemalloc.stop()
    row = [way, world().rank, *found, plan.of(world().rank), plan.most]
    sys.stdout.write(json.dumps(row) + "\\n")  # at once: others write as well
"""


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "width", "ways"),
    [
        (3, 192, ("2parameters",)),
        pytest.param(4, 384, ("2", "2state", "2gradients", "2parameters", "4", "4parameters"), marks=pytest.mark.slow),
        pytest.param(6, 256, ("2parameters", "3parameters"), marks=pytest.mark.slow),
    ],
)
def test_each_process_of_a_pipeline_takes_the_memory_that_was_planned(tmp_path, ranks, width, ways):
    """Counted are the arenas of its programs, its piece of the weights, and all arrays of numpy, at the peak of a step."""
    found = [json.loads(line) for line in lines(ran(ranks, tmp_path, PIPELINE, width, *ways))]
    assert len(found) == ranks * len(ways)
    for way, rank, taken, planned, most in found:
        assert taken == pytest.approx(planned, rel=0.08 if "parameters" in way else 0.15), (way, rank)
        assert planned <= most


def test_a_plan_for_a_hundred_thousand_processes_takes_no_memory_and_says_what_is_waited():
    cluster = Cluster(100_000, LinkSpeed(25e9, 5e-6), node=8, flops=1e14, bandwidth=1e12, memory=80e9)
    plan = DataParallelPlan(mlp(4096, (16384, 16384), 10), [(200_000, 4096)], cluster, Adam)
    best = plan.best
    assert best.memory < 80e9
    assert best.seconds == pytest.approx(best.compute + best.update + sum(call.seconds for call in best.calls))
    assert f"{100 * best.exchange / best.seconds:.0f} %  best" in plan.table()


def test_a_split_that_is_slower_than_one_process_alone_says_so():
    net = Sequential(Linear(256, 256, name="fc"), name="net")
    slow = DataParallelPlan(net, [(8, 256)], Cluster(4, LinkSpeed(1e6, 1e-2)), Adam)
    assert slow.alone.seconds < slow.best.seconds
    times = f"{slow.best.seconds / slow.alone.seconds:.2g}"
    assert f": {times} times as fast as the best split; train without the others" in slow.table()
    fast = DataParallelPlan(net, [(4096, 256)], Cluster(4, LinkSpeed(1e11, 1e-7), flops=1e9), Adam)
    assert "one process alone: a step of " in fast.table() and "times as fast" not in fast.table()
    small = DataParallelPlan(net, [(8, 256)], Cluster(4, LinkSpeed(1e6, 1e-2), memory=slow.alone.memory - 1), Adam)
    assert "too large" in small.table().split("one process alone: ")[1].splitlines()[0]
    assert DataParallelPlan(net, [(8, 256)], Cluster(1), Adam).alone is None


def test_what_is_divided_takes_less_memory_and_what_does_not_fit_is_never_the_best():
    net = mlp(256, (256, 256), 10)
    free = DataParallelPlan(net, [(64, 256)], Cluster(4), Adam)
    by = {(split.shard, split.grains): split for split in free.splits}
    assert by["state", 4].memory < by[None, 4].memory
    assert by[None, 8].memory > by[None, 4].memory  # one more array for sums
    least = min(split.memory for split in free.splits)
    assert DataParallelPlan(net, [(64, 256)], Cluster(4, memory=least), Adam).best.memory == least
    small = DataParallelPlan(net, [(64, 256)], Cluster(4, memory=least - 1), Adam)
    assert small.best is None and small.table().endswith("none of them fits")


def test_an_optimizer_takes_what_it_keeps():
    sizes = [
        DataParallelPlan(network(), [(24, 10)], Cluster(1), kind).splits[0].memory for kind in (SGD, MomentumSGD, Adam)
    ]
    weights = 4 * sum(param.size for param in network().params.values())
    assert np.diff(sizes).tolist() == [weights, weights]


def test_machines_that_share_a_link_get_their_part_of_it():
    link = LinkSpeed(8e9, 1e-6)
    assert Cluster(16, link).share == link
    assert Cluster(8, link, node=8).share == link  # one machine
    assert Cluster(64, link, node=8).share.bandwidth == pytest.approx(8e9 / 8 / (56 / 63))


def test_a_link_is_fitted_to_what_was_measured():
    link = LinkSpeed(1e9, 3e-6)
    times = {n: 2 * link.latency + n / link.bandwidth for n in (1000, 10_000, 1_000_000)}
    found = linkFrom(times)
    assert found == pytest.approx(link)


def test_pipelines_are_planned_for_numbers_of_stages_that_divide_processes_and_network():
    counts = {
        n: {each.stages for each in PipelinePlan(mlp(8, (8, 8), 4), [(24, 8)], Cluster(n), Adam).splits} for n in (6, 7)
    }
    assert counts == {6: {2, 3, 6}, 7: set()}
    plan = PipelinePlan(Sequential(Linear(8, 8)), [(24, 8)], Cluster(2), Adam)
    assert plan.best is None and plan.table().endswith("no number of them up to 8 divides network and 2 processes")


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(ArgumentError, match="a batch of 2 cannot be divided among 4 processes"):
        DataParallelPlan(network(), [(2, 10)], Cluster(4), Adam)
    with pytest.raises(ArgumentError, match="wanted the shapes of one whole batch, in numbers"):
        DataParallelPlan(network(), [("N", 10)], Cluster(4), Adam)
    with pytest.raises(ShapeError, match="11"):
        DataParallelPlan(network(), [(24, 11)], Cluster(4), Adam)
    with pytest.raises(ArgumentError, match="flops: wanted a finite number above 0, got 0"):
        DataParallelPlan(network(), [(24, 10)], Cluster(4, flops=0), Adam)
    with pytest.raises(ArgumentError, match="node: wanted a whole number of processes of at least 1, got 0"):
        DataParallelPlan(network(), [(24, 10)], Cluster(4, node=0), Adam)


def test_the_command_prints_the_plan_of_a_model(capsys):
    arguments = ["plan", MODEL, "64,1,28,28", "--ranks", "4", "--memory", "1e9", "--optimizer", "SGD"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "a batch of 64 on 4 processes" in printed and printed.count("  least\n") == 1
    assert main([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["shard"] for row in rows["splits"]} == {None, "state", "gradients", "parameters"}
    assert rows["splits"][0]["calls"][0]["name"] == "allToAll"
    assert {row["data"] * row["tensor"] * row["stages"] for row in rows["mixes"]} == {4}
    assert {(row["stages"], len(row["memory"])) for row in rows["pipelines"]} == {(2, 2), (4, 4)}
    assert main([*arguments[:5], "--memory", "1000"]) == 1


def test_the_command_refuses_what_it_cannot_read(capsys):
    for arguments, wanted in [
        (["plan"], "wanted a script that trains, or a model and the shapes of a batch, or --measure"),
        (["plan", MODEL, "64,1,28,28", "--link", "fast"], "--link: wanted two numbers with a comma between them"),
        (["plan", MODEL, "64,1,28,28", "--optimizer", "Adams"], "there is no optimizer 'Adams'"),
        (["plan", MODEL, "64,1,28,28", "--ranks", "65"], "a batch of 64 cannot be divided among 65 processes"),
        (
            ["plan", MODEL, "64,1,28,28", "--ranks", "2.5"],
            "ranks: wanted a whole number of processes of at least 1, got",
        ),
        (
            ["plan", MODEL, "64,1,28,28", "--ranks", "inf"],
            "ranks: wanted a whole number of processes of at least 1, got",
        ),
        (
            ["plan", MODEL, "64,1,28,28", "--ranks", "-2"],
            "ranks: wanted a whole number of processes of at least 1, got",
        ),
        (["plan", MODEL, "64,1,28,28", "--flops", "-1e9"], "flops: wanted a finite number above 0, got -1"),
        (["plan", MODEL, "64,1,28,28", "--node", "2.5"], "node: wanted a whole number of processes of at least 1, got"),
        (["plan", MODEL, "64,1,28,28", "--node", "0"], "node: wanted a whole number of processes of at least 1, got 0"),
        (["plan", MODEL, "64,1,28,28", "--flops", "inf"], "flops: wanted a finite number above 0, got inf"),
        (["plan", MODEL, "64,1,28,28", "--bandwidth", "nan"], "bandwidth: wanted a finite number above 0, got nan"),
        (["plan", MODEL, "64,1,28,28", "--memory", "nan"], "memory: wanted a number of bytes above 0, or inf for any"),
        (["plan", MODEL, "64,1,28,28", "--link", "inf,0"], "link: wanted a finite number above 0, got inf"),
        (
            ["plan", MODEL, "64,1,28,28", "--link", "1e9,nan"],
            "link: wanted a finite latency of at least 0 seconds, got",
        ),
    ]:
        assert main(arguments) == 2
        assert wanted in capsys.readouterr().err


@pytest.mark.mpi
def test_two_processes_measure_the_figures_of_this_machine():
    run = [sys.executable, "-m", "puregraph", "plan", "--measure"]
    done = subprocess.run(run, env=environment(PUREGRAPH_DEVICE="cpu"), capture_output=True, text=True, timeout=100)
    words = lines(done)[0].split()
    assert words[::2] == ["--link", "--flops", "--bandwidth"]
    assert main(["plan", MODEL, "64,1,28,28", "--ranks", "4", *words]) == 0
