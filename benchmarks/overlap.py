"""What backward hides of the exchange of gradients: two processes in two network namespaces with a limited link.

    python benchmarks/overlap.py [--rate 100mbit] [--steps 40]        as root, on Linux

Steps with and without buckets take turns. `exchange` is what a step without them waits behind its backward pass,
`waited` what one with them waits there; `cannot` is what is left to wait if buckets are sent one after the other, each
from when both processes have it, in a time by its bytes, and the last has come `latency` later: what an exchange of 64
bytes takes, which no backward pass hides. Medians of the first process, milliseconds; `over` is that of what each step
waits longer than it has to, for most waits are short, and some, for a process that is late, long: so the medians of
both tell less than that of their difference. Prints a table, and saves it with the command to
benchmarks/results/overlap.txt.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

RESULT = Path(__file__).parent / "results" / "overlap.txt"
CASES = {
    "lenet, batch 256": ("lenet", 256),
    "lenet, batch 1024": ("lenet", 1024),
    "mlp 784-256-256-10, batch 2048": ("mlp", 2048),
    "mlp 784-256-256-10, batch 8192": ("mlp", 8192),
}
COLUMNS = "buckets", "backward", "exchange", "latency", "waited", "cannot", "over", "hidden"
ADDRESSES = "10.79.0.1", "10.79.0.2"
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
case "$1" in %s) host=%s;; *) host=%s;; esac
shift
exec ip netns exec $host sh -c "$*"
"""  # what mpiexec takes for ssh: OPTIONS HOST COMMAND


class Turn:
    """Times of the steps of one way: the begin, the starts of buckets, the end of backward, the end of the exchange."""

    def __init__(self):
        self.rows, self.row = [], []

    def watch(self, gradients):
        """Have the exchange of a Trainer note its times here."""
        tree, start, finish, add = gradients.tree, gradients.tree.start, gradients.tree.finish, gradients.tree.add

        def timed(function, isEnd=False):
            def wrapped(*arguments):
                self.row.append(time.perf_counter())
                function(*arguments)
                if isEnd:
                    self.rows.append([*self.row, time.perf_counter()])

            return wrapped

        def added(leaf):
            self.row = []
            timed(add)(leaf)

        tree.add, tree.start, tree.finish = added, timed(start), timed(finish, True)


def trained(name, batchsize, steps, isOverlapped):
    """The rows of a run, and the bytes of its buckets."""
    from puregraph import SGD, CrossEntropy, Trainer, models, seed
    from puregraph.distributed.dataparallel import GradientExchange

    turn, seen = Turn(), []
    made = GradientExchange.__init__

    def watched(self, trainer, *arguments):
        made(self, trainer, *arguments)
        if not isOverlapped:
            trainer.objective.buckets = None
        turn.watch(self)
        seen.append(self.buckets)

    GradientExchange.__init__ = watched
    seed(0)
    net, shape = (models.lenet(), (1, 28, 28)) if name == "lenet" else (models.mlp(784, (256, 256), 10), (784,))
    rng = np.random.default_rng(0)
    data, target = rng.standard_normal((batchsize, *shape)).astype(np.float32), rng.integers(0, 10, batchsize)
    try:
        Trainer(net, CrossEntropy(), SGD(1e-3), batchsize, progress="none").train(data, target, epochs=steps)
    finally:
        GradientExchange.__init__ = made
    return turn.rows[3:], [seen[0].nbytes(number) for number in range(len(seen[0].groups))]


def latency():
    """The seconds that an exchange of next to nothing takes, begun by both processes at once."""
    from puregraph.distributed import Grains, world
    from puregraph.distributed.collectives.bucketedsum import BucketedSum

    tree, times = BucketedSum(world(), Grains(2, world()), np.dtype(np.float32), [0, 16], ["nothing"]), []
    for _ in range(300):
        world().barrier()
        tree.add(lambda grain, row: row[0].fill(0))
        begun = time.perf_counter()
        tree.finish()
        times.append(time.perf_counter() - begun)
    return float(np.median(times))


