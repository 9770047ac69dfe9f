"""Current: the world of this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from puregraph.core.errors import PuregraphError
from puregraph.distributed.worlds.startedby import launcherSize
from puregraph.distributed.worlds.world import World

if TYPE_CHECKING:
    from puregraph.distributed.worlds.mpiworld import MpiWorld

ALONE = World()
CURRENT: list[World] = []


def world() -> World:
    """Return the processes that train together; `world().rank` is the number of this one.

    Raises    PuregraphError for one of several processes that were not started with `puregraph.distributed`
    """
    if CURRENT:
        return CURRENT[0]
    launcher = launcherSize()
    if launcher is not None and launcher[1] > 1:
        raise PuregraphError(
            f"this is one of {launcher[1]} processes ({launcher[0]}), which must be started with "
            f"`python -m puregraph.distributed SCRIPT.py` in place of `python SCRIPT.py`, or all "
            f"with `puregraph launch -n {launcher[1]} SCRIPT.py`: "
            "an exception in one of them would else leave the others waiting"
        )
    return ALONE


def join() -> MpiWorld:
    """Become one of the processes that a launcher has started."""
    from puregraph.distributed.worlds.survivingworld import (  # only where there are several
        ENABLED,
        MpiWorld,
        SurvivingWorld,
    )

    joined = SurvivingWorld() if os.environ.get(ENABLED) == "1" else MpiWorld()
    CURRENT[:] = [joined]
    return joined
