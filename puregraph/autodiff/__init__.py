"""The backward pass as an object to hold, read, change and extend, under the names that its users know.

A tape of Variables (torch, afnio), backward graphs ahead of time (DaceML), and rules registered for them.
"""

from puregraph.algebra import accumulate, seedLike, zeroLike
from puregraph.autodiff.accumulategrad import AccumulateGrad
from puregraph.autodiff.acyclic import AcyclicDirectedGraph
from puregraph.autodiff.anomaly import AnomalyError, detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from puregraph.autodiff.argskwargs import ArgsKwargs, InputOutput
from puregraph.autodiff.backwardgraph import BackwardGraph, NoForwardPassError
from puregraph.autodiff.backwardmodule import BackwardFunction, BackwardIdentity, BackwardModule, BackwardUsingForward
from puregraph.autodiff.checkpoint import Checkpoint, checkpoint
from puregraph.autodiff.dual import Dual
from puregraph.autodiff.engine import CycleError, backward, grad
from puregraph.autodiff.forwardgraph import ForwardGraph
from puregraph.autodiff.forwardmode import Derivatives, hessian, hvp, jacobian, jvp, vjp
from puregraph.autodiff.function import once_differentiable
from puregraph.autodiff.generator import JointGraph, add_backward_pass, make_backward_function
from puregraph.autodiff.gradcheck import GradcheckError, gradcheck
from puregraph.autodiff.graph import GradientEdge, Node, get_gradient_edge
from puregraph.autodiff.graphenum import GraphEnum
from puregraph.autodiff.implementation import BackwardContext, BackwardImplementation, BackwardResult
from puregraph.autodiff.lean import Descriptor
from puregraph.autodiff.mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from puregraph.autodiff.modelgraph import ModelGraph
from puregraph.autodiff.modelgraphstate import ModelGraphState
from puregraph.autodiff.modules import parameter
from puregraph.autodiff.occurrence import Occurrence
from puregraph.autodiff.persample import PerSample, grad_norms, per_sample_gradients
from puregraph.autodiff.pure import Pure
from puregraph.autodiff.samples import Samples
from puregraph.autodiff.tangents import register_tangent
from puregraph.autodiff.variable import Variable
from puregraph.errors import AutoDiffException
from puregraph.function import Function

seed_like, zero_like = seedLike, zeroLike

__all__ = [
    "AccumulateGrad",
    "AcyclicDirectedGraph",
    "AnomalyError",
    "ArgsKwargs",
    "AutoDiffException",
    "BackwardContext",
    "BackwardFunction",
    "BackwardGraph",
    "BackwardIdentity",
    "BackwardImplementation",
    "BackwardModule",
    "BackwardResult",
    "BackwardUsingForward",
    "Checkpoint",
    "CycleError",
    "Derivatives",
    "Descriptor",
    "Dual",
    "ForwardGraph",
    "Function",
    "GradcheckError",
    "GradientEdge",
    "GraphEnum",
    "InputOutput",
    "JointGraph",
    "ModelGraph",
    "ModelGraphState",
    "NoForwardPassError",
    "Node",
    "Occurrence",
    "PerSample",
    "Pure",
    "Samples",
    "Variable",
    "accumulate",
    "add_backward_pass",
    "backward",
    "checkpoint",
    "detect_anomaly",
    "enable_grad",
    "get_gradient_edge",
    "grad",
    "grad_norms",
    "gradcheck",
    "hessian",
    "hvp",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "jacobian",
    "jvp",
    "make_backward_function",
    "no_grad",
    "once_differentiable",
    "parameter",
    "per_sample_gradients",
    "register_tangent",
    "seed_like",
    "set_detect_anomaly",
    "set_grad_enabled",
    "vjp",
    "zero_like",
]
