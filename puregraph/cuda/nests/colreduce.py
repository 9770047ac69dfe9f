"""Column reductions: loop nests that reduce other axes than the contiguous one.

The threads of a block are arranged along x, for neighbouring columns, and along y, for rows in strides; at the end
of each phase those of a column combine their partial results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from puregraph.cuda.nests.nestwriter import HOWS, KINDS, NestWriter, manyOf
from puregraph.cuda.runtime.launch import WARP, Launch
from puregraph.formula.loopnest import LoopNest, ReducedNest, isAxis

BLOCK = 256
FEW = 132  # blocks or fewer, that leave a large GPU capacity for more threads in each


def columnLaunch(nest: LoopNest, axes: frozenset[int]) -> Launch:
    """The launch of a nest that reduces some axes, the last one not among them."""
    return ColumnWriter(nest, axes).write()


def across(nest: LoopNest) -> tuple[int, int, int]:
    """How many elements a thread has of the columns, how many threads are along them, and how many blocks."""
    columns = nest.space[-1]
    many = manyOf(nest, [columns])
    x = min(WARP, 1 << (columns // many - 1).bit_length())
    return many, x, -(-columns // (many * x))


class ColumnWriter(NestWriter):
    """Writes the text of column reductions."""

    def __init__(self, nest: LoopNest, axes: frozenset[int]):
        many, self.x, self.blocks = across(nest)
        super().__init__(ReducedNest(nest, axes), many)
        self.length = prod(nest.space[a] for a in axes)
        isFew = self.blocks * prod(nest.space[:-1]) // self.length < FEW
        self.y = max(1, min((2 * BLOCK if isFew else BLOCK) // self.x, 1 << (self.length - 1).bit_length()))

    def write(self) -> Launch:
        shape, nest = self.shape, self.nest
        others = shape.outer[:-1]
        blocks = self.number("blocks", self.blocks)
        columns = self.number("columns", nest.space[-1])
        self.line(f"DYNAMIC({self.T}, scratch);")
        self.line(f"const {self.I} other = blockIdx.x / {blocks}, block = blockIdx.x - other * {blocks};")
        self.outer = self.unravel("other", others) if others else {}
        self.outer[shape.inner] = "i"
        with self.block(f"for (int part = 0; part < {self.many} / v; part++)"):
            self.line(f"const {self.I} at = ((block * ({self.many} / v) + part) * {self.x} + threadIdx.x) * v;")
            self.line(f"const bool isOn = at < {columns};")
            self.line(f"const {self.I} i = isOn ? at : 0;")
            self.line(f"const {self.I} length = {self.rows()};")
            self.column()
        shared = self.x * self.y * self.many * KINDS[nest.kind][1]
        grid = self.blocks * prod(nest.space[a] for a in others)
        return self.launch("columns", grid, (self.x, self.y, 1), shared)

    def column(self) -> None:
        """Some columns, in phases."""
        shape = self.shape
        for p in range(shape.count):
            reductions, _, stores = shape.at(p)
            if reductions or stores:
                self.phase(reductions, stores)
        single = [n for n in self.nest.stores if not shape.spread[n]]
        if single:  # they may read what they write: so one thread alone reads it
            with self.block("if (isOn && threadIdx.y == 0)"):
                self.fixed(single, self.outer)
                for n in single:
                    self.line(f"{self.T} b_{n}[v];")
                    with self.lanes():
                        self.line(f"b_{n}[u] = {self.known[n]};")
                    self.put(n, self.outer, f"b_{n}")

    def phase(self, reductions: list[str], stores: list[str]) -> None:
        """One phase: results are written, partial reductions are accumulated and combined."""
        shape, T = self.shape, self.T
        self.fixed([*(shape.reductions[n].of for n in reductions), *stores], self.outer)
        for n in reductions:
            self.line(f"{T} f_{n}[v];")
            with self.lanes():
                self.line(f"f_{n}[u] = {self.start(shape.reductions[n].how)};")
        with self.block("if (isOn)"), self.block(f"for ({self.I} j = threadIdx.y; j < length; j += {self.y})", 4):
            rows = self.unravel("j", shape.loops)
            self.each({**self.outer, **rows}, stores, {n: f"f_{n}[u]" for n in reductions})
        for n in reductions:
            self.line(f"reduceColumns<{HOWS[shape.reductions[n].how]}, v>(f_{n}, scratch);")
            self.known[n] = f"f_{n}[u]"

    def fixed(self, names: Iterable[str], indices: Mapping[int, str]) -> None:
        """Hoist, for each column, what does not vary along the rows."""
        T = self.T
        for name in self.order(self.shape.dependencies(names)):
            if name in self.known or (isAxis(name) and int(name[4:]) not in indices):
                continue
            if isAxis(name):
                a = int(name[4:])
                self.known[name] = f"(({T})({indices[a]}{' + u' if a == self.shape.inner else ''}))"
            elif name in self.nest.loads:
                offset, step = self.offset(f"l_{name}", indices), self.stride(f"l_{name}", self.shape.inner)
                if step == "0":
                    self.line(f"const {T} {name} = load(l_{name}, {offset});")
                    self.known[name] = name
                    continue
                self.line(f"{T} c_{name}[v];")
                apart = "" if step == "1" else f", {step}"
                self.line(f"{'loadApart' if apart else 'loadMany'}<v>(l_{name}, {offset}{apart}, c_{name});")
                self.known[name] = f"c_{name}[u]"
            else:
                self.line(f"{T} c_{name}[v];")
                with self.lanes():
                    for n in self.used([name], (), ()):
                        self.line(f"const {T} {n} = {self.known[n]};")
                    self.line(self.formula(name))
                    self.line(f"c_{name}[u] = {name};")
                self.known[name] = f"c_{name}[u]"

    def rows(self) -> str:
        """The number of rows that are reduced."""
        loops, nest = self.shape.loops, self.nest
        rest = prod(nest.space[a] for a in loops[1:])
        first = self.number(f"n{loops[0]}", nest.space[loops[0]])
        if nest.ragged:
            first = f"min({first}, {self.number('whole', nest.ragged[1])} - {self.outer[0]} * {first})"
        return first if rest == 1 else f"{first} * {self.number('rest', rest)}"
