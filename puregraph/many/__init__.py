"""Training on several processes: the world that they are, how they are started, and sums that do not depend on it."""

from puregraph.many.countingworld import Collective, CountingWorld, LinkSpeed
from puregraph.many.current import world
from puregraph.many.grains import Grains
from puregraph.many.mpiworld import MpiPending, MpiWorld, Several
from puregraph.many.treesum import TreeSum
from puregraph.many.watch import Report, Watch
from puregraph.many.world import Pending, World

__all__ = [
    "Collective",
    "CountingWorld",
    "Grains",
    "LinkSpeed",
    "MpiPending",
    "MpiWorld",
    "Pending",
    "Report",
    "Several",
    "TreeSum",
    "Watch",
    "World",
    "world",
]
