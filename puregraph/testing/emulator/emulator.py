"""Emulator: GPU kernels, run on the CPU, and checked while they run.

g++ compiles the same text as NVRTC. The threads of a block run one after the other, each up to its next barrier or
shuffle. Faults that a GPU would not report are reported: an access outside an array, or between the elements of a
strided one; a misaligned access; a data race: two threads at the same bytes, one of them writing, with no
barrier between them; a barrier or shuffle that not all threads reach; a copy that is not awaited; an access by a
kernel that waits for the previous launch, before that wait; memory that is `__restrict__` and written through another
pointer. Uninitialized memory is nan.

Results are equal to a GPU's, except for the last bits of functions such as exp, and for products that are added: a GPU
rounds both operations together.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import count
from math import prod
from typing import Any, NamedTuple

import numpy as np

from puregraph.core.errors import DeviceError
from puregraph.core.storage import diskcache
from puregraph.ops.cuda.libraries.librarycall import LibraryCall
from puregraph.ops.cuda.runtime.launch import (
    PROCESSORS,
    TICKETS,
    Launch,
    PointerTable,
    Scratch,
    Tickets,
    memories,
    tables,
)
from puregraph.ops.cuda.runtime.preprocess import digest, read
from puregraph.testing.emulator.ptx import ownText, translated
from puregraph.testing.emulator.restrict import broken, restricted

RUNNING = threading.Lock()  # the runtime has one thread at a time
SHARED_MEMORY_BYTES = 227 << 10
ALIGNMENT_BYTES = 512  # alignment of an allocation on a GPU
ENTRY = re.compile(r'extern "C"\s+__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(')
FLAGS = """-std=gnu++17 -O1 -w -fPIC -shared -fno-strict-aliasing -ffp-contract=off -fno-exceptions -fno-rtti
-fvisibility=hidden""".split()
WATCHED = """-fsanitize=kernel-address,bounds,integer-divide-by-zero --param asan-globals=0 --param asan-stack=0
--param asan-instrumentation-with-call-threshold=0""".split()
LETTERS = {"bool": "b1", "float16": "h2", "bfloat16": "e2"}
FIRST = "extern int emulator_first;"  # precedes each text
MACRO = re.compile(r"^\s*#\s*define\s+(\w+)", re.MULTILINE)
PROGRAMS: dict[str, EmulatedText] = {}
LIBRARIES: dict[str, ctypes.CDLL] = {}
CTYPES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "int": (ctypes.c_int32, ("i4", "u4")),
    "long": (ctypes.c_int64, ("i8", "u8")),
    "float": (ctypes.c_float, ("f4",)),
    "double": (ctypes.c_double, ("f8",)),
}


class KernelError(RuntimeError):
    """A fault of a kernel that a GPU does not allow, or does not report."""


class EmulatedText(NamedTuple):
    """A compiled text: its kernels by name, the types and __restrict__ flags of their arguments, and whether kernels
    wait for the previous launch, which they may overlap."""

    kernels: dict[str, Any]
    wants: dict[str, list[tuple[str, str]]]
    addresses: Any
    restricted: dict[str, list[bool]]
    isDependent: bool


def available() -> bool:
    """True if kernels can be emulated here."""
    return missing() is None


@cache
def missing() -> str | None:
    """The reason why kernels cannot be emulated here; None if they can."""
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"):
        return "kernels are emulated on Linux only, on x86-64 and aarch64"
    try:
        runtime()
    except (DeviceError, OSError) as error:
        return f"kernels cannot be emulated: {error}"
    return None


@cache
def compiler() -> tuple[str, str]:
    """The path of g++, and its version.

    Raises    DeviceError where there is none
    """
    path = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("g++")
    if path is None:
        raise DeviceError("there is no g++ to compile them with; install it, or run them on a GPU")
    return path, subprocess.run([path, "-v"], capture_output=True, text=True).stderr


def named(text: str, flags: list[str]) -> str:
    """The name of a text's library in the cache."""
    return digest(text, flags, compiler()[1])


