"""Check that inputs fit a graph and that outputs have the inferred shapes and dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.core.accumulate import isArray, isValue, needPlain, shapeOf
from puregraph.core.base.dtype import isBfloat16, isFloating, isNumeric
from puregraph.core.device import isDeviceArray
from puregraph.core.dim import Dim
from puregraph.core.errors import DataError, DtypeError, PuregraphError, misfit, show
from puregraph.core.shape import bind, symbols
from puregraph.graph.inference import StepShapes
from puregraph.graph.steps import Steps, misfitOf

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.core.shape import Shape


def checkValues(data: list[AnyArray], title: str) -> None:
    """Refuse inputs that may not flow through a graph, such as tensors or tables of other libraries.

    Raises    DataError
    """
    wrong = [x for x in data if not isValue(x)]
    if wrong:
        needPlain(wrong[0], title)
        detail = "; np.asarray(x) makes an array of it" if hasattr(wrong[0], "__array__") else f": {wrong[0]!r:.80}"
        raise DataError(f"{title}: wanted arrays, got {type(wrong[0]).__name__}{detail}")


def checkInputTypes(data: list[AnyArray], steps: Steps, rows: list[StepShapes], dtype: Any) -> None:
    """Check that inputs fit every shape rule, and have the dtype that the graph computes in, or the declared one.

    Raises    ShapeError or DtypeError naming the node
    """
    arrays = [(number, x) for number, x in zip(steps.inputs, data, strict=True) if isArray(x)]
    for number, x in arrays:
        if not isNumeric(x.dtype):
            raise DtypeError(f"at '{steps.producer[number]}': wanted numbers, got dtype {x.dtype}")
    faults = [row.fault for row in rows if row.fault]
    if faults:
        raise misfit(faults)
    declared = {step.args[0]: step.module.dtype for step in steps.declared}
    for number, x in arrays:
        if dtype is not None and isFloating(x.dtype) and x.dtype not in (dtype, declared.get(number, dtype)):
            package = "ml_dtypes" if isBfloat16(x.dtype) else "np"
            isNative = x.dtype.newbyteorder("=").str == x.dtype.str
            other = f", or the graph with .calcMode({package}.{x.dtype.name})" if isNative else ""
            raise DtypeError(
                f"at '{steps.producer[number]}': the graph computes in {dtype}, got {x.dtype}; "
                f"convert the data with .astype('{dtype}'){other}"
            )


def checkResults(rows: list[StepShapes], values: list[AnyArray], isPartial: bool = False) -> dict[str, int]:
    """Check that outputs have the inferred shapes and dtypes; bind data-dependent sizes.

    `isPartial`: values that no step reads are None.
    """
    sizes: dict[str, int] = {}
    for step, inshapes, shapes, _, dtypes in rows:
        inputShapes = [getattr(values[n], "shape", None) for n in step.args[: step.inputs]]
        fault = misfitOf(step, inputShapes) if isOfData(inshapes, inputShapes) else None
        if fault is not None:
            raise fault
        for number, shape, dtype in zip(step.visible, shapes or [], dtypes, strict=True):
            value = values[number]
            if isPartial and value is None:
                continue
            if dtype is not None and getattr(value, "dtype", dtype) != dtype:
                raise PuregraphError(
                    f"at '{step.path}' ({step.label}): dataTypeFrom says {dtype}, updateData gave {value.dtype}; "
                    "one of the two rules is wrong"
                )
            if not isValue(value) or shapeOf(value) != shape and not fitsSizes(shapeOf(value), shape, sizes):
                actual = f"shape {show(shapeOf(value))}" if isArray(value) else type(value).__name__
                raise PuregraphError(
                    f"at '{step.path}' ({step.label}): dataShapeFrom says {show(shape)}{boundIn(sizes, shape)}, "
                    f"updateData gave {actual}; "
                    "one of the two rules is wrong"
                )
    return sizes


def fitsSizes(shape: Any, said: Any, sizes: dict[str, int]) -> bool:
    """True if a shape matches the inferred one under these symbol values; a new symbol gets its value."""
    if len(shape) != len(said):
        return False
    for size, wanted in zip(shape, said):
        if isinstance(wanted, Dim) and wanted.isidentifier():
            sizes.setdefault(str(wanted), size)
    return bind(said, sizes) == tuple(shape)


def isOfData(said: list[Shape | None], shapes: list[tuple[int, ...] | None]) -> bool:
    """True if the actual shapes are known and differ from the inferred ones, which could not know some sizes."""
    return said != shapes and all(shape is not None or wanted is None for shape, wanted in zip(shapes, said))


def boundIn(sizes: dict[str, int], shape: Shape) -> str:
    """Format the values of the symbols in a shape for a message."""
    known = [f"{name} = {sizes[name]}" for name in symbols(shape) if name in sizes]
    return f" with {', '.join(known)}" if known else ""


def areMixed(arrays: list[AnyArray]) -> bool:
    """True if some arrays are on a GPU and others on the host."""
    return len({isDeviceArray(x) for x in arrays if x is not None and hasattr(x, "dtype")}) > 1
