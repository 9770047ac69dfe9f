"""What ResNet-20 and ResNet-18 share: their blocks."""


def torchNet(torch, stem, widths, count, classes, projects):
    """Stem, stages of blocks, mean, linear layer."""
    nn = torch.nn
    Block = blockFor(torch, projects)
    blocks, inmaps = [], widths[0]
    for stage, maps in enumerate(widths):
        for i in range(count):
            blocks.append(Block(inmaps, maps, 2 if stage and i == 0 else 1))
            inmaps = maps
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inmaps, classes))


def blockFor(torch, projects):
    """The class of a block: shortcuts of another shape are convolutions, or zeros added to every other pixel."""
    nn = torch.nn
    F = nn.functional

    class Block(nn.Module):
        def __init__(self, inmaps, maps, stride):
            super().__init__()
            self.stride, self.spread = stride, maps - inmaps
            self.conv1 = nn.Conv2d(inmaps, maps, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(maps)
            self.relu1 = nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(maps, maps, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(maps)
            self.skip = nn.Identity()
            if projects and (stride > 1 or inmaps != maps):
                self.skip = nn.Sequential(nn.Conv2d(inmaps, maps, 1, stride, bias=False), nn.BatchNorm2d(maps))

        def forward(self, x):
            h = self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(x)))))
            x = self.skip(x)
            if self.stride > 1 and not projects:
                before = self.spread // 2
                x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.spread - before))
            return F.relu_(h + x)

    return Block


def jaxNet(net, x, widths, count, classes, projects):
    """Stages of blocks, mean, linear layer."""
    relu, inmaps = net.nn.relu, widths[0]
    for stage, maps in enumerate(widths):
        for i in range(count):
            stride = 2 if stage and i == 0 else 1
            h = relu(net.batchnorm(net.conv(x, inmaps, maps, 3, stride, 1), maps))
            h = net.batchnorm(net.conv(h, maps, maps, 3, 1, 1), maps)
            if inmaps != maps and projects:
                x = net.batchnorm(net.conv(x, inmaps, maps, 1, stride), maps)
            elif inmaps != maps:
                before = (maps - inmaps) // 2
                sides = [(0, 0), (0, 0), (0, 0), (before, maps - inmaps - before)]
                x = net.jnp.pad(x[:, ::stride, ::stride], sides)
            x, inmaps = relu(h + x), maps
    return net.linear(x.mean((1, 2)), inmaps, classes)
