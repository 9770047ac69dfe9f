"""Runner: launches on CuPy's arrays, on its current stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.errors import DeviceError
from puregraph.ops.cuda.libraries.librarycall import LibraryCall
from puregraph.ops.cuda.runtime import compiler, dependentlaunch
from puregraph.ops.cuda.runtime.launch import TICKETS, Launch, memories, scratches, tables
from puregraph.ops.cuda.runtime.perdevice import PerDevice, ordinal

if TYPE_CHECKING:
    import cupy
    from numpy.typing import DTypeLike


SCALARS = {"int": np.int32, "long": np.int64, "float": np.float32, "double": np.float64}
STATIC_SHARED = 48 << 10  # bytes of shared memory that any kernel may use
ALLOWED: dict[tuple[int, str, str], int] = {}  # the shared memory that each kernel was allowed on each GPU


def empty(shape: tuple[int, ...], dtype: DTypeLike) -> cupy.ndarray:
    """An uninitialized CuPy array."""
    import cupy  # optional: there is a device array among the arguments, so it is here

    return cupy.empty(shape, dtype)


def zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    """A CuPy array of zeros."""
    import cupy  # optional, as above

    return cupy.zeros(shape, dtype)


def uploaded(array: np.ndarray) -> cupy.ndarray:
    """A copy on the GPU."""
    import cupy  # optional, as above

    return cupy.asarray(array)


def run(launches: Iterable[Launch | LibraryCall]) -> None:
    """Start launches one after the other; CuPy allocates their scratch memory, and gets it back."""
    launches = list(launches)
    extra = {id(scratch): empty(scratch.shape, scratch.dtype) for scratch in scratches(launches)}
    most = max((launch.workspace for launch in launches if isinstance(launch, LibraryCall)), default=0)
    workspace = empty((most,), np.uint8) if most else None

    if any(what is TICKETS for what in memories(launches)):
        extra[id(TICKETS)] = zeros(TICKETS.shape, TICKETS.dtype)

    def locate(what: object) -> int:
        return addressOf(extra.get(id(what), what))

    for table in tables(launches):
        extra[id(table)] = uploaded(table.filled(locate))
    start(launches, locate, 0 if workspace is None else addressOf(workspace))


def start(launches: Iterable[Launch | LibraryCall], locate: Callable[[Any], int], workspace: int = 0) -> None:
    """Start launches on the current stream, allocating nothing: `locate` gives the address of a slot's value."""
    for launch in launches:
        if isinstance(launch, LibraryCall):
            launch.run([locate(what) for _, what in launch.slots], workspace, stream())
            continue
        values = [
            locate(what) if kind == "pointer" else SCALARS[kind](wrapped(kind, what)) for kind, what in launch.slots
        ]
        shared, together = launch.shared, launch.cooperative
        if not together and dependentlaunch.isWanted(architecture()):
            kernel = function(dependentlaunch.waiting(launch.source), launch.entry, shared)
            dependentlaunch.start(kernel.ptr, launch.grid, launch.block, values, shared, stream())
            continue
        kernel = function(launch.source, launch.entry, shared)
        kernel(launch.grid, launch.block, values, shared_mem=shared, enable_cooperative_groups=together)


def stream() -> int:
    """The current stream, as libraries name it."""
    import cupy  # optional, as above

    return cupy.cuda.get_current_stream().ptr


def wrapped(kind: str, number: int) -> int:
    """An unsigned integer of 32 or 64 bits as the signed one of the same bits."""
    bits = {"int": 32, "long": 64}.get(kind)
    return number - (1 << bits) if bits and number >= 1 << (bits - 1) else number


def addressOf(array: Any) -> int:
    """The address of a CuPy array.

    Raises    DeviceError for an array that is elsewhere
    """
    memory: Any = getattr(array, "data", None)
    if not hasattr(memory, "ptr"):
        raise DeviceError(f"wanted arrays on the GPU, got {type(array).__name__}; move it with puregraph.toDevice")
    return memory.ptr


@PerDevice
def architecture() -> str:
    """The architecture that kernels are compiled for: that of the GPU in use."""
    import cupy  # optional, as above

    return f"sm_{cupy.cuda.Device().compute_capability}"


@PerDevice
def function(source: str, entry: str, shared: int) -> cupy.RawKernel:
    """A kernel, loaded on the GPU for the life of the process, which may use this many bytes of shared memory."""
    import cupy  # optional, as above

    kernel, driver = module(source).get_function(entry), cupy.cuda.driver
    static = compiler.cubin(source, architecture()).resources[entry].shared
    key = ordinal(), source, entry
    most = max(shared, ALLOWED.get(key, 0))  # a smaller launch takes nothing from a larger one
    if static + most > STATIC_SHARED:
        ALLOWED[key] = most
        driver.funcSetAttribute(kernel.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most)
    return kernel


@PerDevice
def module(source: str) -> Any:
    """The kernels of a text, loaded."""
    import cupy  # optional, as above

    loaded = cupy.cuda.function.Module()
    loaded.load(compiler.cubin(source, architecture()).data)
    return loaded
