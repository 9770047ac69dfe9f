"""Shards of parameters, gradients and optimizer state: one update, norm and checkpoint for all ways to divide a run."""

from puregraph.distributed.sharding.shardedupdate import ParamShard, ShardedUpdate
from puregraph.distributed.sharding.shardedweights import Gathering, OwnedSpan, ShardedWeights
from puregraph.distributed.sharding.sharding import ElementOrder, Overlap, Sharding, ShardRow

__all__ = [
    "ElementOrder",
    "Gathering",
    "Overlap",
    "OwnedSpan",
    "ParamShard",
    "ShardRow",
    "ShardedUpdate",
    "ShardedWeights",
    "Sharding",
]
