"""Abstract evaluation: infer the shape, dtype and layout of a function's results from those of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from puregraph.compile.trace.recorder import Recorder, UnreadableError
from puregraph.core.opensize import OpenScalar, OpenSize, decided, isSameShape
from puregraph.ops.formula.expr import ONE, leaf, rebuild, term
from puregraph.ops.formula.formula import formulaOf, formulasOf, numpyFrom
from puregraph.ops.formula.interpreter import BLOCK_ELEMENTS, Interpreter
from puregraph.ops.ir import strides
from puregraph.ops.ir.channelslast import channelsLast
from puregraph.ops.ir.value import Value, changed, valuesIn
from puregraph.ops.kernel import LIKEFIRST, Kernel
from puregraph.ops.operation import declared, op

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction
    from puregraph.ops.formula.interpreter import EvalPlan

Reader = Callable[[Recorder, Any, list, dict[str, Any]], Any]
BOOL = np.dtype(bool)


def reads(*functions: Any, makes: tuple[str, ...] = ()) -> Callable[[Reader], Reader]:
    """Declare the abstract evaluation of functions, and the kinds of call that it records."""

    def keep(reader: Reader) -> Reader:
        op(*functions).declare(records=Recording(reader, makes))
        return reader

    return keep


class Recording(NamedTuple):
    """The abstract evaluation of a function's calls, and the kinds of call that it may record."""

    reader: Reader
    makes: tuple[str, ...]


def kindsOf(function: ArrayFunction) -> tuple[str, ...]:
    """The kinds of call that recording this function may add; empty if it is never recorded."""
    if isinstance(function, np.ufunc):
        return ("product",) if function is np.matmul else ("pointwise",) if function.signature is None else ()
    if isinstance(function, Interpreter):
        return ("pointwise",)
    if isinstance(function, Kernel):
        return ("kernel",)
    recording = declared(function, "records")
    return () if recording is None else recording.makes


def readerOf(function: ArrayFunction) -> Reader | None:
    """The abstract evaluation of this function; None if it is unknown or its result shapes may depend on data."""
    if isinstance(function, np.ufunc):
        return readProduct if function is np.matmul else readUfunc if function.signature is None else None
    if isinstance(function, Interpreter):
        return readFormula
    if isinstance(function, Kernel) and declared(function, "records") is None:
        return readKernel
    if isinstance(getattr(function, "__self__", None), np.ufunc):
        function = np.sum if function.__name__ == "reduce" else function
    recording = declared(function, "records")
    return None if recording is None else recording.reader


# Arguments ------------------------------------------------------------------------------------------------------------


def operand(recorder: Recorder, a: Any) -> Any:
    """An operand: a Value, or a scalar; a list of numbers becomes a constant."""
    if type(a) is Value or isinstance(a, (bool, int, float, complex, np.generic)):
        return a
    if type(a) in (list, tuple) and not any(valuesIn(a)):
        return recorder.constant(np.asarray(a))
    raise UnreadableError(f"an operand is {type(a).__name__}")


def isConstant(operands: Iterable[object]) -> bool:
    """True if all Values among the operands are constants, which no run can change."""
    return all(x.role == "constant" for x in valuesIn(operands)) and not hasOpen(operands)


def hasOpen(operands: Any) -> bool:
    """True if there are open sizes among operands."""
    if type(operands) is slice:
        return hasOpen((operands.start, operands.stop, operands.step))
    if isinstance(operands, (list, tuple)):
        return any(map(hasOpen, operands))
    return type(operands) is OpenSize or type(operands) is Value and type(operands.source) is OpenScalar


def openScalar(recorder: Recorder, ufunc: np.ufunc, arguments: list, dtype: np.dtype) -> Value:
    """The result of a call on constant numbers, some of which are open, as a constant that is open."""
    numbers, dtypes = [], []
    for a in arguments:
        isValue = type(a) is Value
        numbers.append((a.source.size if type(a.source) is OpenScalar else a.source.item()) if isValue else a)
        dtypes.append(a.dtype.str if isValue else "")
    size = scalarOf(ufunc, dtype.str, tuple(dtypes), *numbers)
    return recorder.value((), dtype, role="constant", source=OpenScalar(size, dtype))


