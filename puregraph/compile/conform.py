"""Conform: refuse inputs of the wrong number, type, shape or dtype; convert integers, or compile for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from puregraph.core.accumulate import needPlain
from puregraph.core.base.dtype import isFloating
from puregraph.core.errors import DataError, DtypeError, need, plural, show

if TYPE_CHECKING:
    from typing import Any

    from puregraph.compile.program import Program
    from puregraph.core.protocols import AnyArray


def conformed(program: Program, inputs: list[AnyArray]) -> list[AnyArray]:
    """The inputs in the dtypes of a program.

    Raises    DataError, ShapeError, DtypeError if the program was compiled for other inputs
    """
    wanted = [(s, d, f"input {i}") for i, (s, d) in enumerate(zip(program.shapes, program.dtypes))]
    if program.executable is not None:
        wanted = [(v.shape, v.dtype, f"'{v.name}'") for v in program.executable.schedule.inputs]
        if len(inputs) != len(wanted):
            raise DataError(f"{program!r}: wanted {plural(len(wanted), 'input')}, got {len(inputs)}")
    return [converted(program, x, *spec) for x, spec in zip(inputs, wanted)] + inputs[len(wanted) :]


def converted(program: Program, x: AnyArray, shape: Any, dtype: np.dtype, name: str) -> AnyArray:
    """One input, converted to its dtype."""
    if not hasattr(x, "dtype"):
        if program.executable is None:
            return x
        raise DataError(f"{program!r}: wanted an array for {name}, got {type(x).__name__}")
    needPlain(x, f"{program!r}, {name}")
    need(tuple(x.shape) == shape, f"{name} of shape {show(shape)}", tuple(x.shape), "compile for that shape as well")
    if isinstance(x, np.generic):
        x = np.asarray(x)
    if x.dtype == dtype:
        return x
    if isFloating(dtype) or x.dtype.kind not in "iub":
        isBool = x.dtype.kind == "b"
        hint = f"compile with dtypes of {x.dtype} for it" if isBool else f"convert with .astype('{dtype}')"
        raise DtypeError(f"{program!r}: wanted {dtype} for {name}, got {x.dtype}; {hint}")
    return x.astype(dtype)


def followFloats(program: Program, inputs: Sequence[AnyArray]) -> None:
    """Compile for the float dtypes of the inputs: a graph without parameters computes in these."""
    kept = [d if not isFloating(d) else getattr(x, "dtype", d) for x, d in zip(inputs, program.dtypes)]
    if kept != program.dtypes[: len(kept)]:
        program.build(kept)


def adaptIntegers(program: Program, inputs: Sequence[AnyArray]) -> None:
    """Compile for the integer and boolean dtypes of the inputs, if the rules take them without conversion."""
    dtypes = [getattr(x, "dtype", None) for x in inputs[: len(program.dtypes)]]
    if len(dtypes) == len(program.dtypes) and (program.executable or program.partitioned) is not None:
        wanted = program.graph.inputTypes(len(dtypes), dtypes)
        if wanted != program.dtypes:
            program.build(wanted)
