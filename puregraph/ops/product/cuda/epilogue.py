"""The epilogue of a contraction: formulas applied to its sums while these are in registers: bias, activation, residual.

    EpilogueText("s", {"b": EpilogueOperandText("float32", b, (0,), (1,))}, [("y", Formula("max(s + b, 0)"))],
                 {"y": EpilogueOperandText("bfloat16", y, (n,), (1,))})

The sums have rows and columns, each along one axis or several, and may be a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.ops.cuda.nests import formulatext
from puregraph.ops.cuda.nests.kernelargs import KernelArgs
from puregraph.ops.cuda.runtime.launch import MAX_LOAD_BYTES
from puregraph.ops.formula import Formula

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided

KINDS = {f"{kind}{bits}": f"{name}{bits}" for kind, name in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)}
KINDS |= {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
MAX_EPILOGUE_ELEMENTS = 8  # elements that a thread has at a time, at most
SIZES = {"bool": 1, "bfloat16": 2}


class EpilogueOperandText(NamedTuple):
    """An operand over the rows and columns of the sums: dtype, array, strides along each axis of the rows, the
    columns and the batch, and the offset of its first element."""

    kind: str
    what: Any
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    batch: tuple[int, ...] = ()
    start: int = 0

    @property
    def dtype(self) -> str:
        return KINDS.get(self.kind, self.kind)

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides along all axes."""
        return (*self.rows, *self.columns, *self.batch)


class EpilogueText(NamedTuple):
    """Formulas, line by line, over the sums, which are named `sums`; the results in `stores` are stored."""

    sums: str
    loads: Mapping[str, EpilogueOperandText]
    lines: Sequence[tuple[str, Formula]]
    stores: Mapping[str, EpilogueOperandText]

    def moved(self, change: Callable[[EpilogueOperandText], EpilogueOperandText]) -> EpilogueText:
        """The epilogue with each of its operands changed."""
        loads = {k: change(o) for k, o in self.loads.items()}
        return self._replace(loads=loads, stores={k: change(o) for k, o in self.stores.items()})

    @property
    def columns(self) -> list[EpilogueOperandText]:
        """All operands that are read or written."""
        return [*self.loads.values(), *self.stores.values()]


def stored(
    y: Strided, rows: tuple[int, ...], columns: tuple[int, ...], batch: tuple[int, ...] = (), start: int = 0
) -> EpilogueText:
    """The epilogue that stores the sums unchanged."""
    return EpilogueText("sums", {}, (), {"sums": EpilogueOperandText(y.dtype.name, y, rows, columns, batch, start)})


def sizeOf(dtype: str) -> int:
    """The bytes of an element."""
    return SIZES.get(dtype) or np.dtype(dtype).itemsize


