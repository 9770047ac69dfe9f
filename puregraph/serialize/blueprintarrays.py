"""Blueprint arrays: the parameters and states of a graph declared as a blueprint says: shared, absent, frozen."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from puregraph.core.base.dtype import dtypeNamed
from puregraph.core.errors import CheckpointError, brief, quote
from puregraph.core.param import DerivedKind, Param, State, Stored
from puregraph.core.storage.hdf import RANK
from puregraph.core.storage.jsoncodec import decode
from puregraph.core.versioning import COUNTER
from puregraph.graph import Graph
from puregraph.graph.derived import Derived
from puregraph.graph.graphholder import leavesIn
from puregraph.graph.module import Module
from puregraph.serialize.blueprint import KINDS
from puregraph.serialize.blueprintform import checkKeys
from puregraph.serialize.classnames import classNamed


def settle(graph: Graph, blueprint: dict[str, Any]) -> bool:
    """Share, remove and set the graph's arrays as the blueprint says. Returns True if any array was replaced."""
    arrays, ties, absent = blueprint["arrays"], blueprint["ties"], blueprint["absent"]
    isChanged = bool(absent or ties)
    if absent or ties or arrays:
        holders = holdersOf(graph)
        for path, row in blueprint.get("derived", {}).items():
            holder, name = holderOf(holders, path)
            vars(holder)[name] = derivedFrom(row, path, holders)
        if blueprint.get("derived"):
            DerivedKind.changes += 1
        COUNTER.version = object()
        for path in absent:
            holder, name = holderOf(holders, path)
            vars(holder)[name] = None
        for path, settings in arrays.items():
            isChanged = setUp(holders, path, settings) or isChanged
        for path, owner in ties.items():
            if owner not in arrays:
                raise CheckpointError(f"{path!r:.80} is tied to {owner!r:.80}, which is no array of the graph")
            (holder, name), (other, key) = holderOf(holders, path), holderOf(holders, owner)
            vars(holder)[name] = vars(other)[key]
    rows = [row for kind in ("params", "states") for row in graph.stored(kind)]
    made = {path for path, _, owner in rows if owner == path}
    tied = {path: owner for path, _, owner in rows if owner != path}
    if made != set(arrays) or tied != ties:
        odd = sorted(made ^ set(arrays) | set(tied) ^ set(ties))
        raise CheckpointError(
            "the classes make other arrays than those that were stored: "
            f"{', '.join(map(quote, odd[:10])) or 'their ties differ'}"
            f"{f' and {len(odd) - 10} more' if len(odd) > 10 else ''}; was a class changed since?"
        )
    return isChanged


def holdersOf(graph: Graph) -> dict[str, Module]:
    """The modules of a graph by path, those that a module such as a Checkpoint holds too."""
    return {path: module for step in graph.steps().items for path, module in leavesIn(step.module, step.path)}


def holderOf(holders: dict[str, Module], path: Any) -> tuple[Module, str]:
    """The module that holds the array of a path, and its attribute there."""
    if isinstance(path, str):
        head, _, name = path.rpartition(".")
        steps: list[str] = []
        while head and head not in holders:  # a module may store its arrays in inner modules
            head, _, inner = head.rpartition(".")
            steps.insert(0, inner)
        holder: Any = holders.get(head)
        for inner in steps:
            holder = vars(holder).get(inner) if isinstance(holder, Module) else None
        cls: Any = type(holder)
        if isinstance(holder, Module) and name.isidentifier() and not isMethod(cls, name):
            return holder, name
    raise CheckpointError(f"no module of the graph holds {path!r:.80}")


@lru_cache(1024)
def isMethod(cls: type, name: str) -> bool:
    """True if a class has a method of this name."""
    return callable(getattr(cls, name, None))


def derivedFrom(row: Any, path: str, holders: dict[str, Module]) -> Any:
    """Return the computed parameter that a row describes, without arrays; or the shared one at another path."""
    if type(row) is dict and type(row.get("as")) is str:
        other, key = holderOf(holders, row["as"])
        found = vars(other).get(key)
        if not isinstance(found, Derived):
            raise CheckpointError(f"{path!r:.80} is the same as {row['as']!r:.80}, which is no derived parameter")
        return found
    checkKeys(row, f"the derived parameter {path!r:.80}", {"class": str, "shape": list, "settings": dict})
    cls = classNamed(row["class"])
    if not issubclass(cls, Derived):
        raise CheckpointError(f"the derived parameter {path!r:.80}: {row['class']!r:.80} computes no parameter")
    return cls.described(shapeOf(row["shape"], path), decode(row["settings"]))


def setUp(holders: dict[str, Module], path: str, settings: dict[str, Any]) -> bool:
    """Declare one array as it was saved. Returns True if it is new, because the constructor makes another shape or
    none."""
    holder, name = holderOf(holders, path)
    kind, shape = KINDS[settings["kind"]], shapeOf(settings["shape"], path)
    stored: Any = vars(holder).get(name)
    isNew = type(stored) is not kind or tuple(stored.shape) != shape
    if isNew and type(stored) is kind is State and stored.declared is not None and stored.takes(shape):
        vars(stored).update(shape=shape, array=None)
    elif isNew:
        stored = vars(holder)[name] = kind(shape)
    dtype = dtypeNamed(settings["dtype"])
    if stored.dtype != dtype:
        Stored.calcMode(stored, dtype)
    if isinstance(stored, Param):
        rate = rateOf(decode(settings["rate"]), path) if "rate" in settings else 1.0
        options = (
            ("trainable", settings.get("trainable", True) is True),
            ("rate", rate),
            ("decay", settings.get("decay", True) is True),
        )
        for option, value in options:
            if getattr(stored, option) != value:  # most are as the constructor sets them
                setattr(stored, option, value)
    return isNew


def rateOf(value: Any, path: str) -> float:
    """The factor of a parameter's learning rate, checked."""
    if type(value) in (int, float) and abs(value) < 1e300:
        return float(value)
    raise CheckpointError(f"'{path:.80}' cannot have the rate {value!r:.40}")


def shapeOf(value: Any, path: str) -> tuple[int, ...]:
    """The sizes of an array, checked."""
    isShort = isinstance(value, list) and len(value) <= RANK
    if isShort and all(type(n) is int and 0 <= n < 1 << 60 for n in value) and math.prod(value) < 1 << 60:
        return tuple(value)
    raise CheckpointError(f"'{path:.80}' cannot have the shape {brief(value)}")
