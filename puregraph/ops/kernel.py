"""Kernel: a numpy function, reference and fallback in one, with its faster implementations directly below it.

    @kernel
    def gather(x, index): ...

    @gather.fast
    def gather(x, index): ...  # on the CPU; returns NotImplemented where it does not apply

    @gather.shape
    def gather(x, index):  # (shape, dtype) of the result, a list of them for several; compiling asks for it
        return (*index.shape, *x.shape[1:]), x.dtype

    @gather.cuda
    def gather(y, x, index):  # on a GPU: the launches that put the result into y, or NotImplemented
        return [Launch("gather", TEXT, ...)]

Properties that the passes of the compiler and of autodiff read are declared there too, by decorators and `declare`: see
`operation`.

The GPU implementation reads no data, only shape, dtype, strides and size of arrays, and describes launches. They run on
CuPy arrays, in a compiled step, or in the emulator. Its first argument is the result, or a list of several results.
If the reference also runs on CuPy arrays, it is registered by `@name.device`. Each decorator returns the Kernel, so
all implementations have the same name.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.device import isDeviceArray, toHost
from puregraph.core.tracer import tracerOf
from puregraph.ops.cuda.runtime import runner
from puregraph.ops.operation import ArrayOp

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

registry: dict[str, Kernel] = {}
CHANNELSLAST, HEADSLAST, LIKEFIRST = "channels last", "heads last", "like the first argument"
ANYFLOATS, READSFLOATS = "of any floats", "reads any floats"
READS, MAKES = "reads", "makes"
REFERENCE = "as its reference"


class Halves(NamedTuple):
    """The positions of arguments that are multiplied in 16 bits; (4, 0) is the first element of argument 4.

    The first `results` results have the same dtype; None: each has the dtype that it is stored in.
    """

    factors: tuple[Any, ...]
    results: int | None

    def of(self, arguments: tuple) -> list[Any]:
        """The arguments at these positions."""
        return [arguments[at[0]][at[1]] if isinstance(at, tuple) else arguments[at] for at in self.factors]


def declaring(what: str) -> Callable[[Kernel, Any], Kernel]:
    """A decorator of Kernels that makes a declaration."""
    return lambda kernel, rule: kernel.declare(**{what: rule})


class Allowed(threading.local):
    """Switches of this thread: for fast CPU implementations, and for programs inside a rule, which only a rule that a
    compiled step calls may run."""

    fast = True
    programs = False


allowed = Allowed()


class Kernel(ArrayOp):
    """An operation with a numpy `reference` and `implementations` "fast" (CPU), "cuda" and "device" (GPU)."""

    __qualname__: str

    def __init__(self, reference: Callable[..., Any]) -> None:
        functools.update_wrapper(self, reference)
        self.reference = reference
        self.implementations: dict[str, Callable[..., Any]] = {}
        self.shapeRule: Callable[..., Any] | None = None
        super().__init__(f"{reference.__module__}.{reference.__qualname__}")
        if registry.setdefault(self.name, self) is not self:
            raise ValueError(f"there is a kernel {self.name} already; give this one another name")

    def fast(self, implementation: Callable[..., Any]) -> Kernel:
        """Register the faster CPU implementation; it returns NotImplemented for arguments that it does not support."""
        return self.addImplementation("fast", implementation)

    def cuda(self, implementation: Callable[..., Any]) -> Kernel:
        """Register the GPU implementation: `implementation(out, *arguments)` returns a list of launches, or
        NotImplemented for arguments that it does not support."""
        return self.addImplementation("cuda", implementation)

    def device(self, implementation: Callable[..., Any]) -> Kernel:
        """Register an implementation on CuPy arrays, for kernels without launches."""
        return self.addImplementation("device", implementation)

    def shape(self, rule: Callable[..., Any]) -> Kernel:
        """Register the shape rule, which returns (shape, dtype) of the result, or a list of pairs for several results.
        The rule reads only shapes and dtypes of the arguments."""
        self.shapeRule = rule
        return self

    flops = declaring("flops")
    bounds = declaring("bounds")
    library = declaring("library")
    epilogue = declaring("epilogue")
    adjoint = declaring("adjoint")
    multilinear = declaring("multilinear")
    vjp = declaring("vjp")
    jvp = declaring("jvp")
    samples = declaring("samples")
    decompose = declaring("decompose")

    def addImplementation(self, kind: str, implementation: Callable[..., Any]) -> Kernel:
        if self.implementations.setdefault(kind, implementation) is not implementation:
            raise ValueError(f"kernel {self.name} has an implementation {kind!r} already")
        return self

    def __call__(self, *arguments: Any, **options: object) -> Any:
        tracer = tracerOf(arguments)
        if tracer is not None:
            return tracer.handle(self, arguments, options)
        if "cupy" in sys.modules and holdsDeviceArray((arguments, options)):
            return self.onDevice(*arguments, **options)
        if "fast" in self.implementations and allowed.fast:
            result = self.implementations["fast"](*arguments, **options)
            if result is not NotImplemented:
                return result
        return self.reference(*arguments, **options)

    def onDevice(self, *arguments: object, **options: object) -> Any:
        """The result on the GPU: by launches, else by the implementation for CuPy arrays, else through the host."""
        if "cuda" in self.implementations and self.shapeRule is not None:
            result = self.launched(*arguments, **options)
            if result is not NotImplemented:
                return result
        return self.implementations.get("device", self.throughHost)(*arguments, **options)

    def launched(self, *arguments: object, **options: object) -> Any:
        """The result computed by launches; NotImplemented if the GPU implementation does not support the arguments."""
        outline = self.shapeRule(*arguments, **options)  # type: ignore[misc]
        several = isinstance(outline, list)
        outs = [runner.empty(*one) for one in (outline if several else [outline])]
        launches = self.implementations["cuda"](outs if several else outs[0], *arguments, **options)
        if launches is NotImplemented:
            return NotImplemented
        runner.run(launches)
        return tuple(outs) if several else outs[0]

    def throughHost(self, *arguments: object, **options: object) -> Any:
        """Run the reference on host copies of the arguments; arrays among its results are copied to the GPU."""
        arguments, options = eachLeaf(bringHome, (arguments, options))
        return eachLeaf(sendBack, self.reference(*arguments, **options))

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def __reduce__(self) -> str:
        return self.__qualname__  # pickled and copied by reference, as functions are


def kernel(reference: Callable[..., Any]) -> Kernel:
    """Make a numpy function a Kernel; `@name.fast`, `@name.cuda` and `@name.shape` below it add to it."""
    return Kernel(reference)


class CompositeKernel(Kernel):
    """A Kernel composed of other functions: one call in a compiled step if possible, otherwise the calls it makes."""

    def __call__(self, *arguments: Any, **options: object) -> Any:
        tracer = tracerOf(arguments)
        if tracer is not None and tracer.takesComposites:
            return tracer.handle(self, arguments, options)
        if "cuda" in self.implementations and "cupy" in sys.modules and holdsDeviceArray((arguments, options)):
            result = self.launched(*arguments, **options)
            if result is not NotImplemented:
                return result
        return self.reference(*arguments, **options)


def compositeKernel(reference: Callable[..., Any]) -> CompositeKernel:
    """Make a function of numpy's functions a composite kernel."""
    return CompositeKernel(reference)


