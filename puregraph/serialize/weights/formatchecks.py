"""Detection of formats by the content of a file; none of these functions trusts the file or raises an error."""

from __future__ import annotations

import zipfile
from typing import BinaryIO

from puregraph.core.storage.archive import TORCHNUMBER, foreign
from puregraph.core.storage.hdffile import HdfFile
from puregraph.core.storage.safehdf import SIGNATURE

ZIP = b"PK\3\4"
TORCHSUFFIXES = (".pt", ".pth", ".ckpt", ".bin")
ONNXFIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}  # of ModelProto: wire types
GRAPH = 7
MOSTFIELDS = 100_000
KERASNAMES = {"config.json", "model.weights.h5"}
KERASFIRST = {b"metadata.json", b"config.json", b"model.weights.h5"}


def isHdf(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for HDF5, which begins with its signature."""
    return head.startswith(SIGNATURE)


def isPuzzle(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for PuzzleLib's HDF5, which has the groups params and links at its root."""
    if not head.startswith(SIGNATURE):
        return False
    try:
        return {"params", "links"} <= set(HdfFile(file).names())
    except Exception:  # a forged file may cause any error, which the HDF5 reader reports later
        return False


def isKerasZip(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for a `.keras` file: a zip archive of a configuration and weights, with any suffix."""
    if not head.startswith(ZIP):
        return False
    if suffix != ".keras" and not KERASFIRST & {firstMember(head)}:
        return False
    try:
        with zipfile.ZipFile(file) as archive:
            names = set(archive.namelist())
    except Exception:  # zipfile raises many kinds of errors for a damaged archive
        return suffix == ".keras"
    return bool(KERASNAMES & names)


def isSafetensors(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for a file that begins with a length and JSON, or has the suffix and is of no other known format."""
    if head[8:9] == b"{":
        return suffix == ".safetensors" or int.from_bytes(head[:8], "little") <= file.seek(0, 2) - 8
    return suffix == ".safetensors" and "begins with" in foreign(head)


def isIndex(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for a JSON object in a `.json` file, or in bytes."""
    return suffix in (".json", "") and head.lstrip().startswith(b"{")


def isNpz(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for a zip archive whose first member is a numpy array, or that has the suffix."""
    return head.startswith(ZIP) and (suffix == ".npz" or firstMember(head).endswith(b".npy"))


def isTorchZip(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for a zip archive that begins as torch writes them, or that has a suffix of torch."""
    return head.startswith(ZIP) and (suffix in TORCHSUFFIXES or firstMember(head).endswith(b"/data.pkl"))


def isTorchOlder(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for a pickle of torch's magic number."""
    return TORCHNUMBER in head[:40]


def firstMember(head: bytes) -> bytes:
    """The name of the first member of a zip archive."""
    return head[30 : 30 + int.from_bytes(head[26:28], "little")]


def isGguf(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for GGUF, which begins with its name."""
    return head.startswith(b"GGUF")


def isTflite(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for a FlatBuffer with the identifier of TFLite after its first offset."""
    return head[4:8] == b"TFL3"


def isOnnx(head: bytes, suffix: str, file: BinaryIO) -> bool:
    """True for a file of ONNX fields including a graph, or with the suffix; ONNX has no signature."""
    end, at, seen = file.seek(0, 2), 0, set()
    for _ in range(MOSTFIELDS):
        file.seek(at)
        block = file.read(22)
        key, used = varint(block)
        value, more = varint(block[used:])
        if not used or not more or ONNXFIELDS.get(key >> 3) != key & 7:
            break
        seen.add(key >> 3)
        at += used + more + (value if key & 7 == 2 else 0)
        if at >= end:
            break
    return bool(seen) and suffix == ".onnx" or at == end and GRAPH in seen


def varint(data: bytes) -> tuple[int, int]:
    """Return a number of protobuf, with seven bits per byte, and its length; a length of 0 if it does not end."""
    value = 0
    for i, byte in enumerate(data[:10]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, i + 1
    return 0, 0