def build(text: str, flags: list[str]) -> bytes:
    """A shared library, compiled from preprocessed C++.

    Raises    DeviceError with the output of g++ if it fails
    """
    name = named(text, flags)
    cached = diskcache.read(name)
    if cached is not None:
        return cached[1]
    with tempfile.TemporaryDirectory(prefix="puregraph-") as folder:
        target = os.path.join(folder, "kernel.so")
        compiled(text, [*flags, "-x", "c++-cpp-output", "-", "-o", target, "-lm"])
        with open(target, "rb") as file:
            data = file.read()
    diskcache.write(name, {"key": "emulated"}, data)
    return data


def preprocessed(text: str) -> str:
    """A text with its macros expanded."""
    return compiled(text, ["-E", "-x", "c++", "-"])


def compiled(text: str, options: list[str]) -> str:
    """The output of g++ for a text.

    Raises    DeviceError with the output of g++ if it fails
    """
    made = subprocess.run([compiler()[0], *FLAGS, *options], input=text, capture_output=True, text=True)
    if made.returncode:
        raise DeviceError(f"g++ refuses the text of a kernel: {made.stderr[:2000]}")
    return made.stdout


def loaded(data: bytes, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """A library, loaded from its bytes."""
    with tempfile.NamedTemporaryFile(suffix=".so", delete=False) as file:
        file.write(data)
    try:
        return ctypes.CDLL(file.name, mode)
    finally:
        with suppress(OSError):
            os.unlink(file.name)


@cache
def runtime() -> ctypes.CDLL:
    """The runtime that runs and checks kernels."""
    text = preprocessed(ownText("emulator.cpp") + ownText("ptx.cpp"))
    library = loaded(build(text, ["-O2", "-fvisibility=default"]), ctypes.RTLD_GLOBAL)
    library.emulator_launch.restype = ctypes.c_char_p
    library.emulator_region.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_void_p,
        ctypes.c_int,
    ]
    return library


def program(source: str) -> EmulatedText:
    """A text, compiled and loaded for the life of the process."""
    if source not in PROGRAMS:
        prepare([source])
    return PROGRAMS[source]


def prepare(sources: Iterable[str]) -> None:
    """Compile texts and load them for the life of the process; all new ones are one run of g++."""
    runtime()
    names = {
        source: digest("note", named(beginning() + textOf(0, source), WATCHED))
        for source in sources
        if source not in PROGRAMS
    }
    new = []
    for source, name in names.items():
        cached = diskcache.read(name, library=str, number=int, restricted=dict)
        loadedLibrary = None if cached is None else library(cached[0]["library"])
        if cached is None or loadedLibrary is None:
            new.append(source)
        else:
            PROGRAMS[source] = programIn(loadedLibrary, source, cached[0]["number"], cached[0]["restricted"])
    if new:
        text = preprocessed("".join([beginning(), *map(textOf, count(), new)]))
        loadedLibrary = LIBRARIES[named(text, WATCHED)] = loaded(build(text, WATCHED))
        texts = text.split(FIRST)[1:]
        for number, source in enumerate(new):
            promises = {name: restricted(texts[number], name) for name in ENTRY.findall(source)}
            note = {"key": "emulated", "library": named(text, WATCHED), "number": number, "restricted": promises}
            diskcache.write(names[source], note, b"")
            PROGRAMS[source] = programIn(loadedLibrary, source, number, promises)


def library(name: str) -> ctypes.CDLL | None:
    """A library from the cache, loaded; None if it is no longer there."""
    if name not in LIBRARIES:
        cached = diskcache.read(name)
        if cached is None:
            return None
        LIBRARIES[name] = loaded(cached[1])
    return LIBRARIES[name]


@cache
def beginning() -> str:
    """The text that precedes all kernels."""
    return f'{ownText("emulator.h")}{ownText("ptx.h")}\n#line 1 "common.h"\n{translated(read("common.h"))}\n'


