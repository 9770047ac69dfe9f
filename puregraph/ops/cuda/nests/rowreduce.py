"""Row reductions: loop nests that reduce the contiguous axis.

Some lanes of a warp, or a block, compute a row together. Its elements stay in their registers through the
phases, one after each reduction, so that a softmax reads a row once; a row that is too long is read in each phase, for
its peak and the sum of exponentials in one (`onlinesum`).
A block may compute many rows, one after the other, and reduce over them too, beside, which it stores at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from puregraph.ops.cuda.nests.nestwriter import HOWS, KINDS, NestWriter, canonical, manyOf
from puregraph.ops.cuda.nests.onlinesum import onlinePair, withoutPeaks
from puregraph.ops.cuda.runtime.launch import BUSIEST, WARP, Launch
from puregraph.ops.cuda.runtime.preprocess import read
from puregraph.ops.formula.loopnest import LoopNest, ReducedNest, saved

SHORT_ROW_THREADS = 128  # threads of a block, if a row takes at most a warp
LANES = (1, 2, 4, 8, 16, *range(WARP, 1025, WARP))  # threads that may compute a row together
LONG_ROW_THREADS = 512  # threads for a row that does not fit in registers
BUSY_THREADS = 132 * 1024  # threads that occupy a large GPU
MIN_SHARED_BYTES = 48 << 10  # bytes of shared memory that any kernel may use


class RowSplit(NamedTuple):
    """The distribution of rows: `lanes` threads per row, `threads` per block, `many` elements of a row at a time.

    `held` is the number of elements that a thread keeps, 0 for none; `kept` are their names.
    """

    lanes: int
    threads: int
    held: int
    kept: tuple[str, ...]
    many: int

    @property
    def groups(self) -> int:
        """The number of rows that a block computes at a time."""
        return self.threads // self.lanes

    @property
    def resident(self) -> int:
        """The number of blocks per multiprocessor if they keep reductions beside."""
        return max(1, BUSIEST // self.threads)


def rowSplit(nest: LoopNest, axes: frozenset[int]) -> RowSplit:
    """The distribution of a nest's rows; a nest with reductions beside must satisfy `fits`."""
    shape = ReducedNest(nest, axes)
    length = prod(nest.space[a] for a in axes)
    rows = prod(nest.space[a] for a in shape.outer)
    ragged = [nest.ragged[1]] if nest.ragged and len(axes) == 1 else []
    perLoad = manyOf(nest, [length, nest.space[-1], *ragged])
    costly = saved(shape)
    for begun in (costly, {}) if costly else ({},):  # costly values are recomputed if they do not fit
        kept = keptValues(shape, begun)
        weight = max(2, bytesKept(shape, kept, begun), bytesLoaded(shape, kept, begun) // 2)
        for many, rooms in registerBytes(perLoad, bool(shape.beside)):
            fitting = []
            for lanes, room in rooms.items():
                held = -(-length // (lanes * many)) * many
                isWide = lanes >= WARP and (shape.beside or rows * lanes >= BUSY_THREADS or lanes >= 256)
                if held * weight <= room and (held <= many or isWide):
                    fitting.append((lanes * held, lanes, held))  # the smallest product wastes the fewest elements
            if fitting:
                _, lanes, held = min(fitting)
                return RowSplit(lanes, lanes * groupsOf(nest, shape, lanes, length), held, tuple(kept), many)
    return RowSplit(LONG_ROW_THREADS, LONG_ROW_THREADS, 0, (), manyOf(nest, [] if len(axes) == 1 else [nest.space[-1]]))


def registerBytes(many: int, hasBeside: bool) -> Iterator[tuple[int, dict[int, int]]]:
    """(elements per load, {threads per row: bytes of the row that each may keep in registers}), best first.

    The bytes are few enough for half of a multiprocessor's threads to be resident; the longest rows may take more.
    """
    for half in (1, 2) if many > 4 else (1,):
        yield many // half, dict.fromkeys(LANES, 64 if hasBeside else 48)
    yield many, {lanes: 160 if lanes <= 512 else 64 for lanes in LANES if lanes > 256}


def groupsOf(nest: LoopNest, shape: ReducedNest, lanes: int, length: int) -> int:
    """The number of rows that a block computes at a time; their reductions beside must fit in shared memory."""
    if lanes > WARP:
        return 1
    groups, warp = SHORT_ROW_THREADS // lanes, WARP // lanes
    if not shape.beside:
        return groups
    return max(1, min(2 * groups, MIN_SHARED_BYTES // (length * KINDS[nest.kind][1])) // warp) * warp


def keptValues(shape: ReducedNest, costly: dict[str, int]) -> list[str]:
    """The values of a row to keep: loads read by several phases, and values that are costly to recompute.

    Values shared between rows are in the L2 cache anyway.
    """
    nest = shape.nest
    outer = [a for a in shape.outer if nest.space[a] > 1]
    readers: dict[str, set[int]] = {}
    for p in range(shape.count):
        for n in readIn(shape, shape.wanted(p), [n for n, first in costly.items() if first < p]):
            if all(nest.loads[n].strides[a] for a in outer):
                readers.setdefault(n, set()).add(p)
    return [*(n for n, phases in readers.items() if len(phases) > 1), *costly]


def bytesKept(shape: ReducedNest, kept: list[str], costly: dict[str, int]) -> int:
    """The largest number of bytes kept per element of a row between two phases."""
    size = KINDS[shape.nest.kind][1]
    uses: dict[str, list[int]] = {n: [costly[n]] if n in costly else [] for n in kept}
    for p in range(shape.count):
        known, wanted = [n for n, first in costly.items() if first < p], shape.wanted(p)
        for n in (*readIn(shape, wanted, known), *namedIn(shape, wanted, known)):
            if n in uses:
                uses[n].append(p)

    def bytesAt(p: int) -> int:
        return sum(
            size if n in shape.lines else KINDS[shape.nest.loads[n].kind][1]
            for n, phases in uses.items()
            if min(phases) <= p < max(phases)
        )

    return max(map(bytesAt, range(shape.count))) + size * len(shape.beside)


def bytesLoaded(shape: ReducedNest, kept: list[str], costly: dict[str, int]) -> int:
    """The largest number of bytes loaded per element of a row in one phase."""
    most, atHand = 0, set[str]()
    for p in range(shape.count):
        names = {*readIn(shape, shape.wanted(p), [n for n, first in costly.items() if first < p])} - atHand
        most = max(most, sum(KINDS[shape.nest.loads[n].kind][1] for n in names))
        atHand |= names & {*kept}
    return most


def namedIn(shape: ReducedNest, names: list[str], known: list[str]) -> list[str]:
    """The known lines that some names depend on."""
    stack, lines = list(names), dict[str, None]()
    while stack:
        name = stack.pop()
        if name in known:
            lines[name] = None
        elif name in shape.lines and shape.varies[name]:
            stack += shape.lines[name].names  # type: ignore[union-attr]
    return list(lines)


def readIn(shape: ReducedNest, names: list[str], kept: list[str]) -> list[str]:
    """The loads that vary along the loops and that some names depend on."""
    stack, seen = list(names), set(kept)
    loads = []
    while stack:
        name = stack.pop()
        if name in seen or not shape.varies.get(name, False):
            continue
        seen.add(name)
        if name in shape.nest.loads:
            loads.append(name)
        else:
            stack += shape.lines[name].names  # type: ignore[union-attr]
    return loads


def fits(nest: LoopNest, axes: frozenset[int]) -> bool:
    """True if a thread can keep its elements of a row, and of the reductions beside it."""
    shape, plan = ReducedNest(nest, axes), rowSplit(nest, axes)
    room = prod(nest.space[a] for a in axes) * KINDS[nest.kind][1]
    return plan.held > 0 and (not shape.beside or plan.lanes > WARP or plan.groups * room <= MIN_SHARED_BYTES)


def rowLaunch(nest: LoopNest, axes: frozenset[int]) -> Launch:
    """The launch of a nest that reduces some axes, the last one among them."""
    plan = rowSplit(nest, axes)
    if not plan.held:
        nest = canonical(withoutPeaks(nest, axes))
    return RowWriter(ReducedNest(nest, axes), plan).write()


class RowWriter(NestWriter):
    """Writes the text of row reductions."""

    def __init__(self, shape: ReducedNest, plan: RowSplit):
        super().__init__(shape, plan.many)
        self.plan = plan
        self.groups = plan.groups
        self.rows = prod(self.nest.space[a] for a in shape.outer)
        self.guarded = self.groups > 1 or bool(shape.beside)
        if shape.beside:
            self.resident = plan.resident

    def write(self) -> Launch:
        shape, plan, T = self.shape, self.plan, self.T
        self.line(f"const int lane = {self.lane()}, group = threadIdx.x / {plan.lanes};")
        for n in plan.kept:
            kind = f"Pack<{KINDS[self.nest.loads[n].kind][0]}, v>" if n in self.nest.loads else T
            self.line(f"{kind} k_{n}[{plan.held}{' / v' if n in self.nest.loads else ''}];")
        if not shape.beside:
            self.line(f"const {self.I} at = ({self.I})blockIdx.x * {self.groups} + group;")
            self.row()
            return self.launch("rows", -(-self.rows // self.groups), (plan.threads, 1, 1))
        perBlock = self.number("each", self.nest.beside)
        for n, x in shape.beside.items():
            self.line(f"{T} d_{n}[{plan.held}];")
            self.line(f"for (int k = 0; k < {plan.held}; k++) d_{n}[k] = {self.start(x.how)};")
        with self.block(f"for ({self.I} r = group; r - group < {perBlock}; r += {self.groups})"):
            rows, rowNumber = self.number("rows", self.rows), f"({self.I})blockIdx.x * {perBlock} + r"
            self.line(f"const {self.I} at = r < {perBlock} ? {rowNumber} : {rows};")
            self.row()
        self.ending()
        shared = self.groups * prod(self.nest.space[a] for a in shape.loops) * KINDS[self.nest.kind][1]
        blocks = -(-self.rows // self.nest.beside)
        return self.launch("rows", blocks, (plan.threads, 1, 1), shared if self.groups > 1 else 0)

    def lane(self) -> str:
        """The lane of a thread in its row."""
        return "threadIdx.x" if self.groups == 1 else f"threadIdx.x % {self.plan.lanes}"

    def row(self) -> None:
        """A row, in phases."""
        shape = self.shape
        row = "at"
        if self.guarded:
            rows = self.number("rows", self.rows)
            self.line(f"const bool isOn = at < {rows};")
            self.line(f"const {self.I} row = isOn ? at : {rows} - 1;")
            row = "row"
        self.outer = self.unravel(row, shape.outer)
        self.known.clear()
        self.done: set[str] = set()
        self.line(f"const {self.I} length = {self.length()};")
        phases = iter(range(shape.count))
        for p in phases:
            reductions, beside, stores = shape.at(p)
            pair = None if self.plan.held else onlinePair(shape, p)
            if pair is not None:
                self.online(*pair, [n for n in reductions if n not in pair])
                next(phases)
            elif reductions or beside or stores:
                self.phase(p, reductions, beside, stores)
        single = [n for n in self.nest.stores if not shape.spread[n] and n not in shape.beside]
        if single:  # a store may overwrite its operand, so a single thread reads it
            with self.block(f"if (lane == 0{self.guard()})"):
                self.fixed(single, self.outer)
                for n in single:
                    self.line(f"store(s_{n}, {self.offset(f's_{n}', self.outer)}, {self.known[n]});")

    def guard(self) -> str:
        return " && isOn" if self.guarded else ""

    def length(self) -> str:
        """The length of a row."""
        loops, nest = self.shape.loops, self.nest
        inner = prod(nest.space[a] for a in loops[1:])
        first = self.number(f"n{loops[0]}", nest.space[loops[0]])
        if nest.ragged:
            total = self.number("whole", nest.ragged[1])
            piece = self.outer[0]
            first = f"min({first}, {total} - {piece} * {first})"
        return first if inner == 1 else f"{first} * {self.number('rest', inner)}"

    def phase(self, p: int, reductions: list[str], beside: list[str], stores: list[str]) -> None:
        """A phase: results are written, partial reductions are accumulated and combined."""
        shape, plan, T = self.shape, self.plan, self.T
        of = [shape.lines[n].of for n in (*reductions, *beside)]  # type: ignore[union-attr]
        self.fixed([*of, *stores], self.outer)
        for n in reductions:
            self.line(f"{T} {n} = {self.start(shape.reductions[n].how)};")
        sums = {n: n for n in reductions} | {n: f"d_{n}[k * v + u]" for n in beside}
        if plan.held:
            read = set(self.order([*of, *stores]))
            slots = {n: f"k_{n}[k]" if n in self.nest.loads else f"k_{n}[k * v + u]" for n in plan.kept}
            kept = {n: self.widened(n, x) if n in self.nest.loads else x for n, x in slots.items() if n in self.done}
            keep = {n: x for n, x in slots.items() if n in read and n not in self.done}
            self.line("#pragma unroll")
            with self.block(f"for (int k = 0; k < {plan.held} / v; k++)"):
                self.line(f"const {self.I} j = (k * {plan.lanes} + lane) * v;")
                with self.block(f"if (j < length{self.guard()})"):
                    self.elements(self.indices(), stores, sums, "v", kept, keep)
            self.done |= set(keep)
        else:
            for v in self.overRow():
                self.elements(self.indices(), stores, sums, v)
        for n in reductions:
            self.combine(n)

    def overRow(self) -> Iterator[str]:
        """Loops over a row that is not kept: v elements at a time, then the remaining ones."""
        lanes = self.plan.lanes
        with self.block(f"for ({self.I} j = lane * v; j + v <= length; j += {lanes} * v)", 4):
            yield "v"
        if self.plan.many > 1 and len(self.shape.loops) == 1:
            with self.block(f"for ({self.I} j = length / v * v + lane; j < length; j += {lanes})"):
                yield "1"

    def combine(self, name: str) -> None:
        """Combine the partial reductions of the threads of a row."""
        how = self.shape.reductions[name].how
        if self.plan.lanes > WARP:
            self.line(f"{name} = reduceBlock<{HOWS[how]}>({name}, ({self.T}){self.start(how)});")
        elif self.plan.lanes > 1:
            self.line(f"{name} = reduceLanes<{HOWS[how]}, {self.plan.lanes}>({name});")
        self.known[name] = name

    def online(self, peak: str, total: str, others: list[str]) -> None:
        """Two phases as one: a peak, the sum of exponentials of the distances from it, and other reductions."""
        T, x = self.T, self.shape.reductions[peak].of
        self.headers = read("onlinesum.h")
        self.fixed([x, *(self.shape.reductions[n].of for n in others)], self.outer)
        self.line(f"{T} {peak} = -INFINITY, {total} = 0;")
        for n in others:
            self.line(f"{T} {n} = {self.start(self.shape.reductions[n].how)};")
        for v in self.overRow():
            self.line(f"{T} some[{v}];")
            self.elements(self.indices(), (), {n: n for n in others}, v, into={x: "some"})
            self.line(f"onlineSum<{v}>({peak}, {total}, some);")
        self.line(f"const {T} own_{peak} = {peak};")
        self.combine(peak)
        self.line(f"{total} *= exp(own_{peak} - {peak});")
        for n in (total, *others):
            self.combine(n)

    def indices(self) -> dict[int, str]:
        return {**self.outer, **self.unravel("j", self.shape.loops)}

    def ending(self) -> None:
        """Combine the reductions beside of all groups of a block, and write them."""
        plan, T = self.plan, self.T
        size = prod(self.nest.space[a] for a in self.shape.loops)
        length = self.number("size", size)
        if self.groups > 1:
            self.line(f"DYNAMIC({T}, room);")
        for n, x in self.shape.beside.items():
            with self.block(f"for (int k = 0; k < {plan.held} / v; k++)"):
                self.line(f"const {self.I} j = (k * {plan.lanes} + lane) * v;")
                with self.block(f"if (j < {length})"):
                    if self.groups == 1:
                        self.part(n, f"d_{n} + k * v")
                    else:
                        with self.lanes():
                            self.line(f"room[group * {length} + j + u] = d_{n}[k * v + u];")
            if self.groups > 1:
                self.line("__syncthreads();")
                with self.block(f"for ({self.I} j = threadIdx.x * v; j < {length}; j += blockDim.x * v)"):
                    self.line(f"{T} b[v];")
                    with self.lanes():
                        self.line("b[u] = room[j + u];")
                        join = f"b[u] = {HOWS[x.how]}::join(b[u], room[g * {length} + j + u]);"
                        self.line(f"for (int g = 1; g < {self.groups}; g++) {join}")
                    self.part(n, "b")
                self.line("__syncthreads();")

    def part(self, name: str, values: str) -> None:
        """Store v elements of a reduction beside, to this block's part."""
        self.put(name, self.unravel("j", self.shape.loops), values, "v", "(int64)blockIdx.x * size + j")
