"""A recurrent cell of one's own: an LSTM as the body of a `Scan`, next to `LSTM` and to the same cell in PyTorch.

    python benchmarks/loops.py [--rounds 9] [--threads 2]

Milliseconds of a training step without an update (forward, mean squared error, all gradients) in float32, medians of
interleaved blocks in one run, pinned to as many threads. PyTorch runs its cell in a Python loop over time steps, as
people write one of their own. Prints a table, and saves it with the command to benchmarks/results/loops.txt.
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

RESULT = Path(__file__).parent / "results" / "loops.txt"
CASES = [(32, 50, 256), (1, 50, 256), (32, 50, 64), (8, 200, 24)]


def cell(size):
    """The body: the gates i, f, g, o side by side."""
    c, h, x = (pg.Input(name=name).node() for name in ("c", "h", "x"))
    gates = pg.Linear(size, 4 * size, useBias=False).node(h) + pg.Linear(size, 4 * size).node(x)
    i, f, g, o = [gates[:, k * size : (k + 1) * size] for k in range(4)]
    new = pg.Pointwise(formula="sigmoid(f) * c + sigmoid(i) * tanh(g)").node(f, c, i, g)
    out = pg.Pointwise(formula="sigmoid(o) * tanh(c)").node(o, new)
    return pg.Graph([c, h, x], [new, out, out])


class Cell(nn.Module):
    """The same cell in PyTorch, in a loop."""

    def __init__(self, size):
        super().__init__()
        self.u, self.w = nn.Linear(size, 4 * size, bias=False), nn.Linear(size, 4 * size)

    def forward(self, c, h, x):
        outs = []
        for t in range(x.shape[1]):
            i, f, g, o = (self.u(h) + self.w(x[:, t])).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outs.append(h)
        return torch.stack(outs, 1)


def steps(batch, length, size):
    """By contender, a call that makes one step."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((batch, length, size)).astype(np.float32) for _ in range(2))
    zero = np.zeros((batch, size), np.float32)
    ends = [pg.Input(name=name).node() for name in ("c", "h", "x")]
    scan = pg.Scan(cell(size), 2, inputs=[(1, False)], outputs=[(1, False)]).node(*ends)
    net = pg.Graph(ends, pg.Identity().node((scan, 2)))
    scanned = net.compile(zero.shape, zero.shape, x.shape, y.shape, cost=pg.MSE())
    builtin = pg.Sequential(pg.LSTM(size, size)).compile(x.shape, y.shape, cost=pg.MSE())
    module, tensors = Cell(size), [torch.from_numpy(a) for a in (zero, x, y)]

    def loop():
        module.zero_grad()
        nn.functional.mse_loss(module(tensors[0], tensors[0], tensors[1]), tensors[2]).backward()

    return {"Scan": lambda: scanned.run(zero, zero, x, y), "LSTM": lambda: builtin.run(x, y), "PyTorch": loop}


def medians(calls, rounds):
    """Milliseconds of each call, in turn, after one that warms up."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: float(np.median(row)) for name, row in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: options.threads]))
    torch.set_num_threads(options.threads)
    lines = [
        f"python benchmarks/loops.py --rounds {options.rounds} --threads {options.threads}",
        f"{platform.machine()}, {options.threads} threads, torch {torch.__version__}",
        "",
        "batch  steps  size      Scan      LSTM   PyTorch  Scan / LSTM  PyTorch / Scan",
    ]
    for batch, length, size in CASES:
        ms = medians(steps(batch, length, size), options.rounds)
        row = "".join(f"{value:10.2f}" for value in ms.values())
        ratios = f"{ms['Scan'] / ms['LSTM']:13.2f}{ms['PyTorch'] / ms['Scan']:16.2f}"
        lines.append(f"{batch:5}{length:7}{size:6}{row}{ratios}")
    print("\n".join(lines))
    RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
