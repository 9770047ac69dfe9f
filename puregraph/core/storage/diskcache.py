"""The disk cache of compiled kernels: files with a checksum, written atomically, shared by any number of processes.

Cached files are executed. So a folder is used only if no other user than root can write to it or to any of its parent
folders. A file is used only if it is a regular file of the user or root whose checksum fits its name. Everything else
is ignored, and the kernel is compiled again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

from puregraph.core.errors import GraphWarning
from puregraph.core.errors.userwarning import warnUser

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC = b"puregraph kernel\n"
DIGEST_BYTES = 32
SUFFIX = ".kernel"
PART = ".part"
OURS = re.compile(rf"[0-9a-f]{{40}}\{SUFFIX}(\.\d+\.\d+\{PART})?")  # file names of this module
FORGOTTEN_SECONDS = 60 * 86400  # seconds since its last use after which a kernel is removed
ABANDONED_SECONDS = 86400
MAX_LINKS = 40  # most symbolic links in the path of a folder
OTHERS = stat.S_IWGRP | stat.S_IWOTH
REGULAR = os.O_RDONLY | sum(getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "NONBLOCK", "CLOEXEC", "BINARY"))
NUMBERS = count()


def read(name: str, **fields: type) -> tuple[dict[str, Any], bytes] | None:
    """Return the header and the object stored under a name; None if there is no complete and trusted file.

    `fields`: names and types of required header fields.
    """
    for folder in folders():
        path = os.path.join(folder, name + SUFFIX)
        with suppress(OSError):
            if not isTrusted(folder):
                continue
            entry = unpack(name, contentOf(path))
            if entry is not None and all(type(entry[0].get(field)) is kind for field, kind in fields.items()):
                touch(path)
                return entry
    return None


def write(name: str, header: Mapping[str, object], data: bytes) -> bool:
    """Store a header and an object under a name. Returns False if no folder is usable, which only costs time later."""
    content = pack(name, header, data)
    for folder in folders():
        with suppress(OSError):
            if not isTrusted(folder):  # before anything is created in another user's folder
                continue
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if isTrusted(folder):  # again, with the folders just created
                sweep(folder)
                replace(os.path.join(folder, name + SUFFIX), content)
                return True
    return False


def pack(name: str, header: Mapping[str, object], data: bytes) -> bytes:
    """The content of a file: magic, checksum of its name and the rest, header as a line of JSON, object."""
    rest = json.dumps(header).encode() + b"\n" + data
    return MAGIC + checksum(name, rest) + rest


def unpack(name: str, content: bytes) -> tuple[dict[str, Any], bytes] | None:
    """Return the header and data passed to `pack`; None for a file that is truncated, damaged, renamed or foreign."""
    start = len(MAGIC) + DIGEST_BYTES
    payload = content[start:]
    if not content.startswith(MAGIC) or content[len(MAGIC) : start] != checksum(name, payload):
        return None
    line, _, data = payload.partition(b"\n")
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return (header, data) if isinstance(header, dict) else None


def checksum(name: str, data: bytes) -> bytes:
    """Return the checksum of a file's name and content."""
    return hashlib.blake2b(name.encode() + b"\n" + data, digest_size=DIGEST_BYTES).digest()


def contentOf(path: str) -> bytes:
    """Return the bytes of a regular file that only the user or root can have written.

    Raises    OSError if it is anything else
    """
    handle = os.open(path, REGULAR)  # follows no link and does not wait for the other end of a pipe
    with os.fdopen(handle, "rb", closefd=True) as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or mayOthersWrite(path, status):
            raise PermissionError(f"{path} is not a regular file that only its user can write")
        return file.read()


def replace(path: str, content: bytes) -> None:
    """Write a file atomically.

    It is not flushed to disk (fsync), because a file damaged by a crash of the machine has a wrong checksum.
    """
    part = f"{path}.{os.getpid()}.{next(NUMBERS)}{PART}"
    try:
        with open(part, "xb", opener=private) as file:
            file.write(content)
        with suppress(PermissionError):  # Windows: another process reads the existing file, which has the same content
            os.replace(part, path)
            return
        os.unlink(part)
    except OSError:
        with suppress(OSError):
            os.unlink(part)
        raise


def private(path: str, flags: int) -> int:
    """Open a file that no other user can write, whatever the umask."""
    return os.open(path, flags, 0o600)


# Whom a folder is open to ------------------------------------------------------------------------------------------


