"""Running lists of native Work in tests: one by one, on Python's own threads, each task when chance wants it."""

import ctypes
import os
import random
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from puregraph.compile import verify
from puregraph.compile.runtime.segment import keyOf
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.irbuilder import IRBuilder

needsNative = pytest.mark.skipif(not jit.available(), reason=str(jit.missing()))
unverified = pytest.mark.skipif(
    verify.isOn(),
    reason="PUREGRAPH_VERIFY runs steps one by one on copies, and takes what is not finite as numpy has it",
)
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
LINE = 64
REALS = {4: "f32", 8: "f64"}  # kinds of floats in native code, by itemsize
TEXTS = {}  # of each key, for each CPU


def rounding(tolerance, dtype):
    """A tolerance of float32, in this dtype."""
    return tolerance if dtype.itemsize == 4 else 1e-8 * tolerance


@contextmanager
def compiledFor(cpu):
    """Kernels for a CPU by its name as LLVM knows it; None: this one."""
    with pytest.MonkeyPatch.context() as patch:
        if cpu:
            patch.setenv("PUREGRAPH_CPU", cpu)
        yield


def load(write, key=None):
    """The compiled function, with its slots and scratch bytes, of what `write` writes; equal keys write equal texts."""
    code = IRBuilder()
    write(code)
    text = f"{code.scratchBytes} {code.slots} {code.text()}"
    known = TEXTS.setdefault((key or text, os.environ.get("PUREGRAPH_CPU")), text)
    assert known == text, f"two kernels have the key {key}"
    return jit.load(text, lambda: (code.text(), code.slots, code.scratchBytes))


def aligned(size):
    """Bytes that start a cache line, all nan as floats, whatever is read before it is written."""
    raw = np.full(size + LINE, 0xFF, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size]


def run(works, threads=1):
    """The works one after the other, the tasks of each on some threads, in a random order."""
    for work in works:
        library = load(work.write, keyOf(work))
        assert set(library.names) <= set(work.slots), (library.names, work.slots)
        given = [work.slots[name] for name in library.names]
        slots = np.array([x.ctypes.data if isinstance(x, np.ndarray) else int(x) for x in given], np.int64)
        tasks = list(range(work.tasks))
        random.Random(7).shuffle(tasks)
        each(ENTRY(library.address), slots, tasks, library.scratch, threads)


def each(kernel, slots, tasks, scratch, threads):
    """Call a kernel for tasks, which threads take from a queue."""
    queue = iter(tasks)
    lock = threading.Lock()

    def walk():
        room = aligned(scratch)
        while True:
            with lock:
                task = next(queue, None)
            if task is None:
                return
            kernel(slots.ctypes.data, task, room.ctypes.data)

    workers = [threading.Thread(target=walk) for _ in range(threads - 1)]
    for worker in workers:
        worker.start()
    walk()
    for worker in workers:
        worker.join()


def strides(x):
    """In numbers, not bytes."""
    return tuple(step // x.itemsize for step in x.strides)


def last(x):
    """NCHW as an array with channels last in memory: (n, *spatial, c)."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def first(x):
    """The other way."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))
