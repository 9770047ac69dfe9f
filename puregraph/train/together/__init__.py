"""Together: steps that several processes take, or that consist of the fixed grains of a batch."""

from puregraph.train.together.deviceexchange import DeviceExchange
from puregraph.train.together.gradientexchange import GradientExchange
from puregraph.train.together.grainpieces import GrainPieces
from puregraph.train.together.lockedpass import LockedPass
from puregraph.train.together.lockstep import GrainPass, LockStep
from puregraph.train.together.mixplan import Mix, MixPlan
from puregraph.train.together.partedfootprint import PartedFootprint
from puregraph.train.together.partedupdate import PartedUpdate
from puregraph.train.together.partedweights import Gathering, OwnedSpan, PartedWeights
from puregraph.train.together.shardedupdate import ParamPiece, ShardedUpdate
from puregraph.train.together.sharedstep import Columns, SharedStep
from puregraph.train.together.splitplan import Busiest, SplitPlan, StepSplit

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
    "MixPlan",
    "OwnedSpan",
    "ParamPiece",
    "PartedFootprint",
    "PartedUpdate",
    "PartedWeights",
    "ShardedUpdate",
    "SharedStep",
    "SplitPlan",
    "StepSplit",
]
