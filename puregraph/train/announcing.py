"""Announcing: messages of a trainer about long compilations, and about missing native code."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from puregraph.core import device
from puregraph.core.base.environment import variable
from puregraph.core.errors import show
from puregraph.ops.native.llvm import jit

if TYPE_CHECKING:
    from typing import Any

    from puregraph.core.shape import Shape
    from puregraph.graph.graph import Graph
    from puregraph.graph.module import Module

SILENT_SECONDS = 1.0  # seconds of compilation before a message
SLOWER = "5 to 9"  # times: steps of mlp(784, (256,), 10) and lenet(), batches of 128, on two cores


class Announcement:
    """A context that prints a text if it lasts longer than `SILENT_SECONDS`: the program is then known not to hang."""

    def __init__(self, say: Callable[[str], object], text: str):
        self.timer = threading.Timer(SILENT_SECONDS, say, (text,))
        self.timer.daemon = True

    def __enter__(self) -> Announcement:
        self.timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.timer.cancel()
        self.timer.join()  # so that nothing is printed after the block


class NativeHint:
    """Prints once per process that steps run without native code on this CPU, and what to install."""

    def __init__(self) -> None:
        self.isSaid = False

    def __call__(self, say: Callable[[str], Any]) -> None:
        if self.isSaid or device.name() != "cpu" or not variable("NATIVE", True):
            return
        self.isSaid = True
        why = jit.missing()
        if why is not None:
            say(f"no native code: {why}; a step takes about {SLOWER} times as long without it")


NATIVE = NativeHint()


def compiling(net: Graph, cost: Module, say: Callable[[str], object], shapes: list[Shape]) -> Announcement:
    """Return the announcement of a step that is about to be compiled for arrays of these shapes."""
    what = "a pass" if cost is None else "a training step"
    data = show(tuple(shapes[0])) if shapes else "no data"
    return Announcement(say, f"compiling {what} of {net.title()}, {net.nodeCount()}, for data {data} ...")
