"""Axes: how a thread computes the offsets of elements of arrays of one shape, whatever their strides.

Axes that all arrays traverse alike are joined, so that arrays without gaps cost no division. In the text `i` becomes an
offset of each array by its name; sizes and strides are arguments, only the number of axes is in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

INT32_ELEMENTS = 1 << 31  # fewer elements than this are counted in 32 bits, which divide faster


class Axes(NamedTuple):
    """A shape, and under each name the strides of an array in elements."""

    shape: tuple[int, ...]
    strides: dict[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def counter(self) -> str:
        """The C type that counts the elements."""
        return "unsigned" if self.size < INT32_ELEMENTS else "int64"

    @property
    def parameters(self) -> str:
        """The parameters of a kernel for them."""
        sizes = [f"int n{a}" for a in range(1, len(self.shape))]
        return ", ".join([*sizes, *(f"int64 {x}{a}" for x in self.strides for a in range(len(self.shape)))])

    @property
    def arguments(self) -> str:
        """The names of the parameters, to pass them on."""
        return ", ".join(parameter.split()[-1] for parameter in self.parameters.split(", "))

    @property
    def slots(self) -> tuple[tuple[str, Any], ...]:
        """The arguments for the parameters."""
        sizes = [("int", n) for n in self.shape[1:]]
        return (*sizes, *(("long", s) for strides in self.strides.values() for s in strides))

    def defined(self, name: str) -> str:
        """Macros with all of this under a name, for a text that is written once for any number of axes."""
        texts = {"COUNTER": self.counter, "PARAMETERS": self.parameters, "ARGUMENTS": self.arguments}
        return "".join(f"#define {name}_{what} {text}\n" for what, text in (*texts.items(), ("OFFSETS", self.offsets)))

    @property
    def offsets(self) -> str:
        """Statements that declare the offset of every array at element `i`, under its name."""
        last = len(self.shape) - 1
        lines = []
        for a in range(last, 0, -1):
            remaining = "i" if a == last else f"r{a + 1}"
            lines += [
                f"const {self.counter} r{a} = {remaining} / n{a};",
                f"const {self.counter} c{a} = {remaining} - r{a} * n{a};",
            ]
        lines.append(f"const {self.counter} c0 = {'r1' if last else 'i'};")
        for x in self.strides:
            terms = " + ".join(f"c{a} * {x}{a}" for a in range(len(self.shape)))
            lines.append(f"const int64 {x} = {terms};")
        return " ".join(lines)


def axesOf(shape: Sequence[int], strides: dict[str, Sequence[int]]) -> Axes:
    """The axes of arrays with these strides in elements, without axes of length one; adjacent axes are merged."""
    lines = list(strides.values())
    sizes: list[int] = []
    steps: list[tuple[int, ...]] = []
    for n, *axisSteps in zip(shape, *lines):
        if n == 1:
            continue
        if sizes and all(outer == n * inner for outer, inner in zip(steps[-1], axisSteps)):
            sizes[-1] *= n
            steps[-1] = tuple(axisSteps)
        else:
            sizes.append(n)
            steps.append(tuple(axisSteps))
    if not sizes:
        sizes, steps = [1], [(0,) * len(lines)]
    return Axes(tuple(sizes), dict(zip(strides, zip(*steps))))
