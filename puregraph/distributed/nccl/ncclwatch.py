"""NcclWatch: a watchdog for exchanges between GPUs, which may hang in a captured graph, unseen by the host."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from puregraph.core.errors import PuregraphError
from puregraph.distributed.launch.watch import CODE, Report, Watch
from puregraph.distributed.worlds.world import LASTWORDS


class NcclWatch(Watch):
    """A Watch for the running exchanges of a NcclWorld.

    It ends the run if NCCL reports a lost process, or if one is late for longer than the patience. It aborts the
    communicator first: otherwise a process could not exit while its GPU waits in a collective.
    """

    world: Any

    def own(self) -> Report:
        """Return the report of this process."""
        world = self.world
        since = world.progress.since()
        try:
            world.checkHealth()
        except PuregraphError as error:
            self.lose(str(error))
        label = ", ".join(filter(None, ("on the GPU", world.label)))
        return Report(world.progress.done, since is not None, label, time.monotonic())

    def lose(self, why: str) -> None:
        """End all processes, because one is lost."""
        world = self.world
        text = f"puregraph: rank {world.rank} of {world.size} has ended the run: {why}"
        if world.isFirst(LASTWORDS, text) and not world.hasLauncher:
            world.say(text)
        with suppress(Exception):
            world.abort(CODE)
