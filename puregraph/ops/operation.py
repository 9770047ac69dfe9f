"""ArrayOp: everything that the library knows of a function of arrays, declared beside the function.

    @op(np.cumsum).adjoint
    def cumsum(g, y, a, axis=None): ...  # its gradient: the sums from the other end

    op(np.transpose, np.swapaxes).declare(records="view")

A Kernel is an ArrayOp itself. The passes of the compiler, of autodiff and of ONNX call
`declared(function, "adjoint")`, and have no lists of operations. DECLARATIONS lists all declarations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from puregraph.core.tracer import HANDED

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction

R = TypeVar("R")
DECLARATIONS = {
    "flops": "rule(y, *arguments): the operations of a call",
    "layout": "how a result is stored in a compiled step: CHANNELSLAST, HEADSLAST, LIKEFIRST",
    "halves": "what may be of 16 bits: ANYFLOATS, READSFLOATS, or Halves",
    "bounds": "rule(*arguments): the integers that have to be bounded, their low, their limit, and one that is ignored",
    "weight": "how it uses the weight of a convolution: READS (argument 1), MAKES",
    "library": "rule(y, *arguments, tf32=): a call of one of NVIDIA's libraries, or NotImplemented",
    "epilogue": "rule(y, *arguments, tail): launches that apply formulas to its sums; the library takes bias,"
    " activation and residual",
    "lower": "rule(call, workspace), or with a tiling rule(call, epilogue, workspace): native kernel calls, or None",
    "tiling": "rule(call): the OutputTiling of a result that takes an epilogue; None where it takes none",
    "untiled": "rule(call, workspace): native kernel calls of one that takes none",
    "adjoint": "rule(g, y, *arguments): it is linear in its first argument, and this is its gradient",
    "multilinear": "rule(g, y, *arguments): it is linear in each array, and these are its gradients",
    "vjp": "rule(g, y, *arguments): its gradients; see puregraph/autodiff/derivatives/declarations.py",
    "moves": "it only moves elements, of the argument at this position",
    "constant": "True: it has no derivative",
    "jvp": "rule(function, values, tangents, options): its result and tangent; ITSELF or MULTILINEAR: it is linear so;"
    " REFERENCE: as its reference has them",
    "additive": "the options that add constants to a linear function, and are left out of its tangent",
    "samples": "rule(x, *arguments): the same for all samples at once, which are the first axis of x",
    "sampled": "the positions of the arguments that have samples, where that is not the first",
    "perSample": "rule(function, *arguments): its call on Samples",
    "updates": "True: it writes to its first argument, a State, and returns it",
    "records": "how a compiled step records it: a reader of puregraph/compile/trace/numpyrules.py",
    "decompose": "rule(*arguments): the same by simpler functions, or NotImplemented",
    "composed": "rule(*arguments): the same by functions whose derivatives are known, or NotImplemented",
    "onnx": "rule(writer, call): the names of its results, written as operators of ONNX",
    "words": "rule(*arguments): the same by simpler functions, for ONNX alone",
}
ITSELF, MULTILINEAR = "itself", "multilinear"  # values of the declaration "jvp"
GRADIENTS = {"adjoint", "multilinear", "vjp", "moves", "constant"}  # an ArrayOp declares at most one of these
OPERATIONS: dict[Any, ArrayOp] = {}  # the ArrayOps of functions that are not Kernels


class ArrayOp:
    """The declarations of one function; messages call it `name`."""

    name: str
    declarations: dict[str, Any]

    def __init__(self, name: str) -> None:
        self.name, self.declarations = name, {}

    def declare(self, **declarations: Any) -> Any:
        """Add declarations, by the names in DECLARATIONS; each may be made once.

        Raises    ValueError for an unknown declaration, or one that has been made already
        """
        for what, rule in declarations.items():
            if what not in DECLARATIONS:
                raise ValueError(f"{self.name}: wanted one of {', '.join(DECLARATIONS)}, got {what!r}")
            others = GRADIENTS & self.declarations.keys() if what in GRADIENTS else set()
            if others or what in self.declarations:
                raise ValueError(f"{self.name} has declared its {' or '.join(sorted(others)) or what} already")
            self.declarations[what] = rule
        return self


def declaring(what: str) -> Callable[[Shared, R], R]:
    """A decorator that declares its rule for all functions of a Shared."""

    def decorate(shared: Shared, rule: R) -> R:
        shared.declare(**{what: rule})
        return rule

    return decorate


class Shared:
    """Functions that share a declaration; each decorator returns its rule."""

    def __init__(self, functions: tuple[ArrayFunction, ...]) -> None:
        self.operations = [operationOf(function) for function in functions]

    def declare(self, **declarations: Any) -> None:
        """Make the same declarations for each function."""
        for operation in self.operations:
            operation.declare(**declarations)

    adjoint = declaring("adjoint")
    composed = declaring("composed")
    decompose = declaring("decompose")
    jvp = declaring("jvp")
    lower = declaring("lower")
    multilinear = declaring("multilinear")
    onnx = declaring("onnx")
    perSample = declaring("perSample")
    vjp = declaring("vjp")
    words = declaring("words")


def op(*functions: ArrayFunction) -> Shared:
    """The ArrayOps of functions of numpy, or of Kernels, to add declarations to.

    Raises    ValueError for a function whose calls no tracer receives
    """
    return Shared(functions)


def operationOf(function: Any) -> ArrayOp:
    """The ArrayOp of a function."""
    known = function if isinstance(function, ArrayOp) else OPERATIONS.get(function)
    if known is not None:
        return known
    name, owner = getattr(function, "__name__", function), getattr(function, "__self__", function)
    if not isinstance(owner, (np.ufunc, type(np.sum))) and function not in HANDED:
        wanted = "wanted a Kernel or a function of numpy that can be overridden"
        raise ValueError(f"{wanted}, got {name}, which no tracer is handed; make it a Kernel")
    return OPERATIONS.setdefault(function, ArrayOp(str(name)))


def declared(function: Any, what: str) -> Any:
    """The declaration of a function of this kind; None without one."""
    operation = function if isinstance(function, ArrayOp) else OPERATIONS.get(function)
    return None if operation is None else operation.declarations.get(what)
