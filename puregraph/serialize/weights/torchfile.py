"""Torch files: state dicts that torch.save wrote, as a zip archive (since torch 1.6) or in its older form.

    zip      PREFIX/data.pkl, a pickle of everything but the elements, and PREFIX/data/KEY, the elements of a storage
    older    five pickles: a number, a version, the machine, everything but the elements, and the keys of storages;
             then each storage, its count in 8 bytes and its elements

A tensor is a view of a storage, by offset, shape and strides. All of them are checked when the file is opened.

Source    torch/serialization.py
"""

from __future__ import annotations

import zlib
from typing import BinaryIO, Literal

import numpy as np

from puregraph.core.base.budget import Budget
from puregraph.core.errors import CheckpointError, quote, show
from puregraph.serialize.weights.filebytes import FileBytes
from puregraph.serialize.weights.narrowfloats import storedType
from puregraph.serialize.weights.statedict import StateDict
from puregraph.serialize.weights.torchpickle import STEPS, PickleMachine, StorageEntry, TensorEntry
from puregraph.serialize.weights.weightfile import StoredTensor, WeightFile, checkedBools, countOf
from puregraph.serialize.weights.zipmembers import STORED, ZipMembers

MAGIC = 0x1950A86A20F9469CFC6C
Order = Literal["<", ">"]
PROTOCOL = 1001
ORDERS: dict[bytes, Order] = {b"little": "<", b"big": ">"}  # of bytes
MAX_REPEATED_BYTES = 32 << 20  # most bytes of a tensor with more elements than its storage, by strides of 0


class StorageBytes:
    """The bytes of a storage in the file.

    `crc`  their crc32, which is compared when the first of them are read; None where the file has none
    """

    def __init__(self, data: FileBytes, offset: int, size: int, crc: int | None) -> None:
        self.data, self.offset, self.size, self.crc = data, offset, size, crc

    def elements(self, start: int, count: int, dtype: np.dtype) -> np.ndarray:
        """Read elements from the one of index `start` on.

        Raises    CheckpointError if the storage is damaged
        """
        isAll = count * dtype.itemsize == self.size and dtype.isnative
        if self.crc is not None and not isAll:
            crc = 0
            for chunk in self.data.chunks(self.offset, self.size):
                crc = zlib.crc32(chunk, crc)
            self.compare(crc)
        values = self.data.array(self.offset + start * dtype.itemsize, count, dtype)
        if self.crc is not None:
            self.compare(zlib.crc32(values.view(np.uint8).data if count else b""))
        return values

    def compare(self, crc: int) -> None:
        """Compare the crc32, once."""
        if crc != self.crc:
            raise CheckpointError(f"its storage is damaged: wanted crc32 {self.crc:08x}, got {crc:08x}")
        self.crc = None


def opened(file: BinaryIO, source: str) -> WeightFile:
    """Open a file, of which the pickles alone are read.

    Raises    CheckpointError for anything but tensors and plain values, or what is damaged
    """
    isZip = file.read(2) == b"PK"
    data = FileBytes(file)
    read = readZip if isZip else readOlder
    return read(file, data, source)


def readZip(file: BinaryIO, data: FileBytes, source: str) -> WeightFile:
    """Open a zip archive."""
    archive = ZipMembers(file)
    name = next((name for name in archive if name.endswith("/data.pkl") and name.count("/") == 1), None)
    if name is None:
        raise CheckpointError("it is a zip archive, but not of torch.save: it has no data.pkl")
    prefix = name.removesuffix("data.pkl")
    if any(other.startswith((f"{prefix}code/", f"{prefix}constants.pkl")) for other in archive):
        raise CheckpointError(
            "it is a TorchScript program; save its tensors alone: torch.save(torch.jit.load(path).state_dict(), path)"
        )
    hasChecksums = any(member.crc for member in archive.values())  # torch can be configured to write none
    order: Order = "<"
    if f"{prefix}byteorder" in archive:
        text = archive.bytesOf(f"{prefix}byteorder", 10, hasChecksums)
        if text not in ORDERS:
            raise CheckpointError(f"its byte order is unknown: {text!r}")
        order = ORDERS[text]
    machine = machineOf(data, archive.bytesOf(name, data.mostStructure, hasChecksums))
    value = machine.load()
    if machine.at != len(machine.data):
        raise CheckpointError("there are bytes behind its pickle")
    storages = {}
    for key, entry in machine.storages.items():
        member = archive.get(f"{prefix}data/{key}")
        if member is None or member.method != STORED or member.size // itemSize(entry) != entry.length:
            raise CheckpointError(f"storage {quote(key)} is missing, compressed, or not of {entry.length} elements")
        storages[key] = StorageBytes(data, member.offset, member.size, member.crc if hasChecksums else None)
    return weightsOf(value, storages, order, data, source)


