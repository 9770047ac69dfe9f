"""The blocks of ResNet-20, ResNet-18 and ResNet-50."""


def torchNet(torch, stem, widths, count, classes, projects):
    """Stem, stages of blocks, mean, linear layer."""
    nn = torch.nn
    Block = blockFor(torch, projects)
    blocks, inmaps = [], widths[0]
    for stage, outmaps in enumerate(widths):
        for i in range(count):
            blocks.append(Block(inmaps, outmaps, 2 if stage and i == 0 else 1))
            inmaps = outmaps
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inmaps, classes))


def blockFor(torch, projects):
    """The class of a block: shortcuts of another shape are convolutions, or zeros added to every other pixel."""
    nn = torch.nn
    F = nn.functional

    class Block(nn.Module):
        def __init__(self, inmaps, outmaps, stride):
            super().__init__()
            self.stride, self.spread = stride, outmaps - inmaps
            self.conv1 = nn.Conv2d(inmaps, outmaps, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(outmaps)
            self.relu1 = nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(outmaps, outmaps, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(outmaps)
            self.skip = nn.Identity()
            if projects and (stride > 1 or inmaps != outmaps):
                self.skip = nn.Sequential(nn.Conv2d(inmaps, outmaps, 1, stride, bias=False), nn.BatchNorm2d(outmaps))

        def forward(self, x):
            h = self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(x)))))
            x = self.skip(x)
            if self.stride > 1 and not projects:
                before = self.spread // 2
                x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.spread - before))
            return F.relu_(h + x)

    return Block


def torchDeep(torch, stem, widths, counts, classes):
    """Stem, stages of blocks of three convolutions, mean, linear layer."""
    nn = torch.nn
    F = nn.functional

    def normed(inmaps, outmaps, size, stride=1):
        return nn.Sequential(nn.Conv2d(inmaps, outmaps, size, stride, size // 2, bias=False), nn.BatchNorm2d(outmaps))

    class Block(nn.Module):
        def __init__(self, inmaps, outmaps, stride):
            super().__init__()
            self.first, self.second = normed(inmaps, outmaps, 1), normed(outmaps, outmaps, 3, stride)
            self.third = normed(outmaps, 4 * outmaps, 1)
            isSame = stride == 1 and inmaps == 4 * outmaps
            self.skip = nn.Identity() if isSame else normed(inmaps, 4 * outmaps, 1, stride)

        def forward(self, x):
            h = self.third(F.relu_(self.second(F.relu_(self.first(x)))))
            return F.relu_(h + self.skip(x))

    blocks, inmaps = [], widths[0]
    for stage, (outmaps, count) in enumerate(zip(widths, counts)):
        for i in range(count):
            blocks.append(Block(inmaps, outmaps, 2 if stage and i == 0 else 1))
            inmaps = 4 * outmaps
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inmaps, classes))


def jaxNet(net, x, widths, count, classes, projects):
    """Stages of blocks, mean, linear layer."""
    relu, inmaps = net.nn.relu, widths[0]
    for stage, outmaps in enumerate(widths):
        for i in range(count):
            stride = 2 if stage and i == 0 else 1
            h = relu(net.batchnorm(net.conv(x, inmaps, outmaps, 3, stride, 1), outmaps))
            h = net.batchnorm(net.conv(h, outmaps, outmaps, 3, 1, 1), outmaps)
            if inmaps != outmaps and projects:
                x = net.batchnorm(net.conv(x, inmaps, outmaps, 1, stride), outmaps)
            elif inmaps != outmaps:
                before = (outmaps - inmaps) // 2
                sides = [(0, 0), (0, 0), (0, 0), (before, outmaps - inmaps - before)]
                x = net.jnp.pad(x[:, ::stride, ::stride], sides)
            x, inmaps = relu(h + x), outmaps
    return net.linear(x.mean((1, 2)), inmaps, classes)
