"""GPU: a step as graphs of CUDA.

scaling    gradients are made larger where they are to be kept in float16
precision  what may be kept in 16 bits is kept so
choices    what would end a step becomes a choice between new values and old ones (`ledger` tells the host of it)
updates    those of all parameters together
heads      attention's gradient, as a library takes it
scores     that of a cross-entropy, without probabilities
filters    weights of convolutions channels last, as a library wants them
lowering   calls become launches and calls of libraries (`numbers`, `moving`, `kernels`, `products`, `sums`)
memory     one arena outside CuPy's pool; `inbox` is where inputs and numbers come in, `outbox` how results go home
capture    what follows one another is captured (`tuning` chooses among what libraries propose, where that is asked for)
built      all of this together, ready to run
"""

from typing import Any

from puregraph.compile.gpu.lower.gpulowering import launching
from puregraph.compile.gpu.passes.attentionbackward import withHeads
from puregraph.compile.gpu.passes.autocast import precise
from puregraph.compile.gpu.passes.fusedxent import withScores
from puregraph.compile.gpu.passes.lossscale import scaledUp
from puregraph.compile.gpu.passes.predication import Predication
from puregraph.compile.gpu.passes.weightlayout import withFilters
from puregraph.compile.gpu.runtime.devicearena import ALIGNMENT
from puregraph.compile.gpu.runtime.gpuexecutable import GpuExecutable
from puregraph.compile.trace.channelslast import layoutFor


def lowered(schedule: Any) -> Any:
    """The schedule with its calls as launches, as far as there are any for them."""
    exact = Predication(precise(scaledUp(schedule))).run()
    return launching(withFilters(withScores(withHeads(exact))))


def isWhole(piece: Any) -> bool:
    """Whether there are launches for a function of numpy's functions."""
    return "cuda" in piece.implementations


__all__ = ["ALIGNMENT", "GpuExecutable", "isWhole", "layoutFor", "lowered"]
