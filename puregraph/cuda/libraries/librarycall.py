"""LibraryCall: one call of a library, which a program on a GPU has beside its launches of own kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Time = Callable[[Callable[[], None]], float]


class LibraryCall:
    """A call that is described before any memory is there, and carried out on addresses.

    `name`       what a table shows
    `slots`      (type, what) of each argument, in order: what is read, then what is written; all are "pointer"s to an
                 array or whatever stands for one
    `workspace`  the bytes that it needs while it runs, at an address that 256 divides; calls that run one after the
                 other may share them
    """

    name: str
    slots: tuple[tuple[str, Any], ...]

    @property
    def workspace(self) -> int:
        raise NotImplementedError

    def prepare(self, addresses: Sequence[int]) -> None:
        """Have everything made that must not be made while a stream captures; the first `run` does it otherwise."""
        raise NotImplementedError

    def run(self, addresses: Sequence[int], workspace: int, stream: int) -> None:
        """Put the call on a stream, which may be capturing if it was prepared for these addresses."""
        raise NotImplementedError

    def tune(self, addresses: Sequence[int], workspace: int, room: int, stream: int, time: Time) -> None:
        """Take, from now on, the proposal of the library that is fastest, and needs no more than `room` at `workspace`.

        `time(run)` gives the seconds that a function takes which puts the call on the stream.
        """
        raise NotImplementedError

    def emulate(self, arrays: Sequence[np.ndarray]) -> None:
        """The same on arrays of numpy, of which nothing is believed but where they start: what lies there is taken as
        the library is told, and sums are in float32, or in float64 for float64."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def pointers(*whats: Any) -> tuple[tuple[str, Any], ...]:
    """Slots for these arrays, without those that are None."""
    return tuple([("pointer", what) for what in whats if what is not None])
