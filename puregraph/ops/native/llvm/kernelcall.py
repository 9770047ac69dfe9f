"""A call of a native kernel before its arrays have addresses: the kernel, its arguments, the number of its tasks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from puregraph.core.opensize import isOpen, numbered, numberOf, unchanging
from puregraph.core.variants import Variants
from puregraph.ops.native.llvm.irbuilder import IRBuilder

if TYPE_CHECKING:
    from puregraph.ops.native.llvm.instructions import IRValue


COMPILED: set[str] = set()  # keys of the kernels of all programs so far: of two equally fast ones, that here is taken


class CallSource(Protocol):
    """Where the kernel calls of a step with open sizes come from."""

    def resolved(self, number: Callable[[Any], Any]) -> tuple[Any, Callable[[Any], Any]]:
        """The calls for the numbers that a function gives for open sizes, and such a function for sizes in them."""


class KernelCall(NamedTuple):
    """A call of a native kernel.

    `name`   the text in tables: "product 64x512x784"
    `key`    the parameters of the code: block sizes, options, the key of its epilogue
    `write`  writes the code: its slots are those of `slots`, by name
    `slots`  the value of each slot: an array (or its placeholder until addresses are known), or an integer
    `tasks`  number of tasks; any thread may run any of them, and no two write to the same address
    `halves` True if factors are rounded to bfloat16
    `again`  for open sizes: how the calls for numbers are made, see `madeFor` and `variedFor`
    """

    name: str
    key: str
    write: Callable[[IRBuilder], None]
    slots: dict[str, Any]
    tasks: int
    halves: bool = False
    again: CallSource | None = None

    @property
    def by(self) -> str:
        """The module that writes the code."""
        return getattr(self.write, "func", self.write).__module__.rpartition(".")[2]


class MadeFor(NamedTuple):
    """A call that a function of sizes makes."""

    make: Callable[..., KernelCall]
    sizes: tuple

    def resolved(self, number: Callable[[Any], Any]) -> tuple[list[KernelCall], Callable[[Any], Any]]:
        """The call for the numbers that a function gives for the sizes, and that function."""
        return [self.make(*numbered(self.sizes, number))], number


def madeFor(make: Callable[..., KernelCall], *sizes: Any) -> KernelCall:
    """make(*sizes), where a search among sizes decides the code: it is made again for others.

    `make` depends on nothing else that changes.
    """
    if not isOpen(sizes):
        return make(*sizes)
    return make(*numbered(sizes))._replace(again=MadeFor(make, sizes))


def variedFor(make: Callable[..., list[KernelCall]], *sizes: Any) -> list[KernelCall]:
    """make(*sizes), where a few comparisons of sizes decide which calls there are, see `Variants`.

    For open sizes it is one call that stands for all of them.
    """
    if not isOpen(sizes):
        return make(*sizes)
    variants = Variants(make, sizes)
    calls, _ = variants.resolved(numberOf)
    return [KernelCall(calls[0].name, calls[0].key, calls[0].write, {}, 0, again=variants)] if calls else []


def settled(call: KernelCall) -> KernelCall:
    """A call that is made once for all sizes: a step holds for those that would make the same."""
    if type(call.again) is MadeFor:
        make, sizes = call.again
        unchanging(lambda *sizes: outlineOf(make(*sizes)))(*sizes)
    slots = {name: operator.index(what) if isOpen(what) else what for name, what in call.slots.items()}
    return call._replace(slots=slots, tasks=operator.index(call.tasks), again=None)


def outlineOf(call: KernelCall) -> tuple[Any, ...]:
    """The parts of a call that depend on sizes: its key, the numbers among its slots, its tasks."""
    numbers = {name: what for name, what in call.slots.items() if isinstance(what, int)}
    return call.key, numbers, call.tasks


class EpilogueSpec:
    """The epilogue of a GEMM or convolution, applied to the sums in registers; this base class stores them.

    A kernel calls `open` before its loops, `enter` with the indices of its product along the batch axes, and `put` with
    the sums of each row (a pixel, a sample) and vector of columns.
    A subclass adds bias, activation or a residual, and may store more than one result.
    """

    def __init__(self, to: Any, stride: int, batch: Sequence[int] = (), real: str = "f32"):
        self.to, self.stride, self.batch, self.real = to, stride, tuple(batch), real

    @property
    def key(self) -> str:
        """The parameters of its code."""
        return f"store {self.real}"

    @property
    def slots(self) -> dict[str, Any]:
        return {"y": self.to, "yStride": self.stride} | {f"yBatch{i}": step for i, step in enumerate(self.batch)}

    def open(self, code: IRBuilder) -> None:
        """Read the arguments."""
        self.y, self.rowStride = code.pointer("y", self.real), code.integer("yStride")
        self.steps = [code.integer(f"yBatch{i}") for i in range(len(self.batch))]

    def enter(self, code: IRBuilder, indices: Sequence[Any]) -> None:
        """Select one product of a batch."""
        for index, step in zip(indices, self.steps):
            self.y = self.y.at(index * step)

    def put(
        self, code: IRBuilder, row: IRValue | int, column: IRValue | int, sums: Any, mask: IRValue | None = None
    ) -> None:
        """Take the sums of `sums.lanes` columns of a row; the mask is on for columns that exist."""
        self.y.store(row * self.rowStride + column, sums, mask)
