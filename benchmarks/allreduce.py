"""What the exchange of gradients takes beside MPI's own all-reduce: two processes of one thread on this machine.

    python benchmarks/allreduce.py [--rounds 40]

`tree` is what a step of a Trainer does with its row of gradients, in buckets and added as the tree over grains;
`MPI` is `Allreduce` of mpi4py on the same array. They take turns, and `ratio` is the median of their quotients; below
1 the tree is faster. Prints a table, and saves it with the command to benchmarks/results/allreduce.txt.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

RESULT = Path(__file__).parent / "results" / "allreduce.txt"
SIZES = 1 << 10, 1 << 14, 1 << 18, 1 << 20, 10 << 20, 100 << 20  # bytes
BUCKET = 16 << 20


def measure(rounds):
    """In each process: medians of the seconds that both take, and of their quotients, by size."""
    from puregraph.distributed import BucketedSum, Grains, world

    here, found = world(), {}
    for nbytes in SIZES:
        size = nbytes // 4
        own = np.random.default_rng(here.rank).standard_normal(size).astype(np.float32)
        each = max(min(nbytes // 8, BUCKET), 1 << 16) // 4
        bounds = [*range(0, size, each), size]
        tree = BucketedSum(here, Grains(2, here), np.dtype(np.float32), bounds, [""] * (len(bounds) - 1))

        def fill(grain, row, own=own, bounds=bounds):
            for number, begin in enumerate(bounds[:-1]):
                row[number][...] = own[begin : bounds[number + 1]]

        other, total, times = own.copy(), np.empty_like(own), []
        for _ in range(max(int(rounds * min(1, (10 << 20) / nbytes)), 8) + 2):
            tree.add(fill)
            here.barrier()
            begin = time.perf_counter()
            tree.finish()
            middle = time.perf_counter()
            here.barrier()
            again = time.perf_counter()
            here.comm.Allreduce(other, total)
            times.append((middle - begin, time.perf_counter() - again))
        ours, mpi = np.array(times[2:]).T
        found[nbytes] = float(np.median(ours)), float(np.median(mpi)), float(np.median(ours / mpi))
    if here.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found"
        run = ["launch", "-n", "2", __file__, "--inside", str(output), str(options.rounds)]
        subprocess.run([sys.executable, "-m", "puregraph", *run], check=True)
        found = json.loads(output.read_text())
    lines = [
        f"{' '.join(['python', 'benchmarks/allreduce.py', *sys.argv[1:]])}",
        f"Python {platform.python_version()}, numpy {np.__version__}, {platform.system()} {platform.machine()}",
        "two processes of one machine; microseconds",
        "",
        f"{'bytes':>12} {'tree':>9} {'MPI':>9} {'ratio':>6}",
    ]
    lines += [f"{int(n):12,} {1e6 * t:9.0f} {1e6 * m:9.0f} {r:6.2f}" for n, (t, m, r) in found.items()]
    isKept = all(ratio <= 1 for nbytes, (_, _, ratio) in found.items() if int(nbytes) >= 1 << 20)
    lines += ["", f"at least as fast as MPI from 1 MB on: {'kept' if isKept else 'NOT kept'}"]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    measure(int(sys.argv[3])) if "--inside" in sys.argv else main()
