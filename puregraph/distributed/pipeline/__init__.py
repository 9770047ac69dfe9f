"""Pipeline parallelism: a network in stages, through which the microbatches of a batch pass in turn."""

from puregraph.distributed.pipeline.grainsums import GrainSums
from puregraph.distributed.pipeline.lockedpipeline import LockedPipeline
from puregraph.distributed.pipeline.lockedpipelinestep import LockedPipelineStep
from puregraph.distributed.pipeline.pipelineschedule import PipelineSchedule, StageMove
from puregraph.distributed.pipeline.pipelinestep import PipelineStep
from puregraph.distributed.pipeline.stagepass import StagePass
from puregraph.distributed.pipeline.stagepipeline import Microbatch, StagePipeline
from puregraph.distributed.plan.pipelineplan import PipelinePlan, Stage, StageSplit, StageSums
from puregraph.distributed.plan.shardedfootprint import StageFootprint

__all__ = [
    "GrainSums",
    "LockedPipeline",
    "LockedPipelineStep",
    "Microbatch",
    "PipelineSchedule",
    "PipelineStep",
    "Stage",
    "StageFootprint",
    "StageMove",
    "StagePass",
    "StagePipeline",
    "PipelinePlan",
    "StageSplit",
    "StageSums",
]
