"""CTC beside PyTorch's on the CPU, value and gradient, and RNNT beside torchaudio's where that is installed.

    python -m benchmarks.ctc [--threads 2] [--rounds 41]

A step goes from scores to their gradient, softmax included: compiled here, `log_softmax` and `ctc_loss` with `backward`
there. Both take turns in one process with the same number of threads, after values and gradients were compared; a row
has the median and the fastest of all rounds, and the ratio of the fastest. Prints a table, and saves it with the
command to benchmarks/results/ctc.txt.
"""

import argparse
import os
import statistics
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=41)
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = os.environ["PUREGRAPH_THREADS"] = str(options.threads)

import numpy as np  # noqa: E402
import torch  # noqa: E402

from puregraph import CTC, RNNT  # noqa: E402
from puregraph.compile import Program  # noqa: E402
from puregraph.graph import Graph, Input  # noqa: E402

try:
    from torchaudio.functional import rnnt_loss
except ImportError:
    rnnt_loss = None

RESULT = Path(__file__).parent / "results" / "ctc.txt"
SAMPLES, STEPS, CLASSES = 16, 200, 80
REST = 0.05  # seconds for which threads of the other side may poll
CASES = [("CTC", STEPS, 20), ("CTC", STEPS, 60), ("CTC", 1000, 60), ("RNNT", 100, 20)]


def arraysOf(kind, steps, labels):
    """Scores, labels, and lengths that differ."""
    rng = np.random.default_rng(0)
    shape = (SAMPLES, steps, CLASSES) if kind == "CTC" else (SAMPLES, steps, labels + 1, CLASSES)
    lengths, counts = rng.integers(steps * 4 // 5, steps + 1, SAMPLES), rng.integers(labels // 2, labels + 1, SAMPLES)
    lengths[0], counts[0] = steps, labels
    x = rng.standard_normal(shape).astype(np.float32)
    return x, rng.integers(1, CLASSES, (SAMPLES, labels)), lengths, counts


def ours(kind, arrays):
    """A call that gives the mean of -ln P and its gradient."""
    nodes = [Input(name=f"i{i}").node() for i in range(len(arrays))]
    cost = (CTC if kind == "CTC" else RNNT)(reduction="sum")
    graph, shapes, dtypes = Graph(nodes, cost(*nodes)), [a.shape for a in arrays], [a.dtype for a in arrays]
    program, seed = Program(graph, shapes, dtypes, grads=(True,)), np.ones((), np.float32)
    return lambda: (program.run(*arrays, seed), program.grad[0])


def theirs(kind, arrays):
    """The same by PyTorch; None where it has no such cost."""
    if kind == "RNNT" and rnnt_loss is None:
        return None
    x, labels, lengths, counts = map(torch.from_numpy, arrays)
    x.requires_grad_()

    def call():
        x.grad = None
        if kind == "CTC":
            logs = x.log_softmax(-1).transpose(0, 1)
            cost = torch.nn.functional.ctc_loss(logs, labels, lengths, counts, reduction="sum")
        else:
            cost = rnnt_loss(x, labels.int(), lengths.int(), counts.int(), blank=0, reduction="sum")
        cost.backward()
        return cost.detach().numpy(), x.grad.numpy()

    return call


def milliseconds(call):
    time.sleep(REST)
    call()
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)


def row(case):
    """One row of the table."""
    arrays = arraysOf(*case)
    calls = [call for call in (ours(case[0], arrays), theirs(case[0], arrays)) if call]
    results = [[np.array(x) for x in call()] for call in calls]
    for one, other in zip(results[0], results[-1]):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=5e-3)  # float32, -ln P in the thousands
    times = [[] for _ in calls]
    for _ in range(options.rounds):
        for call, some in zip(calls, times):
            some.append(milliseconds(call))
    shape = " x ".join(map(str, (SAMPLES, *case[1:2], CLASSES)))
    cells = [f"{statistics.median(some):11.2f}{min(some):9.2f}" for some in times]
    cells += [f"{min(times[1]) / min(times[0]):8.1f}"] if len(calls) == 2 else [f"{'-':>11}{'-':>9}{'-':>8}"]
    return f"{case[0]:6}{shape:17}{case[2]:>7}" + "".join(cells)


def main():
    torch.set_num_threads(options.threads)
    lines = [
        f"python -m benchmarks.ctc --threads {options.threads} --rounds {options.rounds}",
        f"torch {torch.__version__}, numpy {np.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "ms of value and gradient, softmax included: median and fastest of turns in one process",
        "",
        f"{'cost':6}{'n x t x classes':17}{'labels':>7}{'puregraph':>11}{'':9}{'torch':>11}{'':9}{'ratio':>8}",
        *map(row, CASES),
    ]
    lines += [] if rnnt_loss else ["", "PyTorch itself has no RNNT, and torchaudio is not installed."]
    text = "\n".join(lines) + "\n"
    print(text)
    RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
