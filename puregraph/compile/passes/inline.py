"""Inlining: a group computes cheap values of an earlier group again instead of storing and loading them.

An example is the gradient of a normalisation. Its sums need z = (x - m) f and the gradient masked by a relu; so does
the pass after the sums. That pass reads x and the gradient again, and neither value is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.compile.passes.fusion import MAX_GROUP_OPERANDS, renamed
from puregraph.compile.passes.group import Axes, Group
from puregraph.compile.passes.nestlines import operand
from puregraph.core.opensize import isSameForAll, isSameShape, numberOf
from puregraph.ops.formula.expr import leaf, walk
from puregraph.ops.formula.formula import Formula, formulaOf
from puregraph.ops.formula.loopnest import HEAVY, Reduce, isAxis
from puregraph.ops.ir.value import Call, Value

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

MIN_INLINED_BYTES = 1 << 16  # smallest value, in bytes, that is worth inlining
FREE_LOAD_RATIO = 8  # loading a value smaller by this factor is free
MAXLINES = 12  # most lines that are computed again for one value


class Recipe(NamedTuple):
    """The lines that compute one value of a group, and their operands, by name in that group."""

    lines: list[tuple[str, Formula]]
    loads: dict[str, tuple[Value, Axes]]


def inlineCheapValues(schedule: Schedule) -> Schedule:
    """Compute cheap values of earlier groups again if that reduces memory traffic."""
    Inliner(schedule).run()
    return schedule


class Inliner:
    """Inlines the values that groups store, in the order of the steps."""

    def __init__(self, schedule: Schedule):
        steps = schedule.calls
        self.steps: list[Any] = steps
        self.readers: dict[int, list[int]] = {}
        self.makers: dict[int, int] = {}
        self.front: dict[
            int, list[tuple[str, Formula]]
        ] = {}  # lines put in front of a reader's, by index of the reader
        for i, step in enumerate(steps):
            for v in () if not isinstance(step, Group) and step.kind.isView else step.values():
                self.readers.setdefault(v.root.number, []).append(i)
            self.makers.update((y.number, i) for y in step.outs if y is not None)
        for v in schedule.kept():
            self.readers.setdefault(v.root.number, []).append(len(steps))
        self.overwritten = overwrites(schedule, self.makers)

    def run(self) -> None:
        for i, step in enumerate(self.steps):
            if isinstance(step, Group) and step.arithmetic == "f32":
                for y in list(step.made.values()):
                    self.value(i, step, y)

    def value(self, i: int, group: Group, y: Value) -> None:
        """Inline a value of a group into the groups that read it, if that pays."""
        later = sorted(set(self.readers.get(y.number, ())) - {i})
        if not later or numberOf(y.nbytes) < MIN_INLINED_BYTES or y.size != group.size:
            return
        recipe = self.recipe(group, y)
        if recipe is None or any(v.strides != scaled(y, v) for v, _ in self.large(recipe, y)):
            return
        fit = [r for r in later if self.fits(i, group, y, recipe, r)]
        gains = {r: y.nbytes - self.extra(recipe, y, r) for r in fit}
        if len(fit) == len(later) and sum(gains.values()) + y.nbytes > 0 and self.extension(recipe, y, fit) <= y.nbytes:
            chosen = fit
        else:
            chosen = [r for r in fit if gains[r] > 0 and not self.extension(recipe, y, [r])]
        for r in chosen:
            self.inline(recipe, group, y, r)

    def recipe(self, group: Group, y: Value) -> Recipe | None:
        """The recipe for a value of a group; None if it is costly or needs a reduction that is not stored."""
        lines, small = dict(group.lines), {group.names[v.number]: v for v in group.made.values()}
        formulas: dict[str, Formula] = {}
        loads: dict[str, tuple[Value, Axes]] = {}
        stack = [group.names[y.number]]
        while stack:
            name = stack.pop()
            line, made = lines.get(name), small.get(name)
            if name in group.loads:
                loads[name] = group.loads[name]
            elif made is not None and made.size * FREE_LOAD_RATIO <= y.size:
                loads[name] = made, group.axes[made.number]
            elif isinstance(line, Reduce) or len(formulas) == MAXLINES:
                return None
            elif line is not None and name not in formulas:
                if any(isAxis(n) for n in line.names) or HEAVY & {t.op for t in walk(line.term)}:
                    return None
                formulas[name] = line
                stack += line.names
        return Recipe([(n, formulas[n]) for n, _ in group.lines if n in formulas], loads)

    def large(self, recipe: Recipe, y: Value) -> list[tuple[Value, Axes]]:
        """The operands of a recipe that are worth a pass over memory."""
        elements = numberOf(y.size)
        return [(v, axes) for v, axes in recipe.loads.values() if numberOf(v.size) * FREE_LOAD_RATIO > elements]

    def fits(self, i: int, group: Group, y: Value, recipe: Recipe, r: int) -> bool:
        """True if step r is a group that can compute this value of another group."""
        reader = self.steps[r] if r < len(self.steps) else None
        if (
            not isinstance(reader, Group)
            or not isSameForAll(reader.space, group.space)
            or reader.arithmetic != group.arithmetic
        ):
            return False
        read = [axes for v, axes in reader.loads.values() if v.root is y]
        isSame = len(read) == 1 and read[0] == group.axes[y.number] and y in reader.values()
        isLate = any(r > self.overwritten.get(v.root.number, r) for v, _ in recipe.loads.values())
        if not isSame or isLate or len(reader.loads) + len(recipe.loads) > MAX_GROUP_OPERANDS:
            return False
        large = [v for v, _ in self.large(recipe, y)]
        isEpilogue = not group.reductions and any(self.isAlone(v, i) for v in large)
        return not isEpilogue and not self.isTail(reader) and self.areOperands(reader) and self.areOperands(group)

    def isAlone(self, value: Value, i: int) -> bool:
        """True if a value comes from a product and only this step reads it, so that it need not be stored."""
        maker = self.makers.get(value.root.number)
        isCall = maker is not None and not isinstance(self.steps[maker], Group)
        return isCall and set(self.readers[value.root.number]) <= {i}

    def isTail(self, group: Group) -> bool:
        """True if a product may compute a group as its epilogue."""
        if group.reductions:
            return False
        latest = max(group.values(), key=lambda v: self.makers.get(v.root.number, -1))
        maker = self.makers.get(latest.root.number)
        return maker is not None and isinstance(self.steps[maker], Call) and isSameShape(latest.shape, group.space)

    def areOperands(self, group: Group) -> bool:
        """True if loop nests can read the layout of all values that a group reads and computes."""
        made = [(v, group.axes[v.number]) for v in group.made.values()]
        return all(operand(group.space, v, axes) is not None for v, axes in (*group.loads.values(), *made))

    def extra(self, recipe: Recipe, y: Value, r: int) -> int:
        """The extra bytes that a reader reads after inlining."""
        known = {(v.number, axes) for v, axes in self.steps[r].loads.values()}
        return sum(v.nbytes for v, axes in self.large(recipe, y) if (v.number, axes) not in known)

    def extension(self, recipe: Recipe, y: Value, readers: list[int]) -> int:
        """The bytes that are kept longer after inlining."""
        roots = {v.root.number: v.root for v, _ in self.large(recipe, y) if v.root.role == "made"}
        return sum(v.nbytes for n, v in roots.items() if max(self.readers[n]) < max(readers))

    def inline(self, recipe: Recipe, group: Group, y: Value, r: int) -> None:
        """Make group r compute a value of another group from its operands, in lines before its others."""
        reader, front = self.steps[r], self.front.setdefault(r, [])
        (old,) = [n for n, (v, _) in reader.loads.items() if v is y]
        names: dict[str, str] = {}
        for n, (v, axes) in recipe.loads.items():
            names[n] = reader.known.get((v.number, axes)) or reader.load(v, axes)
        known = {line: name for name, line in front}
        for n, line in recipe.lines:
            same = renamed(line, names)
            names[n] = known.setdefault(same, f"z{len(front)}")
            if names[n] not in dict(front):
                front.append((names[n], same))
        del reader.loads[old]
        front.append((old, formulaOf(leaf(names[group.names[y.number]]))))
        reader.lines = [*front, *((n, line) for n, line in reader.lines if n not in dict(front))]
        reader.inlined += [c for c in makersOf(group, y, recipe) if c not in reader.inlined]
        self.readers[y.number].remove(r)
        for v, _ in recipe.loads.values():
            if r not in self.readers.setdefault(v.root.number, []):
                self.readers[v.root.number].append(r)


def makersOf(group: Group, y: Value, recipe: Recipe) -> list[Call]:
    """The calls of a group that compute a value from the operands of its recipe."""
    wanted, known = {y.number}, {v.root.number for v, _ in recipe.loads.values()}
    calls: list[Call] = []
    for call in reversed([*group.inlined, *group.calls]):
        if wanted.intersection(out.number for out in call.outs if out is not None):
            calls.append(call)
            wanted.update({v.root.number for v in call.values() if v is not None} - known)
    return calls[::-1]


def overwrites(schedule: Schedule, makers: dict[int, int]) -> dict[int, int]:
    """The index of the step that overwrites each parameter or state, by the number of its old Value."""
    old = {id(target): v.root.number for target, v in schedule.held}
    stored = [(old[id(t)], v.root.number) for t, v in schedule.stores if id(t) in old]
    indices = {number: makers[new] for number, new in stored if new in makers}
    for i, step in enumerate(schedule.calls):
        if not isinstance(step, Group) and step.kind.isStore and id(step.options["target"]) in old:
            indices.setdefault(old[id(step.options["target"])], i)
        elif not isinstance(step, Group) and step.kind.isUpdate:
            indices.setdefault(step.outs[0].root.number, i)
    return indices


def scaled(y: Value, v: Value) -> tuple[int, ...]:
    """The strides of y, scaled to the dtype of v."""
    return tuple([s // y.dtype.itemsize * v.dtype.itemsize for s in y.strides])
