"""Data parallelism: steps whose batch is divided among ranks, with sharded weights and updates (ZeRO)."""

from typing import TYPE_CHECKING

from puregraph.core.late import Late, lateNames
from puregraph.distributed.dataparallel.deviceexchange import DeviceExchange
from puregraph.distributed.dataparallel.gradientexchange import GradientExchange
from puregraph.distributed.dataparallel.grainpieces import GrainPieces
from puregraph.distributed.dataparallel.lockedpass import LockedPass
from puregraph.distributed.dataparallel.lockstep import GrainPass, LockStep
from puregraph.distributed.dataparallel.metricexchange import MetricExchange
from puregraph.distributed.dataparallel.sharedstep import Columns, SharedStep
from puregraph.distributed.plan.dataparallelplan import DataParallelPlan, StepSplit
from puregraph.distributed.plan.shardedfootprint import ShardedFootprint

if TYPE_CHECKING:
    from puregraph.distributed.plan.parallelplan import Mix, ParallelPlan

__all__ = [
    "Columns",
    "DeviceExchange",
    "GradientExchange",
    "GrainPieces",
    "GrainPass",
    "LockStep",
    "LockedPass",
    "MetricExchange",
    "Mix",
    "ParallelPlan",
    "ShardedFootprint",
    "SharedStep",
    "DataParallelPlan",
    "StepSplit",
]

LATE = {name: Late("puregraph.distributed.plan.parallelplan", name) for name in ("Mix", "ParallelPlan")}
# a plan of all kinds of parallelism imports tensor parallelism, which imports this package

__getattr__, __dir__ = lateNames(__name__, LATE)
