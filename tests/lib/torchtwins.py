"""Twins of torchvision's networks in torch.nn: modules with its names, structure and settings."""

import torch
from torch import nn


def randomized(module, seed=0):
    """The module in eval mode, with random weights, biases and running statistics that keep values near 1."""
    generator = torch.Generator().manual_seed(seed)
    for name, array in module.state_dict().items():
        if array.dtype == torch.int64:
            array += 3
        elif name.endswith("running_var"):
            array.copy_(0.5 + torch.rand(array.shape, generator=generator))
        elif array.ndim > 1:
            fan = array[0].numel()
            array.copy_(torch.randn(array.shape, generator=generator) * fan**-0.5)
        else:
            array.add_(0.1 * torch.randn(array.shape, generator=generator))
    return module.eval()


# Residual networks ----------------------------------------------------------------------------------------------------


class BasicBlock(nn.Module):
    """Two 3x3 convolutions."""

    expansion = 1

    def __init__(self, inmaps, maps, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inmaps, maps, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(maps)
        self.conv2 = nn.Conv2d(maps, maps, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(maps)
        self.downsample = shortcut(inmaps, maps, stride)

    def forward(self, x):
        h = torch.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        return torch.relu(h + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1, with the stride in the middle."""

    expansion = 4

    def __init__(self, inmaps, maps, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inmaps, maps, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(maps)
        self.conv2 = nn.Conv2d(maps, maps, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(maps)
        self.conv3 = nn.Conv2d(maps, 4 * maps, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * maps)
        self.downsample = shortcut(inmaps, 4 * maps, stride)

    def forward(self, x):
        h = torch.relu(self.bn1(self.conv1(x)))
        h = torch.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        return torch.relu(h + (x if self.downsample is None else self.downsample(x)))


def shortcut(inmaps, outmaps, stride):
    """A 1x1 convolution where shapes differ."""
    if stride == 1 and inmaps == outmaps:
        return None
    return nn.Sequential(nn.Conv2d(inmaps, outmaps, 1, stride, bias=False), nn.BatchNorm2d(outmaps))


class ResNet(nn.Module):
    """Four stages of blocks."""

    def __init__(self, block, counts, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inmaps = 64
        for stage, count in enumerate(counts):
            blocks = []
            for i in range(count):
                blocks.append(block(inmaps, 64 << stage, 2 if stage and not i else 1))
                inmaps = (64 << stage) * block.expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inmaps, classes)

    def forward(self, x):
        h = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            h = stage(h)
        return self.fc(h.mean((2, 3)))


# VGG and MobileNet ----------------------------------------------------------------------------------------------------


class Vgg(nn.Module):
    """`features` and `classifier`, for images of 32."""

    def __init__(self, counts, norm, classes):
        super().__init__()
        layers, inmaps = [], 3
        for count, maps in zip(counts, (64, 128, 256, 512, 512)):
            for _ in range(count):
                layers += [nn.Conv2d(inmaps, maps, 3, padding=1), *([nn.BatchNorm2d(maps)] if norm else []), nn.ReLU()]
                inmaps = maps
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(),
            nn.Linear(4096, classes),
        )  # fmt: skip

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def convNorm(inmaps, outmaps, size, stride, groups=1):
    """A convolution, its norm and ReLU6."""
    conv = nn.Conv2d(inmaps, outmaps, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outmaps), nn.ReLU6())


class Inverted(nn.Module):
    """An inverted residual block."""

    def __init__(self, inmaps, outmaps, stride, expansion):
        super().__init__()
        inner = inmaps * expansion
        layers = [convNorm(inmaps, inner, 1, 1)] if expansion > 1 else []
        layers += [convNorm(inner, inner, 3, stride, inner), nn.Conv2d(inner, outmaps, 1, bias=False)]
        self.conv = nn.Sequential(*layers, nn.BatchNorm2d(outmaps))
        self.isResidual = stride == 1 and inmaps == outmaps

    def forward(self, x):
        return x + self.conv(x) if self.isResidual else self.conv(x)


class MobileNet(nn.Module):
    """MobileNet v2 of width 1."""

    def __init__(self, classes):
        super().__init__()
        stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2)]
        layers, inmaps = [convNorm(3, 32, 3, 2)], 32
        for expansion, outmaps, count, stride in [*stages, (6, 320, 1, 1)]:
            for i in range(count):
                layers.append(Inverted(inmaps, outmaps, 1 if i else stride, expansion))
                inmaps = outmaps
        self.features = nn.Sequential(*layers, convNorm(320, 1280, 1, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


# The vision transformer -----------------------------------------------------------------------------------------------


class EncoderBlock(nn.Module):
    """Attention and a network, normalised first."""

    def __init__(self, heads, size, inner):
        super().__init__()
        self.ln_1 = nn.LayerNorm(size, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(size, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(size, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(size, inner), nn.GELU(), nn.Dropout(0.0), nn.Linear(inner, size), nn.Dropout(0.0)
        )

    def forward(self, x):
        h = self.ln_1(x)
        x = x + self.self_attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Position embeddings, blocks, a norm."""

    def __init__(self, tokens, layers, heads, size, inner):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.zeros(1, tokens, size))
        self.layers = nn.Sequential()
        for i in range(layers):
            self.layers.add_module(f"encoder_layer_{i}", EncoderBlock(heads, size, inner))
        self.ln = nn.LayerNorm(size, eps=1e-6)

    def forward(self, x):
        return self.ln(self.layers(x + self.pos_embedding))


class VisionTransformer(nn.Module):
    """Patches, a class token, an encoder, scores."""

    def __init__(self, image, patch, layers, heads, size, inner, classes):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, size, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, size))
        self.encoder = Encoder((image // patch) ** 2 + 1, layers, heads, size, inner)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(size, classes))

    def forward(self, x):
        h = self.conv_proj(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.class_token.expand(len(h), -1, -1), h], 1)
        return self.heads(self.encoder(h)[:, 0])
