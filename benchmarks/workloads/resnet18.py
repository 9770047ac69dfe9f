"""ResNet-18 for images of 224 x 224: training 8 at a time, inference of one."""

from benchmarks.workloads import floats
from benchmarks.workloads.residual import jaxNet, torchNet

TITLE = "ResNet-18, 224 x 224"
CASES = [("train", 8), ("infer", 1)]
COST, OPTIMIZER, IMAGES = "crossentropy", "sgd", True
WIDTHS = (64, 128, 256, 512)


def data(rng, batch):
    """Images of three channels and a thousand classes."""
    return [floats(rng, batch, 3, 224, 224)], rng.integers(0, 1000, batch)


def ours():
    """puregraph's own model."""
    from puregraph import models

    return models.resnet18()


def torch(torch):
    """Eight blocks, with convolutions as shortcuts where shapes differ."""
    nn = torch.nn
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    return torchNet(torch, stem, WIDTHS, 2, 1000, projects=True)


def jax(net, x):
    """Eight blocks, with convolutions as shortcuts where shapes differ."""
    x = net.nn.relu(net.batchnorm(net.conv(x, 3, 64, 7, 2, 3), 64))
    return jaxNet(net, net.pool(x, 3, 2, 1), WIDTHS, 2, 1000, projects=True)
