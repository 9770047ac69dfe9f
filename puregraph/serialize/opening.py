"""Opening: a file, bytes or arrays to load from, by format; errors name the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from puregraph.core.errors import ArgumentError, CheckpointError, printable
from puregraph.core.storage.archive import TITLE
from puregraph.graph import Graph
from puregraph.serialize.nativefile import NativeFile
from puregraph.serialize.openfile import folderOf, openFile

if TYPE_CHECKING:
    from puregraph.serialize.weights.loading import MappedWeights


DETECTED_BYTES = 512  # bytes from which a format is detected


FORMATS: dict[str, Callable[..., Any]] = {  # the reader of each format, given the file, its folder and a root in it
    "puregraph": lambda file, folder, root: NativeFile(file, folder),
    "puzzlelib": lambda file, folder, root: import_module("puregraph.compat.puzzlelib").PuzzleFile(file, root),
}


class NameOptions(NamedTuple):
    """The graph that a foreign file is loaded into, and the map of the file's names: see `Graph.load`."""

    graph: Graph
    names: Any = None
    prefix: str = ""


@contextmanager
def opened(
    source: Any, format: str | None = None, root: str | None = None, mapping: NameOptions | None = None
) -> Iterator[Any]:
    """Open a file, bytes, or arrays by name, to load from.

    Without a format, it is recognised by the content. Errors inside the block name the file, see `namingFaults`.
    """
    isMapping = isinstance(source, Mapping)
    with namingFaults(source):
        if format is not None and format not in FORMATS:
            raise CheckpointError(f"format: wanted {' or '.join(map(repr, FORMATS))}, got {format!r:.60}")
        with nullcontext(source) if isMapping else openFile(source) as file:
            if isMapping or format is None and isForeign(file, source, mapping):
                reader = foreignSource(source, mapping)
            else:
                reader = FORMATS[format or "puregraph"](file, folderOf(source), root)
            try:
                yield reader
            finally:
                reader.close()


@contextmanager
def namingFaults(source: Any) -> Iterator[None]:
    """Raise any error inside the block as a CheckpointError that names the file."""
    isBytes = isinstance(source, (bytes, bytearray, memoryview))
    isMapping = isinstance(source, Mapping)
    label = "the given bytes" if isBytes else "the given arrays" if isMapping else f"'{os.fspath(source)}'"
    try:
        yield
    except ArgumentError:
        raise
    except CheckpointError as error:
        isNamed = str(error).startswith("cannot load")  # raised by the reader
        raise CheckpointError(printable(f"{'' if isNamed else f'cannot load {label}: '}{error}")) from error.__cause__
    except FileNotFoundError as error:
        raise CheckpointError(f"cannot load {label}: there is no such file") from error
    except IsADirectoryError as error:
        raise CheckpointError(f"cannot load {label}: it is a folder") from error
    except Exception as error:  # a forged file may cause any error
        raise CheckpointError(printable(f"cannot load {label}: {type(error).__name__}: {error!s:.300}")) from error


def isForeign(file: BinaryIO, source: Any, mapping: NameOptions | None) -> bool:
    """True for a file of weights that another program wrote.

    Raises    CheckpointError for a checkpoint of puregraph with names of another program
    """
    head = file.read(DETECTED_BYTES)
    file.seek(0)
    if head.startswith(TITLE):
        if mapping is not None and (mapping.names is not None or mapping.prefix):
            raise CheckpointError("names= and prefix= are for files of other programs; this one is puregraph's own")
        return False
    from puregraph.serialize.weights.readers import readerOf  # most files are puregraph's own

    reader = readerOf(head, "" if folderOf(source) is None else os.fsdecode(source), file)
    return reader is not None and reader.format not in FORMATS  # formats of FORMATS must be requested by name


def foreignSource(source: Any, mapping: NameOptions | None) -> MappedWeights:
    """The arrays of a file of weights, or of a dict of arrays, as those of a graph."""
    from puregraph.serialize.weights.loading import MappedWeights, storedFrom
    from puregraph.serialize.weights.readers import readWeights

    weights = storedFrom(source) if isinstance(source, Mapping) else readWeights(source)
    return MappedWeights(weights, *(mapping or (None,)))
