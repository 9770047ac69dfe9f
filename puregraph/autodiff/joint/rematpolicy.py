"""What a backward pass keeps of the forward pass, and what it makes again: by rule, by name, or to fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from puregraph.autodiff.joint.valuenames import _Names
from puregraph.core.shape import product, symbols
from puregraph.errors import AutoDiffException, show
from puregraph.graph.steps import GraphStep
from puregraph.module import shapesOf

STRATEGIES = ("store_all", "recompute_all", "user_defined")
TRIALS = 32  # how many ways of cutting a graph are measured for a budget


def stored_by(strategy: str, names: _Names, data_to_recompute: Any) -> set[int]:
    """The numbers of the values that are stored; those of steps that are not repeatable always are.

    Raises    AutoDiffException for a strategy that is none, and for a name that is not of a value to be made again
    """
    if strategy not in STRATEGIES:
        raise AutoDiffException(f"data_forwarding_strategy: wanted one of {', '.join(STRATEGIES)}, got {strategy!r}")
    if (strategy == "user_defined") != bool(data_to_recompute):
        raise AutoDiffException(
            "data_to_recompute names what is made again with data_forwarding_strategy='user_defined', and only then; "
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
    """Whether a step may run twice: it changes no running state, such as a mean or the count of a random stream."""
    return not step.module.states


def fixed(names: _Names) -> set[int]:
    """The values that nobody can make again: inputs, parameters, and what steps that run only once give."""
    once = {n for step in names.flat.items if not repeatable(step) for n in step.outs}
    return {*names.flat.inputs, *names.params, *once}


def choices(names: _Names, make: Callable[[set[int]], Any], budget: int, shapes: Any, strategy: str) -> Any:
    """The joint graph that fits into `budget` bytes with the least recomputation.

    Measured are: storing everything; cutting the graph into 2, 3, ... segments of equal bytes, of which only what later
    ones read is stored, and the last one whole; and making again only what is cheap for its bytes, the cheapest first.

    Source    Chen, Xu, Zhang, Guestrin 2016, arXiv:1604.06174, sections 4.1 and 4.2
    Raises    AutoDiffException if `shapes` is missing, or none of them fits: it says what the least takes
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
    found: list[tuple[Any, ...]] = []
    peaks: list[int] = []
    for stored in dict.fromkeys(map(frozenset, ways(names, sizes, list(work.values())))):
        joint = make(set(stored))
        peaks.append(joint.peak(*shapes, *(known[n] for n in joint.targets)))
        if peaks[-1] <= budget:
            found.append((sum(work[step] for step in joint.remade), peaks[-1], len(found), joint))
    if not found:
        raise AutoDiffException(f"a budget of {budget:,} bytes cannot be met: the least found is {min(peaks):,}")
    return min(found)[-1]


def ways(names: _Names, sizes: list[int], work: list[int]) -> Iterator[set[int]]:
    """Sets of values to store, of which the first is all."""
    everything, items = stored_by("store_all", names, ()), names.flat.items
    yield everything
    for segments in spaced(len(items)):
        yield fixed(names) | crossing(names, sizes, segments)
    cheap = sorted(range(len(items)), key=lambda i: (work[i] / max(sizes[i], 1), i))
    for amount in spaced(len(items)):
        yield everything - {n for i in cheap[:amount] if repeatable(items[i]) for n in items[i].outs}


def spaced(most: int) -> list[int]:
    """Numbers from 2 to `most`: all of them, or some with the same factor in between."""
    if most <= TRIALS:
        return list(range(2, most + 1))
    return list(dict.fromkeys(round(2 * (most / 2) ** (i / (TRIALS - 1))) for i in range(TRIALS)))


def crossing(names: _Names, sizes: list[int], segments: int) -> set[int]:
    """What is read of earlier segments, if the graph is cut into n of equal bytes, and all of the last one."""
    total, before = max(sum(sizes), 1), 0
    segment: dict[int, int] = {}
    found: set[int] = set()
    for step, size in zip(names.flat.items, sizes):
        own = min(before * segments // total, segments - 1)
        segment |= dict.fromkeys(step.outs, own)
        before += size
        found |= {n for n in step.args if segment.get(n, own) < own}
        if own == segments - 1:  # it is gone through first, and so would be made again at once
            found.update(step.outs)
    return found
