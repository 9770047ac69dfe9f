"""Deciding by the content of a file whether it is of a format; none of these functions trusts the file or raises."""

from __future__ import annotations

import zipfile
from typing import BinaryIO

from puregraph.core.errors import CheckpointError
from puregraph.core.storage.hdffile import HdfFile
from puregraph.core.storage.safehdf import SIGNATURE

KERASNAMES = {"config.json", "model.weights.h5"}


def isHdf(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """HDF5 begins with its signature."""
    return head.startswith(SIGNATURE)


def isPuzzle(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """PuzzleLib's HDF5 has the groups params and links at its root."""
    if not head.startswith(SIGNATURE):
        return False
    try:
        return {"params", "links"} <= set(HdfFile(file).names())
    except (CheckpointError, ArithmeticError, LookupError, ValueError):  # the reader of HDF5 says what is wrong
        return False


def isKerasZip(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """A `.keras` file is a zip archive of a configuration and weights."""
    if not head.startswith(b"PK\3\4"):
        return False
    try:
        with zipfile.ZipFile(file) as archive:
            names = set(archive.namelist())
    except Exception:  # zipfile raises many kinds of errors for a damaged archive
        return suffix == ".keras"
    return bool(KERASNAMES & names)
