"""A stand-in for NCCL below the real binding of CuPy, with memory of the host: for tests on machines without a GPU."""

import os
import subprocess
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from weakref import WeakSet

import fakecupy
from fakecupy import FakeArray, byAddress

from puregraph.distributed import world
from puregraph.distributed.worlds import mpiworld

SOURCE = Path(__file__).with_name("standinnccl.cpp")
FLAGS = ("-std=c++17", "-O0", "-Wall", "-Werror", "-shared", "-fPIC", "-pthread")
PAUSES, PAUSE = 50, 2e-3  # how often, and how long, a host waits before its GPU does what it was given
MOVING = "allReduce reduce reduceScatter allGather broadcast bcast send recv".split()


def built(folder):
    """A folder with the library, made from its source."""
    library = Path(folder) / "libnccl.so.2"
    subprocess.run(["g++", *FLAGS, "-o", str(library), str(SOURCE), "-lrt"], check=True)
    return str(library.parent)


def variables(folder, **more):
    """The environment of processes that find the library there."""
    known = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, (folder, known))), **more}


class DeferredCommunicator:
    """A communicator of the real binding whose calls are done when their stream comes to them, or at each launch of the
    graph that captured them. A graph that has them must be gone before it is."""

    def __init__(self, size, name, rank):
        self.real = binding().NcclCommunicator(size, name, rank)
        self.graphs = WeakSet()

    def __getattr__(self, name):
        if name not in MOVING:
            return getattr(self.real, name)
        return lambda *given: put([(self, partial(getattr(self.real, name), *given[:-1], 0), given[-1])])

    def destroy(self):
        if self.graphs:
            raise RuntimeError(f"ncclCommDestroy waits for ever: {len(self.graphs)} graphs have its calls")
        self.real.destroy()


def binding():
    """The module that `cupy.cuda.nccl` takes its names from."""
    from cupy_backends.cuda.libs import nccl

    return nccl


def put(calls):
    """Put calls on their stream, as one group if there are several; within an open group, later."""
    if OPEN:
        OPEN[-1].extend(calls)
        return

    def action():
        nccl = binding()
        nccl.groupStart()
        for _, call, _ in calls:
            call()
        nccl.groupEnd()

    action.communicators = [communicator for communicator, _, _ in calls]
    streams = {stream for _, _, stream in calls}
    assert len(streams) == 1, "a group on several streams"
    FakeArray.machine.do(action, byAddress(streams.pop()))


OPEN = []


def groupEnd():
    calls = OPEN.pop()
    if calls:
        put(calls)


def working(wait):
    """What has the GPU go on while the host waits for other processes: they may wait for what it has to give."""

    def waits(self):
        for _ in range(PAUSES):
            if self.isDone():
                break
            time.sleep(PAUSE)
        else:
            FakeArray.machine.finish()
        wait(self)

    return waits


def useNccl(monkeypatch, cupy):
    """Give a fake CuPy the real binding of NCCL, and this process a GPU of its own."""
    monkeypatch.setattr(mpiworld.MpiPending, "wait", working(mpiworld.MpiPending.wait))
    monkeypatch.setattr(fakecupy.Ordinal, "pci_bus_id", f"0000:{world().rank:02}:00.0")
    nccl = binding()
    cupy.cuda.nccl = SimpleNamespace(
        available=True,
        NcclCommunicator=DeferredCommunicator,
        NcclError=nccl.NcclError,
        get_unique_id=nccl.get_unique_id,
        get_version=nccl.get_version,
        groupStart=lambda: OPEN.append([]),
        groupEnd=groupEnd,
    )
    return cupy


class HostStream:
    """A stream of what is done at once."""

    ptr = 0

    def __init__(self, **options):
        self.isCaptured = False

    def __enter__(self):
        return self

    def __exit__(self, *fault):
        pass

    def wait_event(self, event):
        pass

    def is_capturing(self):
        return self.isCaptured


class HostEvent:
    """An event that has come."""

    done = True

    def __init__(self, **options):
        pass

    def record(self, stream=None):
        pass


def useHostStreams(monkeypatch):
    """Give the real CuPy, where there is no driver, streams on which calls of NCCL are done at once; the current one."""
    import cupy
    import cupy.cuda.nccl

    current = HostStream()
    monkeypatch.setattr(cupy.cuda, "Stream", HostStream)
    monkeypatch.setattr(cupy.cuda, "Event", HostEvent)
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: current)
    monkeypatch.setattr(cupy.cuda, "Device", lambda: SimpleNamespace(synchronize=lambda: None))
    return current


def onHost(values):
    """An array of the real CuPy in the memory of one of numpy."""
    import cupy

    memory = cupy.cuda.UnownedMemory(values.ctypes.data, values.nbytes, values, 0)
    return cupy.ndarray(values.shape, values.dtype, cupy.cuda.MemoryPointer(memory, 0))
