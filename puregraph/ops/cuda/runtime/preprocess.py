"""The text that a compiler is given, and C's names for numpy's dtypes.

The portable subset of CUDA C that kernels are written in: no headers but `common.h`, no fixed vector types beyond its
Pack, shared memory by `__shared__` and DYNAMIC, device functions `static`, and no atomics on floats.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import DTypeLike

    from puregraph.core.protocols import Strided

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
    """bfloat16, as a dtype stand-in for launches: numpy has none. Such arrays exist on a GPU only."""

    name, itemsize, kind = "bfloat16", 2, "f"

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return "BFLOAT16"


BFLOAT16 = Bfloat()


def dtypeOf(dtype: DTypeLike) -> Any:
    """A dtype, given itself or by its name; bfloat16 even where numpy knows none."""
    try:
        return dtype if isinstance(dtype, Bfloat) else np.dtype(dtype)
    except TypeError:
        if dtype != BFLOAT16.name:
            raise
        return BFLOAT16


def named(dtype: DTypeLike) -> str:
    """The name of a dtype."""
    return dtype.name if isinstance(dtype, (np.dtype, Bfloat)) else np.dtype(dtype).name


def stored(dtype: DTypeLike) -> str | None:
    """The storage type of a dtype in C; None for dtypes that kernels do not support."""
    return STORED.get(named(dtype))


def computed(dtype: DTypeLike) -> str:
    """The type that is computed in: float for float16 and bfloat16, else the storage type."""
    kind = STORED[named(dtype)]
    return "float" if kind in ("Half", "Bfloat") else kind


def areFloats(*arrays: Strided) -> bool:
    """True if all arrays hold floats of any size."""
    return all(x.dtype.name in FLOATS for x in arrays)


@cache
def read(name: str) -> str:
    """A file of C from the folder `headers`."""
    return (Path(__file__).parent.parent / "headers" / name).read_text(encoding="utf-8")


def defined(names: Mapping[str, object]) -> str:
    """The beginning of a text: macros with their values."""
    return "".join(f"#define {name} {what}\n" for name, what in names.items())


def digest(*parts: Any) -> str:
    """A hash of parts, as a name."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=20).hexdigest()
