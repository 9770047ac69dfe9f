"""GEMM by cuBLASLt: a matrix product of arrays as the library's column-major task, with its epilogue.

A row-major matrix, read column-major, is its transpose. Hence a row-major result, D = A B, is
computed as D' = B' A', with the second operand first. A column-major operand is transposed by
the library itself, and for a column-major result the operands are swapped. So no view is copied that is contiguous
along one of its two axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product as pairings
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.errors import DeviceError
from puregraph.ops.cuda.libraries.librarycall import LibraryCall, Time, pointers
from puregraph.ops.cuda.libraries.tensorview import flat, load, pick, save
from puregraph.ops.product.cuda import cublaslt
from puregraph.ops.product.cuda.cublaslt import (
    BACKGELU,
    BACKRELU,
    BIAS,
    GELU,
    KEPT,
    PLAIN,
    RELU,
    TOTAL,
    TOTALA,
    TOTALB,
    GemmTask,
    Matmul,
    MatrixLayout,
    TaskAddresses,
    isPossible,
)

if TYPE_CHECKING:
    from types import NotImplementedType

    from numpy.typing import DTypeLike

    from puregraph.core.protocols import Strided

FORWARD = {None: 0, "relu": RELU, "gelu": GELU}
BACK = {"relu": BACKRELU, "gelu": BACKGELU}
STEP = {"relu": 128, "gelu": 8}  # a row of kept values is a multiple of this many bits, or elements
CALLS = 64  # maximum number of library calls for a batch that is not evenly strided
HALVES = ("float16", "bfloat16")
FLOATS = (*HALVES, "float32", "float64")
ROOT = 0.7978845608028654  # sqrt(2 / pi)


class View(NamedTuple):
    """The layout of the matrices of a batch: strides, in elements, along each axis of the batch, from row to row, and
    from column to column."""

    batch: tuple[int, ...]
    rows: int
    columns: int


class Product(LibraryCall):
    """A matrix product, or several that differ in their offsets.

    `roles`   the slots of "a", "b" and "d" of the task, of its "vector", and of the "kept" values
    `starts`  for each call the offsets of these in bytes from the slot's address
    """

    library = "cuBLASLt"
    workspace = cublaslt.WORKSPACE

    def __init__(self, task: GemmTask, slots: Any, roles: dict[str, int], starts: list[dict[str, int]]) -> None:
        self.task, self.slots, self.roles, self.starts = task, slots, roles, starts
        self.matmuls: list[Matmul] = []
        self.aligned: list[TaskAddresses] = []  # the alignments that the matmuls were prepared for
        d, count = task.d, task.d.copies * len(starts)
        inner = task.a.rows if task.transA else task.a.columns
        self.name = f"product {f'{count} x ' * (count > 1)}{d.columns}x{inner}x{d.rows} {task.a.kind}"

    def at(self, addresses: Sequence[int], start: dict[str, int]) -> TaskAddresses:
        """The addresses of one call."""
        return TaskAddresses(**{part: addresses[slot] + start.get(part, 0) for part, slot in self.roles.items()})

    def prepare(self, addresses: Sequence[int]) -> None:
        matmuls, calls = [], [self.at(addresses, start) for start in self.starts]
        for at in calls:
            matmul = Matmul(self.task)
            if not matmul.choose(at):
                raise DeviceError(
                    f"cuBLASLt has no algorithm for {self.name}, epilogue {self.task.epilogue}, at this alignment"
                )
            matmuls.append(matmul)
        self.matmuls, self.aligned = matmuls, [at.aligned for at in calls]

    def run(self, addresses: Sequence[int], workspace: int, stream: int) -> None:
        calls = [self.at(addresses, start) for start in self.starts]
        if self.aligned != [at.aligned for at in calls]:
            self.prepare(addresses)
        for matmul, at in zip(self.matmuls, calls):
            matmul.run(at, workspace, stream)

    def tune(self, addresses: Sequence[int], workspace: int, limit: int, stream: int, time: Time) -> None:
        self.prepare(addresses)
        for matmul, start in zip(self.matmuls, self.starts):
            run = partial(matmul.run, self.at(addresses, start), workspace, stream)
            matmul.tune(self.at(addresses, start), partial(time, run))

    def emulate(self, arrays: Sequence[np.ndarray]) -> None:
        task = self.task
        kinds = {"a": task.a.kind, "b": task.b.kind, "d": task.d.kind, "vector": task.d.kind, "kept": keptKind(task)}
        for start in self.starts:
            parts = {}
            for part, slot in self.roles.items():
                elements = flat(arrays[slot], kinds[part])
                parts[part] = elements[start.get(part, 0) // elements.itemsize :]
            evaluate(task, parts)


def product(
    out: Any,
    a: Any,
    b: Any,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: Strided | None = None,
    activation: str | None = None,
    kept: Strided | None = None,
    back: str | None = None,
    total: Strided | None = None,
    of: str = "out",
    tf32: bool = False,
) -> Product | NotImplementedType:
    """out = epilogue(alpha a b + beta out), as np.matmul; NotImplemented if the library has no such task.

    `bias`        (n,), added to each row
    `activation`  "relu" or "gelu" (its tanh form) of that; `kept` (see `keptFor`) gets the values for its gradient
    `back`        the result times the derivative of that activation, which is computed from `kept`
    `total`       (n,) gets the sum over the rows of the result, with `back` alone; with of="b" the sum over k of b,
                  with of="a", (m,), that of a
    `tf32`        whether float32 may be multiplied with ten bits of its fraction

    Slots are a, b, then bias and kept if read, then out, then total and kept if written.

    Shapes    a (..., m, k), b (..., k, n), out (..., m, n); an axis of length one, or none, serves a whole batch
    """
    vector = total if bias is None else bias
    isTransposed = min(len(a.shape), len(b.shape), len(out.shape)) > 1 and isColumnMajor(out)
    epilogue = epilogueCode(activation, kept, back, bias, total, of, isTransposed)
    if epilogue is None or not fits(out, a, b) or not suits(epilogue, out, vector, kept, of, back or activation):
        return NotImplemented
    arrays = {"a": a, "b": b, "d": out} if isTransposed else {"a": b, "b": a, "d": out}
    bits = {"kept": 8 if "relu" in (activation, back) else 1}
    if kept is not None:
        arrays["kept"] = kept
    if any(step < 0 or step % x.dtype.itemsize for x in arrays.values() for step in x.strides):
        return NotImplemented
    views = {role: viewOf(x, out.shape[:-2], isTransposed, bits.get(role, 1)) for role, x in arrays.items()}
    m, n = reversed(out.shape[-2:]) if isTransposed else out.shape[-2:]
    lay = GemmAxes(m, n, a.shape[-1], list(out.shape[:-2]), views)
    task = lay.task(a.dtype.name, out.dtype.name, epilogue, STEP.get(activation or back or "", 1))
    if task is None or (total is not None and lay.copies > 1):
        return NotImplemented
    compute = "tf32" if tf32 and a.dtype.name == "float32" else task.compute
    task = task._replace(compute=compute, alpha=alpha, beta=beta)
    if not isPossible(task):
        return NotImplemented
    whats = [*(a, b, bias), *[kept] * (back is not None), *(out, total), *[kept] * (back is None)]
    slots = pointers(*whats)
    arrays |= {} if vector is None else {"vector": vector}
    roles = {role: next(i for i, slot in enumerate(slots) if slot[1] is x) for role, x in arrays.items()}
    starts = [
        {role: step * arrays[role].dtype.itemsize // bits.get(role, 1) for role, step in start.items()}
        for start in lay.starts
    ]
    return Product(task, slots, roles, starts)


class GemmAxes:
    """The axes of a product: of its batch, as few as possible, and of its matrices.

    `starts`  the offsets of the matrices of each call, in elements, set by `task`
    """

    def __init__(self, m: int, n: int, k: int, batch: list[int], views: dict[str, View]) -> None:
        self.m, self.n, self.k, self.batch, self.views = m, n, k, batch, views
        self.starts: list[dict[str, int]] = [{}]

    @property
    def copies(self) -> int:
        """The number of matrices."""
        return prod(self.batch)

    def keep(self, axes: Sequence[int]) -> None:
        """Drop all axes of the batch but these."""
        self.batch = [self.batch[i] for i in axes]
        for role, view in self.views.items():
            self.views[role] = view._replace(batch=tuple([view.batch[i] for i in axes]))

    def flatten(self, shared: str, along: str) -> None:
        """Merge axes of the batch that share one operand into rows, or into columns, where the strides allow it."""
        for i in reversed(range(len(self.batch))):
            if self.views[shared].batch[i]:
                continue
            length = self.m if along == "rows" else self.n
            grown = {role: view for role, view in self.views.items() if role != shared}
            if length == 1:
                steps: list[dict[str, Any]] = [{along: view.batch[i]} for view in grown.values()]
                grown = {role: view._replace(**step) for (role, view), step in zip(grown.items(), steps)}
            if all(view.batch[i] == length * getattr(view, along) for view in grown.values()):
                self.views |= grown
                if along == "rows":
                    self.m *= self.batch[i]
                else:
                    self.n *= self.batch[i]
                self.keep([j for j in range(len(self.batch)) if j != i])

    def merge(self) -> None:
        """Merge neighbouring axes of the batch where the strides allow it."""
        self.keep([i for i, length in enumerate(self.batch) if length > 1])
        for i in reversed(range(len(self.batch) - 1)):
            length = self.batch[i + 1]
            if all(view.batch[i] == length * view.batch[i + 1] for view in self.views.values()):
                self.batch[i + 1] *= self.batch[i]
                self.keep([j for j in range(len(self.batch)) if j != i])

    def task(self, kind: str, made: str, epilogue: int, step: int) -> GemmTask | None:
        """The task of one call, with the longest batch axis as the library's batch.

        None if the matrices have no leading dimension, if that of the kept values is not a multiple of `step`, or if it
        takes too many calls.
        """
        if epilogue != TOTALB:
            self.flatten("a", "rows")
        if epilogue == PLAIN:
            self.flatten("b", "columns")
        self.merge()
        longest = max(range(len(self.batch)), key=self.batch.__getitem__, default=None)
        others = [i for i in range(len(self.batch)) if i != longest]
        if prod(self.batch[i] for i in others) > CALLS:
            return None
        self.starts = [self.start(others, index) for index in pairings(*(range(self.batch[i]) for i in others))]
        shapes = {"a": (self.k, self.n), "b": (self.m, self.k), "d": (self.m, self.n), "kept": (self.m, self.n)}
        matrices = {}
        for role, view in self.views.items():
            matrix = matrixOf(view, *shapes[role], kind if role in "ab" else made)
            if matrix is None:
                return None
            copies, stride = (1, 0) if longest is None else (self.batch[longest], view.batch[longest])
            matrices[role] = matrix[0]._replace(copies=copies, stride=stride), matrix[1]
        (a, transA), (b, transB), (d, transD) = matrices["a"], matrices["b"], matrices["d"]
        kept, transKept = matrices.get("kept", (d._replace(ld=0, stride=0), False))
        if transD or transKept or kept.ld % step or kept.stride % step or (d.copies > 1 and not d.stride):
            return None
        compute = "float64" if kind == "float64" else "float32"
        return GemmTask(compute, a, b, d, transA, transB, epilogue, kept.ld, kept.stride)

    def start(self, axes: Sequence[int], index: Sequence[int]) -> dict[str, int]:
        """The offsets of the matrices at an index along some axes of the batch, in elements."""
        return {role: sum(at * view.batch[i] for at, i in zip(index, axes)) for role, view in self.views.items()}


def matrixOf(view: View, rows: int, columns: int, kind: str) -> tuple[MatrixLayout, bool] | None:
    """Row-major or, transposed, column-major matrices as the library has them; None if neither axis is contiguous."""
    for isTransposed, length, count, inner, ld in (
        (False, columns, rows, view.columns, view.rows),
        (True, rows, columns, view.rows, view.columns),
    ):
        if (inner == 1 or length == 1) and (ld >= length or count == 1):
            return MatrixLayout(kind, length, count, ld if count > 1 else max(ld, length)), isTransposed
    return None


def isColumnMajor(out: Strided) -> bool:
    """True if a result is column-major rather than row-major."""
    (m, n), (rows, columns) = out.shape[-2:], out.strides[-2:]
    return n > 1 and columns != out.dtype.itemsize and (m == 1 or rows == out.dtype.itemsize)


def viewOf(x: Strided, batch: tuple[int, ...], isTransposed: bool, bits: int) -> View:
    """The layout of an array in a batch, in elements; where `bits` is 8, in bits, which bytes hold."""
    size = x.dtype.itemsize
    steps = [0 if length == 1 else step // size * bits for length, step in zip(x.shape, x.strides)]
    lead = (0,) * (len(batch) + 2 - len(steps)) + tuple(steps[:-2])
    last = [step // size * bits for step in x.strides[-2:]] if bits == 1 else [x.strides[-2] // size * bits, 1]
    return View(lead, *(reversed(last) if isTransposed else last))


def epilogueCode(
    activation: Any,
    kept: Strided | None,
    back: Any,
    bias: Strided | None,
    total: Strided | None,
    of: str,
    isTransposed: bool,
) -> int | None:
    """The library's code of an epilogue; None where it has none."""
    if total is not None and of != "out":
        isPlain = activation is back is bias is kept is None
        return (TOTALA if (of == "b") != isTransposed else TOTALB) if isPlain else None
    if back is not None:
        isBack = back in BACK and kept is not None and activation is bias is None and not isTransposed
        return BACK[back] | TOTAL * (total is not None) if isBack else None
    if activation not in FORWARD or total is not None or (kept is not None and activation is None):
        return None
    epilogue = FORWARD[activation] | BIAS * (bias is not None) | KEPT * (kept is not None)
    return None if epilogue and isTransposed else epilogue or PLAIN


