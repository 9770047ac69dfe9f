"""A GPT of 6 layers, 384 wide, with 8,192 words and 256 positions, 8 texts at a time; trained with AdamW."""

from benchmarks.workloads.transformer import blockFor

TITLE = "GPT, 6 layers of 384, 256 positions, 8192 words"
CASES = [("train", 8), ("infer", 8)]
COST, OPTIMIZER, IMAGES = "crossentropy", "adamw", False
WORDS, LENGTH, LAYERS, HEADS, SIZE = 8192, 256, 6, 6, 384


def data(rng, batch):
    """Words, and the next one at each position."""
    return [rng.integers(0, WORDS, (batch, LENGTH))], rng.integers(0, WORDS, batch * LENGTH)


def ours():
    """puregraph's own model, and all positions of all texts as one batch of scores."""
    import puregraph as pg
    from puregraph import models

    return pg.Sequential(models.gpt(WORDS, LENGTH, LAYERS, HEADS, SIZE), pg.Reshape((-1, WORDS)))


def torch(torch):
    """Word and position embeddings, causal blocks, a norm, and products with the word embeddings."""
    return torchNet(torch, WORDS, LENGTH, LAYERS, HEADS, SIZE)


def torchNet(torch, words, length, layers, heads, size):
    """A GPT of any size."""
    nn = torch.nn
    Block = blockFor(torch)

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.positions = nn.Embedding(words, size), nn.Embedding(length, size)
            nn.init.normal_(self.words.weight, std=0.02)
            nn.init.normal_(self.positions.weight, std=0.02)
            self.blocks = nn.Sequential(*(Block(size, heads, True, "tanh") for _ in range(layers)))
            self.norm = nn.LayerNorm(size)
            self.scores = nn.Linear(size, words, bias=False)
            self.scores.weight = self.words.weight

        def forward(self, x):
            x = self.words(x) + self.positions.weight[: x.shape[1]]
            return self.scores(self.norm(self.blocks(x))).flatten(0, 1)

    return GPT()


def jax(net, x):
    """Word and position embeddings, causal blocks, a norm, and products with the word embeddings."""
    words, positions = net.table(WORDS, SIZE), net.table(LENGTH, SIZE)
    x = net.jnp.take(words, x, axis=0) + positions[: x.shape[1]]
    for _ in range(LAYERS):
        x = net.block(x, SIZE, HEADS, causal=True, approximate=True)
    return (net.layernorm(x, SIZE) @ words.T).reshape(-1, WORDS)
