"""ResNet-50 for images of 224 x 224, on a GPU."""

from benchmarks.workloads import floats
from benchmarks.workloads.residual import torchDeep

TITLE = "ResNet-50, 224 x 224"
CASES = [("train", 64), ("train", 256)]
COST, OPTIMIZER, IMAGES = "crossentropy", "sgd", True
SIDE, WIDTHS, COUNTS = 224, (64, 128, 256, 512), (3, 4, 6, 3)
TINY = {"SIDE": 64}


def data(rng, batch):
    """Images of three channels and a thousand classes."""
    return [floats(rng, batch, 3, SIDE, SIDE)], rng.integers(0, 1000, batch)


def ours():
    """puregraph's own model."""
    from puregraph import models

    return models.resnet50()


def torch(torch):
    """Sixteen blocks, with convolutions as shortcuts where shapes differ."""
    nn = torch.nn
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    return torchDeep(torch, stem, WIDTHS, COUNTS, 1000)
