"""LeNet-5 on images of 28 x 28, 64 at a time."""

from benchmarks.workloads import floats

TITLE = "LeNet, 28 x 28"
CASES = [("train", 64), ("infer", 64)]
COST, OPTIMIZER, IMAGES = "crossentropy", "sgd", True


def data(rng, batch):
    """Images of one channel and ten classes."""
    return [floats(rng, batch, 1, 28, 28)], rng.integers(0, 10, batch)


def ours():
    """puregraph's own model."""
    from puregraph import models

    return models.lenet()


def torch(torch):
    """Two convolutions with pooling, three linear layers."""
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def jax(net, x):
    """Two convolutions with pooling, three linear layers."""
    x = net.pool(net.nn.relu(net.conv(x, 1, 6, 5, pad=2, bias=True)), 2)
    x = net.pool(net.nn.relu(net.conv(x, 6, 16, 5, bias=True)), 2)
    x = x.transpose(0, 3, 1, 2).reshape(len(x), 400)
    x = net.nn.relu(net.linear(x, 400, 120))
    x = net.nn.relu(net.linear(x, 120, 84))
    return net.linear(x, 84, 10)
