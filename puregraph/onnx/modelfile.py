"""ModelFile: an ONNX model from a path, with its arrays, including external ones."""

from __future__ import annotations

import importlib.util
import math
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from puregraph.core.base.budget import BudgetError
from puregraph.core.errors import CheckpointError, printable, quote
from puregraph.core.storage.archive import foreign
from puregraph.onnx.protowalk import countNodes

NODE_BUDGET_BYTES = 250  # bytes added to the budget for each node: 5 ms to read it, or 25 nodes that it expands to
MAX_PATH_CHARACTERS = 4096  # maximum characters of a path, as in most systems
MAX_READS_PER_BYTE = 16  # how often the model may read each byte of an external file
EXPORT = (
    'export a network of PyTorch with torch.onnx.export(model, inputs, "model.onnx") '
    'and read it with puregraph.onnx.fromOnnx("model.onnx")'
)
NUMERIC = {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16}  # floats, integers, booleans; 16 is bfloat16


def needOnnx() -> None:
    """Raise ModuleNotFoundError saying what to install, if onnx is missing."""
    if importlib.util.find_spec("onnx") is None:
        raise ModuleNotFoundError("ONNX files need onnx: pip install puregraph[onnx]", name="onnx")


class ModelFile:
    """A model, and the folder of its external arrays; None for a model passed as an object."""

    def __init__(self, model: Any):
        needOnnx()
        import onnx

        self.folder: Path | None = None
        self.label = "the model"
        if isinstance(model, (str, os.PathLike)):
            path = Path(model)
            self.folder, self.label = path.parent, printable(str(path))
            if not path.is_file():
                raise CheckpointError(f"{path}: wanted an ONNX model, there is no such file")
            try:
                self.proto = onnx.load(path, "protobuf", load_external_data=False)  # whatever the ending of its name
            except Exception as error:  # decoders raise errors of various types
                kind = foreign(firstBytes(path))
                kind += f"; {EXPORT}" if "torch" in kind else ""
                why = f"it cannot be decoded: {error}" if "begins with" in kind else kind
                raise CheckpointError(f"{path}: wanted an ONNX model, {why}") from error
            if not self.proto.ByteSize():
                raise CheckpointError(f"{path}: wanted an ONNX model, {foreign(b'')}")
        elif isinstance(model, onnx.ModelProto):
            self.proto = model
        else:
            kind = type(model).__name__
            hint = "; onnx.load_from_string makes one of bytes" if isinstance(model, bytes) else ""
            raise CheckpointError(f"wanted a path or a ModelProto, got {kind}{hint}")
        checkTexts(self.proto)
        self.read: Counter[Path] = Counter()  # bytes read from each external file

    def size(self) -> int:
        """Bytes of the model and its arrays, plus `NODE_BUDGET_BYTES` for each node: the budget for reading."""
        graph = self.proto.graph
        size = sum(message.ByteSize() for message in (*graph.node, *self.proto.functions))
        for tensor in graph.initializer:
            size += math.prod(tensor.dims) * (dtypeOf(tensor.data_type).itemsize if tensor.data_type in NUMERIC else 1)
        return max(size, 0) + NODE_BUDGET_BYTES * (countNodes(self.proto) + len(graph.input) + len(graph.initializer))

    def array(self, tensor: Any) -> Any:
        """The elements of a tensor.

        Raises    CheckpointError for elements that are not numbers, or do not fill the shape
        """
        import onnx  # names of a package are slow to import, for each of many arrays

        where = f"tensor {quote(tensor.name)}"
        if tensor.data_type not in NUMERIC:
            raise CheckpointError(f"{where}: {notNumeric(tensor.data_type)}")
        if any(size < 0 for size in tensor.dims):
            raise CheckpointError(f"{where}: wanted sizes of at least 0, got {tuple(tensor.dims)}")
        dtype = dtypeOf(tensor.data_type)
        try:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                return self.external(tensor, dtype, where)
            return np.array(onnx.numpy_helper.to_array(tensor), dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise CheckpointError(f"{where}: its data does not fill the shape {tuple(tensor.dims)}: {error}") from error

    def external(self, tensor: Any, dtype: Any, where: str) -> Any:
        """The elements of a tensor stored in a separate file, which has to be in the model's folder."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if self.folder is None:
            raise CheckpointError(f"{where}: its data is in {quote(location)}; give the path of the model")
        path = inside(self.folder, location, where)
        count = int(np.prod([int(size) for size in tensor.dims], dtype=object)) * dtype.itemsize
        start = wholeFrom(entries.get("offset", "0"), where)
        length = wholeFrom(entries.get("length", str(count)), where)
        if length != count or start + count > path.stat().st_size:
            raise CheckpointError(
                f"{where}: wanted {count} bytes from {start} on in {quote(location)}, of {path.stat().st_size}, "
                f"the model says {length}"
            )
        self.read[path] += count
        if self.read[path] > MAX_READS_PER_BYTE * path.stat().st_size:
            raise BudgetError(f"{where}: its model reads {quote(location)} more than {MAX_READS_PER_BYTE} times")
        with path.open("rb") as file:
            file.seek(start)
            elements = np.frombuffer(file.read(count), dtype.newbyteorder("<") if dtype.kind != "V" else dtype)
        return elements.astype(dtype).reshape(tuple(tensor.dims))


def firstBytes(path: Path) -> bytes:
    """The first bytes of a file, which identify its kind."""
    with path.open("rb") as file:
        return file.read(64)


def checkTexts(message: Any) -> None:
    """Check that all texts of a message and its submessages are UTF-8: protobuf returns other texts as bytes.

    Raises    CheckpointError naming a field that is not
    """
    for field, value in message.ListFields():
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            for item in (value,) if hasattr(value, "ListFields") else value:
                checkTexts(item)
        elif field.type == field.TYPE_STRING:
            for item in (value,) if isinstance(value, (str, bytes)) else value:
                if isinstance(item, bytes):
                    raise CheckpointError(f"{field.full_name}: wanted a text in UTF-8, got {item[:60]!r}")


def inside(folder: Path, location: str, where: str) -> Path:
    """The path of a file in a folder or below it, with no link on the way.

    Raises    CheckpointError for anything else
    """
    path = folder / location
    parts = Path(location).parts
    isPlain = location and not Path(location).is_absolute() and ".." not in parts and "\\" not in location
    if not isPlain or "\0" in location:
        raise CheckpointError(f"{where}: wanted a file in the model's folder, got {quote(location)}")
    if len(location) > MAX_PATH_CHARACTERS:
        raise CheckpointError(
            f"{where}: wanted a path of at most {MAX_PATH_CHARACTERS} characters, got {quote(location)}"
        )
    steps = [folder.joinpath(*parts[: i + 1]) for i in range(len(parts))]
    try:
        isLink = any(step.is_symlink() for step in steps)
        isOwn = path.is_file() and path.stat().st_nlink == 1
    except OSError as error:  # a part of the path exceeds the system's limit
        raise CheckpointError(f"{where}: {quote(location)} cannot be opened: {error.strerror}") from error
    if isLink:
        raise CheckpointError(f"{where}: {quote(location)} is a link; wanted a file in the model's folder")
    if not isOwn:
        raise CheckpointError(f"{where}: {quote(location)} is not a regular file in the model's folder")
    return path


def wholeFrom(text: str, where: str) -> int:
    """Parse a number of bytes."""
    if not text.isdecimal() or len(text) > 18:
        raise CheckpointError(f"{where}: wanted a number of bytes, got {quote(text)}")
    return int(text)


def shortestDecimal(number: Any) -> float:
    """The shortest decimal that rounds to this number of a file, as it was probably written."""
    return float(str(np.reshape(number, ())[()]))


def notNumeric(kind: int) -> str:
    """The message about an element type that numpy has no dtype for."""
    from onnx import TensorProto

    name = TensorProto.DataType.Name(kind) if kind in TensorProto.DataType.values() else kind
    return f"wanted floats, integers or booleans, got elements of kind {name}"


@cache
def dtypeOf(kind: int) -> Any:
    """numpy's dtype of a kind of elements."""
    from onnx import helper

    return np.dtype(helper.tensor_dtype_to_np_dtype(kind))
