"""The share of Python in a compiled training step: all of it that is not native code.

    python -m benchmarks.share [NAME ...]

Prints a table, and saves it with the command to benchmarks/results/share.txt.
"""

import gc
import os
import statistics
import sys
import time

from benchmarks import report, workloads
from benchmarks.contenders import puregraph as side
from puregraph.ops.native.threads import pool

WANTED = "wanted: from LeNet on at most 5 % of a step; at most 1 us for each of its calls"
SECONDS = 2.0


class Clock:
    """Runs native code, and measures how long that takes."""

    def __init__(self, run):
        self.run, self.taken = run, 0

    def __call__(self, *arguments):
        start = time.perf_counter_ns()
        done = self.run(*arguments)
        self.taken += time.perf_counter_ns() - start
        return done


def measure(name, batch):
    """Milliseconds of a step, microseconds of it that are Python's, and how many calls it has: medians."""
    workload = workloads.load(name)
    inputs, target = workloads.dataOf(workload, batch)
    step, _ = side.prepare(name, "train", batch, None, compiled=True)
    (program,) = [cell.cell_contents for cell in step.__closure__ if hasattr(cell.cell_contents, "plan")]
    step()
    workers = pool.threadPool()
    clock = workers.run = Clock(workers.run)
    times, rests = [], []
    gc.collect()
    gc.disable()
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 5:
        clock.taken, start = 0, time.perf_counter_ns()
        step()
        taken = time.perf_counter_ns() - start
        times.append(taken / 1e6)
        rests.append((taken - clock.taken) / 1e3)
    gc.enable()
    workers.run = clock.run
    calls = sum(not call.kind.isView for call in program.plan.schedule.calls)
    return statistics.median(times), statistics.median(rests), calls


def main(names):
    cpus = sorted(os.sched_getaffinity(0))
    lines = [*report.head(f"python -m benchmarks.share {' '.join(names)}".strip(), cpus), ""]
    lines.append(f"{'training step':20}{'ms':>10}{'Python us':>12}{'share':>9}{'calls':>8}{'us each':>9}")
    for name in names or workloads.NAMES:
        for mode, batch in workloads.load(name).CASES:
            if mode == "train":
                step, rest, calls = measure(name, batch)
                share = f"{rest / step / 10:.2f}%"
                lines.append(f"{f'{name} b{batch}':20}{step:10.3f}{rest:12.1f}{share:>9}{calls:8}{rest / calls:9.2f}")
    lines += ["", WANTED]
    print("\n".join(lines))
    report.write("share", lines)


if __name__ == "__main__":
    main(sys.argv[1:])
