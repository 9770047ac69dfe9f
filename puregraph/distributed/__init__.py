"""Distributed training: ranks, their launcher, and data, tensor and pipeline parallelism with equal bits."""

from typing import TYPE_CHECKING

from puregraph.core.late import Late, lateNames
from puregraph.distributed.collectives.bucketedsum import BucketedSum
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import TreeSum
from puregraph.distributed.plan.clocks import Clocks
from puregraph.distributed.plan.cluster import Cluster
from puregraph.distributed.worlds.countingworld import Collective, CountingWorld, LinkSpeed
from puregraph.distributed.worlds.current import world
from puregraph.distributed.worlds.mesh import Axis, Mesh
from puregraph.distributed.worlds.world import Pending, World

if TYPE_CHECKING:
    from puregraph.distributed.launch.watch import Report, Watch
    from puregraph.distributed.nccl.ncclworld import NcclPending, NcclWorld
    from puregraph.distributed.sharding.sharding import Sharding
    from puregraph.distributed.worlds.mpigroup import MpiGroup
    from puregraph.distributed.worlds.mpiworld import MpiPending, MpiWorld, Several

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

LATE = {
    "MpiGroup": "worlds.mpigroup",
    **dict.fromkeys(("MpiPending", "MpiWorld", "Several"), "worlds.mpiworld"),
    **dict.fromkeys(("Report", "Watch"), "launch.watch"),
    "Sharding": "sharding.sharding",
    **dict.fromkeys(("NcclPending", "NcclWorld"), "nccl.ncclworld"),
}  # a single process needs none of these

__getattr__, __dir__ = lateNames(__name__, {name: Late(f"{__name__}.{file}", name) for name, file in LATE.items()})
