"""Dtypes ahead of time: what dtype rules are written with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from puregraph.errors import DtypeError, Fault

BOOL = np.dtype(bool)
INDEX = np.dtype(np.int64)  # of labels and token ids, unless they come in another


def needType(condition: Any, wanted: Any, given: Any, hint: str = "") -> None:
    """Raise a DtypeError unless `condition` holds."""
    if not condition:
        raise DtypeError(Fault(str(wanted), str(given), hint, kind="dtype"))


def promoted(dtypes: Iterable[Any]) -> Any:
    """The dtype that numpy promotes these to, without those that are not known (None); None if none is known."""
    known = [d for d in dtypes if d is not None]
    return np.result_type(*known) if known else None


def needFloats(named: Iterable[tuple[str, Any]], like: Any = None) -> None:
    """Raise a DtypeError for the first input, as (name, dtype), that holds integers or booleans.

    `like` is the float that the data should be converted to; None stands for any.
    """
    for name, dtype in named:
        wanted = "floats" if like is None else like
        needType(
            isFloating(dtype), f"{wanted} for {name}", dtype, f"convert the data with .astype('{like or 'float32'}')"
        )


def isFloating(dtype: Any) -> bool:
    """Whether a dtype, if it is known, is a float."""
    return dtype is None or dtype.kind == "f"


def inferredType(module: Any, dtypes: tuple[Any, ...]) -> Any:
    """The promoted dtype of a module's floating inputs and parameters, and of all inputs if it keeps their dtype.

    Raises    DtypeError for indices that are no integers, and for inputs that are no floats where they have to be
    """
    names, count = module.inputSpec.names, len(module.outputNames)
    given = [(names[min(i, len(names) - 1)], d) for i, d in enumerate(dtypes) if d is not None]
    for name, dtype in given:
        if name in module.indices:
            needType(dtype.kind in "iub", f"integers for {name}", dtype, "convert the data with .astype('int64')")
        if name in module.masks:
            hint = "compare it, as in NotEqual, or convert with .astype(bool)"
            needType(dtype == BOOL, f"booleans for {name}", dtype, hint)
    given = [(name, dtype) for name, dtype in given if name not in module.indices and name not in module.masks]
    own = promoted(p.dtype for p in module.params.values() if p.dtype.kind == "f")
    if own is not None or module.needsFloats:
        needFloats(given, own)
    kept = [d for _, d in given if module.keepsDtype or module.views or d.kind == "f"]
    found = promoted([own, *kept])
    return found if count == 1 else [found] * count
