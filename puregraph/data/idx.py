"""IDX: the format of MNIST's files, plain or gzipped, read with every claim checked."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from puregraph.core.arguments import FilePath, takes
from puregraph.core.base.budget import LIMITS
from puregraph.core.errors import DataError

if TYPE_CHECKING:
    from puregraph.core.protocols import StrPath

DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MAX_AXES = 32
READ_BYTES = 1 << 20  # bytes read at a time: memory grows with what a file holds, not with what it claims


@takes(path=FilePath)
def readIdx(path: Any) -> np.ndarray:
    """Return the array in an IDX file, in this machine's byte order; a gzipped file is recognised by its first bytes.

    Source    LeCun, Cortes, Burges 1998, THE MNIST DATABASE, "file formats"
    Raises    DataError naming the file if it is missing, not IDX, of an unknown dtype or another size than its shape,
              or gzipped from far more bytes than numbers usually are, which would fill the memory

    >>> with open("labels-idx1-ubyte", "wb") as file:
    ...     count = file.write(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    >>> readIdx("labels-idx1-ubyte")
    array([7, 2, 1], dtype=uint8)
    """
    try:
        with open(path, "rb") as file:
            isZipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            size = os.fstat(file.fileno()).st_size
            return parse(gzip.GzipFile(fileobj=file), path, size) if isZipped else parse(file, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: the gzipped data is cut off or damaged: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def parse(file: Any, path: StrPath, zipped: int | None = None) -> np.ndarray:
    """Read the array of an open file, which is not trusted; `zipped` is its compressed size in bytes."""
    head = take(file, 4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in DTYPES:
        begins = f"begins with {head.hex(' ')}" if head else "is empty"
        raise DataError(f"{path}: wanted an IDX file (0, 0, dtype, axes), this one {begins}")
    dtype, axes = np.dtype(DTYPES[head[2]]), head[3]
    if axes > MAX_AXES:
        raise DataError(f"{path}: wanted at most {MAX_AXES} axes, got {axes}")
    sizes = take(file, 4 * axes)
    if len(sizes) < 4 * axes:
        raise DataError(f"{path}: wanted the sizes of {axes} axes, the file ends before them")
    shape = struct.unpack(f">{axes}I", sizes)
    wanted = math.prod(shape) * dtype.itemsize
    most = wanted if zipped is None else math.ceil(LIMITS["bytes of arrays"][0] + LIMITS["bytes of arrays"][1] * zipped)
    body = take(file, min(wanted, most) + 1)
    if len(body) > most < wanted:
        raise DataError(
            f"{path}: wanted at most {most:,} bytes of an array in {zipped:,} gzipped bytes, got more; unpack the file "
            "if you trust it"
        )
    if len(body) != wanted:
        actual = "more" if len(body) > wanted else f"{len(body)}"
        raise DataError(f"{path}: shape {shape} of {dtype.name} takes {wanted} bytes, got {actual}")
    return np.frombuffer(body, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def take(file: BinaryIO, count: int) -> bytearray:
    """Up to `count` bytes, in chunks."""
    body = bytearray()
    while len(body) < count:
        piece = file.read(min(READ_BYTES, count - len(body)))
        if not piece:
            break
        body += piece
    return body
