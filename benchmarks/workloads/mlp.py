"""The multi-layer perceptron 784-512-512-10, one sample and 64 at a time."""

from benchmarks.workloads import floats

TITLE = "MLP 784-512-512-10"
CASES = [("train", 1), ("train", 64), ("infer", 1), ("infer", 64)]
COST, OPTIMIZER, IMAGES = "crossentropy", "sgd", False


def data(rng, batch):
    """Vectors and ten classes."""
    return [floats(rng, batch, 784)], rng.integers(0, 10, batch)


def ours():
    """puregraph's own model."""
    from puregraph import models

    return models.mlp()


def torch(torch):
    """Three linear layers."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def jax(net, x):
    """Three linear layers."""
    x = net.nn.relu(net.linear(x, 784, 512))
    x = net.nn.relu(net.linear(x, 512, 512))
    return net.linear(x, 512, 10)
