"""Lowering: turn the calls of a step into native code if there is a rule; numpy runs the others."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.compile.lower.callnest import callNest, operandsOf
from puregraph.compile.lower.matmul import productOf, productTiling
from puregraph.compile.lower.nestcache import canonical, nestKernels, readBy
from puregraph.compile.lower.packedweights import PackedWeights
from puregraph.compile.lower.registry import loweringFor
from puregraph.compile.lower.workspace import LoweringWorkspace
from puregraph.compile.passes.group import Group
from puregraph.compile.passes.nestlines import CPU, FLOAT, KINDS, named, operand
from puregraph.core.opensize import isSameShape
from puregraph.ops.formula.loopnest import LoopNest, isAxis
from puregraph.ops.ir.bounds import Bounds
from puregraph.ops.ir.elementlayout import OutputTiling, collapsed
from puregraph.ops.ir.value import Call, Value, store
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall
from puregraph.ops.native.nests.epilogue import Epilogue, EpilogueOperand

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule
    from puregraph.core.rules import ArrayFunction


class NativeCall(NamedTuple):
    """The function of a native call; the slots of its kernels hold Values, `Offset`s and numbers.

    `calls`      the calls that it replaces
    `inlined`    calls of earlier steps that it computes again
    `results`    number of results; the values after them are scratch memory
    `checks`     the Bounds of inputs to check before a run
    `faults`     the flags to check after it, which kernels set if an index is out of range
    `over`       the indices of arguments that a result of the same layout may overwrite: each element is read only
                 to compute the same element of the result
    """

    name: str
    works: Sequence[Any]
    calls: list[Call]
    results: int
    over: tuple[int, ...] = ()
    checks: tuple[Bounds, ...] = ()
    inlined: Sequence[Call] = ()
    faults: tuple[np.ndarray, ...] = ()


def lower(schedule: Schedule) -> Schedule:
    """Lower all calls that native code can run, in an order with equal results."""

    def new(size: int, dtype: np.dtype = FLOAT) -> Value:
        schedule.count += 1
        return Value(schedule.count, (size,), dtype, (dtype.itemsize,), name="scratch")

    held = {id(target): v for target, v in schedule.held}
    schedule.calls = Lowering(schedule.calls, schedule.kept(), held, new, schedule.packedWeights).run()
    return schedule


class Lowering:
    """Lowers one list of steps."""

    def __init__(
        self,
        steps: list[Any],
        outside: Iterable[Value],
        held: dict[int, Value],
        new: Callable[..., Value],
        packedWeights: PackedWeights | None,
    ):
        self.steps, self.held, self.new, self.packedWeights = steps, held, new, packedWeights
        self.indices = {id(step): i for i, step in enumerate(steps)}
        self.barriers = [i for i, s in enumerate(steps) if not isinstance(s, Group) and s.kind.hasEffect]
        self.readers: dict[int, list[int]] = {}
        self.makers: dict[int, int] = {}
        for i, step in enumerate(steps):
            for v in values(step):
                if isinstance(step, Group) or not step.kind.isView:  # a view reads no elements
                    self.readers.setdefault(v.root.number, []).append(i)
            for v in made(step):
                self.makers[v.number] = i
        for v in outside:
            self.readers.setdefault(v.root.number, []).append(len(steps))
        self.epilogues: dict[int, Group] = {}

    def run(self) -> list[Call]:
        for i, step in enumerate(self.steps):
            if isinstance(step, Group):
                self.attach(i, step)
        merged = {id(group) for group in self.epilogues.values()}
        calls: list[Call] = []
        for i, step in enumerate(self.steps):
            if isinstance(step, Group):
                if id(step) not in merged:
                    calls += self.group(i, step)
            else:
                calls += self.call(i, step)
        return calls

    def isRead(self, value: Value, besides: Iterable[int]) -> bool:
        """True if steps other than these read a value."""
        return not set(besides).issuperset(self.readers.get(value.number, ()))

    # Groups ---------------------------------------------------------------------------------------------------------

    def group(self, i: int, group: Group) -> list[Call]:
        """A group as one step; as its separate calls if the backend cannot read the layout."""
        stored = [v for v in group.made.values() if self.isRead(v, (i,))]
        if not stored:
            return []
        operands = operandsOf(group, stored)
        if operands is None:
            return group.calls
        loads, stores = operands
        nest = LoopNest(group.space, loads, tuple(needed(group, stores)), stores, group.arithmetic, last=group.inner)
        return [self.fused(nest, group, [v for v, _ in group.loads.values()], stored)]

    def fused(self, nest: LoopNest, group: Group, reads: list[Value], makes: list[Value]) -> Call:
        """The loop nest of a group as one step."""
        workspace = LoweringWorkspace(self.new, self.packedWeights)
        done, late = nestKernels(nest, workspace)
        over = [j for j in late if isMetOnce(group, reads[j])]
        return self.step(done, group.calls, reads, makes, workspace, over, group.inlined)

    def step(
        self,
        done: list[KernelCall],
        calls: list[Call],
        reads: list[Value],
        makes: list[Value],
        workspace: LoweringWorkspace,
        over: Iterable[int] = (),
        inlined: Sequence[Call] = (),
    ) -> Call:
        name = "; ".join(dict.fromkeys(w.name for w in done))
        checks, faults = tuple(workspace.checks), tuple(workspace.faults)
        native = NativeCall(name, done, calls, len(makes), tuple(over), checks, inlined, faults)
        return Call(native, tuple(reads), {}, [*makes, *workspace.extra], "native", calls[-1].origin, True)

    # Products and kernels -------------------------------------------------------------------------------------------

    def attach(self, i: int, group: Group) -> None:
        """Make a group the epilogue of the product or convolution it reads, if possible.

        Formulas that use an axis index cannot be: the index is not known within a tile.
        """
        if group.reductions or any(isAxis(n) for _, line in group.lines for n in line.names):
            return
        sources = [(self.makers[v.number], v, axes) for v, axes in group.loads.values() if v.number in self.makers]
        for p, value, axes in sorted(sources, key=lambda s: -s[0]):
            step = self.steps[p]
            if bisect(self.barriers, p) != bisect(self.barriers, i):
                return
            tiling = None if isinstance(step, Group) or p in self.epilogues else self.tilingOf(step)
            if tiling is None or not isSameShape(value.shape, group.space) or axes != identity(group, value):
                continue
            if (group.arithmetic == "f64") != (value.dtype == np.float64):  # sums are not converted
                continue
            others = [v for v, readAxes in group.loads.values() if v is not value or readAxes != axes]
            if any(self.makers.get(v.root.number, -1) >= p for v in others):
                continue
            kept = [v for v in group.made.values() if self.isRead(v, (i,))]
            if all(group.axes[v.number] == identity(group, value) for v in kept) and self.takesEpilogue(
                p, group, kept, tiling
            ):
                self.epilogues[p] = group
                return

    def tilingOf(self, call: Call) -> OutputTiling | None:
        """The output tiling of a call, if its result takes an epilogue."""
        return tilingOf(call)

    def takesEpilogue(self, p: int, group: Group, kept: list[Value], tiling: OutputTiling) -> bool:
        """True if step p can compute a group as its epilogue."""
        everything = [*group.loads.values(), *((v, group.axes[v.number]) for v in kept)]
        return all(column(group, v, a, tiling) is not None for v, a in everything)

    def epilogueOf(self, i: int, call: Call) -> tuple[Any, list[Value], list[Value]] | None:
        """The epilogue of a call, the operands that it adds, and its results."""
        (y,), tiling = call.outs, tilingOf(call)
        if tiling is None:
            return None
        group = self.epilogues.get(i)
        target = resultOperand(y, tiling)
        if group is None:
            if target is None or target.column != 1:
                return None
            return EpilogueSpec(y, target.row, target.batch, target.kind), [], [y]
        j = self.indices[id(group)]
        kept = [v for v in group.made.values() if self.isRead(v, (j,))]
        loads: dict[str, Any] = {n: column(group, v, a, tiling) for n, (v, a) in group.loads.items() if v is not y}
        stores: dict[str, Any] = {group.names[v.number]: column(group, v, group.axes[v.number], tiling) for v in kept}
        (sums,) = [n for n, (v, _) in group.loads.items() if v is y]
        if self.isRead(y, (i, j)):
            stores[sums] = target
            kept = [*kept, y]
        if any(s is None for s in (*loads.values(), *stores.values())):
            return None
        reads: dict[str, Any] = {**loads, sums: None}
        nest: Any = canonical(LoopNest(group.space, reads, tuple(needed(group, stores)), stores))
        (sums,) = [n for n, o in nest.loads.items() if o is None]
        epilogue = Epilogue(sums, {n: o for n, o in nest.loads.items() if o is not None}, nest.lines, nest.stores)
        return epilogue, [v for v, _ in group.loads.values() if v is not y], kept

    def call(self, i: int, call: Call) -> list[Call]:
        """A call as one native step, or unchanged if there is no rule."""
        group, workspace = (
            self.epilogues.get(i),
            LoweringWorkspace(self.new, self.packedWeights, lambda v: self.isRead(v, (i,))),
        )
        done, untiled = None, untiledOf(call.function)
        if tilingOf(call) is not None:
            ending = self.epilogueOf(i, call)
            if ending is not None:
                rule: Any = productOf if call.kind.isContraction else loweringFor(call.function)
                done = rule(call, ending[0], workspace)
                if done is not None:
                    calls, inlined = [call, *(group.calls if group else ())], group.inlined if group else ()
                    operands = call.values()
                    over = [
                        len(operands) + j
                        for j, v in enumerate(ending[1])
                        if group and all(v.root is not x.root for x in operands) and isMetOnce(group, v)
                    ]
                    return [self.step(done, calls, [*operands, *ending[1]], ending[2], workspace, over, inlined)]
        if call.kind.isRegistered and untiled is not None:
            done = untiled(call, workspace)
        elif (nest := callNest(call, CPU)) is not None:
            done = None if 0 in nest.space else nestKernels(nest, workspace)[0]
        elif call.kind.isStore:
            target = self.held.get(id(call.options["target"]))
            done = None if target is None else loweringFor(store)(call.arguments[0], target)
        if done is not None:
            makes = [y for y in call.outs if y is None or y.number not in workspace.left]
            call = self.step(done, [call], call.values(), makes, workspace)
        return [call] if group is None else [call, *self.group(self.indices[id(group)], group)]


def untiledOf(function: ArrayFunction) -> Any:
    """The rule that lowers a call without an epilogue; None if its only rule needs a tiling."""
    return loweringFor(function, "untiled" if loweringFor(function, "tiling") else "lower")


def values(step: Any) -> list[Value]:
    """The Values that a step reads."""
    return [v for v, _ in step.loads.values()] if isinstance(step, Group) else step.values()


def made(step: Any) -> list[Value]:
    """The results of a step that are read."""
    return list(step.made.values()) if isinstance(step, Group) else [y for y in step.outs if y is not None]


def isMetOnce(group: Group, value: Value) -> bool:
    """True if each element of a value is read only to compute the same element of a result of that shape."""
    read = [axes for v, axes in group.loads.values() if v is value]
    made = [group.axes[y.number] for y in group.made.values() if isSameShape(y.shape, value.shape)]
    long = [i for i, n in enumerate(value.shape) if n > 1]
    return len({tuple([axes[i] for i in long]) for axes in (*read, *made)}) == 1


def identity(group: Group, value: Value) -> tuple[int | None, ...]:
    """The axes of a value that has all axes of its group, in order; None for an axis of length one."""
    return tuple([None if n == 1 else a for a, n in enumerate(value.shape)])


def needed(group: Group, names: Iterable[str]) -> list[tuple[str, Any]]:
    """The lines of a group that some names depend on."""
    wanted, lines = set(names), []
    for name, line in reversed(group.lines):
        if name in wanted:
            wanted.update(readBy(line))
            lines.append((name, line))
    return lines[::-1]


def column(group: Group, value: Value, axes: tuple[int | None, ...], tiling: OutputTiling) -> EpilogueOperand | None:
    """A Value as an operand of an epilogue; None if it cannot be tiled like the result."""
    located = operand(group.space, value, axes)
    return None if located is None else seen(located.kind, value, located.strides, group.space, tiling)


def resultOperand(value: Value, tiling: OutputTiling) -> EpilogueOperand | None:
    """The operand that a product stores its result to."""
    size = value.dtype.itemsize
    return seen(KINDS[named(value.dtype)], value, tuple(s // size for s in value.strides), value.shape, tiling)


def seen(
    kind: str, what: Any, strides: tuple[int, ...], space: tuple[int, ...], tiling: OutputTiling
) -> EpilogueOperand | None:
    """An epilogue operand: its strides along rows, columns and batch axes; None if the rows cannot be merged."""
    row = collapsed([(space[a], strides[a]) for a in tiling.rows])
    col = strides[tiling.column] if space[tiling.column] > 1 else int(any(strides))
    if row is None or col not in (0, 1):
        return None
    return EpilogueOperand(kind, what, row, col, tuple(strides[a] for a in tiling.batch))


def tilingOf(call: Call) -> OutputTiling | None:
    """The output tiling of a call, if its result takes an epilogue."""
    if call.kind.isContraction:
        return productTiling(call)
    rule = loweringFor(call.function, "tiling") if call.kind.isKernel else None
    return None if rule is None else rule(call)
