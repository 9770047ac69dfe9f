"""One contender in a process of its own: a command on each line of its input, an answer on each line of its output.

    python -m benchmarks.worker '{"contender": "torch", "cpus": [0, 1]}'

The commands, each with what it is for:

    {"do": "setup", "workload": "mlp", "mode": "train", "batch": 64, "weights": null}   make ready, and do one step
    {"do": "rehearse", "mode": "train"}   let the libraries load what they need: memory counts from here
    {"do": "memory"}                      more steps: what the process has grown by at their peak
    {"do": "warm"}                        more steps: how long one takes
    {"do": "block", "calls": 20}          the times of so many steps, and who else was busy
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

from benchmarks import machine  # noqa: E402
from benchmarks.contenders import CONTENDERS, AbsentError  # noqa: E402


class Worker:
    """What lives from one command to the next: the contender's module and its step."""

    def __init__(self, contender, cpus):
        self.framework, self.options = CONTENDERS[contender]
        self.cpus = cpus
        self.side = importlib.import_module(f"benchmarks.contenders.{self.framework}")
        self.side.begin(len(cpus))
        self.base, self.step = machine.resident()["anonymous"], None

    def setup(self, workload, mode, batch, weights=None):
        """Make the network, and do the first step: its number, and notes about it."""
        self.step = None  # the one before it goes first
        self.step, notes = self.side.prepare(workload, mode, batch, weights, **self.options)
        return {"value": self.side.number(self.step()), "notes": notes}

    def rehearse(self, mode):
        """A tiny network first: what libraries load and keep for their own use is no part of a step's memory."""
        self.setup("tiny", mode, 2)
        for _ in range(3):
            self.step()
        self.step = None
        gc.collect()
        self.base = machine.resident()["anonymous"]

    def warm(self, seconds=0.3):
        """Steps for so long, until their time is known: seconds of one."""
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
        worker = Worker(**SETTINGS)
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
