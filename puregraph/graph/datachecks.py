"""Datachecks: whether arrays fit a graph, and its results what the shape rules said."""

from __future__ import annotations

from typing import Any

from puregraph.core.accumulate import isArray, isValue, shapeOf
from puregraph.device import isDeviceArray
from puregraph.errors import DataError, DtypeError, PuregraphError, ShapeError, show
from puregraph.graph.inference import StepShapes
from puregraph.graph.steps import GraphStep, Steps


def keyOf(data: list[Any], title: str) -> tuple:
    """Shapes and dtypes of inputs of which some are no arrays.

    Raises    DataError for what is no value at all
    """
    wrong = [x for x in data if not isValue(x)]
    if wrong:
        raise DataError(f"{title}: wanted arrays, got {type(wrong[0]).__name__}: {wrong[0]!r:.80}") from None
    return tuple([(shapeOf(x), getattr(x, "dtype", type(x))) for x in data])


def checkInputTypes(data: list[Any], steps: Steps, rows: list[StepShapes], dtype: Any) -> None:
    """Inputs fit every shape rule, and have the dtype that the graph computes in.

    Raises    ShapeError or DtypeError naming the node
    """
    faults = [row.fault for row in rows if row.fault]
    if faults:
        raise ShapeError(*faults)
    for number, x in zip(steps.inputs, data, strict=True):
        if not isArray(x):
            continue
        if x.dtype.kind not in "fiub":
            raise DtypeError(f"at '{steps.producer[number]}': wanted numbers, got dtype {x.dtype}")
        if dtype is not None and x.dtype.kind == "f" and x.dtype != dtype:
            raise DtypeError(
                f"at '{steps.producer[number]}': the graph computes in {dtype}, got {x.dtype}; "
                f"convert the data with .astype('{dtype}'), or the graph with .calcMode(np.{x.dtype})"
            )
        reader = None if x.dtype.kind == "f" else floatReader(number, steps)
        if reader is not None:
            raise DtypeError(
                f"at '{reader.path}' ({reader.label}): wanted {dtype}, got {x.dtype}; "
                f"convert the data with .astype('{dtype}')"
            )


def floatReader(number: int, steps: Steps) -> GraphStep | None:
    """The first step that joins an input of the graph with parameters, and so needs their dtype; None if none does."""
    for step in steps.items:
        if number in step.args[: step.inputs] and step.module.params:
            names = step.module.arguments
            where = [names[min(i, len(names) - 1)] for i, n in enumerate(step.args[: step.inputs]) if n == number]
            if not set(where) <= set(step.module.indices):
                return step
    return None


def checkResults(rows: list[StepShapes], values: list[Any]) -> None:
    """The outputs of a pass have the shapes that the rules said."""
    for step, _, shapes, _ in rows:
        for number, shape in zip(step.visible, shapes or [], strict=True):
            value = values[number]
            if not isValue(value) or shapeOf(value) != shape:
                found = f"shape {show(shapeOf(value))}" if isArray(value) else type(value).__name__
                raise PuregraphError(
                    f"at '{step.path}' ({step.label}): dataShapeFrom says {show(shape)}, updateData gave {found}; "
                    "one of the two rules is wrong"
                )


def areMixed(arrays: list[Any]) -> bool:
    """Whether some arrays are on a GPU, and some on the host."""
    return len({isDeviceArray(x) for x in arrays if x is not None and hasattr(x, "dtype")}) > 1
