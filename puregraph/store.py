"""The folder of compiled kernels: files with a checksum, written whole, shared by any number of processes."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any

MAGIC = b"puregraph kernel\n"
DIGEST = 32
SUFFIX = ".kernel"
PART = ".part"
FORGOTTEN = 60 * 86400  # seconds since its last use after which a kernel is removed
ABANDONED = 86400
NUMBERS = count()


def read(name: str) -> tuple[dict[str, Any], bytes] | None:
    """The header and the object stored under a name; None where there is none that is whole."""
    for folder in folders():
        path = os.path.join(folder, name + SUFFIX)
        with suppress(OSError):
            with open(path, "rb") as file:
                content = file.read()
            found = unpack(content)
            if found is not None:
                touch(path)
                return found
    return None


def write(name: str, header: dict[str, Any], data: bytes) -> bool:
    """Store a header and an object under a name; False where no folder takes it, which only costs time later."""
    content = pack(header, data)
    for folder in folders():
        with suppress(OSError):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            sweep(folder)
            replace(os.path.join(folder, name + SUFFIX), content)
            return True
    return False


def pack(header: dict[str, Any], data: bytes) -> bytes:
    """The content of a file: magic, checksum of the rest, header as a line of JSON, object."""
    rest = json.dumps(header).encode() + b"\n" + data
    return MAGIC + checksum(rest) + rest


def unpack(content: bytes) -> tuple[dict[str, Any], bytes] | None:
    """What `pack` was given; None for a file that was cut, damaged, or is none of ours."""
    start = len(MAGIC) + DIGEST
    rest = content[start:]
    if not content.startswith(MAGIC) or content[len(MAGIC) : start] != checksum(rest):
        return None
    header, _, data = rest.partition(b"\n")
    return json.loads(header), data


def checksum(data: bytes) -> bytes:
    """What tells that a file is whole."""
    return hashlib.blake2b(data, digest_size=DIGEST).digest()


def replace(path: str, content: bytes) -> None:
    """Write a file whole or not at all.

    It is not brought to the disk (fsync): what a crash of the machine leaves is told by its checksum.
    """
    part = f"{path}.{os.getpid()}.{next(NUMBERS)}{PART}"
    try:
        with open(part, "xb") as file:
            file.write(content)
        with suppress(PermissionError):  # Windows: another process reads the file of that name, which is the same
            os.replace(part, path)
            return
        os.unlink(part)
    except OSError:
        with suppress(OSError):
            os.unlink(part)
        raise


def folders() -> Iterator[str]:
    """Where kernels are looked for and stored, best first."""
    best = os.environ.get("PUREGRAPH_CACHE") or usual()
    if best is not None:
        yield best
    spare = spareFolder()
    if spare is not None:
        yield spare


def usual() -> str | None:
    """The folder for what can be made again, by the custom of the system; None for a user without a home."""
    home = os.path.expanduser("~")
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
        folder = os.path.join(base, "puregraph", "cache")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        folder = os.path.join(base if os.path.isabs(base) else os.path.join(home, ".cache"), "puregraph")
    return folder if os.path.isabs(folder) else None


def spareFolder() -> str | None:
    """A folder among the temporary files; None if somebody else may write there, for what it holds is executed."""
    if os.name == "nt":
        return os.path.join(tempfile.gettempdir(), "puregraph")  # the user's own
    path = os.path.join(tempfile.gettempdir(), f"puregraph-{os.getuid()}")
    with suppress(OSError):
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
            return path
    return None


def touch(path: str) -> None:
    """Note the use of a file, once a day."""
    with suppress(OSError):
        if time.time() - os.stat(path).st_mtime > 86400:
            os.utime(path)


@cache
def sweep(folder: str) -> None:
    """Remove, once a process, kernels long unused and what killed processes left."""
    now = time.time()
    for entry in os.scandir(folder):
        limit = {SUFFIX: FORGOTTEN, PART: ABANDONED}.get(os.path.splitext(entry.name)[1], sys.maxsize)
        with suppress(OSError):  # another process was faster
            if now - entry.stat().st_mtime > limit:
                os.unlink(entry.path)
