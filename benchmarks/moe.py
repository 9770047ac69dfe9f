"""A mixture of experts beside a dense layer with as many operations: compiled, inference and training.

    python benchmarks/moe.py [--rows 2048] [--size 256] [--inner 1024] [--experts 8] [--k 2] [--rounds 40]

The dense layer has k times the inner width, so that its products have k * rows * size * inner terms as well. Experts
are measured without dropped choices (the default) and with a capacity of rows * k / experts. Training is a step with
the mean squared error and SGD. All take turns, two threads; the ratio is the median over the rounds of a time to that
of the dense layer in the same round.

Prints a table, and saves it with the command to benchmarks/results/moe.txt.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

if __name__ == "__main__":  # before numpy's library starts its threads
    sys.path.insert(0, str(Path(__file__).parents[1]))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])

import puregraph as pg
from benchmarks import machine

RESULT = Path(__file__).parent / "results" / "moe.txt"


def nets(options):
    """The dense layer, and the experts, by name."""
    size, inner, k, experts = options.size, options.inner, options.k, options.experts
    capacity = options.rows * k // experts
    mixture = [size, experts, k, inner]
    return {
        "dense": pg.Sequential([pg.Linear(size, k * inner), pg.Gelu(), pg.Linear(k * inner, size)]),
        "experts": pg.MoE(*mixture, activation="gelu"),
        "experts, capacity": pg.MoE(*mixture, capacity, activation="gelu"),
    }


def programs(options, train):
    """The compiled programs by name."""
    shape = (options.rows, options.size)
    for name, net in nets(options).items():
        if train:
            yield name, net.compile([shape, shape], cost=pg.MSE(), optimizer=pg.SGD(1e-12))
        else:
            yield name, net.evalMode().compile([shape], train=False)


def compare(options, train):
    """Lines of a table."""
    rng = np.random.default_rng(0)
    x, target = (rng.standard_normal((options.rows, options.size)).astype(np.float32) for _ in range(2))
    steps, arrays = dict(programs(options, train)), (x, target) if train else (x,)
    times = {name: [] for name in steps}
    for _ in range(options.rounds + 1):
        for name, step in steps.items():
            begin = time.perf_counter()
            step.run(*arrays)
            times[name].append(1e3 * (time.perf_counter() - begin))
    for name, column in times.items():
        ratio = statistics.median(a / b for a, b in zip(column[1:], times["dense"][1:]))
        label = "training" if train else "inference"
        yield f"{label:11}{name:20}{statistics.median(column[1:]):9.2f}{min(column):9.2f}{ratio:8.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("rows", 2048), ("size", 256), ("inner", 1024), ("experts", 8), ("k", 2), ("rounds", 40)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    lines = [
        " ".join(["python benchmarks/moe.py", *sys.argv[1:]]),
        machine.processor(),
        machine.versions(),
        f"{options.rows} rows of {options.size}, {options.experts} experts of {options.inner}, k = {options.k}; "
        f"load average {load:.1f} at the start",
        "",
        f"{'':31}{'median ms':>9}{'min ms':>9}{'ratio':>8}",
    ]
    for train in (False, True):
        lines += compare(options, train)
    text = "\n".join(lines) + "\n"
    print(text)
    RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
