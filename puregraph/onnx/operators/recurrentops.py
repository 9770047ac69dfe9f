"""RecurrentOps: RNN, GRU and LSTM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph import modules
from puregraph.modules.recurrentcells import CONSTANTS, GATES, ORDERS, PLAIN, RecurrentCells
from puregraph.modules.reshaping import Squeeze, Unsqueeze
from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode

LAYERS = {"RNN": modules.RNN, "GRU": modules.GRU, "LSTM": modules.LSTM}


@onnxOp(*GATES)
def recurrent(
    op: OnnxNode,
    x: OnnxValue,
    W: OnnxValue,
    R: OnnxValue,
    B: OnnxValue | None = None,
    lengths: OnnxValue | None = None,
    *states: OnnxValue | None,
) -> tuple[OnnxValue | None, ...]:
    """RNN, GRU or LSTM: one of our layers if it has these options, else cells for each direction."""
    first: list[Any] = [*states, None, None, None][:3]
    checkWeights(op, W, R, B, first[2])
    isSamplesFirst = bool(op.get("layout", 0))
    if isSamplesFirst:
        first[:2] = [s and op(modules.Transpose((1, 0, 2)), s) for s in first[:2]]
    run = layer if isLayer(op, W, R, B, first[2]) else cells
    if isSamplesFirst:
        x = op(modules.Transpose((1, 0, 2)), x)
    y, *last = run(op, x, W, R, B, lengths, *first)
    if isSamplesFirst:
        y = y and op(modules.Transpose((2, 0, 1, 3)), y)
        last = [s and op(modules.Transpose((1, 0, 2)), s) for s in last]
    return (y, *last)


def checkWeights(op: OnnxNode, W: OnnxValue, R: OnnxValue, B: OnnxValue | None, P: OnnxValue | None) -> None:
    """Check that weights have the shapes that the attributes say.

    Raises    GraphError naming the first that has another one
    """
    sides = 2 if op.choice("direction", "forward", "reverse", "bidirectional") == "bidirectional" else 1
    hsize, gates = op.get("hidden_size"), GATES[op.type]
    if hsize is None:
        op.refuse("its required attribute hidden_size is missing")
    shapes: dict[str, tuple] = {"W": (sides, gates * hsize, None), "R": (sides, gates * hsize, hsize)}
    shapes |= {"B": (sides, 2 * gates * hsize), "P": (sides, 3 * hsize)}
    for (name, wanted), value in zip(shapes.items(), (W, R, B, P)):
        shape = None if value is None else value.shape
        sizes = () if shape is None else [(n, m) for n, m in zip(shape, wanted) if m is not None and isinstance(n, int)]
        if shape is not None and (len(shape) != len(wanted) or any(n != m for n, m in sizes)):
            op.refuse(
                f"{name}: wanted {tuple('features' if n is None else n for n in wanted)} of hidden_size {hsize} and "
                f"{sides} directions, got {tuple(shape)}"
            )


def activationsOf(op: OnnxNode) -> list[tuple[str, float, float]]:
    """(name, alpha, beta) of every activation, for all directions."""
    count = 2 if op.get("direction", "forward") == "bidirectional" else 1
    names = op.get("activations") or [*PLAIN[op.type]] * count
    alphas, betas = iter(op.get("activation_alpha") or ()), iter(op.get("activation_beta") or ())
    known = {function.lower(): function for function in (*CONSTANTS, "Relu", "Tanh", "Sigmoid", "Softsign", "Softplus")}
    activations = []
    for name in names:
        name = known.get(name.lower(), name)
        alpha, beta = CONSTANTS.get(name, (None, None))
        alpha, beta = next(alphas, alpha) if alpha is not None else 0.0, next(betas, beta) if beta is not None else 0.0
        activations.append((name, alpha, beta))
    return activations


def isLayer(op: OnnxNode, W: OnnxValue, R: OnnxValue, B: OnnxValue | None, P: OnnxValue | None) -> bool:
    """True if one of our layers has these options, and the weights are arrays of the file."""
    names = {name for name, _, _ in activationsOf(op)}
    isUsual = names == set(PLAIN[op.type]) or op.type == "RNN" and names == {"Relu"}
    isUsual = isUsual and op.get("direction", "forward") != "reverse" and P is None
    isUsual = isUsual and not op.get("clip") and not op.get("input_forget", 0)
    ours = activationsOf(op)[: len(PLAIN[op.type])]
    isUsual = isUsual and (op.type == "RNN" or [name for name, _, _ in ours] == [*PLAIN[op.type]])
    if op.type == "GRU":
        isUsual = isUsual and bool(op.get("linear_before_reset", 0))
    return isUsual and all(v is None or v.array is not None and not v.isSplit for v in (W, R, B))


def layer(
    op: OnnxNode,
    x: OnnxValue,
    W: OnnxValue,
    R: OnnxValue,
    B: OnnxValue | None,
    lengths: OnnxValue | None,
    h0: OnnxValue | None,
    c0: OnnxValue | None,
    _: OnnxValue | None,
) -> list[OnnxValue | None]:
    """One of our layers, between transposes: its samples come first, and its directions last."""
    sides, width, insize = W.shape
    hsize = width // GATES[op.type]
    options = {"mode": activationsOf(op)[0][0].lower()} if op.type == "RNN" else {}
    known = ("y", "h", "c") if op.type == "LSTM" else ("y", "h")
    names = tuple(name for i, name in enumerate(known) if op.wants(i)) or ("y",)
    direction = "bi" if sides == 2 else "uni"
    module = LAYERS[op.type](insize, hsize, direction=direction, useBias=B is not None, outputs=names, **options)
    module = op.builder.fill(module, (W, R, B), **arraysOf(op, W, R, B))
    x = op.view(modules.Transpose((1, 0, 2)), x)
    h0, c0 = (None if s is None else merged(op, s, sides * hsize) for s in (h0, c0))
    made = op(module, x, *([h0, c0] if op.type == "LSTM" else [h0]), lengths)
    outputs = dict(zip(names, made if len(names) > 1 else [made]))
    op.builder.main = outputs[names[0]].edge and outputs[names[0]].edge[0]
    return [apart(op, outputs[name], sides, hsize, name == "y") if name in outputs else None for name in known]


def apart(op: OnnxNode, value: OnnxValue, sides: int, hsize: int, isY: bool) -> OnnxValue:
    """An output of our layer, (n, sides hsize) or (n, t, sides hsize), as (sides, n, hsize) or (t, sides, n, hsize)."""
    parts = op.view(modules.Reshape((0, 0, sides, hsize) if isY else (0, sides, hsize)), value)
    return op.view(modules.Transpose((1, 2, 0, 3) if isY else (1, 0, 2)), parts)


def arraysOf(op: OnnxNode, W: OnnxValue, R: OnnxValue, B: OnnxValue | None) -> dict[str, OnnxValue]:
    """The parameters of a layer of ours."""
    sides, width, _ = W.shape
    order, hsize = ORDERS[op.type], width // GATES[op.type]
    arrays = {"W": inOrder(W.array, order), "U": inOrder(R.array, order)}
    if B is not None:
        wide, recurrentBias = B.array.reshape(sides, 2, width).swapaxes(0, 1)
        if op.type == "GRU":
            recurrentBias = recurrentBias.copy()
            arrays["d"] = recurrentBias[:, 2 * hsize :].ravel().copy()
            recurrentBias[:, 2 * hsize :] = 0
        arrays["b"] = inOrder(wide + recurrentBias, order)
    return {name: OnnxValue.of(name, array, isWeight=W.isWeight) for name, array in arrays.items()}


def inOrder(array: np.ndarray, order: tuple) -> np.ndarray:
    """Weights (sides, gates hsize, ...) as in our layers: transposed, gates in our order, directions concatenated."""
    sides, width, *rest = array.shape
    gates = array.reshape(sides, len(order), width // len(order), *rest)[:, list(order)]
    flat = gates.reshape(sides * width, *rest)
    return np.ascontiguousarray(flat.T)


def merged(op: OnnxNode, state: OnnxValue, width: int) -> OnnxValue:
    """An initial state (sides, n, hsize) as our layers take it, (n, sides hsize)."""
    return op.view(modules.Reshape((-1, width)), op.view(modules.Transpose((1, 0, 2)), state))


def cells(
    op: OnnxNode,
    x: OnnxValue,
    W: OnnxValue,
    R: OnnxValue,
    B: OnnxValue | None,
    lengths: OnnxValue | None,
    *states: OnnxValue | None,
) -> list[OnnxValue]:
    """One node of RecurrentCells for each direction."""
    direction, functions = op.get("direction", "forward"), activationsOf(op)
    sides = 2 if direction == "bidirectional" else 1
    hsize = op.get("hidden_size") or R.shape[2]
    perSide = len(functions) // sides
    sideOutputs = []
    for i in range(sides):
        module = RecurrentCells(
            op.type,
            hsize,
            tuple(functions[i * perSide : (i + 1) * perSide]),
            float(op.get("clip", 0.0)),
            direction == "reverse" or i == 1,
            bool(op.get("linear_before_reset", 0)),
            bool(op.get("input_forget", 0)),
        )
        W1, R1, B1, *sideStates = (v and side(op, v, i, sides) for v in (W, R, B, *states))
        sideOutputs.append(op(module, x, W1, R1, B1, lengths, *sideStates))
    op.builder.main = sideOutputs[0][0].edge[0] if sides == 1 and sideOutputs[0][0].edge else None
    joined = []
    for index, parts in enumerate(zip(*sideOutputs)):
        axis = 1 if index == 0 else 0
        both = [op.view(Unsqueeze((axis,)), part) for part in parts]
        joined.append(op(modules.Concat(axis), *both) if sides == 2 else both[0])
    return joined


def side(op: OnnxNode, value: OnnxValue, i: int, sides: int) -> OnnxValue:
    """The part of a value that belongs to the i-th direction."""
    return op.view(Squeeze((0,)), value) if sides == 1 else op(modules.Slice(i), value)
