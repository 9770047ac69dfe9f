"""Paths of NVIDIA's libraries: in wheels of their own, beside CuPy, in a CUDA toolkit, or on the loader's path."""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
import sys
from collections.abc import Iterator
from functools import cache

from puregraph.core.errors import DeviceError

FAMILIES = (13, 12)  # major versions of CUDA, newest first
TOOLKITS = ("CUDA_PATH", "CUDA_HOME")
WINDOWS = os.name == "nt"


@cache
def load(stem: str, versions: tuple[int, ...] = (), hint: str = "") -> ctypes.CDLL:
    """The library of a name, such as "cublasLt"; loaded once.

    `versions` are its interface versions, best first; by default the CUDA families.

    Raises    DeviceError with the paths searched
    """
    tried = []
    for name in candidates(stem, versions or families()):
        try:
            loadCompanions(name, stem)
            return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            tried.append(f"{name}: {error}" if os.path.exists(name) else name)
    raise DeviceError(f"no {stem} was found{f': {hint}' if hint else ''} (looked for {', '.join(tried)})")


def loadCompanions(path: str, stem: str) -> None:
    """Load the companions that only this library uses and looks up by name: NVRTC's own declarations."""
    for companion in glob.glob(f"{glob.escape(os.path.dirname(path))}/*{stem}-*") if os.path.dirname(path) else []:
        ctypes.CDLL(companion, mode=ctypes.RTLD_GLOBAL)


def families() -> tuple[int, ...]:
    """The families of CUDA; CuPy's first if CuPy is in use, since a process must not mix families."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return FAMILIES
    mine = cupy.cuda.runtime.runtimeGetVersion() // 1000
    return (mine, *(family for family in FAMILIES if family != mine))


def candidates(stem: str, versions: tuple[int, ...]) -> Iterator[str]:
    """Paths of files that exist, then names for the system to look up."""
    names = [fileName(stem, version) for version in versions]
    for name in names:
        for folder in folders():
            path = os.path.join(folder, name)
            if os.path.exists(path):
                yield path
    yield from names


def fileName(stem: str, version: int) -> str:
    """The file name of a library on this system."""
    return f"{stem}64_{version}.dll" if WINDOWS else f"lib{stem}.so.{version}"


@cache
def folders() -> list[str]:
    """The folders of NVIDIA's wheels, then of a toolkit named in the environment."""
    candidates = []
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for part in sorted(os.listdir(root)) if os.path.isdir(root) else []:
            candidates += [os.path.join(root, part, *inner) for inner in (("lib",), ("bin",), ("bin", "x86_64"))]
    for variable in TOOLKITS:
        if os.environ.get(variable):
            candidates += [os.path.join(os.environ[variable], inner) for inner in ("lib64", "lib", "bin")]
    return [folder for folder in candidates if os.path.isdir(folder)]
