"""Two layers of LSTM with 256 cells that read 64 time steps, 32 sequences at a time."""

from benchmarks.workloads import floats

TITLE = "LSTM 2 x 256, 64 time steps"
CASES = [("train", 32), ("infer", 32)]
COST, OPTIMIZER, IMAGES = "crossentropy", "sgd", False
UNUSED = 2 * 4 * 256  # torch's LSTM has a second bias in each layer, which is added to the first


def data(rng, batch):
    """Sequences of vectors, and ten classes."""
    return [floats(rng, batch, 64, 28)], rng.integers(0, 10, batch)


def ours():
    """puregraph's own model."""
    from puregraph import models

    return models.lstm()


def torch(torch):
    """The last state of the second layer through a linear layer."""
    nn = torch.nn

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(28, 256, 2, batch_first=True)
            self.out = nn.Linear(256, 10)

        def forward(self, x):
            return self.out(self.lstm(x)[0][:, -1])

    return Reader()


def jax(net, x):
    """The last state of the second layer through a linear layer."""
    x = net.lstm(net.lstm(x, 28, 256), 256, 256)
    return net.linear(x[:, -1], 256, 10)