def machineOf(data: FileBytes, pickles: bytes) -> PickleMachine:
    """Return the reader of a file's pickles."""
    return PickleMachine(pickles, int(STEPS[0] + STEPS[1] * data.size))


def itemSize(entry: StorageEntry) -> int:
    """Bytes of an element of a storage."""
    return storedType(entry.dtype).itemsize if entry.dtype else 1


def readOlder(file: BinaryIO, data: FileBytes, source: str) -> WeightFile:
    """Open a file of the older form, which has no checksums."""
    machine = machineOf(data, data.bytesAt(0, min(data.size, data.mostStructure)))
    magic, protocol, system, value, keys = (machine.load() for _ in range(5))
    if magic != MAGIC or protocol != PROTOCOL or not isinstance(system, dict) or not isinstance(keys, list):
        raise CheckpointError("it is not a file of torch.save: its first pickles are others")
    order: Order = "<" if system.get("little_endian", True) is True else ">"
    storages, at = {}, machine.at
    for key in keys:
        entry = machine.storages.get(key) if isinstance(key, str) else None
        if entry is None or key in storages:
            raise CheckpointError("its list of storages is damaged")
        count = int.from_bytes(data.bytesAt(at, 8), "little" if order == "<" else "big")
        size = count * itemSize(entry)
        if count != entry.length or size > data.size - at - 8:
            raise CheckpointError(f"storage {quote(key)} is cut off, or of another size than its tensors say")
        storages[key] = StorageBytes(data, at + 8, size, None)
        at += 8 + size
    if at != data.size or len(storages) != len(machine.storages):
        raise CheckpointError(f"its storages end at byte {at}, or some are missing; the file has {data.size} bytes")
    return weightsOf(value, storages, order, data, source)


def weightsOf(
    value: object, storages: dict[str, StorageBytes], order: Order, data: FileBytes, source: str
) -> WeightFile:
    """The tensors of the value that was pickled."""
    budget = Budget(data.size)
    state = StateDict(value, budget, data.size)
    tensors = {}
    for name, entry in state.tensors.items():
        try:
            tensors[name] = tensorOf(name, entry, storages[entry.storage.key], order, budget)
        except CheckpointError as error:
            raise CheckpointError(f"tensor {quote(name)}: {error}") from None
    return WeightFile("torch", source, tensors, state.metadata, data.file.close)


def tensorOf(name: str, entry: TensorEntry, storage: StorageBytes, order: Order, budget: Budget) -> StoredTensor:
    """A tensor, all of whose elements are in its storage.

    Raises    CheckpointError if they are not, or if strides repeat them too often
    """
    dtype = storedType(entry.dtype)
    shape, strides, offset = entry.shape, entry.strides, entry.offset
    count = countOf(shape)
    if type(strides) is not tuple or len(strides) != len(shape) or not all(map(isCount, (*strides, offset))):
        raise CheckpointError("its strides or its offset are no whole numbers of at least 0")
    present = storage.size // dtype.itemsize
    length = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides)) if count else 0
    if offset + length > present:
        fault = f"needs {offset + length} elements, its storage has {present}"
        raise CheckpointError(f"{show(tuple(shape))} with strides {show(strides)} {fault}")
    nbytes = count * dtype.itemsize
    if count > present and nbytes > MAX_REPEATED_BYTES:
        raise CheckpointError(f"its strides make {nbytes:,} bytes of the {storage.size:,} in its storage; save a clone")
    budget.spend("bytes of arrays", max(nbytes, length * dtype.itemsize))  # bytes read and returned

    def fetch() -> np.ndarray:
        values = checkedBools(storage.elements(offset, length, dtype.newbyteorder(order)))
        if not count:
            return values.reshape(shape)
        steps = [stride * dtype.itemsize for stride in strides]
        return np.array(np.lib.stride_tricks.as_strided(values, shape, steps), order="C", copy=None)

    return StoredTensor(name, tuple(shape), entry.dtype, fetch)


def isCount(value: object) -> bool:
    """True for a whole number of at least 0."""
    return type(value) is int and value >= 0
