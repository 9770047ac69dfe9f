"""LibraryCall: one call of a library, a step of a GPU program beside its launches of own kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Time = Callable[[Callable[[], None]], float]


class LibraryCall:
    """A call that is described before memory is allocated, and run on addresses.

    `library`    NVIDIA's library that it calls
    `name`       its name in tables
    `slots`      (type, what) of each argument, in order: inputs, then outputs; all are "pointer"s to an array or
                 a placeholder of one
    `workspace`  bytes of scratch memory, aligned to 256 bytes; calls that run one after the
                 other may share it
    """

    library: str
    name: str
    slots: tuple[tuple[str, Any], ...]

    @property
    def workspace(self) -> int:
        raise NotImplementedError

    def prepare(self, addresses: Sequence[int]) -> None:
        """Create all that must not be created while a stream captures; the first `run` does it otherwise."""
        raise NotImplementedError

    def run(self, addresses: Sequence[int], workspace: int, stream: int) -> None:
        """Launch the call on a stream, which may be capturing if it was prepared for these addresses."""
        raise NotImplementedError

    def tune(self, addresses: Sequence[int], workspace: int, limit: int, stream: int, time: Time) -> None:
        """Take, from now on, the library's fastest proposal that needs no more than `limit` bytes at `workspace`.

        `time(run)` gives the seconds of a function that launches the call on the stream.
        """
        raise NotImplementedError

    def emulate(self, arrays: Sequence[np.ndarray]) -> None:
        """Run the call on numpy arrays. Only their start address counts: memory is read by the library's descriptors.
        Sums are in float32, or in float64 for float64."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def pointers(*whats: Any) -> tuple[tuple[str, Any], ...]:
    """Slots for these arrays, without None."""
    return tuple([("pointer", what) for what in whats if what is not None])
