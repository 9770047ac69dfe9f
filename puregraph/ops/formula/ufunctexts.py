"""Ufuncs: numpy's elementwise functions as formulas, for derivatives and ONNX; numpy computes the values itself."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.ops.formula.formula import Formula
from puregraph.ops.formula.optable import TABLE

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction


def textsOf() -> dict[Any, str]:
    """The formula of every ufunc, and of other pointwise functions, in the variables a, b and c."""
    texts = {
        np.square: "square(a)",
        np.reciprocal: "reciprocal(a)",
        np.positive: "a",
        np.real: "a",
        np.fabs: "abs(a)",
        np.exp2: "2 ** a",
        np.float_power: "a ** b",
        np.logaddexp: "logaddexp(a, b)",
        np.logaddexp2: "logaddexp(a * log(2), b * log(2)) / log(2)",
        np.fmax: "where(isnan(a), b, where(isnan(b), a, maximum(a, b)))",
        np.fmin: "where(isnan(a), b, where(isnan(b), a, minimum(a, b)))",
        np.heaviside: "heaviside(a, b)",
        np.degrees: "a * (180 / pi)",
        np.rad2deg: "a * (180 / pi)",
        np.radians: "a * (pi / 180)",
        np.deg2rad: "a * (pi / 180)",
        np.sinc: "sinc(a)",
        np.where: "where(a, b, c)",
    }
    for name, row in TABLE.items():
        if isinstance(row.numpy, np.ufunc):
            infix = {"neg": "-a", "not": "not a", "pow": "a ** b"}.get(name, f"a {name} b")
            calls = f"{name}({', '.join('abc'[: row.numpy.nin])})"
            texts[row.numpy] = (
                calls if name.isidentifier() and name not in ("neg", "not", "pow", "and", "or") else infix
            )
    return texts


TEXTS = textsOf()


@cache
def ufuncFormula(function: ArrayFunction) -> Formula | None:
    """The formula of a function of numpy; None if it has none."""
    return Formula(TEXTS[function]) if function in TEXTS else None
