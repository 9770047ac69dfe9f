"""Dependent launches: the blocks of a kernel are scheduled while the last ones of the kernel before it still run.

Each thread of a kernel that is started so waits at the beginning of its text, until all of the launch before it is done
and what that wrote is seen. As this one waited too, it comes after all before it: the order is that of other
launches, and the time between two of them is about a microsecond less. Calls of libraries, and cooperative
launches, begin when all before them has ended. It takes a GPU of compute capability 9.0, and `cuda-bindings`.

Source    NVIDIA, CUDA C++ Programming Guide, Programmatic Dependent Launch and Synchronization
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np

from puregraph.core.base.environment import variable
from puregraph.core.errors import DeviceError

HOPPER = 90  # the first architecture that has them
BODY = re.compile(r'(extern "C"\s+__global__[^{]*\{)')
WAIT = 'asm volatile("griddepcontrol.launch_dependents;"); asm volatile("griddepcontrol.wait;" ::: "memory");'
FREE = "#define __restrict__\n"  # a compiler may read memory that is promised not to change before the wait


def isWanted(architecture: str) -> bool:
    """True if kernels on a GPU of an architecture, such as "sm_90", are started with overlap."""
    return bool(variable("OVERLAPLAUNCHES", False)) and int(architecture.removeprefix("sm_")) >= HOPPER


def waiting(source: str) -> str:
    """The text of kernels, with a wait inserted at the beginning of each."""
    return FREE + BODY.sub(rf"\1 {WAIT}", source)


def start(
    function: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    values: list[Any],
    shared: int,
    stream: int,
) -> None:
    """Start a kernel of such a text on a stream while earlier work on it still runs.

    Raises    DeviceError without cuda-bindings, or if the driver refuses
    """
    try:
        from cuda.bindings import driver  # optional: the extras cuda12 and cuda13
    except ImportError as error:
        raise DeviceError(
            "PUREGRAPH_OVERLAPLAUNCHES needs cuda-bindings; install it (pip install cuda-bindings), or set it off"
        ) from error
    numbers = [number(value) for value in values]
    addresses = (ctypes.c_void_p * len(numbers))(*map(ctypes.addressof, numbers))
    attribute, config = driver.CUlaunchAttribute(), driver.CUlaunchConfig()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes, config.hStream = shared, stream
    config.attrs, config.numAttrs = [attribute], 1
    (status,) = driver.cuLaunchKernelEx(config, driver.CUfunction(function), ctypes.addressof(addresses), 0)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"cuLaunchKernelEx failed: {status.name}")


def number(value: Any) -> Any:
    """An address, or a scalar of numpy, as C has it."""
    return np.ctypeslib.as_ctypes_type(value.dtype)(value.item()) if hasattr(value, "dtype") else ctypes.c_void_p(value)
