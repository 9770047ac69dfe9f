"""Formulas as CUDA C: every function, in the emulator, against numpy; and through NVRTC."""

import numpy as np
import pytest
from launches import needsEmulator, runAll

from puregraph.ops.cuda.nests.formulatext import statement
from puregraph.ops.cuda.nests.launches import launches
from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand
from puregraph.ops.formula.optable import FUNCTIONS, TABLE

pytestmark = needsEmulator
FEW = 6  # functions of a kernel
PARTS = [sorted(FUNCTIONS)[i :: -(-len(FUNCTIONS) // FEW)] for i in range(-(-len(FUNCTIONS) // FEW))]
NUMBERS = [
    -np.inf,
    -1e4,
    -88.0,
    -3.5,
    -1.0,
    -0.5,
    -1e-3,
    -0.0,
    0.0,
    1e-3,
    0.25,
    0.5,
    1.0,
    2.5,
    7.0,
    88.0,
    1e4,
    np.inf,
    np.nan,
]


def call(name):
    """A function of as many names as it has arguments."""
    return Formula(f"{name}({', '.join('abc'[: len(TABLE[name].pulls)])})")


@pytest.mark.parametrize(
    ("names", "kind"), [*((names, "f32") for names in PARTS), (("exp", "maximum", "sigmoid", "tanh"), "f64")]
)
def test_every_function_is_what_numpy_makes_it(names, kind):
    dtype = {"f32": np.float32, "f64": np.float64}[kind]
    a = np.array(NUMBERS, dtype)
    arrays = {
        "a": np.repeat(a, 3),
        "b": np.tile(np.array([0.5, -2, 3], dtype), a.size),
        "c": np.full(3 * a.size, 1.5, dtype),
    }
    if "polygamma" in names or "ive" in names or "iv" in names:
        arrays["a"], arrays["b"] = np.tile(np.array([0, 1, 2], dtype), a.size), np.repeat(a, 3)
    outs = {name: np.zeros(3 * a.size, dtype) for name in names}
    lines = tuple((f"r_{name}", call(name)) for name in names)
    stores = {f"r_{name}": Operand(kind, outs[name], (1,)) for name in names}
    loads = {n: Operand(kind, x, (1,)) for n, x in arrays.items()}
    runAll(launches(LoopNest((3 * a.size,), loads, lines, stores, kind)))
    tolerance = 2e-5 if kind == "f32" else 1e-12
    for name in names:
        f = call(name)
        wanted = f(**{n: arrays[n] for n in f.names})
        np.testing.assert_allclose(outs[name], wanted, rtol=tolerance, atol=tolerance, err_msg=name)


def test_a_statement_declares_what_it_computes():
    assert statement(Formula("x * x + 0.5"), "y", "float") == "const float y = (((float)x * (float)x) + (float)0.5);"
    assert statement(Formula("exp(x) + exp(x)"), "y", "double") == (
        "double y; { const double t1 = exp((double)x); y = (t1 + t1); }"
    )
