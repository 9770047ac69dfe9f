"""The backward pass as an object to hold, read, change and extend, under the names that its users know.

A tape of Variables (torch, afnio), backward graphs ahead of time (DaceML), and rules registered for them.
"""

from typing import TYPE_CHECKING

from puregraph.autodiff.checks.anomaly import AnomalyError, detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from puregraph.autodiff.checks.gradcheck import GradcheckError, gradcheck
from puregraph.autodiff.derivatives.declarations import jvp as register_tangent
from puregraph.autodiff.forward.dual import Dual
from puregraph.autodiff.forward.forwardmode import Derivatives, hessian, hvp, jacobian, jvp, vjp
from puregraph.autodiff.forward.persample import PerSample, grad_norms, per_sample_gradients
from puregraph.autodiff.forward.vmap import Samples
from puregraph.autodiff.functionalcall import Pure
from puregraph.autodiff.joint.addbackward import JointGraph, add_backward_pass, make_backward_function
from puregraph.autodiff.joint.backwardimplementation import BackwardContext, BackwardImplementation, BackwardResult
from puregraph.autodiff.joint.freeinggraph import Descriptor
from puregraph.autodiff.tape.activationrecompute import Checkpoint, checkpoint
from puregraph.autodiff.tape.engine import CycleError, backward, grad
from puregraph.autodiff.tape.functionapply import once_differentiable
from puregraph.autodiff.tape.gradmode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from puregraph.autodiff.tape.modulebackward import parameter
from puregraph.autodiff.tape.tapenode import GradientEdge, get_gradient_edge
from puregraph.autodiff.tape.tapenode import TapeNode as Node
from puregraph.autodiff.tape.variable import Variable
from puregraph.core.accumulate import accumulate, seedLike, zeroLike
from puregraph.core.errors import AutoDiffException
from puregraph.core.late import Late, lateNames
from puregraph.graph.function import Function
from puregraph.ops.fourier.complexpair import ComplexPair

if TYPE_CHECKING:
    from puregraph.compat.analog import (
        AccumulateGrad,
        AcyclicDirectedGraph,
        ArgsKwargs,
        BackwardFunction,
        BackwardGraph,
        BackwardIdentity,
        BackwardModule,
        BackwardUsingForward,
        ForwardGraph,
        GraphEnum,
        InputOutput,
        ModelGraph,
        ModelGraphState,
        NoForwardPassError,
        Occurrence,
    )

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
    "ComplexPair",
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

LATE = {name: Late("puregraph.compat.analog", name) for name in __all__}  # AnalogVNN's graphs build on this package
LATE |= {name: Late(f"{__name__}.{name}") for name in ("function", "graph")}  # module paths of afnio

__getattr__, __dir__ = lateNames(__name__, LATE)
