"""Dependent launches: the blocks of a kernel are scheduled while the last blocks of the previous kernel still run.

Each thread of such a kernel first waits until the previous launch has finished and its writes are visible. That launch
has waited for the one before it, so launches run in the usual order, with about a microsecond less between two of them.
Library calls and cooperative launches start when all earlier work has finished. Dependent launches need a GPU of
compute capability 9.0, and `cuda-bindings`.

Source    NVIDIA, CUDA C++ Programming Guide, Programmatic Dependent Launch and Synchronization
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np

from puregraph.core.base.environment import variable
from puregraph.core.errors import DeviceError

HOPPER = 90  # the first architecture with dependent launches
BODY = re.compile(r'(extern "C"\s+__global__[^{]*\{)')
WAIT = 'asm volatile("griddepcontrol.launch_dependents;"); asm volatile("griddepcontrol.wait;" ::: "memory");'
FREE = "#define __restrict__\n"  # without it, the compiler could read memory before the wait, as if nothing changed it


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
