"""What one hash for any number of threads costs: training steps, interleaved, on the same processors.

    git worktree add ../before 49522eec^
    git worktree add ../after 49522eec
    python -m benchmarks.repeatable [--rounds 40] [--seconds 0.1] [--checkouts ../before ../after]

Compiled steps in float32 have one hash by default, since vectors are multiplied by matrices in groups of columns that
do not depend on the threads: `--checkouts` times them before and after that, each in a process of its own. Eager passes
and float64 have it with `Trainer(repeatable="threads")`, for which numpy's BLAS has one thread: two trainers take
turns. A row has the medians of both, the median and the quartiles of the ratios of neighbouring blocks, and the ratio
of the shortest blocks, which other work disturbs least. Prints a table, and saves it to
benchmarks/results/repeatable.txt.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import puregraph
from benchmarks import machine
from benchmarks.checkouts import CheckoutProcess
from puregraph import Adam, CrossEntropy, Trainer
from puregraph.models import lenet, mlp
from puregraph.ops.native.threads.blas import openBlas

RESULT = Path(__file__).parent / "results" / "repeatable.txt"
COMPILED = ("mlp-1", "mlp-64", "lenet-64", "dlrm-256")
HEAD = f"{'training step':47} {'before ms':>10} {'after ms':>10} {'ratio':>7} {'quartiles':>13} {'shortest':>9}"


def cases():
    """Title, network, the shape of a sample, the batch, and whether steps are compiled, in which dtype."""
    for dtype, isCompiled in (("float32", False), ("float64", False), ("float64", True)):
        how = f"{'compiled' if isCompiled else 'eager'}, {dtype}"
        yield f"MLP 784-512-512-10, 64, {how}", lambda: mlp(784, (512, 512), 10), (784,), 64, isCompiled, dtype
        yield f"LeNet, 64, {how}", lenet, (1, 28, 28), 64, isCompiled, dtype


def trainerOf(make, isCompiled, dtype, batch, repeatable):
    """A trainer of a network in a dtype."""
    puregraph.seed(0)
    options = {"batchsize": batch, "shuffle": False, "progress": "none", "prefetch": 0}
    net = make().calcMode(np.dtype(dtype))
    return Trainer(net, CrossEntropy(), Adam(1e-6), compile=isCompiled, repeatable=repeatable, **options)


def timed(trainer, data, target):
    """The milliseconds of a step, over an epoch."""
    start = time.perf_counter()
    trainer.train(data, target)
    return (time.perf_counter() - start) * 1e3 / (len(data) // trainer.batchsize)


def trainers(title, make, shape, batch, isCompiled, dtype, rounds, seconds):
    """The row of eager passes or float64: without `repeatable` and with it."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((batch, *shape)).astype(dtype)
    target = rng.integers(0, 10, batch)
    sides = [trainerOf(make, isCompiled, dtype, batch, repeatable) for repeatable in (None, "threads")]
    for side in sides:
        timed(side, data, target)
    steps = max(2, int(seconds * 1e3 / min(timed(side, data, target) for side in sides)))
    data, target = np.concatenate([data] * steps), np.concatenate([target] * steps)
    return row(title, [lambda side=side: timed(side, data, target) for side in sides], rounds)


def checkouts(folders, case, cpus, rounds, seconds):
    """The row of a compiled step of two checkouts."""
    sides = [CheckoutProcess(folder, cpus) for folder in folders]
    try:
        for side in sides:
            side.setup(case)
        calls = max(2, int(seconds / max(side.ask("warm", seconds=seconds)["seconds"] for side in sides)))
        blocks = [lambda side=side: 1e3 * statistics.median(side.ask("block", calls=calls)["times"]) for side in sides]
        return row(f"{case}, compiled, float32", blocks, rounds)
    finally:
        for side in sides:
            side.close()


def row(title, sides, rounds):
    """One line: both sides in turns, the first and the second of a round by turns as well."""
    times = [[], []]
    for turn in range(rounds):
        for i in (0, 1) if turn % 2 else (1, 0):
            times[i].append(sides[i]())
    low, ratio, high = statistics.quantiles([after / before for before, after in zip(*times)], n=4)
    before, after = map(statistics.median, times)
    shortest = min(times[1]) / min(times[0])
    return f"{title:47} {before:10.4g} {after:10.4g} {ratio:7.3f} {f'{low:.3f}-{high:.3f}':>13} {shortest:9.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a block")
    parser.add_argument("--checkouts", nargs=2, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--cpus", type=int, nargs="+", default=sorted(os.sched_getaffinity(0)))
    options = parser.parse_args()
    os.sched_setaffinity(0, options.cpus)
    openBlas().set(len(options.cpus))
    lines = [
        f"{' '.join(['python -m benchmarks.repeatable', *sys.argv[1:]])}",
        machine.processor(),
        machine.versions(),
        "",
    ]

    def add(line):
        lines.append(line)
        print(line, flush=True)

    busy, start = machine.busy(options.cpus) - sum(os.times()[:4]), time.perf_counter()
    add(HEAD)
    for case in COMPILED if options.checkouts else ():
        add(checkouts(options.checkouts, case, options.cpus, options.rounds, options.seconds))
    for case in cases():
        add(trainers(*case, options.rounds, options.seconds))
    others = machine.busy(options.cpus) - sum(os.times()[:4]) - busy
    share = others / len(options.cpus) / (time.perf_counter() - start)
    add(f"\nothers, and processes of checkouts, took {share:.0%} of the processors meanwhile")
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
