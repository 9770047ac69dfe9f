"""Estimates what a training step takes on a GPU, by arithmetic alone: nothing is run, and no GPU is asked.

    python scripts/roofline.py                   launches, GB and estimated ms a step, as in tests/compile/traffic.json
    python scripts/roofline.py gpt2 --launches   each launch with its MB, GFLOP and us

A launch takes the longer of what its bytes and its operations take, and 1.2 us between launches, 1 us more where it is
shorter than 3 us; where its blocks wait for each other, 4.2 us each time, as an H100 takes with what they then read.
Assumed are 2.8 TB/s; products 350 to 700 TFLOP/s by their shape, convolutions 550, attention 320 and its gradient 280;
40 for recurrent cells and the product of float32 before them, which are kernels of this library without tensor cores.

    python scripts/roofline.py --cells           a time step of LSTM cells: what multiplies, and what waits
"""

import argparse
import re
import sys
from math import prod
from pathlib import Path

HERE = Path(__file__).parent.parent
sys.path += [str(HERE), str(HERE / "tests" / "lib"), str(HERE / "tests" / "compile")]

import test_traffic as traffic  # noqa: E402 - found through the line above

from puregraph.ops.attention.cudnn import AttentionTask  # noqa: E402
from puregraph.ops.product.cuda.librarygemm import GemmTask  # noqa: E402

OWN = 40e12
BANDWIDTH, TERA, BETWEEN, SHORT, EXTRA, BARRIER = 2.8e12, 1e12, 1.2e-6, 3e-6, 1e-6, 4.2e-6


def product(task, calls):
    """The operations of products, and how many of them a second."""
    inner = task.a.rows if task.transA else task.a.columns
    sides = task.d.rows, task.d.columns
    rate = 700 if min(sides) >= 1024 and inner >= 2048 else 600 if inner >= 512 else 450
    return 2 * prod(sides) * inner * task.d.copies * calls, (350 if min(sides) <= 128 else rate) * TERA


def attention(task):
    """The operations of attention or its gradient, and how many of them a second."""
    n, heads, queries, features = task.q.shape
    flops = 2 * n * heads * queries * task.k.shape[2] * (features + task.v.shape[3]) * (0.5 if task.causal else 1)
    return (flops * 2.5, 280 * TERA) if task.grads else (flops, 320 * TERA)


def work(what):
    """The operations of a launch that are not bound by memory, and how many of them a second."""
    task = getattr(what, "task", None)
    if isinstance(task, GemmTask):
        return product(task, len(what.starts))
    if isinstance(task, AttentionTask):
        return attention(task)
    if getattr(what, "entry", "") == "contract":
        return 2 * prod(n for _, n in what.slots[:3]), OWN
    if barriers(what):
        samples, _, units = (n for _, n in what.slots[-8:-5])
        gates = re.search(r"#define GATES (\d)", what.source)[1]
        return 2 * samples * units * units * int(gates) * barriers(what), OWN
    if hasattr(task, "W"):
        return 2 * prod(task.y.shape) * prod(task.W.shape[1:]), 550 * TERA
    return 0, TERA


def barriers(what):
    """How often the blocks of a launch wait for each other: between the time steps of a recurrent cell."""
    if not getattr(what, "cooperative", False):
        return 0
    (_, start), (_, end) = what.slots[-3:-1]
    return end - start


def launches(plan):
    """Each launch of a plan: its node, its name, its bytes, its operations and its seconds."""
    found = []
    for call in plan.schedule.calls:
        for task in call.function.works if call.kind.isNative else ():
            found.append((call.origin.path, task.what))
    for target, value in plan.copies:
        found += [("copies", what) for what in traffic.stored(value, target.array)]
    for path, what in found:
        size = traffic.touched(what)
        flops, rate = work(what)
        seconds = max(flops / rate, size / BANDWIDTH) + BARRIER * barriers(what)
        yield path, what.name, size, flops, seconds + BETWEEN + EXTRA * (seconds < SHORT)


def cells():
    """For LSTM cells of some samples and units: the microseconds of a time step that multiply, and that wait."""
    for samples, units in ((32, 256), (64, 256), (32, 512), (64, 512), (32, 1024), (64, 1024)):
        products = 2 * samples * 4 * units * units / OWN
        yield samples, units, products * 1e6, BARRIER * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=list(traffic.CASES), help="of " + ", ".join(traffic.CASES))
    parser.add_argument("--launches", action="store_true", help="each launch")
    parser.add_argument("--cells", action="store_true", help="time steps of LSTM cells, and nothing else")
    options = parser.parse_args()
    if options.cells:
        for samples, units, products, barrier in cells():
            print(f"{samples:4} samples, {units:5} units: {products:6.2f} us to multiply, {barrier:.2f} us to wait")
        return
    for name in options.workloads:
        rows = list(launches(traffic.planOf(name)))
        for path, what, size, flops, seconds in rows if options.launches else ():
            print(f"{path[-40:]:40} {size / 1e6:9.1f} MB {flops / 1e9:9.1f} GFLOP {seconds * 1e6:8.1f} us  {what[:80]}")
        total = [sum(row[i] for row in rows) for i in (2, 4)]
        head = f"{name} {traffic.CASES[name][0]} {traffic.CASES[name][1]}"
        print(f"{head:24} {len(rows):4} launches {total[0] / 1e9:7.2f} GB {total[1] * 1e3:7.2f} ms")


if __name__ == "__main__":
    main()
