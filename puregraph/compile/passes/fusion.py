"""Fusion: combine neighbouring pointwise calls and reductions into groups, each of them one pass over memory.

Calls are taken in order. A call that reads a result of an open group joins it if possible; otherwise the group is
closed, which appends it to the list of steps. A group is an index space with formulas and reductions over it (a loop
nest). Results that other steps read are stored; all other values stay in registers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from puregraph.compile.lower.registry import loweringFor
from puregraph.compile.passes.group import Axes, Group
from puregraph.compile.passes.nestlines import BOOL, CPU, FusionTarget, NestLines, filled
from puregraph.core.opensize import floating, isSameForAll, isSameShape
from puregraph.ops.formula.expr import REMEMBERED, leaf, term
from puregraph.ops.formula.formula import Formula, formulaOf
from puregraph.ops.formula.loopnest import Reduce
from puregraph.ops.ir.value import Call
from puregraph.ops.native.nests.nestcode import NEST_TASK_ELEMENTS

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

MAXIDLE = 6  # a group is closed after this many calls that did not join it
LOOKAHEAD = 40  # most calls that a call may be moved ahead
MAX_GROUP_OPERANDS = 28  # most operands and results of one group: they must fit in registers


def fuse(schedule: Schedule) -> Schedule:
    """Fuse neighbouring calls over one index space into groups."""
    schedule.calls = Fuser(schedule.calls, CPU).run()
    return schedule


class Fuser:
    """Fuses the calls of a step, in order, into steps: calls and groups.

    Before a group is closed, it also takes later calls that fit into it and whose operands have been computed.
    """

    def __init__(self, calls: Iterable[Call], target: FusionTarget) -> None:
        self.calls, self.target = list(calls), target
        self.reads = [[v.root for v in call.values()] for call in self.calls]
        self.steps: list[Any] = []
        self.open: list[Group] = []
        self.makers: dict[int, Group] = {}  # the open group that computes a Value, by number
        self.count = 0
        self.taken: set[int] = set()
        self.known: set[int] = set()
        self.heavy: set[int] = set()
        self.tiled: set[int] = set()  # results that an epilogue may follow
        self.readings: dict[int, NestLines | None] = {}
        self.barriers = [*(i for i, call in enumerate(self.calls) if call.kind.hasEffect), len(self.calls)]
        self.readers: dict[int, list[int]] = {}
        for i, roots in enumerate(self.reads):
            for v in roots:
                self.readers.setdefault(v.number, []).append(i)

    def run(self) -> list[Any]:
        for i in range(len(self.calls)):
            if i not in self.taken:
                self.count = i
                self.take(i)
        for group in list(self.open):
            self.close(group)
        return self.steps

    def done(self, i: int) -> None:
        """Mark a call as taken."""
        self.taken.add(i)
        self.known.update(y.root.number for y in self.calls[i].outs if y is not None)

    def read(self, i: int) -> NestLines | None:
        if i not in self.readings:
            self.readings[i] = self.target.lines(self.calls[i])
        return self.readings[i]

    def take(self, i: int) -> None:
        call = self.calls[i]
        if call.kind.isView:
            self.steps.append(call)
            self.done(i)
            return
        read = self.read(i)
        if read is None:
            for group in list(self.open) if call.kind.hasEffect else self.sources(i):
                self.close(group)
            if i in self.taken:
                return
            self.steps.append(call)
            if call.kind.isContraction or call.kind.isKernel:
                self.heavy.update(y.number for y in call.outs if y is not None)
            if call.kind.isContraction or loweringFor(call.function, "tiling"):
                self.tiled.update(y.number for y in call.outs if y is not None)
            self.done(i)
        else:
            self.assign(i, read, call)
        for group in [g for g in self.open if self.count - g.last > MAXIDLE]:
            self.close(group)

    def sources(self, i: int) -> list[Group]:
        """The open groups whose results a call reads, in the order in which they were opened."""
        groups = {id(g): g for v in self.reads[i] if (g := self.makers.get(v.number))}
        return list(groups.values()) if len(groups) < 2 else [g for g in self.open if id(g) in groups]

    def assign(self, i: int, read: NestLines, call: Call) -> None:
        """Put a call into the group whose results it reads, a group that reads the same memory, or a new group."""
        sources = sorted(self.sources(i), key=lambda g: g.size)
        while len(sources) > 1 and (both := self.merge(*sources[-2:])) is not None:
            sources[-2:] = [both]
        for group in sources[:-1]:
            self.close(group)
        if i in self.taken:
            return
        if sources:
            if not self.endsTail(sources[-1], i) and self.enter(sources[-1], i, read):
                return
            self.close(sources[-1])
            if i in self.taken:
                return
        else:
            for group in reversed(self.open):
                if self.shares(group, read) and self.enter(group, i, read):
                    return
        group = Group(read.space, self.count)
        if self.enter(group, i, read):
            self.open.append(group)
        else:
            self.steps.append(call)
            self.done(i)

    def endsTail(self, group: Group, i: int) -> bool:
        """True if a call reduces a result of a product's tail that is stored anyway, as another product reads it.

        Without the reduction the group can be the product's epilogue, which reads no sums from memory; on a GPU it
        would seldom be one.
        """
        isSum = self.target is CPU and self.calls[i].kind.isReduction
        if not isSum or group.reductions or not reads(group, self.tiled):
            return False
        readers = (self.calls[r].kind for v in self.reads[i] for r in self.readers[v.number])
        return any(kind.isContraction or kind.isKernel for kind in readers)

    def merge(self, first: Group, second: Group) -> Group | None:
        """Replace two independent open groups by one with the calls of both; None if they do not fit into one."""
        if not isOneSpace(first, second.space, bool(second.reductions)):
            return None
        both = second.copy()
        for call in first.calls:
            read = self.target.lines(call)
            if read is None or not self.join(both, read, call):
                return None
        self.makers.update(dict.fromkeys(both.made, both))
        self.open.remove(first)
        self.open[self.open.index(second)] = both
        return both

    def enter(self, group: Group, i: int, read: NestLines) -> bool:
        """Put a call into an open group, if it fits."""
        if not self.join(group, read, self.calls[i]):
            return False
        self.makers.update((y.number, group) for y, _, _ in read.results)
        self.done(i)
        return True

    def close(self, group: Group) -> None:
        """Take later calls that fit, then append the group to the list."""
        self.open.remove(group)
        for number in group.made:
            del self.makers[number]
        isTail = reads(group, self.heavy)
        end = self.barriers[bisect_left(self.barriers, self.count)]
        end = min(end, self.count + LOOKAHEAD)
        tried: set[int] = set()
        while True:
            readers = {r for n in group.made for r in self.readers.get(n, ()) if r < end}
            ahead = readers - self.taken - tried
            if not ahead:
                break
            i = min(ahead)
            tried.add(i)
            call, read = self.calls[i], None
            if call.kind.isView:
                if self.ready(i, group):
                    self.steps.append(call)
                    self.done(i)
                    tried.clear()
                continue
            if isTail and call.kind.isReduction and not group.reductions:
                continue
            read = self.read(i)
            if read is not None and self.ready(i, group) and self.isLast(i) and self.join(group, read, call):
                self.done(i)
                tried.clear()
        self.steps.append(group)

    def ready(self, i: int, group: Group) -> bool:
        """True if everything that a call reads has been computed or is in this group."""
        for v in self.reads[i]:
            isThere = v.role != "made" or v.number in group.made or v.number in self.known
            if not isThere or v.number in self.makers:
                return False
        return True

    def isLast(self, i: int) -> bool:
        """True if all other readers of the values that an update overwrites have run."""
        if self.calls[i].origin.phase != "update":
            return True
        old = {v.number for v in self.reads[i] if v.role in ("param", "state")}
        if any(v.root.number in old for group in self.open for v, _ in group.loads.values()):
            return False  # an open group's calls are marked as taken, but run later
        return all(r in self.taken for n in old for r in self.readers[n] if r < i)

    def shares(self, group: Group, read: NestLines) -> bool:
        """True if a group reads the same memory over the same space."""
        loads = {v.number: v for v, _ in group.loads.values()}
        both = [loads[v.number] for v, _ in read.operands.values() if v.number in loads]
        return bool(both) and isOneSpace(group, read.space, read.isReduced) and any(v.size == group.size for v in both)

    def join(self, group: Group, read: NestLines, call: Call) -> bool:
        """Add a call to a group if it fits; all calls of a group compute in one dtype."""
        if group.calls and group.arithmetic != read.arithmetic:
            return False
        group.arithmetic = read.arithmetic
        computed = {}
        for n, (v, _) in read.operands.items():
            computed[n] = group.find(v)
            if computed[n] is None and v.root.number in group.made:
                return False
        axes = axesOf(group, read, computed)
        if axes is None:
            return False
        over = frozenset[int]()
        if group.reductions:
            over = over.union(*[group.reducedAxes[p[0].number] for p in computed.values() if p])
        if not over.isdisjoint(axes) and not group.isShort(over):
            return False
        if over and over & (late := group.beside()) and not late.isdisjoint(axes):
            return False

        def move(valueAxes: Axes) -> Axes:
            return tuple([None if a is None else axes[a] for a in valueAxes])

        def chosen(reduce: Reduce) -> frozenset[int]:
            return frozenset([a for a in (axes[i] for i in reduce.axes) if a is not None])

        loads = {n: (v, move(valueAxes)) for n, (v, valueAxes) in read.operands.items() if computed[n] is None}
        new = {(v.number, valueAxes) for v, valueAxes in loads.values()} - group.known.keys()
        if len(group.loads) + len(new) + len(group.made) + len(read.results) > MAX_GROUP_OPERANDS:
            return False
        reductions = [x for _, x, _ in read.results if isinstance(x, Reduce)]
        if not all(self.fits(group, chosen(x), read, axes) for x in reductions):
            return False
        names: dict[str, Any] = {f"axis{a}": 0 if b is None else f"axis{b}" for a, b in enumerate(axes) if a != b}
        names |= {n: group.names[p[0].number] if p else group.load(*loads[n]) for n, p in computed.items()}
        for n, line in read.lines:
            names[n] = group.add(renamed(line, names))
        for y, line, valueAxes in read.results:
            if isinstance(line, Reduce):
                reducedAxes = over | chosen(line)
                name = group.add(Reduce(line.how, names[line.of], chosen(line)))
                after = ("/", floating(read.divisor)) if read.divisor else (">", 0.0) if y.dtype == BOOL else None
                if after:
                    name = group.add(formulaOf(term(after[0], leaf(name), leaf(after[1]))))
            else:
                reducedAxes, name = over, group.add(renamed(line, names))
            group.made[y.number], group.names[y.number] = y, name
            group.axes[y.number], group.reducedAxes[y.number] = move(valueAxes), reducedAxes
        group.calls.append(call)
        group.last = self.count
        return True

    def fits(self, group: Group, over: frozenset[int], read: NestLines, axes: Axes) -> bool:
        """True if a group may have a reduction over these axes in addition to its others.

        All its reductions are over the entire space, or over its rows and its columns.
        """
        long = frozenset(a for a, n in enumerate(group.space) if n > 1)
        if not over or not long <= set(axes):
            return False
        if group.inner is None:
            group.inner = innerAxis(group, read)
        sets = [s & long for s in group.reductions if s & long != over & long]
        if not sets:
            return True
        rows, columns = (sets[0], over & long) if group.inner in sets[0] else (over & long, sets[0])
        isWhole = rows | columns == long and not rows & columns
        if group.isChained(columns):
            return False
        isLast = not any(group.reducedAxes[n] & columns and columns & set(axes) for n, axes in group.axes.items())
        return (
            len(set(sets)) == 1
            and group.inner in rows
            and isWhole
            and isLast
            and group.spread(rows) <= NEST_TASK_ELEMENTS
        )


def reads(group: Group, numbers: set[int]) -> bool:
    """True if a group reads one of these values, of the size of its space."""
    return any(v.number in numbers and isSameShape(v.shape, group.space) for v, _ in group.loads.values())


def renamed(line: Formula, names: Mapping[str, str | float]) -> Formula:
    """The formula with some names replaced by other names or constants, simultaneously."""
    return withNames(line, tuple([names.get(n, n) for n in line.names]))


@lru_cache(maxsize=REMEMBERED)
def withNames(line: Formula, names: tuple[str, ...]) -> Formula:
    """The formula with its names replaced by these (cached)."""
    return filled(line, dict(zip(line.names, map(leaf, names))))


def innerAxis(group: Group, read: NestLines) -> int:
    """The axis along which the largest operand is contiguous."""
    operands = [*group.loads.values(), *((v, group.axes[n]) for n, v in group.made.items())]
    if not operands:
        operands = list(read.operands.values())
    value, axes = max(operands, key=lambda o: o[0].size)
    steps = [(s, -a) for s, n, a in zip(value.strides, value.shape, axes) if a is not None and n > 1 and s]
    return -min(steps)[1] if steps else len(group.space) - 1


def isOneSpace(group: Group, space: tuple[int, ...], isReduced: bool) -> bool:
    """True if a group has a space.

    Whether an open size equals a constant is asked only where something is reduced: which calls share a nest decides
    the order of sums, and nothing else that changes bits.
    """
    if group.reductions or isReduced:
        return isSameShape(group.space, space)
    return isSameForAll(group.space, space)


def axesOf(group: Group, read: NestLines, computed: dict[str, Any]) -> Axes | None:
    """The axis of the group's space for each axis of a call's space; None if ambiguous."""
    rank = len(read.space)
    if not group.calls:
        return tuple(range(rank))
    axes: list[int | None] = [None] * rank
    for name, made in computed.items():
        for spot, a in zip(read.operands[name][1], made[1] if made else ()):
            if spot is not None and a is not None:
                if axes[spot] not in (None, a):
                    return None
                axes[spot] = a
    if isOneSpace(group, read.space, read.isReduced) and all(a is None or a == i for i, a in enumerate(axes)):
        return tuple(range(rank))
    for n, a in zip(read.space, axes):
        if n > 1 and (a is None or group.space[a] != n):
            return None
    chosen = [a for a in axes if a is not None]
    return tuple(axes) if len(set(chosen)) == len(chosen) else None
