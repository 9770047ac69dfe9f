"""Text of a GPT of 6 layers, 384 wide, a token at a time with caches, beside PyTorch eager with its cache.

    python benchmarks/generation.py [--threads 2] [--rounds 7]

The torch network has the same weights; its keys and values are written into a tensor of the full length, and its
attention is `scaled_dot_product_attention` over the rows that are filled, in inference mode. Both take the likeliest
token each time. The tokens are compared first; of a pass and a step with a full cache the medians are given.

Prints a table, and saves it with the command to benchmarks/results/generation.txt. Rounds take turns; tokens a second
are those of the median round.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

if __name__ == "__main__":  # before numpy's library starts its threads
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import machine

RESULTS = Path(__file__).parent / "results"
VOCABULARY, LENGTH, LAYERS, HEADS, SIZE = 256, 576, 6, 6, 384
PROMPT, TOKENS = 32, 96
CACHED = 512  # tokens in the cache of the step beside the pass


def ourNet():
    """The network in evalMode, with scores far enough apart to be compared."""
    import puregraph
    from puregraph.models import gpt

    puregraph.seed(1)
    net = gpt(VOCABULARY, LENGTH, LAYERS, HEADS, SIZE).evalMode()
    net["words"].W.data *= 10
    return net


class TorchText:
    """The same network in torch, with a cache of keys and values."""

    def __init__(self, net):
        import torch

        self.torch = torch
        self.weights = {path: torch.tensor(param.data) for path, param in net.params.items()}

    def begin(self, rows):
        shape = (LAYERS, rows, HEADS, LENGTH, SIZE // HEADS)
        self.keys, self.values, self.filled = self.torch.zeros(shape), self.torch.zeros(shape), 0

    def scores(self, ids):
        """The scores (n, t, vocabulary) of ids behind those in the cache."""
        w, f = self.weights, self.torch.nn.functional
        n, t = ids.shape
        end = self.filled + t
        h = w["words.W"][ids] + w["places.W"][self.filled : end]
        for i in range(LAYERS):
            at = f"block{i + 1}."
            x = f.layer_norm(h, (SIZE,), w[at + "norm1.scale"], w[at + "norm1.bias"])
            qkv = (x @ w[at + "attn.qkv.W"] + w[at + "attn.qkv.b"]).view(n, t, 3, HEADS, -1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            self.keys[i, :, :, self.filled : end], self.values[i, :, :, self.filled : end] = k, v
            keys, values = self.keys[i, :, :, :end], self.values[i, :, :, :end]
            y = f.scaled_dot_product_attention(q, keys, values, is_causal=t > 1)
            h = h + y.transpose(1, 2).reshape(n, t, SIZE) @ w[at + "attn.out.W"] + w[at + "attn.out.b"]
            x = f.layer_norm(h, (SIZE,), w[at + "norm2.scale"], w[at + "norm2.bias"])
            x = f.gelu(x @ w[at + "mlp.fc1.W"] + w[at + "mlp.fc1.b"], approximate="tanh")
            h = h + x @ w[at + "mlp.fc2.W"] + w[at + "mlp.fc2.b"]
        self.filled = end
        return f.layer_norm(h, (SIZE,), w["norm.scale"], w["norm.bias"]) @ w["words.W"].T

    def __call__(self, prompts, tokens):
        """Prompts of one length, continued by the likeliest tokens."""
        with self.torch.inference_mode():
            ids = self.torch.tensor(prompts)
            self.begin(len(prompts))
            new = ids
            for _ in range(tokens):
                new = self.scores(new)[:, -1].argmax(-1, keepdim=True)
                ids = self.torch.cat([ids, new], 1)
            return ids.tolist()


def milliseconds(call):
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def passAndStep(net, rounds):
    """Lines: a full pass over the tokens of a cache, a step behind them, and how far their scores are apart."""
    from puregraph.train.decoding.cachedgraph import CachedGraph

    text = np.random.default_rng(0).integers(0, VOCABULARY, CACHED).tolist()
    ids = np.array([text])
    program = net.compile([ids.shape], train=False)
    cached = CachedGraph(net, 1, CACHED)
    wanted = np.array(program.run(ids))[0]
    apart = 0.0
    cached.scores([text[:1]])
    for end in range(1, CACHED + 1):
        apart = max(apart, float(np.abs(cached.scores([text[:end]])[0] - wanted[end - 1]).max()))
    last, before = np.array([text[-1:]]), np.array([CACHED - 1])
    times = [
        (milliseconds(lambda: program.run(ids)), milliseconds(lambda: cached.run(last, before)))
        for _ in range(8 * rounds)
    ]
    full, step = (statistics.median(column) for column in zip(*times))
    share = statistics.median(a / b for a, b in times)
    yield f"a pass over {CACHED} tokens {full:9.2f} ms"
    yield f"a token behind {CACHED - 1}    {step:9.2f} ms   1/{share:.0f} of the pass"
    yield f"scores differ by {apart:.1e} at most, over all positions; the largest is {np.abs(wanted).max():.2f}"


def tokensPerSecond(net, theirs, rows, rounds):
    """Lines of a table: the tokens a second of both, and their ratio in the median round."""
    from puregraph import Generator

    prompts = np.random.default_rng(rows).integers(0, VOCABULARY, (rows, PROMPT)).tolist()
    write = Generator(net, temperature=0)
    calls = {"puregraph": lambda: write(prompts, TOKENS), "torch": lambda: theirs(prompts, TOKENS)}
    if calls["puregraph"]() != calls["torch"]():
        raise RuntimeError("the two write other tokens")
    for call in calls.values():
        call()
    times = [[milliseconds(call) for call in calls.values()] for _ in range(rounds)]
    for i, (name, column) in enumerate(zip(calls, zip(*times))):
        speeds = [rows * TOKENS / ms * 1e3 for ms in column]
        ratio = statistics.median(row[i] / row[0] for row in times)
        yield f"{rows:>5}  {name:12}{statistics.median(speeds):9.0f}{max(speeds):9.0f}{ratio:8.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    import torch

    torch.set_num_threads(options.threads)
    lines = [
        " ".join(["python", "benchmarks/generation.py", *sys.argv[1:]]),
        machine.processor(),
        machine.versions(),
        f"{options.threads} threads each, {options.rounds} rounds, load average {os.getloadavg()[0]:.1f} at the start",
        "",
    ]
    print("\n".join(lines), flush=True)
    net = ourNet()

    def add(found):
        for line in found:
            lines.append(line)
            print(line, flush=True)

    add(passAndStep(net, options.rounds))
    add(["", f"{'batch':>5}  {'':12}{'tokens/s':>9}{'best':>9}{'ratio':>8}"])
    for rows in (1, 8):
        add(tokensPerSecond(net, TorchText(net), rows, options.rounds))
    (RESULTS / "generation.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
