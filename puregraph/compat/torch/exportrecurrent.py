"""Exportrecurrent: recurrent layers of torch become modules with its weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.compat.torch.exportreader import ExportReader, NodeValue, aten
from puregraph.compat.torch.exportshapes import cat, reshaped
from puregraph.compat.torch.tensors import asArray
from puregraph.modules import GRU, LSTM, RNN, Transpose

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lstm": (LSTM, {}),
    "gru": (GRU, {}),
    "rnn_tanh": (RNN, {"mode": "tanh"}),
    "rnn_relu": (RNN, {"mode": "relu"}),
}


@aten(*(f"{name}.input" for name in KINDS))
def recurrent(
    r: ExportReader,
    x: Any,
    states: Any,
    weights: list[Any],
    hasBias: bool,
    layers: int,
    dropout: float,
    train: bool,
    isBoth: bool,
    isFirst: bool,
) -> list[NodeValue]:
    """Layers of cells, one upon the other; outputs are y, h and, of an LSTM, c."""
    states = states if isinstance(states, list) else [states]
    sides, width = 2 if isBoth else 1, 4 if hasBias else 2
    if any(isinstance(s, NodeValue) or bool(s.any()) for s in states):
        raise NotImplementedError("first states other than zeros")
    if len(weights) != layers * sides * width:
        raise NotImplementedError("a projection of the states")
    kind, options = KINDS[r.operation]
    options = {**options, "direction": "bi" if isBoth else "uni", "useBias": hasBias}
    hsize = weights[1].shape[1]
    y = x if isFirst else r.make(Transpose((1, 0, 2)), x)
    finals: list[list[NodeValue]] = [[] for _ in states]
    for layer in range(layers):
        parts = [weights[(layer * sides + side) * width :][:width] for side in range(sides)]
        module = kind(parts[0][0].shape[1], hsize, outputs=("y", "h", "c")[: 1 + len(states)], **options)
        r.fill(module, **cellWeights([[asArray(t) for t in part] for part in parts], kind is GRU))
        y, *ends = r.several(module, y, owner=f"{r.path}.{r.operation}")
        for final, end in zip(finals, ends):
            final.append(end)
    y = y if isFirst else r.make(Transpose((1, 0, 2)), y)
    return [y, *[stackedStates(r, final, sides, hsize) for final in finals]]


def cellWeights(parts: list[list[np.ndarray]], isGru: bool) -> dict[str, np.ndarray]:
    """The parameters of a layer from torch's, one list for each direction: transposed, and two biases summed."""
    weights = {name: np.concatenate([part[i].T for part in parts], 1) for i, name in enumerate("WU")}
    if len(parts[0]) == 2:
        return weights
    last = 2 * len(parts[0][2]) // 3 if isGru else None  # a GRU's second bias is separate in its last third
    biases = [np.concatenate([(part[2] + part[3])[:last], part[2][len(part[2][:last]) :]]) for part in parts]
    weights["b"] = np.concatenate(biases)
    if isGru:
        weights["d"] = np.concatenate([part[3][last:] for part in parts])
    return weights


def stackedStates(r: ExportReader, ends: list[NodeValue], sides: int, hsize: int) -> NodeValue:
    """The last states of all layers and directions, (layers directions, n, hsize)."""
    parts = [r.make(Transpose((1, 0, 2)), reshaped(r, end, (0, sides, hsize))) for end in ends]
    return parts[0] if len(parts) == 1 else cat(r, parts, 0)
