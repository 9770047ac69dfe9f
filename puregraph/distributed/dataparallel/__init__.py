"""Data parallelism: steps whose batch is divided among ranks, with sharded weights and updates (ZeRO)."""

from puregraph.distributed.dataparallel.deviceexchange import DeviceExchange
from puregraph.distributed.dataparallel.gradientexchange import GradientExchange
from puregraph.distributed.dataparallel.grainpieces import GrainPieces
from puregraph.distributed.dataparallel.lockedpass import LockedPass
from puregraph.distributed.dataparallel.lockstep import GrainPass, LockStep
from puregraph.distributed.dataparallel.shardedupdate import ParamPiece, ShardedUpdate
from puregraph.distributed.dataparallel.shardedweights import Gathering, OwnedSpan, ShardedWeights
from puregraph.distributed.dataparallel.shardupdate import ShardUpdate
from puregraph.distributed.dataparallel.sharedstep import Columns, SharedStep
from puregraph.distributed.plan.dataparallelplan import Busiest, DataParallelPlan, StepSplit
from puregraph.distributed.plan.parallelplan import Mix, ParallelPlan
from puregraph.distributed.plan.shardedfootprint import ShardedFootprint

__all__ = [
    "Busiest",
    "Columns",
    "DeviceExchange",
    "Gathering",
    "GradientExchange",
    "GrainPieces",
    "GrainPass",
    "LockStep",
    "LockedPass",
    "Mix",
    "ParallelPlan",
    "OwnedSpan",
    "ParamPiece",
    "ShardedFootprint",
    "ShardUpdate",
    "ShardedWeights",
    "ShardedUpdate",
    "SharedStep",
    "DataParallelPlan",
    "StepSplit",
]
