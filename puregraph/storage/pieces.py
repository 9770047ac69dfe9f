"""Pieces: arrays of a checkpoint that are in files beside it, each of which has some elements of some of them.

    run.h5                               everything else, and which pieces there are
    run.h5.0001-of-0004.5f0c61d2a9b7     the elements that the first of four processes has

The last part of a piece's name is a digest of what it holds. So a piece never replaces another one, and a file always
names the pieces that it was saved with, whenever somebody ends.
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
from typing import Any, NamedTuple

import numpy as np

from puregraph import device
from puregraph.base.dtype import dtypeNamed
from puregraph.errors import CheckpointError, quote
from puregraph.storage.archive import Archive, littleEndian, write
from puregraph.storage.atomicwrite import whole
from puregraph.storage.hdf import DTYPES, RANK, Array

NAME = r"\.(\d{4,9})-of-(\d{4,9})\.([0-9a-f]{12})"


class ElementRange(NamedTuple):
    """Elements of an array in a row: which array, from where to where, and the elements."""

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
    """Write the piece that one of several processes has, whole or not at all; its row for a `PieceSet`."""
    target = os.path.realpath(os.fsdecode(path))
    arrays = [Array(f"optimizer/{run.array}", (run.end - run.begin,), run.values.dtype.name) for run in runs]
    values = [np.asarray(device.toHost(run.values), littleEndian(run.values.dtype.name), order="C") for run in runs]
    crcs = [zlib.crc32(each.view(np.uint8).data) for each in values]
    rows = [[run.array, run.begin, run.end] for run in runs]
    name = f"{target}.{rank + 1:04d}-of-{size:04d}.{digest(rows, crcs)}"
    with whole(name, owner=target) as file:
        write(file, [(array, partial(np.asarray, each)) for array, each in zip(arrays, values)], {"piece": rows})
    return [os.path.basename(name), rows]


def digest(rows: list[Any], crcs: list[int]) -> str:
    """What a piece's name ends with."""
    return hashlib.sha256(json.dumps([rows, crcs]).encode()).hexdigest()[:12]


def removePieces(path: Any, kept: list[str]) -> None:
    """Remove the pieces of a checkpoint, but for those of these names."""
    folder, name = os.path.split(os.path.realpath(os.fsdecode(path)))
    pattern = re.compile(re.escape(name) + NAME)
    for entry in os.listdir(folder):
        if pattern.fullmatch(entry) and entry not in kept:
            with suppress(OSError):
                os.unlink(os.path.join(folder, entry))


def isPieceSet(row: Any) -> bool:
    """Whether this is what `save` writes of pieces."""
    return (
        isinstance(row, list)
        and len(row) == 2
        and all(isinstance(part, list) and all(isinstance(each, list) for each in part) for part in row)
        and all(len(each) == 2 and type(each[0]) is str and isRuns(each[1]) for each in row[0])
        and all(isShape(each) for each in row[1])
    )


def isRuns(rows: Any) -> bool:
    """Whether these are [array, begin, end] of elements in rows."""
    return isinstance(rows, list) and all(
        isinstance(row, list) and [type(n) for n in row] == [int] * 3 and 0 <= row[0] and 0 <= row[1] < row[2]
        for row in rows
    )


def isShape(row: list[Any]) -> bool:
    """Whether this is [array, shape, dtype] of an array."""
    return (
        [type(part) for part in row] == [int, list, str]
        and len(row[1]) <= RANK
        and all(type(n) is int and 0 <= n < 1 << 60 for n in row[1])
        and row[2] in DTYPES
    )


def readPieces(folder: str | None, found: PieceSet) -> dict[int, np.ndarray]:
    """The arrays that pieces in a folder hold, by their index.

    Raises    CheckpointError naming a piece that is missing or damaged, or an array of which elements are missing
    """
    if folder is None:
        raise CheckpointError("the optimizer's state is in other files: give the path of the one that names them")
    shapes = {index: (tuple(shape), dtypeNamed(dtype)) for index, shape, dtype in found.arrays}
    checkCover(found, {index: math.prod(shape) for index, (shape, _) in shapes.items()})
    pieces = [readPiece(folder, name, rows) for name, rows in found.files]
    flat = {index: np.empty(math.prod(shape), dtype) for index, (shape, dtype) in shapes.items()}
    for run in [run for piece in pieces for run in piece]:
        flat[run.array][run.begin : run.end] = run.values
    return {index: flat[index].reshape(shape) for index, (shape, _) in shapes.items()}


def checkCover(found: PieceSet, sizes: dict[int, int]) -> None:
    """Whether pieces have each element of each array once.

    Raises    CheckpointError if not
    """
    ends = dict.fromkeys(sizes, 0)
    for index, begin, end in sorted(row for _, rows in found.files for row in rows):
        if ends.get(index) != begin:
            raise CheckpointError(f"its pieces do not have each element once: array {index}, at element {begin}")
        ends[index] = end
    if ends != sizes:
        raise CheckpointError("its pieces do not have all elements of its arrays")


def readPiece(folder: str, name: str, rows: list[Any]) -> list[ElementRange]:
    """The elements that one piece holds, proven.

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
