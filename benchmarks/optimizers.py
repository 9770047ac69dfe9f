"""A compiled training step of a small GPT with each optimizer, as ratios to AdamW, and the memory of what each keeps.

    python benchmarks/optimizers.py [--rounds 9] [--texts 32]

Steps of all optimizers take turns; medians of the rounds. `state` is the share of AdamW's state that is kept for one
matrix of 1024 x 4096. What Muon takes does not depend on how many words a step has: with few of them it weighs more.
Prints a table, and saves it with the command to benchmarks/results/optimizers.txt.
"""

import argparse
import os
import platform
import statistics
import time
from pathlib import Path

import numpy as np

import puregraph as pg
from puregraph import models

RESULT = Path(__file__).parent / "results" / "optimizers.txt"
OPTIMIZERS = ("AdamW", "SGD", "MomentumSGD", "Lion", "NAdam", "ScheduleFree", "LAMB", "Adafactor", "Muon")
WORDS, LENGTH, LAYERS, HEADS, SIZE = 2048, 256, 4, 4, 256


def stepOf(name, texts):
    """A call that makes one training step."""
    pg.seed(0)
    net = pg.Sequential(models.gpt(WORDS, LENGTH, LAYERS, HEADS, SIZE), pg.Reshape((-1, WORDS)))
    program = net.compile((texts, LENGTH), (texts * LENGTH,), cost=pg.CrossEntropy(), optimizer=getattr(pg, name)(1e-3))
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, WORDS, (texts, LENGTH)), rng.integers(0, WORDS, texts * LENGTH)
    return lambda: program.run(x, y)


def stateOf(name):
    """The elements that an optimizer keeps for a large matrix."""
    start = getattr(pg, name)(1e-3).startAll(np.zeros((1024, 4096), np.float32))
    return sum(array.size for array in start.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--texts", type=int, default=32)
    options = parser.parse_args()
    rounds, texts = options.rounds, options.texts
    steps = {name: stepOf(name, texts) for name in OPTIMIZERS}
    times = {name: [] for name in OPTIMIZERS}
    for step in steps.values():
        step()
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            begin = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(values) for name, values in times.items()}
    lines = [
        f"python benchmarks/optimizers.py --rounds {rounds} --texts {texts}",
        f"Python {platform.python_version()}, numpy {np.__version__}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores",
        f"GPT of {LAYERS} layers of {SIZE}, {texts} texts of {LENGTH} of {WORDS} words; medians of {rounds} rounds",
        "",
        f"{'optimizer':14}{'ms':>8}{'of AdamW':>10}{'state':>10}",
    ]
    for name in OPTIMIZERS:
        share = stateOf(name) / stateOf("AdamW")
        lines.append(f"{name:14}{1e3 * medians[name]:8.1f}{medians[name] / medians['AdamW']:10.2f}{share:10.4f}")
    text = "\n".join(lines) + "\n"
    print(text)
    RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
