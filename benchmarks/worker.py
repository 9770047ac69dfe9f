"""One contender in a process of its own: a command on each line of its input, an answer on each line of its output.

    python -m benchmarks.worker '{"contender": "torch", "cpus": [0, 1]}'

The commands, each with what it is for:

    {"do": "setup", "workload": "mlp", "mode": "train", "batch": 64, "weights": null}   make ready, and do one step
    {"do": "rehearse", "mode": "train"}   let the libraries load what they need: memory counts from here
    {"do": "memory"}                      more steps: what the process has grown by at their peak
    {"do": "warm"}                        more steps: how long one takes
    {"do": "block", "calls": 20}          the times of that many steps, and who else was busy

On a GPU the time of a block is that of all its steps together, by the clock and by the GPU's own events, and

    {"do": "host", "calls": 20}           how long it takes to start a step, with nobody waiting for it
"""

import json
import os
import sys
import time
import traceback

SETTINGS = json.loads(sys.argv[1])
os.sched_setaffinity(0, SETTINGS["cpus"])  # before any library counts processors

import gc  # noqa: E402 - the processors come first
import importlib  # noqa: E402
import statistics  # noqa: E402

from benchmarks import machine, workloads  # noqa: E402
from benchmarks.contenders import CONTENDERS, ONGPU, AbsentError  # noqa: E402


class Worker:
    """The state from one command to the next: the contender's module and its step."""

    known = CONTENDERS

    def __init__(self, contender, cpus):
        self.framework, self.options = self.known[contender]
        self.cpus = cpus
        self.side = importlib.import_module(f"benchmarks.contenders.{self.framework}")
        self.side.begin(len(cpus))
        self.base, self.step = self.held(), None

    def setup(self, workload, mode, batch, weights=None, settings=None):
        """Make the network, and do the first step: its value, and notes about it."""
        self.step = None  # the one before it goes first
        workloads.resize(workload, settings or {})
        self.step, notes = self.side.prepare(workload, mode, batch, weights, **self.options)
        return {"value": self.side.number(self.step()), "notes": notes}

    def rehearse(self, mode):
        """A tiny network first: what libraries load and keep for their own use is no part of a step's memory."""
        self.setup("tiny", mode, 2)
        for _ in range(3):
            self.step()
        self.step = None
        gc.collect()
        self.base = self.held()

    def held(self):
        """The memory that this process has now."""
        return machine.resident()["anonymous"]

    def warm(self, seconds=0.3):
        """Steps for some seconds, until their time is known: seconds of one."""
        gc.collect()
        gc.disable()
        self.step()
        calls, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds or calls < 1:
            self.step()
            calls += 1
        return {"seconds": (time.perf_counter() - start) / calls}

    def memory(self):
        """What the process has grown by at the peak of later steps: weights and state, values and gradients."""
        for _ in range(2):
            self.step()
        machine.forgetPeak()
        for _ in range(3):
            self.step()
        return {"bytes": machine.anonymousPeak() - self.base}

    def block(self, calls):
        """The times of some steps, and the share of the processors that others took meanwhile."""
        clock, step, times = time.perf_counter, self.step, []
        before, taken, start = os.times(), machine.busy(self.cpus), clock()
        step()
        for _ in range(calls):
            begun = clock()
            step()
            times.append(clock() - begun)
        after, taken, wall = os.times(), machine.busy(self.cpus) - taken, clock() - start
        own = after.user + after.system - before.user - before.system
        return {"times": times, "foreign": (taken - own) / (len(self.cpus) * wall)}


class OnGpu(Worker):
    """A worker whose steps run on a GPU, while it goes on."""

    known = ONGPU

    def timed(self, calls):
        """Some steps: seconds until all are done, until all were started, and by events of the GPU."""
        side, step, clock = self.side, self.step, time.perf_counter
        side.wait()
        first, start = side.mark(), clock()
        for _ in range(calls):
            step()
        started, last = clock() - start, side.mark()
        side.wait()
        return clock() - start, started, side.between(first, last)

    def held(self):
        """Nobody asks for the memory of the host."""

    def setup(self, workload, mode, batch, precision, **more):
        """As ever, in this precision; and how long that took."""
        begun = time.perf_counter()
        self.options = {**self.options, "precision": precision}
        found = super().setup(workload, mode, batch, **more)
        return {**found, "ready": time.perf_counter() - begun}

    def warm(self, seconds=0.3):
        """Steps for some seconds, until their time is known: seconds of one."""
        gc.collect()
        gc.disable()
        calls, taken = 2, self.timed(3)[0]  # graphs are captured in the first ones
        while (taken := self.timed(calls)[0]) < seconds and calls < 10_000:
            calls *= 2
        return {"seconds": taken / calls}

    def block(self, calls):
        """The time of a step among many, by the clock and by events."""
        self.step()
        wall, _, own = self.timed(calls)
        return {"times": [wall / calls], "events": None if own is None else own / calls, "foreign": 0.0}

    def host(self, calls):
        """How long it takes to start a step: the median of many, each with nothing before it."""
        return {"seconds": statistics.median(self.timed(1)[1] for _ in range(calls))}


def wordsOf(error):
    """What went wrong, as an answer; all of it goes into the log."""
    if isinstance(error, AbsentError):
        return {"absent": str(error)}
    traceback.print_exc()
    return {"error": f"{type(error).__name__}: {error}"[:300]}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer

    def answer(found):
        answers.write(json.dumps(found) + "\n")
        answers.flush()

    try:
        worker = {"Worker": Worker, "OnGpu": OnGpu}[SETTINGS.pop("worker", "Worker")](**SETTINGS)
    except Exception as error:
        answer(wordsOf(error))
        return
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer(getattr(worker, command.pop("do"))(**command) or {})
        except Exception as error:
            answer(wordsOf(error))


if __name__ == "__main__":
    main()
