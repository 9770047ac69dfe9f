"""Running native kernels one by one, on Python's own threads."""

import ctypes
import random
import threading

import numpy as np
import pytest

from puregraph.native import machine
from puregraph.native.code import Code

needsNative = pytest.mark.skipif(not machine.available(), reason=str(machine.missing()))
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
LINE = 64


def slotOf(value):
    return value.ctypes.data if isinstance(value, np.ndarray) else int(value)


def load(write):
    """The compiled function, with its slots and scratch bytes, of what `write` writes."""
    code = Code()
    write(code)
    text = code.text()
    return machine.load(f"{code.scratchBytes} {text}", lambda: (text, code.slots, code.scratchBytes))


def run(works, threads=1, shuffled=False):
    """Run each step in turn, its tasks on some threads, in a random order if wanted."""
    for work in works:
        library = load(work.write)
        assert set(library.names) == set(work.slots), (library.names, work.slots)
        slots = np.array([slotOf(work.slots[name]) for name in library.names], dtype=np.int64)
        tasks = list(range(work.tasks))
        if shuffled:
            random.Random(7).shuffle(tasks)
        each(ENTRY(library.address), slots, tasks, library.scratch, threads)


def each(kernel, slots, tasks, scratch, threads):
    queue = iter(tasks)
    lock = threading.Lock()

    def walk():
        room = np.full(scratch + LINE, 0xFF, dtype=np.uint8)  # nan, whatever is read before it is written
        start = -(-room.ctypes.data // LINE) * LINE
        while True:
            with lock:
                task = next(queue, None)
            if task is None:
                return
            kernel(slots.ctypes.data, task, start)

    if threads == 1:
        return walk()
    workers = [threading.Thread(target=walk) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
