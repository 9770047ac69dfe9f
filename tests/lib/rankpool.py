"""Three processes that stay, and run the scripts of many tests one after the other: starting them is what takes long.

A script is run as if the three had been launched for it, in a namespace and a folder of its own. What it replaces in a
module it replaces by `patch`, which is undone behind it. Scripts that end, or find how a process was begun, are launched.
"""

import atexit
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from launched import LENGTH, command, isRunning, launched, length
from processes import environment

COUNT = 3
LOOK = 0.02  # seconds between two looks for a script
PATCHED = []


def patch(owner, name, value):
    """Replace an attribute until the script ends."""
    PATCHED.append((owner, name, getattr(owner, name)))
    setattr(owner, name, value)


def ran(count, folder, text, *arguments, timeout=280):
    """What came of so many processes of a script, as from `launched`; if they are as many as those that stay, by them."""
    if count != COUNT:
        return launched(count, folder, text, *arguments, timeout=timeout)
    return pool().run(folder, text, *arguments, timeout=timeout)


def ranAlone(count, folder, text, *arguments):
    """What comes of a script in this process, where nobody has launched it."""
    before, argv = os.getcwd(), sys.argv
    try:
        task = taskOf(folder, text, arguments)
        return SimpleNamespace(returncode=0, stdout=take(task), stderr="")
    finally:
        os.chdir(before)
        sys.argv = argv


def pool():
    """The processes that stay; new ones if they have ended."""
    if not made().isAlive():
        made.cache_clear()
    return made()


@cache
def made():
    """Processes that stay, until this one ends."""
    found = RankPool()
    atexit.register(found.close)
    return found


class RankPool:
    """What a test has of them: each script is a file in a folder that all of them look into."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="puregraph-pool-"))
        self.tasks = 0
        self.output = open(self.folder / "output", "w+")
        given = environment(PUREGRAPH_DEVICE="cpu")
        run = command(COUNT, Path(__file__), self.folder, os.getpid())
        self.process = subprocess.Popen(run, env=given, stdout=self.output, stderr=subprocess.STDOUT)

    def isAlive(self):
        """Whether they take scripts."""
        return self.process.poll() is None

    def run(self, folder, text, *arguments, timeout):
        """What came of a script; one that fails ends them, as it would end processes of its own."""
        number, self.tasks = self.tasks, self.tasks + 1
        task = taskOf(folder, text, arguments)
        put(self.folder / f"task-{number}", json.dumps(task))
        files = [self.folder / f"done-{number}-{rank}" for rank in range(COUNT)]
        deadline = time.monotonic() + timeout
        while not all(file.exists() for file in files) and self.isAlive():
            if time.monotonic() > deadline:
                self.close()
                raise TimeoutError(f"a script takes longer than {timeout} s: {self.said()}")
            time.sleep(LOOK)
        found = [file.read_text() for file in files if file.exists()]
        code = 0 if len(found) == COUNT else self.process.wait() or 1
        return SimpleNamespace(returncode=code, stdout="".join(found), stderr=self.said() if code else "")

    def said(self):
        """What they have printed outside of scripts."""
        return (self.folder / "output").read_text()

    def close(self):
        """End them."""
        put(self.folder / f"task-{self.tasks}", "{}")
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            self.process.wait()
        self.output.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)


def taskOf(folder, text, arguments):
    """What is to be run, where, and what it is given."""
    given = {"text": textwrap.dedent(text), "arguments": [*map(str, arguments)], "folder": str(folder)}
    return {**given, "length": length()}


def put(path, text):
    """Write a file that nobody sees before it is whole."""
    new = path.with_name(f".{path.name}")
    new.write_text(text)
    new.replace(path)


def serve(folder, parent):
    """What each of them does until it is told to end, or nobody is there any more who could."""
    from puregraph.distributed import world

    here, tasks = world(), 0
    while True:
        path = folder / f"task-{tasks}"
        while not path.exists():
            if not isRunning(parent):
                return
            time.sleep(LOOK)
        task = json.loads(path.read_text())
        if not task:
            return
        os.environ[LENGTH] = str(task["length"])
        printed = take(task)
        here.label = ""
        put(folder / f"done-{tasks}-{here.rank}", printed)
        tasks += 1


def take(task):
    """Run a script; what it has printed."""
    os.chdir(task["folder"])
    sys.argv = ["script.py", *task["arguments"]]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            exec(compile(task["text"], "script.py", "exec"), {"__name__": "__main__"})
        finally:
            while PATCHED:
                setattr(*PATCHED.pop())
    return printed.getvalue()


if __name__ == "__main__":
    import rankpool  # the module that scripts import `patch` from

    rankpool.serve(Path(sys.argv[1]), int(sys.argv[2]))