def fits(out: Strided, a: Strided, b: Strided) -> bool:
    """True if three arrays have the shapes and dtypes of a product that the library supports."""
    if min(len(a.shape), len(b.shape), len(out.shape)) < 2 or not out.size * a.size:
        return False
    kind, made = a.dtype.name, out.dtype.name
    areKnown = kind == b.dtype.name and kind in FLOATS and (made == kind or (kind in HALVES and made == "float32"))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    return areKnown and a.shape[-1] == b.shape[-2] and out.shape == shape


def suits(
    epilogue: int, out: Strided, vector: Strided | None, kept: Strided | None, of: str, activation: str | None
) -> bool:
    """True if the epilogue's operands have the required shapes and dtypes."""
    if epilogue != PLAIN and out.dtype.name == "float64":
        return False
    if vector is not None:
        isPacked = len(vector.shape) == 1 and (vector.size == 1 or vector.strides[0] == vector.dtype.itemsize)
        length = out.shape[-2 if of == "a" else -1]
        if not isPacked or vector.size != length or vector.dtype.name != out.dtype.name:
            return False
    if kept is not None:
        shape, kind = keptFor(out.shape, activation, out.dtype)
        return kept.shape == shape and kept.dtype == kind and kept.strides[-1] == kept.dtype.itemsize
    return True


