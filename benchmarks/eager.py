"""Eager training steps next to PyTorch's eager ones, in float32, as ratios of medians of interleaved blocks.

    python benchmarks/eager.py [--rounds 9] [--threads 2] [--cpu] [--only mlp lenet]

A step is forward, cost, backward and a fused update (`optimizer.update()` here), module by module on both sides, with
the same weights and data, pinned to as many processors as threads. `numpy` is puregraph without native code, for one
block. Where the machine does other work, threads that wait for each other, such as those of OpenMP, lose most; with
`--threads 1 --cpu` the time that the processor took is measured instead, which others change little. Prints a table,
and saves it with the command and the load of the machine before it started in benchmarks/results/eager.txt.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "eager.txt"
CASES = {"mlp": 64, "lenet": 64, "resnet20": 64, "transformer": 8}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    return parser.parse_args()


def steps(name, batch, file):
    """By contender, a call that makes one training step."""
    from benchmarks.contenders import puregraph, torch
    from puregraph.ops.kernel import useFast

    puregraph.writeWeights(name, file)
    ours, twin = (puregraph.prepare(name, "train", batch, file, False)[0] for _ in range(2))
    theirs, _ = torch.prepare(name, "train", batch, file)

    def numpyStep():
        with useFast(False):
            return twin()

    costs = [puregraph.number(ours()), torch.number(theirs())]
    assert abs(costs[0] - costs[1]) < 1e-3 * abs(costs[1]), costs
    return {"puregraph": ours, "PyTorch": theirs, "numpy": numpyStep}


def timed(contenders, rounds, clock):
    """By contender, the median over rounds of the median of a block of steps, and the fastest step, in milliseconds."""
    from numpy import median

    for step in contenders.values():
        step()
        step()
    blocks = {name: [] for name in contenders}
    for index in range(rounds):
        for name, step in contenders.items():
            if name == "numpy" and index:
                continue
            times, end = [], clock() + 0.4
            while clock() < end or len(times) < 3:
                begin = clock()
                step()
                times.append(clock() - begin)
            blocks[name].append((1e3 * median(times), 1e3 * min(times)))
    return {name: (float(median([m for m, _ in row])), min(f for _, f in row)) for name, row in blocks.items()}


def main():
    options = arguments()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])  # before libraries count processors
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from benchmarks import workloads
    from benchmarks.contenders import torch

    torch.begin(options.threads)
    clock = time.process_time if options.cpu else time.perf_counter
    lines = [
        f"python benchmarks/eager.py --rounds {options.rounds} --threads {options.threads}{' --cpu' * options.cpu}",
        f"{platform.processor() or platform.machine()}, {options.threads} threads, float32, an eager training step in "
        f"{'ms of processor time' if options.cpu else 'ms'}; load of the machine before: {os.getloadavg()[0]:.1f}",
        "",
        f"{'median, fastest':48}{'puregraph':>16}{'PyTorch':>16}{'numpy':>16}{'vs PyTorch':>14}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            times = timed(steps(name, CASES[name], f"{folder}/{name}.npz"), options.rounds, clock)
            row = "".join("{:8.2f}{:8.2f}".format(*times[side]) for side in ("puregraph", "PyTorch", "numpy"))
            ratios = "".join(f"{b / a:7.2f}" for a, b in zip(times["puregraph"], times["PyTorch"]))
            lines.append(f"{f'{workloads.load(name).TITLE}, batch {CASES[name]}':48.48}{row}{ratios}")
            print(lines[-1], flush=True)
    RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
