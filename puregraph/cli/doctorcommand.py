"""Doctor command: the device and why, threads, native code, versions."""

from __future__ import annotations

import argparse

from puregraph import device
from puregraph.base.environment import VARIABLES, variable
from puregraph.cli.terminal import aligned, printJson
from puregraph.cuda.runtime.diagnose import driverVersion, parts
from puregraph.native.llvm import jit


def runDoctor(options: argparse.Namespace) -> int:
    """The device and why, threads, native code, what there is of all that a GPU takes, versions.

    Where there is no driver, the libraries of a GPU are on one line.
    """
    for name in VARIABLES:
        variable(name)  # refuses a bad one by name
    chosen = {"device": device.name(), "why": device.reason(), "threads": device.threads(), "native code": native()}
    libraries = parts()
    if not options.json and driverVersion() is None:
        libraries = {"GPU": f"no driver, so {', '.join(each for each in libraries if each != 'driver')} are not used"}
    found = {**chosen, **libraries, **device.versions()}
    if options.json:
        printJson(found, options.out)
    else:
        for line in aligned([(key, str(value)) for key, value in found.items()]):
            print(line)
    return 0


def native() -> str:
    """Whether steps on the CPU are native code, or why not, and what that means."""
    if not variable("NATIVE", True):
        return "no, because PUREGRAPH_NATIVE says so: numpy computes everything, several times slower"
    why = jit.missing()
    return (
        f"no: {why}; numpy computes everything, several times slower"
        if why
        else f"yes, vectors of {jit.target().bits} bits"
    )
