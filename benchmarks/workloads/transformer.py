"""One block of a transformer, 256 wide with 4 heads, 128 positions, 8 sequences at a time."""

from benchmarks.workloads import floats

TITLE = "transformer block 256, 4 heads, 128 positions"
CASES = [("train", 8), ("infer", 8)]
COST, OPTIMIZER, IMAGES = "mse", "sgd", False


def data(rng, batch):
    """Vectors at positions, and targets."""
    return [floats(rng, batch, 128, 256)], floats(rng, batch, 128, 256)


def ours():
    """puregraph's own model."""
    from puregraph import models

    return models.transformerBlock(256, 4)


def blockFor(torch):
    """The class of a block, normalised before each part."""
    nn = torch.nn
    F = nn.functional

    class Block(nn.Module):
        def __init__(self, size, heads, causal=False, approximate="none"):
            super().__init__()
            self.heads, self.causal, self.approximate = heads, causal, approximate
            self.norm1 = nn.LayerNorm(size)
            self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
            self.norm2 = nn.LayerNorm(size)
            self.fc1, self.fc2 = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

        def forward(self, x):
            n, t, size = x.shape
            parts = self.qkv(self.norm1(x)).split(size, -1)
            q, k, v = (h.view(n, t, self.heads, size // self.heads).transpose(1, 2) for h in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            x = x + self.out(y.transpose(1, 2).reshape(n, t, size))
            return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate=self.approximate))

    return Block


def torch(torch):
    """Attention and a small network, each with a residual connection."""
    return blockFor(torch)(256, 4)


def jax(net, x):
    """Attention and a small network, each with a residual connection."""
    return net.block(x, 256, 4)
