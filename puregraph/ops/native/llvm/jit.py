"""The just-in-time compiler: from the LLVM IR of a kernel to its address, through a cache on disk."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.base.environment import variable
from puregraph.core.errors import DeviceError
from puregraph.core.storage import diskcache
from puregraph.core.version import __version__
from puregraph.ops.native.threads.numthreads import threads

if TYPE_CHECKING:
    from types import ModuleType

ENTRY = "kernel"
FORMAT_VERSION = 1  # version of the stored kernels; a change invalidates all of them
OLDEST = (0, 44)
LEAST = {"x86": "+64bit", "arm": "+fp-armv8", "other": ""}  # declared present for a CPU known by name
CALLED = (
    "memcpy memmove memset bzero memset_pattern16 roundf rintf floorf ceilf truncf fminf fmaxf fmodf fmaf sqrtf powf "
)
CALLED += (
    "expf exp2f expm1f logf log2f log1pf sinf cosf tanf tanhf round rint floor ceil trunc fmin fmax fmod fma sqrt pow "
)
CALLED += "exp exp2 expm1 log log2 log1p sin cos tan tanh"

LOADED: dict[tuple[str, str, Target], LoadedKernel] = {}
LOCKS: dict[str, threading.Lock] = {}
LOADING = threading.Lock()
WRITING = threading.Lock()  # calls may share an epilogue, which holds the values of one builder at a time
HERE = threading.local()


class UnknownCpuError(DeviceError):
    """PUREGRAPH_CPU names no CPU that code can be compiled for here."""


class Target(NamedTuple):
    """The target of compilation: LLVM's name of the CPU, its features, and the vector size in bits."""

    name: str
    features: str
    bits: int


class LoadedKernel(NamedTuple):
    """A loaded kernel: its address, the names of its argument slots, and the bytes of scratch memory it asks for."""

    address: int
    names: tuple[str, ...]
    scratch: int


Make = Callable[[], tuple[str, Iterable[str], int]]


