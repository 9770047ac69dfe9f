"""Matrix products of native code beside numpy's BLAS, of every size from a vector to a large layer, packed or not.

    python benchmarks/products.py [--threads 2] [--rounds 7] [--match 256x] [--under 0.9] [--again 3]

`packed` is a product whose second matrix was packed ahead, as a program does with weights that stay; `turned` one with
a weight stored as Linear has it, (n, k), `rows` one with rows of b side by side. All three and numpy's `x @ W.T` take
turns in one process, with the same number of threads; a round is as many calls as take some milliseconds. A
ratio is numpy's median time over ours: 1.1 is a tenth faster than numpy. What is under `--under` is measured again.
Prints a table, and saves it with the command to benchmarks/results/products.txt.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--match", default="", help="only sizes whose text, as in 256x512x1024, holds this")
parser.add_argument("--under", type=float, default=0.9, help="a ratio that is measured again")
parser.add_argument("--again", type=int, default=3, help="how often")
parser.add_argument("--short", action="store_true", help="a twentieth of the sizes")
parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "products.txt")
parser.add_argument("--cpu", action="store_true", help="time of the processor instead of the clock's, for one thread")
options = parser.parse_args()
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # which hold back numpy's BLAS
    os.environ.pop(name, None)
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["PUREGRAPH_THREADS"] = str(options.threads)

import numpy as np  # noqa: E402

from benchmarks import report  # noqa: E402
from puregraph.compile.runtime.segment import Segment  # noqa: E402
from puregraph.core.base.align import aligned  # noqa: E402
from puregraph.ops.native.llvm import jit  # noqa: E402
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec  # noqa: E402
from puregraph.ops.product.native.gemm import gemm, vectorsFor, worthPacking  # noqa: E402
from puregraph.ops.product.native.packedmatrix import packed  # noqa: E402

ROWS = (1, 2, 3, 4, 5, 8, 13, 16, 31, 64, 100, 128, 256, 512, 777, 1024, 2048)
SIDES = (128, 256, 512, 1000, 2048, 4096)
KINDS = ("packed", "turned", "rows")
BLOCK = 5e-3  # seconds of a round for each of them
MEAN = 100  # calls in a round above which the clock itself would be measured
REST = 0.15 if options.threads > 1 else 0.0  # seconds for which threads of numpy's BLAS poll, and hold a processor
CLOCK = time.thread_time if options.cpu else time.perf_counter


def room(count):
    """Memory between two products."""
    return aligned(np.zeros(count, np.float32))


def ours(kind, x, w, y):
    """A call of native code that computes y = x w; None where a program would not pack w."""
    (m, k), n, lanes = x.shape, w.shape[1], jit.lanes(4)
    strides = tuple(step // 4 for step in w.strides)
    if kind == "packed":
        if not worthPacking(m, n, k, lanes):
            return None
        w, before = packed(w, n, k, strides, room, lanes, vectorsFor(m, n, k, (k, 1), lanes))
        Segment([[work] for work in before], None)()
    works = gemm(x, w, EpilogueSpec(y, n), m, n, k, (k, 1), strides, lanes=lanes, workspace=room)
    return Segment([[work] for work in works], None)


def callsFor(m, n, k):
    """What is compared: numpy, and each kind of ours, by name."""
    rng = np.random.default_rng(0)
    x, w = (aligned(rng.standard_normal(shape, np.float32)) for shape in ((m, k), (n, k)))
    rows, y, own = aligned(np.ascontiguousarray(w.T)), room(m * n).reshape(m, n), room(m * n).reshape(m, n)
    calls = {"numpy": lambda: np.matmul(x, w.T, out=y)}
    calls["numpy"]()
    time.sleep(REST)
    for kind in KINDS:
        call = ours(kind, x, rows if kind == "rows" else w.T, own)
        if call is not None:
            settle(call)
            np.testing.assert_allclose(own, y, rtol=0, atol=2e-5 * k**0.5)
            calls[kind] = call
    return calls


def settle(call):
    """Call until it is known whether one thread or all are faster."""
    start, calls = time.perf_counter(), 0
    while calls < 32 and time.perf_counter() - start < 0.4:
        call()
        calls += 1


def seconds(call, count):
    """Seconds of one call after one that is not measured: the median, or the mean of `count` that are very short."""
    call()
    if count <= MEAN:
        return statistics.median(secondsOfOne(call) for _ in range(count))
    start = CLOCK()
    for _ in range(count):
        call()
    return (CLOCK() - start) / count


def secondsOfOne(call):
    """Seconds of this call."""
    start = CLOCK()
    call()
    return CLOCK() - start


def ratios(calls):
    """numpy's seconds, and its median over that of each kind."""
    once = min(seconds(calls["numpy"], 1) for _ in range(3))
    time.sleep(REST)
    count = max(1, min(1000, round(BLOCK / once)))
    times = {name: [] for name in calls}
    for turn in range(options.rounds):
        for name in sorted(calls, reverse=turn % 2 == 1):
            times[name].append(seconds(calls[name], count))
            time.sleep(REST if name == "numpy" else 0)
    middle = {name: statistics.median(found) for name, found in times.items()}
    return middle["numpy"], {name: middle["numpy"] / middle[name] for name in calls if name != "numpy"}


def measured(m, n, k):
    """numpy's seconds, the best ratios of several tries where the first were bad, and how many tries that took."""
    calls = callsFor(m, n, k)
    took, best = ratios(calls)
    tries = 1
    while tries <= options.again and min(best.values()) < options.under:
        again = {name: calls[name] for name in calls if name == "numpy" or best[name] < options.under}
        best |= {name: max(best[name], ratio) for name, ratio in ratios(again)[1].items()}
        tries += 1
    return took, best, tries


def main():
    """The table, line by line."""
    sizes = [(m, n, k) for m in ROWS for n in SIDES for k in SIDES]
    sizes = [size for size in sizes[:: 20 if options.short else 1] if options.match in "x".join(map(str, size))]
    cpus = sorted(os.sched_getaffinity(0))
    lines = report.head(f"python -m benchmarks.products {' '.join(sys.argv[1:])}", cpus[: options.threads])
    lines += ["numpy's milliseconds, and its median time over ours; *: measured again, the best of the tries"]
    lines += ["", f"{'m':>6}{'n':>6}{'k':>6}{'numpy ms':>10}{''.join(f'{kind:>9}' for kind in KINDS)}"]
    print("\n".join(lines), flush=True)
    found = {kind: [] for kind in KINDS}
    for m, n, k in sizes:
        took, best, tries = measured(m, n, k)
        cells = "".join(f"{best[kind]:9.2f}" if kind in best else f"{'':9}" for kind in KINDS)
        lines.append(f"{m:6}{n:6}{k:6}{1e3 * took:10.3f}{cells}{' *' if tries > 1 else ''}")
        print(lines[-1], flush=True)
        for kind, ratio in best.items():
            found[kind].append((ratio, m, n, k))
    lines.append("")
    for kind, each in found.items():
        if each:
            bad = sorted(one for one in each if one[0] < options.under)
            least = f"; under {options.under}: {len(bad)}"
            least += "".join(f", {m}x{n}x{k} {ratio:.2f}" for ratio, m, n, k in bad[:20])
            lines.append(f"{kind}: {len(each)} sizes, median {statistics.median(one[0] for one in each):.2f}{least}")
            print(lines[-1])
    if not options.match:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
