"""NCCL, which exchanges data between GPUs, through CuPy."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Any


def ncclModule() -> Any:
    """CuPy's module of NCCL; None where CuPy finds no library."""
    cuda: Any = sys.modules["cupy"].cuda
    if not hasattr(cuda, "nccl"):
        with suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its warning about a missing library is replaced below
            import_module("cupy.cuda.nccl")
    module = getattr(cuda, "nccl", None)
    return module if getattr(module, "available", False) else None


def missing() -> str:
    """Why NCCL cannot be used, and what to install; empty if it can."""
    if ncclModule() is not None:
        return ""
    if sys.platform != "linux":
        return "NCCL is there for Linux alone"
    family = sys.modules["cupy"].cuda.runtime.runtimeGetVersion() // 1000
    return f"CuPy finds no NCCL: pip install 'puregraph[cuda{family}]' brings it"


def release(version: int) -> str:
    """22707 as 2.27.7."""
    return f"{version // 10000}.{version % 10000 // 100}.{version % 100}"
