"""The form of a blueprint: the keys of each part and the kinds of their values, checked before anything is built."""

from __future__ import annotations

from typing import Any

from puregraph.core.errors import CheckpointError, brief
from puregraph.core.storage.hdf import DTYPES
from puregraph.serialize.blueprint import KINDS

NAMES = {dict: "an object", list: "a list", str: "a text", int: "a whole number"}

PARTS: dict[str, dict[str, type]] = {
    "items": {"items": list},
    "nodes": {"nodes": list, "inputs": list, "outputs": list},
    "args": {"args": list, "kwargs": dict},
}


def checkKeys(part: object, where: str, kinds: dict[str, type]) -> None:
    """Check that a part is an object whose values under these keys have these types.

    Raises    CheckpointError naming the part and the key
    """
    if type(part) is not dict:
        raise CheckpointError(f"{where}: wanted an object, got {brief(part)}")
    for key, kind in kinds.items():
        if type(part.get(key)) is not kind:
            actual = brief(part[key]) if key in part else "none"
            raise CheckpointError(f"{where}: wanted {NAMES[kind]} under {key!r}, got {actual}")


def checkList(items: list[Any], where: str, kind: type) -> None:
    """Raises    CheckpointError for an item of another kind"""
    for i, item in enumerate(items):
        if type(item) is not kind:
            raise CheckpointError(f"{where}[{i}]: wanted {NAMES[kind]}, got {brief(item)}")


def checkBlueprint(blueprint: dict[str, Any]) -> None:
    """Check a blueprint without its modules, which `checkModule` checks.

    Raises    CheckpointError naming the fault and its position
    """
    checkKeys(blueprint, "the blueprint", {"modules": list, "arrays": dict, "ties": dict, "absent": list})
    checkList(blueprint["absent"], "the blueprint's 'absent'", str)
    checkList(list(blueprint["ties"].values()), "the blueprint's 'ties'", str)
    if "rules" in blueprint:
        checkKeys(blueprint, "the blueprint", {"rules": list})
    for rule in blueprint.get("rules", []):
        checkRow(rule, "the blueprint's 'rules'", "[class, rule]", 2)
        checkList(rule, "the blueprint's 'rules'", str)
    if "derived" in blueprint:
        checkKeys(blueprint, "the blueprint", {"derived": dict})
    for path, about in blueprint["arrays"].items():
        where = f"the array {path!r:.80}"
        checkKeys(about, where, {"kind": str, "dtype": str, "shape": list})
        for key, known in (("kind", KINDS), ("dtype", DTYPES)):
            if about[key] not in known:
                raise CheckpointError(f"{where}: wanted the {key} {', '.join(known)}, got {about[key]!r:.40}")


def checkModule(row: Any) -> None:
    """Check the description of one module.

    Raises    CheckpointError naming the key that is wrong
    """
    checkKeys(row, "its description", {"class": str})
    for kind in ("items", "nodes"):  # by which its size is known
        if row.get(kind):
            checkParts(row, kind)
    if row.get("own") is not None:
        checkKeys(row, "its description", {"own": dict})


def checkParts(row: dict[str, Any], kind: str) -> None:
    """Check the parts of a module: a list's items, a graph's nodes, or the arguments of another one."""
    checkKeys(row, "its description", PARTS[kind])
    for i, node in enumerate(row["nodes"] if kind == "nodes" else ()):
        checkNode(node, f"its node {i}")
    for output in row["outputs"] if kind == "nodes" else ():
        checkRow(output, "its output", "[node, slot]", 2)


def checkNode(node: Any, where: str) -> None:
    """Check one node of a graph."""
    checkKeys(node, where, {"module": int})
    if "parents" in node:
        checkKeys(node, where, {"parents": list})
        for parent in node["parents"]:
            checkRow(parent, f"{where}, its parent", "[node, slots, argument]", 3)


def checkRow(row: object, where: str, wanted: str, count: int) -> None:
    """Check a list and its length."""
    if type(row) is not list or len(row) != count:
        raise CheckpointError(f"{where}: wanted {wanted}, got {brief(row)}")
