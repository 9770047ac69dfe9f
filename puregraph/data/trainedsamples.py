"""Trained samples: remember the samples of earlier runs of a network, as long as its weights are unchanged.

It stores a hash of each sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np

from puregraph.data.batches import Arrays, Stream

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.graph.graph import Graph

MAX_HASHED_ELEMENTS = 64  # most elements of a sample that are hashed, evenly spaced, per array
MAX_HASHED_SAMPLES = 1 << 20  # most samples that are hashed
MIXER = np.uint64(0x9E3779B97F4A7C15)  # an odd number of irregular bits: 2**64 by the golden ratio
CHECKSUM_ELEMENTS = 16  # elements of each parameter in the checksum of weights


# by network, the hashes of its training samples, and the checksum of its weights after training
TRAINED: WeakKeyDictionary[Any, tuple[np.ndarray, int]] = WeakKeyDictionary()


def remember(net: Graph, source: Arrays | Stream, checks: Arrays | Stream | None) -> None:
    """Store the hashes of a network's training samples, if the run has a validation."""
    keys = keysOf(source) if checks is not None else None
    if keys is not None:
        keys = np.union1d(keys, earlierKeys(net))[:MAX_HASHED_SAMPLES]
        TRAINED[net] = keys, weightsMark(net)


def earlierKeys(net: Graph) -> np.ndarray:
    """Return the hashes of the samples that a network was trained on; none if its weights have changed since."""
    keys, mark = TRAINED.get(net, (np.zeros(0, np.uint64), None))
    return keys if mark is None or mark == weightsMark(net) else np.zeros(0, np.uint64)


def weightsMark(net: Graph) -> int:
    """Return a checksum of a network's weights in memory."""
    mark = 0
    for param in net.params.values():
        x = param.array  # without a lease
        if type(x) is np.ndarray:
            mark = crc32(x.reshape(-1)[:: max(1, x.size // CHECKSUM_ELEMENTS)].tobytes(), mark)
    return mark


def keysOf(source: Arrays | Stream | None) -> np.ndarray | None:
    """Return a hash per sample, of data and targets together; None for a stream of batches."""
    return sampleKeys([*source.data, *source.target]) if isinstance(source, Arrays) else None


def sampleKeys(arrays: Sequence[AnyArray]) -> np.ndarray | None:
    """Return a hash per sample, of up to MAX_HASHED_ELEMENTS elements of each array.

    None if an array is not a numpy array of numbers, or if there are too many samples.
    """
    if not arrays or any(type(x) is not np.ndarray or x.dtype.kind not in "biuf" for x in arrays):
        return None
    if len(arrays[0]) > MAX_HASHED_SAMPLES or any(x.dtype.itemsize > 8 for x in arrays):
        return None
    keys = np.zeros(len(arrays[0]), np.uint64)
    for x in arrays:
        rows = x.reshape(len(x), -1)
        for column in rows.T[:: max(1, -(-rows.shape[1] // MAX_HASHED_ELEMENTS))]:
            keys ^= np.ascontiguousarray(column).view(f"u{x.dtype.itemsize}")
            keys *= MIXER
            keys ^= keys >> np.uint64(29)
    return keys
