"""What a reader opens and starts, by Python's audit: here, or in a fork of one process that has imported the library."""

import json
import os
import resource
import subprocess
import sys
from contextlib import contextmanager

from processes import environment

import puregraph.compat.puzzlelib  # noqa: F401 - here, so that no load opens its file
from puregraph.core import device
from puregraph.serialize import checkpoint

WATCHED = (
    "open",
    "os.",
    "subprocess.",
    "socket.",
    "ctypes.",
    "import",
    "exec",
    "compile",
    "pickle.",
    "pty.",
    "ftplib.",
)
LISTENERS: list[list[tuple[str, str]]] = []
HOOKS: list[object] = []  # an audit hook stays as long as the process does


@contextmanager
def events():
    """The (event, first argument) of everything that this process opens, starts, imports or runs in the block."""
    if not HOOKS:
        HOOKS.append(hear)
        sys.addaudithook(hear)
    seen: list[tuple[str, str]] = []
    LISTENERS.append(seen)
    try:
        yield seen
    finally:
        LISTENERS.remove(seen)


def hear(event, args):
    """Tell all listeners of an event that is watched."""
    if LISTENERS and event.startswith(WATCHED):
        for seen in LISTENERS:
            seen.append((event, str(args[0]) if args else ""))


def audited(load, paths, **options):
    """What came of `checkpoint.load` or `loadGraph` for each file: its `result`, the `events`, how many `kilobytes`."""
    command = [sys.executable, __file__, load, json.dumps(options), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment())
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(paths), done.stdout + done.stderr
    return found


def outcome(load, options, path):
    """The outcome of one file, as JSON."""
    seen = []
    sys.addaudithook(lambda event, args: seen.append((event, str(args[0]) if args else "")))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        getattr(checkpoint, load)(path, **options)
        result = "loaded"
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    found = {"result": result, "events": list(seen)}
    return json.dumps(found | {"kilobytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before})


if __name__ == "__main__":
    device.name()  # decides once, and may import CuPy for that
    for each in sys.argv[3:]:
        process = os.fork()
        if not process:
            print(outcome(sys.argv[1], json.loads(sys.argv[2]), each), flush=True)
            os._exit(0)
        os.waitpid(process, 0)
