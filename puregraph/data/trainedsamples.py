"""Trained samples: which samples a network was trained on in earlier runs, as long as its weights are those left.

Of each sample a number is kept, by which equal ones are found among many.
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

ELEMENTS = 64  # of each array that are read of a sample, from all over it
MOST = 1 << 20  # samples beyond which they are not looked at
MIXER = np.uint64(0x9E3779B97F4A7C15)  # an odd number of irregular bits: 2**64 by the golden ratio
LOOKED = 16  # elements of each parameter by which other weights are recognised


# of each network the keys of samples, and the mark of its weights after them
TRAINED: WeakKeyDictionary[Any, tuple[np.ndarray, int]] = WeakKeyDictionary()


def remember(net: Graph, source: Arrays | Stream, checks: Arrays | Stream | None) -> None:
    """Note what a network was trained on in a run that was validated."""
    keys = keysOf(source) if checks is not None else None
    if keys is not None:
        keys = np.union1d(keys, earlierKeys(net))[:MOST]
        TRAINED[net] = keys, weightsMark(net)


def earlierKeys(net: Graph) -> np.ndarray:
    """The keys of what a network was trained on; none where its weights were set since then."""
    keys, mark = TRAINED.get(net, (np.zeros(0, np.uint64), None))
    return keys if mark is None or mark == weightsMark(net) else np.zeros(0, np.uint64)


def weightsMark(net: Graph) -> int:
    """A number that is another one where weights in memory were set or trained."""
    mark = 0
    for param in net.params.values():
        x = param.array  # without a lease
        if type(x) is np.ndarray:
            mark = crc32(x.reshape(-1)[:: max(1, x.size // LOOKED)].tobytes(), mark)
    return mark


def keysOf(source: Arrays | Stream | None) -> np.ndarray | None:
    """The keys of the samples of arrays, data and targets together; None of batches."""
    return sampleKeys([*source.data, *source.target]) if isinstance(source, Arrays) else None


def sampleKeys(arrays: Sequence[AnyArray]) -> np.ndarray | None:
    """A number for each sample, the same for samples that are equal in all arrays where they are looked at.

    None where an array is elsewhere than in memory, holds other things than numbers, or has too many samples.
    """
    if not arrays or any(type(x) is not np.ndarray or x.dtype.kind not in "biuf" for x in arrays):
        return None
    if len(arrays[0]) > MOST or any(x.dtype.itemsize > 8 for x in arrays):
        return None
    keys = np.zeros(len(arrays[0]), np.uint64)
    for x in arrays:
        rows = x.reshape(len(x), -1)
        for column in rows.T[:: max(1, -(-rows.shape[1] // ELEMENTS))]:
            keys ^= np.ascontiguousarray(column).view(f"u{x.dtype.itemsize}")
            keys *= MIXER
            keys ^= keys >> np.uint64(29)
    return keys
