"""Loop nests as launches: pointwise formulas and reductions over one space of indices.

The reduced axes decide: none (`elementwise`, or `transposecopy` where arrays are contiguous along different axes), the
contiguous axis (`rowreduce`), or others (`colreduce`). A reduction over many elements with few results is split into
parts by many blocks, which a second launch reduces, always in the same order. What one launch cannot do is divided: one
launch reduces, the next reads the results.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from puregraph.ops.cuda.nests.colreduce import FULLBLOCK, RESIDENT, across, columnLaunch, finishedLaunch
from puregraph.ops.cuda.nests.elementwise import pointLaunch
from puregraph.ops.cuda.nests.nestwriter import canonical
from puregraph.ops.cuda.nests.rowreduce import fits, rowLaunch, rowSplit
from puregraph.ops.cuda.nests.transposecopy import otherAxis, tileLaunch
from puregraph.ops.cuda.runtime.launch import PROCESSORS, Launch, Scratch
from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import (
    INTEGERS,
    Line,
    LoopNest,
    Operand,
    Reduce,
    besides,
    collapsed,
    compact,
    needed,
    ordered,
    parted,
    rearranged,
    reduceSets,
    startOf,
    title,
)

FULL_GPU_BLOCKS = 528  # blocks that occupy a large GPU
MIN_ROW_ELEMENTS = 4096  # fewest elements of a row for which a block pays off
MIN_THREAD_ROWS = 3  # fewest rows per thread for which a block of columns pays off


def launches(nest: LoopNest) -> list[Launch]:
    """The launches that compute a nest; partial reductions are in Scratches."""
    name = title(nest)
    return [launch._replace(name=name) for launch in described(nest)]


def described(nest: LoopNest) -> list[Launch]:
    """The launches of a nest, each with the name of its kernel."""
    if not prod(nest.space):
        nest = emptied(nest)
        if not nest.stores:
            return []
    nest = canonical(collapsed(ordered(nest)))
    sets = reduceSets(nest)
    if not sets:
        axis = otherAxis(nest)
        return [pointLaunch(nest) if axis is None else tileLaunch(nest, axis)]
    if len(sets) > 1:
        return mixed(nest, sets)
    return rows(nest, sets[0]) if len(nest.space) - 1 in sets[0] else columns(nest, sets[0])


def scratch(nest: LoopNest) -> Callable[[int], Scratch]:
    """An allocator of scratch memory for n elements of a nest's dtype."""
    dtype = INTEGERS.get(nest.kind) or np.dtype(np.float64 if nest.kind == "f64" else np.float32)
    return lambda count: Scratch((count,), dtype)


def emptied(nest: LoopNest) -> LoopNest:
    """A nest over no elements as one without reductions: reductions become their start values."""
    gone = {n for n, o in nest.loads.items() if not o.what.size}
    for n, x in nest.lines:
        if isinstance(x, Formula) and gone & set(x.names):
            gone.add(n)
    stores = {n: o for n, o in nest.stores.items() if n not in gone and o.what.size}
    lines: tuple[Line, ...] = tuple(
        (n, Formula(startOf(x.how, nest.kind)) if isinstance(x, Reduce) else x) for n, x in nest.lines
    )
    nonEmpty = nest._replace(space=tuple(n or 1 for n in nest.space), lines=lines, stores=stores)
    loads, lines = needed(nonEmpty, stores)
    return nonEmpty._replace(loads=loads, lines=lines)


