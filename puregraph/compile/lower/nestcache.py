"""Nest cache: build the kernel calls of a loop nest once for all nests that differ only in addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from puregraph.compile.passes.fusion import renamed
from puregraph.core.opensize import OpenSize, decided, isOpen, numberIn, numberOf, unchanging
from puregraph.core.variants import Variants
from puregraph.ops.formula.expr import leaf, rebuild, term, walk
from puregraph.ops.formula.formula import formulaOf
from puregraph.ops.formula.loopnest import Line, LoopNest, Operand, Reduce, ReducedNest, ordered, reduceSets, varying
from puregraph.ops.ir.value import Offset
from puregraph.ops.native.llvm.instructions import SIZES
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.nests.nestcode import nestCalls

MAX_CACHED_NESTS = 1024  # most nests in the cache
ALIGNMENT = 16  # numbers at a multiple of which each block of scratch memory begins


class MemorySlot(NamedTuple):
    """A placeholder for the memory of a load or a store of a nest, by name."""

    among: str
    name: str


class ScratchSlot(NamedTuple):
    """A placeholder for an offset in the scratch memory of a nest."""

    bytes: int


Outline = tuple[tuple[str, str, tuple[int, ...]], ...]


class Template(NamedTuple):
    """The kernel calls of a nest with MemorySlots as addresses, the numbers in its scratch memory, and its `lateIn`."""

    works: list[KernelCall]
    scratch: int
    late: tuple[int, ...]


class OpenNest:
    """The kernel calls of a nest with open sizes: a template for each set of answers to what `nestCalls` asks."""

    def __init__(self, nest: LoopNest):
        self.nest, self.memory = nest, memoryOf(nest)
        self.numbers = openNumbers(nest.lines)
        self.variants = Variants(self.template, (nest.space, outline(nest.loads), outline(nest.stores), self.numbers))

    def template(self, space: tuple, loads: Outline, stores: Outline, numbers: tuple) -> Template | None:
        """The template for sizes of a variant; None if they do not fit in one nest."""
        nest, lines = self.nest, withNumbers(self.nest.lines, dict(zip(self.numbers, numbers)))
        try:
            return template.__wrapped__(space, loads, lines, stores, nest.kind, nest.last)
        except ValueError:
            return None

    def decide(self) -> tuple[int, tuple[int, ...]]:
        """The numbers in the scratch memory, open, and the `lateIn` of all variants that a step holds for.

        Raises    ValueError if the hints do not fit in one nest
        """
        sizes = self.variants.sizes

        def late(*numbers: Any) -> tuple[int, ...] | None:
            made = self.variants(numbers)[0].result
            return made and made.late

        def scratch(*numbers: Any) -> int:
            variant, values = self.variants(numbers)
            return 1 if variant.result is None else max(1, numberIn(variant.result.scratch, values))

        if late(*map(numberOf, sizes)) is None:
            raise ValueError("reductions do not fit in one nest")
        return decided(scratch)(*sizes), unchanging(late)(*sizes)

    def resolved(self, number: Callable[[Any], Any]) -> tuple[list[KernelCall], Callable[[Any], Any]]:
        """The kernel calls for numbers of the sizes, as a KernelCall's `again`."""
        made, numberIn = self.variants.resolved(number)
        return addressed(made.works, self.memory), numberIn


def nestKernels(nest: LoopNest, scratch: Callable[[int], Any]) -> tuple[list[KernelCall], tuple[int, ...]]:
    """The kernel calls of a nest, and its `lateIn`.

    `scratch` allocates memory for n numbers of four bytes, for partial reductions.
    """
    if hasOpen(nest):
        return openKernels(nest, scratch)
    made = template(nest.space, outline(nest.loads), nest.lines, outline(nest.stores), nest.kind, nest.last)
    memory = memoryOf(nest)
    if made.scratch:
        memory["scratch", None] = scratch(scratchSize(nest, made.scratch))
    return addressed(made.works, memory), made.late


def openKernels(nest: LoopNest, scratch: Callable[[int], Any]) -> tuple[list[KernelCall], tuple[int, ...]]:
    """One call that stands for the kernel calls of a nest with open sizes, and its `lateIn`."""
    nestFor = OpenNest(nest)
    count, late = nestFor.decide()
    if any(isinstance(line, Reduce) for _, line in nest.lines):
        nestFor.memory["scratch", None] = scratch(scratchSize(nest, count))
    first = nestFor.resolved(numberOf)[0][0]
    return [KernelCall(first.name, first.key, first.write, {}, 0, again=nestFor)], late


