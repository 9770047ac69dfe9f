"""What a step costs where the Trainer could be one of several processes, and is alone: time a step, interleaved.

    python benchmarks/worldofone.py [--rounds 100] [--steps 20]

`alone` is a process that nobody has launched, `MPI` one that is in a world of one. They take turns, and `more` is the
median of the differences; `noise` that between two turns alone. Prints a table, and saves it with the command to
benchmarks/results/worldofone.txt.
"""

import argparse
import platform
import sys
import time
from pathlib import Path

import numpy as np

import puregraph
from puregraph import Adam, CrossEntropy, Trainer
from puregraph.distributed.worlds import current
from puregraph.models import lenet, mlp

RESULT = Path(__file__).parent / "results" / "worldofone.txt"
LIMIT = 50, 0.03  # microseconds, or this share of a step: one of the two is kept


def cases():
    """Title, network, and the shape of a sample."""
    yield "mlp 64-32-10, batch 64", lambda: mlp(64, (32,), 10), (64,), 64
    yield "mlp 784-512-512-10, batch 128", lambda: mlp(784, (512, 512), 10), (784,), 128
    yield "lenet, batch 64", lenet, (1, 28, 28), 64


def microseconds(trainer, data, target, joined):
    """The time of a step, over an epoch."""
    current.CURRENT[:] = joined
    start = time.perf_counter_ns()
    trainer.train(data, target)
    return (time.perf_counter_ns() - start) / 1000 / (len(data) // trainer.batchsize)


def measure(make, shape, batchsize, rounds, steps, joined):
    """The times of a step alone, in a world of one, and alone again, of every round."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((steps * batchsize, *shape)).astype(np.float32)
    target = rng.integers(0, 10, len(data))
    puregraph.seed(0)
    trainer = Trainer(make(), CrossEntropy(), Adam(1e-3), batchsize=batchsize, shuffle=False, progress="none")
    microseconds(trainer, data, target, [])  # compiles
    found = []
    for turn in range(rounds):
        ways = [(0, []), (1, joined), (2, [])]
        times = {n: microseconds(trainer, data, target, world) for n, world in (ways if turn % 2 else ways[::-1])}
        found.append([times[n] for n in range(3)])
    current.CURRENT[:] = joined
    return np.array(found).T


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    joined = [current.join()]
    lines = [
        f"{' '.join(['python', 'benchmarks/worldofone.py', *sys.argv[1:]])}",
        f"Python {platform.python_version()}, numpy {np.__version__}, {platform.system()} {platform.machine()}",
        f"{options.rounds} rounds of {options.steps} steps; microseconds a step",
        "",
        f"{'network':32} {'alone':>8} {'MPI':>8} {'more':>7} {'noise':>7}",
    ]
    good = True
    for title, make, shape, batchsize in cases():
        alone, joint, again = measure(make, shape, batchsize, options.rounds, options.steps, joined)
        more, noise = np.median(joint - (alone + again) / 2), np.median(again - alone)
        lines.append(f"{title:32} {np.median(alone):8.0f} {np.median(joint):8.0f} {more:7.1f} {noise:7.1f}")
        good = good and more <= max(LIMIT[0], LIMIT[1] * np.median(alone))
    lines += ["", f"at most {LIMIT[0]} us or {LIMIT[1]:.0%} of a step: {'kept' if good else 'NOT kept'}"]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
