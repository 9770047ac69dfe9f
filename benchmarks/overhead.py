"""What the eager path costs in Python for each node: a chain of Identity, forward and backward.

    python benchmarks/overhead.py [--nodes 1000] [--repeats 200]

Prints a table, and saves it with the command to benchmarks/results/overhead.txt.
"""

import argparse
import gc
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from puregraph.graph.sequential import Sequential
from puregraph.modules import Identity

TARGETS = {"forward": 3.0, "backward": 6.0}  # microseconds
RESULT = Path(__file__).parent / "results" / "overhead.txt"


def microseconds(call, repeats):
    """The time of each of many calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - start) / 1000)
    return times


def measure(nodes, repeats):
    """(pass, nodes) to the median and the fastest time of a node in microseconds."""
    x = np.zeros(1, np.float32)
    net = Sequential([Identity() for _ in range(nodes)])
    calls = {"forward": lambda: net(x), "backward": lambda: net.backward(x)}
    for call in calls.values():
        call()
    gc.collect()
    gc.disable()
    try:
        times = {name: microseconds(call, repeats) for name, call in calls.items()}
    finally:
        gc.enable()
    return {name: (statistics.median(t) / nodes, min(t) / nodes) for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args()
    lines = [
        f"{' '.join(['python', 'benchmarks/overhead.py', *sys.argv[1:]])}",
        f"Python {platform.python_version()}, numpy {np.__version__}, {platform.system()} {platform.machine()}",
        f"a chain of {options.nodes} Identity nodes, {options.repeats} repeats; microseconds a node",
        "",
        f"{'pass':10}{'median':>8}{'fastest':>9}{'target':>8}",
    ]
    for name, (median, fastest) in measure(options.nodes, options.repeats).items():
        verdict = "" if median <= TARGETS[name] else "   above the target"
        lines.append(f"{name:10}{median:8.2f}{fastest:9.2f}{TARGETS[name]:8.1f}{verdict}")
    text = "\n".join(lines)
    print(text)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text + "\n")


if __name__ == "__main__":
    main()
