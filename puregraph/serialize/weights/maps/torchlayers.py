"""Layers of PyTorch: the arrays that each layer of torch.nn has in a state dict.

A torch.nn module and a graph whose nodes have the names of its layers need no more rows. torch.nn has the transposes of
our matrices, two biases in a recurrent layer that are added, and the same definition of running statistics: the
variance over n - 1, momentum as the share of the new batch, a counter of batches.

Source    the PyTorch reference, torch.nn
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from puregraph.graph import Graph
from puregraph.graph.module import Module
from puregraph.serialize.weights.namemap import ArrayGroup, NameMap
from puregraph.serialize.weights.transforms import Arrays, Shape, Transform, add, each, same, transpose

RANDOM: dict[str, str | None] = {"key": None, "count": None}
NORM: dict[str, str | None] = {"scale": "weight", "bias": "bias"}
LAYERS: dict[str, dict[str, str | None]] = {
    "Linear": {"W": "weight", "b": "bias"},
    "ConvNd": {"W": "weight", "b": "bias"},
    "DeconvNd": {"W": "weight", "b": "bias"},
    "Embedder": {"W": "weight"},
    "Position": {"W": "weight"},
    "BatchNorm": {**NORM, "mean": "running_mean", "var": "running_var", "count": "num_batches_tracked"},
    "LayerNorm": NORM,
    "GroupNorm": NORM,
    "RmsNorm": NORM,
    "Dropout": RANDOM,
    "Multinomial": RANDOM,
}
RECURRENT = ("RNN", "LSTM", "GRU")


def layout(module: Module) -> list[ArrayGroup]:
    """The arrays of a module as PyTorch stores them."""
    kinds = [cls.__name__ for cls in type(module).__mro__]
    if kinds[0] in RECURRENT:
        return recurrent(module)
    names = next((LAYERS[kind] for kind in kinds if kind in LAYERS), {})
    isTransposed = "Linear" in kinds and not vars(module).get("transpose")
    held = {**module.params, **module.states}
    return [
        ArrayGroup((array,), (name,) if name else (), transpose if isTransposed and array == "W" else same)
        for array, name in names.items()
        if array in held
    ]


def recurrent(module: Module) -> list[ArrayGroup]:
    """The arrays of a recurrent layer: of both directions if it has two."""
    sides = ("", "_reverse")[: vars(module)["sides"]]

    def files(*names: str) -> tuple[str, ...]:
        return tuple(f"{name}_{{l}}{side}" for side in sides for name in names)

    matrix = each(len(sides), transpose)
    groups = [ArrayGroup(("W",), files("weight_ih"), matrix), ArrayGroup(("U",), files("weight_hh"), matrix)]
    if "d" in module.params:
        groups.append(ArrayGroup(("b", "d"), files("bias_ih", "bias_hh"), each(len(sides), gruBiases)))
    elif "b" in module.params:
        groups.append(ArrayGroup(("b",), files("bias_ih", "bias_hh"), each(len(sides), add)))
    return groups


def gruShapes(shapes: list[Shape], count: int) -> list[Shape]:
    """Return the shapes of a GRU's two biases, which are both as long as b."""
    return [shapes[0]] * 2


def fromTwo(arrays: Arrays, shapes: list[Shape]) -> Arrays:
    """Convert the biases of x and of h to b and d: they are added except for the last third, where r multiplies d."""
    ofX, ofH = arrays
    cut = 2 * len(ofH) // 3
    return [np.concatenate([ofX[:cut] + ofH[:cut], ofX[cut:]]), ofH[cut:]]


def toTwo(arrays: Arrays, count: int) -> Arrays:
    """Convert b and d to the two biases."""
    b, d = arrays
    return [b, np.concatenate([np.zeros_like(b[: len(b) - len(d)]), d])]


gruBiases = Transform("gruBiases", gruShapes, fromTwo, toTwo)

