"""Segment: consecutive native steps on their arrays, as tables for the worker loop of the thread pool."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from puregraph.compile.memory.outputs import StepOutput
from puregraph.compile.runtime.buffers import Buffers
from puregraph.core.base.align import addressOf
from puregraph.ops.ir.value import Offset, Value
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import COMPILED, KernelCall
from puregraph.ops.native.threads import pool
from puregraph.ops.native.threads.batch import batched

FLOAT = np.dtype(np.float32)


class Segment:
    """Runs, when called, consecutive native steps on the arrays of a program.

    `steps`    the kernel calls of each step; calls of one step run at the same time
    `slots`    the arguments of all kernel calls, concatenated
    `kernels`  (code address, slots address, tasks) of each kernel call; `scratch`: bytes of scratch memory they need
    `patches`  (slots, index, Value, bytes) of every argument that is an address in an input or a StepOutput
    `gap`      bytes between the blocks of scratch memory, for guard bands
    """

    def __init__(self, steps: list[list[KernelCall]], memory: Buffers, gap: int = 0):
        self.steps, self.memory = [kept for step in steps if (kept := [w for w in step if w.tasks])], memory
        works = [w for step in self.steps for w in step]
        moving: list[tuple[int, Value, int]] = []
        keys = [keyOf(w) for w in works]
        makers = {key: maker(w, gap) for key, w in zip(keys, works)}
        libraries = dict(zip(makers, jit.compileAll(makers.items(), f"{DIGEST} gap {gap}" if gap else DIGEST)))
        COMPILED.update(w.key for w in works)
        begins, slots = [], [0]
        for work, key in zip(works, keys):
            begins.append(len(slots))
            for name in libraries[key].names:
                what = work.slots[name]
                slots.append(what if type(what) is int else self.slot(len(slots), what, moving))
        self.slots = np.array(slots, np.int64)
        self.patches = [(self.slots, *patch) for patch in moving]
        start, size = addressOf(self.slots), self.slots.itemsize
        self.kernels = [(libraries[k].address, start + size * i, w.tasks) for w, k, i in zip(works, keys, begins)]
        rows = iter(self.kernels)
        self.scratch = max((library.scratch for library in libraries.values()), default=0)
        records, self.words = [], list[Any]()
        for step in self.steps:
            record, words = batched([next(rows) for _ in step])
            records.append(record)
            self.words.append(words)
        self.table = pool.StepTable(records, self.scratch, keep=(self.slots, self.words))

    @property
    def works(self) -> list[KernelCall]:
        """The kernel calls of each step."""
        return [step[0] if len(step) == 1 else together(step) for step in self.steps]

    def slot(self, i: int, what: Any, moving: list[tuple[int, Value, int]]) -> int:
        """The number or address for a slot; an address that may change with each run is added to the patches."""
        if isinstance(what, (int, np.integer)):
            return int(what)
        if isinstance(what, np.ndarray):
            return addressOf(what)
        value, start = what if type(what) is Offset else (what, 0)
        root = value.root
        if root.role == "input" or isinstance(self.memory.plan.locations.get(root.number), StepOutput):
            moving.append((i, value, start))
        return self.memory.address(value) + start

    def __call__(self) -> None:
        self.table()


def together(step: list[KernelCall]) -> KernelCall:
    """Combine several kernel calls into one batch."""
    return step[0]._replace(name=f"{len(step)} x {step[0].name}", tasks=sum(w.tasks for w in step))


def keyOf(work: KernelCall) -> str:
    """The key of the code of a kernel call: its generator and arguments."""
    write, arguments = getattr(work.write, "func", work.write), getattr(work.write, "args", ())
    return f"{write.__module__}.{write.__qualname__} {arguments} {work.key}"


def maker(work: KernelCall, gap: int) -> Callable[[], tuple[str, Any, int]]:
    """The function that generates the code of a kernel call."""

    def make() -> tuple[str, Any, int]:
        code = IRBuilder(gap=gap)
        work.write(code)
        return code.text(), code.slots, code.scratchBytes

    return make


def digestOf(ops: Path) -> str:
    """A version of the code generators: a digest of their sources."""
    digest = hashlib.blake2b(digest_size=16)
    parts = ("native/**/*.py", "*/*.py", "*/native/**/*.py")
    for path in sorted(path for part in parts for path in ops.glob(part)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


DIGEST = digestOf(Path(jit.__file__).parents[2])  # at import: the files may be replaced by another version later
