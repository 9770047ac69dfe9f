"""PuzzleLib's files as weight files: parameters and running statistics by path in the network."""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import BinaryIO

import numpy as np

from puregraph.compat.puzzlelib import PuzzleFile
from puregraph.core.base.budget import Budget
from puregraph.core.errors import CheckpointError
from puregraph.serialize.weights.weightfile import StoredTensor, WeightFile


def opened(file: BinaryIO, source: str) -> WeightFile:
    """Describe the arrays of a file; tied ones are listed under each of their paths."""
    puzzle = PuzzleFile(file)
    owners = {path: path for path in puzzle.arrays} | puzzle.ties
    tensors, lock = {}, Lock()
    for path, owner in owners.items():
        declared = puzzle.declared[owner]
        tensors[path] = StoredTensor(path, declared.shape, declared.dtype.name, partial(fetch, puzzle, owner, lock))
    return WeightFile("puzzlelib", source, tensors, {"ties": puzzle.ties} if puzzle.ties else {}, file.close)


def fetch(puzzle: PuzzleFile, path: str, lock: Lock) -> np.ndarray:
    """Read an array as it is stored, axes of size one included."""
    declared = puzzle.declared[path]
    with lock:
        if puzzle.guarded.source.closed:
            raise CheckpointError("the file is closed; read arrays inside of the with block")
        puzzle.guarded.budget = Budget(puzzle.guarded.length)
        return puzzle.read(path, declared.shape, declared.dtype)
