"""Dtypes ahead of time: the functions that dtype rules use."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.errors import DtypeError, Fault

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from puregraph.core.protocols import AnyArray
    from puregraph.graph.module import Module

BOOL = np.dtype(bool)
INDEX = np.dtype(np.int64)  # the default dtype of labels and token ids


def needType(condition: AnyArray | bool, wanted: Any, actual: object, hint: str = "") -> None:
    """Raise a DtypeError unless `condition` holds."""
    if not condition:
        raise DtypeError(Fault(str(wanted), str(actual), hint, kind="dtype"))


def promoted(dtypes: Iterable[Any]) -> Any:
    """The promoted dtype of the known ones (None is unknown); None if none is known.

    If there are floats, integers and booleans do not count. Otherwise numpy's promotion applies. bfloat16 is promoted
    like float16; together they give float32, which has bfloat16's range and float16's precision.
    """
    known = [d for d in dtypes if d is not None]
    if known and known.count(known[0]) == len(known) and known[0].isnative:
        return known[0]
    known = [d for d in known if isFloating(d)] or known
    brain = next((d for d in known if d.kind == "V"), None)
    if brain is None:
        return np.result_type(*known) if known else None
    stand = np.float32 if np.float16 in known else np.float16
    common = np.result_type(*[stand if d.kind == "V" else d for d in known])
    return brain if common == np.float16 else common


def needFloats(named: Iterable[tuple[str, Any]], like: Any = None) -> None:
    """Raise a DtypeError for the first input, as (name, dtype), that holds integers or booleans.

    `like` is the float that the data should be converted to; None stands for any.
    """
    for name, dtype in named:
        if not isFloating(dtype):  # formatting a dtype is slow
            hint = f"convert the data with .astype('{like or 'float32'}')"
            needType(False, f"{'floats' if like is None else like} for {name}", dtype, hint)


def needOneFloat(named: Iterable[tuple[str, Any]], like: np.dtype | None = None) -> None:
    """Raise a DtypeError for the first input, as (name, dtype), of another float than `like`, or than the first one."""
    for name, dtype in named:
        like = dtype if like is None else like
        if dtype != like:  # formatting a dtype is slow
            needType(False, f"{like} for {name}", dtype, f"convert the data with .astype('{like}')")


def nativeType(dtype: DTypeLike) -> np.dtype:
    """The dtype of a text, a type such as bool or np.float32, or a dtype, in the byte order of the machine."""
    return np.dtype(dtype).newbyteorder("=")


def isFloating(dtype: Any) -> bool:
    """True if a dtype is a float or unknown."""
    return dtype is None or dtype.kind == "f" or isBfloat16(dtype)


def isByte(dtype: np.dtype) -> bool:
    """True if a dtype is an integer of one byte, as for pixels."""
    return dtype.kind in "iu" and dtype.itemsize == 1


def isBfloat16(dtype: Any) -> bool:
    """True if a dtype is `ml_dtypes.bfloat16`, which numpy treats as a user-defined kind."""
    return dtype.kind == "V" and dtype.name == "bfloat16"


def isNumeric(dtype: Any) -> bool:
    """True if a dtype is a float, an integer or a boolean."""
    return dtype.kind in "fiub" or isBfloat16(dtype)


@cache
def dtypeName(dtype: np.dtype) -> str:
    """Return the name of a dtype; cached, because numpy is slow to format it."""
    return str(dtype.name)


def dtypeNamed(name: str) -> np.dtype:
    """The dtype of a name that a file has.

    Raises    DtypeError for bfloat16 where `ml_dtypes`, which brings it, is not installed
    """
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise DtypeError(
                "bfloat16 needs the package ml_dtypes, which is not installed: pip install puregraph[bfloat16]"
            ) from None
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def inferredType(module: Module, dtypes: tuple[np.dtype | None, ...]) -> Any:
    """The promoted dtype of a module's floating inputs and parameters, and of all inputs if it keeps their dtype.

    Raises    DtypeError for indices that are no integers, and for inputs that must be floats but are not
    """
    names, count = module.inputSpec.names, len(module.outputNames)
    indices, masks = module.indices, module.masks
    named = [(names[min(i, len(names) - 1)], d) for i, d in enumerate(dtypes) if d is not None]
    for name, dtype in named if indices or masks else ():
        if name in indices:
            needType(dtype.kind in "iub", f"integers for {name}", dtype, "convert the data with .astype('int64')")
        if name in masks:
            hint = "compare it, as in NotEqual, or convert with .astype(bool)"
            needType(dtype == BOOL, f"booleans for {name}", dtype, hint)
    named = [(name, dtype) for name, dtype in named if name not in indices and name not in masks]
    paramDtype = promoted(p.dtype for p in module.params.values() if isFloating(p.dtype))
    if paramDtype is not None or module.needsFloats:
        needFloats(named, paramDtype)
    if module.needsOneFloat:
        needOneFloat(named, paramDtype)
    kept = [d for _, d in named if module.keepsDtype or module.views or isFloating(d)]
    result = promoted([paramDtype, *kept])
    return result if count == 1 else [result] * count
