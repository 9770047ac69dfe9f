"""ResNet-20 for images of 32 x 32, 64 at a time."""

from benchmarks.workloads import floats
from benchmarks.workloads.residual import jaxNet, torchNet

TITLE = "ResNet-20, 32 x 32"
CASES = [("train", 64), ("infer", 64)]
COST, OPTIMIZER, IMAGES = "crossentropy", "sgd", True
WIDTHS = (16, 32, 64)


def data(rng, batch):
    """Images of three channels and ten classes."""
    return [floats(rng, batch, 3, 32, 32)], rng.integers(0, 10, batch)


def ours():
    """puregraph's own model."""
    from puregraph import models

    return models.resnet20()


def torch(torch):
    """Nine blocks, whose shortcuts have no parameters."""
    nn = torch.nn
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    return torchNet(torch, stem, WIDTHS, 3, 10, projects=False)


def jax(net, x):
    """Nine blocks, whose shortcuts have no parameters."""
    x = net.nn.relu(net.batchnorm(net.conv(x, 3, 16, 3, 1, 1), 16))
    return jaxNet(net, x, WIDTHS, 3, 10, projects=False)
