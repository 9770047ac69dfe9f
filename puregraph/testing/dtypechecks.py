"""Checks of a module's dtypes: results in 16 and 32 bits, and at extreme values."""

from __future__ import annotations

import copy
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.applied import asGrads
from puregraph.core.base.dtype import dtypeNamed, isFloating
from puregraph.core.errors import DtypeError
from puregraph.core.rules import gradientRule
from puregraph.graph.inference import hiddenTypes
from puregraph.graph.pointwise import Pointwise
from puregraph.testing.case import Case, expect, frozen

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

DTYPE_TOLERANCE = {
    "bfloat16": 5e-2,
    "float16": 2e-2,
    "float32": 1e-4,
}  # error against float64, relative to the largest value


@cache
def floatTypes() -> list[Any]:
    """The float dtypes to check; bfloat16 only if `ml_dtypes` is installed."""
    try:
        return [np.dtype("e"), dtypeNamed("bfloat16"), np.dtype("f"), np.dtype("d")]
    except DtypeError:
        return [np.dtype("e"), np.dtype("f"), np.dtype("d")]


def dtypeRule(case: Case) -> None:
    """For every input dtype, the dtype rule predicts the result's dtype, or raises a DtypeError."""
    module, count = case.module, len(case.inputs)
    for kind in [*map(np.dtype, np.typecodes["AllInteger"] + "?"), *floatTypes()] if module.isTraining else ():
        trial = copy.copy(case)
        trial.module = copy.deepcopy(module)
        if isFloating(kind):
            trial.module.calcMode(kind)
        isIndex = [name in module.indices for name in case.names[:count]]
        isIndex = [index or x.dtype.kind != "f" for index, x in zip(isIndex, case.inputs)]
        trial.inputs = [x if index else frozen(asKind(x, kind)) for x, index in zip(case.inputs, isIndex)]
        trial.states = {n: v.astype(getattr(trial.module, n).dtype) for n, v in case.states.items()}
        inputTypes = [x.dtype for x in trial.inputs]
        try:
            predicted = trial.module.dataTypeFrom(*inputTypes, *[None] * case.absent)
        except DtypeError as error:
            expect(not isFloating(kind), f"{case.label}: refuses {kind}: {error}")
            continue
        with np.errstate(all="ignore"):
            outputs = trial.run()
        predicted = [
            *(predicted if isinstance(predicted, list) else [predicted]),
            *hiddenTypes(trial.module, [*inputTypes, *[None] * case.absent]),
        ]
        for name, said, y in zip((*module.outputNames, *module.hidden), predicted, outputs, strict=True):
            gave = getattr(y, "dtype", None)
            expect(
                said is None or said == gave,
                f"{case.label}: of {kind}, its dtype rule says {said} for '{name}', updateData gave {gave}",
            )


def asKind(x: AnyArray, kind: object) -> AnyArray:
    """A sample in another dtype; for dtypes other than floats, converted to integers from 0 to 7."""
    return x.astype(kind) if isFloating(kind) else (np.abs(np.nan_to_num(x)) * 2 % 8).astype(kind)


def dtypes(case: Case) -> None:
    """In float32, float16 and bfloat16 the results keep the dtype and approximate the float64 results."""
    for dtype in floatTypes()[:-1]:
        trial = copy.copy(case)
        trial.module = copy.deepcopy(case.module)
        trial.module.calcMode(dtype)
        trial.inputs = [frozen(x.astype(dtype)) if x.dtype.kind == "f" else x for x in case.inputs]
        trial.states = {n: v.astype(getattr(trial.module, n).dtype) for n, v in case.states.items()}
        outputs = trial.run()
        reference = inDouble(trial, case.states)
        made = reference.run()
        wanted = (*reference.visible(made), *(reference.gradients(made)[i] for i in case.floats))
        said = trial.module.dataTypeFrom(*[x.dtype for x in trial.inputs], *[None] * trial.absent)
        kinds = [*(said if isinstance(said, list) else [said]), *[dtype] * len(case.floats)]
        got = (*trial.visible(outputs), *(trial.gradients(outputs)[i] for i in case.floats))
        names = [*case.module.outputNames, *(f"gradient of {case.names[i]}" for i in case.floats)]
        for name, kind, a, b in zip(names, kinds, got, wanted, strict=True):
            if b.dtype.kind != "f":
                continue
            expect(a.dtype == (kind or dtype), f"{case.label}: in {dtype} the {name} comes out as {a.dtype}")
            scale = max(1.0, float(np.max(np.abs(b), initial=0.0)))
            error = float(np.max(np.abs(a.astype(np.float64) - b), initial=0.0)) / scale
            expect(
                error <= DTYPE_TOLERANCE[dtype.name],
                f"{case.label}: in {dtype} the {name} is off by {error:.2g} of its largest value",
            )


def inDouble(case: Case, states: dict[str, Any]) -> Case:
    """The case in float64 with its data as rounded: rounding can make elements equal, or move them across a kink."""
    double = copy.copy(case)
    double.module = copy.deepcopy(case.module).calcMode(np.float64)
    double.inputs = [frozen(x.astype(np.float64)) if isFloating(x.dtype) else x for x in case.inputs]
    double.states = states
    return double


def extremes(case: Case) -> None:
    """A pointwise module is finite and correct at 0, +-1e-3, +-88 and +-1e4 in float32, forward and backward."""
    if not isinstance(case.module, Pointwise) or len(case.inputs) != 1 or case.module.isDiscrete:
        return
    points = np.array([0.0, 1e-3, -1e-3, 1.0, -1.0, 20.0, -20.0, 88.0, -88.0, 1e4, -1e4])
    results = []
    for dtype in (np.float64, np.float32):
        module = copy.deepcopy(case.module).calcMode(dtype)
        x = points.astype(dtype)
        if module.ruleValues():
            return
        y = module.updateData(x)
        (d,) = asGrads(gradientRule(module, (True,))(np.ones_like(x), x, y), 1, case.label)
        results.append((y, d))
    for a, b, what in zip(results[1], results[0], ("value", "derivative"), strict=True):
        with np.errstate(over="ignore"):  # overflow of float32 is not a fault
            limit = b.astype(np.float32)
        bad = [
            float(p)
            for p, u, v in zip(points, a, limit, strict=True)
            if np.isfinite(v) and not abs(u - v) <= 1e-5 * max(1e-3, abs(v))
        ]
        expect(not bad, f"{case.label}: its {what} in float32 is wrong at {bad}")
        expect(not np.isnan(b).any(), f"{case.label}: its {what} is NaN at {[float(p) for p in points[np.isnan(b)]]}")
