"""Pipeline: steps of a network in stages, through which the grains of a batch go one after the other."""

from puregraph.train.pipeline.grainsums import GrainSums
from puregraph.train.pipeline.lockedpipeline import LockedPipeline
from puregraph.train.pipeline.lockedpipelinestep import LockedPipelineStep
from puregraph.train.pipeline.partedstageshare import PartedStageShare
from puregraph.train.pipeline.pipelinegrid import PipelineGrid
from puregraph.train.pipeline.pipelineschedule import PipelineSchedule, StageMove
from puregraph.train.pipeline.pipelinestep import PipelineStep
from puregraph.train.pipeline.stagefootprint import StageFootprint
from puregraph.train.pipeline.stagepass import StagePass
from puregraph.train.pipeline.stagepipeline import Microbatch, StagePipeline
from puregraph.train.pipeline.stageplan import Stage, StagePlan, StageSplit, StageSums
from puregraph.train.pipeline.stageshare import StageShare

__all__ = [
    "GrainSums",
    "LockedPipeline",
    "LockedPipelineStep",
    "Microbatch",
    "PartedStageShare",
    "PipelineGrid",
    "PipelineSchedule",
    "PipelineStep",
    "Stage",
    "StageFootprint",
    "StageMove",
    "StagePass",
    "StagePipeline",
    "StagePlan",
    "StageShare",
    "StageSplit",
    "StageSums",
]
