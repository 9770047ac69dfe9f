"""A network of one layer of each common kind: it has a library load what it needs, before memory is measured."""

from benchmarks.workloads import floats

TITLE = "tiny"
CASES = [("train", 2), ("infer", 2)]
COST, OPTIMIZER, IMAGES = "crossentropy", "sgd", True


def data(rng, batch):
    """Small images and four classes."""
    return [floats(rng, batch, 2, 6, 6)], rng.integers(0, 4, batch)


def ours():
    """Convolution, normalisation, rectifier, pooling, linear layer."""
    import puregraph as pg

    first = pg.Conv2D(2, 4, 3, pad=1, useBias=False), pg.BatchNorm(4), pg.Relu()
    return pg.Sequential(*first, pg.MaxPool2D(2), pg.Flatten(), pg.Linear(36, 4))


def torch(torch):
    """Convolution, normalisation, rectifier, pooling, linear layer."""
    nn = torch.nn
    first = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()
    return nn.Sequential(*first, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 4))


def jax(net, x):
    """Convolution, normalisation, rectifier, pooling, linear layer."""
    x = net.nn.relu(net.batchnorm(net.conv(x, 2, 4, 3, pad=1), 4))
    return net.linear(net.pool(x, 2).transpose(0, 3, 1, 2).reshape(len(x), 36), 36, 4)
