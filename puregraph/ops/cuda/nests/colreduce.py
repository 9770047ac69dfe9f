"""Column reductions: loop nests that reduce axes other than the contiguous one.

The threads of a block are arranged along x, for neighbouring columns, and along y, for rows in strides; at the end
of each phase the threads of a column combine their partial results. If rows are divided among blocks, the last block to
store its part of some columns reduces all parts of these, in order, and continues with the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd, prod

from puregraph.ops.cuda.nests.formulatext import preamble
from puregraph.ops.cuda.nests.nestwriter import HOWS, KINDS, NestWriter, manyOf, slotsOf
from puregraph.ops.cuda.runtime.compiler import ROUNDED
from puregraph.ops.cuda.runtime.launch import BUSIEST, PROCESSORS, TICKETS, WARP, Launch
from puregraph.ops.cuda.runtime.preprocess import read
from puregraph.ops.formula.loopnest import LoopNest, ReducedNest, isAxis

BLOCK_THREADS = 256
MAX_THREAD_COLUMNS = 4  # maximum columns of a thread: more take too many registers for sums and kept values
TWO_ROW_OPERANDS = (
    4  # operands from which on two rows, not four, are loaded at a time: registers hold no more loads in flight
)
FULLBLOCK = 384  # threads of a block, if rows are divided among blocks
RESIDENT = BUSIEST // FULLBLOCK  # resident blocks of that size per multiprocessor
SECTOR = 32  # bytes of a memory sector, the unit of reads along the columns


def columnLaunch(nest: LoopNest, axes: frozenset[int]) -> Launch:
    """The launch of a nest that reduces some axes, the last one not among them."""
    return ColumnWriter(nest, axes).write()


def finishedLaunch(partial: LoopNest, axes: frozenset[int], ending: LoopNest) -> Launch:
    """The launch of a nest that reduces parts, along axis 0, and of one that reduces axis 0 of their results."""
    first = ColumnWriter(partial, axes, FULLBLOCK)
    first.resident = RESIDENT
    launch = first.write()
    last = ColumnWriter(ending, frozenset([0]), like=first)
    last.write()
    lastSlots = {f"last_{n}": slot for n, slot in last.slots.items()}
    slots = {**first.slots, **lastSlots, "tickets": ("pointer", "unsigned*", TICKETS)}
    groups = launch.grid[0] // partial.space[0]
    if groups > TICKETS.size:
        raise ValueError(f"wanted at most {TICKETS.size} groups of blocks, got {groups}")
    source = f"{ROUNDED}{preamble([*first.formulas(), *last.formulas()], first.T)}\n"
    source += (
        read("lastblock.h")
        + first.function("run")
        + last.function("finish")
        + first.starting(launch.entry, launch.block, slots)
    )
    draw = "isLastBlock(tickets + blockIdx.x % last_groups, gridDim.x / last_groups)"
    source += f" {{\n{first.calling('run')}  if (!{draw}) return;\n{last.calling('finish', 'last_')}}}\n"
    return launch._replace(source=source, slots=slotsOf(slots))


def across(nest: LoopNest) -> tuple[int, int, int]:
    """(elements per thread along the columns, threads along them, blocks)."""
    columns = nest.space[-1]
    many = gcd(manyOf(nest, [columns]), MAX_THREAD_COLUMNS)
    x = min(WARP, 1 << (columns // many - 1).bit_length())
    return many, x, -(-columns // (many * x))


class ColumnWriter(NestWriter):
    """Writes the text of column reductions."""

    def __init__(self, nest: LoopNest, axes: frozenset[int], threads: int = 0, like: ColumnWriter | None = None):
        covering = across(nest) if like is None else (like.cover, like.x, like.blocks)
        self.cover: int = covering[0]
        self.x: int = covering[1]
        self.blocks: int = covering[2]
        self.isAlone = like is None
        super().__init__(ReducedNest(nest, axes), gcd(manyOf(nest, nest.space[-1:]), self.cover))
        self.length = prod(nest.space[a] for a in axes)
        wide = self.cover * min(KINDS[o.kind][1] for o in (*nest.loads.values(), *nest.stores.values()))
        isFree = like is None and not threads
        while isFree and self.x * wide > SECTOR and self.lone < PROCESSORS:  # more blocks of fewer columns
            self.x //= 2
            self.blocks = -(-nest.space[-1] // (self.cover * self.x))
        self.groups = self.lone
        threads = threads or (2 * BLOCK_THREADS if self.groups < PROCESSORS else BLOCK_THREADS)
        self.y: int = max(1, min(threads // self.x, 1 << (self.length - 1).bit_length())) if like is None else like.y

    @property
    def lone(self) -> int:
        """The number of blocks of a launch of this nest alone."""
        return self.blocks * prod(self.nest.space[:-1]) // self.length

    def write(self) -> Launch:
        shape, nest = self.shape, self.nest
        others = shape.outer[:-1]
        blocks = self.number("blocks", self.blocks)
        columns = self.number("columns", nest.space[-1])
        self.line(f"DYNAMIC({self.T}, scratch);")
        number = "blockIdx.x" if self.isAlone else f"(blockIdx.x % {self.number('groups', self.groups)})"
        self.line(f"const {self.I} other = {number} / {blocks}, block = {number} - other * {blocks};")
        self.outer = self.unravel("other", others) if others else {}
        self.outer[shape.inner] = "i"
        with self.block(f"for (int part = 0; part < {self.cover} / v; part++)"):
            self.line(f"const {self.I} at = ((block * ({self.cover} / v) + part) * {self.x} + threadIdx.x) * v;")
            self.line(f"const bool isOn = at < {columns};")
            self.line(f"const {self.I} i = isOn ? at : 0;")
            self.line(f"const {self.I} length = {self.rows()};")
            self.column()
        shared = self.x * self.y * self.cover * KINDS[nest.kind][1]
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
        if single:  # a store may overwrite its operand, so a single thread reads it
            with self.block("if (isOn && threadIdx.y == 0)"):
                self.fixed(single, self.outer)
                for n in single:
                    self.line(f"{self.T} b_{n}[v];")
                    with self.lanes():
                        self.line(f"b_{n}[u] = {self.known[n]};")
                    self.put(n, self.outer, f"b_{n}")

    def phase(self, reductions: list[str], stores: list[str]) -> None:
        """A phase: results are written, partial reductions are accumulated and combined."""
        shape, T = self.shape, self.T
        self.fixed([*(shape.reductions[n].of for n in reductions), *stores], self.outer)
        for n in reductions:
            self.line(f"{T} f_{n}[v];")
            with self.lanes():
                self.line(f"f_{n}[u] = {self.start(shape.reductions[n].how)};")
        large = sum(self.shape.varies[n] for n in self.nest.loads)
        loop = f"for ({self.I} j = threadIdx.y; j < length; j += {self.y})"
        with self.block("if (isOn)"), self.block(loop, 4 if large < TWO_ROW_OPERANDS else 2):
            rows = self.unravel("j", shape.loops)
            self.elements({**self.outer, **rows}, stores, {n: f"f_{n}[u]" for n in reductions})
        for n in reductions:
            self.line(f"reduceColumns<{HOWS[shape.reductions[n].how]}, v>(f_{n}, scratch);")
            self.known[n] = f"f_{n}[u]"

    def fixed(self, names: Iterable[str], indices: Mapping[int, str]) -> None:
        """Hoist, for each column, the values that do not vary along the rows."""
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
                stepText = "" if step == "1" else f", {step}"
                self.line(f"{'loadApart' if stepText else 'loadMany'}<v>(l_{name}, {offset}{stepText}, c_{name});")
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
        inner = prod(nest.space[a] for a in loops[1:])
        first = self.number(f"n{loops[0]}", nest.space[loops[0]])
        if nest.ragged:
            first = f"min({first}, {self.number('whole', nest.ragged[1])} - {self.outer[0]} * {first})"
        return first if inner == 1 else f"{first} * {self.number('rest', inner)}"
