"""RecurrentWriters: RNN, GRU and LSTM, layers and cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph import modules
from puregraph.core.device import toHost
from puregraph.modules.recurrent import MODES, _Recurrent
from puregraph.modules.recurrentcells import CONSTANTS, ORDERS, PLAIN, RecurrentCells
from puregraph.onnx.onnxwriter import OnnxStep, kindOf, writesOnnx

TIMEFIRST = [1, 0, 2]


@writesOnnx(_Recurrent)
def layer(step: OnnxStep) -> None:
    """Time steps and directions come first in ONNX, samples in puregraph; the main node has the name of the layer."""
    module, sides, hsize = step.module, step.module.sides, step.module.hsize
    kind = next(c.__name__ for c in (modules.RNN, modules.GRU, modules.LSTM) if isinstance(module, c))
    inputs = dict(zip(module.arguments, step.inputs))
    states = [inputs.get(f"{name}0") for name in module.cell]
    firsts = [
        s and step.op("Transpose", step.op("Reshape", s, step.whole(0, sides, hsize)), perm=TIMEFIRST) for s in states
    ]
    options: dict[str, Any] = {"hidden_size": hsize, "direction": "bidirectional" if sides == 2 else None}
    if kind == "GRU":
        options["linear_before_reset"] = 1
    if kind == "RNN" and module.step is MODES["relu"][0]:
        options["activations"] = ["Relu"] * sides
    arrays = (
        step.inForm("W", "rows", lambda array: rowsOf(array, sides, kind)),
        step.inForm("U", "rows", lambda array: rowsOf(array, sides, kind)),
        None if module.b is None else step.inForm("b", "both", lambda array: biases(module, array, kind)),
    )
    x = step.op("Transpose", step.x, perm=TIMEFIRST)
    names = [step.fresh(name) if name in module.chosen else "" for name in ("y", *module.cell)]
    step.op(kind, x, *arrays, whole32(step, inputs.get("lengths")), *firsts, out=names, name=step.path, **options)
    for made, name in zip(names, ("y", *module.cell)):
        if made:
            isY = name == "y"
            rows = step.op("Transpose", made, perm=[2, 0, 1, 3] if isY else TIMEFIRST)
            out = step.outputs[module.chosen.index(name)]
            sizes = step.whole(*[0] * (2 if isY else 1), sides * hsize)
            step.op("Reshape", rows, sizes, out=out, name=f"{step.path}:{name}:reshape")


def rowsOf(array: Any, sides: int, kind: str) -> Any:
    """Weights (..., directions gates hsize) in ONNX's layout: directions first, gates in its order, as rows."""
    order = ORDERS[kind]
    rows = array.T.reshape(sides, len(order), -1, *array.shape[:-1])[:, np.argsort(order)]
    return np.ascontiguousarray(rows.reshape(sides, -1, *array.shape[:-1]))


def biases(module: Any, array: Any, kind: str) -> Any:
    """Input and recurrent biases; the recurrent one is zero except for GRU."""
    wide = rowsOf(array, module.sides, kind)
    recurrentBias = np.zeros_like(wide)
    if kind == "GRU":
        recurrentBias[:, 2 * module.hsize :] = toHost(module.d.materialize()).reshape(module.sides, -1)
    return np.concatenate([wide, recurrentBias], axis=1)


def whole32(step: OnnxStep, lengths: str | None) -> str | None:
    """Lengths as int32."""
    inDtype = lengths and step.indtypes[step.inputs.index(lengths)]
    return (
        lengths if lengths is None or inDtype == np.int32 else step.op("Cast", lengths, to=kindOf(np.dtype(np.int32)))
    )


@writesOnnx(RecurrentCells)
def cells(step: OnnxStep) -> None:
    """A recurrent operator of one direction, with all options."""
    module, (x, *others) = step.module, step.inputs
    others += [None] * (7 - len(others))
    W, R, B, lengths, *states = others
    rows = [v and step.op("Unsqueeze", v, step.whole(0)) for v in (W, R, B, *states)]
    options: dict[str, Any] = {
        "hidden_size": module.hsize,
        "direction": "reverse" if module.isReversed else None,
        "clip": module.clip or None,
        "linear_before_reset": int(module.isLinearFirst) or None,
        "input_forget": int(module.isCoupled) or None,
    }
    if tuple(name for name, _, _ in module.activations) != PLAIN[module.kind]:
        used = [(CONSTANTS.get(name, (None, None)), alpha, beta) for name, alpha, beta in module.activations]
        options["activations"] = [name for name, _, _ in module.activations]
        options["activation_alpha"] = [alpha for known, alpha, _ in used if known[0] is not None] or None
        options["activation_beta"] = [beta for known, _, beta in used if known[1] is not None] or None
    names = [step.fresh(name) for name in module.outputNames]
    firsts = rows[3:] if module.kind == "LSTM" else rows[3:4]
    step.op(module.kind, x, *rows[:3], whole32(step, lengths), *firsts, out=names, name=step.path, **options)
    for made, name, out in zip(names, module.outputNames, step.outputs):
        step.op("Squeeze", made, step.whole(int(name == "y")), out=out, name=f"{step.path}:{name}:squeeze")
