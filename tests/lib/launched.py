"""Scripts that tests start as several processes, with `puregraph launch`."""

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections import deque
from itertools import pairwise
from pathlib import Path

from processes import environment

LENGTH = "PUREGRAPH_TEST_STEPS"  # which processes inherit from the test that launches them


def length():
    """The steps that a run takes: ten everyday, thirty in slow tests."""
    return int(os.environ.get(LENGTH, 10))


def missing():
    """Why there can be no processes that train together; None if there can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed"
    return None if (Path(sysconfig.get_path("scripts")) / "mpiexec").exists() else "there is no mpiexec beside Python"


def missingOpenMpi():
    """Why processes that are left cannot go on; None if they can."""
    isThere = (Path(sysconfig.get_path("scripts")) / "prterun").exists()
    return missing() or (None if isThere else "the mpiexec beside Python is not that of Open MPI")


def command(count, script, *arguments, options=()):
    """The command that starts a script as so many processes."""
    run = [sys.executable, "-m", "puregraph", "launch", "-n", str(count), *options, str(script)]
    return [*run, *map(str, arguments)]


def written(folder, text):
    """A file with this script."""
    path = Path(folder) / "script.py"
    path.write_text(textwrap.dedent(text))
    return path


def launched(count, folder, text, *arguments, timeout=100, options=(), **variables):
    """What came of so many processes of a script: `returncode`, `stdout`, `stderr`."""
    found = environment(PUREGRAPH_DEVICE="cpu", PYTHONUNBUFFERED="", **variables)  # a line at a time
    run = command(count, written(folder, text), *arguments, options=options)
    return subprocess.run(run, env=found, capture_output=True, text=True, timeout=timeout, cwd=folder)


def lines(done):
    """The lines that a run has printed, in order of their text; processes print in any order."""
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())


def namedAsKilled(done, count):
    """The ranks that a run names as killed: several where others ended so soon that nobody saw which was first."""
    found = re.search(rf"puregraph: rank ([\d or]+) of {count} was killed \(exit code", done.stderr)
    return [] if found is None else list(map(int, found[1].split(" or ")))


def isRunning(pid):
    """Whether there is such a process, which is not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pidsIn(folder):
    """The processes that have left their number in a folder, with `tellPid`."""
    return [int(path.stem) for path in Path(folder).glob("*.pid")]


def areGone(folder, seconds=60):
    """Whether the processes that have left their number in a folder end, or have ended."""
    return waited(lambda: not any(map(isRunning, pidsIn(folder))), seconds)


def tellPid():
    """Leave the number of this process in the folder that it runs in."""
    Path(f"{os.getpid()}.pid").touch()


def tellPauses(watch):
    """Have a watch leave in the folder the longest pause between its last looks, which a busy machine makes longer."""
    look, looked = watch.look, deque([time.monotonic()], maxlen=40)

    def looking():
        looked.append(time.monotonic())
        Path(f"{os.getpid()}.pause").write_text(str(max(b - a for a, b in pairwise(looked))))
        look()

    watch.look = looking


def isNamedInTime(folder, last, patience):
    """Whether the last line of a run names who is late within a second after `patience`, on the clock of the watch."""
    pauses = [float(path.read_text() or 0) for path in Path(folder).glob("*.pause")]
    return patience <= float(re.search(r"has waited (\d+\.\d) s", last)[1]) <= patience + 1 + max(pauses)


def waited(condition, seconds):
    """Whether a condition has come true within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()
