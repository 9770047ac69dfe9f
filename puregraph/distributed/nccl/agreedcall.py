"""AgreedCall: what a process is about to do on its GPU, in numbers that all processes compare."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

NAMES = (
    "allReduce",
    "reduceScatter",
    "allGather",
    "broadcast",
    "allToAll",
    "send and receive",
    "begins to capture a graph",
    "has captured a graph",
    "begins to exchange the gradients of a step",
)
DTYPES = ("", *"bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64".split())
REFUSED = -1  # the number of a process that cannot capture a graph


class AgreedCall(NamedTuple):
    """A call as numbers: its name, dtype, number of elements and root rank."""

    name: int
    dtype: int = 0
    elements: int = 0
    root: int = -1

    @classmethod
    def of(cls, name: str, array: Any = None, root: int = -1) -> AgreedCall:
        """Return the call of a collective with an array; without an array, sizes are not compared."""
        if array is None:
            return cls(NAMES.index(name), root=root)
        kind = np.dtype(array.dtype).name
        return cls(NAMES.index(name), DTYPES.index(kind) if kind in DTYPES else 0, array.size, root)

    def text(self) -> str:
        """Describe the call for an error."""
        size = f" of {self.elements:,} {DTYPES[self.dtype]}".rstrip() if self.dtype or self.elements else ""
        return f"{NAMES[self.name]}{size}{f' from rank {self.root}' if self.root >= 0 else ''}"

    def differs(self, rank: int, other: AgreedCall, otherRank: int) -> str:
        """Describe two ranks with different calls, which would wait for each other forever."""
        both = f"rank {rank}: {self.text()}; rank {otherRank}: {other.text()}"
        return f"processes do different things on their GPUs: {both}"


BEGINS, ENDS, STEP = map(AgreedCall, range(len(NAMES) - 3, len(NAMES)))
