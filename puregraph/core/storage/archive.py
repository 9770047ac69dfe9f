"""A checkpoint file: named arrays and one JSON manifest, in HDF5 that is checked byte by byte.

    user block   "puregraph checkpoint 1", the file's length, where the manifest is, its crc32, and one over these lines
    structure    the HDF5 that `hdf.Layout` makes of the arrays' names, shapes and dtypes
    arrays       contiguous, little-endian, aligned
    manifest     the last array: JSON with name, shape, dtype and crc32 of every other one, and all other contents

So each byte is verified once: by a crc32, or by its only possible value. Reading does not use HDF5's own library;
h5py, h5dump and other programs can open the file as usual. Equal content gives equal bytes.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from puregraph.core.base.budget import Budget
from puregraph.core.base.dtype import dtypeNamed
from puregraph.core.errors import CheckpointError, DtypeError, brief
from puregraph.core.storage.hdf import BASE, RANK, Array, HdfLayout, faultsOf
from puregraph.core.storage.jsoncodec import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT_VERSION = 1
TITLE = b"puregraph checkpoint "
SIGNATURE = b"\x89HDF\r\n\x1a\n"
MAX_JSON_BYTES = 1 << 30  # bytes of JSON
COPIED_BYTES = 1 << 22
HEADER = re.compile(
    rb"puregraph checkpoint (\d{1,9})\nlength (\d{1,18})\nmanifest (\d{1,18}) (\d{1,18}) ([0-9a-f]{8})\n"
    rb"header [0-9a-f]{8}\n"
)
MANIFEST = "manifest"


class Header(NamedTuple):
    """The fields of the user block."""

    version: int
    length: int
    offset: int
    size: int
    crc: int

    def write(self) -> bytes:
        """Return the user block, which is readable with `head`."""
        text = TITLE + b"%d\nlength %d\nmanifest %d %d %08x\n" % self
        return (text + b"header %08x\n" % zlib.crc32(text)).ljust(BASE, b"\0")


def littleEndian(dtype: str) -> np.dtype:
    """Return the little-endian dtype of the file; on a little-endian machine by its plain name."""
    native = dtypeNamed(dtype)
    return native if sys.byteorder == "little" else native.newbyteorder("<")


def manifestArray(size: int) -> Array:
    """Return the description of the manifest, which is stored as an array of bytes."""
    return Array(MANIFEST, (size,), "uint8")


def write(file: BinaryIO, arrays: list[tuple[Array, Callable[[], Any]]], about: Mapping[str, object]) -> None:
    """Write arrays, each fetched just before it is written, and a manifest with the entries of `about`.

    Raises    CheckpointError for a name or dtype that HDF5 cannot hold
    """
    named = [array for array, _ in arrays]
    faults = faultsOf([*named, manifestArray(0)])
    if faults:
        raise CheckpointError("; ".join(faults[:10]))
    layout = HdfLayout([*named, manifestArray(0)])
    rows = []
    for (array, fetch), offset in zip(arrays, layout.offsets, strict=False):
        values = np.asarray(fetch(), littleEndian(array.dtype), order="C")
        if values.shape != array.shape:
            raise CheckpointError(
                f"'{array.name}' changed its shape from {array.shape} to {values.shape} while it was saved"
            )
        data = values.reshape(-1).view(np.uint8).data if values.size else b""
        file.seek(offset)
        file.write(data)
        rows.append([array.name, list(array.shape), array.dtype, zlib.crc32(data)])
    manifest = dumps({**about, "arrays": rows})
    layout = HdfLayout([*named, manifestArray(len(manifest))])
    file.seek(layout.offsets[-1])
    file.write(manifest)
    file.seek(0)
    file.write(Header(FORMAT_VERSION, layout.end, layout.offsets[-1], len(manifest), zlib.crc32(manifest)).write())
    for piece in layout.structure():
        file.write(piece.data)


class Archive:
    """A file whose header, manifest and structure are verified; arrays are verified when they are read.

    `arrays`    the descriptions of its arrays, by name
    `manifest`  the manifest without its list of arrays
    """

    def __init__(self, file: BinaryIO):
        self.file = file
        self.length = file.seek(0, 2)
        header = self.header()
        self.budget = Budget(header.size)
        self.manifest, rows = self.readManifest(header)
        self.layout = self.layoutOf(rows, header)
        self.arrays = {array.name: array for array in self.layout.arrays[:-1]}
        self.offsets = {
            array.name: offset for array, offset in zip(self.layout.arrays, self.layout.offsets, strict=True)
        }
        self.crcs = {name: crc for name, _, _, crc in rows}
        self.checkStructure()
        self.checkGaps()

    # Verification ---------------------------------------------------------------------------------------------------

    def bytesAt(self, offset: int, size: int) -> bytes:
        self.file.seek(offset)
        return self.file.read(size)

    def header(self) -> Header:
        """Read the user block, which must be byte for byte the one that `save` writes for its fields."""
        block = self.bytesAt(0, BASE)
        if not block.startswith(TITLE):
            raise CheckpointError(f"not a puregraph checkpoint: {foreign(block)}")
        match = HEADER.match(block)
        if match is None:
            raise CheckpointError("its header, the first 512 bytes, is damaged")
        version, length, offset, size = (int(match[i]) for i in (1, 2, 3, 4))
        header = Header(version, length, offset, size, int(match[5], 16))
        if header.write() != block:
            raise CheckpointError("its header, the first 512 bytes, is damaged")
        if header.version != FORMAT_VERSION:
            raise CheckpointError(
                f"it is of version {header.version}, this puregraph reads version {FORMAT_VERSION}; "
                "a newer one may read it"
            )
        if header.length != self.length:
            change = "cut off" if self.length < header.length else "longer than it was written"
            raise CheckpointError(f"it is {change}: wanted {header.length} bytes, got {self.length}")
        return header

    def readManifest(self, header: Header) -> tuple[dict[str, Any], list[Any]]:
        """Return the manifest, and its list of arrays."""
        if not BASE <= header.offset <= self.length - header.size or header.size > MAX_JSON_BYTES:
            raise CheckpointError(f"its manifest cannot be {header.size} bytes at {header.offset}")
        text = self.bytesAt(header.offset, header.size)
        if zlib.crc32(text) != header.crc:
            raise CheckpointError(f"its manifest is damaged: wanted crc32 {header.crc:08x}, got {zlib.crc32(text):08x}")
        try:
            manifest = loads(text, self.budget)
        except ValueError as error:
            raise CheckpointError(f"its manifest is not JSON: {error!s:.200}") from None
        if not isinstance(manifest, dict) or not isinstance(manifest.get("arrays"), list):
            raise CheckpointError("its manifest lists no arrays")
        return manifest, manifest.pop("arrays")

    def layoutOf(self, rows: list[Any], header: Header) -> HdfLayout:
        """Return the layout of the manifest's arrays, which must be that of this file."""
        for row in rows:
            if not isRow(row):
                raise CheckpointError(f"its manifest describes no array: {brief(row)}")
        arrays = [*(Array(name, tuple(shape), dtype) for name, shape, dtype, _ in rows), manifestArray(header.size)]
        faults = faultsOf(arrays)
        if faults:
            raise CheckpointError(f"its manifest is impossible: {'; '.join(faults[:3])}")
        for array in arrays:
            if array.nbytes > self.length:
                raise CheckpointError(
                    f"'{array.name}' cannot have the shape {array.shape}: {array.nbytes} bytes of {array.dtype} "
                    f"in a file of {self.length}"
                )
        layout = HdfLayout(arrays)
        if layout.end != self.length or layout.offsets[-1] != header.offset:
            raise CheckpointError(f"its arrays need {layout.end} bytes, but it has {self.length}")
        return layout

    def checkStructure(self) -> None:
        """Compare every byte of the HDF5 structure with its only possible value."""
        at = BASE
        data = self.bytesAt(at, self.layout.structureEnd - at)
        pieces = self.layout.structure()
        if b"".join([piece.data for piece in pieces]) == data:
            return
        for piece in pieces:
            if data[at - BASE : at - BASE + len(piece.data)] != piece.data:
                raise CheckpointError(
                    f"{piece.name} is not as puregraph wrote it (at byte {at}): it is damaged, or the file was edited"
                )
            at += len(piece.data)

    def checkGaps(self) -> None:
        """Check that the bytes between arrays are zero."""
        at = self.layout.structureEnd
        for array, offset in zip(self.layout.arrays, self.layout.offsets, strict=True):
            if offset > at and any(self.bytesAt(at, offset - at)):
                raise CheckpointError(
                    f"the bytes before '{array.name}' (at byte {at}) are not zero: the file is damaged"
                )
            at = offset + array.nbytes

    # Reading --------------------------------------------------------------------------------------------------------

    def read(self, name: str) -> np.ndarray:
        """Read an array, and verify its checksum.

        Raises    CheckpointError naming it if it is damaged
        """
        array = self.arrays[name]
        try:
            values = np.empty(array.shape, littleEndian(array.dtype))
        except DtypeError as error:
            raise CheckpointError(f"'{name}' cannot be read: {error}") from None
        self.file.seek(self.offsets[name])
        view = values.reshape(-1).view(np.uint8).data if values.size else memoryview(bytearray())
        self.compare(name, zlib.crc32(view) if fill(self.file, view) else -1)
        if array.dtype == "bool" and values.size and values.view(np.uint8).max() > 1:
            raise CheckpointError(f"'{name}' is no array of bools")
        return values.astype(array.dtype, copy=False)

    def check(self, names: Iterable[str]) -> None:
        """Verify the checksums of arrays without keeping the arrays."""
        for name in names:
            self.file.seek(self.offsets[name])
            left, crc = self.arrays[name].nbytes, 0
            while left:
                data = self.file.read(min(left, COPIED_BYTES))
                if not data:
                    raise CheckpointError(f"'{name}' is cut off")
                crc, left = zlib.crc32(data, crc), left - len(data)
            self.compare(name, crc)

    def compare(self, name: str, crc: int) -> None:
        if crc != self.crcs[name]:
            got = f"got {crc:08x}" if crc >= 0 else "but it is cut off"
            raise CheckpointError(f"'{name}' is damaged: wanted crc32 {self.crcs[name]:08x}, {got}")


