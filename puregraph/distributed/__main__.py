"""`python -m puregraph.distributed SCRIPT.py ...`: run a script as one of several processes that end together."""

from __future__ import annotations

import hashlib
import os
import runpy
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from puregraph.core.base.environment import variable
from puregraph.core.errors import PuregraphError
from puregraph.core.errors.shorttraceback import shortened
from puregraph.core.initial import SEED
from puregraph.distributed.nccl.visiblegpu import takeOwnGpu
from puregraph.distributed.worlds.current import join
from puregraph.distributed.worlds.mpiworld import MpiWorld
from puregraph.distributed.worlds.startedby import SIZES, endWithParent, launcherRank, launcherSize
from puregraph.distributed.worlds.world import BEGUN, LASTWORDS
from puregraph.ops.native.threads.numthreads import divideAmong

LATER = 5.0  # seconds that a process with nothing new to report waits, so that the first to fail can report and end all


def isOfProxy() -> bool:
    """True if a proxy of MPICH has started this process for puregraph's launcher. The proxy has a single thread, so
    the end of that thread is the end of the proxy."""
    launcher = launcherSize()
    return launcher is not None and SIZES[launcher[0]] == "MPICH" and bool(variable("RUN"))


def main(arguments: list[str]) -> int:
    """Run the script of these arguments as `__main__`. Returns its exit code, unless all processes are ended."""
    script = arguments[0] if arguments else ""
    if isOfProxy():
        endWithParent(signal.SIGKILL)  # otherwise it would survive a killed launcher, and write files of the next run
    try:
        if not Path(script).is_file():
            raise PuregraphError(
                f"wanted a script to run, python -m puregraph.distributed SCRIPT.py ..., got {script!r}"
            )
        here = join()
    except PuregraphError as error:
        folder = variable("RUN")
        if launcherRank() == 0 or folder is not None and not os.path.isdir(folder):  # each other machine for itself
            print(f"puregraph: {error}", file=sys.stderr)
        return 2
    if variable("RUN") is not None and here.rank == 0:
        os.write(1, BEGUN)
    divideAmong(here.locals)
    takeOwnGpu(here.local, here.locals)
    showOnce(here)
    shareEntropy(here)
    code = run(script, arguments, here)
    if code and not here.isEnding:
        here.abort(code)
    here.close()
    return code


def run(script: str, arguments: list[str], here: MpiWorld) -> int:
    """Run a script, and return its exit code. Reports an exception, unless another process has reported one."""
    sys.argv = arguments
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
        return 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if code:
            lastWords(here, sentence(here, end))
        return code
    except KeyboardInterrupt as error:
        if not here.isEnding:
            lastWords(here, sentence(here, error))
        return 130
    except BaseException as error:
        error.__traceback__ = below(error.__traceback__, script)
        with shortened(error, isinstance(error, PuregraphError)):
            lines = traceback.format_exception(error)
        lastWords(here, "".join(lines) + sentence(here, error))
        return 1


def sentence(here: MpiWorld, error: BaseException) -> str:
    """Report in one line the rank that ended the run, the time and the reason."""
    when = f" in {here.label}" if here.label else ""
    return f"puregraph: rank {here.rank} of {here.size} has ended the run{when}: {here.reason(error)}"


def lastWords(here: MpiWorld, text: str) -> None:
    """Report why the run ends, once per machine: processes that fail later wait to be ended."""
    if not here.isFirst(LASTWORDS, text):
        time.sleep(LATER)
    elif not here.hasLauncher:  # a launcher prints it after all other output
        print(text, file=sys.stderr, flush=True)


def below(trace: Any, script: str) -> Any:
    """Return a traceback without the frames above the script."""
    scriptPath = os.path.realpath(script)
    first = trace
    while first is not None and os.path.realpath(first.tb_frame.f_code.co_filename) != scriptPath:
        first = first.tb_next
    return first or trace


def shareEntropy(here: MpiWorld) -> None:
    """Start random numbers without a seed alike on all processes."""
    entropy = np.frombuffer(os.urandom(8), np.uint64).copy()
    here.broadcast(entropy)
    SEED.reset(int(entropy[0]))


def showOnce(here: MpiWorld) -> None:
    """Print a warning that several processes raise only once, by the first of them."""
    show = warnings.showwarning

    def digest(text: str) -> str:
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]

    def showFirst(message: Any, category: Any, filename: str, lineno: int, *rest: Any, **named: Any) -> None:
        if here.isFirst(digest(f"{category.__name__} {message} {filename} {lineno}")):
            show(message, category, filename, lineno, *rest, **named)

    warnings.showwarning = showFirst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
