"""Training steps and products in bfloat16 on a CPU, next to PyTorch's autocast, as medians of interleaved blocks.

    python -m benchmarks.halves [--rounds 7] [--threads 2] [--only gpt,mlp] [--products]

Each workload is trained by four contenders in one process, in turns: puregraph compiled, in float32 and with
`calcMode("bfloat16")`, and PyTorch, in float32 and under `torch.autocast("cpu", torch.bfloat16)`. A ratio is another's
time over that of puregraph in bfloat16: 1.1 is a tenth slower than puregraph. With `--products`, single products of
float32 matrices, rounded on the way, next to `torch.mm` of matrices that are bfloat16 already, in GFLOP/s. Prints a
table, and saves it, row by row, with the command to benchmarks/results/halves.txt.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--only", default="mlp,lenet,resnet18,transformer,gpt", help="workloads, separated by commas")
parser.add_argument("--products", action="store_true", help="single products as well")
parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "halves.txt")
options = parser.parse_args()
os.environ["PUREGRAPH_THREADS"] = str(options.threads)

import numpy as np  # noqa: E402
import torch  # noqa: E402

from benchmarks import report, workloads  # noqa: E402
from benchmarks.contenders import puregraph as ours  # noqa: E402
from benchmarks.contenders import torch as theirs  # noqa: E402
from puregraph.compile.runtime.segment import Segment  # noqa: E402
from puregraph.core.base.align import aligned  # noqa: E402
from puregraph.ops.native.llvm import jit  # noqa: E402
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec  # noqa: E402
from puregraph.ops.product.native.gemm import gemm  # noqa: E402

BLOCK = 0.3  # seconds of steps of a contender before the next one's turn
REST = 0.05  # seconds for which waiting threads of one contender would hold a processor of the next
SIDES = (256, 512, 1024, 2048, 4096)
CONTENDERS = ("ours f32", "ours bf16", "torch f32", "torch bf16")


def batchOf(name):
    """The largest batch that a workload is trained with."""
    return max(batch for mode, batch in workloads.load(name).CASES if mode == "train")


def steps(name, batch, folder):
    """By contender, a call that makes one training step from the same weights and data."""
    weights = Path(folder) / f"{name}.npz"
    ours.writeWeights(name, weights)
    calls = {}
    for kind, precision in (("f32", None), ("bf16", "bfloat16")):
        calls[f"ours {kind}"] = ours.prepare(name, "train", batch, weights, True, precision=precision)[0]
        calls[f"torch {kind}"] = theirs.prepare(name, "train", batch, weights, precision=precision)[0]
    values = {which: float(calls[which]().detach() if "torch" in which else calls[which]()) for which in CONTENDERS}
    for which, value in values.items():
        np.testing.assert_allclose(value, values["torch f32"], rtol=2e-2, err_msg=which)
    return calls


def seconds(calls, rounds):
    """The median over rounds of the median of a block of calls, by contender."""
    blocks = {which: [] for which in calls}
    for call in (*calls.values(), *calls.values()):
        call()
    for turn in range(rounds):
        for which in sorted(calls, reverse=turn % 2 == 1):
            time.sleep(REST)
            times, end = [], time.perf_counter() + BLOCK
            while time.perf_counter() < end or len(times) < 2:
                start = time.perf_counter()
                calls[which]()
                times.append(time.perf_counter() - start)
            blocks[which].append(statistics.median(times))
    return {which: statistics.median(block) for which, block in blocks.items()}


def product(x, w, halves):
    """A call of native code that computes x w, and its result."""
    (m, k), n = x.shape, w.shape[1]
    y = room(m * n).reshape(m, n)
    strides = [tuple(step // 4 for step in matrix.strides) for matrix in (x, w)]
    works = gemm(x, w, EpilogueSpec(y, n), m, n, k, *strides, lanes=jit.lanes(4), workspace=room, halves=halves)
    return Segment([[work] for work in works], None), y


def room(count):
    """Memory between two products."""
    return aligned(np.zeros(count, np.float32))


def products(side):
    """By contender, a call that multiplies two square matrices, the second stored transposed as Linear has it."""
    rng = np.random.default_rng(0)
    x, w = (aligned(rng.standard_normal((side, side), np.float32)) for _ in range(2))
    calls, tensors = {}, [torch.from_numpy(x), torch.from_numpy(w).T]
    for kind, halves, dtype in (("f32", False, torch.float32), ("bf16", True, torch.bfloat16)):
        a, b = (tensor.to(dtype) for tensor in tensors)
        calls[f"ours {kind}"], y = product(x, w.T, halves)
        out = torch.empty(side, side, dtype=dtype)
        calls[f"torch {kind}"] = lambda a=a, b=b, out=out: torch.mm(a, b, out=out)
        calls[f"ours {kind}"]()
        np.testing.assert_allclose(y, x @ w.T, rtol=0, atol=(0.05 if halves else 1e-4) * side**0.5)
    return calls


def main():
    """The table, line by line."""
    theirs.begin(options.threads)
    lines = report.head(f"python -m benchmarks.halves {' '.join(sys.argv[1:])}", sorted(os.sched_getaffinity(0)))
    columns = "".join(f"{which:>12}" for which in CONTENDERS)
    lines += ["", f"{'ms a training step':32}{columns}{'vs autocast':>13}{'vs ours f32':>13}"]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only.split(",") if options.only else ():
            batch = batchOf(name)
            times = seconds(steps(name, batch, folder), options.rounds)
            lines.append(line(f"{name}, batch {batch}", {which: 1e3 * times[which] for which in CONTENDERS}, times))
            options.out.write_text("\n".join(lines) + "\n")
    if options.products:
        lines += ["", f"{'GFLOP/s of a product':32}{columns}{'vs torch.mm':>13}{'vs ours f32':>13}"]
        print("\n".join(lines[-2:]), flush=True)
        for side in SIDES:
            times = seconds(products(side), options.rounds)
            rates = {which: 2e-9 * side**3 / times[which] for which in CONTENDERS}
            lines.append(line(f"{side} x {side} x {side}", rates, times))
            options.out.write_text("\n".join(lines) + "\n")


def line(title, cells, times):
    """A row: the cells of all contenders, and the time of two of them over that of puregraph in bfloat16."""
    ratios = (times[which] / times["ours bf16"] for which in ("torch bf16", "ours f32"))
    text = (
        f"{title:32}{''.join(f'{cells[which]:12.2f}' for which in CONTENDERS)}{''.join(f'{r:13.2f}' for r in ratios)}"
    )
    print(text, flush=True)
    return text


if __name__ == "__main__":
    main()
