"""Batches: merge independent steps into one step with all their tasks, without barriers between them.

If two batches have their steps in the same order, such as tables that are read and later updated, the same thread runs
the same steps, whose data are in its own cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from puregraph.ops.native.llvm import jit

TASK_WORDS = 3  # words of a task: the addresses of its function and its arguments, and its number
TEXT = """
define void @kernel(i64 %words, i64 %task, i64 %scratch) {
    %offset = mul i64 %task, 24
    %address = add i64 %words, %offset
    %first = inttoptr i64 %address to i64*
    %second = getelementptr i64, i64* %first, i64 1
    %third = getelementptr i64, i64* %first, i64 2
    %function = load i64, i64* %first, align 8
    %args = load i64, i64* %second, align 8
    %own = load i64, i64* %third, align 8
    %pointer = inttoptr i64 %function to void (i64, i64, i64)*
    call void %pointer(i64 %args, i64 %own, i64 %scratch)
    ret void
}
"""


def batched(steps: Sequence[tuple[int, int, int]]) -> tuple[tuple[int, int, int], Any]:
    """Steps (function, arguments, tasks) as one step, and the words that it reads, which must be kept alive."""
    if len(steps) == 1:
        return steps[0], None
    digest = hashlib.blake2b(TEXT.encode(), digest_size=16).hexdigest()
    library = jit.load("batch", lambda: (TEXT, (), 0), digest)
    rows = [(function, args, task) for function, args, tasks in steps for task in range(tasks)]
    words = np.array(rows, np.int64).reshape(-1, TASK_WORDS)
    return (library.address, int(words.ctypes.data), len(rows)), words