def __getattr__(name: str) -> Any:
    """`name`, `features` and `bits` of the target: asked for late, so that importing does not need LLVM."""
    if name in Target._fields:
        return getattr(target(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def processor() -> str:
    """The kind of this CPU: x86, arm or other."""
    kind = platform.machine().lower()
    return {"x86_64": "x86", "amd64": "x86", "arm64": "arm", "aarch64": "arm"}.get(kind, "other")


def lanes(itemsize: int) -> int:
    """The number of elements of a size in bytes in a vector."""
    return target().bits // 8 // itemsize


def multipliesBfloat16() -> bool:
    """True if the CPU multiplies bfloat16 and sums float32 (AVX512-BF16); unknown, so False, of a CPU by its name."""
    return "+avx512bf16" in target().features.split(",")


def available() -> bool:
    """True if kernels can be compiled here."""
    return missing() is None


@cache
def missing() -> str | None:
    """The reason why kernels cannot be compiled here; None if they can.

    Raises    UnknownCpuError for a wrong PUREGRAPH_CPU: code for another CPU is not what the user set
    """
    try:
        binding().check_jit_execution()
        target()
    except UnknownCpuError:
        raise
    except DeviceError as error:
        return str(error)
    except (OSError, RuntimeError) as error:
        return f"native kernels cannot run here: {error}"
    return None


@cache
def binding() -> ModuleType:
    """The llvmlite binding, initialised once.

    Raises    DeviceError where there is none that can be used
    """
    if not variable("NATIVE", True):
        raise DeviceError("native kernels are switched off by PUREGRAPH_NATIVE")
    try:
        import llvmlite.binding as L  # optional: the extra `fast`
    except (ImportError, OSError) as error:
        raise DeviceError(f"native kernels need llvmlite ({error}): pip install puregraph[fast]") from error
    if version() < OLDEST:
        actual, oldest = (".".join(map(str, which)) for which in (version(), OLDEST))
        raise DeviceError(f"native kernels need llvmlite {oldest} or newer, not {actual}: pip install puregraph[fast]")
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        raise DeviceError("native kernels need a 64-bit Python")
    if L.llvm_version_info[0] < 20:  # newer versions initialise themselves, and refuse
        L.initialize()
    L.initialize_native_target()
    L.initialize_native_asmprinter()
    provide(L)
    return L


@cache
def version() -> tuple[int, int]:
    """The version of llvmlite."""
    import llvmlite  # optional: the extra `fast`

    major, minor = llvmlite.__version__.split(".")[:2]
    return int(major), int(minor)


def provide(L: Any) -> None:
    """Register with LLVM the library functions that kernels may call, where it finds no symbol of the process."""
    import ctypes.util  # brings subprocess, and only compiling needs it

    names = [name for name in CALLED.split() if not L.address_of_symbol(name)]
    if os.name == "nt":
        libraries = [ctypes.CDLL("ucrtbase"), ctypes.CDLL("ntdll")]
        names.append("__chkstk")
    else:
        libraries = [ctypes.CDLL(None), ctypes.CDLL(ctypes.util.find_library("m"))] if names else []
    for name in names:
        function = next((getattr(library, name) for library in libraries if hasattr(library, name)), None)
        if function is not None:
            L.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)


def target() -> Target:
    """The CPU that kernels are compiled for: this one, or an older one that PUREGRAPH_CPU names."""
    return targetOf(os.environ.get("PUREGRAPH_CPU", ""))


@cache
def targetOf(name: str) -> Target:
    """The target of a name; of this CPU where the name is empty."""
    L = binding()
    if name:
        bits = probe(L, name)
        if bits == 0:
            raise UnknownCpuError(
                f"PUREGRAPH_CPU={name}: LLVM knows no such CPU; wanted its name for this one, {L.get_host_cpu_name()}, "
                "or for one that can do less, such as x86-64-v2"
            )
        return Target(name, LEAST[processor()], bits)
    features = L.get_host_cpu_features()
    return Target(L.get_host_cpu_name(), features.flatten(), widest(features))


def widest(features: dict[str, bool]) -> int:
    """The bits of the vectors of a CPU with these features."""
    return next((bits for feature, bits in (("avx512f", 512), ("avx2", 256)) if features.get(feature)), 128)


def probe(L: Any, name: str) -> int:
    """The vector bits of a CPU known by its name alone, read from code that LLVM emits for it; 0 for an unknown one.

    LLVM ends the process if a CPU lacks a feature of every 64-bit CPU, so these features are declared present.
    """
    text = (
        "define void @f(<16 x i32>* %p, i64* %q) {\n"
        " %x = load <16 x i32>, <16 x i32>* %p\n %y = add <16 x i32> %x, %x\n store <16 x i32> %y, <16 x i32>* %p\n"
        " %z = cmpxchg i64* %q, i64 0, i64 1 acquire monotonic\n ret void\n}"
    )
    with L.create_context() as context, L.parse_assembly(text, context) as module:
        assembly = createMachine(L, name, LEAST[processor()]).emit_assembly(module)
    if "__atomic" in assembly:  # threads need native atomics, which every CPU of 64 bits has
        return 0
    widths = {"x86": (("zmm", 512), ("ymm", 256), ("xmm", 128)), "arm": ((".4s", 128),), "other": (("", 128),)}
    return next((bits for register, bits in widths[processor()] if register in assembly), 0)


def createMachine(L: Any, name: str, features: str) -> Any:
    """A target machine of LLVM for this system and a CPU."""
    return L.Target.from_triple(L.get_process_triple()).create_target_machine(
        cpu=name, features=features, opt=3, jit=True
    )


def machineHere() -> Any:
    """The target machine of this thread: LLVM's are not thread-safe."""
    wanted = target()
    if getattr(HERE, "target", None) != wanted:
        HERE.machine = createMachine(binding(), wanted.name, wanted.features)
        HERE.layout = str(HERE.machine.target_data)
        HERE.target = wanted
    return HERE.machine


def objectFrom(text: str, symbol: str = ENTRY) -> bytes:
    """The object code of LLVM IR, optimised for the target; its function `kernel` is named `symbol` there.

    Raises    ValueError with the message of LLVM if the text is not valid IR
    """
    L = binding()
    machine = machineHere()
    with L.create_context() as context:
        try:
            with L.parse_assembly(text, context) as module:
                module.triple = machine.triple
                module.data_layout = HERE.layout
                module.verify()
                expose(module, symbol)
                optimise(L, module, machine)
                return emit(L, module, machine)
        except RuntimeError as error:
            raise ValueError(f"LLVM refuses the code of a kernel: {error}") from error


def expose(module: Any, symbol: str) -> None:
    """Export only the kernel, under a unique symbol, because one engine loads all objects."""
    try:
        kernel = module.get_function(ENTRY)
    except NameError as error:
        raise RuntimeError(f"there is no function named '{ENTRY}'") from error
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration:
            value.linkage = "internal"
    kernel.linkage = "external"
    kernel.name = symbol


def optimise(L: Any, module: Any, machine: Any) -> None:
    """Run LLVM's optimisation passes over a module."""
    tuning = L.create_pipeline_tuning_options(
        speed_level=1
    )  # kernels are vectorised already; more passes only take longer
    builder = L.create_pass_builder(machine, tuning)
    free(L, "LLVMPY_RunNewModulePassManager")(builder.getModulePassManager(), module, builder)


def emit(L: Any, module: Any, machine: Any) -> bytes:
    """The object code of a module."""
    lib = L.ffi.lib
    with L.ffi.OutputString() as error:
        buffer = free(L, "LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        return ctypes.string_at(lib.LLVMPY_GetBufferStart(buffer), lib.LLVMPY_GetBufferSize(buffer))
    finally:
        lib.LLVMPY_DisposeMemoryBuffer(buffer)


def free(L: Any, name: str) -> Any:
    """A function of LLVM without llvmlite's global lock, which calls on separate contexts do not need."""
    function = getattr(L.ffi.lib, name)
    return getattr(function, "_cfn", function)


def load(key: str, make: Make, digest: str = "") -> LoadedKernel:
    """The kernel stored under a key; `make` gives its IR, argument names and scratch bytes on a cache miss.

    `digest` distinguishes versions of the code behind `make`. Loaded kernels stay for the life of the process.
    """
    slot = slotOf(key, digest)
    library = LOADED.get(slot)
    if library is None:
        name = nameOf(key, digest)
        with LOCKS.setdefault(name, threading.Lock()):
            library = LOADED.get(slot)
            if library is None:
                library = LOADED[slot] = stored(name) or compiled(name, key, make)
    return library


def compileAll(wants: Iterable[tuple[str, Make]], digest: str = "") -> list[LoadedKernel]:
    """Load each kernel; compile missing ones in parallel."""
    from concurrent.futures import ThreadPoolExecutor  # brings logging, and only compiling needs it

    wants = list(wants)
    missing = [want for want in wants if slotOf(want[0], digest) not in LOADED]
    count = min(threads(), len(missing))
    if count > 1:
        with ThreadPoolExecutor(count) as executor:
            list(executor.map(lambda want: load(want[0], want[1], digest), missing))
    return [load(key, make, digest) for key, make in wants]


def slotOf(key: str, digest: str) -> tuple[str, str, Target]:
    """Cache key of a loaded kernel: its own key, the version of the code behind it, and the target."""
    return key, digest, target()


def nameOf(key: str, digest: str) -> str:
    """The name of a kernel's file: a hash of all that its object code depends on."""
    facts = (FORMAT_VERSION, key, digest, __version__, stamp(), *target())
    return hashlib.blake2b(repr(facts).encode(), digest_size=20).hexdigest()


@cache
def stamp() -> str:
    """The compiler and the system it compiles for."""
    import llvmlite  # optional: the extra `fast`

    L = binding()
    return f"{llvmlite.__version__} {L.llvm_version_info} {L.get_process_triple()} {platform.system()}"


def stored(name: str) -> LoadedKernel | None:
    """The cached kernel of a name; None if it is missing or cannot be loaded."""
    entry = diskcache.read(name, names=list, scratch=int)
    if entry is None:
        return None
    header, data = entry
    with suppress(DeviceError):
        return LoadedKernel(addressOf(data, symbolOf(name)), tuple(header["names"]), header["scratch"])
    return None


def compiled(name: str, key: str, make: Make) -> LoadedKernel:
    """A kernel compiled now, and stored."""
    with WRITING:
        text, names, scratch = make()
    names = tuple(names)
    try:
        data = objectFrom(text, symbolOf(name))
    except ValueError as error:
        raise ValueError(f"kernel '{key}': {error}") from error
    library = LoadedKernel(addressOf(data, symbolOf(name)), names, scratch)
    diskcache.write(name, {"names": names, "scratch": scratch, "key": key}, data)
    return library


def symbolOf(name: str) -> str:
    """The symbol of a kernel in its object."""
    return f"puregraph_{name}"


def addressOf(data: bytes, symbol: str) -> int:
    """Load an object, for the life of the process; the address of its kernel."""
    L = binding()
    with LOADING:
        loader = engine()
        loader.add_object_file(L.object_file.ObjectFileRef.from_data(data))
        loader.finalize_object()
        address = loader.get_function_address(symbol)
    if not address:
        raise DeviceError(f"an object without '{symbol}' cannot be loaded")
    return address


@cache
def engine() -> Any:
    """The engine that loads objects, never freed: a daemon thread may run a kernel while the interpreter ends."""
    L = binding()
    made = L.create_mcjit_compiler(L.parse_assembly(""), createMachine(L, "", ""))
    made.close = made.detach
    return made


def renew() -> None:
    """After a fork: a lock may have been held by a thread that does not exist in the child."""
    global LOADING, WRITING
    LOCKS.clear()
    LOADING, WRITING = threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=renew)
