"""Training on several processes: the world that they are, how they are started, and sums that do not depend on it."""

from importlib import import_module
from typing import Any

from puregraph.many.bucketedsum import BucketedSum
from puregraph.many.countingworld import Collective, CountingWorld, LinkSpeed
from puregraph.many.current import world
from puregraph.many.grains import Grains
from puregraph.many.predict.clocks import Clocks
from puregraph.many.predict.cluster import Cluster
from puregraph.many.treesum import TreeSum
from puregraph.many.world import Pending, World

__all__ = [
    "BucketedSum",
    "Clocks",
    "Cluster",
    "Collective",
    "CountingWorld",
    "Grains",
    "LinkSpeed",
    "MpiGroup",
    "MpiPending",
    "MpiWorld",
    "NcclPending",
    "NcclWorld",
    "Pending",
    "Report",
    "Several",
    "TreeSum",
    "Watch",
    "World",
    "world",
]

LATER = {
    "MpiGroup": "mpigroup",
    **dict.fromkeys(("MpiPending", "MpiWorld", "Several"), "mpiworld"),
    **dict.fromkeys(("Report", "Watch"), "watch"),
    **dict.fromkeys(("NcclPending", "NcclWorld"), "nccl.ncclworld"),
}  # who is alone needs none of them


def __getattr__(name: str) -> Any:
    """A class that only several processes need."""
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"puregraph.many.{LATER[name]}"), name)
