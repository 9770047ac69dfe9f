"""A linear layer and its cross-entropy over many classes, as two modules and in blocks: time and memory of a step.

    python benchmarks/blockedcost.py [--positions 8192] [--size 768] [--classes 50257] [--blocks 16] [--rounds 5]

By default the output layer of GPT-2 for 8 texts of 1,024 words. Both steps are compiled, with an update by SGD; they
take turns, and the least time of the rounds counts. `memory` is what a step needs beside parameters and gradients.
Prints a table, and saves it with the command to benchmarks/results/blockedcost.txt.
"""

import argparse
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np

import puregraph as pg

RESULT = Path(__file__).parent / "results" / "blockedcost.txt"
NAMES = ("Linear + CrossEntropy", "LinearCrossEntropy")


def stepOf(name, positions, size, classes, blocks):
    """The compiled training step."""
    pg.seed(0)
    x, labels = pg.Input(name="x").node(), pg.Input(name="labels").node()
    below = pg.Linear(size, size, name="below")(x)
    if name == NAMES[0]:
        cost = pg.CrossEntropy()(pg.Linear(size, classes, useBias=False, name="scores")(below), labels)
    else:
        cost = pg.LinearCrossEntropy(size, classes, useBias=False, blocks=blocks, name="scores")(below, labels)
    net = pg.Graph([x, labels], cost)
    return net.compile([(positions, size), (positions,)], dtypes=[np.float32, np.int64], optimizer=pg.SGD(1e-3))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("positions", 8192), ("size", 768), ("classes", 50257), ("blocks", 16), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    positions, size, classes, blocks = options.positions, options.size, options.classes, options.blocks
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((positions, size)).astype(np.float32), rng.integers(0, classes, positions)
    steps = {name: stepOf(name, positions, size, classes, blocks) for name in NAMES}
    costs = {name: float(step.run(x, labels)) for name, step in steps.items()}
    times = {name: [] for name in NAMES}
    for _ in range(options.rounds):
        for name, step in steps.items():
            begin = time.perf_counter()
            step.run(x, labels)
            times[name].append(time.perf_counter() - begin)
    first = NAMES[0]
    lines = [
        " ".join(["python benchmarks/blockedcost.py", *sys.argv[1:]]),
        f"Python {platform.python_version()}, numpy {np.__version__}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        f"{positions} positions of {size}, {classes} classes, {blocks} blocks; the least of {options.rounds} rounds",
        "",
        f"{'step':24}{'seconds':>9}{'ratio':>7}{'memory, MB':>12}{'ratio':>7}{'cost':>12}",
    ]
    for name, step in steps.items():
        least = min(times[name])
        lines.append(
            f"{name:24}{least:9.2f}{least / min(times[first]):7.2f}{step.bytes / 1e6:12.1f}"
            f"{step.bytes / steps[first].bytes:7.3f}{costs[name]:12.6f}"
        )
    text = "\n".join(lines) + "\n"
    print(text)
    RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
