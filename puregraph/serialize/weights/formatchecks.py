"""Deciding by the content of a file whether it is of a format; none of these functions trusts the file or raises."""

from __future__ import annotations

import zipfile
from typing import BinaryIO

from puregraph.core.errors import CheckpointError
from puregraph.core.storage.archive import foreign
from puregraph.core.storage.hdffile import HdfFile
from puregraph.core.storage.safehdf import SIGNATURE

ZIP = b"PK\3\4"
MAGIC = 0x1950A86A20F9469CFC6C.to_bytes(10, "little")  # in the first pickle of torch's older form
TORCH = (".pt", ".pth", ".ckpt", ".bin")
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


def isSafetensors(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for a file that begins with a length and JSON, or is named so and is of no other known kind."""
    if head[8:9] == b"{":
        return suffix == ".safetensors" or int.from_bytes(head[:8], "little") <= file.seek(0, 2) - 8
    return suffix == ".safetensors" and "begins with" in foreign(head)


def isIndex(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for a JSON object in a file that is named so, or in bytes."""
    return suffix in (".json", "") and head.lstrip().startswith(b"{")


def isNpz(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for a zip archive whose first member is an array of numpy, or that is named so."""
    return head.startswith(ZIP) and (suffix == ".npz" or firstMember(head).endswith(b".npy"))


def isTorchZip(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for a zip archive that begins as torch writes them, or that is named so."""
    return head.startswith(ZIP) and (suffix in TORCH or firstMember(head).endswith(b"/data.pkl"))


def isTorchOlder(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for a pickle of torch's number."""
    return MAGIC in head[:40]


def firstMember(head: bytes) -> bytes:
    """The name of the first member of a zip archive."""
    return head[30 : 30 + int.from_bytes(head[26:28], "little")]
