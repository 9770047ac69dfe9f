"""Doctor command: the device and why, threads, native code, versions."""

from __future__ import annotations

import argparse

from puregraph.cli.terminal import aligned, printJson
from puregraph.core import device
from puregraph.core.base.environment import VARIABLES, variable
from puregraph.ops.cuda.runtime.diagnose import driverVersion, parts
from puregraph.ops.native.llvm import jit


def runDoctor(options: argparse.Namespace) -> int:
    """Report the device and why it is used, threads, native code, the requirements of a GPU, and versions.

    Without a driver, the libraries of a GPU share one line.
    """
    for name in VARIABLES:
        variable(name)  # refuses a bad one by name
    chosen = {"device": device.name(), "why": device.reason(), "threads": device.threads(), "native code": native()}
    libraries = parts()
    if not options.json and driverVersion() is None:
        libraries = {"GPU": f"no driver, so {', '.join(part for part in libraries if part != 'driver')} are not used"}
    report = {**chosen, **libraries, **device.versions()}
    if options.json:
        printJson(report, options.out)
    else:
        for line in aligned([(key, str(value)) for key, value in report.items()]):
            print(line)
    return 0


def native() -> str:
    """Report whether steps on the CPU are native code, and otherwise the reason and its consequence."""
    if not variable("NATIVE", True):
        return "no, because PUREGRAPH_NATIVE says so: numpy computes everything, several times slower"
    why = jit.missing()
    return (
        f"no: {why}; numpy computes everything, several times slower"
        if why
        else f"yes, vectors of {jit.target().bits} bits"
    )
