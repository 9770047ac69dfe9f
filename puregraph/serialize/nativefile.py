"""NativeFile: the arrays of a checkpoint, the blueprint, the optimizer and `extra`, read and checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np

from puregraph.core.base.dtype import dtypeName
from puregraph.core.errors import CheckpointError, brief, quote
from puregraph.core.storage.archive import Archive
from puregraph.core.storage.hdf import Array
from puregraph.core.storage.jsoncodec import decode
from puregraph.core.storage.pieces import PieceSet, isPieceSet, readPieces
from puregraph.graph import Graph
from puregraph.serialize.blueprintreader import fromBlueprint
from puregraph.serialize.loadreport import ArraySource


class NativeFile(ArraySource):
    """The arrays of a file of puregraph's own, by path in the graph."""

    def __init__(self, file: BinaryIO, folder: str | None = None):
        self.archive, self.folder = Archive(file), folder
        about = self.archive.manifest
        require(set(about) == {"blueprint", "optimizer", "extra"}, "its manifest", about)
        self.blueprint, self.optimizer, self.extraJson = about["blueprint"], about["optimizer"], about["extra"]
        require(isinstance(self.blueprint, dict), "its blueprint", self.blueprint)
        self.ties: dict[str, str] = self.blueprint.get("ties", {})
        require(isTexts(self.ties), "its ties", self.ties)
        require(self.optimizer is None or isDescription(self.optimizer), "its optimizer", self.optimizer)
        self.taken: set[int] = set()
        self.arrays: dict[str, Array] = {}
        self.kinds: dict[str, str] = {}
        self.names: dict[str, str] = {}
        for name, array in self.archive.arrays.items():
            group, _, path = name.partition("/")
            if group in ("params", "states"):
                require(path not in self.arrays, f"the array {quote(path)}, which is a parameter and a state", array)
                self.arrays[path], self.kinds[path], self.names[path] = array, group, name

    def fits(self, path: str, shape: tuple[int, ...], dtype: np.dtype) -> bool:
        return self.arrays[path].shape == tuple(shape) and self.arrays[path].dtype == dtypeName(dtype)

    def read(self, path: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return self.archive.read(self.names[path])

    def check(self, paths: Iterable[str]) -> None:
        """Verify the checksums of the arrays that were not read."""
        read = {self.names[path] for path in paths}
        self.archive.check(name for name in self.archive.arrays if name not in read)

    def graph(self) -> Graph:
        return fromBlueprint(self.blueprint, self.archive.budget)

    def state(self) -> dict[str, np.ndarray]:
        """Return the optimizer's arrays by their names there."""
        names = self.optimizer["state"] if self.optimizer else []
        pieceRows = (self.optimizer or {}).get("pieces")
        pieces = {} if pieceRows is None else readPieces(self.folder, PieceSet(*pieceRows))
        return {name: pieces[i] if i in pieces else self.array(f"optimizer/{i}") for i, name in enumerate(names)}

    def extra(self) -> Any:
        """Return the value that was saved as `extra`; arrays that occur several times in it are read once."""
        self.taken.clear()
        return decode(self.extraJson, self.extraArray)

    def extraArray(self, value: dict[str, Any]) -> Any:
        """Return an array in `extra`, which may occur only once: a forged file could request it endlessly."""
        if "array" not in value:
            return None
        index = value["array"]
        require(type(index) is int and index not in self.taken, "an array of extra", index)
        self.taken.add(index)
        return self.array(f"extra/{index}")

    def array(self, name: str) -> np.ndarray:
        """An array by its full name."""
        if name not in self.archive.arrays:
            raise CheckpointError(f"it holds no array {quote(name)}")
        return self.archive.read(name)

    def close(self) -> None:
        """Do nothing: the caller, who opened the file, closes it."""


def require(condition: bool, what: str, value: object) -> None:
    """Refuse a value that `save` does not write."""
    if not condition:
        raise CheckpointError(f"{what} cannot be {brief(value)}")


def isTexts(value: object) -> bool:
    """Return True for a dict of texts by text."""
    return isinstance(value, dict) and all(type(text) is str for text in value.values())


def isDescription(value: object) -> bool:
    """True if this is an optimizer's description as `collect` writes it."""
    return (
        isinstance(value, dict)
        and set(value) - {"part", "pieces", "changed"} == {"class", "args", "kwargs", "step", "state"}
        and [type(value[key]) for key in ("class", "args", "kwargs", "step", "state")] == [str, list, dict, int, list]
        and value["step"] >= 0
        and all(type(name) is str for name in value["state"])
        and len(set(value["state"])) == len(value["state"])
        and isinstance(value.get("part", []), list)
        and isinstance(value.get("changed", {}), dict)
        and isPieceSet(value.get("pieces", [[], []]))
        and all(type(path) is str for path in value.get("part", []))
    )
