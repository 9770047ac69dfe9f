"""Training steps of float64, compiled, next to PyTorch's, as ratios of medians of interleaved blocks.

    python benchmarks/doubles.py [--rounds 9] [--threads 2]

Both frameworks have the same shapes, cross entropy and Adam (PyTorch's fused one), in the same run, pinned to as many
threads. `eager` is puregraph's eager pass, which numpy carries out. Prints a table, and saves it with the command to
benchmarks/results/doubles.txt.
"""

import argparse
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import puregraph as pg

RESULT = Path(__file__).parent / "results" / "doubles.txt"


def mlp():
    """MLP 784-512-512-10, 64 samples."""
    ours = pg.Sequential(pg.Linear(784, 512), pg.Relu(), pg.Linear(512, 512), pg.Relu(), pg.Linear(512, 10))
    layers = nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    return ours, nn.Sequential(*layers), (64, 784)


def lenet():
    """LeNet, 64 images of 28 x 28."""
    ours = pg.Sequential(
        *(pg.Conv2D(1, 6, 5, pad=2), pg.Relu(), pg.MaxPool2D(2), pg.Conv2D(6, 16, 5), pg.Relu(), pg.MaxPool2D(2)),
        *(pg.Flatten(), pg.Linear(400, 120), pg.Relu(), pg.Linear(120, 84), pg.Relu(), pg.Linear(84, 10)),
    )
    theirs = nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )
    return ours, theirs, (64, 1, 28, 28)


class Block(nn.Module):
    """A transformer block of 256, four heads, normalised first, and a linear layer over the mean of positions."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(256), nn.LayerNorm(256)
        self.qkv, self.out = nn.Linear(256, 768), nn.Linear(256, 256)
        self.up, self.down, self.head = nn.Linear(256, 1024), nn.Linear(1024, 256), nn.Linear(256, 10)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, 4, 64).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, 256))
        x = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return self.head(x.mean(1))


def block():
    """Transformer block of 256, 8 x 128."""
    x = pg.Input(name="x").node()
    h = pg.Add()(x, pg.models.multiHeadAttention(256, 4)(pg.LayerNorm(256)(x)))
    wide = pg.Gelu()(pg.Linear(256, 1024)(pg.LayerNorm(256)(h)))
    h = pg.Add()(h, pg.Linear(1024, 256)(wide))
    return pg.Graph(x, pg.Linear(256, 10)(pg.Mean(1)(h))), Block(), (8, 128, 256)


def steps(make):
    """By contender, a call that makes one training step in float64."""
    pg.seed(0)
    net, module, shape = make()
    twin = make()[0]
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(shape), rng.integers(0, 10, shape[0])
    program = net.calcMode("float64").compile([shape, y.shape], cost=pg.CrossEntropy(), optimizer=pg.Adam(1e-3))
    options = {"batchsize": len(x), "compile": False, "progress": "none"}
    trainer = pg.Trainer(twin.calcMode("float64"), pg.CrossEntropy(), pg.Adam(1e-3), **options)
    module.double()
    optimizer = torch.optim.Adam(module.parameters(), 1e-3, fused=True)
    data, target = torch.from_numpy(x), torch.from_numpy(y)

    def torchStep():
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(data), target).backward()
        optimizer.step()

    return {
        "puregraph": lambda: program.run(x, y),
        "PyTorch": torchStep,
        "eager": lambda: trainer.train(x, y, epochs=1),
    }


def timed(contenders, rounds):
    """The median over rounds of the median of a block of steps, by contender, in milliseconds."""
    for step in contenders.values():
        step()
        step()
    blocks = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, step in contenders.items():
            times, end = [], time.perf_counter() + 0.3
            while time.perf_counter() < end or len(times) < 3:
                begin = time.perf_counter()
                step()
                times.append(time.perf_counter() - begin)
            blocks[name].append(1e3 * np.median(times))
    return {name: float(np.median(found)) for name, found in blocks.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    lines = [
        f"python benchmarks/doubles.py --rounds {options.rounds} --threads {options.threads}",
        f"{platform.processor() or platform.machine()}, {options.threads} threads, float64, ms a training step",
        "",
        f"{'':44}{'puregraph':>10}{'PyTorch':>10}{'eager':>10}{'vs PyTorch':>12}",
    ]
    for make in (mlp, lenet, block):
        times = timed(steps(make), options.rounds)
        row = "".join(f"{times[name]:10.2f}" for name in ("puregraph", "PyTorch", "eager"))
        lines.append(f"{make.__doc__:44.44}{row}{times['PyTorch'] / times['puregraph']:12.2f}")
        print(lines[-1], flush=True)
    RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
