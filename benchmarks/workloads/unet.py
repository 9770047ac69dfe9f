"""U-Net on images of 128 x 128, 4 at a time."""

from benchmarks.workloads import floats

TITLE = "U-Net, 128 x 128"
CASES = [("train", 4), ("infer", 4)]
COST, OPTIMIZER, IMAGES = "crossentropy", "sgd", True
SIDE, MAPS = 128, (64, 128, 256, 512, 1024)
TINY = {"SIDE": 16, "MAPS": (4, 8, 16)}


def data(rng, batch):
    """Images of one map, and one of two classes for each pixel."""
    return [floats(rng, batch, 1, SIDE, SIDE)], rng.integers(0, 2, (batch, SIDE, SIDE))


def ours():
    """puregraph's own model."""
    from puregraph import models

    return models.unet(maps=MAPS[0], depth=len(MAPS) - 1)


def torch(torch):
    """Four times down and up, with shortcuts at every size."""
    nn = torch.nn

    def double(inmaps, outmaps):
        pairs = ((inmaps, outmaps), (outmaps, outmaps))
        return nn.Sequential(*(m for i, o in pairs for m in (nn.Conv2d(i, o, 3, padding=1), nn.ReLU(inplace=True))))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.downs = nn.ModuleList(double(i, o) for i, o in zip((1, *MAPS), MAPS))
            self.pool = nn.MaxPool2d(2)
            self.ups = nn.ModuleList()
            for maps in MAPS[-2::-1]:
                self.ups.append(nn.ModuleList([nn.ConvTranspose2d(2 * maps, maps, 2, 2), double(2 * maps, maps)]))
            self.scores = nn.Conv2d(MAPS[0], 2, 1)

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

    x, skips = double(x, 1, MAPS[0]), []
    for maps in MAPS[:-1]:
        skips.append(x)
        x = double(net.pool(x, 2), maps, 2 * maps)
    for maps in MAPS[-2::-1]:
        x = net.jnp.concatenate([skips.pop(), net.grow(x, 2 * maps, maps)], -1)
        x = double(x, 2 * maps, maps)
    return net.conv(x, MAPS[0], 2, 1, bias=True)