def rows(nest: LoopNest, axes: frozenset[int]) -> list[Launch]:
    """The launches of a nest that reduces the last axis, and perhaps others."""
    long = prod(nest.space[a] for a in axes)
    count = prod(nest.space) // long
    if rowSplit(nest, axes).held or count >= FULL_GPU_BLOCKS // 2 or long <= 4 * MIN_ROW_ELEMENTS:
        return [rowLaunch(nest, axes)]
    size = roundUp(-(-long // min(FULL_GPU_BLOCKS // count, long // MIN_ROW_ELEMENTS)), MIN_ROW_ELEMENTS // 4)
    return inParts(nest, axes, size, rowLaunch)


def columns(nest: LoopNest, axes: frozenset[int]) -> list[Launch]:
    """The launches of a nest that reduces other axes than the last."""
    _, x, blocks = across(nest)
    blocks *= prod(n for a, n in enumerate(nest.space[:-1]) if a not in axes)
    long = prod(nest.space[a] for a in axes)
    pieces = min(PROCESSORS * RESIDENT // blocks, long // (MIN_THREAD_ROWS * FULLBLOCK // x))
    if pieces < 2 or long <= 2 * FULL_GPU_BLOCKS:
        return [columnLaunch(nest, axes)]
    perPosition = long // nest.space[min(axes)]  # a part consists of entire positions of the first axis
    return inParts(nest, axes, roundUp(-(-long // pieces), perPosition), columnLaunch)


def inParts(
    nest: LoopNest, axes: frozenset[int], size: int, launch: Callable[[LoopNest, frozenset[int]], Launch]
) -> list[Launch]:
    """The launches of a nest whose reductions are split into parts of n elements."""
    try:
        partial, ending = parted(nest, axes, size, scratch(nest))
    except ValueError:
        return divided(nest)
    if launch is columnLaunch:
        return [finishedLaunch(canonical(partial), reduceSets(partial)[0], canonical(shortened(ending)))]
    return [launch(canonical(partial), reduceSets(partial)[0]), *described(ending)]


def shortened(nest: LoopNest) -> LoopNest:
    """A nest over parts without its axes of length one, which the reductions of the parts left."""
    return rearranged(nest, [[0], *([a] for a, n in enumerate(nest.space) if a and n > 1)])


def mixed(nest: LoopNest, sets: list[frozenset[int]]) -> list[Launch]:
    """The launches of a nest that reduces several sets of axes: rows and, in the same pass if possible, columns."""
    inner = len(nest.space) - 1
    axes = next((reduced for reduced in sets if inner in reduced), None)
    if axes is None or len(sets) > 2:
        return divided(nest)
    try:
        first, second = besides(nest, axes, 1, scratch(nest))
    except ValueError:
        return divided(nest)
    if not fits(first, axes):
        return divided(nest)
    plan, count = rowSplit(first, axes), prod(n for a, n in enumerate(nest.space) if a not in axes)
    block = max(plan.groups, -(-count // (PROCESSORS * plan.resident)))
    first, second = besides(nest, axes, block, scratch(nest))
    return [rowLaunch(canonical(first), axes), *described(second)]


def divided(nest: LoopNest) -> list[Launch]:
    """A nest as two: one for the reductions over one set of axes that need no others, and one that reads them."""
    late: set[str] = set()
    reductions: dict[str, Reduce] = {}
    for n, x in nest.lines:
        isLate = bool(late & ({x.of} if isinstance(x, Reduce) else set(x.names)))
        if isinstance(x, Reduce):
            if not isLate and (not reductions or x.axes == next(iter(reductions.values())).axes):
                reductions[n] = x
            isLate = True
        if isLate:
            late.add(n)
    stores = {n: o for n, o in nest.stores.items() if n not in late}
    results = {n: result(nest, n, x.axes) for n, x in reductions.items()}
    loads, lines = needed(nest, [*reductions, *stores])
    first = nest._replace(loads=loads, lines=lines, stores={**stores, **results})
    lateStores = {n: o for n, o in nest.stores.items() if n in late and results.get(n) is not o}
    loads, lines = needed(nest._replace(loads={**nest.loads, **results}), lateStores, reductions)
    second = nest._replace(loads=loads, lines=lines, stores=lateStores)
    return [*described(first), *(described(second) if lateStores else [])]


def result(nest: LoopNest, name: str, axes: frozenset[int]) -> Operand:
    """The memory of a reduction's results: the wanted array, if that is as exact, or scratch memory."""
    store = nest.stores.get(name)
    if store is not None and store.kind == nest.kind and not any(store.strides[a] for a in axes):
        return store
    return compact(nest, 1, [a for a in range(len(nest.space)) if a not in axes], scratch(nest))[0]


def roundUp(n: int, to: int) -> int:
    """The next multiple."""
    return -(-n // to) * to
