"""Running lists of native Work in tests: every array given as a slot, tasks dealt out to some threads."""

import ctypes
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from puregraph import native
from puregraph.native import machine
from puregraph.native.code import Code

SOURCES = sorted(Path(native.__file__).parent.glob("*.py"))
DIGEST = hashlib.sha1(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()


def compiled(work):
    """The function of a Work and the bytes of scratch it wants."""

    def make():
        code = Code()
        work.write(code)
        assert set(code.slots) <= set(work.slots), (code.slots, work.slots)
        return code.text(), code.slots, code.scratchBytes

    library = machine.load(work.key, make, DIGEST)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(library.address)
    return function, library.names, library.scratch


def bound(work):
    """A function of (first task, step) that runs tasks of a Work."""
    function, names, scratch = compiled(work)
    values = [work.slots[name] for name in names]
    args = np.array([v.ctypes.data if isinstance(v, np.ndarray) else int(v) for v in values], np.int64)

    def run(first=0, step=1):
        room = np.full(scratch + 64, 0xFF, np.uint8)
        start = room.ctypes.data + -room.ctypes.data % 64
        for task in range(first, work.tasks, step):
            function(args.ctypes.data, task, start)

    run.keep = args, values
    return run


def run(works, threads=1):
    """Run the works one after the other."""
    with ThreadPoolExecutor(threads) as pool:
        for work in works:
            list(pool.map(bound(work), range(threads), [threads] * threads))


def last(x):
    """NCHW as an array with channels last in memory: (n, *spatial, c)."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def first(x):
    """The other way."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))
