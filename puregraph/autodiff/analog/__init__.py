"""Graphs of callables whose backward pass is a graph to edit, as in AnalogVNN."""

from puregraph.autodiff.analog.accumulategrad import AccumulateGrad
from puregraph.autodiff.analog.argskwargs import ArgsKwargs, InputOutput
from puregraph.autodiff.analog.backwardgraph import EditableBackwardGraph as BackwardGraph
from puregraph.autodiff.analog.backwardgraph import NoForwardPassError
from puregraph.autodiff.analog.backwardmodule import (
    BackwardFunction,
    BackwardIdentity,
    BackwardModule,
    BackwardUsingForward,
)
from puregraph.autodiff.analog.forwardgraph import ForwardGraph
from puregraph.autodiff.analog.modelgraph import ModelGraph
from puregraph.autodiff.analog.modelgraphstate import ModelGraphState
from puregraph.autodiff.analog.occurrence import Occurrence
from puregraph.autodiff.analog.structure.acyclic import AcyclicDirectedGraph
from puregraph.autodiff.analog.structure.graphenum import GraphEnum

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
