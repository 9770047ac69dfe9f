"""U-Net on images of 128 x 128, 4 at a time."""

from benchmarks.workloads import floats

TITLE = "U-Net, 128 x 128"
CASES = [("train", 4), ("infer", 4)]
COST, OPTIMIZER, IMAGES = "crossentropy", "sgd", True
SIDE, CHANNELS = 128, (64, 128, 256, 512, 1024)
TINY = {"SIDE": 16, "CHANNELS": (4, 8, 16)}


def data(rng, batch):
    """Images of one channel, and one of two classes for each pixel."""
    return [floats(rng, batch, 1, SIDE, SIDE)], rng.integers(0, 2, (batch, SIDE, SIDE))


def ours():
    """puregraph's own model."""
    from puregraph import models

    return models.unet(maps=CHANNELS[0], depth=len(CHANNELS) - 1)


def torch(torch):
    """Four times down and up, with shortcuts at every size."""
    nn = torch.nn

    def double(inmaps, outmaps):
        pairs = ((inmaps, outmaps), (outmaps, outmaps))
        return nn.Sequential(*(m for i, o in pairs for m in (nn.Conv2d(i, o, 3, padding=1), nn.ReLU(inplace=True))))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.downs = nn.ModuleList(double(i, o) for i, o in zip((1, *CHANNELS), CHANNELS))
            self.pool = nn.MaxPool2d(2)
            self.ups = nn.ModuleList()
            for channels in CHANNELS[-2::-1]:
                self.ups.append(
                    nn.ModuleList([nn.ConvTranspose2d(2 * channels, channels, 2, 2), double(2 * channels, channels)])
                )
            self.scores = nn.Conv2d(CHANNELS[0], 2, 1)

        def forward(self, x):
            x, skips = self.downs[0](x), []
            for down in self.downs[1:]:
                skips.append(x)
                x = down(self.pool(x))
            for grow, both in self.ups:
                x = both(torch.cat([skips.pop(), grow(x)], 1))
            return self.scores(x)

    return UNet()


def jax(net, x):
    """Four times down and up, with shortcuts at every size; classes last, as the cost takes them."""

    def double(x, inmaps, outmaps):
        for i in (inmaps, outmaps):
            x = net.nn.relu(net.conv(x, i, outmaps, 3, pad=1, bias=True))
        return x

    x, skips = double(x, 1, CHANNELS[0]), []
    for channels in CHANNELS[:-1]:
        skips.append(x)
        x = double(net.pool(x, 2), channels, 2 * channels)
    for channels in CHANNELS[-2::-1]:
        x = net.jnp.concatenate([skips.pop(), net.grow(x, 2 * channels, channels)], -1)
        x = double(x, 2 * channels, channels)
    return net.conv(x, CHANNELS[0], 2, 1, bias=True)
