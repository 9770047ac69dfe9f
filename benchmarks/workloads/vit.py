"""ViT-B/16 for images of 224 x 224, on a GPU; trained with AdamW."""

from benchmarks.workloads import floats
from benchmarks.workloads.transformer import blockFor

TITLE = "ViT-B/16, 224 x 224"
CASES = [("train", 64)]
COST, OPTIMIZER, IMAGES = "crossentropy", "adamw", False
SIDE, PATCH, LAYERS, HEADS, SIZE = 224, 16, 12, 12, 768
TINY = {"SIDE": 32, "LAYERS": 2, "HEADS": 2, "SIZE": 16}


def data(rng, batch):
    """Images of three channels and a thousand classes."""
    return [floats(rng, batch, 3, SIDE, SIDE)], rng.integers(0, 1000, batch)


def ours():
    """puregraph's own model."""
    from puregraph import models

    return models.vit(SIDE, PATCH, LAYERS, HEADS, SIZE)


def torch(torch):
    """Patch embeddings, a class token before them, position embeddings, blocks, a norm, and scores of the token."""
    nn = torch.nn
    Block = blockFor(torch)

    class Token(nn.Module):
        def __init__(self, count):
            super().__init__()
            self.vectors = nn.Parameter(0.02 * torch.randn(count, SIZE))

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, SIZE, PATCH, PATCH)
            self.token, self.positions = Token(1), Token((SIDE // PATCH) ** 2 + 1)
            self.blocks = nn.Sequential(*(Block(SIZE, HEADS) for _ in range(LAYERS)))
            self.norm, self.head = nn.LayerNorm(SIZE), nn.Linear(SIZE, 1000)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.vectors.expand(len(x), 1, SIZE), x], 1) + self.positions.vectors
            return self.head(self.norm(self.blocks(x))[:, 0])

    return ViT()
