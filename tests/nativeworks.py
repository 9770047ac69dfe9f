"""Running lists of native Work in tests: compiled for a CPU, tasks dealt to threads."""

import ctypes
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from puregraph.native import machine
from puregraph.native.code import Code


@contextmanager
def compiledFor(cpu):
    """Kernels for a CPU by its name as LLVM knows it; None: this one."""
    with pytest.MonkeyPatch.context() as patch:
        if cpu:
            patch.setenv("PUREGRAPH_CPU", cpu)
        yield


def compile(work):
    """(function, argument slots, bytes of scratch) of a Work."""
    code = Code()
    work.write(code)
    text = code.text()
    found = machine.load(work.key, lambda: (text, code.slots, code.scratchBytes), text)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    return kind(found.address), found.names, found.scratch


def aligned(count):
    """Floats that start a cache line, all nan."""
    raw = np.full(count + 32, np.nan, np.float32)
    start = -raw.ctypes.data % 64 // 4
    return raw[start : start + count]


def run(works, threads=1):
    """All tasks of each Work; each thread takes every so manyth, the last one first."""
    for work in works:
        function, names, scratch = compile(work)
        held = [work.slots[name] for name in names]
        args = np.array([x.ctypes.data if isinstance(x, np.ndarray) else x for x in held], np.int64)

        def walk(first, function=function, work=work, args=args, scratch=scratch):
            room = aligned(scratch // 4)
            for task in reversed(range(first, work.tasks, threads)):
                function(args.ctypes.data, task, room.ctypes.data)

        runners = [threading.Thread(target=walk, args=(first,)) for first in range(threads)]
        for runner in runners:
            runner.start()
        for runner in runners:
            runner.join()


def strides(x):
    """In numbers, not bytes."""
    return tuple(step // x.itemsize for step in x.strides)
