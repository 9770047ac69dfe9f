"""Tensors: arrays and tensors over the same memory, on the CPU and on a GPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.base.dtype import isBfloat16
from puregraph.core.errors import DataError, DeviceError, DtypeError

if TYPE_CHECKING:
    import torch


def asTensor(array: Any) -> Any:
    """The tensor over an array's memory: writing to one writes to the other.

    `array`   of numpy, of CuPy, or of any other library with `__dlpack__`

    Raises    DataError for an object that is no array, or a read-only one; DtypeError for a dtype that torch lacks

    >>> array = np.zeros(3, np.float32)
    >>> asTensor(array)[1] = 2.0                                    # doctest: +SKIP
    """
    import torch

    if isinstance(array, np.ndarray):
        if array.flags.writeable:
            try:
                return torch.from_numpy(array)  # as in every call of a graph
            except (TypeError, ValueError) as error:  # such as bfloat16, text, or a negative stride
                if isBfloat16(array.dtype):
                    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
                raise DtypeError(f"asTensor: torch has no tensor for this array of {array.dtype}: {error}") from None
        raise DataError("asTensor: the array is read-only, and a tensor could write to it; give a copy, array.copy()")
    if not hasattr(array, "__dlpack__"):
        raise DataError(f"asTensor: wanted an array, got {type(array).__name__}; np.asarray makes one")
    return torch.from_dlpack(array)


def asArray(tensor: Any) -> Any:
    """The array over a tensor's memory: numpy's on the CPU, CuPy's on a GPU. Gradients do not pass through it.

    Raises    DataError for an object that is no dense tensor; DeviceError for a device that neither reaches

    >>> asArray(torch.zeros(3)).shape                               # doctest: +SKIP
    (3,)
    """
    try:
        return (tensor.detach() if tensor.requires_grad else tensor).numpy()  # as in every call of a graph
    except (AttributeError, RuntimeError, TypeError):
        return otherArray(tensor)


def otherArray(tensor: torch.Tensor) -> Any:
    """The array of a tensor that torch has no array for: on a GPU, or of bfloat16."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        raise DataError(
            f"wanted a tensor of torch, got {type(tensor).__name__}; torch.from_numpy makes one of an array"
        )
    if tensor.layout is not torch.strided:
        raise DataError(f"wanted a dense tensor, got {tensor.layout}; tensor.to_dense() makes one")
    where = tensor.device.type
    if where == "cuda":
        if device.name() != "cuda":
            raise DeviceError(f"the tensor is on {tensor.device}, puregraph on the CPU; tensor.cpu() copies it")
        return device.arrays().from_dlpack(tensor.detach())
    if where != "cpu":
        raise DeviceError(f"the tensor is on {tensor.device}, wanted cpu or cuda; tensor.cpu() copies it")
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    raise DtypeError(f"numpy has no array for a tensor of {tensor.dtype}; tensor.to(...) converts it")