def scratchSize(nest: LoopNest, count: int) -> int:
    """The numbers of four bytes that take as much memory as `count` numbers of a nest."""
    return count * max(1, SIZES[nest.kind] // 4)


def memoryOf(nest: LoopNest) -> dict[tuple[str, Any], Any]:
    """The addresses of a nest's operands, by what stands for them in a template."""
    loads = {("loads", n): o.what for n, o in nest.loads.items()}
    return loads | {("stores", n): o.what for n, o in nest.stores.items()}


def addressed(works: Iterable[KernelCall], memory: Mapping[tuple[str, Any], Any]) -> list[KernelCall]:
    """The kernel calls of a template with addresses."""

    def address(what: Any) -> Any:
        if type(what) is ScratchSlot:
            return Offset(memory["scratch", None], what.bytes)
        return memory[what] if type(what) is MemorySlot else what

    return [w._replace(slots={n: address(what) for n, what in w.slots.items()}) for w in works]


def hasOpen(nest: LoopNest) -> bool:
    """True if some size or stride of a nest is open."""
    operands = (*nest.loads.values(), *nest.stores.values())
    return isOpen(nest.space) or any(isOpen(o.strides) for o in operands)


def openNumbers(lines: Iterable[Line]) -> tuple[Any, ...]:
    """The open sizes among the numbers of formulas."""
    formulas = [line for _, line in lines if not isinstance(line, Reduce)]
    numbers = [t.value for line in formulas for t in walk(line.term) if type(t.value) is OpenSize]
    return tuple({size.index: size for size in numbers}.values())


def withNumbers(lines: tuple[Line, ...], numbers: Mapping[Any, Any]) -> tuple[Line, ...]:
    """Lines with other numbers for open sizes in formulas."""
    parts = {leaf(size): leaf(number) for size, number in numbers.items()}
    if not parts:
        return lines
    return tuple([(n, x if isinstance(x, Reduce) else formulaOf(rebuild(x.term, parts, term))) for n, x in lines])


def outline(operands: Mapping[str, Operand]) -> Outline:
    """Operands without their addresses."""
    return tuple([(n, o.kind, o.strides) for n, o in operands.items()])


@lru_cache(maxsize=MAX_CACHED_NESTS)
def template(
    space: tuple[int, ...], loads: Outline, lines: tuple[Line, ...], stores: Outline, kind: str, last: int | None
) -> Template:
    """The template for a nest; the arguments, everything but its memory, are the cache key."""
    sizes: list[int] = [0]

    def scratch(size: int) -> ScratchSlot:
        start = sizes[-1]
        sizes.append(start + -(-size // ALIGNMENT) * ALIGNMENT)
        return ScratchSlot(start * SIZES[kind])

    reads = {n: Operand(k, MemorySlot("loads", n), strides) for n, k, strides in loads}
    makes = {n: Operand(k, MemorySlot("stores", n), strides) for n, k, strides in stores}
    nest = LoopNest(space, reads, lines, makes, kind, last=last)
    return Template(nestCalls(canonical(nest), scratch), sizes[-1], tuple(lateIn(nest)))


def canonical(nest: LoopNest) -> LoopNest:
    """The nest with names numbered in order of use, so that equal formulas share code, and without unused lines."""
    names: dict[str, str] = {}
    loads: dict[str, Any] = {}
    lines: list[Line] = []

    def name(n: str) -> str:
        if n in nest.loads and n not in names:
            names[n] = f"x{len(loads)}"
            loads[names[n]] = nest.loads[n]
        return names.get(n, n)

    for n, line in nest.lines:
        if isinstance(line, Reduce):
            line = line._replace(of=name(line.of))
        else:
            line = renamed(line, {x: name(x) for x in line.names})
        names[n] = f"y{len(lines)}"
        lines.append((names[n], line))
    stores = {name(n): o for n, o in nest.stores.items()}
    return nest._replace(loads=loads, lines=tuple(lines), stores=stores)


def lateIn(nest: LoopNest) -> list[int]:
    """The indices of loads that a result of the same layout may overwrite: each element is read when it is computed.

    With reductions there are two kinds. A load that does not vary along the reduced axes counts if it is read only
    after the reduction, or if a separate nest finishes the reduction. Loads that vary count if all varying results
    are computed after the last reduction.
    """
    nest = ordered(nest)  # drops reductions over axes of length one, which nothing waits for
    inner = len(nest.space) - 1
    sets, late = reduceSets(nest), set(nest.loads)
    if sets:
        late = set()
        for axes in sets:
            varies, isSeparate = varying(nest, axes), len(sets) > 1 and inner not in axes
            early = {n for name, x in nest.lines if varies[name] or isinstance(x, Reduce) for n in readBy(x)}
            late |= {n for n in nest.loads if not varies[n] and (isSeparate or n not in early)}
        if len(sets) == 1 and isMadeLast(nest, sets[0]):
            late |= {n for n in nest.loads if varies[n]}
    return [
        i
        for i, (n, o) in enumerate(nest.loads.items())
        if n in late and not any(isTransposed(o, s) for s in nest.stores.values())
    ]


def isMadeLast(nest: LoopNest, axes: frozenset[int]) -> bool:
    """True if some results vary along reduced axes, and all of these are computed after the last reduction."""
    shape = ReducedNest(nest, axes)
    return {shape.phase[n] for n in nest.stores if shape.spread[n]} == {shape.count - 1} != {0}


def isTransposed(x: Operand, y: Operand) -> bool:
    """True if two operands have the same strides in a different axis order."""
    return x.strides != y.strides and sorted(x.strides) == sorted(y.strides)


def readBy(line: Any) -> tuple[str, ...]:
    """The names that a line reads."""
    return (line.of,) if isinstance(line, Reduce) else line.names
