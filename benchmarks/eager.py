"""Eager training steps next to PyTorch's eager ones, in float32, as ratios of medians of interleaved blocks.

    python benchmarks/eager.py [--rounds 9] [--threads 2] [--only mlp lenet]

A step is forward, cost, backward and a fused update (`optimizer.update()` here), module by module on both sides, with
the same weights and data, pinned to as many processors as threads. `numpy` is puregraph without native code, a block
for every third round. Prints a table, and saves it with the command and the load of the machine before it started in
benchmarks/results/eager.txt.
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


def timed(contenders, rounds):
    """The median over rounds of the median of a block of steps, by contender, in milliseconds."""
    from numpy import median

    for step in contenders.values():
        step()
        step()
    blocks = {name: [] for name in contenders}
    for index in range(rounds):
        for name, step in contenders.items():
            if name == "numpy" and index % 3:
                continue
            times, end = [], time.perf_counter() + 0.3
            while time.perf_counter() < end or len(times) < 3:
                begin = time.perf_counter()
                step()
                times.append(time.perf_counter() - begin)
            blocks[name].append(1e3 * median(times))
    return {name: float(median(row)) for name, row in blocks.items()}


def main():
    options = arguments()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])  # before libraries count processors
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from benchmarks import workloads
    from benchmarks.contenders import torch

    torch.begin(options.threads)
    lines = [
        f"python benchmarks/eager.py --rounds {options.rounds} --threads {options.threads}",
        f"{platform.processor() or platform.machine()}, {options.threads} threads, float32, ms an eager training step; "
        f"load of the machine before: {os.getloadavg()[0]:.1f}",
        "",
        f"{'':52}{'puregraph':>10}{'PyTorch':>10}{'numpy':>10}{'vs PyTorch':>12}{'vs numpy':>10}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            times = timed(steps(name, CASES[name], f"{folder}/{name}.npz"), options.rounds)
            row = "".join(f"{times[side]:10.2f}" for side in ("puregraph", "PyTorch", "numpy"))
            ratios = f"{times['PyTorch'] / times['puregraph']:12.2f}{times['numpy'] / times['puregraph']:10.2f}"
            lines.append(f"{f'{workloads.load(name).TITLE}, batch {CASES[name]}':52.52}{row}{ratios}")
            print(lines[-1], flush=True)
    RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
