"""Frozen: weights in the order in which native code uses them, kept as long as the weights stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.compile.value import Value
from puregraph.native.memory import Block
from puregraph.native.work import Work


class Frozen:
    """Packed weights of a program that changes no parameter.

    They are packed anew when a parameter holds other numbers than before. That is told by some of them, spread evenly:
    an update, a file that is loaded, or any other change of a whole weight does not go unseen. After a change of single
    numbers in place, `refresh` the program.
    """

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.values: dict[Any, Value] = {}
        self.weights: dict[int, Value] = {}

    def keep(self, weight: Value, number: int, count: int, write: Callable[[Value], list[Work]]) -> Value:
        """The Value with the packed weight; `write(to)` says how it is packed."""
        made = Value(number, (count,), np.dtype(np.float32), (4,), "constant", "packed", source=floats(count))
        key = weight.number, *((w.key, *[v for v in w.slots.values() if isinstance(v, int)]) for w in write(made))
        if key not in self.values:
            self.values[key] = made
            self.weights[weight.root.number] = weight.root
            self.works += write(made)
        return self.values[key]


def floats(count: int) -> Any:
    """Memory for numbers, on large pages where there are many."""
    block = Block(4 * count)
    whole = np.frombuffer(block.map, np.uint8)
    start = block.address - whole.__array_interface__["data"][0]
    return whole[start : start + 4 * count].view(np.float32)
