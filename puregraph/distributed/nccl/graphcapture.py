"""GraphCapture: a context in which all processes capture the same collectives into graphs, or none keeps one."""

from __future__ import annotations

import zlib
from types import TracebackType
from typing import Any

from puregraph.compile.gpu.runtime.capture import CAPTURING
from puregraph.core.errors import PuregraphError
from puregraph.distributed.nccl.agreedcall import BEGINS, ENDS, REFUSED, AgreedCall


class GraphCapture:
    """A context in which each process captures collectives of a NcclWorld; the world drops `holder` before it closes.

    NCCL requires that all processes capture the same calls. At the end they compare them; if one of them failed, with
    an exception or a reason in `why`, all call `holder.drop()` to drop the graph.

    `calls`  the captured calls
    `why`    the reason why there is no graph

    Raises    PuregraphError, on all processes, if they have captured different calls, or one does not capture
    """

    def __init__(self, world: Any, holder: Any):
        self.world, self.holder = world, holder
        self.calls: list[AgreedCall] = []
        self.why = ""

    def __enter__(self) -> GraphCapture:
        self.world.agree(BEGINS)
        CAPTURING.acquire()
        self.world.capture = self
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        world = self.world
        world.capture = None
        CAPTURING.release()
        if error is not None:
            self.why = f"{type(error).__name__}: {error}"
        number = REFUSED if self.why else zlib.crc32(repr(self.calls).encode())
        numbers = world.agree(ENDS, number)
        if REFUSED in numbers or set(numbers) != {number}:
            self.holder.drop()
        else:
            world.holders.add(self.holder)
        if REFUSED in numbers:
            self.why = self.why or f"rank {numbers.index(REFUSED)} could not capture"
        elif set(numbers) != {numbers[0]}:
            raise PuregraphError(self.difference(next(r for r in range(world.size) if numbers[r] != numbers[0])))

    def difference(self, other: int) -> str:
        """Describe the first captured call in which rank `other` and rank 0 differ. All processes call it."""
        texts = [
            data.decode().split("\n") for data in self.world.gather("\n".join(c.text() for c in self.calls).encode())
        ]
        one, two = next((a, b) for a, b in zip([*texts[0], "no more"], [*texts[other], "no more"]) if a != b)
        return (
            f"processes have captured different graphs, which would wait for ever: rank 0: {one}; rank {other}: {two}"
        )
