"""MobileNet v2 for images of 96 x 96, 16 at a time, without dropout."""

from benchmarks.workloads import floats

TITLE = "MobileNet v2, 96 x 96"
CASES = [("train", 16), ("infer", 16)]
COST, OPTIMIZER, IMAGES = "crossentropy", "sgd", True
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def data(rng, batch):
    """Images of three channels and a thousand classes."""
    return [floats(rng, batch, 3, 96, 96)], rng.integers(0, 1000, batch)


def ours():
    """puregraph's own model."""
    from puregraph import models

    return models.mobilenet(dropout=0.0)


def blocks():
    """Input channels, expansion, output channels and stride of each block."""
    inmaps = 32
    for expansion, outmaps, count, stride in STAGES:
        for i in range(count):
            yield inmaps, expansion, outmaps, 1 if i else stride
            inmaps = outmaps


def torch(torch):
    """A convolution, 17 inverted residual blocks, a 1x1 convolution, mean and linear layer."""
    nn = torch.nn

    def layer(inmaps, outmaps, size, stride=1, groups=1, linear=False):
        conv = nn.Conv2d(inmaps, outmaps, size, stride, size // 2, groups=groups, bias=False)
        return [conv, nn.BatchNorm2d(outmaps), *([] if linear else [nn.ReLU6(inplace=True)])]

    class Block(nn.Module):
        def __init__(self, inmaps, expansion, outmaps, stride):
            super().__init__()
            inner, self.adds = inmaps * expansion, stride == 1 and inmaps == outmaps
            self.path = nn.Sequential(
                *(layer(inmaps, inner, 1) if expansion > 1 else []),
                *layer(inner, inner, 3, stride, inner),
                *layer(inner, outmaps, 1, linear=True),
            )

        def forward(self, x):
            return x + self.path(x) if self.adds else self.path(x)

    return nn.Sequential(
        *layer(3, 32, 3, 2),
        *(Block(*block) for block in blocks()),
        *layer(320, 1280, 1),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)),
    )


def jax(net, x):
    """A convolution, 17 inverted residual blocks, a 1x1 convolution, mean and linear layer."""

    def layer(x, inmaps, outmaps, size, stride=1, groups=1, linear=False):
        x = net.batchnorm(net.conv(x, inmaps, outmaps, size, stride, size // 2, groups), outmaps)
        return x if linear else net.nn.relu6(x)

    x = layer(x, 3, 32, 3, 2)
    for inmaps, expansion, outmaps, stride in blocks():
        inner = inmaps * expansion
        h = layer(x, inmaps, inner, 1) if expansion > 1 else x
        h = layer(h, inner, inner, 3, stride, inner)
        h = layer(h, inner, outmaps, 1, linear=True)
        x = x + h if stride == 1 and inmaps == outmaps else h
    return net.linear(layer(x, 320, 1280, 1).mean((1, 2)), 1280, 1000)
