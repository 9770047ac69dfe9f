"""Sharded weights: an index names the file of each array, and the files beside it are read as one.

{"metadata": {"total_size": 96}, "weight_map": {"NAME": "model-00001-of-00002.safetensors", ...}}
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from typing import Any, BinaryIO

from puregraph.core.errors import CheckpointError, brief, quote
from puregraph.core.storage.jsoncodec import loads
from puregraph.serialize.weights.filebytes import FileBytes
from puregraph.serialize.weights.readers import readWeights
from puregraph.serialize.weights.weightfile import WeightFile

SHARD = re.compile(r"[^/\\:\0]+\.(safetensors|bin|pt|pth)")  # a name without a folder
MAX_OPEN_SHARDS = 512  # shards, which are all open at the same time
MAX_INDEX_BYTES = 16 << 20  # bytes of an index
ENTRIES = (50_000, 1 / 40)  # entries of an index, and more for each byte of it


def opened(file: BinaryIO, source: str) -> WeightFile:
    """Open an index and the shards that it names, which are beside it; links to files elsewhere are followed.

    Raises    CheckpointError naming a shard that is missing, damaged, or has not the arrays that the index says
    """
    with file:
        folder, index = folderOf(file), readIndex(file)
    names = dict.fromkeys(index["weight_map"].values())
    if len(names) > MAX_OPEN_SHARDS:
        raise CheckpointError(f"it names {len(names)} files; at most {MAX_OPEN_SHARDS} are supported")
    with ExitStack() as stack:
        shards = {name: openShard(folder, name, stack) for name in names}
        tensors = {}
        for name, shard in index["weight_map"].items():
            if name not in shards[shard]:
                raise CheckpointError(f"its shard {quote(shard)} has no array {quote(name)}")
            tensors[name] = shards[shard][name]
        return WeightFile("sharded", source, tensors, index.get("metadata"), stack.pop_all().close)


def folderOf(file: BinaryIO) -> str:
    """The folder of an open file."""
    if not isinstance(getattr(file, "name", None), (str, bytes)):
        raise CheckpointError("it is an index, whose shards are in other files: give its path")
    return os.path.dirname(os.fsdecode(file.name))


def readIndex(file: BinaryIO) -> dict[str, Any]:
    """The content of an index, whose names of shards have no folder.

    Raises    CheckpointError for any other
    """
    data = FileBytes(file)
    if data.size > MAX_INDEX_BYTES:
        raise CheckpointError(f"it has {data.size:,} bytes, and an index at most {MAX_INDEX_BYTES:,}")
    text = data.bytesAt(0, data.size)
    if text.count(b",") + text.count(b"{") + text.count(b"[") > ENTRIES[0] + ENTRIES[1] * data.size:
        raise CheckpointError("it has more entries than an index of its size may have")
    try:
        index = loads(text)
    except ValueError as error:
        raise CheckpointError(f"it is not JSON: {error!s:.200}") from None
    shardOf = index.get("weight_map")
    if not isinstance(shardOf, dict):
        raise CheckpointError(f"wanted an index with a weight_map, got {brief(index)}")
    if not isinstance(index.get("metadata", {}), dict):
        raise CheckpointError(f"its metadata: wanted an object, got {brief(index['metadata'])}")
    for name, shard in shardOf.items():
        if not isinstance(shard, str) or not SHARD.fullmatch(shard) or not shard.isprintable():
            raise CheckpointError(f"array {quote(name)}: wanted a file of weights beside the index, got {brief(shard)}")
    return index


def openShard(folder: str, name: str, stack: ExitStack) -> WeightFile:
    """Open a shard, which `stack` closes.

    Raises    CheckpointError naming it
    """
    try:
        shard = readWeights(os.path.join(folder, name))
    except CheckpointError as error:
        raise CheckpointError(f"its shard {quote(name)}, which must be beside it: {error}") from error
    stack.callback(shard.close)
    return shard
