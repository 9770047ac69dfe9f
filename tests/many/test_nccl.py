"""Processes with a GPU each, on a machine without one: a stand-in for NCCL below CuPy's real binding of it.

What is exchanged is compared with MPI; what would wait for ever is told. `tests/lib/standinnccl.cpp` is the library.
"""

import json
import os
import re
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import recipes
import standinnccl
from fakecupy import CaptureError, useGpu
from launched import launched, lines

from puregraph import CrossEntropy
from puregraph.compile import Program, gradientbuckets, withCost
from puregraph.compile.gpu.runtime.capture import Section
from puregraph.compile.gradientbuckets import BucketStart, GradientBuckets, backwardOrder
from puregraph.core import device
from puregraph.distributed import CountingWorld, Grains, TreeSum, World
from puregraph.distributed.collectives.treesum import UNCUT_ELEMENTS
from puregraph.distributed.dataparallel import DeviceExchange
from puregraph.distributed.nccl import devicetreesum
from puregraph.distributed.nccl.agreedcall import REFUSED
from puregraph.distributed.nccl.devicetreesum import DeviceTreeSum
from puregraph.distributed.nccl.ncclchoice import obstacle
from puregraph.distributed.nccl.visiblegpu import takeOwnGpu
from puregraph.models import mlp
from puregraph.ops.cuda.runtime.sidestream import SideStream

several = [pytest.mark.mpi, pytest.mark.cupy, pytest.mark.emulator]


def processes(test):
    """Marks a test that starts processes, which g++, MPI and CuPy are needed for."""
    for mark in several:
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The environment in which the stand-in is found."""
    return standinnccl.variables(standinnccl.built(tmp_path_factory.mktemp("nccl")))


# Collectives -------------------------------------------------------------------------------------------------------------

COLLECTIVES = """
import warnings
import ml_dtypes, numpy as np, pytest
from standinnccl import onHost, useHostStreams
from puregraph.distributed import NcclWorld, world
from puregraph.core.errors import PuregraphError