def useFast(wanted: bool) -> ExitStack:
    """Allow or forbid fast CPU implementations in this thread; with `with useFast(False):` until the block ends."""
    return switched("fast", wanted)


def usePrograms() -> ExitStack:
    """Allow programs inside rules in this thread, until the block ends."""
    return switched("programs", True)


def switched(name: str, value: bool) -> ExitStack:
    """Set a switch of this thread, until the block ends."""
    undo = ExitStack()
    undo.callback(setattr, allowed, name, getattr(allowed, name))
    setattr(allowed, name, value)
    return undo


def holdsDeviceArray(value: object) -> bool:
    """True if a value, or anything inside its tuples, lists and dicts, is a CuPy array."""
    if isinstance(value, dict):
        value = tuple(value.values())
    return any(map(holdsDeviceArray, value)) if isinstance(value, (tuple, list)) else isDeviceArray(value)


def eachLeaf(function: Callable[[Any], Any], value: object) -> Any:
    """The value with a function applied to every leaf of its nested tuples, lists and dicts."""
    if isinstance(value, dict):
        return {key: eachLeaf(function, part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [eachLeaf(function, part) for part in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    return function(value)


def bringHome(leaf: AnyArray | int) -> AnyArray | int:
    """A CuPy array as a numpy array; anything else unchanged."""
    return toHost(leaf) if isDeviceArray(leaf) else leaf


def sendBack(leaf: Any) -> Any:
    """A numpy array or scalar as a CuPy array; anything else unchanged."""
    return sys.modules["cupy"].asarray(leaf) if isinstance(leaf, (np.ndarray, np.generic)) else leaf
