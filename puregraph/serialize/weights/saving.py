"""Saving: write the arrays of a graph to a weight file, under another program's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.core import device
from puregraph.core.errors import CheckpointError, quote
from puregraph.core.param import FixedState
from puregraph.graph import Graph
from puregraph.serialize.weights.loading import mapFrom
from puregraph.serialize.weights.namemap import Names
from puregraph.serialize.weights.writing import writeWeights

if TYPE_CHECKING:
    from typing import Any


def saveWeights(graph: Graph, path: Any, names: Names = None) -> None:
    """Write the parameters and states of a graph as `.safetensors` or `.npz`, by a map of names.

    An array that several modules share is written once. Constants, which are part of the network, are not written.

    Raises    CheckpointError if two arrays would have one name, or the file cannot be written
    """
    writeWeights(path, fileArrays(graph, names))


def fileArrays(graph: Graph, names: Names = None) -> dict[str, np.ndarray]:
    """The arrays of a graph by their names in a file, in the file's layout."""
    kept = {
        path: array for path, array in {**graph.params, **graph.states}.items() if not isinstance(array, FixedState)
    }
    arrays: dict[str, np.ndarray] = {}
    for link in mapFrom(names, graph).links(graph):
        if all(path in kept for path in link.paths):
            values = link.how.toFile([device.toHost(kept[path].values()) for path in link.paths], len(link.files))
            for name, array in zip(link.files, values, strict=True):
                if name in arrays:
                    raise CheckpointError(f"two arrays would be {quote(name)}; give them separate names in the map")
                arrays[name] = array
    return arrays