current = useHostStreams(pytest.MonkeyPatch())
import cupy
host = world()
w = NcclWorld(host)
n, r, size = w.size, w.rank, 96
cuts = {"even": [size // n * k for k in range(n)] + [size], "uneven": [0, 5, 5][:n] + [size]}

def near(make, dtype):
    "An array of the host, and one of the GPU, with the same numbers."
    values = make.astype(dtype)
    return values.copy(), onHost(values.copy())

def same(there, here):
    found = np.ndarray(here.shape, here.dtype, (np.ctypeslib.as_array(
        (np.ctypeslib.ctypes.c_uint8 * here.nbytes).from_address(there.data.ptr))).data)
    assert found.tobytes() == here.tobytes(), (found, here)

for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int64):
    wide = np.int64 if dtype is np.int64 else np.float64  # MPI adds no numbers of 16 bits; these sums are exact
    numbers = np.arange(size) % 20 + r
    here, there = near(numbers, dtype)
    total = numbers.astype(wide)
    host.allReduce(total)
    pending = w.startAllReduce(there)
    pending.wait()
    assert pending.isDone()
    same(there, total.astype(dtype))
    for bounds in cuts.values():
        begin, end = bounds[r : r + 2]
        here, there = near(numbers, dtype)
        part = numbers.astype(wide)
        host.reduceScatter(part, bounds)
        w.reduceScatter(there, bounds)
        same(there[begin:end], part[begin:end].astype(dtype))
        here, there = near(np.where((np.arange(size) >= begin) & (np.arange(size) < end), numbers, 0), dtype)
        host.allGather(here, bounds)
        w.allGather(there, bounds)
        same(there, here)
    for root in range(n):
        here, there = near(numbers, dtype)
        host.broadcast(here, root)
        w.broadcast(there, root)
        same(there, here)
    sent = [near(np.arange(k + 2) + 10 * r, dtype) for k in range(n)]
    received = [near(np.zeros(r + 2), dtype) for k in range(n)]
    host.allToAll([x for x, _ in sent], [x for x, _ in received])
    w.allToAll([x for _, x in sent], [x for _, x in received])
    for here, there in received:
        same(there, here)
    here, there = near(numbers, dtype)
    if r == 0:
        host.send(here, n - 1), w.send(there, n - 1)
    if r == n - 1:
        host.receive(here, 0), w.receive(there, 0)
    same(there, here)
x = np.ones(3, np.float32)
w.allReduce(x)  # on the host: by MPI
assert (x == n).all() and w.gather(bytes([r])) == [bytes([k]) for k in range(n)]

def told(text, call):
    with pytest.raises(PuregraphError) as caught:
        call()
    assert text in str(caught.value), str(caught.value)

x = onHost(np.zeros(1000 + (r == 1), np.float32))
told("GPUs: rank 0: allReduce of 1,000 float32; rank 1: allReduce of 1,001 float32", lambda: w.allReduce(x))
y = onHost(np.zeros(8, np.float64 if r == 1 else np.float32))
told("rank 0: broadcast of 8 float32 from rank 0; rank 1: broadcast of 8 float64", lambda: w.broadcast(y))
told("rank 0: allReduce of 8 float32; rank 1: broadcast of 8 float64", lambda: (w.broadcast if r else w.allReduce)(y))
if r < 2:
    told("send and receive of 1,000 float32", lambda: (w.receive if r else w.send)(x, 1 - r))
told("wanted an array of float16", lambda: w.allReduce(onHost(np.zeros(4, np.int8))))
told("contiguous", lambda: w.allReduce(onHost(np.zeros((4, 4), np.float32)).T))
current.isCaptured = True
told(f"allReduce of {x.size:,} float32: rank {r} captures it alone; all processes", lambda: w.allReduce(x))
current.isCaptured = False

class Holder:
    graph = "a graph"
    def drop(self):
        self.graph = None

class Silent:
    "NCCL on a stream that captures: nothing is done yet."
    def __getattr__(self, name):
        return lambda *given: None

comm, w.communicator = w.communicator, Silent()
holder = Holder()
def capture():
    with w.capturing(holder):
        w.startAllReduce(onHost(np.zeros(8 + r % 2, np.float32))).wait()
told("captured different graphs, which would wait for ever: rank 0: allReduce of 8 float32; rank 1: allReduce of 9", capture)
assert holder.graph is None
def alone():
    if r == 0:
        with w.capturing(holder):
            w.allReduce(y)
    else:
        w.allReduce(y)
told("rank 0: begins to capture a graph; rank 1: allReduce of 8 float64", alone)
with w.capturing(Holder()) as failing:
    failing.why = "no memory" if r == 1 else ""
assert failing.why == ("no memory" if r == 1 else "rank 1 could not capture")
holder.graph, z = "another one", onHost(np.zeros(8, np.float32))
with w.capturing(holder):
    w.startBroadcast(z).wait()
    told("cannot be closed while a stream captures", w.close)
w.communicator = comm
w.close()
assert holder.graph is None  # graphs go before the communicator
told("the NCCL communicator of this world is closed, and so are its graphs", lambda: w.allReduce(y))

# What the stand-in itself says: that it would see what gets past the world.
raw = cupy.cuda.nccl
name = raw.get_unique_id() if r == 0 else b""
comm = raw.NcclCommunicator(n, w.gather(name)[0], r)
try:
    comm.allReduce(x.data.ptr, x.data.ptr, x.size, raw.NCCL_FLOAT32, raw.NCCL_SUM, 0)
    said = "nothing"
except raw.NcclError as error:
    said = str(error)
assert ("rank 0 has allReduce of 1000 float32" in said or "rank 1 has allReduce of 1001 float32" in said
        or "a process has aborted the communicator" in said), said
w.barrier()
print("fine")
"""


@processes
@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_collectives_of_nccl_give_what_mpi_gives_and_bad_use_is_told(count, library, tmp_path):
    assert lines(launched(count, tmp_path, COLLECTIVES, **library)) == ["fine"] * count


LATE = """
import os, signal, sys, time, pytest, numpy as np
from standinnccl import onHost, useHostStreams
from puregraph.distributed import NcclWorld, world

useHostStreams(pytest.MonkeyPatch())
w = NcclWorld(world())
w.label = "epoch 1, batch 2"
x = onHost(np.zeros(8, np.float32))
w.allReduce(x)

class Late:
    "A rank that has said what it will do, and does not do it."
    def allReduce(self, *given):
        if sys.argv[1] == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        comm.abort()
        time.sleep(1000)

comm = w.communicator
if w.rank == 1:
    w.communicator = Late()
w.allReduce(x)
print("never")
"""


@processes
@pytest.mark.parametrize(
    ("how", "said"),
    [
        pytest.param(
            "stopped",
            r"rank 0 of 2 has waited \d.* in collective 2 \(on the GPU, epoch 1, batch 2\): rank 1 has been silent",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "failed",
            r"rank 0 of 2 has ended the run.*NCCL has failed: .*aborted the communicator",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_rank_that_does_not_come_to_a_collective_on_the_gpu_is_told(how, said, library, tmp_path):
    done = launched(2, tmp_path, LATE, how, **library, PUREGRAPH_PATIENCE="4")
    assert done.returncode != 0
    assert re.search(said, done.stderr), done.stderr
    assert "never" not in done.stdout


# Training ---------------------------------------------------------------------------------------------------------------

TRAINING = """
import hashlib, json, sys
from pathlib import Path
import numpy as np, pytest
import recipes
from fakecupy import FakeArray, useGpu
from standinnccl import useNccl
from puregraph import device
from puregraph.compile import gradientbuckets
from puregraph.compile.gpu.runtime.capture import Section
from puregraph.distributed import world

late, epochs, *names = json.loads(sys.argv[1])
gradientbuckets.MIN_BUCKET_BYTES, gradientbuckets.TYPICAL_BUCKETS = 64, 1000  # bytes: many buckets of small networks
patch = pytest.MonkeyPatch()
useNccl(patch, useGpu(patch, late=late))
read, get = [], FakeArray.get
patch.setattr(FakeArray, "get", lambda self, *given, **named: read.append(self.shape) or get(self, *given, **named))
found = {}
for name in names:
    trainer, data, target = recipes.RECIPES[name](progress="lines")
    del read[:]
    trainer.train(data, target, epochs=epochs)
    shapes = [param.shape for param in trainer.net.params.values() if param.data.ndim > 1]
    assert sum(shape in shapes for shape in read) <= len(shapes)  # weights, compared before the first step; no gradient
    weights = {path: device.toHost(each.data) for path, each in sorted({**trainer.net.params, **trainer.net.states}.items())}
    np.savez(f"{name}-{world().rank}.npz", **weights)
    whole = hashlib.sha256(b"".join(each.tobytes() for each in weights.values())).hexdigest()
    sections = [part for program in trainer.objective.programs.kept.values()
                for _, part in program.executable.parts if type(part) is Section]
    assert not any(section.why for section in sections), [section.why for section in sections]
    together = [section for section in sections if section.exchange is not None and section.graph is not None]
    found[name] = [whole, trainer.history.column("loss"), len(together)]
    tables = [program.table() for program in trainer.objective.programs.kept.values()]
Path(f"rank-{world().rank}.json").write_text(json.dumps([found, tables]))
"""


def trained(count, folder, library, *given):
    """What processes have learnt on their GPUs: by recipe the hash, the losses, how many graphs exchange."""
    done = launched(count, folder, TRAINING, json.dumps(given), timeout=280, **library)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(count)]
    if count > 1:
        assert f"{count} processes exchange gradients by NCCL 2.27.7, from GPU to GPU" in done.stdout
    return rows


def isLearntAsOnTheCpu(folder, rows, name, epochs):
    """Whether weights, states and losses are those of the CPU, whose bits do not depend on the number of processes."""
    trainer, data, target = recipes.RECIPES[name]()
    trainer.train(data, target, epochs=epochs)
    assert len({found[name][0] for found, _ in rows}) == 1
    with np.load(folder / f"{name}-0.npz") as there:
        for path, each in {**trainer.net.params, **trainer.net.states}.items():
            np.testing.assert_allclose(there[path], each.data, rtol=1e-4, atol=3e-6)
    np.testing.assert_allclose(rows[0][0][name][1], trainer.history.column("loss"), rtol=1e-4)


@processes
def test_three_processes_learn_on_their_gpus_what_they_learn_by_mpi(library, tmp_path):
    rows = trained(3, tmp_path, library, "null first", 2, "perceptron")
    isLearntAsOnTheCpu(tmp_path, rows, "perceptron", 2)
    for found, tables in rows:
        assert found["perceptron"][2] >= 1  # graphs with exchanges inside of them
        (table,) = [each for each in tables if "bucket 2" in each][:1]
        starts = [line.split() for line in table.splitlines() if "gradients are sent" in line]
        assert len(starts) >= 3 and all(line[-2:] == ["NCCL", "1"] for line in starts)  # in the first graph
        assert "bucket 1: 256 bytes, allToAll + allGather in " in table


NAMES = ("perceptron", "accumulated", "convolutional")


@pytest.fixture(scope="module")
def alone(library, tmp_path_factory):
    """What one process learns on its GPU."""
    folder = tmp_path_factory.mktemp("alone")
    rows = trained(1, folder, library, "", 2, *NAMES)
    for name in NAMES:
        isLearntAsOnTheCpu(folder, rows, name, 2)
    return {name: rows[0][0][name][0] for name in NAMES}


@processes
@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("late", ["", "null first", "null last"])
def test_results_on_gpus_do_not_depend_on_the_number_of_processes_or_on_the_order_on_streams(
    count, late, alone, library, tmp_path
):
    for found, _ in trained(count, tmp_path, library, late, 2, *NAMES):
        assert {name: found[name][0] for name in NAMES} == alone


# What takes no other process ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 8])
def test_a_stack_of_rows_makes_the_parts_of_the_tree_that_each_process_has(count, monkeypatch):
    monkeypatch.setattr(devicetreesum, "made", lambda size, dtype: None)
    for size in range(1, count + 1):
        for rank in range(size):
            world = CountingWorld(size, rank)
            tree = DeviceTreeSum(world, Grains(count, world), np.dtype(np.float32), [0, 64])
            rows = [()] * tree.depth
            for grain in tree.grains.own:
                rows[tree.positions[grain]] = (grain, grain + 1)
                for left, right in tree.merges[grain]:
                    assert rows[left][1] == rows[right][0]
                    rows[left] = (rows[left][0], rows[right][1])
            spans = tree.spans[rank]
            assert rows[: len(spans)] == spans and tree.height == len(spans)


@pytest.mark.emulator
def test_a_process_alone_adds_grains_on_its_gpu_as_on_the_host_to_the_bit(monkeypatch, rng):
    leaves = rng.standard_normal((8, 1001)).astype(np.float32)
    host = TreeSum(World(), Grains(8, World()), 1001, np.dtype(np.float32))
    wanted = host.reduce(host.own(lambda grain, into: np.copyto(into, leaves[grain])))
    useGpu(monkeypatch)
    tree = DeviceTreeSum(World(), Grains(8, World()), np.dtype(np.float32), [0, 1001])
    for grain in range(8):
        tree.rows[tree.positions[grain]][...] = device.toDevice(leaves[grain])
        tree.merge(grain, 0, 1001)
    tree.exchange(0)
    np.testing.assert_array_equal(device.toHost(tree.total), wanted)


@pytest.mark.emulator
def test_on_a_gpu_buckets_start_all_along_backward_within_one_graph(monkeypatch):
    useGpu(monkeypatch)
    monkeypatch.setattr(gradientbuckets, "MIN_BUCKET_BYTES", 64)
    monkeypatch.setattr(gradientbuckets, "TYPICAL_BUCKETS", 1000)
    net = mlp(64, (32,) * 5, 10)
    net.trainMode()
    buckets = GradientBuckets(backwardOrder(net, list(net.params.values())), 4, UNCUT_ELEMENTS)
    buckets.device = SimpleNamespace(join=lambda: None)
    options = {"grads": "one", "updGrad": False, "guarded": True, "scaled": True, "buckets": buckets}
    program = Program(withCost(net, CrossEntropy(), 1, 1, False), [(16, 64), (16,)], None, True, **options)
    calls = program.plan.schedule.calls
    starts = [i for i, call in enumerate(calls) if type(call.function) is BucketStart]
    assert len(starts) > 5 and starts[0] < 0.5 * len(calls) and starts[len(starts) // 2] < 0.8 * len(calls)
    (section,) = [part for _, part in program.executable.parts if type(part) is Section]
    assert section.exchange is buckets.device and section.starts[-1] is section.exchange.join


class Scripted:
    """A world in which the others give the numbers that a test says."""

    size, rank = 3, 0

    def __init__(self, *others):
        self.others = list(others)

    def agree(self, call, number):
        return [number, *self.others.pop(0)]

    def capturing(self, section):
        return nullcontext(SimpleNamespace(why=""))

    def underway(self):
        return nullcontext()


@pytest.mark.parametrize(
    ("has", "others", "done"),
    [
        (2, (2, 2), ["launch"]),  # all have the same
        (2, (2, 0), ["drop", "start", "capture"]),  # one has none
        (2, (2, 1), ["drop", "start", "capture"]),  # one has another one
        (0, (0, 0), ["drop", "start", "capture"]),
        (2, (2, REFUSED), ["drop", "start"]),  # one can have none: nobody has one
    ],
)
def test_a_graph_is_launched_by_all_processes_or_by_none(has, others, done):
    seen = []
    section = Section()
    section.version, section.graph = has, SimpleNamespace(launch=lambda: seen.append("launch")) if has else None
    for name in ("drop", "start", "capture"):
        setattr(section, name, partial(seen.append, name))
    exchange = object.__new__(DeviceExchange)
    exchange.world, exchange.version, exchange.started = Scripted(others), 2, 0
    exchange.buckets = SimpleNamespace(groups=[[0]])
    exchange.run(section)
    assert seen == done
    assert section.version == (3 if "capture" in done else has)


@pytest.mark.emulator
def test_a_side_stream_is_captured_from_its_fork_to_its_join(monkeypatch):
    cuda = useGpu(monkeypatch).cuda
    side, stream, into = SideStream(), cuda.Stream(non_blocking=True), device.toDevice(np.zeros(4, np.float32))
    with stream:
        stream.begin_capture()
        side.fork()
        with side.stream:
            assert cuda.get_current_stream().is_capturing()
            into[...] = 1
        with pytest.raises(CaptureError, match="Unjoined"):
            stream.end_capture()
        stream.begin_capture()
        side.fork()
        with side.stream:
            into[...] = 2
        side.join()
        graph = stream.end_capture()
    graph.launch()
    assert device.toHost(into).tolist() == [2] * 4


def test_why_processes_do_not_use_nccl_is_said_in_a_sentence():
    assert obstacle(["gpu a of x", "gpu b of x"]) == ""
    assert obstacle(["gpu a of x", "cpu"]) == "rank 1 computes on the CPU"
    assert obstacle(["gpu a of x", "gpu a of x"]) == "rank 0 and rank 1 have the same gpu a of x"
    assert obstacle(["gpu a of x", "CuPy finds no NCCL"]) == "rank 1: CuPy finds no NCCL"


@pytest.mark.parametrize(
    ("given", "local", "locals", "seen"),
    [(None, 1, 2, "1"), (None, 5, 8, "1"), ("3,7", 1, 2, "7"), ("3", 1, 2, "3"), ("", 1, 2, ""), (None, 0, 1, None)],
)
def test_each_process_of_a_machine_sees_one_of_its_gpus(given, local, locals, seen, monkeypatch, tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "null"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    takeOwnGpu(local, locals, tmp_path)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == seen
