"""cuBLASLt through ctypes: the descriptors of a matrix product, and its launch on a stream.

Everything here is column-major, as in the library; `product` maps arrays to that. Descriptors and
layouts need no device; `choose`, which asks for the algorithm, and `run` do.

Source    NVIDIA, cuBLAS 13.1 documentation, "Using the cuBLASLt API"; its header cublasLt.h
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from puregraph.core import device
from puregraph.core.errors import DeviceError
from puregraph.ops.cuda.libraries import paths
from puregraph.ops.cuda.runtime.perdevice import PerDevice, ordinal

WORKSPACE = 32 << 20  # bytes, as NVIDIA recommends from Hopper on
ALIGNED = 256  # bytes; no algorithm asks for more
CANDIDATES = 8
HINT = "the extras puregraph[cuda12] and puregraph[cuda13] bring it"

TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType
COMPUTES = {"float32": (68, "float32"), "tf32": (77, "float32"), "float64": (70, "float64")}  # and the type of alpha

RELU, BIAS, GELU, KEPT = 2, 4, 32, 128  # cublasLtEpilogue_t, whose values are sums of these
BACKRELU, BACKGELU, TOTAL = 8 | KEPT, 64 | KEPT, 16
TOTALA, TOTALB = 256, 512
PLAIN = 1

TRANSA, TRANSB, EPILOGUE, VECTOR, KEPTAT, KEPTLD, KEPTSTRIDE = 3, 4, 7, 8, 11, 12, 13  # cublasLtMatmulDescAttributes_t
COUNT, STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
WORKSPACE_ATTRIBUTE, ALIGNMENTS = (
    1,
    (5, 6, 7, 8),
)  # cublasLtMatmulPreferenceAttributes_t: workspace; alignments of A, B, C and D

CHOSEN: dict[Any, Any] = {}  # by GPU, task and alignment
CHOOSING = threading.Lock()


class MatrixLayout(NamedTuple):
    """A batch of matrices in memory: element (i, j) of the b-th is at i + j ld + b stride."""

    kind: str
    rows: int
    columns: int
    ld: int
    copies: int = 1
    stride: int = 0


class TaskAddresses(NamedTuple):
    """The addresses of a task: A, B, D, its vector, and values kept for backward; 0 if absent."""

    a: int
    b: int
    d: int
    vector: int = 0
    kept: int = 0

    @property
    def aligned(self) -> TaskAddresses:
        """The highest power of two, up to 256, that divides each address: algorithms depend on nothing else of it."""
        return TaskAddresses(*[min(at & -at, ALIGNED) or ALIGNED for at in self])


class GemmTask(NamedTuple):
    """D = epilogue(alpha op(A) op(B) + beta D), where op is the transpose if A, or B, is transposed.

    The epilogue is a sum of the constants above: a vector, one element a row of D, is added, or gets sums; a further
    matrix keeps the input of an activation for backward, elements for Gelu, bits for Relu.
    """

    compute: str
    a: MatrixLayout
    b: MatrixLayout
    d: MatrixLayout
    transA: bool
    transB: bool
    epilogue: int = PLAIN
    keptLd: int = 0
    keptStride: int = 0
    alpha: float = 1.0
    beta: float = 0.0


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t"""

    _fields_ = [("data", ctypes.c_uint64 * 8)]


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = [
        ("algorithm", Algorithm),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class CublasLt:
    """libcublasLt with the types of the functions that are used here."""

    def __init__(self) -> None:
        c = self.c = paths.load("cublasLt", hint=HINT)
        where, size, integer = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        c.cublasLtGetVersion.restype = size
        c.cublasLtGetStatusString.argtypes, c.cublasLtGetStatusString.restype = [integer], ctypes.c_char_p
        self.type("cublasLtCreate", where)
        self.type("cublasLtMatmulDescCreate", where, integer, integer)
        self.type("cublasLtMatrixLayoutCreate", where, integer, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64)
        self.type("cublasLtMatmulPreferenceCreate", where)
        for kind in ("MatmulDesc", "MatrixLayout", "MatmulPreference"):
            self.type(f"cublasLt{kind}Destroy", where)
            self.type(f"cublasLt{kind}SetAttribute", where, integer, where, size)
        for kind in ("MatmulDesc", "MatrixLayout"):
            self.type(f"cublasLt{kind}GetAttribute", where, integer, where, size, where)
        self.type("cublasLtMatmulAlgoGetHeuristic", *[where] * 7, integer, where, where)
        self.type("cublasLtMatmul", *[where] * 14, size, where)

    def type(self, name: str, *arguments: object) -> None:
        """Declare the arguments of a function that returns a status."""
        getattr(self.c, name).argtypes = list(arguments)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function.

        Raises    DeviceError with the library's message if it does not succeed
        """
        status = getattr(self.c, f"cublasLt{name}")(*arguments)
        if status:
            words = self.c.cublasLtGetStatusString(status).decode()
            raise DeviceError(f"cublasLt{name} refused, in cuBLASLt {self.version}: {words}")

    @property
    def version(self) -> int:
        """The library's version: 130100 is 13.1."""
        return self.c.cublasLtGetVersion()


@cache
def library() -> CublasLt:
    """The library, loaded at first use.

    Raises    DeviceError where it is not installed
    """
    return CublasLt()


@cache
def missing() -> str | None:
    """The reason why cuBLASLt cannot be used; None if it can."""
    try:
        library()
    except DeviceError as error:
        return str(error)
    return None


@PerDevice
def handle() -> ctypes.c_void_p:
    """The library's handle on the current GPU; it lives as long as the process.

    Raises    DeviceError where there is no device
    """
    created = ctypes.c_void_p()
    library().call("Create", ctypes.byref(created))
    return created


class CublasObject:
    """A library object with attributes; freed with its last reference."""

    def __init__(self, kind: str, *arguments: object) -> None:
        self.kind, self.at, self.library = kind, ctypes.c_void_p(), library()
        self.library.call(f"{kind}Create", ctypes.byref(self.at), *arguments)

    def set(self, attribute: int, value: Any) -> None:
        """Set an attribute to a value of ctypes."""
        self.library.call(f"{self.kind}SetAttribute", self.at, attribute, ctypes.byref(value), ctypes.sizeof(value))

    def get(self, attribute: int, kind: Any) -> Any:
        """The value of an attribute of a type of ctypes."""
        value, written = kind(), ctypes.c_size_t()
        size = ctypes.sizeof(value)
        where = ctypes.byref(value), size, ctypes.byref(written)
        self.library.call(f"{self.kind}GetAttribute", self.at, attribute, *where)
        return value.value

    def __del__(self) -> None:
        if getattr(self, "at", None):
            getattr(self.library.c, f"cublasLt{self.kind}Destroy")(self.at)


class Matmul:
    """The descriptors of a task, and the algorithm that was chosen for it."""

    def __init__(self, task: GemmTask) -> None:
        self.task = task
        compute, scale = COMPUTES[task.compute]
        self.description = CublasObject("MatmulDesc", compute, TYPES[scale])
        self.layouts = [layoutOf(matrix) for matrix in (task.a, task.b, task.d)]
        number = ctypes.c_double if scale == "float64" else ctypes.c_float
        self.alpha, self.beta = number(task.alpha), number(task.beta)
        self.algorithm: Any = None
        for attribute, value in (
            (TRANSA, ctypes.c_int32(task.transA)),
            (TRANSB, ctypes.c_int32(task.transB)),
            (EPILOGUE, ctypes.c_uint32(task.epilogue)),
        ):
            self.description.set(attribute, value)
        if task.epilogue & KEPT:
            self.description.set(KEPTLD, ctypes.c_int64(task.keptLd))
            self.description.set(KEPTSTRIDE, ctypes.c_int64(task.keptStride))

    def point(self, at: TaskAddresses) -> None:
        """Set the addresses of the vector and of the kept values."""
        if self.task.epilogue & (BIAS | TOTAL | TOTALA | TOTALB):
            self.description.set(VECTOR, ctypes.c_void_p(at.vector))
        if self.task.epilogue & KEPT:
            self.description.set(KEPTAT, ctypes.c_void_p(at.kept))

    def choose(self, at: TaskAddresses) -> bool:
        """Ask for the algorithm, once for each task and alignment; whether there is any."""
        key = ordinal(), self.task, at.aligned
        with CHOOSING:
            if key not in CHOSEN:
                CHOSEN[key] = self.candidates(at.aligned)[:1]
            self.algorithm = CHOSEN[key][0] if CHOSEN[key] else None
        return self.algorithm is not None

    def candidates(self, at: TaskAddresses) -> list[Heuristic]:
        """The library's proposals for memory of this alignment, best first."""
        preference = CublasObject("MatmulPreference")
        preference.set(WORKSPACE_ATTRIBUTE, ctypes.c_uint64(WORKSPACE))
        for attribute, bytes in zip(ALIGNMENTS, (at.a, at.b, at.d, at.d)):
            preference.set(attribute, ctypes.c_uint32(bytes))
        self.point(at)
        heuristics, count = (Heuristic * CANDIDATES)(), ctypes.c_int()
        a, b, d = [layout.at for layout in self.layouts]
        what = handle(), self.description.at, a, b, d, d, preference.at, CANDIDATES, heuristics, ctypes.byref(count)
        status = library().c.cublasLtMatmulAlgoGetHeuristic(*what)
        return [heuristic for heuristic in heuristics[: count.value] if heuristic.state == 0] if status == 0 else []

    def tune(self, at: TaskAddresses, time: Callable[[], float]) -> None:
        """Measure the proposals with `time`, and use the fastest from now on."""
        times: list[tuple[float, int, Heuristic]] = []
        for algorithm in self.candidates(at.aligned):
            self.algorithm = algorithm
            times.append((time(), len(times), algorithm))
        with CHOOSING:
            CHOSEN[ordinal(), self.task, at.aligned] = [min(times)[2]] if times else []
        self.choose(at)

    def run(self, at: TaskAddresses, workspace: int, stream: int) -> None:
        """Launch the product on a stream."""
        self.point(at)
        a, b, d = [layout.at for layout in self.layouts]
        library().call(
            "Matmul",
            *(handle(), self.description.at, ctypes.byref(self.alpha), at.a, a, at.b, b),
            *(ctypes.byref(self.beta), at.d, d, at.d, d, ctypes.byref(self.algorithm.algorithm)),
            *(workspace, WORKSPACE if workspace else 0, stream),
        )


def isPossible(task: GemmTask) -> bool:
    """True if the library has an algorithm for a task with aligned memory; assumed if no GPU is in use."""
    if device.name() != "cuda":
        return True
    return missing() is None and Matmul(task).choose(TaskAddresses(ALIGNED, ALIGNED, ALIGNED, ALIGNED, ALIGNED))


def layoutOf(matrix: MatrixLayout) -> CublasObject:
    """The library's descriptor of a matrix."""
    layout = CublasObject("MatrixLayout", TYPES[matrix.kind], matrix.rows, matrix.columns, matrix.ld)
    if matrix.copies > 1:
        layout.set(COUNT, ctypes.c_int32(matrix.copies))
        layout.set(STRIDE, ctypes.c_int64(matrix.stride))
    return layout
