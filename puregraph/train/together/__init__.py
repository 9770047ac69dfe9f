"""Together: steps that several processes take, or that consist of the fixed grains of a batch."""

from puregraph.train.together.deviceexchange import DeviceExchange
from puregraph.train.together.gradientexchange import GradientExchange
from puregraph.train.together.lockstep import GrainPass, LockStep
from puregraph.train.together.shardedupdate import ParamPiece, ShardedUpdate
from puregraph.train.together.sharedstep import Columns, SharedStep
from puregraph.train.together.splitplan import SplitPlan, StepSplit

__all__ = [
    "Columns",
    "DeviceExchange",
    "GradientExchange",
    "GrainPass",
    "LockStep",
    "ParamPiece",
    "ShardedUpdate",
    "SharedStep",
    "SplitPlan",
    "StepSplit",
]
