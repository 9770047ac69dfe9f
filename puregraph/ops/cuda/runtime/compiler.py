"""Compiler: NVRTC, which needs no GPU, from the text of a kernel to a cubin, with a cache on disk."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from puregraph.core.errors import DeviceError
from puregraph.core.storage import diskcache
from puregraph.ops.cuda.libraries.paths import load
from puregraph.ops.cuda.runtime.preprocess import digest, read

FORMAT_VERSION = 1  # version of the stored files; a change invalidates every stored cubin
OPTIONS = ("--std=c++17", "-default-device", "--ptxas-options=-v", "--diag-suppress=177")
ROUNDED = "// Rounded as written: no product is added before it is rounded.\n"  # first line of texts without fma
ASWRITTEN = "--fmad=false"
ENTRY = re.compile(r"Compiling entry function '(\w+)' for")
MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
BLOCKS = re.compile(r"(__launch_bounds__\(\w+), *\w+\)")  # with a number of resident blocks
KNOWN: dict[tuple[str, str], Cubin] = {}
LOCKS: dict[str, threading.Lock] = {}


class Resources(NamedTuple):
    """Resources that a kernel needs: registers of a thread, and bytes of memory."""

    registers: int
    local: int  # local memory of a thread, which is as slow as global memory
    spills: int  # registers spilled to local memory
    shared: int  # static shared memory, without DYNAMIC


class Cubin(NamedTuple):
    """A text, compiled: machine code, and the resources of each kernel in it."""

    data: bytes
    resources: dict[str, Resources]


def available() -> bool:
    """True if texts can be compiled here."""
    return missing() is None


@cache
def missing() -> str | None:
    """The reason why texts cannot be compiled here; None if they can."""
    try:
        version()
    except (DeviceError, OSError) as error:
        return f"CUDA kernels cannot be compiled here: {error}"
    return None


def library() -> ctypes.CDLL:
    """NVRTC, of the family of CuPy where that is in use.

    Raises    DeviceError where there is none
    """
    return load("nvrtc", hint="pip install puregraph[nvrtc]")


@cache
def version() -> tuple[int, int]:
    """The version of NVRTC."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    demand(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


def demand(code: int, what: str) -> None:
    """Raise DeviceError unless a call of NVRTC succeeded."""
    if code:
        text = library().nvrtcGetErrorString
        text.restype = ctypes.c_char_p
        raise DeviceError(f"{what} failed: {text(code).decode()}")


def cubin(source: str, arch: str) -> Cubin:
    """The machine code of a text for an architecture such as "sm_90", cached.

    Raises    DeviceError with NVRTC's message if it refuses the text, or where there is no NVRTC
    """
    known = KNOWN.get((source, arch))
    if known is None:
        name = digest("cubin", FORMAT_VERSION, version(), arch, optionsFor(source), read("common.h"), source)
        with LOCKS.setdefault(name, threading.Lock()):
            known = KNOWN.get((source, arch))
            if known is None:
                known = KNOWN[source, arch] = stored(name) or made(name, source, arch)
    return known


def compileAll(sources: Iterable[str], arch: str) -> list[Cubin]:
    """The Cubin of each text; several are compiled at a time."""
    from concurrent.futures import ThreadPoolExecutor  # brings logging, and only compiling needs it

    sources = list(dict.fromkeys(sources))
    with ThreadPoolExecutor(max(1, min(len(sources), os.cpu_count() or 1))) as executor:
        return list(executor.map(lambda source: cubin(source, arch), sources))


def stored(name: str) -> Cubin | None:
    """The cubin in the cache under a name."""
    cached = diskcache.read(name, resources=dict)
    if cached is None:
        return None
    header, data = cached
    return Cubin(data, {entry: Resources(*values) for entry, values in header["resources"].items()})


def made(name: str, source: str, arch: str) -> Cubin:
    """Compile a text now and store its Cubin.

    Launch bounds ask for several resident blocks per multiprocessor. If registers then spill, the text is compiled
    again without that number, and if they still spill, for a single resident block.
    """
    for text in dict.fromkeys([source, BLOCKS.sub(r"\1)", source), BLOCKS.sub(r"\1, 1)", source)]):
        data, log = compiled(f'{read("common.h")}\n#line 1 "kernel"\n{text}', arch, optionsFor(source))
        candidate = Cubin(data, resourcesIn(log))
        if not any(used.spills for used in candidate.resources.values()):
            break
    diskcache.write(name, {"key": "cubin", "resources": candidate.resources}, data)
    return candidate


def optionsFor(source: str) -> tuple[str, ...]:
    """The options for a text."""
    return (*OPTIONS, ASWRITTEN) if source.startswith(ROUNDED) else OPTIONS


def compiled(text: str, arch: str, flags: tuple[str, ...] = OPTIONS) -> tuple[bytes, str]:
    """The machine code of a complete text, and the assembler's log."""
    nvrtc = library()
    handle = ctypes.c_void_p()
    code = nvrtc.nvrtcCreateProgram(ctypes.byref(handle), text.encode(), b"kernel.cu", 0, None, None)
    demand(code, "nvrtcCreateProgram")
    try:
        options = [f"--gpu-architecture={arch}".encode(), *(option.encode() for option in flags)]
        code = nvrtc.nvrtcCompileProgram(handle, len(options), (ctypes.c_char_p * len(options))(*options))
        log = fetched(handle, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if code:
            raise DeviceError(f"NVRTC refuses the text of a kernel for {arch}: {log[:2000]}")
        return fetched(handle, "CUBIN"), log
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(handle))


def fetched(handle: ctypes.c_void_p, what: str) -> bytes:
    """The bytes of one result of an NVRTC program, such as its log."""
    nvrtc: Any = library()
    size = ctypes.c_size_t()
    demand(nvrtc[f"nvrtcGet{what}Size"](handle, ctypes.byref(size)), f"nvrtcGet{what}Size")
    buffer = ctypes.create_string_buffer(size.value)
    demand(nvrtc[f"nvrtcGet{what}"](handle, buffer), f"nvrtcGet{what}")
    return buffer.raw


def resourcesIn(log: str) -> dict[str, Resources]:
    """The resources of each kernel, from the assembler's log."""
    resources = {}
    for part in re.split(r"(?=Compiling entry function)", log)[1:]:
        name, memory, used, shared = (pattern.search(part) for pattern in (ENTRY, MEMORY, USED, SHARED))
        if name and memory and used:
            frame, stores, loads = map(int, memory.groups())
            resources[name[1]] = Resources(int(used[1]), frame, stores + loads, int(shared[1]) if shared else 0)
    return resources
