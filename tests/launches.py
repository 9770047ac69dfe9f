"""Kernels for a GPU in tests: run by the emulator, and compiled for the GPUs that there are."""

import re

import numpy as np
import pytest

from puregraph.cuda import compiler, emulator
from puregraph.cuda.launch import Launch

ARCHITECTURES = ("sm_80", "sm_90")
needsEmulator = pytest.mark.emulator
needsNvrtc = pytest.mark.nvrtc
PASSED = set()


def emulated(kernel, *arguments, strides=None, **options):
    """What the launches of a kernel's cuda twin compute, in the emulator; their texts pass `gate`.

    Results lie in memory that is nan before, arguments must stay as they are. `strides` makes the results: a function
    of shape and dtype in place of np.empty.
    """
    outline = kernel.outline(*arguments, **options)
    several = isinstance(outline, list)
    outs = [poison((strides or np.empty)(*one)) for one in (outline if several else [outline])]
    before = [np.copy(x) for x in arrays(arguments)]
    launches = kernel.twins["cuda"](outs if several else outs[0], *arguments, **options)
    assert launches is not NotImplemented, f"{kernel} has no launches for these arguments"
    runAll(launches)
    for x, old in zip(arrays(arguments), before):
        assert x.tobytes() == old.tobytes(), f"{kernel} wrote to an argument"
    return tuple(outs) if several else outs[0]


def runAll(launches):
    """Run launches in the emulator, and their texts through the gate."""
    gate([launch for launch in launches if isinstance(launch, Launch)])
    emulator.run(launches)


def gate(launches, local=0):
    """Each text compiles for each architecture, and no kernel spills, or has more than `local` bytes of local memory,
    but for CUDA's own sine, cosine and tangent, which have a table there for large arguments.

    Nothing is done where there is no NVRTC.
    """
    if not compiler.available():
        return
    for launch in launches:
        local = max(local, 40 if re.search(r"\b(sin|cos|tan)\(", launch.source) else 0)
        for arch in ARCHITECTURES:
            if (launch.source, arch, local) in PASSED:
                continue
            resources = compiler.cubin(launch.source, arch).resources
            assert launch.entry in resources, f"{launch.name}: no kernel {launch.entry} in {sorted(resources)}"
            for entry, used in resources.items():
                assert not used.spills, f"{launch.name}: {entry} spills {used.spills} bytes on {arch}"
                assert used.local <= local, f"{launch.name}: {entry} has {used.local} bytes of local memory on {arch}"
                assert used.shared <= 48 << 10, f"{launch.name}: {entry} has {used.shared} bytes of shared memory"
            PASSED.add((launch.source, arch, local))


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
