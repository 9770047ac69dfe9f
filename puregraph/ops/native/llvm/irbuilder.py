"""The IR builder: Python code that writes one native kernel as LLVM IR: typed values, vectors, loops.

    code = IRBuilder()
    x, y = code.pointer("x", "f32"), code.pointer("y", "f32")
    n = code.integer("n")
    with code.loop(0, n, 16) as i:
        live = code.mask(n - i, 16)
        y.store(i, x.load(i, 16, live) * 2.0 + 1.0, live)
    code.text()

A kernel is `void kernel(ptr args, i64 task, ptr scratch)`: `args` has a slot of eight bytes for each pointer and
integer, in the order of `code.slots`; `task` is the index of the task to run; `scratch` is memory of the running
thread, from which `code.scratch` allocates blocks. A variable (an accumulator) is an `IRVariable`; all other values
are computed once. A Python number or a scalar that meets a vector is broadcast to all its lanes.

Source    LLVM Language Reference Manual
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from puregraph.ops.native.llvm.instructions import (
    SIZES,
    TEXTS,
    Instructions,
    IRPointer,
    IRType,
    IRValue,
    IRVariable,
    Number,
)

SCRATCH_ALIGNMENT_BYTES = 64  # bytes that blocks of scratch memory are aligned to


class IRBuilder(Instructions):
    """The text of a kernel under construction. With `contract`, LLVM may contract x y + z to one fma.

    `blocks` are the (offset, bytes) of scratch memory, each followed by at least `gap` unused bytes.
    """

    def __init__(self, contract: bool = True, gap: int = 0):
        super().__init__(contract)
        self.slots: list[str] = []
        self.gap, self.scratchBytes = gap, 0
        self.blocks: list[tuple[int, int]] = []
        self.head: list[str] = []
        self.hints: list[str] = []
        self.functions: dict[str, str] = {}
        self.task = IRValue(self, "%task", IRType("i64"))

    # Arguments and scratch memory -------------------------------------------------------------------------------------

    def pointer(self, name: str, kind: str) -> IRPointer:
        """An argument: the address of elements of a kind."""
        return IRPointer(self, self.slot(name, "ptr").name, kind)

    def integer(self, name: str) -> IRValue:
        """An argument: an integer."""
        return self.slot(name, "i64")

    def slot(self, name: str, kind: str) -> IRValue:
        """A new argument slot, loaded at the kernel's entry."""
        self.slots.append(name)
        address, value = self.fresh(), self.fresh()
        self.head += [
            f"{address} = getelementptr inbounds i64, ptr %args, i64 {len(self.slots) - 1}",
            f"{value} = load {TEXTS[kind]}, ptr {address}, align 8",
        ]
        return IRValue(self, value, IRType(kind))

    def scratch(self, kind: str, count: int) -> IRPointer:
        """Scratch memory of this thread for `count` elements; its content does not outlive the task."""
        start, size = self.scratchBytes, count * SIZES[kind]
        self.blocks.append((start, size))
        self.scratchBytes += -(-size // SCRATCH_ALIGNMENT_BYTES) * SCRATCH_ALIGNMENT_BYTES + self.gap
        name = self.fresh()
        self.head.append(f"{name} = getelementptr inbounds i8, ptr %scratch, i64 {start}")
        return IRPointer(self, name, kind)

    # Control flow -----------------------------------------------------------------------------------------------------

    def variable(self, value: IRValue) -> IRVariable:
        """A variable with this initial value: an alloca, which LLVM puts into a register."""
        name = self.fresh()
        self.head.append(f"{name} = alloca {value.type.text}")
        made = IRVariable(self, name, value.type)
        made.value = value
        return made

    @contextmanager
    def loop(self, start: Number, stop: Number, step: Number = 1, unroll: int | None = None) -> Iterator[IRValue]:
        """A loop over indices from `start` to below `stop`; `unroll` is the unroll factor, 1: not unrolled."""
        stop, step = self.i64(stop), self.i64(step)
        index = self.variable(self.i64(start))
        head, body, end = self.label(), self.label(), self.label()
        self.line(f"br label %{head}")
        self.lines.append(f"{head}:")
        i = index.value
        self.line(f"br i1 {(i < stop).name}, label %{body}, label %{end}")
        self.lines.append(f"{body}:")
        yield i
        index.value = i + step
        hint = "" if unroll is None else f", !llvm.loop {self.hint(unroll)}"
        self.line(f"br label %{head}{hint}")
        self.lines.append(f"{end}:")

    @contextmanager
    def when(self, condition: IRValue) -> Iterator[None]:
        """A branch: the body runs only if the scalar condition holds."""
        body, end = self.label(), self.label()
        self.line(f"br i1 {condition.name}, label %{body}, label %{end}")
        self.lines.append(f"{body}:")
        yield
        self.line(f"br label %{end}")
        self.lines.append(f"{end}:")

    def function(self, name: str, args: Sequence[IRValue | IRPointer], write: Callable[..., None]) -> None:
        """Call a noinline function, whose loops can use all registers; functions of the same name are shared.

        `write(code, *args)` writes its body, with parameters in place of the arguments; it has no slots and no scratch.
        """
        kinds = ["ptr" if isinstance(x, IRPointer) else x.type.text for x in args]
        if name not in self.functions:
            inner = IRBuilder()
            inner.flags, inner.declared, inner.hints, inner.functions = (
                self.flags,
                self.declared,
                self.hints,
                self.functions,
            )
            names = [inner.fresh() for _ in args]
            write(inner, *(x.renamed(inner, name) for x, name in zip(args, names)))
            head = f"define internal void @{name}({', '.join(f'{k} {n}' for k, n in zip(kinds, names))}) #1 {{"
            self.functions[name] = "\n".join([head, *inner.head, *inner.lines, "ret void", "}"])
        self.line(f"call void @{name}({', '.join(f'{k} {x.name}' for k, x in zip(kinds, args))})")

    def hint(self, unroll: int) -> str:
        """The loop metadata of an unroll factor."""
        name = f"!{2 * len(self.hints)}"
        what = '!"llvm.loop.unroll.disable"' if unroll == 1 else f'!"llvm.loop.unroll.count", i32 {unroll}'
        self.hints.append(
            f"{name} = distinct !{{{name}, !{2 * len(self.hints) + 1}}}\n!{2 * len(self.hints) + 1} = !{{{what}}}"
        )
        return name

    # Text -------------------------------------------------------------------------------------------------------------

    def label(self) -> str:
        """The label of a new basic block."""
        self.count += 1
        return f"b{self.count}"

    def text(self) -> str:
        """The module: declarations, functions, the kernel, metadata."""
        return "\n".join(
            [
                *self.declared,
                *self.functions.values(),
                "define void @kernel(ptr noalias %args, i64 %task, ptr noalias %scratch) #0 {",
                *self.head,
                *self.lines,
                "ret void",
                "}",
                'attributes #0 = { nounwind "no-trapping-math"="true" }',
                'attributes #1 = { noinline nounwind "no-trapping-math"="true" }',
                *self.hints,
                "",
            ]
        )
