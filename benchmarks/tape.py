"""What the tape costs in Python for each operation: chains on scalars, forward and backward, beside eager PyTorch.

    python benchmarks/tape.py [--operations 10000] [--repeats 21]

Both take their turns in one run, PyTorch on one thread and on float64 scalars, so that a busy machine slows both.
Prints a table, and saves it with the command to benchmarks/results/tape.txt.
"""

import argparse
import gc
import importlib.util
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from puregraph.autodiff import Function, Variable

TARGET = 15.0  # microseconds an operation, forward and backward together
RESULT = Path(__file__).parent / "results" / "tape.txt"


class Scaled(Function):
    """1.0001 x."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0001

    @staticmethod
    def backward(ctx, g):
        return g * 1.0001


def operators(y, x):
    """Four operations."""
    return (y * 1.0001 + x - 0.5) * x


CHAINS = {  # the operations of a link, and the link on a Variable
    "(y * 1.0001 + x - 0.5) * x": (4, operators),
    "tanh(y)": (1, lambda y, x: np.tanh(y)),
    "y ** 2": (1, lambda y, x: y**2),
    "a Function": (1, lambda y, x: Scaled.apply(y)),
}


def theirs():
    """The same links for torch."""
    import torch  # an optional peer

    torch.set_num_threads(1)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0001

        @staticmethod
        def backward(ctx, g):
            return g * 1.0001

    links = [operators, lambda y, x: torch.tanh(y), lambda y, x: y**2, lambda y, x: Scaled.apply(y)]
    return f"torch {torch.__version__}", links, lambda: torch.tensor(0.5, dtype=torch.float64, requires_grad=True)


def once(link, leaf, links):
    """Microseconds forward and backward of one chain."""
    x = y = leaf()
    start = time.perf_counter_ns()
    for _ in range(links):
        y = link(y, x)
    middle = time.perf_counter_ns()
    y.backward()
    end = time.perf_counter_ns()
    return (middle - start) / 1000, (end - middle) / 1000


def measure(operations, repeats, peers):
    """For each chain and each side, the medians of forward, backward and their sum, of an operation."""
    rows = {}
    for index, (name, (count, link)) in enumerate(CHAINS.items()):
        sides = {"puregraph": (link, lambda: Variable(0.5, requires_grad=True))}
        if peers:
            sides[peers[0]] = (peers[1][index], peers[2])
        times = {side: [] for side in sides}
        for _ in range(repeats):
            for side, (own, leaf) in sides.items():
                gc.collect()
                gc.disable()
                try:
                    times[side].append(once(own, leaf, operations // count))
                finally:
                    gc.enable()
        for side, pairs in times.items():
            forward, backward = (statistics.median(t) / operations for t in zip(*pairs))
            rows[name, side] = forward, backward, statistics.median(map(sum, pairs)) / operations
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=21)
    options = parser.parse_args()
    peers = theirs() if importlib.util.find_spec("torch") else None
    lines = [
        f"{' '.join(['python', 'benchmarks/tape.py', *sys.argv[1:]])}",
        f"Python {platform.python_version()}, numpy {np.__version__}, {platform.system()} {platform.machine()}",
        f"chains of {options.operations} operations on float64 scalars, {options.repeats} repeats in turns; "
        "medians, microseconds an operation",
        "",
        f"{'chain':28}{'side':20}{'forward':>9}{'backward':>10}{'both':>8}{'target':>8}",
    ]
    for (name, side), (forward, backward, both) in measure(options.operations, options.repeats, peers).items():
        isOurs = side == "puregraph"
        target = f"{TARGET:8.1f}" + ("" if both <= TARGET else "   above the target") if isOurs else ""
        lines.append(f"{name:28}{side:20}{forward:9.2f}{backward:10.2f}{both:8.2f}{target}")
    text = "\n".join(lines)
    print(text)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text + "\n")


if __name__ == "__main__":
    main()
