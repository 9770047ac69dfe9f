"""The `.keras` files of Keras 3: a zip archive of config.json, metadata.json and the weights in model.weights.h5.

The archive's checksums are verified. Weights that are not compressed, as Keras writes them, are read directly from the
archive. The configuration is only used for the names of layers; nothing of it is built.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO

from puregraph.core.base.budget import Budget
from puregraph.core.errors import CheckpointError, brief, quote
from puregraph.core.storage.hdffile import HdfFile
from puregraph.core.storage.jsoncodec import loads
from puregraph.serialize.weights.kerasfile import describe
from puregraph.serialize.weights.weightfile import WeightFile
from puregraph.serialize.weights.zipmembers import STORED, ZipMembers

CONFIG, ABOUT, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
MAX_LEVELS = 100  # nesting of models


def opened(file: BinaryIO, source: str) -> WeightFile:
    """Describe the weights in a `.keras` file."""
    members = ZipMembers(file)
    budget = Budget(members.data.size)
    budget.spend("nodes", len(members))
    if WEIGHTS not in members:
        raise CheckpointError(f"its archive has no {WEIGHTS}; it holds {', '.join(map(quote, list(members)[:5]))}")
    about = {name: jsonOf(name, unpacked(members, name, budget), budget) for name in (CONFIG, ABOUT) if name in members}
    hdf = HdfFile(weightsIn(members, file, budget))
    config, version = about.get(CONFIG), about.get(ABOUT)
    weights = describe(hdf, source, file.close)
    weights.format = "keras"
    configured = {path: name for path, name in configuredLayers(config) if hasGroup(weights, path)}
    weights.metadata["layers"] = configured | weights.metadata.get("layers", {})
    weights.metadata |= version if isinstance(version, dict) else {}
    weights.metadata["config"] = config
    return weights


def jsonOf(name: str, text: bytes, budget: Budget) -> Any:
    """The content of a JSON file of the archive."""
    try:
        return loads(text, budget)
    except ValueError as error:
        raise CheckpointError(f"its {name} is not JSON: {error!s:.200}") from None


def unpacked(members: ZipMembers, name: str, budget: Budget) -> bytes:
    """The bytes of a file in the archive, whose checksum is compared."""
    budget.spend("bytes of arrays", members[name].size)
    return members.bytesOf(name, members[name].size)


def weightsIn(members: ZipMembers, file: BinaryIO, budget: Budget) -> BinaryIO:
    """Return the weights as a file: a window onto the archive if they are not compressed."""
    member = members[WEIGHTS]
    if member.method != STORED:
        return io.BytesIO(unpacked(members, WEIGHTS, budget))
    for _ in members.chunks(member):  # verifies the checksum
        pass
    return FileWindow(file, member.offset, member.size)  # type: ignore[return-value]


class FileWindow:
    """A part of a file, read as if it were a file."""

    def __init__(self, file: BinaryIO, start: int, size: int):
        self.file, self.start, self.size, self.at = file, start, size, 0

    @property
    def closed(self) -> bool:
        return self.file.closed

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = min(self.size, max(0, offset + {0: 0, 1: self.at, 2: self.size}[whence]))
        return self.at

    def read(self, count: int) -> bytes:
        self.file.seek(self.start + self.at)
        data = self.file.read(min(count, self.size - self.at))
        self.at += len(data)
        return data


def hasGroup(weights: WeightFile, path: str) -> bool:
    """True if the file has variables of this layer, or of layers in it."""
    return any(name.startswith(f"{path}/") for name in weights)


def configuredLayers(config: Any, path: str = "", level: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the path that Keras stores each layer of a configuration under, and its name.

    A path counts the layers of a class: layers/conv2d, layers/conv2d_1, ...
    """
    inner = config.get("config") if isinstance(config, dict) else None
    layers = inner.get("layers") if isinstance(inner, dict) else None
    if not isinstance(layers, list):
        return
    if level == MAX_LEVELS:
        raise CheckpointError(f"its {CONFIG} is nested more than {MAX_LEVELS} deep, at {brief(path)}")
    counts: Counter[str] = Counter()
    for layer in layers:
        if not isinstance(layer, dict) or not isinstance(layer.get("class_name"), str):
            continue
        kind = snakeCase(layer["class_name"])
        number = f"_{counts[kind]}" if counts[kind] else ""
        counts[kind] += 1
        inside = f"{path}layers/{kind}{number}"
        settings = layer.get("config")
        name = layer.get("name", settings.get("name") if isinstance(settings, dict) else None)
        if isinstance(name, str):
            yield inside, name
        yield from configuredLayers(layer, f"{inside}/", level + 1)


def snakeCase(name: str) -> str:
    """The name of a class as Keras writes it in paths: max_pooling2d for MaxPooling2D."""
    return re.sub(r"(?<=.)(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])", "_", re.sub(r"\W", "", name)).lower()
