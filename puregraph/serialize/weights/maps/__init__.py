"""Ready maps: the names that other programs give the layers of known networks."""

from __future__ import annotations

from importlib import import_module

from puregraph.core.errors import ArgumentError
from puregraph.graph import Graph
from puregraph.serialize.weights.namemap import NameMap

READY = ("torch", "torchvision", "huggingface", "keras")
FILES = {"torch": "torchlayers"}


def readyMap(name: str, graph: Graph) -> NameMap:
    """The ready map of a name for a graph.

    Raises    ArgumentError for another name, or a graph that the map does not know

    >>> from puregraph.weights import readyMap
    >>> from puregraph.models import resnet18
    >>> readyMap("torchvision", resnet18()).rows[0]
    ("conv1", "conv")
    """
    if name not in READY:
        raise ArgumentError(
            f"names: wanted a NameMap, a dict or one of {', '.join(map(repr, READY))}, got {name!r:.60}"
        )
    made: NameMap = import_module(f"{__name__}.{FILES.get(name, name)}").mapFor(graph)
    return made
