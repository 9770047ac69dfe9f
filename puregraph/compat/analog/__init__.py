"""Graphs of callables whose backward pass is a graph to edit, as in AnalogVNN."""

from puregraph.compat.analog.accumulategrad import AccumulateGrad
from puregraph.compat.analog.argskwargs import ArgsKwargs, InputOutput
from puregraph.compat.analog.backwardgraph import EditableBackwardGraph as BackwardGraph
from puregraph.compat.analog.backwardgraph import NoForwardPassError
from puregraph.compat.analog.backwardmodule import (
    BackwardFunction,
    BackwardIdentity,
    BackwardModule,
    BackwardUsingForward,
)
from puregraph.compat.analog.forwardgraph import ForwardGraph
from puregraph.compat.analog.modelgraph import ModelGraph
from puregraph.compat.analog.modelgraphstate import ModelGraphState
from puregraph.compat.analog.occurrence import Occurrence
from puregraph.compat.analog.structure.acyclic import AcyclicDirectedGraph
from puregraph.compat.analog.structure.graphenum import GraphEnum

__all__ = [
    "AccumulateGrad",
    "AcyclicDirectedGraph",
    "ArgsKwargs",
    "BackwardFunction",
    "BackwardGraph",
    "BackwardIdentity",
    "BackwardModule",
    "BackwardUsingForward",
    "ForwardGraph",
    "GraphEnum",
    "InputOutput",
    "ModelGraph",
    "ModelGraphState",
    "NoForwardPassError",
    "Occurrence",
]
