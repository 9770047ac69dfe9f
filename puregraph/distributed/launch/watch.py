"""Watchdog: reports the rank that stalls a collective, then aborts the run."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

import numpy as np

from puregraph.distributed.worlds.world import LASTWORDS

LOOK = 0.2  # seconds between two checks
SILENT_CHECKS = 10  # checks without a report after which a process counts as silent
WATCHERS = 2  # processes that receive all reports: two, because the first may be the one that hangs
UNSENT = 8  # pending reports to one process, which receives none if it hangs
REPORT_BYTES = 160  # of a packed report: numbers, then the label
CODE = 75  # the exit code of an aborted run


class Report(NamedTuple):
    """The last report of a process: finished collectives, True if it waits in the next one, its label, and the time.
    `moved` counts exchanges with only some of the others."""

    done: int
    isWaiting: bool
    label: str
    heard: float
    moved: int = 0


class Watch:
    """A thread that reports to the watchers on its own communicator; a watcher reports to all, and checks all reports.

    If a process has waited for `patience` seconds in a collective, those that have not entered it are late. Watchers
    are the first two processes; if all of them are silent, the next two are watchers as well.
    """

    def __init__(self, world: Any, patience: float):
        self.world, self.patience = world, patience
        self.comm = world.comm.Dup()
        self.watchers = list(range(min(WATCHERS, world.size)))
        self.unsent: dict[int, list[tuple[Any, np.ndarray]]] = {}
        now = time.monotonic()
        self.reports = [Report(0, False, "", now) for _ in range(world.size)]
        self.since = [now] * world.size  # since when each process waits
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.loop, name="puregraph watch", daemon=True)
        self.thread.start()

    def loop(self) -> None:
        """Run the watch in its thread. If processes may be lost, another watch starts after a loss."""
        try:
            self.keep()
        except self.world.MPI.Exception:
            if not self.world.survives:
                raise

    def keep(self) -> None:
        """Report and look until the end."""
        rank = self.world.rank
        while not self.ended.wait(LOOK):
            own = self.own()
            self.report(packed(own))
            self.take(rank, own)
            self.listen()
            self.watchers += self.successors(time.monotonic())
            if rank in self.watchers:
                self.look()
        for sent in self.unsent.values():
            for request, _ in sent:
                request.Wait()

    def report(self, data: np.ndarray) -> None:
        """Send a report to the watchers; a watcher sends it to all others."""
        rank = self.world.rank
        for other in range(self.world.size) if rank in self.watchers else self.watchers:
            sent = self.unsent[other] = [entry for entry in self.unsent.get(other, []) if not entry[0].Test()]
            if other != rank and len(sent) < UNSENT:
                sent.append((self.comm.Isend(data, other), data))

    def successors(self, now: float) -> list[int]:
        """Return the next watchers, if all current ones have been silent for long."""
        if not all(isSilent(self.reports[r], now) for r in self.watchers):
            return []
        begin = len(self.watchers)
        nextWatchers = list(range(begin, min(begin + WATCHERS, self.world.size)))
        for r in nextWatchers:  # count their silence from now on
            self.reports[r] = self.reports[r]._replace(heard=now)
        return nextWatchers

    def own(self) -> Report:
        """Return the report of this process."""
        world = self.world
        label = ", ".join(filter(None, (world.label, world.bucket)))
        return Report(world.done, world.waiting is not None, label, time.monotonic(), world.exchanged)

    def listen(self) -> None:
        """Receive the reports of other processes."""
        status = self.world.MPI.Status()
        data = np.empty(REPORT_BYTES, np.uint8)
        while self.comm.Iprobe(status=status):
            self.comm.Recv(data, status.source)
            self.take(status.source, unpacked(data))

    def take(self, rank: int, report: Report) -> None:
        """Note a report."""
        before, self.reports[rank] = self.reports[rank], report
        if not (report.isWaiting and before.isWaiting and (before.done, before.moved) == (report.done, report.moved)):
            self.since[rank] = report.heard

    def look(self) -> None:
        """End the run if a process has waited for too long for others, or all for each other."""
        now = time.monotonic()
        waited = [now - s if r.isWaiting and not isSilent(r, now) else 0.0 for r, s in zip(self.reports, self.since)]
        rank = max(range(len(waited)), key=lambda r: waited[r])
        if waited[rank] < self.patience:
            return
        late = self.late(rank, now)
        if not late:  # all wait: the connection counts as cut since the last one entered
            rank = min(range(len(waited)), key=lambda r: waited[r])
        if waited[rank] >= self.patience:
            self.end(rank, waited[rank], late)

    def late(self, rank: int, now: float) -> list[str]:
        """Describe the processes that have not entered the collective in which `rank` waits."""
        at = self.reports[rank]
        return [
            f"rank {r} {about(report, now)}"
            for r, report in enumerate(self.reports)
            if r != rank and (report.done < at.done or isSilent(report, now) or not report.isWaiting)
        ]

    def end(self, rank: int, waited: float, late: list[str]) -> None:
        """Report the late processes, and end all."""
        at = self.reports[rank]
        where = f"rank {rank} of {self.world.size} has waited {waited:.1f} s in collective {at.done + 1}{inside(at)}"
        who = "; ".join(late) or "all others wait there too: a connection may be cut"
        hint = f"; if it should, {self.patience:g} s of --patience are too few for it" * who.endswith("computing")
        text = f"puregraph: {where}: {who}{hint}"
        if self.world.isFirst(LASTWORDS, text) and not self.world.hasLauncher:
            self.world.say(text)
        self.world.abort(CODE)

    def drop(self) -> None:
        """End the thread."""
        self.ended.set()
        self.thread.join()

    def close(self) -> None:
        """End the thread, and receive the reports still in transit. All processes call it."""
        self.drop()
        self.world.barrier()
        self.listen()


def isSilent(report: Report, now: float) -> bool:
    """True if a process has sent no report for long, so that its last one may be out of date."""
    return now - report.heard > SILENT_CHECKS * LOOK


def about(report: Report, now: float) -> str:
    """Describe the state of a late process."""
    if isSilent(report, now):
        return f"has been silent for {now - report.heard:.1f} s, at collective {report.done + 1}{inside(report)}"
    doing = "waiting" if report.isWaiting else "computing"
    return f"is before collective {report.done + 1}{inside(report)}, {doing}"


def inside(report: Report) -> str:
    """Return the label of a collective in parentheses."""
    return f" ({report.label})" if report.label else ""


def packed(report: Report) -> np.ndarray:
    """A report as bytes of a fixed length."""
    numbers = np.array([report.done, report.isWaiting, report.moved], np.int64).tobytes()
    text = report.label.encode()[: REPORT_BYTES - len(numbers)].ljust(REPORT_BYTES - len(numbers), b"\0")
    return np.frombuffer(numbers + text, np.uint8)


def unpacked(data: np.ndarray) -> Report:
    """Read a report from its bytes, received now."""
    done, isWaiting, moved = data[:24].view(np.int64).tolist()
    label = data[24:].tobytes().rstrip(b"\0").decode(errors="replace")
    return Report(done, bool(isWaiting), label, time.monotonic(), moved)