@cache
def common() -> frozenset[str]:
    """The macros that every text may use."""
    return frozenset(MACRO.findall(beginning()))


def textOf(number: int, source: str) -> str:
    """One of several texts in a library: in its own namespace and section; its macros are undefined at the end."""
    names = ENTRY.findall(source)
    body = translated(source.replace('extern "C"', ""))
    ends = "".join(f"KERNEL({number}, {name})\n" for name in names)
    macros = [name for name in dict.fromkeys(MACRO.findall(source)) if name not in common()]
    undone = "".join(f"#undef {name}\n" for name in macros)
    return (
        f'#undef SECTION\n#define SECTION "emulator_shared{number}"\n{FIRST}\nnamespace text{number} {{\n'
        f'#line 1 "kernel"\n{body}\n}}\n{undone}{ends}ADDRESSES({number})\n'
    )


def programIn(library: ctypes.CDLL, source: str, number: int, promises: dict[str, list[bool]]) -> EmulatedText:
    """The text with this index in a library; `promises` has the `__restrict__` flags of each kernel's parameters."""
    addresses = (ctypes.c_void_p * 6)()
    library[f"addresses{number}"](addresses)
    wants = {}
    for name in promises:
        buffer = ctypes.create_string_buffer(1024)
        library[f"describe{number}_{name}"](buffer)
        letters = buffer.value.decode()
        wants[name] = [(letters[i], letters[i + 1 : i + 3]) for i in range(0, len(letters), 3)]
    kernels = {name: library[f"run{number}_{name}"] for name in wants}
    return EmulatedText(kernels, wants, addresses, promises, "griddepcontrol.wait" in source)


def run(launches: Iterable[Launch | LibraryCall], arrayOf: Callable[[Any], np.ndarray] | None = None) -> None:
    """Run launches one after the other; `arrayOf` gives the numpy array for a slot that holds none.

    Raises    KernelError with the fault of a kernel, and where it is
    """
    launches = list(launches)
    prepare(launch.source for launch in launches if isinstance(launch, Launch))
    memory = GuardedMemory(launches, arrayOf or (lambda what: what))
    for launch in launches:
        if isinstance(launch, LibraryCall):
            launch.emulate([memory.at(what) for _, what in launch.slots])
            memory.written |= {id(what) for _, what in launch.slots}
        else:
            start(launch, memory)
        if any(memory.at(what).any() for what in memories([launch]) if what is TICKETS):
            raise KernelError(f"{launch.name}: a ticket is not 0 after the launch")
    memory.giveBack()


def start(launch: Launch, memory: GuardedMemory) -> None:
    """Run one launch on arrays in guarded memory."""
    code = program(launch.source)
    if launch.entry not in code.kernels:
        available = ", ".join(code.kernels) or "none"
        raise KernelError(f"{launch.name}: the text has no kernel {launch.entry!r}, only {available}")
    values = list(kernelValues(launch, code.wants[launch.entry], memory))
    demandApart(launch.name, launch.entry, code, memory.share(launch))
    try:
        regions = memory.regionsOf(launch)
        call(code, launch.entry, launch.grid, launch.block, launch.shared, values, regions, launch.cooperative)
    except KernelError as error:
        raise KernelError(f"{launch.name}: {error}") from None


def demandApart(name: str, entry: str, code: EmulatedText, share: Callable[[int, int], bool]) -> None:
    """Raise KernelError if two arguments of a launch share memory although their kernel declares them __restrict__."""
    conflict = broken([role for role, _ in code.wants[entry]], code.restricted[entry], share)
    if conflict is not None:
        i, j, written = conflict
        raise KernelError(
            f"{name}: argument {i} of {entry} is __restrict__, but shares memory with argument {j}, and "
            f"argument {written} is written"
        )


