"""Single kernels on a GPU, next to what memory and arithmetic allow there.

python -m benchmarks.floors                 a table
python -m benchmarks.floors --dry           tiny, on the CPU: it shows that it works, no more

Each is a Program of one module or a few, of which the launches alone are timed, as one captured graph, by events of the
GPU. Bytes are those of the stated number of passes over each array; the share is that of the
bandwidth of a copy, measured first. Operations of products are compared with the largest product.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import puregraph as pg
from benchmarks.contenders import puregraph as side
from puregraph.core import device
from puregraph.optimizers import AdamW

GOAL = 0.85  # of the bandwidth of a copy
WIDTH = {"float16": 2, "float32": 4}
BLOCKS, BLOCK = 5, 0.04  # how many, and seconds of each


class Floor(NamedTuple):
    """A timed kernel.

    `make`       (precision, *sizes) -> a Program and its inputs
    `sizes`      those on a GPU, then those of a dry run
    `moved`      (width, *sizes) -> the bytes that have to move; None where operations count
    `flops`      (*sizes) -> operations
    `precision`  None: what is asked for
    """

    title: str
    make: Callable
    sizes: tuple
    tiny: tuple
    moved: Callable | None = None
    flops: Callable | None = None
    precision: str | None = None


def randoms(precision, *shape):
    """Random values on the device; large arrays repeat a block of them, so that they are made soon."""
    some = np.random.default_rng(0).standard_normal(min(math.prod(shape), 1 << 22), np.float32).astype(precision)
    return device.toDevice(np.resize(some, shape))


def words(count, *shape):
    """Random integers below a count."""
    return device.toDevice(np.random.default_rng(0).integers(0, count, shape))


def graphOf(module, precision, count=1):
    """A module, or several one after the other, as a Graph of `count` inputs."""
    nodes = [pg.Input().node() for _ in range(count)]
    last, *rest = module if isinstance(module, list) else [module]
    y = last.node(*nodes)
    for each in rest:
        y = each.node(y)
    return pg.Graph(nodes, y).calcMode(np.dtype(precision))


def forward(module, precision, *inputs):
    """A Program of the outputs."""
    net = graphOf(module, precision, len(inputs)).evalMode()
    return net.compile([x.shape for x in inputs], dtypes=[x.dtype for x in inputs], train=False), inputs


def bothWays(module, precision, *inputs):
    """A Program of the outputs and, from gradients of their shape, of the gradients of everything."""
    net = graphOf(module, precision, len(inputs)).trainMode()
    shape = net.dataShapeFrom([x.shape for x in inputs])
    program = net.compile([x.shape for x in inputs], dtypes=[x.dtype for x in inputs], train=True)
    return program, [*inputs, randoms(precision, *shape)]


def costed(net, cost, inputs, target, **options):
    """A Program of a cost and what follows from it."""
    net.trainMode()
    given = [*inputs, target]
    options |= {"dtypes": [x.dtype for x in given], "wanted": [True, False]}
    return net.compile([x.shape for x in given], cost=cost, **options), given


def classified(precision, rows, classes):
    """The cost of many classes, and its gradient by the scores."""
    net = graphOf(pg.Identity(), precision)
    return costed(net, pg.CrossEntropy(), [randoms(precision, rows, classes)], words(classes, rows), updGrad=True)


def updated(precision, rows, size):
    """One row of a table that is updated whole, by AdamW."""
    net = graphOf(pg.Embedder(rows, size), precision)
    options = {"optimizer": AdamW(1e-12), "keepGrads": False}
    return costed(net, pg.MSE(), [words(rows, 1, 1)], randoms(precision, 1, 1, size), **options)


def attention(precision, n, heads, t, size):
    """Causal attention, forward and backward."""
    return bothWays(pg.Attention(causal=True), precision, *(randoms(precision, n, heads, t, size) for _ in range(3)))


def product(precision, m, k, n):
    """A matrix product."""
    return forward(pg.MatMul(), precision, randoms(precision, m, k), randoms(precision, k, n))


def passes(count):
    """The bytes of `count` passes over an array of the sizes."""
    return lambda width, *sizes: count * width * math.prod(sizes)


FLOORS = [
    Floor("gelu", lambda p, *s: forward(pg.Gelu(), p, randoms(p, *s)), (65536, 3072), (8, 16), passes(2)),
    Floor(
        "add and relu",
        lambda p, *s: forward([pg.Add(), pg.Relu()], p, randoms(p, *s), randoms(p, *s)),
        *((65536, 3072), (8, 16), passes(3)),
    ),
    Floor(
        "layernorm: x, y",
        lambda p, *s: forward(pg.LayerNorm(s[-1]), p, randoms(p, *s)),
        *((131072, 768), (8, 16), passes(2)),
    ),
    Floor(
        "layernorm and back: x, y; x, dy, dx",
        lambda p, *s: bothWays(pg.LayerNorm(s[-1]), p, randoms(p, *s)),
        *((131072, 768), (8, 16), passes(5)),
    ),
    Floor(
        "batchnorm and back: x, x, y; x, dy, x, dy, dx",
        lambda p, *s: bothWays(pg.BatchNorm(s[1]), p, randoms(p, *s)),
        *((64, 256, 56, 56), (2, 4, 3, 3), passes(8)),
    ),
    Floor(
        "softmax: x, y",
        lambda p, *s: forward(pg.SoftMax(), p, randoms(p, *s)),
        *((131072, 1024), (8, 16), passes(2)),
    ),
    Floor("cross-entropy and back: x, dx", classified, (16384, 50304), (6, 9), passes(2)),
    Floor(
        "embedding: rows, y",
        lambda p, rows, size, count: forward(pg.Embedder(rows, size), p, words(rows, 8, count // 8)),
        *((50304, 768, 131072), (11, 8, 16)),
        moved=lambda width, rows, size, count: 2 * width * count * size,
    ),
    Floor(
        "a gradient of one row, and adamw: dW; dW, W, m, v and back",
        *(updated, (161792, 768), (11, 8), passes(8)),
        precision="float32",
    ),
    Floor("product", product, (8192, 8192, 8192), (8, 8, 8), flops=lambda m, k, n: 2 * m * k * n),
    Floor("product", product, (16384, 768, 3072), (8, 4, 6), flops=lambda m, k, n: 2 * m * k * n),
    Floor("product", product, (16384, 3072, 768), (8, 6, 4), flops=lambda m, k, n: 2 * m * k * n),
    Floor("product", product, (16384, 768, 50304), (8, 4, 16), flops=lambda m, k, n: 2 * m * k * n),
    Floor(
        "attention and back",
        *(attention, (16, 12, 1024, 64), (1, 2, 8, 4)),
        flops=lambda n, heads, t, size: 7 * n * heads * t * t * size,
    ),
]


# Timing ---------------------------------------------------------------------------------------------------------------


def launchesOf(program, inputs):
    """The launches of a Program, without the copies of its inputs, and a note if that is more than one graph."""
    for _ in range(2):
        program.run(*inputs)
    if device.name() != "cuda":
        return lambda: program.run(*inputs), program.why
    parts = [part for _, part in program.executable.parts]

    def go():
        for part in parts:
            part()

    return go, "" if len(parts) == 1 else f"not one graph: {program.executable.captured().note}"


def secondsOf(go):
    """The median time of a call."""

    def block(calls):
        side.wait()
        start, first = time.perf_counter(), side.mark()
        for _ in range(calls):
            go()
        last = side.mark()
        side.wait()
        found = side.between(first, last)
        return (time.perf_counter() - start if found is None else found) / calls

    calls = max(1, min(1000, int(BLOCK / max(block(3), 1e-7))))
    return statistics.median(block(calls) for _ in range(BLOCKS))


def bandwidth(count):
    """Bytes a second of a copy on the device, read and written."""
    to, source = (randoms("float32", count) for _ in "ab")
    if device.name() != "cuda":
        return 8 * count / secondsOf(lambda: np.copyto(to, source))
    runtime = device.arrays().cuda.runtime
    stream = device.arrays().cuda.get_current_stream()
    kind = runtime.memcpyDeviceToDevice
    return 8 * count / secondsOf(lambda: runtime.memcpyAsync(to.data.ptr, source.data.ptr, 4 * count, kind, stream.ptr))


def measured(floor, precision, isDry):
    """The time of a kernel, and its rate of bytes or operations a second."""
    sizes = floor.tiny if isDry else floor.sizes
    precision = floor.precision or precision
    go, note = launchesOf(*floor.make(precision, *sizes))
    seconds = secondsOf(go)
    work = floor.moved(WIDTH[precision], *sizes) if floor.moved else floor.flops(*sizes)
    title = f"{floor.title} {'x'.join(map(str, sizes))} {precision}"
    return {
        "title": title,
        "seconds": seconds,
        "rate": work / seconds,
        "isMoved": floor.moved is not None,
        "note": note,
    }


def row(one, copy, peak):
    """A kernel in one line."""
    best, unit, scale = (copy, "GB/s", 1e9) if one["isMoved"] else (peak, "TFLOP/s", 1e12)
    share = one["rate"] / best if best else math.nan
    low = "  below the goal" if one["isMoved"] and share < GOAL else ""
    note = f"  {one['note']}" if one["note"] else ""
    rate = f"{one['rate'] / scale:10,.1f} {unit:8}"
    return f"{one['title']:78}{1e6 * one['seconds']:12.1f}{rate}{100 * share:6.0f} %{low}{note}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="tiny, on the CPU")
    parser.add_argument("--precision", default="float16", choices=list(WIDTH))
    parser.add_argument("--seconds", type=float, default=math.inf, help="what is not done by then is left out")
    parser.add_argument("--numbers", metavar="FILE", help="where the numbers are written to as JSON")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    copy, peak, found = bandwidth(1 << 12 if options.dry else 1 << 29), 0.0, []
    print(f"a copy on the device moves {copy / 1e9:,.0f} GB/s, read and written together")
    print(f"{'kernel':78}{'us':>12}{'':19}{'share':>8}")
    for floor in FLOORS:
        if time.monotonic() > end:
            print(f"{floor.title}: skipped: the time is used up")
            continue
        try:
            one = measured(floor, options.precision, options.dry)
        except Exception as error:  # one that fails hides no other
            print(f"{floor.title}: FAILED: {type(error).__name__}: {error}")
            continue
        peak = peak if one["isMoved"] else max(peak, one["rate"])
        found.append(one)
        print(row(one, copy, peak), flush=True)
    if options.numbers:
        Path(options.numbers).write_text(json.dumps({"copy": copy, "kernels": found}))


if __name__ == "__main__":
    main()