def isTrusted(folder: str) -> bool:
    """True if only the user and root can put files into a folder, which need not exist. If not, warn once."""
    parent = None if os.name == "nt" else writableParent(folder)  # on Windows a user's folders are the user's own
    if parent is not None:
        refuse(folder, parent)
    return parent is None


def writableParent(folder: str) -> str | None:
    """Return the first link or folder on the way to a folder that others may change; None if there is none.

    Every link is followed by hand and checked, because its owner decides where it leads. In a folder with the sticky
    bit, such as /tmp, others can make new entries, but cannot change the user's entries.
    """
    here, ahead, links = os.sep, pieces(os.path.abspath(folder)), 0
    while links < MAX_LINKS:
        try:
            status = os.lstat(here)
        except FileNotFoundError:
            return None
        isLink = stat.S_ISLNK(status.st_mode)
        isSticky = bool(status.st_mode & stat.S_ISVTX) and bool(ahead)
        if not isOwn(status) if isLink or isSticky else mayOthersWrite(here, status):
            return here
        if isLink:
            target = os.readlink(here)
            here, links = os.sep if os.path.isabs(target) else os.path.dirname(here), links + 1
            ahead += pieces(target)
        elif ahead:
            here = os.path.normpath(os.path.join(here, ahead.pop()))
        else:
            return None
    return folder


def pieces(path: str) -> list[str]:
    """The names in a path, the first one last."""
    return [piece for piece in reversed(path.split(os.sep)) if piece]


def isOwn(status: os.stat_result) -> bool:
    """True if a file or folder belongs to the user or to root."""
    return os.name == "nt" or status.st_uid in (0, os.geteuid())


def mayOthersWrite(path: str, status: os.stat_result) -> bool:
    """True if another user than the user or root owns a file or folder, or may write to it."""
    if os.name == "nt":
        return False
    others = status.st_mode & OTHERS
    return not isOwn(status) or (others != 0 and not (others == stat.S_IWGRP and isPrivate(path, status)))


def isPrivate(path: str, status: os.stat_result) -> bool:
    """True if the group of a file is the user's private group, as on systems that give every new user a group."""
    import grp
    import pwd

    with suppress(KeyError, OSError):
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(status.st_gid)
        isAlone = (group.gr_gid, group.gr_name) == (user.pw_gid, user.pw_name) and set(group.gr_mem) <= {user.pw_name}
        return isAlone and "system.posix_acl_access" not in getattr(os, "listxattr", lambda path: [])(path)
    return False


@cache
def refuse(folder: str, parent: str) -> None:
    """Warn, once per process, that a folder is not used."""
    warnUser(
        f"compiled kernels are not kept in {folder}: others may write to {parent}, and could have their own code run; "
        "let nobody else write to it (chown, chmod go-w), or set PUREGRAPH_CACHE to such a folder",
        GraphWarning,
    )


# Where they are ----------------------------------------------------------------------------------------------------


def folders() -> Iterator[str]:
    """Yield the folders where kernels are looked up and stored, best first."""
    best = os.environ.get("PUREGRAPH_CACHE") or usual()
    if best is not None:
        yield best
    spare = spareFolder()
    if spare is not None:
        yield spare


def usual() -> str | None:
    """Return the standard cache folder of the system; None for a user without a home."""
    home = os.path.expanduser("~")
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
        folder = os.path.join(base, "puregraph", "cache")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        folder = os.path.join(base if os.path.isabs(base) else os.path.join(home, ".cache"), "puregraph")
    return folder if os.path.isabs(folder) else None


def spareFolder() -> str | None:
    """Return a folder for temporary files; None if it cannot be created, or if other users may write to it."""
    import tempfile  # brings the compressors of five archive formats, and the usual cache needs none of them

    with suppress(OSError):  # there may be no temporary folder
        if os.name == "nt":
            return os.path.join(tempfile.gettempdir(), "puregraph")  # on Windows it is the user's own
        path = os.path.join(tempfile.gettempdir(), f"puregraph-{os.geteuid()}")
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        if stat.S_ISDIR(os.lstat(path).st_mode) and writableParent(path) is None:
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
        if OURS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            limit = ABANDONED_SECONDS if entry.name.endswith(PART) else FORGOTTEN_SECONDS
            with suppress(OSError):  # another process was faster
                if now - entry.stat(follow_symlinks=False).st_mtime > limit:
                    os.unlink(entry.path)
