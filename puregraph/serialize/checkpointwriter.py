"""CheckpointWriter: write a graph, an optimizer and extra values to a file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core import device
from puregraph.core.base.budget import Budget
from puregraph.core.errors import CheckpointError
from puregraph.core.storage.archive import write
from puregraph.core.storage.atomicwrite import whole
from puregraph.core.storage.hdf import Array
from puregraph.core.storage.jsoncodec import dumps, encode
from puregraph.core.storage.pieces import PieceSet, removePieces
from puregraph.graph import Graph
from puregraph.optimizers import Optimizer
from puregraph.serialize.blueprintreader import checkSize
from puregraph.serialize.blueprintwriter import toBlueprint
from puregraph.serialize.savedoptimizer import describe, named, partOf, wholeOf

if TYPE_CHECKING:
    from puregraph.core.protocols import StrPath


class DividedState(NamedTuple):
    """The state of an optimizer that is sharded over several processes.

    `arrays`  by their names as in `optimizer.state`; None for an array that is in pieces
    `pieces`  the files that the processes have written
    """

    arrays: dict[str, Any]
    pieces: PieceSet | None


Fetched = tuple[Array, Any]


def save(
    path: StrPath | None,
    graph: Graph,
    optimizer: Optimizer | None = None,
    extra: object = None,
    state: DividedState | None = None,
) -> bytes | None:
    """Write a graph, and optionally an optimizer and `extra`, atomically.

    `extra` is None, a number, a text, an array, or lists, tuples and dicts of those; whole numbers may be of any size.
    A path of None returns the bytes instead. Arrays that several modules share are stored once. `state` is the state of
    a sharded optimizer. Pieces of the replaced file are removed at the end.

    Raises    CheckpointError naming what cannot be stored, or why the file cannot be written
    """
    if isinstance(path, (bytes, bytearray, memoryview)):
        raise CheckpointError("a path is wanted as text: bytes are the content of a file, see `load`")
    arrays, about = collect(graph, optimizer, extra, state)
    if path is None:
        memory = io.BytesIO()
        write(memory, arrays, about)
        return memory.getvalue()
    with whole(path) as file:
        write(file, arrays, about)
    removePieces(path, [] if state is None or state.pieces is None else [name for name, _ in state.pieces.files])
    return None


def collect(
    graph: Graph, optimizer: Optimizer | None, extra: object, divided: DividedState | None = None
) -> tuple[list[Fetched], dict[str, Any]]:
    """The arrays to write, each with a function that fetches it, and the JSON about them."""
    about: dict[str, Any] = {"blueprint": toBlueprint(graph), "optimizer": None}
    checkSize(about["blueprint"], Budget(len(dumps(about["blueprint"]))))
    arrays: list[Fetched] = []
    groups: Any = (("params", graph.params), ("states", graph.states))
    for group, stored in groups:
        for path, s in stored.items():
            array = Array(f"{group}/{path}", tuple(s.shape), s.dtype.name)
            arrays.append((array, lambda s=s: device.toHost(s.values())))
    if optimizer is not None:
        part = partOf(graph, optimizer)
        divided = divided or DividedState(wholeOf(optimizer), None)
        state = {named(name, part): array for name, array in divided.arrays.items()}
        arrays += [arrayOf(f"optimizer/{i}", array) for i, array in enumerate(state.values()) if array is not None]
        about["optimizer"] = {
            **describe(optimizer, "the optimizer"),
            "step": int(optimizer.step),
            "state": list(state),
            **({} if part is None else {"part": list(part.values())}),
            **({} if divided.pieces is None else {"pieces": list(divided.pieces)}),
        }
    extras: list[Fetched] = []

    def special(value: object) -> Any:
        if isinstance(value, np.ndarray) or device.isDeviceArray(value):
            extras.append(arrayOf(f"extra/{len(extras)}", value))
            return {"array": len(extras) - 1}
        return None

    about["extra"] = encode(extra, "extra", special)
    return arrays + extras, about


def arrayOf(name: str, values: Any) -> Fetched:
    """An array to write under a name."""
    return Array(name, tuple(values.shape), values.dtype.name), lambda: device.toHost(values)
