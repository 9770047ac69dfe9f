"""Atomic writes: the path always holds a complete file, the old one or the new one."""

from __future__ import annotations

import os
import platform
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, BinaryIO

from puregraph.core.errors import CheckpointError

if TYPE_CHECKING:
    from typing import Any

try:
    import fcntl
except ImportError:  # Windows: there an open file cannot be removed, which protects a file being written as well
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".part"
NUMBERS = count()


@contextmanager
def whole(path: Any, owner: Any | None = None) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends without an exception.

    It is written beside `path` as `.NAME.HOST.PID.NUMBER.part`, flushed to disk (fsync) and renamed, and the rename is
    flushed, too. Temporary files that killed processes have left are removed first. The new file has the permissions of
    the old one. A symbolic link is kept, and its target replaced. A file that belongs to another one, its `owner`, has
    a temporary name of the owner, so that the owner's next save removes leftovers.

    Raises    CheckpointError with the reason if any of this fails; the old file is then unchanged
    """
    if "\0" in os.fsdecode(path):
        raise CheckpointError(f"cannot save {path!r}: no path has NUL characters")
    target = os.path.realpath(os.fsdecode(path))
    partial = None
    try:
        mode = modeOf(target)
        beside = target if owner is None else os.path.realpath(os.fsdecode(owner))
        removeOrphans(beside)
        file, partial = openPartial(beside, mode)
        with closing(file):
            yield file
            if mode is not None:
                os.chmod(partial, mode)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:
                os.replace(partial, target)  # while the lock is held, so that no process removes it as an orphan
                partial = None
        if fcntl is None:
            os.replace(partial, target)  # Windows cannot rename an open file
            partial = None
        syncFolder(os.path.dirname(target))
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"cannot save '{path}': {reason(error, target)}") from error
    finally:
        if partial is not None:
            with suppress(OSError):
                os.unlink(partial)


def modeOf(target: str) -> int | None:
    """Return the permissions of the file that will be replaced; None if there is none."""
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"cannot save '{target}': that path exists and is not a file")
    return stat.S_IMODE(status.st_mode)


@contextmanager
def closing(file: BinaryIO) -> Iterator[None]:
    """Close a file at the end; errors are ignored, because after fsync all data is on disk."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            file.close()
        raise
    with suppress(OSError):
        file.close()


def openPartial(target: str, mode: int | None = None) -> tuple[BinaryIO, str]:
    """Create a file beside the target, locked while it is open. Returns it and its path.

    If it replaces a file, it never has more permissions than that.
    """

    def opener(path: str, flags: int) -> int:
        return os.open(path, flags, 0o666 if mode is None else mode & 0o666 | 0o600)

    folder, name = os.path.split(target)
    while True:
        path = os.path.join(folder, f"{prefix(name)}{os.getpid()}.{next(NUMBERS)}{SUFFIX}")
        try:
            file = open(path, "xb", opener=opener)
        except FileExistsError:
            continue
        try:
            if locked(file) and os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file, path
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()  # removed as an orphan by another process before it was locked


def locked(file: BinaryIO) -> bool:
    """Lock a file for as long as it is open; False if somebody else was faster."""
    if fcntl is not None:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without locks: there no orphan can be recognised, and none is removed
    return True


def prefix(name: str) -> str:
    """Return the prefix of a target's temporary files on this machine, shortened because names have a limit."""
    host = re.sub(r"[^0-9A-Za-z-]", "-", platform.node())[:40]
    return f".{name[:30]}.{host}."


def removeOrphans(target: str) -> None:
    """Remove the temporary files of processes that died while they wrote this target."""
    folder, name = os.path.split(target)
    pattern = re.compile(re.escape(prefix(name)) + r"\d+\.\d+" + re.escape(SUFFIX))
    for entry in os.listdir(folder):
        if pattern.fullmatch(entry):
            with suppress(OSError):  # somebody else was faster
                removeDead(os.path.join(folder, entry))


def removeDead(path: str) -> None:
    """Remove a file unless a process holds its lock."""
    if fcntl is None:
        os.unlink(path)
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(descriptor)


def syncFolder(folder: str) -> None:
    """Flush a rename to disk, on systems that can do so for a folder."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def reason(error: OSError, target: str) -> str:
    """Explain an error of the system to the user who wanted to save."""
    folder = os.path.dirname(target)
    if isinstance(error, FileNotFoundError) and not os.path.isdir(folder):
        return f"there is no folder '{folder}'; make it first"
    if isinstance(error, PermissionError):
        return f"no permission to write in '{folder}'"
    kept = "; the file that was there is as it was" if os.path.exists(target) else ""
    return f"{error.strerror or error}{kept}"
