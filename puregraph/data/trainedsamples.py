"""Trained samples: which samples a network was trained on in earlier runs, as long as its weights are those left."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np

from puregraph.data.batches import Arrays, Stream
from puregraph.data.samplekeys import MOST, keysOf

LOOKED = 16  # elements of each parameter by which weights are told from others


# of each network the keys of samples, and the mark of its weights after them
TRAINED: WeakKeyDictionary[Any, tuple[np.ndarray, int]] = WeakKeyDictionary()


def remember(net: Any, source: Arrays | Stream, checks: Arrays | Stream | None) -> None:
    """Note what a network was trained on in a run that was validated."""
    keys = keysOf(source) if checks is not None else None
    if keys is not None:
        keys = np.union1d(keys, earlierKeys(net))[:MOST]
        TRAINED[net] = keys, weightsMark(net)


def earlierKeys(net: Any) -> np.ndarray:
    """The keys of what a network was trained on; none where its weights were set since then."""
    keys, mark = TRAINED.get(net, (np.zeros(0, np.uint64), None))
    return keys if mark is None or mark == weightsMark(net) else np.zeros(0, np.uint64)


def weightsMark(net: Any) -> int:
    """A number that is another one where weights in memory were set or trained."""
    mark = 0
    for param in net.params.values():
        x = param.data
        if type(x) is np.ndarray:
            mark = crc32(x.reshape(-1)[:: max(1, x.size // LOOKED)].tobytes(), mark)
    return mark
