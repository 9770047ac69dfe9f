"""Limited: calls on files from somewhere, each with little memory and time, in a process that is watched.

A process takes one file after the other; where one ends it, another process goes on behind that file.
"""

import gc
import json
import os
import resource
import signal
import sys
import time
import warnings
from typing import NamedTuple

from puregraph.core.errors import PuregraphError

MEMORY = 1 << 30  # bytes of addresses beside those that the process has: far beyond what is allowed, so that it is seen
SLOW = 2  # seconds of CPU that a file may take, on a core that runs `pace` in PACE seconds
PACE = 0.03  # seconds of CPU: of a core that nobody shares, measured when SLOW was chosen
SECONDS = 60  # of CPU that one file may take before its process ends
PEAK = "/proc/self/clear_refs"
FORBIDDEN = ("os.", "subprocess.", "socket.", "ctypes.", "shutil.", "webbrowser.", "open")
HARMLESS = ("os.listdir", "os.scandir", "os.putenv")
CODE = (".py", ".pyc", ".so")  # of libraries that are imported when they are first needed


class Outcome(NamedTuple):
    """What came of a file: "read", "refused", or what was raised; seconds of CPU, megabytes, and forbidden events."""

    text: str
    seconds: float
    megabytes: int
    events: list[str]


def outcomes(call, items, opens=(), prepare=lambda item: item):
    """The Outcome of `call(prepare(item))` for each item; `opens` are the paths that it may open.

    What `prepare` does is not watched.
    """
    found, opens = [], {str(path) for path in opens}
    while len(found) < len(items):
        found += batch(call, items[len(found) :], opens, prepare)
    return found


def batch(call, items, opens, prepare):
    """Outcomes up to the first item with which the process ends, that one included."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(out)
            run(call, items, opens, into, prepare)
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as file:
        found = [Outcome(*json.loads(line)) for line in file.read().splitlines()]
    status = os.waitpid(pid, 0)[1]
    if len(found) < len(items):
        name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {status}"
        found.append(Outcome(f"ended the process: {name}", SECONDS, 0, []))
    return found


def run(call, items, opens, into, prepare):
    """Take one item after the other and write its outcome."""
    limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    events, isWatched = [], False

    def watched(event, args):
        isForbidden = event.startswith(FORBIDDEN) and event not in HARMLESS and isWatched
        isOwn = event == "open" and (str(args[0]) in opens or str(args[0]).endswith(CODE))
        if isForbidden and not isOwn:
            events.append(f"{event} {args[0]!s:.200}" if args else event)

    def attempt(item):
        nonlocal isWatched
        before, begun, isWatched = peak(), time.thread_time(), True
        try:
            call(item)
            text = "read"
        except PuregraphError as error:
            text = "refused" if str(error).replace("\n", "").isprintable() else f"a message is not printable: {error!r}"
        except BaseException as error:
            text = f"{type(error).__name__}: {error!s:.300}"
        isWatched = False
        return Outcome(text, time.thread_time() - begun, peak() - before, events[:5])

    gc.freeze()  # what the suite has allocated by now is not searched again for each file
    sys.addaudithook(watched)
    warnings.simplefilter("ignore")
    for item in map(prepare, items):
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS, resource.RLIM_INFINITY))
        with open(PEAK, "w") as file:
            file.write("5")
        outcome = attempt(item)
        if outcome.seconds > SLOW and not outcome.events:  # a core that is shared takes longer, for a while
            again = attempt(item)
            outcome = again._replace(seconds=min(outcome.seconds, again.seconds / max(1, pace() / PACE)))
        events.clear()
        os.write(into, json.dumps(outcome).encode() + b"\n")


def pace():
    """Seconds of CPU that a fixed number of steps in Python takes here and now."""
    begun = time.thread_time()
    table = {}
    for step in range(300_000):
        table[step & 4095] = (step, str(step))
    return time.thread_time() - begun


def peak():
    """The peak of this process's memory in megabytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) >> 10 for line in file if line.startswith("VmHWM"))


def fault(outcome, seconds=SLOW, megabytes=200):
    """What is wrong with an outcome: neither a sentence nor a result, beyond its limits, or with an event."""
    text, took, peak, events = outcome
    isRight = text in ("read", "refused") and took <= seconds and peak <= megabytes and not events
    return "" if isRight else f"{text}, {took:.1f} s, {peak} MB, {events}"


def check(names, found):
    """Each outcome is a sentence or a result, within its limits, without an event."""
    wrong = [f"{name}: {fault(outcome)}" for name, outcome in zip(names, found, strict=True) if fault(outcome)]
    assert not wrong, "\n".join(wrong[:20])
