"""Selection of the forward values to store and to recompute: by strategy, by name, or to fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from puregraph.autodiff.joint.valuenames import _Names
from puregraph.core.errors import AutoDiffException, show
from puregraph.core.shape import product, symbols
from puregraph.graph.module import shapesOf
from puregraph.graph.steps import GraphStep

STRATEGIES = ("store_all", "recompute_all", "user_defined")
MAX_TRIALS = 32  # how many ways of cutting a graph are measured for a budget


def stored_by(strategy: str, names: _Names, data_to_recompute: Any) -> set[int]:
    """The numbers of the stored values; outputs of steps that cannot be repeated are always stored.

    Raises    AutoDiffException for an unknown strategy, or a name of a value that cannot be recomputed
    """
    if strategy not in STRATEGIES:
        raise AutoDiffException(f"data_forwarding_strategy: wanted one of {', '.join(STRATEGIES)}, got {strategy!r}")
    if (strategy == "user_defined") != bool(data_to_recompute):
        raise AutoDiffException(
            "data_to_recompute is needed with data_forwarding_strategy='user_defined', and only then; "
            f"got {data_to_recompute!r} with {strategy!r}"
        )
    everything = set(range(names.flat.count))
    if strategy == "store_all":
        return everything
    if strategy == "recompute_all":
        return fixed(names)
    makers = {n: step for step in names.flat.items for n in step.outs}
    again: set[int] = set()
    for target in names.all(data_to_recompute, "data_to_recompute"):
        step = makers.get(target.numbers[0])
        if step is None or not repeatable(step):
            why = "is given, not computed" if step is None else "has a running state or is random: it runs only once"
            raise AutoDiffException(f"'{target.name}' cannot be recomputed: it {why}")
        again.update(step.outs)
    return everything - again


def repeatable(step: GraphStep) -> bool:
    """True if a step can run twice: it updates no state, such as a running mean or a random counter."""
    return not step.module.states


def fixed(names: _Names) -> set[int]:
    """The values that cannot be recomputed: inputs, parameters, and outputs of steps that run only once."""
    once = {n for step in names.flat.items if not repeatable(step) for n in step.outs}
    return {*names.flat.inputs, *names.params, *once}


def choices(names: _Names, make: Callable[[set[int]], Any], budget: int, shapes: Any, strategy: str) -> Any:
    """The joint graph that fits into `budget` bytes with the least recomputation.

    Three kinds of candidate are measured. Store everything. Cut the graph into 2, 3, ... segments of equal bytes, and
    store the values that cross segments and all of the last segment. Recompute only the cheapest values per byte.

    Source    Chen, Xu, Zhang, Guestrin 2016, arXiv:1604.06174, sections 4.1 and 4.2
    Raises    AutoDiffException if `shapes` is missing, or no candidate fits; it reports the smallest peak
    """
    if strategy != "store_all":
        raise AutoDiffException(f"give budget= or data_forwarding_strategy=, not both; got {budget} and {strategy!r}")
    if not isinstance(shapes, (tuple, list)):
        raise AutoDiffException("a budget of bytes needs the inputs' shapes: give shapes=[(32, 784), ...]")
    graph, flat = names.graph, names.flat
    shapes = shapesOf(list(shapes))
    unknown = ", ".join(dict.fromkeys(name for shape in shapes for name in symbols(shape)))
    if unknown:
        raise AutoDiffException(f"a budget of bytes needs numbers for all sizes, got {unknown} in {show(shapes)}")
    graph.dataShapeFrom(shapes)
    rows = graph.inferShapes(shapes)
    known = dict(zip(flat.inputs, shapes))
    for row in rows:
        known |= zip(row.step.visible, row.shapes or ())
    sizes = [sum(map(product, row.shapes or ())) for row in rows]
    work = {row.step: row.step.module.flopsFrom(*row.inshapes) for row in rows}
    fitting: list[tuple[Any, ...]] = []
    peaks: list[int] = []
    for stored in dict.fromkeys(map(frozenset, ways(names, sizes, list(work.values())))):
        joint = make(set(stored))
        peaks.append(joint.peak(*shapes, *(known[n] for n in joint.targets)))
        if peaks[-1] <= budget:
            fitting.append((sum(work[step] for step in joint.remade), peaks[-1], len(fitting), joint))
    if not fitting:
        raise AutoDiffException(f"a budget of {budget:,} bytes cannot be met: the smallest peak is {min(peaks):,}")
    return min(fitting)[-1]


def ways(names: _Names, sizes: list[int], work: list[int]) -> Iterator[set[int]]:
    """Generate candidate sets of values to store; the first is all of them."""
    everything, items = stored_by("store_all", names, ()), names.flat.items
    yield everything
    for segments in spaced(len(items)):
        yield fixed(names) | crossing(names, sizes, segments)
    cheap = sorted(range(len(items)), key=lambda i: (work[i] / max(sizes[i], 1), i))
    for amount in spaced(len(items)):
        yield everything - {n for i in cheap[:amount] if repeatable(items[i]) for n in items[i].outs}


def spaced(most: int) -> list[int]:
    """Numbers from 2 to `most`: all of them, or some with the same factor in between."""
    if most <= MAX_TRIALS:
        return list(range(2, most + 1))
    return list(dict.fromkeys(round(2 * (most / 2) ** (i / (MAX_TRIALS - 1))) for i in range(MAX_TRIALS)))


def crossing(names: _Names, sizes: list[int], segments: int) -> set[int]:
    """The values to store for n segments of equal bytes: values that cross segments, and the last segment."""
    total, before = max(sum(sizes), 1), 0
    segment: dict[int, int] = {}
    stored: set[int] = set()
    for step, size in zip(names.flat.items, sizes):
        current = min(before * segments // total, segments - 1)
        segment |= dict.fromkeys(step.outs, current)
        before += size
        stored |= {n for n in step.args if segment.get(n, current) < current}
        if current == segments - 1:  # the backward pass starts here, so it would be recomputed at once
            stored.update(step.outs)
    return stored
