"""Modes: set the mode of modules temporarily."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from puregraph.core.base.mutex import Mutex
from puregraph.core.errors import DataError
from puregraph.graph import Graph
from puregraph.graph.module import Module


class Holders(Mutex):
    """The threads that hold modules in a temporary mode.

    `before`  by the id of a module, its original mode, and the (thread, mode) of each holder
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, tuple[bool, list[tuple[int, bool]]]] = {}

    def enter(self, module: Module, train: bool, before: bool) -> None:
        """Record that this thread holds a module in a mode."""
        thread = threading.get_ident()
        _, holders = self.before.setdefault(id(module), (before, []))
        holders.append((thread, train))

    def leave(self, module: Module, train: bool, before: bool) -> None:
        """End a thread's hold: the module returns to its mode, unless another thread holds it."""
        thread = threading.get_ident()
        first, holders = self.before.get(id(module), (before, []))
        if (thread, train) in holders:
            holders.remove((thread, train))
        if not holders:
            self.before.pop(id(module), None)
            restore(module, first)
        elif all(who == thread for who, _ in holders):
            restore(module, before)

    def check(self, modules: list[Module], train: bool) -> None:
        """Check that no other thread holds any of these modules in the other mode.

        Raises    DataError with a remedy
        """
        thread = threading.get_ident()
        for module in modules:
            _, holders = self.before.get(id(module), (train, []))
            if any(who != thread and mode is not train for who, mode in holders):
                name = module.title() if isinstance(module, Graph) else module.brief()
                mode, other = ("trainMode", "evalMode") if train else ("evalMode", "trainMode")
                raise DataError(
                    f"wanted {mode} for {name}, which another thread has in {other} just now; "
                    "give this one a network of its own: copy.deepcopy(net)"
                )

    def forget(self) -> None:
        """Forget the threads that a forked process does not have."""
        thread = threading.get_ident()
        kept = {key: (first, [h for h in holders if h[0] == thread]) for key, (first, holders) in self.before.items()}
        self.before = {key: entry for key, entry in kept.items() if entry[1]}


HOLDERS = Holders()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=HOLDERS.forget)


@contextmanager
def inMode(train: bool, *modules: Module) -> Iterator[None]:
    """Set the mode of modules inside `with inMode(False, net):`, and restore each module's own mode afterwards.

    Threads may share a mode; the last one restores the original modes.

    Raises    DataError if another thread has a module in the other mode
    """
    every, before = everyModule(modules), []
    try:
        with HOLDERS.lock:
            HOLDERS.check(every, train)
            for module in every:
                mode = module.thawedMode if module.isFrozen else module.isTraining  # the mode once unfrozen
                before.append((module, mode))
                HOLDERS.enter(module, train, mode)
        if any(module.isTraining is not train for module in every):
            for module in modules:
                _ = module.trainMode() if train else module.evalMode()
        yield
    finally:
        with HOLDERS.lock:
            for module, wasTrain in before:
                HOLDERS.leave(module, train, wasTrain)


def restore(module: Module, train: bool) -> None:
    """Set the mode of this module alone, because modules inside a graph have their own modes."""
    if (module.thawedMode if module.isFrozen else module.isTraining) is train:
        return  # setting a mode would make every compiled program check its dependencies
    if isinstance(module, Graph):
        vars(module)["isTraining"] = train
    else:
        module.setMode(train)


def leaveIn(train: bool, *modules: Module) -> None:
    """Inside a block of `inMode`, choose another mode for modules after the block."""
    with HOLDERS.lock:
        for module in everyModule(modules):
            _, holders = HOLDERS.before[id(module)]
            HOLDERS.before[id(module)] = train, holders


def everyModule(modules: tuple[Module, ...]) -> list[Module]:
    """Return these modules and all modules inside graphs among them, each once."""
    modulesById: dict[int, Any] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if id(module) not in modulesById:
            modulesById[id(module)] = module
            waiting += [node.module for node in module.nodes] if isinstance(module, Graph) else []
    return list(modulesById.values())
