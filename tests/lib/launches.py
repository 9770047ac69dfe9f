"""Kernels for a GPU in tests: run by the emulator, and compiled for the GPUs that there are."""

import re
from math import prod

import numpy as np
import pytest

from puregraph.ops.cuda.runtime import compiler, runner
from puregraph.ops.cuda.runtime.launch import Launch
from puregraph.testing.emulator import emulator

ARCHITECTURES = {"sm_90": 227 << 10, "sm_80": 163 << 10}  # with the bytes of shared memory that a block may have
FEW = 8  # registers of those that there are: with fewer left, another architecture may have too few
BLOCKS = r"__launch_bounds__\([^()]*,\s*(\w+)\)\s*{}\("  # that are to share the registers of a processor
FEWER = ("rows", "columns", "maxPoolGrad")  # of these there may be fewer blocks, where their registers would be spilled
needsEmulator = pytest.mark.emulator
needsNvrtc = pytest.mark.nvrtc
PASSED = {}


def emulated(kernel, *arguments, strides=None, **options):
    """What the launches of a kernel's cuda twin compute, in the emulator; their texts pass `gate`.

    Results lie in memory that is nan before, arguments must stay as they are. `strides` makes the results: a function
    of shape and dtype in place of np.empty.
    """
    outline = kernel.shapeRule(*arguments, **options)
    several = isinstance(outline, list)
    outs = [poison((strides or np.empty)(*one)) for one in (outline if several else [outline])]
    before = [np.copy(x) for x in arrays(arguments)]
    launches = kernel.implementations["cuda"](outs if several else outs[0], *arguments, **options)
    assert launches is not NotImplemented, f"{kernel} has no launches for these arguments"
    runAll(launches)
    for x, old in zip(arrays(arguments), before):
        assert x.tobytes() == old.tobytes(), f"{kernel} wrote to an argument"
    return tuple(outs) if several else outs[0]


def runAll(launches):
    """Run launches in the emulator, and their texts through the gate."""
    gate([launch for launch in launches if isinstance(launch, Launch)])
    emulator.run(launches)


def gate(launches, local=0, everywhere=False):
    """Each launch is one that a GPU can start, and each text compiles for the architectures: no kernel spills, or has
    more than `local` bytes of local memory, but for CUDA's own sine, cosine and tangent, which have a table there for
    large arguments; a block finds its registers and its shared memory.

    The older architecture is asked about texts that could fail there alone, which takes half the time; `everywhere`
    asks it about all. Gives what each of them takes, by architecture. Without NVRTC texts are not looked at.
    """
    for launch in launches:
        startable(launch)
    found = []
    for launch in launches if compiler.available() else ():
        for arch in ARCHITECTURES:
            key = launch.source, launch.entry, launch.block, launch.shared, arch, local
            if key not in PASSED:
                own = max(local, 40 if re.search(r"\b(sin|cos|tan)\(", launch.source) else 0)
                PASSED[key] = passed(launch, arch, own)
            found.append((arch, PASSED[key]))
            if not everywhere and PASSED[key].registers + FEW <= allowed(launch):
                break
    return found


def allowed(launch):
    """How many registers a thread may have: those of a processor are shared by the blocks that are to be there."""
    found = re.search(BLOCKS.format(launch.entry), launch.source)
    defined = re.search(rf"#define {found[1]} (\d+)", launch.source) if found else None
    blocks = int(defined[1] if defined else found[1]) if found else 1
    return min(255, (1 << 16) // (prod(launch.block) * blocks) // 8 * 8)


def startable(launch):
    """Whether a GPU takes such a grid, and arguments hold the numbers that they are given."""
    sizes = [*zip(launch.grid, (2**31 - 1, 65535, 65535)), *zip(launch.block, (1024, 1024, 64))]
    assert all(1 <= n <= most for n, most in sizes), f"{launch.name}: no GPU has a grid {launch.grid} of {launch.block}"
    assert prod(launch.block) <= 1024, f"{launch.name}: no block has {launch.block} threads"
    for i, (kind, number) in enumerate(launch.slots):
        low, high = {"int": (-(2**31), 2**32), "long": (-(2**63), 2**64)}.get(kind, (None, None))
        assert low is None or low <= number < high, f"{launch.name}: argument {i}, {number}, does not fit in {kind}"


def passed(launch, arch, local):
    """What a launch takes of a GPU, which has it."""
    resources = compiler.cubin(launch.source, arch).resources
    assert launch.entry in resources, f"{launch.name}: no kernel {launch.entry} in {sorted(resources)}"
    for entry, used in resources.items():
        assert not used.spills, f"{launch.name}: {entry} spills {used.spills} bytes on {arch}"
        assert used.local <= local, f"{launch.name}: {entry} has {used.local} bytes of local memory on {arch}"
        assert used.shared <= runner.STATIC_SHARED, f"{launch.name}: {entry} has {used.shared} bytes of shared memory"
    used, warps = resources[launch.entry], -(-prod(launch.block) // 32)
    registers = warps * 32 * (used.registers + -used.registers % 8)
    assert registers <= 1 << 16, f"{launch.name}: a block of {launch.block} wants {registers} registers on {arch}"
    most = allowed(launch)
    assert launch.entry in FEWER or used.registers <= most, (
        f"{launch.name}: {launch.entry} has {used.registers} registers on {arch}, for all its blocks there are {most}"
    )
    shared = used.shared + launch.shared
    for each, most in ARCHITECTURES.items():
        assert shared <= most, f"{launch.name}: a block wants {shared} bytes of shared memory, {each} has {most}"
    return used


def poison(x):
    """An array whose floats are nan, its whole numbers -1, its truths true."""
    x[...] = -1 if x.dtype.kind in "iu" else np.nan
    return x


def arrays(value):
    """All arrays inside tuples, lists and dicts."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return [x for part in value for x in arrays(part)]
    return [value] if isinstance(value, np.ndarray) else []


def misplaced(x):
    """The same numbers at an address that suits no access of more than one of them."""
    room = np.empty(x.nbytes + x.itemsize, np.uint8)[x.itemsize :].view(x.dtype).reshape(x.shape)
    room[...] = x
    return room
