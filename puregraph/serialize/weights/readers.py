"""Readers: the formats of weight files, each recognised by the content of a file, never by its name alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from puregraph.core.arguments import FileSource, takes
from puregraph.core.errors import CheckpointError, printable
from puregraph.core.storage.archive import foreign
from puregraph.serialize.openfile import openFile
from puregraph.serialize.weights.formatchecks import (
    isGguf,
    isHdf,
    isIndex,
    isKerasZip,
    isNpz,
    isOnnx,
    isPuzzle,
    isSafetensors,
    isTflite,
    isTorchOlder,
    isTorchZip,
)
from puregraph.serialize.weights.weightfile import WeightFile

if TYPE_CHECKING:
    from puregraph.core.protocols import StrPath

HEAD_BYTES = 512  # bytes from which a format is detected


class Reader(NamedTuple):
    """A format.

    `matches`  detect the format from the first bytes of a file, its suffix in lower case, and the open file
    `module`   the module with `opened(file, source)`, which returns a WeightFile; imported on first use
    """

    format: str
    matches: Callable[[bytes, str, BinaryIO], bool]
    module: str


READERS: list[Reader] = [
    Reader("gguf", isGguf, "puregraph.serialize.weights.ggufweights"),
    Reader("tflite", isTflite, "puregraph.serialize.weights.tfliteweights"),
    Reader("npy", lambda head, suffix, file: head.startswith(b"\x93NUMPY"), "puregraph.serialize.weights.npzfile"),
    Reader("keras", isKerasZip, "puregraph.serialize.weights.keraszip"),
    Reader("npz", isNpz, "puregraph.serialize.weights.npzfile"),
    Reader("torch", isTorchZip, "puregraph.serialize.weights.torchfile"),
    Reader("torch", isTorchOlder, "puregraph.serialize.weights.torchfile"),
    Reader("safetensors", isSafetensors, "puregraph.serialize.weights.safetensors"),
    Reader("safetensors index", isIndex, "puregraph.serialize.weights.shardedfile"),
    Reader("puzzlelib", isPuzzle, "puregraph.compat.puzzleweights"),
    Reader("hdf5", isHdf, "puregraph.serialize.weights.kerasfile"),
    Reader("onnx", isOnnx, "puregraph.serialize.weights.onnxweights"),
]


def readerOf(head: bytes, path: str, file: BinaryIO) -> Reader | None:
    """Return the reader of a file's format; None for an unknown one. The file is at its beginning afterwards."""
    suffix = os.path.splitext(path)[1].lower()
    for reader in READERS:
        file.seek(0)
        if reader.matches(head, suffix, file):
            file.seek(0)
            return reader
    file.seek(0)
    return None


@takes(path=FileSource)
def readWeights(path: StrPath) -> WeightFile:
    """Open a file of weights that another program wrote; its format is recognised by its content.

    Nothing in the file is run, and no element is read before `StoredTensor.read`.

    Raises    CheckpointError naming the file, for a format that is unknown or a file that is damaged

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/small.safetensors"
    >>> writeWeights(path, {"fc.weight": np.eye(2, dtype=np.float32)}, {"epoch": "3"})
    >>> with readWeights(path) as weights:
    ...     print(weights["fc.weight"], weights.metadata)
    ...     print(weights["fc.weight"].read())
    <'fc.weight': (2, 2) float32> {'epoch': '3'}
    [[1. 0.]
     [0. 1.]]
    """
    isBytes = isinstance(path, (bytes, bytearray, memoryview))
    source = "the given bytes" if isBytes else printable(os.fsdecode(path))
    try:
        file = openFile(path)
    except OSError as error:
        raise CheckpointError(f"cannot load '{source}': {error.strerror or error}") from error
    try:
        head = file.read(HEAD_BYTES)
        reader = readerOf(head, "" if isBytes else source, file)
        if reader is None:
            raise CheckpointError(foreign(head, weights=""))
        weights: WeightFile = import_module(reader.module).opened(file, source)
        return weights
    except CheckpointError as error:
        file.close()
        raise CheckpointError(printable(f"cannot load '{source}': {error}")) from error.__cause__
    except Exception as error:  # a forged file may cause any error
        file.close()
        raise CheckpointError(printable(f"cannot load '{source}': {type(error).__name__}: {error!s:.300}")) from error
