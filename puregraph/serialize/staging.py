"""Staging: read and check the arrays of a file, then assign all of them or none."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core import device
from puregraph.core.base.align import aligned, fitting
from puregraph.core.base.signals import Deferred
from puregraph.core.errors import CheckpointError
from puregraph.core.param import Stored
from puregraph.core.versioning import ARRAYVERSIONS, COUNTER
from puregraph.graph import Graph
from puregraph.graph.lookup import nearest
from puregraph.optimizers.changedoptions import restoringOptions
from puregraph.serialize.loadreport import LoadReport, listed, match, shapeIn
from puregraph.serialize.savedoptimizer import named, partOf, remake

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


class Loaded(NamedTuple):
    """The result of `loadInto`: a report, and the value that was saved as `extra`."""

    report: LoadReport
    extra: Any


class Staged(NamedTuple):
    """The values of a file for a graph and an optimizer: read and checked, not yet assigned; see `assign`.

    `kept`  a sentence for each optimizer setting that differs from the file and is kept
    """

    loaded: Loaded
    steps: list[Callable[[], Any]]
    kept: list[str]


def bring(source: Any, graph: Graph, optimizer: Any, strict: bool, only: Any = None) -> Loaded:
    """Read and verify all arrays that fit, then assign them."""
    staged = stage(source, graph, optimizer, strict, only)
    assign(staged.steps)
    return staged.loaded


def stage(source: Any, graph: Graph, optimizer: Any, strict: bool, only: Any = None) -> Staged:
    """Read and check every array that fits, and change nothing. The steps that follow allocate no memory and cannot
    fail."""
    targets: dict[str, Stored] = {**graph.params, **graph.states}
    if only is not None:
        targets = selected(targets, (only,) if isinstance(only, str) else only)
    report, chosen = match(source, graph, targets)
    if only is not None:
        report.extra.clear()
    if strict and not report.complete:
        raise CheckpointError(f"the graph holds other arrays: {report}{source.advice(graph, report)}")
    kept: list[str] = []
    values = {
        p: device.toDevice(source.read(at, shapeIn(source, at, targets[p]), targets[p].dtype))
        for p, at in chosen.items()
    }
    if strict:
        source.check(chosen.values())
    loaded = Loaded(report, source.extra())
    steps = [step for path, value in values.items() for step in putting(targets[path], value)]
    if optimizer is not None:
        part = partOf(graph, optimizer) if "part" in source.optimizer else None
        back = None if part is None else {path: name for name, path in part.items()}
        saved = {named(name, back): array for name, array in source.state().items()}
        attributes = optimizer.restored(source.optimizer["step"], saved)
        steps.append(partial(vars(optimizer).update, attributes))
        options, kept = restoringOptions(optimizer, remake(source.optimizer, False), remake(source.optimizer))
        steps += options
    return Staged(loaded, steps, kept)


def selected(targets: dict[str, Stored], patterns: Iterable[str]) -> dict[str, Stored]:
    """Return the arrays whose paths match a pattern, in which * is any text.

    Raises    CheckpointError for a pattern that matches no path
    """
    chosen: set[str] = set()
    for pattern in patterns:
        expression = re.compile(".*".join(map(re.escape, pattern.split("*"))))
        matching = {path for path in targets if expression.fullmatch(path)}
        if not matching:
            near = listed(nearest(pattern, list(targets), 3))
            raise CheckpointError(f"only={pattern!r:.60} matches no array of the graph; it has {near}")
        chosen |= matching
    return {path: stored for path, stored in targets.items() if path in chosen}


def putting(stored: Stored, value: AnyArray) -> list[Callable[[], object]]:
    """Return the steps that set an array's values and give it a new version. An existing array is written in place."""
    renew = partial(vars(stored).__setitem__, "version", next(ARRAYVERSIONS))
    if stored.array is not None and stored.array.shape == value.shape:
        return [partial(stored.array.__setitem__, ..., value), renew]
    sizes = partial(vars(stored).__setitem__, "shape", tuple(value.shape))
    return [sizes, partial(vars(stored).__setitem__, "array", aligned(fitting(value, stored.dtype))), renew]


def assign(steps: list[Callable[[], object]]) -> None:
    """Run all steps, or none: within one call of C code, which no signal handler interrupts.

    Each step is C code itself, because Python runs signal handlers between its own instructions. CuPy copies to a GPU
    in Python; `Deferred` delays handlers until the end.
    """
    with Deferred():
        deque(map(methodcaller("__call__"), [*steps, partial(setattr, COUNTER, "version", object())]), maxlen=0)