def call(
    code: EmulatedText,
    entry: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    values: list[Any],
    regions: Iterable[Region],
    cooperative: bool = False,
) -> None:
    """Run a kernel on C values and addresses; `regions` are the memory that it may access.

    Blocks of a `cooperative` launch take turns; those of others run one after the other.

    Raises    KernelError with its fault and position
    """
    limits = (block, (1024, 1024, 64)), (grid, (2**31 - 1, 65535, 65535))
    isThere = all(1 <= n <= most for sizes, mosts in limits for n, most in zip(sizes, mosts))
    if not isThere or block[0] * block[1] * block[2] > 1024:
        raise KernelError(f"a GPU has no grid {grid} of blocks {block}")
    if cooperative and prod(grid) > PROCESSORS:
        raise KernelError(f"a large GPU has {PROCESSORS} processors for blocks that wait for each other, not {grid}")
    if shared > SHARED_MEMORY_BYTES:
        raise KernelError(f"a block of a large GPU has {SHARED_MEMORY_BYTES} bytes of shared memory, not {shared}")
    library = runtime()
    with RUNNING:
        for region in regions:
            isOurs = None if region.isOurs is None else region.isOurs.ctypes.data
            memory = region.memory
            library.emulator_region(memory.ctypes.data, memory.nbytes, region.unit, isOurs, region.number)
        fault = library.emulator_launch(
            ctypes.cast(code.kernels[entry], ctypes.c_void_p),
            (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values]),
            code.addresses,
            (ctypes.c_uint * 3)(*grid),
            (ctypes.c_uint * 3)(*block),
            ctypes.c_uint64(shared),
            ctypes.c_int(cooperative),
            ctypes.c_int(code.isDependent),
        )
    if fault is not None:
        raise KernelError(f"{entry}, {fault.decode()}")


def kernelValues(launch: Launch, wants: list[tuple[str, str]], memory: GuardedMemory) -> Iterable[Any]:
    """The arguments of a kernel as C values, each checked against the type that the kernel declares."""
    if len(wants) != len(launch.slots):
        raise KernelError(f"{launch.name}: {launch.entry} takes {len(wants)} arguments, got {len(launch.slots)}")
    for i, ((role, letters), (kind, what)) in enumerate(zip(wants, launch.slots)):
        title = f"{launch.name}: argument {i} of {launch.entry}"
        if kind == "pointer":
            array = memory.at(what)
            actual = LETTERS.get(array.dtype.name, f"{array.dtype.kind}{array.dtype.itemsize}")
            if role == "n" or letters not in (actual, "u1"):
                raise KernelError(f"{title} is {role}{letters}, got {actual} numbers")
            if role == "w":
                memory.written.add(id(what))
            if isinstance(what, PointerTable):
                memory.written |= {id(target) for target in what.whats if memory.originals[id(target)].flags.writeable}
            yield ctypes.c_void_p(array.ctypes.data)
        else:
            ctype, fits = CTYPES[kind]
            if role != "n" or letters not in fits:
                raise KernelError(f"{title} is {role}{letters}, got a number of {kind}")
            if kind == "int" and not -(2**31) <= what < 2**32 or kind == "long" and not -(2**63) <= what < 2**64:
                raise KernelError(f"{title}, {what}, does not fit in {kind}")
            yield ctype(what)


