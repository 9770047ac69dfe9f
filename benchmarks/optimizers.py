"""A compiled training step of the workload gpt with each optimizer, as ratios to AdamW, and the memory each takes.

    python benchmarks/optimizers.py [--rounds 9] [--texts 4 8 16]

Steps of all optimizers take turns; times are those of the processor, in the fastest round, since others may use the
machine (with PUREGRAPH_THREADS=1 no thread waits for another). `state` is the share of AdamW's state that is kept for
one matrix of 1024 x 4096. What Muon takes does not depend on how many words a step has: with few of them it weighs
more. `Muon of layers` leaves the embedding, which is the head too, to AdamW. Prints a table, and saves it with the
command to benchmarks/results/optimizers.txt.
"""

import argparse
import os
import platform
import time
from pathlib import Path

import numpy as np

import puregraph as pg
from puregraph import models

RESULT = Path(__file__).parent / "results" / "optimizers.txt"
NAMES = ("AdamW", "SGD", "MomentumSGD", "Lion", "NAdam", "ScheduleFree", "LAMB", "Adafactor", "Muon")
OPTIMIZERS = {name: getattr(pg, name) for name in NAMES} | {
    "Muon of layers": lambda rate: pg.MultiOptimizer({"*words.W": pg.AdamW(rate), "*": pg.Muon(rate)})
}
THREADS = f"PUREGRAPH_THREADS={n} " if (n := os.environ.get("PUREGRAPH_THREADS")) else ""
WORDS, LENGTH, LAYERS, HEADS, SIZE = 8192, 256, 6, 6, 384  # the workload gpt, which has 8 texts a step


def stepOf(optimizer, texts):
    """A call that makes one training step."""
    pg.seed(0)
    net = pg.Sequential(models.gpt(WORDS, LENGTH, LAYERS, HEADS, SIZE), pg.Reshape((-1, WORDS)))
    program = net.compile((texts, LENGTH), (texts * LENGTH,), cost=pg.CrossEntropy(), optimizer=optimizer)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, WORDS, (texts, LENGTH)), rng.integers(0, WORDS, texts * LENGTH)
    return lambda: program.run(x, y)


def stateOf(name):
    """The elements that an optimizer keeps for a large matrix."""
    start = getattr(pg, name.split()[0])(1e-3).startAll(np.zeros((1024, 4096), np.float32))
    return sum(array.size for array in start.values())


def timed(texts, rounds):
    """The milliseconds of AdamW's step, and by optimizer the ratio to it."""
    steps = {name: stepOf(make(1e-3), texts) for name, make in OPTIMIZERS.items()}
    for step in steps.values():
        step()
        step()
    times = {name: [] for name in OPTIMIZERS}
    for _ in range(rounds):
        for name, step in steps.items():
            begin = time.process_time()
            step()
            times[name].append(time.process_time() - begin)
    fastest = min(times["AdamW"])
    return 1e3 * fastest, {name: min(ofName) / fastest for name, ofName in times.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--texts", type=int, nargs="+", default=[4, 8, 16])
    options = parser.parse_args()
    texts, rows = options.texts, [timed(count, options.rounds) for count in options.texts]
    lines = [
        f"{THREADS}python benchmarks/optimizers.py --rounds {options.rounds} --texts {' '.join(map(str, texts))}",
        f"Python {platform.python_version()}, numpy {np.__version__}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores",
        f"GPT of {LAYERS} layers of {SIZE}, texts of {LENGTH} of {WORDS} words; {options.rounds} rounds",
        "",
        f"{'words a step':16}" + "".join(f"{count * LENGTH:8,}" for count in texts) + f"{'state':>10}",
        f"{'AdamW, ms':16}" + "".join(f"{ms:8.0f}" for ms, _ in rows),
    ]
    for name in OPTIMIZERS:
        share = f"{stateOf(name) / stateOf('AdamW'):10.4f}"
        lines.append(f"{name:16}" + "".join(f"{ratios[name]:8.2f}" for _, ratios in rows) + share)
    text = "\n".join(lines) + "\n"
    print(text)
    RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
