"""Pieces: sharded arrays of a checkpoint, in files beside it; each file holds some elements of some arrays.

    run.h5                               everything else, and the list of pieces
    run.h5.0001-of-0004.5f0c61d2a9b7     the shard of the first of four processes

The last part of a piece's name is a digest of its content. So a piece never replaces another one, and a file always
names the pieces that it was saved with, even if a process ends while saving.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import zlib
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core import device
from puregraph.core.base.dtype import dtypeNamed
from puregraph.core.errors import CheckpointError, quote
from puregraph.core.storage.archive import Archive, littleEndian, write
from puregraph.core.storage.atomicwrite import whole
from puregraph.core.storage.hdf import DTYPES, RANK, Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import StrPath

NAME = r"\.(\d{4,9})-of-(\d{4,9})\.([0-9a-f]{12})"


class ElementRange(NamedTuple):
    """A range of an array's elements: the index of the array, begin, end, and the elements."""

    array: int
    begin: int
    end: int
    values: Any


class PieceSet(NamedTuple):
    """All pieces of a checkpoint.

    `files`   a row [name, [[array, begin, end], ...]] for each of them
    `arrays`  a row [array, shape, dtype] for each array that they hold
    """

    files: list[list[Any]]
    arrays: list[list[Any]]


def writePiece(path: Any, rank: int, size: int, runs: list[ElementRange]) -> list[Any]:
    """Write one process's piece atomically; return its row for a `PieceSet`."""
    target = os.path.realpath(os.fsdecode(path))
    arrays = [Array(f"optimizer/{run.array}", (run.end - run.begin,), run.values.dtype.name) for run in runs]
    values = [np.asarray(device.toHost(run.values), littleEndian(run.values.dtype.name), order="C") for run in runs]
    crcs = [zlib.crc32(value.view(np.uint8).data) for value in values]
    rows = [[run.array, run.begin, run.end] for run in runs]
    name = f"{target}.{rank + 1:04d}-of-{size:04d}.{digest(rows, crcs)}"
    with whole(name, owner=target) as file:
        write(file, [(array, partial(np.asarray, value)) for array, value in zip(arrays, values)], {"piece": rows})
    return [os.path.basename(name), rows]


def digest(rows: Sequence[object], crcs: list[int]) -> str:
    """Return the suffix of a piece's name."""
    return hashlib.sha256(json.dumps([rows, crcs]).encode()).hexdigest()[:12]


def removePieces(path: StrPath, kept: list[str]) -> None:
    """Remove the pieces of a checkpoint, except the named ones."""
    folder, name = os.path.split(os.path.realpath(os.fsdecode(path)))
    pattern = re.compile(re.escape(name) + NAME)
    for entry in os.listdir(folder):
        if pattern.fullmatch(entry) and entry not in kept:
            with suppress(OSError):
                os.unlink(os.path.join(folder, entry))


def isPieceSet(row: object) -> bool:
    """True if this is a piece set as `save` writes it."""
    return (
        isinstance(row, list)
        and len(row) == 2
        and all(isinstance(part, list) and all(isinstance(entry, list) for entry in part) for part in row)
        and all(len(file) == 2 and type(file[0]) is str and isRuns(file[1]) for file in row[0])
        and all(isShape(shape) for shape in row[1])
    )


def isRuns(rows: Any) -> bool:
    """True for rows of [array, begin, end], ranges of elements."""
    return isinstance(rows, list) and all(
        isinstance(row, list) and [type(n) for n in row] == [int] * 3 and 0 <= row[0] and 0 <= row[1] < row[2]
        for row in rows
    )


def isShape(row: list[Any]) -> bool:
    """True for the [array, shape, dtype] of an array."""
    return (
        [type(part) for part in row] == [int, list, str]
        and len(row[1]) <= RANK
        and all(type(n) is int and 0 <= n < 1 << 60 for n in row[1])
        and row[2] in DTYPES
    )


def readPieces(folder: str | None, pieceSet: PieceSet) -> dict[int, np.ndarray]:
    """Read the arrays that the pieces in a folder hold, by their index.

    Raises    CheckpointError naming a piece that is missing or damaged, or an array with missing elements
    """
    if folder is None:
        raise CheckpointError("the optimizer's state is in other files: load the checkpoint by its path")
    shapes = {index: (tuple(shape), dtypeNamed(dtype)) for index, shape, dtype in pieceSet.arrays}
    checkCover(pieceSet, {index: math.prod(shape) for index, (shape, _) in shapes.items()})
    pieces = [readPiece(folder, name, rows) for name, rows in pieceSet.files]
    flat = {index: np.empty(math.prod(shape), dtype) for index, (shape, dtype) in shapes.items()}
    for run in [run for piece in pieces for run in piece]:
        flat[run.array][run.begin : run.end] = run.values
    return {index: flat[index].reshape(shape) for index, (shape, _) in shapes.items()}


def checkCover(pieceSet: PieceSet, sizes: dict[int, int]) -> None:
    """Check that the pieces have every element of every array once.

    Raises    CheckpointError if not
    """
    ends = dict.fromkeys(sizes, 0)
    for index, begin, end in sorted(row for _, rows in pieceSet.files for row in rows):
        if ends.get(index) != begin:
            raise CheckpointError(f"its pieces do not have each element once: array {index}, at element {begin}")
        ends[index] = end
    if ends != sizes:
        raise CheckpointError("its pieces do not have all elements of its arrays")


def readPiece(folder: str, name: str, rows: list[Any]) -> list[ElementRange]:
    """Read and verify the elements in one piece.

    Raises    CheckpointError naming it
    """
    match = re.fullmatch(r"[^/\\\0]+" + NAME, name)
    if match is None:
        raise CheckpointError(f"{quote(name)} is no name of a piece")
    try:
        with open(os.path.join(folder, name), "rb") as file:
            archive = Archive(file)
            names = [f"optimizer/{index}" for index, _, _ in rows]
            if archive.manifest.get("piece") != rows or list(archive.arrays) != names:
                raise CheckpointError("it holds other elements than were saved with this file")
            if digest(rows, [archive.crcs[name] for name in names]) != match[3]:
                raise CheckpointError("it was saved with another file, and has been renamed")
            runs = [ElementRange(index, a, b, archive.read(name)) for (index, a, b), name in zip(rows, names)]
            if any(run.values.shape != (run.end - run.begin,) for run in runs):
                raise CheckpointError("it holds fewer elements than were saved with this file")
            return runs
    except FileNotFoundError:
        raise CheckpointError(f"its piece {quote(name)} is missing, which must be beside it") from None
    except CheckpointError as error:
        raise CheckpointError(f"its piece {quote(name)}: {error}") from error