def worker(steps):
    """What each process does: prints a row of milliseconds for each case."""
    from puregraph.distributed import world

    least = latency()
    for title, (name, batchsize) in CASES.items():
        found = {way: [] for way in (False, True)}
        for turn in range(6):
            for way in (False, True) if turn % 2 else (True, False):
                rows, sizes = trained(name, batchsize, steps, way)
                found[way] += rows
        without = [(row[-1] - row[-2 - len(sizes)]) for row in found[False]]  # all starts are behind backward
        exchange = float(np.median(without))
        waited = [row[-1] - row[-2] for row in found[True]]
        each = [np.frombuffer(data) for data in world().gather(np.array(found[True]).tobytes())]
        starts = np.maximum(*each).reshape(len(found[True]), -1)[:, 1 : 1 + len(sizes)]  # one clock for both processes
        cannot = []
        for row, begun in zip(found[True], starts):
            ended = 0.0
            for at, size in zip(begun, sizes):
                ended = max(ended, at) + (exchange - least) * size / sum(sizes)
            cannot.append(max(ended + least - row[-2], 0.0))
        computed = [row[-2] - row[0] for row in found[True]]
        over = np.array(waited) - cannot
        figures = [float(np.median(each)) * 1e3 for each in (computed, without, [least], waited, cannot, over)]
        if world().rank == 0:
            print(json.dumps([title, len(sizes), *figures]), flush=True)


def sh(*words):
    """Run a command, which must work."""
    subprocess.run([*words], check=True)


def measured(rate, steps):
    """The rows of the first process, from two namespaces whose link has this rate both ways."""
    names = [f"pgo{os.getpid()}{letter}" for letter in "ab"]
    try:
        for name in names:
            sh("ip", "netns", "add", name)
        sh("ip", "link", "add", names[0], "netns", names[0], "type", "veth", "peer", names[1], "netns", names[1])
        for name, address in zip(names, ADDRESSES):
            sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", name)
            for each in (name, "lo"):
                sh("ip", "-n", name, "link", "set", each, "up")
            limit = ["root", "tbf", "rate", rate, "burst", "64kb", "limit", "4mb"]
            sh("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", name, *limit)
        time.sleep(2)  # a link is up only then, and MPI takes no other
        with tempfile.TemporaryDirectory() as folder:
            ssh = Path(folder) / "ssh"
            ssh.write_text(SSH % (ADDRESSES[0], *names))
            ssh.chmod(0o755)
            given = {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(ssh), "UCX_TLS": "tcp"}
            given |= {"MPIR_CVAR_NOLOCAL": "1", "PUREGRAPH_DEVICE": "cpu", "PUREGRAPH_THREADS": "1"}
            where = ",".join(f"{address}:1" for address in ADDRESSES)
            run = ["ip", "netns", "exec", names[0], sys.executable, "-m", "puregraph", "launch", "--hosts", where]
            run += [__file__, "--worker", "--steps", str(steps)]
            done = subprocess.run(run, env={**os.environ, **given}, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    finally:
        for name in names:
            with suppress(subprocess.CalledProcessError):
                sh("ip", "netns", "del", name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.steps)
        return
    lines = [
        f"{' '.join(['python', 'benchmarks/overlap.py', *sys.argv[1:]])}",
        f"Python {platform.python_version()}, numpy {np.__version__}, {platform.system()} {platform.machine()}",
        f"two processes of one thread, a link of {options.rate}; milliseconds",
        "",
        f"{'network':32}" + "".join([f"{name:>9}" for name in COLUMNS]),
    ]
    for title, count, *figures in measured(options.rate, options.steps):
        _, exchange, _, waited, _, _ = figures
        hidden = f"{100 * (1 - waited / exchange):.0f} %"
        lines.append(f"{title:32}{count:9}" + "".join([f"{each:9.1f}" for each in figures]) + f"{hidden:>9}")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
