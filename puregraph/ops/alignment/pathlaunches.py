"""Sums over paths on a GPU: a block for each pass of a sample, then the probabilities of all classes in parallel."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.ops.cuda.nests.contiguous import packed
from puregraph.ops.cuda.runtime.launch import THREADS, WARP, Launch, Scratch, isContiguous
from puregraph.ops.cuda.runtime.preprocess import areFloats, computed, defined, read, stored


def pathLaunches(
    entries: tuple[str, str], outs: Any, arguments: tuple, rows: tuple, sizes: tuple, grid: tuple[int, int]
) -> Any:
    """Launch both passes, whose rows have these shapes, and then the probabilities.

    `entries` are the kernels of `alignments.h` or `transductions.h`; `grid` has the number of elements, or of blocks,
    that the second one goes through, and its number of blocks. Both passes keep all rows, in the dtype computed in.
    """
    (costs, chances), (logs, *integers) = outs, arguments
    if not areFloats(logs, *outs) or any(x.dtype != np.int64 for x in integers) or not all(map(isContiguous, outs)):
        return NotImplemented
    if not logs.shape[0]:
        return []
    made, (logs, *integers) = packed(arguments)
    wide = computed(logs.dtype)
    kinds = {"S": stored(logs.dtype), "C": stored(costs.dtype), "P": stored(chances.dtype), "W": wide}
    header = "alignments.h" if entries[0].startswith("alignment") else "transductions.h"
    text = defined(kinds) + read("pathsum.h") + read(header)
    kept = [("pointer", Scratch(shape, "float64" if wide == "double" else "float32")) for shape in rows]
    pointers = [("pointer", x) for x in (logs, *integers)]
    numbers = [("int", size) for size in sizes]
    threads = min(THREADS, -(-rows[0][-1] // WARP) * WARP)
    first = (("pointer", costs), *pointers, *kept, *numbers)
    launches = [*made, Launch(entries[0], text, entries[0], first, (logs.shape[0], 2, 1), (threads, 1, 1))]
    if chances.size:
        second = (("pointer", chances), *pointers, *kept, ("long", grid[0]), *numbers)
        launches.append(Launch(entries[1], text, entries[1], second, (grid[1], 1, 1), (THREADS, 1, 1)))
    return launches
