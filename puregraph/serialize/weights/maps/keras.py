"""Layers of Keras: the arrays that each layer has, in the names of `.h5` (dense/kernel) and `.weights.h5` (vars/0).

A kernel has its channels last: (h, w, in, out) for a convolution. A Dense behind a Flatten reads pixels before
channels, which `flattened(h, w, channels)` changes. Gates of a GRU are in the order z, r, h; it fits ours with
reset_after=True, the default. BatchNorm and LayerNorm have an epsilon of 1e-3 by default, ours 1e-5: give ours 1e-3.

Source    the Keras reference, keras.layers: build methods and their order of variables
"""

from __future__ import annotations

from math import prod

import numpy as np

from puregraph.core.errors import CheckpointError, show
from puregraph.graph import Graph
from puregraph.graph.module import Module
from puregraph.serialize.weights.namemap import ArrayGroup, NameMap
from puregraph.serialize.weights.transforms import Arrays, Shape, Transform, each, gates, permute, same, single

NORM = {"scale": "gamma", "bias": "beta"}
LAYERS: dict[str, dict[str, str]] = {  # in the order of variables
    "Linear": {"W": "kernel", "b": "bias"},
    "ConvNd": {"W": "kernel", "b": "bias"},
    "DeconvNd": {"W": "kernel", "b": "bias"},
    "Embedder": {"W": "embeddings"},
    "BatchNorm": {**NORM, "mean": "moving_mean", "var": "moving_variance"},
    "LayerNorm": NORM,
    "GroupNorm": NORM,
    "RmsNorm": {"scale": "scale"},
}
COUNTERS = ("key", "count")
CELLS = {"LSTM": ("lstm", "lstm_cell"), "GRU": ("gru", "gru_cell"), "RNN": ("simple_rnn", "simple_rnn_cell")}


def layout(module: Module) -> list[ArrayGroup]:
    """The arrays of a module as Keras stores them."""
    kinds = [cls.__name__ for cls in type(module).__mro__]
    if kinds[0] in CELLS:
        return recurrent(module, *CELLS[kinds[0]])
    names = next((LAYERS[kind] for kind in kinds if kind in LAYERS), {})
    held = {**module.params, **module.states}
    present = [(array, name) for array, name in names.items() if array in held]
    groups = [
        ArrayGroup((array,), (f"/{name}",), kernel(module, kinds) if array == "W" else same, ((f"/vars/{i}",),))
        for i, (array, name) in enumerate(present)
    ]
    return groups + [ArrayGroup((array,), ()) for array in COUNTERS if array in held]


def kernel(module: Module, kinds: list[str]) -> Transform:
    """Return the transform of a kernel to channels first."""
    axes = len(module.params["W"].shape)
    if "Linear" in kinds:
        return permute(1, 0) if vars(module).get("transpose") else same
    if "Embedder" in kinds:
        return same
    isDepthwise = "ConvNd" in kinds and module.params["W"].shape[1] == 1 and vars(module).get("groups", 1) > 1
    if isDepthwise:
        return depthwise(vars(module)["groups"])
    return permute(axes - 1, axes - 2, *range(axes - 2))


def depthwise(groups: int) -> Transform:
    """Transform (h, w, in, multiplier) to (in * multiplier, 1, h, w)."""

    def shape(s: Shape) -> Shape:
        return (*s[2:], groups, s[0] // groups)

    def forward(a: np.ndarray) -> np.ndarray:
        n = a.ndim
        return a.transpose(n - 2, n - 1, *range(n - 2)).reshape(-1, 1, *a.shape[:-2])

    def back(a: np.ndarray) -> np.ndarray:
        n = a.ndim
        return a.reshape(groups, -1, *a.shape[2:]).transpose(*range(2, n), 0, 1)

    return single(f"depthwise({groups})", shape, forward, back)


def flattened(*sizes: int) -> Transform:
    """The kernel of a Dense behind a Flatten of (h, w, channels), for inputs that are flattened as (channels, h, w).

    >>> puregraph.weights.flattened(1, 2, 2).toGraph([np.arange(4)[:, None]], [(4, 1)])[0].ravel()
    array([0, 2, 1, 3])
    """
    *space, maps = sizes
    n = len(space)

    def shape(s: Shape) -> Shape:
        if s[0] != prod(sizes):
            raise CheckpointError(f"{show(s)} has not {prod(sizes)} rows, the elements of {show(sizes)}")
        return s

    def forward(a: np.ndarray) -> np.ndarray:
        return np.moveaxis(a.reshape(*sizes, -1), n, 0).reshape(a.shape)

    def back(a: np.ndarray) -> np.ndarray:
        return np.moveaxis(a.reshape(maps, *space, -1), 0, n).reshape(a.shape)

    return single(f"flattened{sizes}", shape, forward, back)


def recurrent(module: Module, name: str, cell: str) -> list[ArrayGroup]:
    """Return the arrays of a recurrent layer, of both directions if it is Bidirectional."""
    count = vars(module)["sides"]
    cells = [("", f"/{cell}", "/cell")]
    if count == 2:
        cells = [(f"/{side}_{name}", f"/{side}_{name}/{cell}", f"/{side}_layer/cell") for side in DIRECTIONS]
    isGru = "d" in module.params
    ordered = gates(1, 0, 2) if isGru else same
    biases: tuple[tuple[str, ...], Transform] = (("b", "d"), gruBias) if isGru else (("b",), same)
    rows: list[tuple[tuple[str, ...], str, Transform]]
    rows = [(("W",), "kernel", ordered), (("U",), "recurrent_kernel", ordered)]
    rows += [(biases[0], "bias", biases[1])] if "b" in module.params else []
    groups = []
    for i, (arrays, variable, how) in enumerate(rows):
        old, new, stored = (tuple(side[k] for side in cells) for k in range(3))
        names = [tuple(f"{prefix}/{variable}" for prefix in side) for side in (old, new)]
        groups.append(
            ArrayGroup(arrays, names[0], each(count, how), (names[1], tuple(f"{p}/vars/{i}" for p in stored)))
        )
    return groups


DIRECTIONS = ("forward", "backward")


def biasRows(shapes: list[Shape], count: int) -> list[Shape]:
    """Return the shape of the two rows of biases, of x and of h."""
    return [(2, *shapes[0])]


def fromRows(arrays: Arrays, shapes: list[Shape]) -> Arrays:
    """Convert the two rows of biases, with gates in the order z, r, h, to b and d."""
    (rows,) = gates(1, 0, 2).toGraph(arrays, shapes)
    ofX, ofH = rows
    cut = 2 * len(ofH) // 3
    return [np.concatenate([ofX[:cut] + ofH[:cut], ofX[cut:]]), ofH[cut:]]


def toRows(arrays: Arrays, count: int) -> Arrays:
    """Convert b and d to the two rows of biases."""
    b, d = arrays
    rows = np.stack([b, np.concatenate([np.zeros_like(b[: len(b) - len(d)]), d])])
    return gates(1, 0, 2).toFile([rows], 1)


gruBias = Transform("gruBias", biasRows, fromRows, toRows)


def mapFor(graph: Graph) -> NameMap:
    """The map of a Keras model whose layers have the names of the graph's nodes."""
    return NameMap(layout="keras", optional="layers/")
