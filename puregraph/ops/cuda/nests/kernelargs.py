"""The arguments of a kernel, collected while its text is written.

A text declares an argument, as `args.number("rows", 31)`, and gets its C expression: `g.rows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from puregraph.ops.cuda.runtime.launch import divisor
from puregraph.ops.cuda.runtime.preprocess import STORED

TYPES = {"int": "int", "long": "int64", "float": "float", "double": "double"}


class KernelArgs:
    """Arguments by name, in order: the declaration of each, and the value of its slot."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.slots: list[tuple[str, Any]] = []

    def pointer(self, name: str, dtype: str, what: object, isWritten: bool = False) -> str:
        """A pointer to an array of a dtype."""
        return self.keep(name, f"{'' if isWritten else 'const '}{STORED[dtype]}*", "pointer", what)

    def number(self, name: str, value: int, kind: str = "int") -> str:
        """An integer."""
        return self.keep(name, TYPES[kind], kind, value)

    def keep(self, name: str, declared: str, kind: str, what: object) -> str:
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
        """A struct of all arguments, to pass to functions."""
        return "struct Given {\n" + "".join(f"  {d} {n};\n" for n, d in self.fields.items()) + "};\n"

    @property
    def made(self) -> str:
        """C that fills the struct from the arguments."""
        return f"const Given g = {{{', '.join(self.fields)}}};"

    def offset(self, name: str, indices: Sequence[str], strides: Iterable[int], kind: str = "long") -> str:
        """C of the sum of indices times strides."""
        terms = []
        for i, (index, stride) in enumerate(zip(indices, strides)):
            if stride == 1:
                terms.append(index)
            elif stride:
                terms.append(f"{index} * {self.number(f'{name}{i}', stride, kind)}")
        return " + ".join(terms) or "0"

    def divisor(self, name: str, by: int) -> str:
        """The arguments of `quotient`: a divisor, and its factor and shift."""
        factor, shift = divisor(max(1, by))
        parts = (name, by), (f"{name}Factor", factor), (f"{name}Shift", shift)
        return ", ".join([self.number(part, value) for part, value in parts])

    def indices(self, name: str, number: str, sizes: Sequence[int], title: str) -> tuple[str, list[str]]:
        """C that unravels a flat index into indices along axes of these sizes, the last fastest; and the names of the
        indices."""
        names = [f"{name}{i}" for i in range(len(sizes))]
        if not sizes:
            return "", []
        lines, left = [], number
        for i in range(len(sizes) - 1, 0, -1):
            by = self.divisor(f"{title}{i}", sizes[i])
            lines.append(f"const int {name}Left{i} = quotient({left}, {by});")
            lines.append(f"const int {names[i]} = {left} - {name}Left{i} * g.{title}{i};")
            left = f"{name}Left{i}"
        return "\n".join([*lines, f"const int {names[0]} = {left};"]), names