def keptFor(shape: tuple[int, ...], activation: str | None, dtype: DTypeLike) -> tuple[tuple[int, ...], Any]:
    """The shape and dtype of the values that an activation keeps for backward: one bit per element for "relu", else
    elements.

    Rows may be longer than in the result, as the library requires.
    """
    step = STEP[activation or "gelu"]
    row = -(-shape[-1] // step) * step
    return ((*shape[:-1], row // 8), np.dtype(np.uint8)) if activation == "relu" else ((*shape[:-1], row), dtype)


# The task in numpy --------------------------------------------------------------------------------------------------


def keptKind(task: GemmTask) -> str:
    """The type of kept values: elements like those of D, or bits."""
    return task.d.kind if task.epilogue & (GELU | 64) else "bits"


def evaluate(task: GemmTask, parts: dict[str, np.ndarray]) -> None:
    """Compute a task on memory, from its descriptors alone."""
    for n in range(task.d.copies):
        A = load(matrixAt(parts["a"], task.a, n), "tf32" if task.compute == "tf32" else task.a.kind)
        B = load(matrixAt(parts["b"], task.b, n), "tf32" if task.compute == "tf32" else task.b.kind)
        A, B = A.T if task.transA else A, B.T if task.transB else B
        to = matrixAt(parts["d"], task.d, n)
        D = A @ B * A.dtype.type(task.alpha)
        if task.beta:
            D += load(to, task.d.kind) * D.dtype.type(task.beta)
        save(to, finish(task, D, A, B, parts, n), task.d.kind)


def matrixAt(elements: np.ndarray, matrix: MatrixLayout, n: int) -> np.ndarray:
    """The n-th matrix of a batch: rows and columns."""
    return pick(elements, (matrix.rows, matrix.columns), (1, matrix.ld), n * matrix.stride)


def finish(
    task: GemmTask, D: np.ndarray, A: np.ndarray, B: np.ndarray, parts: dict[str, np.ndarray], n: int
) -> np.ndarray:
    """The sums after the epilogue; its other outputs are written to memory."""
    epilogue, kind = task.epilogue, task.d.kind
    rows, columns = D.shape
    if epilogue & BIAS:
        D = D + load(pick(parts["vector"], (rows,), (1,)), kind)[:, None]
    if epilogue & KEPT:
        D = withKept(task, D, pick(parts["kept"], *keptShape(task), n * keptStep(task)))
    if epilogue & RELU and epilogue != PLAIN:
        D = np.maximum(D, 0)
    if epilogue & GELU:
        D = gelu(D)
    for bit, sums in ((TOTAL, lambda: D.sum(axis=1)), (TOTALA, lambda: A.sum(axis=1)), (TOTALB, lambda: B.sum(axis=0))):
        if epilogue & bit:
            totals = sums()
            save(pick(parts["vector"], totals.shape, (1,)), totals, kind)
    return D


def keptShape(task: GemmTask) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shape and strides of the GEMM's auxiliary output: elements, or a bit mask packed eight rows to a byte."""
    rows, columns = task.d.rows, task.d.columns
    if keptKind(task) == "bits":
        return (-(-rows // 8), columns), (1, task.keptLd // 8)
    return (rows, columns), (1, task.keptLd)


def keptStep(task: GemmTask) -> int:
    """The stride from one matrix to the next in the kept values."""
    return task.keptStride // (8 if keptKind(task) == "bits" else 1)


def withKept(task: GemmTask, D: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Keep the input of an activation; or, backward, D times its derivative."""
    rows = len(D)
    if task.epilogue & 64:
        return D * geluSlope(load(kept, task.d.kind))
    if task.epilogue & 8:
        return D * np.unpackbits(kept, axis=0, count=rows, bitorder="little")
    if task.epilogue & GELU:
        save(kept, D, task.d.kind)
    else:
        kept[...] = np.packbits(D > 0, axis=0, bitorder="little")
    return D


def gelu(x: np.ndarray) -> np.ndarray:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))"""
    return x * 0.5 * (1 + np.tanh(ROOT * (x + 0.044715 * x**3)))


def geluSlope(x: np.ndarray) -> np.ndarray:
    """The derivative of `gelu`."""
    bend = np.tanh(ROOT * (x + 0.044715 * x**3))
    return 0.5 * (1 + bend) + 0.5 * x * (1 - bend**2) * ROOT * (1 + 3 * 0.044715 * x**2)
