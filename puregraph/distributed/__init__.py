"""Distributed training: ranks, their launcher, and data, tensor and pipeline parallelism with equal bits."""

from importlib import import_module
from typing import Any

from puregraph.distributed.collectives.bucketedsum import BucketedSum
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import TreeSum
from puregraph.distributed.plan.clocks import Clocks
from puregraph.distributed.plan.cluster import Cluster
from puregraph.distributed.worlds.countingworld import Collective, CountingWorld, LinkSpeed
from puregraph.distributed.worlds.current import world
from puregraph.distributed.worlds.mesh import Axis, Mesh
from puregraph.distributed.worlds.world import Pending, World

__all__ = [
    "Axis",
    "BucketedSum",
    "Clocks",
    "Cluster",
    "Collective",
    "CountingWorld",
    "Grains",
    "LinkSpeed",
    "Mesh",
    "MpiGroup",
    "MpiPending",
    "MpiWorld",
    "NcclPending",
    "NcclWorld",
    "Pending",
    "Report",
    "Several",
    "Sharding",
    "TreeSum",
    "Watch",
    "World",
    "world",
]

LATER = {
    "MpiGroup": "worlds.mpigroup",
    **dict.fromkeys(("MpiPending", "MpiWorld", "Several"), "worlds.mpiworld"),
    **dict.fromkeys(("Report", "Watch"), "launch.watch"),
    "Sharding": "sharding.sharding",
    **dict.fromkeys(("NcclPending", "NcclWorld"), "nccl.ncclworld"),
}  # a single process needs none of these


def __getattr__(name: str) -> Any:
    """Import a class that only multi-process runs need."""
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"puregraph.distributed.{LATER[name]}"), name)
