"""NcclChoice: the decision whether several processes exchange GPU arrays by NCCL, the same on all of them."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Any

from puregraph.core import device
from puregraph.distributed.nccl.ncclworld import NcclWorld
from puregraph.distributed.worlds.current import CURRENT, world
from puregraph.distributed.worlds.mpiworld import MpiWorld
from puregraph.ops.cuda.libraries.nccl import missing, ncclModule, release

CPU = "cpu"


def chooseNccl(say: Callable[[str], Any]) -> None:
    """Use NCCL in `world()` from now on, if every process has a GPU to itself and NCCL. `say` reports the choice.

    All processes call it; for processes on the CPU it does nothing.
    """
    here = world()
    if here.size == 1 or not isinstance(here, MpiWorld) or here.hasChosen:
        return
    here.hasChosen = True
    states = [data.decode() for data in here.gather(readiness(here).encode())]
    if set(states) == {CPU}:
        return
    why = obstacle(states)
    if why:
        say(f"{here.size} processes exchange gradients by MPI, through the host: {why}")
        return
    CURRENT[:] = [NcclWorld(here)]
    say(f"{here.size} processes exchange gradients by NCCL {release(ncclModule().get_version())}, from GPU to GPU")


def readiness(here: MpiWorld) -> str:
    """Return the state of this process: "gpu" and its bus id, "cpu", or the reason why NCCL is missing."""
    if device.name() == CPU:
        return CPU
    if here.survives:
        return "NCCL does not go on when a process is lost, as --ulfm wants it"
    gpu = sys.modules["cupy"].cuda.Device().pci_bus_id
    return missing() or f"gpu {gpu} of {platform.node()}"


def obstacle(states: list[str]) -> str:
    """Return the reason why these processes cannot use NCCL; empty if they can."""
    for rank, state in enumerate(states):
        if state == CPU:
            return f"rank {rank} computes on the CPU"
        if not state.startswith("gpu "):
            return f"rank {rank}: {state}"
        if state in states[:rank]:
            return f"rank {states.index(state)} and rank {rank} have the same {state}"
    return ""
