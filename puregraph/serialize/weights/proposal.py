"""Proposals: a map of names by order, shapes and likeness of names, for somebody to check.

Nothing is loaded by it: square matrices, two layers of one size and swapped branches look alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import Any

from puregraph.graph import Graph
from puregraph.serialize.weights.namemap import NameMap, dotted
from puregraph.serialize.weights.weightfile import StoredTensor, WeightFile

NUMBER = re.compile(r"\d+")
HOLES = "ijklmn"


def proposeNames(graph: Graph, weights: Mapping[str, Any]) -> NameMap:
    """A map that might load a file of PyTorch's layout: each layer of the graph with the most likely one of the file.

    Layers fit if the file has all their arrays in the shapes that the graph asks for. Of several that do, the one that
    follows the last pair in order is taken, unless another name is much more alike.

    >>> from puregraph.weights import proposeNames
    >>> net = Sequential(Linear(4, 8, name="fc1"), Relu(), Linear(8, 2, name="fc2"))
    >>> shapes = {"net.0.weight": (8, 4), "net.0.bias": (8,), "net.2.weight": (2, 8), "net.2.bias": (2,)}
    >>> print(proposeNames(net, {name: np.zeros(shape) for name, shape in shapes.items()}))
    NameMap(
        [
            ("net.0", "fc1"),
            ("net.2", "fc2"),
        ],
    )
    """
    wanted = graphLayers(graph, layoutOf(weights))
    suffixes = {suffix for groups in wanted.values() for group in groups for suffix in group[0]}
    layers = fileLayers(weights, suffixes)
    order = {layer: i for i, layer in enumerate(layers)}
    pairs: list[tuple[str, str]] = []
    position = 0
    for path, groups in wanted.items():
        fitting = [layer for layer in order if all(has(weights, layer, group) for group in groups)]
        if not fitting:
            continue
        chosen = max(fitting, key=lambda layer: likeness(layer, path, order[layer] - position, len(layers)))
        pairs.append((chosen, path))
        position = order.pop(chosen) + 1
    return NameMap(merged([(layer, path) for layer, path in pairs if layer != path]), layoutOf(weights))


Wanted = tuple[tuple[str, ...], list[tuple[int, ...]]]


def layoutOf(weights: Mapping[str, Any]) -> str:
    """The layout of a file: Keras' for its formats, else PyTorch's."""
    return "keras" if isinstance(weights, WeightFile) and weights.format.startswith("keras") else "torch"


def fileLayers(weights: Mapping[str, Any], suffixes: Iterable[str]) -> list[str]:
    """The names of layers in a file: of arrays whose names end as those of a layer do, without that end."""
    tails = [dotted("x", suffix)[1:] for suffix in suffixes]
    return list(dict.fromkeys(name.removesuffix(tail) for name in weights for tail in tails if name.endswith(tail)))


def graphLayers(graph: Graph, layout: str) -> dict[str, list[Wanted]]:
    """The layers of a graph by path: suffixes of their arrays in a file, and the shapes there."""
    shapes = {path: tuple(array.shape) for kind in ("params", "states") for path, array, _ in graph.stored(kind)}
    layers: dict[str, list[Wanted]] = {}
    for path, group in NameMap(layout=layout).groups(graph):
        paths = [f"{path}.{array}" for array in group.arrays]
        if all(path in graph.ties for path in paths) or shapes[paths[0]] == ():
            continue
        wanted = group.how.fileShapes([shapes[path] for path in paths], len(group.files))
        layers.setdefault(path, []).append((group.files, wanted))
    return layers


def has(weights: Mapping[str, Any], layer: str, group: Wanted) -> bool:
    """True if a layer of the file has a group's arrays in their shapes."""
    for suffix, shape in zip(*group):
        array: StoredTensor | None = weights.get(dotted(layer, suffix))
        if array is None or tuple(array.shape) != tuple(shape):
            return False
    return True


def likeness(layer: str, path: str, ahead: int, count: int) -> float:
    """A number that is larger for likelier pairs: by order first, by names where they are much more alike."""
    distance = ahead if ahead >= 0 else count - ahead
    return SequenceMatcher(None, layer, path, autojunk=False).ratio() - 4 * distance / max(count, 1)


def merged(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of names as rows: those that differ in numbers alone, by the same amount, as one with holes."""
    alike: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for layer, path in pairs:
        alike.setdefault((NUMBER.sub("#", layer), NUMBER.sub("#", path)), []).append((layer, path))
    rows: list[tuple[str, str]] = []
    for shapes, members in alike.items():
        row = withHoles(*shapes, members)
        rows += [row] if row else members
    return rows


def withHoles(layer: str, path: str, members: list[tuple[str, str]]) -> tuple[str, str] | None:
    """One row for several pairs, if the numbers of each differ by the same amounts."""
    numbers = [[list(map(int, NUMBER.findall(name))) for name in pair] for pair in members]
    count = layer.count("#")
    if len(members) < 2 or count != path.count("#") or count > len(HOLES):
        return None
    offsets = {tuple(b - a for a, b in zip(*pair)) for pair in numbers}
    if len(offsets) > 1:
        return None
    for hole, offset in zip(HOLES, offsets.pop()):
        layer = layer.replace("#", f"{{{hole}}}", 1)
        path = path.replace("#", f"{{{hole}{offset:+d}}}" if offset else f"{{{hole}}}", 1)
    return layer, path
