"""Arrays of numpy: `.npy` holds one, `.npz` is a zip archive of them; pickles, arrays of objects, are refused.

    6 bytes    \\x93NUMPY
    2 bytes    version 1.0, 2.0 or 3.0
    length     of the header, 2 bytes or 4
    header     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
    elements

Source    numpy, "numpy.lib.format"
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import BinaryIO, NamedTuple

import numpy as np

from puregraph.core.base.budget import Budget
from puregraph.core.errors import CheckpointError, brief, quote
from puregraph.serialize.weights.filebytes import FileBytes
from puregraph.serialize.weights.weightfile import StoredTensor, WeightFile, checkedBools, countOf
from puregraph.serialize.weights.zipmembers import ZipMember, ZipMembers

MAGIC = b"\x93NUMPY"
VERSIONS = {b"\1\0": 2, b"\2\0": 4, b"\3\0": 4}  # bytes of the header's length
MAX_HEADER_BYTES = 10_000  # bytes of a header, as numpy has it
ITEM = r"\s*'(\w+)'\s*:\s*('[^'\\]*'|True|False|\([\d\s,]*\)|\[[^\[\]]*\])\s*"
HEADER = re.compile(rf"\{{{ITEM},{ITEM},{ITEM},?\s?\}}")
DTYPE = re.compile(r"[<>|=](f[248]|[iu][1248]|b1)")
UNNAMED = "arr_0"  # numpy's own name for an array without one


class NpyHeader(NamedTuple):
    """The header of an array: its bytes, the shape and the dtype, and whether the first axis varies fastest."""

    length: int
    shape: tuple[int, ...]
    dtype: np.dtype
    isFortran: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return countOf(self.shape) * self.dtype.itemsize

    def shaped(self, values: np.ndarray) -> np.ndarray:
        """The elements in their shape, in the byte order of the machine."""
        values = checkedBools(values.astype(self.dtype.newbyteorder("="), copy=False))
        return values.reshape(self.shape[::-1]).T if self.isFortran else values.reshape(self.shape)


def opened(file: BinaryIO, source: str) -> WeightFile:
    """Open an archive or a single array, of which the headers alone are read.

    Raises    CheckpointError for anything that is damaged or no array of numbers
    """
    if file.read(len(MAGIC)) == MAGIC:
        data = FileBytes(file)
        header = headerOf(data.bytesAt(0, min(data.size, MAX_HEADER_BYTES)))
        if header.length + header.nbytes != data.size:
            raise CheckpointError(f"it has {data.size} bytes, its array takes {header.length + header.nbytes}")
        fetch = fetchPlain(data, header)
        tensors = {UNNAMED: StoredTensor(UNNAMED, header.shape, header.dtype.name, fetch)}
        return WeightFile("npy", source, tensors, close=file.close)
    archive, tensors = ZipMembers(file), {}
    budget = Budget(archive.data.size)
    for member in archive.values():
        budget.spend("bytes of arrays", member.size)
        name = member.name.removesuffix(".npy")
        if name == member.name:
            raise CheckpointError(f"member {quote(name)} is not an array of numpy: its name does not end with .npy")
        try:
            header = headerOf(archive.head(member, MAX_HEADER_BYTES))
            if header.length + header.nbytes != member.size:
                raise CheckpointError(f"it has {member.size} bytes, its array takes {header.length + header.nbytes}")
        except CheckpointError as error:
            raise CheckpointError(f"array {quote(name)}: {error}") from None
        tensors[name] = StoredTensor(name, header.shape, header.dtype.name, fetchMember(archive, member, header))
    return WeightFile("npz", source, tensors, close=file.close)


def headerOf(head: bytes) -> NpyHeader:
    """The header of an array, from its first bytes.

    Raises    CheckpointError for any that numpy does not write for numbers
    """
    width = VERSIONS.get(head[6:8])
    if not head.startswith(MAGIC) or width is None:
        raise CheckpointError("it is not an array of numpy, in a version that is known")
    length = 8 + width + int.from_bytes(head[8 : 8 + width], "little")
    if length > MAX_HEADER_BYTES or length > len(head):
        raise CheckpointError(f"its header of {length} bytes is too long, or cut off")
    text = head[8 + width : length].decode("latin-1").strip()
    match = HEADER.fullmatch(text)
    fields = {} if match is None else dict(zip(match.groups()[::2], match.groups()[1::2]))
    if sorted(fields) != ["descr", "fortran_order", "shape"]:
        raise CheckpointError(f"its header is damaged: {brief(text)}")
    kind, order, sizes = fields["descr"].strip("'"), fields["fortran_order"], fields["shape"]
    if not DTYPE.fullmatch(kind):
        isPickle = kind.strip("|") == "O" or "'O'" in kind or "|O" in kind
        hint = ": it holds pickled objects, which puregraph never reads" if isPickle else ""
        raise CheckpointError(f"its dtype {brief(kind)} is not supported{hint}; wanted floats, integers or bools")
    if order not in ("True", "False") or not re.fullmatch(r"\((\d{1,18},(\s?\d{1,18},)*\s?(\d{1,18})?)?\)", sizes):
        raise CheckpointError(f"its header is damaged: {brief(text)}")
    shape = tuple(map(int, re.findall(r"\d+", sizes)))
    countOf(shape)
    return NpyHeader(length, shape, np.dtype(kind), order == "True")


def fetchPlain(data: FileBytes, header: NpyHeader) -> Callable[[], np.ndarray]:
    """The function that reads the array of a `.npy`."""
    return lambda: header.shaped(data.array(header.length, countOf(header.shape), header.dtype))


def fetchMember(archive: ZipMembers, member: ZipMember, header: NpyHeader) -> Callable[[], np.ndarray]:
    """The function that reads an array of an `.npz`, proven by its crc32."""

    def fetch() -> np.ndarray:
        values = np.empty(countOf(header.shape), header.dtype)
        view = values.view(np.uint8)
        at = -header.length
        for chunk in archive.chunks(member):
            inside = np.frombuffer(chunk, np.uint8)[max(0, -at) :]
            view[max(0, at) : max(0, at) + len(inside)] = inside
            at += len(chunk)
        return header.shaped(values)

    return fetch
