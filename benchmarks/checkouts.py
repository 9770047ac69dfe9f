"""Two checkouts of puregraph on the CPU: their steps in processes of their own, in turn, and their memory.

    git worktree add ../before COMMIT
    python -m benchmarks.checkouts ../before . resnet18-8 gpt-4 mlp-64
    python -m benchmarks.checkouts ../before . resnet18-1 --mode infer

Each checkout runs with its own benchmarks. A row has the medians of both, the median of the ratios of neighbouring
blocks, with the least and the greatest, what the process has grown by at the peak of a step, and the share of the
processors that others took meanwhile.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.lockstep import FailedError

BLOCK, ROUNDS = 0.6, 10  # seconds of a block, and how many each checkout has


class CheckoutProcess:
    """A worker of a checkout: a command on each line, an answer on each line."""

    def __init__(self, folder, cpus):
        folder = Path(folder).resolve()
        command = [sys.executable, "-m", "benchmarks.worker", json.dumps({"contender": "puregraph", "cpus": cpus})]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)

    def setup(self, case, mode):
        """A tiny network, then the workload of this name, such as mlp-64, with its first step."""
        name, batch = case.rsplit("-", 1)
        self.ask("rehearse", mode=mode)
        self.ask("setup", workload=name, mode=mode, batch=int(batch))

    def ask(self, do, **command):
        """The answer to a command."""
        self.process.stdin.write(json.dumps({"do": do, **command}) + "\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline() or '{"error": "the worker has ended"}')
        if "error" in found or "absent" in found:
            raise FailedError(f"{do}: {found}")
        return found

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compared(folders, case, mode, cpus):
    """The row of a workload; its kernels come from the cache, for a process that compiles keeps memory of that."""
    for folder in folders:
        compiling = CheckoutProcess(folder, cpus)
        compiling.setup(case, mode)
        compiling.close()
    sides = [CheckoutProcess(folder, cpus) for folder in folders]
    try:
        memory, taken = [], []
        for side in sides:
            side.setup(case, mode)
            memory.append(side.ask("memory")["bytes"] / 1e6)
            taken.append(side.ask("warm", seconds=BLOCK)["seconds"])
        times, others = [[], []], []
        for turn in range(ROUNDS):
            for i in (0, 1) if turn % 2 else (1, 0):
                found = sides[i].ask("block", calls=max(2, int(BLOCK / max(taken))))
                times[i].append(statistics.median(found["times"]) * 1e3)
                others.append(found["foreign"])
    finally:
        for side in sides:
            side.close()
    ratios = sorted(after / before for before, after in zip(*times))
    first, second = map(statistics.median, times)
    return (
        f"{case:14} {first:10.4g} {second:10.4g} {statistics.median(ratios):8.3f} {ratios[0]:7.3f} {ratios[-1]:7.3f} "
        f"{memory[0]:10.1f} {memory[1]:10.1f} {statistics.median(others):8.0%}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="a checkout")
    parser.add_argument("after", help="another one")
    parser.add_argument("cases", nargs="+", metavar="WORKLOAD-BATCH")
    parser.add_argument("--mode", choices=["train", "infer"], default="train")
    parser.add_argument("--cpus", type=int, nargs="+", default=sorted(os.sched_getaffinity(0)))
    options = parser.parse_args()
    print(f"{options.mode:12}   before ms   after ms    ratio   least    most  before MB   after MB   others")
    for case in options.cases:
        print(compared([options.before, options.after], case, options.mode, options.cpus), flush=True)


if __name__ == "__main__":
    main()