WEIGHTS = (
    "; load its weights into a network with net.load(path, names=...), or read them with "
    "puregraph.weights.readWeights(path)"
)
STATE = "save the arrays alone, torch.save(model.state_dict(), path), and load them with net.load(path, names=...)"
TORCHNUMBER = 0x1950A86A20F9469CFC6C.to_bytes(10, "little")  # the magic number of torch's older file format


def isRow(row: Any) -> bool:
    """True if a row of the manifest is [name, shape, dtype, crc32]."""
    return (
        isinstance(row, list)
        and [type(part) for part in row] == [str, list, str, int]
        and len(row[1]) <= RANK
        and all(type(n) is int and 0 <= n < 1 << 60 for n in row[1])
    )


def fill(file: BinaryIO, view: memoryview) -> bool:
    """Read until the view is full; False at the end of the file."""
    at = 0
    while at < len(view):
        count = file.readinto(view[at:])  # type: ignore[attr-defined]
        if not count:
            return False
        at += count
    return True


def foreign(block: bytes, weights: str = WEIGHTS) -> str:
    """Describe the probable kind of a foreign file, and what to do; `weights` is appended if it may have weights."""
    kinds = {
        b"PK\x03\x04": f"a zip archive, as torch, Keras and numpy write{weights}",
        b"\x93NUMPY": f"a numpy array{weights}",
        b"\x80": f"a pickle, which puregraph never reads; {STATE}",
        b"GGUF": f"a GGUF file{weights}",
        b"version https://git-lfs": "a pointer of Git LFS, not the file itself; run git lfs pull",
        b"<!DOCTYPE": "a web page",
        TITLE: "a checkpoint of puregraph; puregraph.load reads it",
        SIGNATURE: "HDF5 that another program wrote; if that was PuzzleLib, load it with format='puzzlelib'"
        f"{weights and '; if it was Keras' + weights[1:]}",
        b"": "empty",
    }
    if TORCHNUMBER in block[:40]:
        return f"it is a file of torch, in its older form{weights}"
    if block[8:9] == b"{" or block[4:8] == b"TFL3":
        return f"it is a file of {'safetensors' if block[8:9] == b'{' else 'TFLite'}{weights}"
    for start, kind in kinds.items():
        if block.startswith(start) and (start or not block):
            return f"it is {kind}"
    return f"it begins with {block[:16]!r}"
