"""The compute device: numpy on the CPU or CuPy on a GPU, chosen once, with a reason; moving arrays."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from contextlib import ExitStack, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from puregraph.core.base.mutex import Mutex
from puregraph.core.errors import DeviceError

if TYPE_CHECKING:
    import cupy

    from puregraph.core.protocols import AnyArray

Array: TypeAlias = "np.ndarray | cupy.ndarray"  # on either device

VARIABLE = "PUREGRAPH_DEVICE"
CHOICES = ("auto", "cpu", "cuda")
LIMITS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
PACKAGES = ("puregraph", "numpy", "h5py", "rich", "cupy-cuda12x", "cupy-cuda13x", "nvidia-cudnn-frontend", "llvmlite")
EXTRAS = "the extras puregraph[cuda12] and puregraph[cuda13] bring it"


class Choice(NamedTuple):
    """A device, the module that makes its arrays, and the reason why it was chosen."""

    name: str
    arrays: Any
    reason: str


class DeviceChooser:
    """The only state of this module: the device in use, and the result of the search for a GPU."""

    def __init__(self) -> None:
        self.mutex = Mutex()
        self.chosen: Choice | None = None
        self.probed: tuple[Any, str] | None = None

    def current(self) -> Choice:
        """Return the device in use, initially the one that the environment asks for."""
        if self.chosen is None:
            with self.mutex.lock:
                if self.chosen is None:
                    wanted = os.environ.get(VARIABLE) or "auto"
                    self.chosen = self.choose(wanted, f"{VARIABLE}={wanted}")
        return self.chosen

    def choose(self, wanted: str, asker: str) -> Choice:
        """Return the device for "auto", "cpu" or "cuda" on this machine.

        Raises    DeviceError with the choices, or the reason why no GPU can be used
        """
        if wanted not in CHOICES:
            raise DeviceError(f"{asker}: wanted one of {', '.join(CHOICES)}, got {wanted!r}")
        if wanted == "cpu":
            return Choice("cpu", np, f"cpu, because {asker}")
        with self.mutex.lock:
            if self.probed is None:
                self.probed = probe()
        cupy, reason = self.probed
        if cupy is not None:
            return Choice("cuda", cupy, f"cuda, because {reason}")
        if wanted == "cuda":
            raise DeviceError(f"{asker}: no GPU can be used, because {reason}; 'cpu' and 'auto' work")
        return Choice("cpu", np, f"cpu, because {reason}")


chooser = DeviceChooser()


def probe() -> tuple[ModuleType | None, str]:
    """Return CuPy if a test kernel ran on a GPU, otherwise None; and the reason."""
    if sys.modules.get("cupy") is None and importlib.util.find_spec("cupy") is None:
        return None, f"CuPy is not installed ({EXTRAS})"
    try:
        import cupy  # an optional dependency
    except Exception as error:  # a broken installation raises more than ImportError
        return None, f"CuPy cannot be imported: {brief(error)}"
    try:
        if not cupy.cuda.is_available():
            return None, without(cupy)
        result = cupy.asnumpy(cupy.asarray(np.array([1.5], np.float32)) + 1.0)
        gpu = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    except Exception as error:  # driver, compiler and library faults have no common class
        missing = f"NVRTC, which compiles kernels, cannot be used: {EXTRAS}; " if "nvrtc" in str(error).lower() else ""
        return None, f"{missing}a test kernel did not run with CuPy {cupy.__version__}: {brief(error)}"
    if result.tolist() != [2.5]:
        return None, f"a test kernel gave a wrong result on {gpu}: wanted [2.5], got {result.tolist()}"
    return cupy, f"a test kernel ran on {gpu} with CuPy {cupy.__version__}"


def without(cupy: ModuleType) -> str:
    """Return the reason why CuPy finds no usable GPU."""
    mine, driver = f"CuPy {cupy.__version__}", 0
    with suppress(Exception):  # the driver may be broken
        driver, wanted = cupy.cuda.runtime.driverGetVersion(), cupy.cuda.runtime.runtimeGetVersion()
    if not driver:
        return f"{mine} is installed, but finds no NVIDIA driver"
    if driver // 1000 < wanted // 1000:
        family = f"cupy-cuda{driver // 1000}x"
        return (
            f"{mine} is made for CUDA {release(wanted)}, the NVIDIA driver for CUDA {release(driver)}: "
            f"install {family} in place of it, or a newer driver"
        )
    return f"{mine} finds an NVIDIA driver for CUDA {release(driver)}, but no GPU that it can use"


def release(version: int) -> str:
    """Format a CUDA version: 13020 as 13.2."""
    return f"{version // 1000}.{version % 1000 // 10}"


def brief(error: Exception) -> str:
    """The type and the first line of an error."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def name() -> str:
    """The device in use: "cpu" or "cuda"."""
    return chooser.current().name


def reason() -> str:
    """One sentence: the device in use, and the reason for it."""
    return chooser.current().reason


def arrays() -> ModuleType:
    """The module that makes arrays on the device in use: numpy or cupy."""
    return chooser.current().arrays


def useDevice(wanted: str) -> ExitStack:
    """Use "cpu", "cuda" or "auto" from now on; as `with useDevice("cpu"):` until the block ends.

    This holds for every thread. Arrays that exist stay where they are.

    Raises    DeviceError listing the choices, or why no GPU can be used; the device then does not change
    """
    before = chooser.chosen
    chooser.chosen = chooser.choose(wanted if isinstance(wanted, str) else repr(wanted), f"useDevice({wanted!r})")
    undo = ExitStack()
    undo.callback(setattr, chooser, "chosen", before)
    return undo


def isDeviceArray(x: object) -> bool:
    """True for a CuPy array; never imports CuPy to find out."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(x, getattr(cupy, "ndarray", ()))


def toDevice(array: AnyArray) -> AnyArray:
    """The array on the device in use; one that is there already comes back unchanged."""
    current = chooser.current()
    return toHost(array) if current.arrays is np else current.arrays.asarray(array)


def toHost(array: Any) -> np.ndarray:
    """A CuPy array, a list or a number as a numpy array; a numpy array comes back unchanged."""
    return sys.modules["cupy"].asnumpy(array) if isDeviceArray(array) else np.asarray(array)


def synchronize() -> None:
    """Wait until the device has finished all work; no effect on the CPU."""
    current = chooser.current()
    if current.arrays is not np:
        current.arrays.cuda.Device().synchronize()


def threads() -> int:
    """The number of CPU threads for numpy's matrix products."""
    hasAffinity = hasattr(os, "sched_getaffinity")  # Linux only
    cores = len(os.sched_getaffinity(0)) if hasAffinity else os.cpu_count() or 1
    limits = [os.environ.get(limit, "").split(",")[0].strip() for limit in LIMITS]
    wanted = next((int(limit) for limit in limits if limit.isdecimal() and int(limit) > 0), cores)
    return min(wanted, cores)


def versions() -> dict[str, str]:
    """The versions of Python, the platform and the relevant packages, or "not installed"."""
    import importlib.metadata  # takes 30 ms, so it is imported only for this table

    table = {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    for package in PACKAGES:
        try:
            table[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            table[package] = "not installed"
    return table
