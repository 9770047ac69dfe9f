"""Liveness: when each buffer of a pass is made and last used, and the bytes that are in use at one time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, cast

from puregraph.core.dim import Size
from puregraph.core.shape import bind


class Liveness:
    """When each buffer of a training step is made and last used; values that share memory are one buffer.

    `middle` is the time of the cost: after forward, before backward.
    """

    def __init__(self) -> None:
        self.time = self.middle = 0
        self.owner: dict[int, int] = {}
        self.sizes: dict[int, Size] = {}
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.held: set[int] = set()

    def make(self, number: int, size: Size, within: int | None = None) -> None:
        """Record that a value is made now, in its own memory or in that of another value, which may be a parameter."""
        if within is not None:
            self.owner[number] = self.owner.get(within, within)
        else:
            self.owner[number], self.sizes[number] = number, size
            self.first[number] = self.last[number] = self.time

    def use(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            owner = self.owner.get(number)
            if owner in self.sizes:
                self.last[owner] = self.time

    def hold(self, numbers: Iterable[int]) -> None:
        """Record the values that an eager Graph, which frees nothing, still holds after the step."""
        self.held.update(self.owner[n] for n in numbers if self.owner.get(n) in self.sizes)

    def sizeOf(self, number: int) -> Size | None:
        """The bytes of the buffer that a value is in."""
        return self.sizes.get(self.owner.get(number, number))

    def bound(self, symbols: dict[str, int]) -> dict[int, int]:
        """The bytes of every buffer, with numbers for symbols."""
        texts = {size for size in self.sizes.values() if isinstance(size, str)}
        numbers: dict[Size, Any] = {text: bind((text,), symbols, complete=True)[0] for text in texts}
        return {n: numbers[size] if size in numbers else cast(int, size) for n, size in self.sizes.items()}

    def kept(self, symbols: dict[str, int]) -> int:
        return sum(size for n, size in self.bound(symbols).items() if self.first[n] < self.middle < self.last[n])

    def heldBytes(self, symbols: dict[str, int]) -> int:
        sizes = self.bound(symbols)
        return sum(sizes[n] for n in self.held)

    def peak(self, symbols: dict[str, int]) -> int:
        """The most bytes in use at one time."""
        change: dict[int, int] = defaultdict(int)
        for n, size in self.bound(symbols).items():
            change[self.first[n]] += size
            change[self.last[n] + 1] -= size
        inUse = most = 0
        for time in sorted(change):
            inUse += change[time]
            most = max(most, inUse)
        return most