@decided
def scalarOf(ufunc: np.ufunc, dtype: str, dtypes: tuple[str, ...], *numbers: float) -> float:
    """The result of a ufunc on numbers of some dtypes."""
    with np.errstate(all="ignore"):
        operands = [np.array(n, kind) if kind else n for n, kind in zip(numbers, dtypes)]
        return float(np.asarray(ufunc(*operands), dtype))


def constantResult(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Any:
    """Constant folding: the result of a call on constants only."""
    with np.errstate(all="ignore"):
        arguments, values = changed((list(arguments), list(options.values())), lambda v: v.source)
        result = function(*arguments, **dict(zip(options, values)))
    if type(result) in (tuple, list):
        return [recorder.constant(y) for y in result]
    return recorder.constant(result)


def broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that shapes broadcast to."""
    first = shapes[0]
    return first if all(isSameShape(s, first) for s in shapes) else strides.broadcastShapes(*shapes)


def layoutOf(
    recorder: Recorder, shape: tuple[int, ...], operands: list[Value], itemsize: int
) -> tuple[int, ...] | None:
    """The layout of a ufunc's result; in native code, channels last if an operand is channels last."""
    rank = len(shape)
    if rank < 2:
        return None
    if recorder.layout is not None and any(isSameShape(x.shape, shape) and isLast(x) for x in operands):
        return tuple([s * itemsize for s in channelsLast(shape)])
    return strides.iterated(shape, [strides.aligned(x.shape, x.strides, rank) for x in operands], itemsize)


def isLast(x: Value) -> bool:
    """True if feature maps are stored channels last and that layout is not also row-major."""
    size = x.dtype.itemsize
    if x.ndim < 3 or x.strides[1] != size or x.shape[1] == 1:
        return False
    last = tuple([s * size for s in channelsLast(x.shape)])
    return strides.sameStrides(x.shape, x.strides, last) and not strides.isContiguous(x.shape, x.strides, size)


def dummy(x: Value) -> np.ndarray:
    """An array of ones with a Value's shape and dtype; it takes no memory."""
    return np.broadcast_to(np.ones((), x.dtype), x.shape)


# Element by element ---------------------------------------------------------------------------------------------------


def readUfunc(recorder: Recorder, ufunc: np.ufunc, arguments: list, options: dict[str, Any]) -> Any:
    """A ufunc: shapes broadcast, dtypes as numpy promotes them."""
    arguments = [operand(recorder, a) for a in arguments]
    if options and not options.keys() <= {"dtype"}:
        raise UnreadableError(f"{ufunc.__name__} does not support {', '.join(options)}")
    values = [a for a in arguments if type(a) is Value]
    shape = broadcast([x.shape for x in values])
    dtypes = dtypesOf(ufunc, tuple([kindOf(a) for a in arguments]), options.get("dtype"))
    if all(x.role == "constant" for x in values) and shape == ():
        if not hasOpen(arguments):
            return constantResult(recorder, ufunc, arguments, options)
        if len(dtypes) == 1 and dtypes[0].kind == "f" and not options:
            return openScalar(recorder, ufunc, arguments, dtypes[0])
    outs = [recorder.value(shape, d, layoutOf(recorder, shape, values, d.itemsize)) for d in dtypes]
    recorder.add(ufunc, tuple(arguments), options, outs, "pointwise", ufunc.nout > 1)
    return outs if ufunc.nout > 1 else outs[0]


def kindOf(a: Value | float) -> DTypeLike:
    """The dtype of an operand, or the Python type of a plain number: numpy promotes by it."""
    return a.dtype if type(a) is Value or isinstance(a, np.generic) else a.__class__


@lru_cache(maxsize=4096)
def dtypesOf(ufunc: np.ufunc, kinds: tuple, dtype: DTypeLike | None) -> list[np.dtype]:
    """The dtypes of a ufunc's results."""
    with np.errstate(all="ignore"):
        results = ufunc(*[np.ones((), k) if isinstance(k, np.dtype) else k(1) for k in kinds], dtype=dtype)
    return [y.dtype for y in (results if type(results) is tuple else (results,))]


def readFormula(recorder: Recorder, evaluator: Interpreter, arguments: list, options: dict[str, Any]) -> list[Value]:
    """The results of an Interpreter. Each has the broadcast shape of the values that it reads."""
    arguments = [operand(recorder, a) for a in arguments]
    plan = evaluator.plan(floatsOf(arguments))
    if plan.work is None and any(type(a) is float for a in arguments):
        arguments = [np.float64(a) if type(a) is float else a for a in arguments]
        plan = evaluator.plan(floatsOf(arguments))
    handed = [handedOn(register, dtype, plan, arguments) for register, dtype in zip(evaluator.results, plan.results)]
    if any(handed):  # results that are arguments need no call; compute the others
        others = [f for f, x in zip(formulasOf(evaluator), handed) if x is None]
        computed = iter(readFormula(recorder, numpyFrom(others, evaluator.names), arguments, options) if others else [])
        return [next(computed) if x is None else x for x in handed]
    if not any(evaluator.reads):  # constants only
        some = [np.ones((), a.dtype) if type(a) is Value else a for a in arguments]
        return [recorder.constant(np.asarray(y)) for y in evaluator(*some)]
    outs = []
    layouts = laidOut(recorder, evaluator, plan, arguments)
    evaluator, arguments, plan = needed(evaluator, arguments)
    for reads, dtype, layout in zip(evaluator.reads, plan.results, layouts):
        values = [arguments[i] for i in sorted(reads) if type(arguments[i]) is Value]
        outs.append(recorder.value(broadcast([x.shape for x in values]) if values else (), dtype, layout))
    recorder.add(evaluator, tuple(arguments), {}, outs, "pointwise", True)
    return outs


def needed(evaluator: Interpreter, arguments: list) -> tuple[Interpreter, list, Any]:
    """The Interpreter without arguments that it does not read, if result dtypes stay the same; and its plan."""
    plan = evaluator.plan(floatsOf(arguments))
    used = sorted(set().union(*evaluator.reads))
    if 0 < len(used) < len(arguments):
        few = [arguments[i] for i in used]
        idle = {leaf(n): ONE for i, n in enumerate(evaluator.names) if i not in used}  # x of x ** 0 may be any number
        lean = numpyFrom(
            [formulaOf(rebuild(t, idle, term)) for t in evaluator.terms], [evaluator.names[i] for i in used]
        )
        other = lean.plan(floatsOf(few))
        if (other.work, other.back, other.results) == (plan.work, plan.back, plan.results):
            return lean, few, other
    return evaluator, arguments, plan


def floatsOf(arguments: list) -> tuple:
    """The dtypes of an Interpreter's arguments; None for a plain number."""
    return tuple([a.dtype if type(a) is Value or isinstance(a, np.generic) else None for a in arguments])


def handedOn(register: int, dtype: np.dtype, plan: EvalPlan, arguments: list) -> Value | None:
    """The argument that this result is identical to, or None."""
    value = arguments[register] if register < len(arguments) else None
    same = type(value) is Value and value.dtype == dtype and register not in plan.casts
    return value if same else None


def laidOut(recorder: Recorder, evaluator: Interpreter, plan: Any, arguments: list) -> list[tuple[int, ...] | None]:
    """The layout of each result of an Interpreter; None for row-major."""
    values = [a for a in arguments if type(a) is Value and a.shape]
    if all(strides.falling(strides.aligned(x.shape, x.strides, x.ndim)) for x in values):
        return [None] * len(evaluator.results)
    sizes = [dtype.itemsize for dtype in plan.results]
    if recorder.layout is not None:
        layouts = []
        for reads, size in zip(evaluator.reads, sizes):
            xs = [arguments[i] for i in sorted(reads) if type(arguments[i]) is Value]
            resultShape = broadcast([x.shape for x in xs]) if xs else ()
            layouts.append(layoutOf(recorder, resultShape, xs, size))
        return layouts
    shape = broadcast([x.shape for x in values])
    unbroadcast = [i for i, a in enumerate(arguments) if type(a) is Value and isSameShape(a.shape, shape)]
    if (
        len(evaluator.steps) > 2
        and any(x.size >= 2 * BLOCK_ELEMENTS for x in values)
        and isBlockwise(evaluator, arguments, shape)
    ):
        first = arguments[unbroadcast[0]]
        return [strides.like(shape, first.strides, size) for size in sizes]
    known: dict[int, Any] = {}
    for i, a in enumerate(arguments):
        known[i] = (a.shape, a.strides) if type(a) is Value else ((), ())
    for i in plan.casts:
        resultShape, lay = known[i]
        known[i] = resultShape, strides.like(resultShape, lay, plan.work.itemsize)
    size = plan.work.itemsize if plan.work is not None else sizes[0]  # strides are scaled at the end
    for _, select, target in evaluator.steps:
        operands = select(range(evaluator.size))
        pairs = [known.get(i, ((), ())) for i in operands]
        resultShape = broadcast([s for s, _ in pairs])
        known[target] = (
            resultShape,
            strides.iterated(resultShape, [strides.aligned(s, t, len(resultShape)) for s, t in pairs], size),
        )
    layouts = []
    for register, size in zip(evaluator.results, sizes):
        resultShape, lay = known.get(register, ((), ()))
        layouts.append(strides.like(resultShape, lay, size) if resultShape else None)
    return layouts


def isBlockwise(evaluator: Interpreter, arguments: list, shape: tuple[int, ...]) -> bool:
    """True if an Interpreter computes such arrays in blocks; its results then have the first argument's layout."""
    values = [a for a in arguments if type(a) is Value and a.shape]
    unbroadcast = {i for i, a in enumerate(arguments) if type(a) is Value and isSameShape(a.shape, shape)}
    if not all(unbroadcast & reads for reads in evaluator.reads):
        return False
    flat = all(isSameShape(x.shape, shape) and strides.isContiguous(shape, x.strides, x.dtype.itemsize) for x in values)
    size = int(np.prod(shape, dtype=np.int64))
    rows = size if flat else shape[0]
    return max(1, BLOCK_ELEMENTS * rows // size) < rows


# Kernels and products -------------------------------------------------------------------------------------------------


def readKernel(recorder: Recorder, kernel: Kernel, arguments: list, options: dict[str, Any]) -> Value | list[Value]:
    """A Kernel: apply its shape rule, or run it on ones if it has none."""
    if kernel.shapeRule is not None:
        specs = kernel.shapeRule(*arguments, **options)
    else:
        stands = changed((list(arguments), list(options.values())), dummy)
        specs = kernel.reference(*stands[0], **dict(zip(options, stands[1])))
        specs = [(y.shape, y.dtype) for y in specs] if type(specs) is tuple else (specs.shape, specs.dtype)
    several = type(specs) is list
    outs = []
    for shape, dtype in specs if several else [specs]:
        lay = recorder.layout(kernel, tuple(shape), np.dtype(dtype)) if recorder.layout else None
        if declared(kernel, "layout") == LIKEFIRST:
            lay = strides.like(arguments[0].shape, arguments[0].strides, dtype.itemsize)
        outs.append(recorder.value(tuple(shape), np.dtype(dtype), lay))
    recorder.add(kernel, tuple(arguments), options, outs, "kernel", several)
    return outs if several else outs[0]


def readProduct(recorder: Recorder, function: ArrayFunction, arguments: list, options: dict[str, Any]) -> Value:
    """np.matmul: the last two axes are the matrices; the axes before them are batch axes and broadcast."""
    if options:
        raise UnreadableError(f"matmul does not support {', '.join(options)}")
    a, b = (operand(recorder, x) for x in arguments)
    if type(a) is not Value or type(b) is not Value:
        raise UnreadableError("matmul of a number")
    left = a.shape if a.ndim > 1 else (1, *a.shape)
    right = b.shape if b.ndim > 1 else (*b.shape, 1)
    if left[-1] != right[-2]:
        raise ValueError(f"matmul: wanted as many columns in a as rows in b, got {a.shape} @ {b.shape}")
    lead = broadcast([left[:-2], right[:-2]])
    rows, columns = left[-2:-1] if a.ndim > 1 else (), right[-1:] if b.ndim > 1 else ()
    shape, dtype = (*lead, *rows, *columns), np.result_type(a.dtype, b.dtype)
    layout = None
    if len(lead) > 1:
        core = (0,) * (len(shape) - len(lead))
        operands = [
            (*strides.aligned(matrixShape[:-2], x.strides[:-2], len(lead)), *core)
            for matrixShape, x in ((left, a), (right, b))
            if x.ndim > 2
        ]
        layout = strides.iterated(shape, operands, dtype.itemsize)
    return recorder.made(np.matmul, (a, b), {}, "product", shape, dtype, layout)
