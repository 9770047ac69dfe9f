"""A recommender as DLRM: 26 tables of 10,000 vectors of 16 elements and two networks, 256 samples at a time.

Gradients of the tables are dense on every side: momentum moves all rows at every step.
"""

from benchmarks.workloads import floats

TITLE = "DLRM, 26 tables of 10,000 x 16"
CASES = [("train", 256), ("infer", 256)]
COST, OPTIMIZER, IMAGES = "bce", "sgd", False
DENSE, TABLES, SIZE, BOTTOM, TOP = 13, (10_000,) * 26, 16, (512, 256, 64), (512, 256)
PAIRS = len(TABLES) * (len(TABLES) + 1) // 2


def data(rng, batch):
    """Dense features and categories, and whether it was clicked on."""
    sparse = rng.integers(0, TABLES, (batch, len(TABLES)))
    return [floats(rng, batch, DENSE), sparse], rng.integers(0, 2, (batch, 1)).astype("float32")


def ours():
    """puregraph's own model."""
    from puregraph import models

    return models.dlrm(DENSE, TABLES, SIZE, BOTTOM, TOP)


def torch(torch):
    """Dense features through a network, categories through tables, all products of two vectors, a network."""
    nn = torch.nn

    def layers(insize, sizes, last):
        for i, size in enumerate(sizes, 1):
            yield nn.Linear(insize, size)
            if last or i < len(sizes):
                yield nn.ReLU()
            insize = size

    class DLRM(nn.Module):
        def __init__(self):
            super().__init__()
            self.bottom = nn.Sequential(*layers(DENSE, (*BOTTOM, SIZE), True))
            self.tables = nn.ModuleList(nn.Embedding(count, SIZE) for count in TABLES)
            self.top = nn.Sequential(*layers(SIZE + PAIRS, (*TOP, 1), False))
            for table in self.tables:
                nn.init.uniform_(table.weight, -(table.num_embeddings**-0.5), table.num_embeddings**-0.5)
            rows, columns = torch.tril_indices(len(TABLES) + 1, len(TABLES) + 1, -1)
            self.register_buffer("pairs", rows * (len(TABLES) + 1) + columns, persistent=False)

        def forward(self, dense, sparse):
            h = self.bottom(dense)
            x = torch.stack([h, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], 1)
            products = torch.bmm(x, x.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
            return self.top(torch.cat([h, products], 1))

    return DLRM()


def jax(net, dense, sparse):
    """Dense features through a network, categories through tables, all products of two vectors, a network."""

    def layers(x, insize, sizes, last):
        for i, size in enumerate(sizes, 1):
            x = net.linear(x, insize, size)
            x = net.nn.relu(x) if last or i < len(sizes) else x
            insize = size
        return x

    h = layers(dense, DENSE, (*BOTTOM, SIZE), True)
    vectors = [net.jnp.take(net.table(count, SIZE), sparse[:, i], axis=0) for i, count in enumerate(TABLES)]
    x = net.jnp.stack([h, *vectors], 1)
    rows, columns = net.jnp.tril_indices(len(TABLES) + 1, -1)
    products = net.jnp.einsum("nid,njd->nij", x, x)[:, rows, columns]
    return layers(net.jnp.concatenate([h, products], 1), SIZE + PAIRS, (*TOP, 1), False)