def vectorWidth(dtype: str, size: int, steps: Sequence[int]) -> int:
    """The number of elements per load or store, contiguous along an axis of this size: up to 16 bytes, at addresses
    that all other strides keep aligned."""
    n = max(1, MAX_LOAD_BYTES // sizeOf(dtype))
    while n > 1 and any(x % n for x in (size, *steps)):
        n //= 2
    return n


class EpilogueLoop(NamedTuple):
    """The traversal of the sums by an epilogue: along rows or columns, `pack` at a time.

    Two consecutive sums along the last axis of the rows, or of the columns, are neighbours; a pack never crosses the
    end of that axis.
    """

    epilogue: EpilogueText
    alongRows: bool
    pack: int

    def step(self, o: EpilogueOperandText) -> int:
        """The stride between neighbours."""
        axes = o.rows if self.alongRows else o.columns
        return axes[-1] if axes else 0

    def isPacked(self, o: EpilogueOperandText, size: int) -> bool:
        """True if an operand is loaded or stored in packs."""
        axes = (*o.rows[:-1], *o.columns) if self.alongRows else (*o.rows, *o.columns[:-1])
        return self.step(o) == 1 and vectorWidth(o.dtype, size, (*axes, *o.batch, o.start)) >= self.pack > 1


def epilogueLoop(epilogue: EpilogueText, rows: Sequence[int], columns: Sequence[int]) -> EpilogueLoop:
    """The loop along the axis in which results are contiguous, in packs that suit all operands."""
    first = next(iter(epilogue.stores.values()))
    alongRows = bool(rows) and first.rows[-1] == 1 and (not columns or first.columns[-1] != 1)
    size = (rows if alongRows else columns)[-1:]
    pack = MAX_EPILOGUE_ELEMENTS
    for o in epilogue.columns:
        axes = (*o.rows[:-1], *o.columns) if alongRows else (*o.rows, *o.columns[:-1])
        beside = (o.rows if alongRows else o.columns)[-1:]
        if beside == (1,):
            isStored = any(o is x for x in epilogue.stores.values())
            pack = min(pack, vectorWidth(o.dtype, size[0], (*axes, *o.batch, o.start) if isStored else ()))
    isAny = any((o.rows if alongRows else o.columns)[-1:] == (1,) for o in epilogue.stores.values())
    return EpilogueLoop(epilogue, alongRows, pack if isAny else 1)


def write(finish: EpilogueLoop, args: KernelArgs, space: Any, isWhole: bool = False) -> str:
    """C of `finish`, which takes the sums from row m, column n of the batch's product z on."""
    epilogue, pack = finish.epilogue, finish.pack
    head: list[str] = []
    indices: list[str] = []
    for number, sizes, title in (("m", space.rows, "row"), ("n", space.columns, "column"), ("z", space.batch, "batch")):
        text, names = args.indices(title[0], number, sizes, title)
        head.append(text)
        indices += names
    moves: dict[str, list[str]] = {"load": [], "store": []}
    operands = [("load", f"l_{k}", o) for k, o in epilogue.loads.items()]
    for do, name, o in operands + [("store", f"s_{k}", o) for k, o in epilogue.stores.items()]:
        args.pointer(name, o.dtype, o.what, do == "store")
        offset = args.offset(f"{name}_", indices, o.strides)
        offset += f" + {args.number(f'{name}Start', o.start, 'long')}" if o.start or isWhole else ""
        head += [f"Wide {name}[{pack}];", f"const int64 at_{name} = {offset};"]
        moves[do].append(move(finish, args, do, name, o, space))
    body = [f"const Wide v_{epilogue.sums} = sums[j];", *[f"const Wide v_{k} = l_{k}[j];" for k in epilogue.loads]]
    body += [*lines(epilogue, "Wide"), *[f"s_{k}[j] = v_{k};" for k in epilogue.stores]]
    heading = "__device__ static inline void finish(const Given& g, int z, int m, int n, const Wide* sums) {"
    return "\n".join([heading, *head, *moves["load"], loop(pack, "\n".join(body)), *moves["store"], "}"])


def move(finish: EpilogueLoop, args: KernelArgs, do: str, name: str, o: EpilogueOperandText, space: Any) -> str:
    """C that loads or stores a pack: in one access if its elements are contiguous and aligned."""
    pack, step = finish.pack, finish.step(o)
    stepText = str(step) if step in (0, 1) else args.number(f"{name}Step", step, "long")
    single = f"{do}Apart<{pack}>(g.{name}, at_{name}, {stepText}, {name});"
    size = (space.rows if finish.alongRows else space.columns)[-1:]
    if not size or not finish.isPacked(o, size[0]):
        return single
    even = f"isAligned(g.{name}, {min(MAX_LOAD_BYTES, pack * sizeOf(o.dtype))})"
    return f"if ({even})\n{do}Many<{pack}>(g.{name}, at_{name}, {name});\nelse\n{single}"


def loop(count: int, body: str) -> str:
    """C of a loop over a pack."""
    return f"#pragma unroll\nfor (int j = 0; j < {count}; j++) {{\n{body}\n}}"


def lines(epilogue: EpilogueText, wide: str) -> list[str]:
    """C that computes the value `v_name` of each line from earlier ones."""
    statements = []
    for name, formula in epilogue.lines:
        substituted = formula.put(**{n: f"v_{n}" for n in formula.names}) if formula.names else formula
        statements.append(formulatext.statement(substituted, f"v_{name}", wide))
    return statements


def preamble(epilogue: EpilogueText, wide: str) -> str:
    """The functions that the lines call."""
    return formulatext.preamble([formula for _, formula in epilogue.lines], wide)
