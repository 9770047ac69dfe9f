"""NcclChoice: whether several processes exchange what is on their GPUs by NCCL, which all of them decide alike."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Any

from puregraph import device
from puregraph.cuda.libraries.nccl import missing, ncclModule, release
from puregraph.many.current import CURRENT, world
from puregraph.many.mpiworld import MpiWorld
from puregraph.many.nccl.ncclworld import NcclWorld

CPU = "cpu"


def chooseNccl(say: Callable[[str], Any]) -> None:
    """Have `world()` use NCCL from now on, if each process has a GPU of its own and NCCL; `say` says so, or why not.

    All processes call it; for processes on the CPU it does nothing.
    """
    here = world()
    if here.size == 1 or not isinstance(here, MpiWorld) or here.hasChosen:
        return
    here.hasChosen = True
    found = [data.decode() for data in here.gather(readiness(here).encode())]
    if set(found) == {CPU}:
        return
    why = obstacle(found)
    if why:
        say(f"{here.size} processes exchange gradients by MPI, through the host: {why}")
        return
    CURRENT[:] = [NcclWorld(here)]
    say(f"{here.size} processes exchange gradients by NCCL {release(ncclModule().get_version())}, from GPU to GPU")


def readiness(here: MpiWorld) -> str:
    """What this process has: "gpu" and which one; "cpu"; or why there is no NCCL."""
    if device.name() == CPU:
        return CPU
    if here.survives:
        return "NCCL does not go on when a process is lost, as --ulfm wants it"
    gpu = sys.modules["cupy"].cuda.Device().pci_bus_id
    return missing() or f"gpu {gpu} of {platform.node()}"


def obstacle(found: list[str]) -> str:
    """Why these processes cannot use NCCL; empty if they can."""
    for rank, each in enumerate(found):
        if each == CPU:
            return f"rank {rank} computes on the CPU"
        if not each.startswith("gpu "):
            return f"rank {rank}: {each}"
        if each in found[:rank]:
            return f"rank {found.index(each)} and rank {rank} have the same {each}"
    return ""
