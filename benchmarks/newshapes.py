"""Training whose batches vary in size: milliseconds a step in each of four passes, beside eager PyTorch.

    git worktree add ../before COMMIT
    python -m benchmarks.newshapes [--before ../before] [--rows lenet resnet20 lstm] [--passes 4]

Every size comes once in a pass, in one random order. Each contender trains in a process of its own, on as many threads,
one after the other; puregraph through `Trainer`, with an empty cache of kernels. `grows` is what a process grows by
between the end of its first pass and of its last. Saves the table with its command to benchmarks/results/newshapes.txt.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

RESULT = Path(__file__).parent / "results" / "newshapes.txt"
ROWS = {  # a title, and the (batch, length) pairs; a length of 0 is that of the workload
    "lenet": ("LeNet, 24 batch sizes", [(n, 0) for n in range(41, 65)]),
    "resnet20": ("ResNet-20, 24 batch sizes", [(n, 0) for n in range(41, 65)]),
    "lstm": ("LSTM, 60 lengths", [(32, n) for n in range(5, 65)]),
}


def batchesOf(name):
    """A batch of each size, in random order."""
    from benchmarks import workloads

    workload, rng = workloads.load(name), np.random.default_rng(0)
    batches = []
    for batch, length in rng.permutation(ROWS[name][1]):
        (x,), target = workloads.dataOf(workload, int(batch))
        batches.append((np.ascontiguousarray(x[:, :length]) if length else x, target))
    return batches


def ours(name):
    """A function that trains for one pass."""
    import puregraph
    from benchmarks import workloads

    batches = batchesOf(name)
    trainer = puregraph.Trainer(
        workloads.load(name).ours(), puregraph.CrossEntropy(), puregraph.SGD(0.01), shuffle=False, progress=None
    )
    return lambda: trainer.train(batches)


def torchs(name):
    """A function that trains for one pass with PyTorch."""
    import torch

    from benchmarks import workloads

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    net = workloads.load(name).torch(torch)
    optimizer, cost = torch.optim.SGD(net.parameters(), 0.01), torch.nn.CrossEntropyLoss()
    batches = [(torch.from_numpy(x), torch.from_numpy(t)) for x, t in batchesOf(name)]

    def train():
        for x, target in batches:
            optimizer.zero_grad()
            cost(net(x), target).backward()
            optimizer.step()

    return train


def resident():
    """The bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def worker(name, contender, passes):
    """Print the milliseconds a step of each pass, and the growth of memory in MB, as JSON."""
    train, times, memory = {"puregraph": ours, "torch": torchs}[contender](name), [], []
    for _ in range(passes):
        start = time.perf_counter()
        train()
        times.append(1e3 * (time.perf_counter() - start) / len(ROWS[name][1]))
        memory.append(resident())
    print(json.dumps([times, (memory[-1] - memory[0]) / 1e6]))


def measured(folder, name, contender, options):
    """The result of a worker that imports the checkout in a folder."""
    count = str(options.threads)
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(folder), "PUREGRAPH_CACHE": cache, "OMP_NUM_THREADS": count}
        environment["PUREGRAPH_THREADS"] = count
        command = [sys.executable, __file__, "--worker", name, contender, "--passes", str(options.passes)]
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker, options.passes)
        return
    from benchmarks import machine

    here = Path(__file__).parents[1]
    sides = {"puregraph": (here, "puregraph"), "torch, eager": (here, "torch")}
    if options.before:
        sides = {"before": (options.before.resolve(), "puregraph"), **sides}
    lines = [
        f"python -m benchmarks.newshapes {' '.join(sys.argv[1:])}".rstrip(),
        machine.processor(),
        machine.versions(),
        f"{options.threads} threads; load average {os.getloadavg()[0]:.1f} at the beginning",
        "",
        f"{'milliseconds a step in pass':42}{''.join(f'{i + 1:9}' for i in range(options.passes))}{'grows MB':>10}",
    ]
    print("\n".join(lines), flush=True)
    for name in options.rows:
        for title, (folder, contender) in sides.items():
            times, growth = measured(folder, name, contender, options)
            lines.append(f"{ROWS[name][0]:28}{title:14}{''.join(f'{t:9.4g}' for t in times)}{growth:10.1f}")
            print(lines[-1], flush=True)
    RESULT.write_text("\n".join([*lines, f"load average {os.getloadavg()[0]:.1f} at the end"]) + "\n")


if __name__ == "__main__":
    main()
