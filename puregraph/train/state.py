"""State: convert a trainer's progress to plain values and arrays, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.base.dtype import isFloating
from puregraph.core.errors import CheckpointError, DataError
from puregraph.graph.lookup import few

if TYPE_CHECKING:
    from collections.abc import Mapping

    from puregraph.graph.graph import Graph
    from puregraph.train.trainer import Trainer

FORMAT_VERSION = 1
KEY = "place"  # the name of the progress in files
PROGRESS = {  # values of a run, and the type of each
    "epoch": "a whole number",
    "begun": "a bool",
    "position": "a whole number",
    "step": "a whole number",
    "first": "a whole number",
    "running": "a bool",
    "stopped": "a bool",
    "samples": "a whole number or None",
    "lastRate": "a number",
}
FIGURES = ("epoch", "step", "loss", "val loss", "rate", "seconds")  # numeric figures that a history row must have
SETTINGS = ("batchsize", "accumulate", "shuffle", "dropLast")
BEFORE = {"dropLast": False}  # defaults for older files


def stateFrom(trainer: Trainer) -> dict[str, Any]:
    """Return all state of a trainer except network and optimizer."""
    return {
        "version": FORMAT_VERSION,
        KEY: {
            **{name: getattr(trainer.runState, name) for name in PROGRESS},
            "stopped": trainer.runState.stopped and not trainer.runState.stopsNow,
        },
        "settings": {name: getattr(trainer, name) for name in SETTINGS},
        "grains": trainer.grains,
        "cost": type(trainer.cost).__name__,
        "seed": trainer.splitSeed,
        "elapsed": trainer.runState.passed(),
        "total": trainer.runState.total,
        "until": trainer.runState.until,
        "count": trainer.runState.count,
        "order": trainer.runState.order,
        "frozen": frozenIn(trainer.net),
        "random": trainer.rng.bit_generator.state,
        "tally": trainer.meters.state(),
        "history": [dict(row) for row in trainer.history],
        "callbacks": [{"type": type(c).__name__, "state": c.state()} for c in stateful(trainer)],
    }


def check(trainer: Trainer, saved: object) -> None:
    """Check that a trainer can continue from a saved state.

    Raises    DataError naming the arguments it would need, CheckpointError for a state that no trainer writes
    """
    if not isinstance(saved, dict) or saved.get("version") != FORMAT_VERSION:
        raise DataError(
            f"wanted a file of trainer.save (version {FORMAT_VERSION}), this file holds no trainer of that kind"
        )
    checkKinds(saved)
    checkGrains(trainer.grains, saved.get("grains"), saved[KEY]["begun"])
    if saved[KEY]["begun"]:
        trainer.meters.check(saved["tally"])
        for name, value in {**BEFORE, **saved["settings"]}.items():
            if getattr(trainer, name) != value:
                raise DataError(
                    f"{name}: an epoch was begun with {value}, it cannot go on with {getattr(trainer, name)}"
                )


def frozenIn(net: Graph) -> dict[str, list[str]]:
    """Return the paths of frozen modules, and of parameters that are not trainable."""
    return {
        "modules": [path for path, module in net.modules().items() if module.isFrozen],
        "params": [path for path, param in net.params.items() if not param.trainable],
    }


def freezing(net: Graph, saved: dict[str, Any]) -> Iterator[Callable[[], Any]]:
    """Yield the steps that freeze and unfreeze modules and parameters as in the saved run; none for older files."""
    if saved.get("frozen") is None:
        return
    modules, params = (set(saved["frozen"][kind]) for kind in ("modules", "params"))
    for path, module in net.modules().items():
        if module.isFrozen != (path in modules):
            yield partial(setattr, module, "isFrozen", path in modules)
    for path, param in net.params.items():
        if isFloating(param.dtype) and param.trainable == (path in params):
            yield partial(setattr, param, "trainable", path not in params)


def otherFreezing(trainer: Trainer, saved: dict[str, Any]) -> list[str]:
    """Return a list of one line if other modules or parameters were frozen in the saved run, otherwise an empty one."""
    if not any(True for _ in freezing(trainer.net, saved)):
        return []
    names = saved["frozen"]["modules"] or saved["frozen"]["params"]
    return [f"frozen as in the run: {few(names) or 'nothing'}; freeze() and unfreeze() after resume change it"]


def otherCost(trainer: Trainer, saved: Mapping[str, object]) -> list[str]:
    """Return a list of one line if the saved run had another cost, otherwise an empty one."""
    costName = type(trainer.cost).__name__
    known = saved.get("cost", costName)
    return [] if known == costName else [f"cost: the run had {known!s:.60}, it goes on with {costName}"]


def checkKinds(saved: dict[str, Any]) -> None:
    """Check that all saved values have the types that a trainer writes.

    Raises    CheckpointError naming a value of another type
    """
    wanted = {KEY: dict, "settings": dict, "random": dict, "tally": dict, "history": list, "callbacks": list}
    for name, kind in wanted.items():
        require(type(saved.get(name)) is kind, name, f"a {kind.__name__}", saved.get(name))
    progress, settings, meters = saved[KEY], {**BEFORE, **saved["settings"]}, saved["tally"]
    require(set(progress) == set(PROGRESS), KEY, ", ".join(PROGRESS), sorted(map(str, progress)))
    for name, what in PROGRESS.items():
        require(KINDS[what](progress[name]), f"{KEY}: {name}", what, progress[name])
    require(set(settings) == set(SETTINGS), "settings", ", ".join(SETTINGS), sorted(map(str, settings)))
    for name in SETTINGS:
        require(type(settings[name]) in (int, bool), f"settings: {name}", "a whole number", settings[name])
    require(isNumber(saved.get("elapsed")) and saved["elapsed"] >= 0, "elapsed", "seconds", saved.get("elapsed"))
    grains = saved.get("grains")
    require(grains is None or isCount(grains) and grains, "grains", "a number of parts or None", grains)
    require(KINDS["a whole number or None"](saved.get("seed")), "seed", "a whole number or None", saved.get("seed"))
    total = saved.get("total")
    require(total is None or isCount(total), "total", "a number of updates or None", total)
    count, until = saved.get("count"), saved.get("until", 0)
    require(count is None or isCount(count), "count", "a number of steps or None", count)
    require(isCount(until), "until", "a whole number", until)
    require(progress["first"] <= progress["epoch"], "first", f"at most {progress['epoch']}", progress["first"])
    most = progress["step"] if count is None else min(count, progress["step"])
    require(progress["position"] <= most, "position", f"at most {most}", progress["position"])
    frozen = saved.get("frozen", {"modules": [], "params": []})
    isNames = type(frozen) is dict and set(frozen) == {"modules", "params"}
    isNames = isNames and all(type(paths) is list and all(type(n) is str for n in paths) for paths in frozen.values())
    require(isNames, "frozen", "paths of modules and parameters", frozen)
    checkOrder(saved.get("order"), progress, settings["shuffle"])
    sums = isNumber(meters.get("total")) and isWeight(meters.get("weight")) and isNamed(meters.get("metrics"))
    require(sums and all(isNamed(state) for state in meters["metrics"].values()), "tally", "sums of metrics", meters)
    for row in saved["history"]:
        figures = isNamed(row) and all(v is None or type(v) in (bool, int, float, str) for v in row.values())
        known = figures and all(v is None or isNumber(v) for n, v in row.items() if n in FIGURES)
        require(known, "history", "rows of figures", row)
    for row in saved["callbacks"]:
        good = isNamed(row) and set(row) == {"type", "state"} and type(row["type"]) is str and isNamed(row["state"])
        require(good, "callbacks", "the states of callbacks", row)


def checkGrains(grains: int | None, saved: int | None, isBegun: bool) -> None:
    """Check that a trainer with these grains can continue a run with the saved ones; None accepts any number.

    Raises    DataError if it cannot
    """
    if grains not in (None, saved) and (saved is not None or isBegun):
        raise DataError(
            f"grains: the run had grains={saved}, it cannot go on with grains={grains}; leave grains out, or give "
            f"{saved}"
        )


def checkOrder(order: Any, progress: dict[str, Any], isShuffled: bool) -> None:
    """Check that the order of shuffled samples in a begun epoch names each sample once."""
    if not progress["begun"]:
        require(progress["position"] == 0 and order is None, "order", "none before an epoch was begun", order)
    elif order is None:
        require(not isShuffled or progress["samples"] is None, "order", "one of shuffled samples", order)
    else:
        require(isShuffled, "order", "none of samples that are not shuffled", order)
        whole = isinstance(order, np.ndarray) and order.ndim == 1 and order.dtype.kind in "iu"
        good = whole and progress["samples"] == len(order) and bool((np.sort(order) == np.arange(len(order))).all())
        require(good, "order", f"each of {progress['samples']} samples once", order)


def require(condition: object, name: str, wanted: str, value: object) -> None:
    """Refuse a value that no trainer writes."""
    if not condition:
        raise CheckpointError(f"the trainer's {name}: wanted {wanted}, got {value!r:.80}")


def isCount(value: object) -> bool:
    """True for a whole number of at least 0 in the range of a counter."""
    return type(value) is int and 0 <= value < 1 << 62


def isNumber(value: object) -> bool:
    """True for a number, including nan, but not a bool."""
    return type(value) is float or type(value) is int and abs(value) < 1 << 62


def isWeight(value: Any) -> bool:
    """True for a finite number of at least 0."""
    return isNumber(value) and 0 <= value < math.inf


def isNamed(value: object) -> bool:
    """True for a dict whose keys are texts."""
    return type(value) is dict and all(type(name) is str for name in value)


KINDS: dict[str, Callable[[Any], bool]] = {
    "a whole number": isCount,
    "a whole number or None": lambda value: value is None or isCount(value),
    "a number": isNumber,
    "a bool": lambda value: type(value) is bool,
}


@contextmanager
def restoring(trainer: Trainer, saved: dict[str, Any]) -> Iterator[list[Callable[[], Any]]]:
    """Restore callbacks and metrics, and yield the steps for `assign` that restore the trainer.

    If the block raises, callbacks and metrics return to their previous state.
    """
    rng = np.random.default_rng(0)
    rng.bit_generator.state = saved["random"]
    progress = {
        **saved[KEY],
        "order": saved["order"],
        "elapsed": saved["elapsed"],
        "total": saved.get("total"),
        "until": saved.get("until", 0),
        "count": saved.get("count"),
    }
    attributes = {
        "rng": rng,
        "splitSeed": saved.get("seed") or 0,
        "grains": trainer.grains if saved.get("grains") is None else saved["grains"],
    }
    rows = list(saved["callbacks"])
    pairs: list[tuple[Any, Any]] = []
    for callback in stateful(trainer):  # callbacks without a saved state start fresh
        row = next((r for r in rows if r["type"] == type(callback).__name__), None)
        if row is not None:
            rows = [r for r in rows if r is not row]
            pairs.append((callback, row["state"]))
    if saved[KEY]["begun"]:
        pairs.append((trainer.meters, saved["tally"]))
    before = [(holder, holder.state()) for holder, _ in pairs]
    try:
        for holder, state in pairs:
            holder.restore(state)
        yield [
            partial(vars(trainer).update, attributes),
            partial(vars(trainer.runState).update, progress),
            partial(trainer.history.__setitem__, slice(None), saved["history"]),
            *freezing(trainer.net, saved),
        ]
    except BaseException:
        for holder, state in before:
            holder.restore(state)
        raise


def stateful(trainer: Trainer) -> list[Any]:
    """Return the callbacks with a state to save."""
    return [c for c in trainer.callbacks if c.state()]
