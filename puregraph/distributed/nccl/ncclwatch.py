"""NcclWatch: looks at what GPUs exchange, which may wait in a captured graph where no call of the host would see it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from puregraph.core.errors import PuregraphError
from puregraph.distributed.launch.watch import CODE, Report, Watch
from puregraph.distributed.worlds.world import LASTWORDS


class NcclWatch(Watch):
    """A Watch whose collectives are the exchanges that a NcclWorld has under way.

    It ends the run if NCCL says that a process is gone, or one is late for longer than the patience: it ends the
    communicator first, for a GPU that waits within a collective would else not let go of the process.
    """

    world: Any

    def own(self) -> Report:
        """The report of this process."""
        world = self.world
        since = world.progress.since()
        try:
            world.checkHealth()
        except PuregraphError as error:
            self.lose(str(error))
        label = ", ".join(filter(None, ("on the GPU", world.label)))
        return Report(world.progress.done, since is not None, label, time.monotonic())

    def lose(self, why: str) -> None:
        """End all processes: one is gone."""
        world = self.world
        text = f"puregraph: rank {world.rank} of {world.size} has ended the run: {why}"
        if world.isFirst(LASTWORDS, text) and not world.hasLauncher:
            world.say(text)
        with suppress(Exception):
            world.abort(CODE)
