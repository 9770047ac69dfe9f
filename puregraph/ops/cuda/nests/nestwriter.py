"""The writer of a nest's kernel: its text, and its arguments.

A kernel that loads several elements at a time is a template of their number, so that it can load one by one where
addresses are not aligned. Loads and results are kept in arrays of v elements; between them are formulas on one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import gcd, prod
from typing import TYPE_CHECKING, Any

from puregraph.ops.cuda.nests.formulatext import preamble, statement
from puregraph.ops.cuda.runtime.compiler import ROUNDED
from puregraph.ops.cuda.runtime.launch import MAX_LOAD_BYTES, THREADS, Launch, divisor
from puregraph.ops.formula import Formula
from puregraph.ops.formula.formula import wholeText
from puregraph.ops.formula.loopnest import INTEGERS, LoopNest, Reduce, ReducedNest, isAxis, startOf, title

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

KINDS = {
    "bool": ("bool", 1),
    "i8": ("signed char", 1),
    "u8": ("unsigned char", 1),
    "i16": ("short", 2),
    "u16": ("unsigned short", 2),
    "i32": ("int", 4),
    "u32": ("unsigned", 4),
    "i64": ("long long", 8),
    "u64": ("unsigned long long", 8),
    "f16": ("Half", 2),
    "bf16": ("Bfloat", 2),
    "f32": ("float", 4),
    "f64": ("double", 8),
}
HOWS = {"sum": "Sum", "prod": "Product", "max": "Max", "min": "Min"}
STARTS = {"sum": "0", "prod": "1", "max": "-INFINITY", "min": "INFINITY"}
MAX_THREAD_ELEMENTS = 8  # elements that a thread loads at a time, at most
INT_POSITIONS = 1 << 30  # positions below this are counted by an int
MAX_EXACT = 1 << 24  # integers up to this are exact in float32


def canonical(nest: LoopNest) -> LoopNest:
    """The nest with names numbered in order, so that equal computations have the same text."""
    names = {n: f"x{i}" for i, n in enumerate(nest.loads)}
    names |= {n: f"y{i}" for i, (n, _) in enumerate(nest.lines)}

    def line(x: Formula | Reduce) -> Formula | Reduce:
        if isinstance(x, Reduce):
            return x._replace(of=names[x.of])
        return x.put(**{n: names[n] for n in x.names if n in names})

    return nest._replace(
        loads={names[n]: o for n, o in nest.loads.items()},
        lines=tuple((names[n], line(x)) for n, x in nest.lines),
        stores={names[n]: o for n, o in nest.stores.items()},
    )


def isNear(nest: LoopNest) -> bool:
    """True if an int can hold all positions of the space and all offsets of operands."""
    spans = [prod(nest.space)]
    for o in (*nest.loads.values(), *nest.stores.values()):
        spans.append(sum(abs(s) * (n - 1) for s, n in zip(o.strides, nest.space)))
    return max(spans) < INT_POSITIONS


def manyOf(nest: LoopNest, even: Iterable[int] = ()) -> int:
    """The number of elements per load along the last axis, which divides all strides and these lengths."""
    operands = [*nest.loads.values(), *nest.stores.values()]
    together = [o for o in operands if o.strides[-1] == 1]
    if not together:
        return 1
    size = min(KINDS[o.kind][1] for o in together)
    most = min(MAX_THREAD_ELEMENTS, MAX_LOAD_BYTES // size)
    return gcd(most, *even, *(s for o in together for s, n in zip(o.strides[:-1], nest.space) if n > 1))


Slots = dict[str, tuple[str, str, Any]]  # arguments by name: (type of the slot, C type, value)


def parameters(slots: Slots) -> str:
    """The parameter list of a kernel with these arguments."""
    return ", ".join(f"{ctype} {name}" for name, (_, ctype, _) in slots.items())


def slotsOf(slots: Slots) -> tuple[tuple[str, Any], ...]:
    """Arguments as the slots of a Launch: (type, value)."""
    return tuple((role, what) for role, _, what in slots.values())


def alongAxis(shape: ReducedNest, axis: int, indices: Mapping[int, str], kind: str) -> str:
    """The index along an axis, of element u along the last one, as a number of a kind. Where floats hold every index,
    one conversion serves several elements: a GPU converts a quarter as many integers a second as it adds floats."""
    if axis != shape.inner:
        return indices[axis]
    return f"({kind})({indices[axis]}) + u" if shape.nest.space[axis] <= MAX_EXACT else f"{indices[axis]} + u"


class NestWriter:
    """Writes the text of a kernel line by line, and collects its arguments.

    `resident` is the number of blocks per multiprocessor that registers must suffice for.
    """

    resident = 1
    headers = ""  # headers besides common.h

    def __init__(self, shape: ReducedNest, many: int):
        self.shape, self.nest, self.many = shape, shape.nest, many
        self.T = KINDS[self.nest.kind][0]
        self.I = "int" if isNear(self.nest) else "int64"
        self.text: list[str] = []
        self.depth = 1
        self.slots: Slots = {}
        self.known: dict[str, str] = {}  # values hoisted out of the loops, as expressions
        for key, o in shape.operands.items():
            const = "const " if key.startswith("l_") else ""
            self.slots[key] = "pointer", f"{const}{KINDS[o.kind][0]}*", o.what

    def start(self, how: str) -> str:
        """The initial value of a reduction."""
        kind = self.nest.kind
        return wholeText(startOf(how, kind)) if kind in INTEGERS else STARTS[how]

    # Text -----------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.text.append("  " * self.depth + text)

    @contextmanager
    def block(self, head: str, unroll: int = 0) -> Iterator[None]:
        """A statement with a body."""
        if unroll:
            self.line(f"#pragma unroll {unroll}")
        self.line(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def lanes(self, v: str = "v") -> AbstractContextManager:
        """A loop over the elements that are loaded at a time."""
        if v == "1":
            return self.block("for (int u = 0; u < 1; u++)")
        self.line("#pragma unroll")
        return self.block(f"for (int u = 0; u < {v}; u++)")

    def number(self, name: str, value: int) -> str:
        """An integer argument."""
        self.slots[name] = ("int" if self.I == "int" else "long"), self.I, value
        return name

    def launch(self, kind: str, grid: int, block: tuple[int, int, int], shared: int = 0) -> Launch:
        """The launch of the finished kernel."""
        start = self.starting(kind, block, self.slots)
        source = ROUNDED + preamble(self.formulas(), self.T) + self.headers + "\n"  # equal in all phases
        if self.many == 1:
            body = "\n".join(self.text)
            source += f"{start} {{\n  constexpr int v = 1;\n{body}\n}}\n"
        else:
            source += f"{self.function('run')}{start} {{\n{self.calling('run')}}}\n"
        return Launch(title(self.nest), source, kind, slotsOf(self.slots), (grid, 1, 1), block, shared)

    def starting(self, kind: str, block: tuple[int, int, int], slots: Slots) -> str:
        """The declaration of a kernel."""
        threads = block[0] * block[1] * block[2]
        some = f"__launch_bounds__({threads}, {self.resident}) "
        isBound = threads > THREADS or self.resident > 1  # otherwise the compiler's choice of registers always fits
        bounds = some if isBound else ""
        return f'extern "C" __global__ void {bounds}{kind}({parameters(slots)})'

    def formulas(self) -> list[Formula]:
        """The formulas of the nest."""
        return [x for _, x in self.nest.lines if isinstance(x, Formula)]

    def function(self, name: str) -> str:
        """The text as a template of how many elements are loaded at a time."""
        body = "\n".join(self.text)
        head = f"template <int v>\n__device__ static inline void {name}({parameters(self.slots)})"
        return f"{head} {{\n{body}\n}}\n"

    def calling(self, name: str, prefix: str = "") -> str:
        """The call of that function: the vectorised version if all addresses are aligned; arguments have a prefix."""
        args = ", ".join(f"{prefix}{key}" for key in self.slots)
        if self.many == 1:
            return f"  {name}<1>({args});\n"
        aligned = " && ".join(self.aligned(prefix))
        return f"  if ({aligned})\n    {name}<{self.many}>({args});\n  else\n    {name}<1>({args});\n"

    def aligned(self, prefix: str = "") -> Iterator[str]:
        """Conditions on the addresses for vector loads and stores."""
        for key, o in self.shape.operands.items():
            if o.strides[-1] == 1:
                yield f"isAligned({prefix}{key}, {min(MAX_LOAD_BYTES, self.many * KINDS[o.kind][1])})"

    # Offsets --------------------------------------------------------------------------------------------------------

    def stride(self, key: str, axis: int) -> str:
        """The stride of an operand along an axis, as an expression."""
        s = self.shape.operands[key].strides[axis]
        if s == 0 or (s == 1 and axis == self.shape.inner):
            return str(s)
        return self.number(f"{key}_{axis}", s)

    def offset(self, key: str, indices: Mapping[int, str]) -> str:
        """The offset of a position from the operand's start."""
        parts = [(i, self.stride(key, a)) for a, i in indices.items()]
        terms = [i if s == "1" else f"{i} * {s}" for i, s in parts if s != "0" and i != "0"]
        return " + ".join(terms) or "0"

    def unravel(self, flat: str, axes: list[int]) -> dict[int, str]:
        """The indices along some axes, unraveled from a flat index."""
        indices, remaining = {}, flat
        for a in reversed(axes[1:]):
            extent = self.number(f"n{a}", self.nest.space[a])
            if self.I == "int":
                factor, shift = divisor(self.nest.space[a])
                self.slots[f"f{a}"] = "int", "unsigned", factor
                self.number(f"h{a}", shift)
                self.line(f"const int q{a} = quotient({remaining}, {extent}, f{a}, h{a});")
            else:
                self.line(f"const int64 q{a} = {remaining} / {extent};")
            self.line(f"const {self.I} i{a} = {remaining} - q{a} * {extent};")
            indices[a], remaining = f"i{a}", f"q{a}"
        return {**({axes[0]: remaining} if axes else {}), **indices}

    # Values ---------------------------------------------------------------------------------------------------------

    def order(self, names: Iterable[str], kept: Iterable[str] = ()) -> list[str]:
        """The varying names that some names depend on, each after its operands; `kept` names are not followed."""
        wanted, kept = dict.fromkeys(names), set(kept)
        ordered: dict[str, None] = {}
        for name in reversed([*self.nest.loads, *self.shape.lines]):
            if name in wanted and name not in self.known:
                ordered[name] = None
                if name in self.shape.lines and name not in kept:
                    x = self.shape.lines[name]
                    wanted |= dict.fromkeys([x.of] if isinstance(x, Reduce) else x.names)
        axes = [n for n in wanted if isAxis(n) and n not in self.known]
        return [*axes, *reversed(ordered)]

    def fixed(self, names: Iterable[str], indices: Mapping[int, str]) -> None:
        """Hoist the dependencies of some names that do not vary along the loops."""
        for name in self.order(self.shape.dependencies(names)):
            if name in self.known or (isAxis(name) and int(name[4:]) not in indices):
                continue
            self.known[name] = name
            if name in self.nest.loads:
                self.line(f"const {self.T} {name} = load(l_{name}, {self.offset(f'l_{name}', indices)});")
            elif isAxis(name):
                self.line(f"const {self.T} {name} = {indices[int(name[4:])]};")
            else:
                self.line(self.formula(name))

    def formula(self, name: str) -> str:
        """The statement for a line."""
        x = self.shape.lines[name]
        if isinstance(x, Reduce):
            raise ValueError(f"{name} is wanted before it is complete")
        return statement(x, name, self.T)

    def elements(
        self,
        indices: Mapping[int, str],
        stores: Iterable[str],
        reductions: Mapping[str, str],
        v: str = "v",
        kept: Mapping[str, str] = {},
        keep: Mapping[str, str] = {},
        into: Mapping[str, str] = {},
    ) -> None:
        """Load v elements of each operand, compute, and write results; reductions accumulate in the named variables.

        `kept` are names that were computed before, as expressions; `keep` those to be kept, and where: of a load as
        it is stored, in a Pack. `into` are names whose v elements are put into an array.
        """
        stores, T = list(stores), self.T
        of = {n: self.shape.lines[n].of for n in reductions}  # type: ignore[union-attr]
        order = self.order([*of.values(), *stores, *keep, *into], kept)
        loads = [n for n in order if n in self.nest.loads and n not in kept]
        values = {}
        for n in loads:
            step = self.stride(f"l_{n}", self.shape.inner)
            offset = self.offset(f"l_{n}", indices)
            if step == "0" and n not in keep:
                self.line(f"const {T} a_{n} = load(l_{n}, {offset});")
                values[n] = f"a_{n}"
                continue
            stepText = "" if step == "1" else f", {step}"
            if n in keep:
                self.line(f"{'fetchApart' if stepText else 'fetchMany'}<{v}>(l_{n}, {offset}{stepText}, {keep[n]});")
                values[n] = self.widened(n, keep[n])
                continue
            self.line(f"{T} a_{n}[{v}];")
            self.line(f"{'loadApart' if stepText else 'loadMany'}<{v}>(l_{n}, {offset}{stepText}, a_{n});")
            values[n] = f"a_{n}[u]"
        for n in stores:
            self.line(f"{T} b_{n}[{v}];")
        with self.lanes(v):
            for n in self.used(order, kept, [*of.values(), *stores, *into]):
                self.line(f"const {T} {n} = {self.known[n]};")
            for n in order:
                if n in kept:
                    self.line(f"const {T} {n} = {kept[n]};")
                elif n in values:
                    self.line(f"const {T} {n} = {values[n]};")
                elif isAxis(n):
                    self.line(f"const {T} {n} = {alongAxis(self.shape, int(n[4:]), indices, T)};")
                else:
                    self.line(self.formula(n))
            for n, target in keep.items():
                if n not in values:
                    self.line(f"{target} = {n};")
            for n, target in (*((n, f"b_{n}") for n in stores), *into.items()):
                self.line(f"{target}[u] = {n};")
            for n, sum in reductions.items():
                how = HOWS[self.shape.lines[n].how]  # type: ignore[union-attr]
                self.line(f"{sum} = {how}::join({sum}, {of[n]});")
        for n in stores:
            self.put(n, indices, f"b_{n}", v)

    def widened(self, name: str, pack: str) -> str:
        """C that converts element u of a load kept in its storage type."""
        return f"({self.T})Number<{KINDS[self.nest.loads[name].kind][0]}>::widen({pack}.at[u])"

    def used(self, order: Iterable[str], kept: Iterable[str], names: Iterable[str]) -> list[str]:
        """Values known under another name that are used by lines or requested themselves."""
        formulas = [self.shape.lines[n] for n in order if n in self.shape.lines and n not in kept]
        candidates = dict.fromkeys([*names, *(n for x in formulas for n in x.names)])  # type: ignore[union-attr]
        return [n for n in candidates if self.known.get(n, n) != n]

    def put(self, name: str, indices: Mapping[int, str], values: str, v: str = "v", offset: str | None = None) -> None:
        """Store v elements along the last axis; where an operand repeats along an axis, only the first is stored."""
        key = f"s_{name}"
        strides = self.shape.operands[key].strides
        repeated = [i for a, i in indices.items() if strides[a] == 0 and self.nest.space[a] > 1]
        step = self.stride(key, self.shape.inner) if self.shape.inner in indices else "0"
        to = self.offset(key, indices) if offset is None else offset
        if step == "0":
            text = f"store({key}, {to}, {values}[0]);"
        elif step == "1":
            text = f"storeMany<{v}>({key}, {to}, {values});"
        else:
            text = f"storeApart<{v}>({key}, {to}, {step}, {values});"
        self.line(f"if ({' && '.join(f'{i} == 0' for i in repeated)}) {text}" if repeated else text)