class GuardedMemory:
    """Copies of arrays, each between guard bytes that no kernel may access, at addresses aligned as on a GPU."""

    def __init__(self, launches: list[Launch | LibraryCall], arrayOf: Callable[[Any], np.ndarray]):
        whats = {id(what): what for what in memories(launches)}
        self.originals = {
            key: begun(what) if isinstance(what, (Scratch, PointerTable, Tickets)) else arrayOf(what)
            for key, what in whats.items()
        }
        self.whats = whats  # keeps ids unique
        self.copies: dict[int, np.ndarray] = {}
        self.regions: dict[int, Region] = {}
        self.written: set[int] = set()
        for keys in overlapping(self.originals):
            self.copy(keys)
        for table in tables(launches):
            self.at(table)[...] = table.filled(lambda what: self.at(what).ctypes.data)

    def copy(self, keys: list[int]) -> None:
        """Copy arrays that overlap so that the copies overlap likewise."""
        arrays = [self.originals[key] for key in keys]
        low, high = (pick(ends) for pick, ends in zip((min, max), zip(*map(bounds, arrays))))
        root = rootOf(arrays[0])
        start = low - root.ctypes.data if root.ctypes.data <= low else 0
        buffer = np.full(high - low + 2 * ALIGNMENT_BYTES, 0xFF, np.uint8)
        skip = -buffer.ctypes.data % ALIGNMENT_BYTES + start % ALIGNMENT_BYTES
        memory = buffer[skip : skip + high - low]
        isOurs = np.zeros(high - low, bool)
        unit = int(np.gcd.reduce([n for x in arrays for n in (x.itemsize, x.ctypes.data - low)]))
        for key, x in zip(keys, arrays):
            offset = x.ctypes.data - low
            self.copies[key] = np.ndarray(x.shape, x.dtype, memory, offset, x.strides)
            self.copies[key][...] = x
            np.ndarray((*x.shape, x.itemsize), bool, isOurs, offset, (*x.strides, 1))[...] = True
            self.regions[key] = Region(memory, unit, None if isOurs.all() else np.ascontiguousarray(isOurs[::unit]))

    def at(self, what: object) -> np.ndarray:
        """The copy of an array."""
        return self.copies[id(what)]

    def share(self, launch: Launch) -> Callable[[int, int], bool]:
        """A function that checks whether two arguments of a launch share bytes."""
        arrays = [self.at(what) if kind == "pointer" else None for kind, what in launch.slots]
        return lambda i, j: np.shares_memory(arrays[i], arrays[j])

    def regionsOf(self, launch: Launch) -> Iterator[Region]:
        """The memory that a launch may access, each region with the index of its first argument."""
        seen = set()
        for number, what in numberedMemory(launch):
            region = self.regions[id(what)]
            if region.memory.size and id(region.memory) not in seen:
                seen.add(id(region.memory))
                yield region._replace(number=number)

    def giveBack(self) -> None:
        """Copy back the arrays that kernels may have written."""
        for key in self.written:
            if self.originals[key].flags.writeable:
                self.originals[key][...] = self.copies[key]


class Region(NamedTuple):
    """Memory of some arrays: its bytes, the bytes of a unit, and the units that belong to an array (None: all)."""

    memory: np.ndarray
    unit: int = 1
    isOurs: np.ndarray | None = None
    number: int = 0


def numberedMemory(launch: Launch) -> Iterable[tuple[int, Any]]:
    """(index of the argument, array) for all memory of a launch."""
    for number, (kind, what) in enumerate(launch.slots):
        if kind == "pointer":
            yield number, what
            for target in what.whats if isinstance(what, PointerTable) else ():
                yield number, target


def begun(memory: Scratch | PointerTable | Tickets) -> np.ndarray:
    """The initial content of memory: nan, or -1; 0 for tickets."""
    if isinstance(memory, Tickets):
        return np.zeros(memory.shape, memory.dtype)
    return np.full(memory.size * memory.dtype.itemsize, 0xFF, np.uint8).view(memory.dtype).reshape(memory.shape)


def rootOf(x: np.ndarray) -> np.ndarray:
    """The array that owns the memory of a view."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


def bounds(x: np.ndarray) -> tuple[int, int]:
    """The addresses of the first byte of an array, and after its last."""
    if not x.size:
        return x.ctypes.data, x.ctypes.data
    return np.lib.array_utils.byte_bounds(x)


def overlapping(arrays: dict[int, np.ndarray]) -> list[list[int]]:
    """The keys of arrays, grouped by overlap."""
    groups: list[list[int]] = []
    end = -1
    for key in sorted(arrays, key=lambda key: bounds(arrays[key])):
        low, high = bounds(arrays[key])
        if groups and low < end and high > low:
            groups[-1].append(key)
        else:
            groups.append([key])
        end = max(end, high)
    return groups
