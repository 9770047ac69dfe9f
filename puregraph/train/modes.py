"""Modes: train or evaluate for a while, and leave every module as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from puregraph.graph import Graph
from puregraph.module import Module


@contextmanager
def inMode(train: bool, *modules: Module) -> Iterator[None]:
    """`with inMode(False, net):` evaluates inside; afterwards, come what may, each module has its own mode again."""
    before = [(module, module.train) for module in everyModule(modules)]
    try:
        for module in modules:
            _ = module.trainMode() if train else module.evalMode()
        yield
    finally:
        for module, wasTrain in before:
            module.train = wasTrain


def everyModule(modules: Any) -> list[Any]:
    """These modules and all that are inside of graphs among them, each once."""
    found: dict[int, Any] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if id(module) not in found:
            found[id(module)] = module
            waiting += [node.module for node in module.nodes] if isinstance(module, Graph) else []
    return list(found.values())
