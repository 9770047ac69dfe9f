"""Launcher: `puregraph launch` starts a script as several processes, with the mpiexec that is beside Python."""

from __future__ import annotations

import argparse
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from puregraph.errors import PuregraphError
from puregraph.many.world import LASTWORDS
from puregraph.native.threads.numthreads import cores

ABORTED = re.compile(rb"Abort\(\d+\) on node .*")  # what MPICH writes then
RULE = re.compile(rb"[=-]{60,}\s*$")  # how the notes begin that mpiexec writes when a process is gone
HOSTS = re.compile(r"[^\s:,]+:\d+(,[^\s:,]+:\d+)*")


def addArguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `puregraph launch`."""
    command.add_argument("-n", type=int, metavar="N", help="how many processes; else all that HOSTS have")
    command.add_argument("--hosts", metavar="HOSTS", help="machines and how many processes each has: a:8,b:8")
    command.add_argument("--patience", type=float, metavar="S", help="seconds of waiting for others, 60")
    command.add_argument("script", metavar="SCRIPT.py", help="the script that each of them runs")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="what the script is given")


def launch(options: Any) -> int:
    """Start the processes, and wait for them; the exit code of the first one that did not end well."""
    count, hosts = processesOf(options)
    if options.patience is not None and not options.patience > 0:
        raise PuregraphError(f"--patience: wanted a number of seconds above 0, got {options.patience:g}")
    if not Path(options.script).is_file():
        raise PuregraphError(f"there is no script {options.script!r}")
    with tempfile.TemporaryDirectory(prefix="puregraph-") as folder:
        command = commandOf(count, hosts, [options.script, *options.arguments])
        patience = {} if options.patience is None else {"PUREGRAPH_PATIENCE": str(options.patience)}
        environment = {
            **os.environ,
            "PUREGRAPH_RUN": folder,
            "TERM": "dumb",
            **patience,
        }  # Open MPI gives each a terminal
        run = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **OWNGROUP)
        return LaunchedRun(run, folder, count).wait()


OWNGROUP: dict[str, Any] = {} if os.name == "nt" else {"start_new_session": True}  # Ctrl-C is then for us alone


def processesOf(options: Any) -> tuple[int, str | None]:
    """How many processes are wanted, and on which machines.

    Raises    PuregraphError for arguments that cannot be meant
    """
    hosts = options.hosts
    if hosts is not None and not HOSTS.fullmatch(hosts):
        raise PuregraphError(f"--hosts: wanted machines with a number of processes each, as in a:8,b:8, got {hosts!r}")
    slots = 0 if hosts is None else sum(int(part.rpartition(":")[2]) for part in hosts.split(","))
    count = options.n if options.n is not None else slots
    if count < 1 or slots and count > slots:
        wanted = f"from 1 to the {slots} that {hosts} have" if slots else "of at least 1, as in -n 4"
        raise PuregraphError(f"-n: wanted a number of processes {wanted}, got {options.n}")
    return count, hosts


def commandOf(count: int, hosts: str | None, arguments: list[str]) -> list[str]:
    """The command that starts n processes of a script.

    Raises    PuregraphError if there is no mpiexec
    """
    mpiexec = mpiexecPath()
    own = [sys.executable, "-m", "puregraph.many", *arguments]
    isLocal = hosts is None
    share = cores() // count if isLocal else 0
    if (mpiexec.parent / "prterun").exists():
        placed = ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
        root = ["--allow-run-as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        return [str(mpiexec), *root, *placed, *([] if isLocal else ["--host", str(hosts)]), "-n", str(count), *own]
    bound = ["-bind-to", f"core:{share}"] if share else []
    return [str(mpiexec), *([] if isLocal else ["-hosts", str(hosts)]), *bound, "-n", str(count), *own]


def mpiexecPath() -> Path:
    """The mpiexec beside Python, else the one in the search path.

    Raises    PuregraphError if there is none
    """
    scripts = Path(sysconfig.get_path("scripts"))
    found = shutil.which("mpiexec", path=str(scripts)) or shutil.which("mpiexec")
    if found is None:
        raise PuregraphError(
            f"there is no mpiexec, neither in {scripts} nor in PATH: pip install 'puregraph[mpich]' brings one"
        )
    return Path(found)


class LaunchedRun:
    """Processes that mpiexec has started: passes on what they print, asks them to stop, says why they ended."""

    def __init__(self, process: subprocess.Popen, folder: str, count: int):
        self.process, self.folder, self.count = process, Path(folder), count
        self.asked = False
        self.notes: list[bytes] = []  # of mpiexec's own
        self.gone: list[int] = []  # which processes ended first: several, where nobody saw which of them did

    def wait(self) -> int:
        """Wait for the end of all; the exit code."""
        before = {each: signal.signal(each, self.stop) for each in (signal.SIGINT, signal.SIGTERM)}
        watch = threading.Thread(target=self.watch, daemon=True)
        watch.start()
        try:
            for line in self.process.stdout or ():
                self.passOn(line)
            code = self.process.wait()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
            with suppress(OSError):
                self.process.kill()
        watch.join()
        self.tellEnd(code)
        return code if 0 <= code < 256 else 1

    def passOn(self, line: bytes) -> None:
        """Print a line, unless mpiexec has written it because a process is gone."""
        if self.notes or RULE.match(line):
            self.notes.append(line)
            return
        sys.stdout.buffer.write(ABORTED.sub(b"", line))
        sys.stdout.buffer.flush()

    def stop(self, number: int, frame: Any) -> None:
        """Ask for an end after the step that is under way; who asks twice does not wait for that."""
        first = self.pids().get(0)
        if number == signal.SIGINT and not self.asked and first is not None:
            self.asked = True
            os.kill(first, signal.SIGINT)  # all processes agree, see `Trainer`
        else:
            self.process.terminate()

    def pids(self) -> dict[int, int]:
        """The processes on this machine by their rank."""
        found = {}
        for path in self.folder.glob("rank-*"):
            with suppress(OSError, ValueError):
                found[int(path.name[5:])] = int(path.read_text())
        return found

    def watch(self) -> None:
        """Note which process ends first: mpiexec, which ends the others, may name any of them."""
        if not hasattr(os, "pidfd_open"):
            return
        known: dict[int, int] = {}
        poll = select.poll()
        isOver = False
        while not self.gone and not isOver:
            isOver = self.process.poll() is not None  # asked first: the last look then comes after the end of all
            self.follow(known, poll)
            if poll.poll(0 if isOver else 20):
                self.follow(known, poll)  # one that began meanwhile may have ended before those that were followed
                self.gone += [known[descriptor] for descriptor, _ in poll.poll(0)]
        for descriptor in known:
            os.close(descriptor)

    def follow(self, known: dict[int, int], poll: select.poll) -> None:
        """Let poll tell the end of each process that has begun: `known` has the rank of each descriptor."""
        for rank, pid in self.pids().items() if len(known) < self.count else ():
            if rank not in known.values() and rank not in self.gone:
                try:
                    descriptor = os.pidfd_open(pid)
                except ProcessLookupError:
                    self.gone.append(rank)
                else:
                    known[descriptor] = rank
                    poll.register(descriptor, select.POLLIN)

    def tellEnd(self, code: int) -> None:
        """Say why the run ended: the last words of a process, or which was killed, or what mpiexec says."""
        words = self.folder / LASTWORDS
        if words.exists():
            print(words.read_text(encoding="utf-8").rstrip(), file=sys.stderr)
        elif code and self.gone and not self.asked:
            ranks = " or ".join(map(str, sorted(self.gone)))
            who = f"rank {ranks} of {self.count}"
            print(f"puregraph: {who} was killed (exit code {code}), which has ended the run", file=sys.stderr)
        else:
            sys.stdout.buffer.write(b"".join(self.notes))
            sys.stdout.buffer.flush()
