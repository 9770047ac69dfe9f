"""Proposals: a map of names by order, shapes and similarity of names, to be checked by the user.

It is never used for loading, because square matrices, two layers of one size and swapped branches look alike.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from puregraph.graph import Graph
from puregraph.serialize.weights.namemap import NameMap, dotted
from puregraph.serialize.weights.weightfile import StoredTensor, WeightFile

if TYPE_CHECKING:
    from typing import Any

NUMBER = re.compile(r"\d+")
HOLES = "ijklmn"
COMPARED_LAYERS = 12  # layers before and behind a position that are compared by name
# the cost of a skipped layer, relative to similarity of names; going back counts as 5 more layers
SKIP_COST, BACK_LAYERS = 0.25, 5


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
    numbers: dict[tuple[str, tuple[int, ...]], list[int]] = {}  # of layers that have an array of this suffix and shape
    for number, layer in enumerate(layers):
        for suffix in suffixes:
            if (array := weights.get(dotted(layer, suffix))) is not None:
                numbers.setdefault((suffix, tuple(array.shape)), []).append(number)
    pairs: list[tuple[str, str]] = []
    used: set[int] = set()
    position = 0
    for path, groups in wanted.items():
        (suffix, *_), (shape, *_) = groups[0]
        near = around(numbers.get((suffix, tuple(shape)), []), position)
        fitting = [n for n in near if n not in used and all(has(weights, layers[n], group) for group in groups)]
        if fitting:
            chosen = max(fitting, key=lambda n: likeness(layers[n], path, n - position))
            pairs.append((layers[chosen], path))
            used.add(chosen)
            position = chosen + 1
    return NameMap(merged([(layer, path) for layer, path in pairs if layer != path]), layoutOf(weights))


Wanted = tuple[tuple[str, ...], list[tuple[int, ...]]]


def layoutOf(weights: Mapping[str, object]) -> str:
    """The layout of a file: Keras' for its formats, else PyTorch's."""
    return "keras" if isinstance(weights, WeightFile) and weights.format.startswith("keras") else "torch"


def fileLayers(weights: Mapping[str, object], suffixes: Iterable[str]) -> list[str]:
    """Return the names of layers in a file: names of arrays that end with a known suffix, without the suffix."""
    tails = [dotted("x", suffix)[1:] for suffix in suffixes]
    return list(dict.fromkeys(name.removesuffix(tail) for name in weights for tail in tails if name.endswith(tail)))


def graphLayers(graph: Graph, layout: str) -> dict[str, list[Wanted]]:
    """The layers of a graph by path: suffixes of their arrays in a file, and the shapes there."""
    shapes = {path: tuple(array.shape) for kind in ("params", "states") for path, array, _ in graph.stored(kind)}
    layers: dict[str, list[Wanted]] = {}
    ties = graph.ties
    for path, group in NameMap(layout=layout).groups(graph):
        paths = [f"{path}.{array}" for array in group.arrays]
        if all(path in ties for path in paths) or shapes[paths[0]] == ():
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


def around(numbers: list[int], position: int) -> list[int]:
    """The numbers nearest to a position, of a sorted list."""
    at = bisect_left(numbers, position)
    return numbers[max(at - COMPARED_LAYERS, 0) : at + COMPARED_LAYERS]


def likeness(layer: str, path: str, ahead: int) -> float:
    """Return a score of a pair: the similarity of names, less a cost of skipped layers."""
    alike = SequenceMatcher(None, layer, path, autojunk=False).ratio()
    return alike - SKIP_COST * (ahead if ahead >= 0 else BACK_LAYERS - ahead)


def merged(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Convert pairs of names to rows; pairs that differ only in numbers, by one offset, become a row with holes."""
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
