"""Diagnosis: the libraries that a GPU needs, the ones available, and the consequence of each missing one."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import NamedTuple

from puregraph.core import device
from puregraph.ops.cuda.libraries import cudnn, paths
from puregraph.ops.cuda.runtime import compiler
from puregraph.ops.product.cuda import cublaslt

DRIVER = "nvcuda.dll" if paths.WINDOWS else "libcuda.so.1"


class LibraryStatus(NamedTuple):
    """A library: the reason why it cannot be used, None if it can; its version; its CUDA family; and the consequence if
    it is missing."""

    missing: Callable[[], str | None]
    version: Callable[[], str]
    family: Callable[[], int]
    means: str


def parts() -> dict[str, str]:
    """The version of the driver and of each library, or what is missing and the consequence."""
    return {"driver": driver(), **{name: describe(part) for name, part in PARTS.items()}}


def lacking() -> list[str]:
    """The consequence of each missing library."""
    return [f"no {name}: {part.means}" for name, part in PARTS.items() if part.missing() is not None]


def driver() -> str:
    """The driver's version."""
    version = driverVersion()
    if version is None:
        return f"no {DRIVER} was found; nothing runs on a GPU, but kernels can be compiled, and run by the emulator"
    return f"for CUDA {device.release(version)}"


def driverVersion() -> int | None:
    """The newest CUDA that the driver supports: 13000 is 13.0; None where there is no driver."""
    version = ctypes.c_int()
    try:
        failed = ctypes.CDLL(DRIVER).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if failed or not version.value else version.value


def describe(part: LibraryStatus) -> str:
    """The status of a library in a sentence."""
    why = part.missing()
    if why is not None:
        return f"{why.partition(' (looked for')[0]}; {part.means}"
    family, cupy = part.family(), sys.modules.get("cupy")
    mine = cupy.cuda.runtime.runtimeGetVersion() // 1000 if cupy is not None else family
    if family != mine:
        return f"{part.version()}, for CUDA {family}, but CuPy is made for CUDA {mine}: they may not work together"
    return part.version()


def cudnnVersion() -> str:
    """cuDNN's version and that of its frontend."""
    library = cudnn.library()
    return f"{library.backend_version_string()}, frontend {library.__version__}"


def cudnnFamily() -> int:
    """The family of CUDA that cuDNN is built for."""
    return paths.load("cudnn", (cudnn.MAJOR,)).cudnnGetCudartVersion() // 1000


def cublasVersion() -> int:
    """cuBLASLt's version: 130100 is 13.1."""
    return cublaslt.library().version


PARTS = {
    "NVRTC": LibraryStatus(
        lambda: compiler.missing(),
        lambda: ".".join(map(str, compiler.version())),
        lambda: compiler.version()[0],
        "no step runs on a GPU",
    ),
    "cuBLASLt": LibraryStatus(
        lambda: cublaslt.missing(),
        lambda: f"{cublasVersion() // 10000}.{cublasVersion() % 10000 // 100}",
        lambda: cublasVersion() // 10000,
        "matrix products are done by own kernels, slower",
    ),
    "cuDNN": LibraryStatus(
        lambda: cudnn.missing(), cudnnVersion, cudnnFamily, "convolutions and attention are done by own kernels, slower"
    ),
}