ATTENTION = [  # torch.nn.MultiheadAttention is `MultiHeadAttention`
    ("*.in_proj_weight", "*.qkv.W"),
    ("*.in_proj_bias", "*.qkv.b"),
    ("*.out_proj", "*.out"),
]


def projections(graph: Graph) -> Iterator[tuple[Any, Any]]:
    """Yield the rows of each `MultiHeadAttention` of a graph that has several Linear layers for q, k and v."""
    params = graph.params
    for step in graph.steps().items:
        path = step.path.removesuffix("attention")
        if type(step.module).__name__ == "Attention" and f"{path}q.W" in params:
            parts = ("q", "kv") if f"{path}kv.W" in params else ("q", "k", "v")
            paths = [f"{path}{part}" for part in parts]
            if not {f"{p}.W" for p in paths} <= set(params):
                continue
            if len({params[f"{p}.W"].shape[0] for p in paths}) == 1:
                yield f"{path}in_proj_weight", tuple(f"{p}.W" for p in paths)
            elif "kv" in parts:
                yield f"{path}q_proj_weight", f"{path}q.W"
                yield (f"{path}k_proj_weight", f"{path}v_proj_weight"), f"{path}kv.W"
            else:
                yield from ((f"{path}{part}_proj_weight", f"{path}{part}.W") for part in parts)
            yield f"{path}in_proj_bias", tuple(f"{p}.b" for p in paths)


def layer(theirs: str, ours: str) -> list[tuple[Any, Any]]:
    """The rows of a TransformerEncoderLayer or TransformerDecoderLayer of torch.nn, which are `ours` here."""
    return [
        (f"{theirs}self_attn.in_proj_weight", f"{ours}attn.qkv.W"),
        (f"{theirs}self_attn.in_proj_bias", f"{ours}attn.qkv.b"),
        (f"{theirs}self_attn.out_proj", f"{ours}attn.out"),
        (f"{theirs}multihead_attn.in_proj_weight", (f"{ours}cross.q.W", f"{ours}cross.kv.W")),
        (f"{theirs}multihead_attn.in_proj_bias", (f"{ours}cross.q.b", f"{ours}cross.kv.b")),
        (f"{theirs}multihead_attn.out_proj", f"{ours}cross.out"),
        (f"{theirs}linear{{k}}", f"{ours}mlp.fc{{k}}"),
        (f"{theirs}norm{{k}}", f"{ours}norm{{k}}"),
    ]


STACK = layer("*.layers.{i}.", "*.block{i+1}.")  # TransformerEncoder, TransformerDecoder, Transformer
LEVELS = [("*.l{i}", "*.l{i}")]  # RecurrentLayers
BARE = [(".l{i}", "l{i}")]  # a RecurrentLayers that is the graph itself: names have no prefix


def projected() -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a `RecurrentLayers` with a projection, whose weights are those of Linear layers."""
    for side, end in (("", ""), ("_reverse", "Reverse")):
        level = f"l{{i}}{side}"
        yield (f"*.bias_ih_{level}", f"*.bias_hh_{level}"), f"*.l{{i}}.W{end}.b", add
        weights = {"weight_ih": f"W{end}", "weight_hh": f"scan{end}.body.U", "weight_hr": f"scan{end}.body.P"}
        yield from ((f"*.{theirs}_{level}", f"*.l{{i}}.{path}.W") for theirs, path in weights.items())


PROJECTED = [*projected()]


def mapFor(graph: Graph) -> NameMap:
    """The map of a torch.nn module whose layers have the names of the graph's nodes, or of a transformer or a layer."""
    isLayer = {"attn.out.W", "mlp.fc1.W"} <= set(graph.params)
    isRecurrent = all(path[0] == "l" and path.split(".")[0][1:].isdigit() for path in graph.params)
    levels = [*PROJECTED, *(BARE if isRecurrent else ()), *LEVELS]
    return NameMap([*STACK, *levels, *(layer("", "") if isLayer else ()), *projections(graph), *ATTENTION])
