"""GPT-2 of 124 million parameters on texts of 1,024 words, with the cost of all its words, on a GPU.

There are 50,304 words on every side, not 50,257: a multiple of 128, as everybody trains it.
"""

from benchmarks.workloads.gpt import torchNet

TITLE = "GPT-2 124M, 1024 positions, 50304 words"
CASES = [("train", 16)]
COST, OPTIMIZER, IMAGES = "crossentropy", "adamw", False
WORDS, LENGTH, LAYERS, HEADS, SIZE = 50304, 1024, 12, 12, 768
TINY = {"WORDS": 65, "LENGTH": 16, "LAYERS": 2, "HEADS": 2, "SIZE": 16}


def data(rng, batch):
    """Words, and the next one at each position."""
    return [rng.integers(0, WORDS, (batch, LENGTH))], rng.integers(0, WORDS, batch * LENGTH)


def ours():
    """puregraph's own model, without dropout, and all positions of all texts as one batch of scores."""
    import puregraph as pg
    from puregraph import models

    return pg.Sequential(models.gpt(WORDS, LENGTH, LAYERS, HEADS, SIZE), pg.Reshape((-1, WORDS)))


def torch(torch):
    """Word and position embeddings, causal blocks, a norm, and products with the word embeddings."""
    return torchNet(torch, WORDS, LENGTH, LAYERS, HEADS, SIZE)
