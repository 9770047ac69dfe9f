"""Given: the arguments of a kernel, collected while its text is written.

A text names what it needs, as `given.number("rows", 31)`, and gets back how to say that in C: `g.rows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from puregraph.cuda.source import STORED

TYPES = {"int": "int", "long": "int64", "float": "float", "double": "double"}


class Given:
    """Arguments by name, in order: how each is declared, and what its slot holds."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.slots: list[tuple[str, Any]] = []

    def pointer(self, name: str, dtype: str, what: Any, isWritten: bool = False) -> str:
        """An array of numbers of a dtype."""
        return self.keep(name, f"{'' if isWritten else 'const '}{STORED[dtype]}*", "pointer", what)

    def number(self, name: str, value: int, kind: str = "int") -> str:
        """A number."""
        return self.keep(name, TYPES[kind], kind, value)

    def keep(self, name: str, declared: str, kind: str, what: Any) -> str:
        if name not in self.fields:
            self.fields[name] = declared
            self.slots.append((kind, what))
        return f"g.{name}"

    @property
    def arguments(self) -> str:
        """The arguments as a kernel declares them."""
        return ", ".join(
            f"{declared} __restrict__ {name}" if "*" in declared else f"{declared} {name}"
            for name, declared in self.fields.items()
        )

    @property
    def struct(self) -> str:
        """Them all in one, which functions hand on."""
        return "struct Given {\n" + "".join(f"  {d} {n};\n" for n, d in self.fields.items()) + "};\n"

    @property
    def made(self) -> str:
        """The struct made of the arguments."""
        return f"const Given g = {{{', '.join(self.fields)}}};"

    def offset(self, name: str, indices: Sequence[str], strides: Iterable[int], kind: str = "long") -> str:
        """The sum of indices times strides."""
        terms = []
        for i, (index, stride) in enumerate(zip(indices, strides)):
            if stride == 1:
                terms.append(index)
            elif stride:
                terms.append(f"{index} * {self.number(f'{name}{i}', stride, kind)}")
        return " + ".join(terms) or "0"

    def indices(self, name: str, number: str, sizes: Sequence[int], title: str) -> tuple[str, list[str]]:
        """C that takes a number apart into indices along axes of these sizes, the last the quickest; their names."""
        names = [f"{name}{i}" for i in range(len(sizes))]
        if not sizes:
            return "", []
        lines, left = [], number
        for i in range(len(sizes) - 1, 0, -1):
            size, (magic, shift) = sizes[i], divider(max(1, sizes[i]))
            size, magic, shift = (
                self.number(f"{title}{i}{part}", x) for part, x in (("", size), ("Magic", magic), ("Shift", shift))
            )
            lines.append(f"const int {name}Left{i} = divide({left}, {magic}, {shift});")
            lines.append(f"const int {names[i]} = {left} - {name}Left{i} * {size};")
            left = f"{name}Left{i}"
        return "\n".join([*lines, f"const int {names[0]} = {left};"]), names


def divider(size: int) -> tuple[int, int]:
    """(magic, shift) such that x // size == (x * magic // 2^32 + x) >> shift for all x from 0 to 2^31 - 1.

    Source    Granlund and Montgomery 1994, Division by Invariant Integers using Multiplication, figure 4.1
    """
    shift = (size - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - size) // size + 1) & 0xFFFFFFFF, shift


DIVIDE = """
__device__ static inline int divide(int x, unsigned magic, int shift) {
  return (int)((__umulhi((unsigned)x, magic) + (unsigned)x) >> shift);
}
"""
