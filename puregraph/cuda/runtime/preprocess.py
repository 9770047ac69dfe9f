"""Source: the text that a compiler is given, and C's names for numpy's dtypes.

The portable subset of CUDA C that kernels are written in: no headers but `common.h`, no fixed vector types beyond its
Pack, shared memory by `__shared__` and DYNAMIC, device functions `static`, and no atomics on floats.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

STORED = {
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float16": "Half",
    "bfloat16": "Bfloat",
    "float32": "float",
    "float64": "double",
}

FLOATS = ("float16", "bfloat16", "float32", "float64")


class Bfloat:
    """bfloat16, of which numpy has no dtype: what launches ask of one. Such numbers lie on a GPU alone."""

    name, itemsize, kind = "bfloat16", 2, "f"

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return "BFLOAT16"


BFLOAT16 = Bfloat()


def dtypeOf(dtype: Any) -> Any:
    """A dtype, given itself or by its name; bfloat16 even where numpy knows none."""
    try:
        return dtype if isinstance(dtype, Bfloat) else np.dtype(dtype)
    except TypeError:
        if dtype != BFLOAT16.name:
            raise
        return BFLOAT16


def named(dtype: Any) -> str:
    """The name of a dtype."""
    return dtype.name if isinstance(dtype, (np.dtype, Bfloat)) else np.dtype(dtype).name


def stored(dtype: Any) -> str | None:
    """What numbers of a dtype are in memory, in C; None where kernels know no such numbers."""
    return STORED.get(named(dtype))


def computed(dtype: Any) -> str:
    """What they are while one computes with them: float for float16 and bfloat16, else what they are in memory."""
    kind = STORED[named(dtype)]
    return "float" if kind in ("Half", "Bfloat") else kind


def areFloats(*arrays: Any) -> bool:
    """Whether all arrays hold floats, of whatever sizes."""
    return all(x.dtype.name in FLOATS for x in arrays)


@cache
def read(name: str) -> str:
    """A file of C that lies beside this one."""
    return (Path(__file__).parent.parent / "headers" / name).read_text(encoding="utf-8")


def defined(names: dict[str, Any]) -> str:
    """The beginning of a text: what names stand for in the rest of it."""
    return "".join(f"#define {name} {what}\n" for name, what in names.items())


def digest(*parts: Any) -> str:
    """A name for something that is made of these parts."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=20).hexdigest()
