"""Known networks: published parameter counts and shapes, names, a step on tiny inputs, equality with PyTorch."""

import inspect

import numpy as np
import pytest
from test_networks import NETWORKS, PARTS

from puregraph import models
from puregraph.graph import Graph
from puregraph.modules import Dropout

IMAGE = ("N", 3, 224, 224)
CIFAR = ("N", 3, 32, 32)
PUBLISHED = {
    "lenet": (61_706, ("N", 1, 28, 28), 10),
    "lstm": (819_722, ("N", "T", 28), 10),
    "mlp": (669_706, ("N", 784), 10),
    "resnet18": (11_689_512, IMAGE, 1000),
    "resnet34": (21_797_672, IMAGE, 1000),
    "resnet50": (25_557_032, IMAGE, 1000),
    "resnet101": (44_549_160, IMAGE, 1000),
    "resnet152": (60_192_808, IMAGE, 1000),
    "resnet20": (269_722, CIFAR, 10),
    "resnet32": (464_154, CIFAR, 10),
    "resnet44": (658_586, CIFAR, 10),
    "resnet56": (853_018, CIFAR, 10),
    "resnet110": (1_727_962, CIFAR, 10),
    "vgg11": (132_863_336, IMAGE, 1000),
    "vgg13": (133_047_848, IMAGE, 1000),
    "vgg16": (138_357_544, IMAGE, 1000),
    "vgg19": (143_667_240, IMAGE, 1000),
}
WITHNORM = {"vgg11": 132_868_840, "vgg13": 133_053_736, "vgg16": 138_365_992, "vgg19": 143_678_248}
GFLOPS = {
    "resnet18": 1.81,
    "resnet50": 4.09,
    "resnet152": 11.51,
    "vgg11": 7.61,
    "vgg16": 15.47,
}  # multiply-adds, torchvision
TINY = [
    ("lenet", {}, (2, 1, 28, 28)),
    ("lenet", {"size": 8, "norm": True, "dropout": 0.25, "maps": (4, 8)}, (2, 1, 8, 8)),
    ("mlp", {"insize": 12, "hidden": (5, 4), "dropout": 0.5}, (3, 3, 2, 2)),
    ("resnet20", {}, (2, 3, 32, 32)),
    ("resnet18", {"classes": 5}, (2, 3, 32, 32)),
    ("resnet50", {"classes": 5}, (2, 3, 32, 32)),
    ("vgg11", {"classes": 5, "size": 32}, (2, 3, 32, 32)),
    ("lstm", {"insize": 3, "hsize": 4, "classes": 5}, (2, 6, 3)),
    ("lstm", {"insize": 3, "hsize": 4, "layers": 3, "direction": "bi", "dropout": 0.2}, (2, 6, 3)),
]


# Counts, shapes, names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_shapes_are_the_published_ones_and_no_data_is_made(name):
    count, shape, classes = PUBLISHED[name]
    graph = getattr(models, name)()
    assert isinstance(graph, Graph)
    assert graph.name == name
    assert graph.numOfParams() == count
    assert graph.dataShapeFrom(shape) == ("N", classes)
    assert not any(p.made for p in (*graph.params.values(), *graph.states.values()))


@pytest.mark.parametrize("name", WITHNORM)
def test_vgg_with_normalisation(name):
    graph = getattr(models, name)(norm=True)
    assert graph.numOfParams() == WITHNORM[name]
    assert graph.dataShapeFrom(IMAGE) == ("N", 1000)


@pytest.mark.parametrize("name", GFLOPS)
def test_operations_are_twice_the_published_multiply_adds(name):
    flops = getattr(models, name)().flopsFrom((1, 3, 224, 224))
    assert flops / 2e9 == pytest.approx(GFLOPS[name], rel=0.02)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_docstring_has_the_count(name):
    assert f"{PUBLISHED[name][0]:,}" in inspect.getdoc(getattr(models, name))


def test_every_function_is_tested():
    assert set(models.__all__) == {*PUBLISHED, "resnet", "cifarResnet", "vgg", *NETWORKS, *PARTS}


def test_names_are_stable():
    assert list(models.lenet().params) == [f"{n}.{p}" for n in ("conv1", "conv2", "fc1", "fc2", "fc3") for p in "Wb"]
    names = list(models.resnet18().params)
    assert names[:3] == ["conv.W", "norm.scale", "norm.bias"]
    assert "stage2.block1.convskip.W" in names
    assert "stage2.block2.convskip.W" not in names
    assert names[-2:] == ["fc.W", "fc.b"]
    assert list(models.vgg11().params)[-4:] == ["head.fc2.W", "head.fc2.b", "head.fc3.W", "head.fc3.b"]
    assert list(models.lstm(layers=1).params) == ["lstm1.W", "lstm1.U", "lstm1.b", "out.W", "out.b"]
    assert list(models.mlp(hidden=(3,)).params) == ["fc1.W", "fc1.b", "out.W", "out.b"]
    assert "stage3.block3.norm2.mean" in models.resnet20().states
    assert "stage1.block1.convskip.W" in models.resnet50().params


def test_options():
    assert models.lenet(inmaps=3, size=32, classes=7, dropout=0.5).dataShapeFrom((4, 3, 32, 32)) == (4, 7)
    assert models.lenet(size=8).dataShapeFrom((4, 1, 8, 8)) == (4, 10)
    assert models.vgg16(size=64, classes=3).dataShapeFrom((4, 3, 64, 64)) == (4, 3)
    assert models.resnet50(inmaps=1, classes=3, name="mine").dataShapeFrom((4, 1, 64, 64)) == (4, 3)
    assert models.lstm(5, 3, layers=1, direction="bi", classes=7).dataShapeFrom(("N", "T", 5)) == ("N", 7)
    assert models.cifarResnet(8).dataShapeFrom(CIFAR) == ("N", 10)


def test_images_of_another_size_are_refused_with_the_node():
    with pytest.raises(ValueError, match=r"at 'fc1' \(Linear\): wanted \(\.\.\., 400\), got \(5, 576\)"):
        models.lenet().dataShapeFrom((5, 1, 32, 32))


def test_unknown_depths_are_refused():
    with pytest.raises(ValueError, match="resnet: wanted a depth of 18, 34, 50, 101, 152, got 19"):
        models.resnet(19)
    with pytest.raises(ValueError, match=r"cifarResnet: wanted a depth of 6 n \+ 2, .*, got 21"):
        models.cifarResnet(21)
    with pytest.raises(ValueError, match="vgg: wanted a depth of 11, 13, 16, 19, got 12"):
        models.vgg(12)
    with pytest.raises(ValueError, match="resnet: wanted a depth of .*, got '18'"):
        models.resnet("18")
    with pytest.raises(ValueError, match="lenet: wanted a size of at least 4, got 3"):
        models.lenet(size=3)
    with pytest.raises(ValueError, match="vgg: wanted a size of at least 32, got 31"):
        models.vgg(11, size=31)
    with pytest.raises(ValueError, match="lstm: wanted at least one layer, got 0"):
        models.lstm(layers=0)
    with pytest.raises(ValueError, match=r"mlp: wanted the sizes of the hidden layers in a tuple, as in \(64,\)"):
        models.mlp(hidden=64)


def test_the_smallest_images_fit():
    assert models.lenet(size=4).dataShapeFrom([("N", 1, 4, 4)]) == ("N", 10)
    assert models.vgg(11, inmaps=1, classes=5, size=32).dataShapeFrom([("N", 1, 32, 32)]) == ("N", 5)


# A step ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, options, shape", TINY)
def test_a_step_on_tiny_inputs(name, options, shape, rng):
    graph = getattr(models, name)(**options)
    y = graph(rng.standard_normal(shape).astype("float32"))
    assert y.shape == graph.dataShapeFrom(shape)
    graph.backward(np.ones_like(y), updGrad=False)
    for path, p in graph.params.items():
        assert p.grad.shape == p.shape, path
        assert np.isfinite(p.grad).all(), path
        assert p.grad.any(), path


# Against PyTorch ------------------------------------------------------------------------------------------------------


def torchLenet(nn):
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def torchVgg11(nn):
    layers, inmaps = [], 3
    for maps in (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"):
        if maps == "pool":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(inmaps, maps, 3, padding=1), nn.ReLU()]
            inmaps = maps
    head = [nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 5)]
    return nn.Sequential(*layers, nn.Flatten(), *head)


def torchBlock(nn, inmaps, maps, stride, hasProjection):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(inmaps, maps, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(maps)
            self.conv2 = nn.Conv2d(maps, maps, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(maps)
            if hasProjection and stride > 1:
                self.skip = nn.Sequential(nn.Conv2d(inmaps, maps, 1, stride, bias=False), nn.BatchNorm2d(maps))

        def forward(self, x):
            h = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
            if stride > 1 and hasProjection:
                x = self.skip(x)
            elif stride > 1:
                spread = (maps - inmaps) // 2
                x = nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, spread, maps - inmaps - spread))
            return (h + x).relu()

    return Block()


def torchResnet(nn, stem, widths, count, classes, hasProjection):
    blocks, inmaps = [], widths[0]
    for stage, maps in enumerate(widths):
        for i in range(count):
            blocks.append(torchBlock(nn, inmaps, maps, 2 if stage and i == 0 else 1, hasProjection))
            inmaps = maps
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inmaps, classes))


def torchResnet18(nn):
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return torchResnet(nn, stem, (64, 128, 256, 512), 2, 5, True)


def torchResnet20(nn):
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return torchResnet(nn, stem, (16, 32, 64), 3, 10, False)


PEERS = [
    ("lenet", {}, (3, 1, 28, 28), torchLenet),
    pytest.param(
        "vgg11", {"classes": 5, "size": 32, "dropout": 0.0}, (2, 3, 32, 32), torchVgg11, marks=pytest.mark.slow
    ),
    ("resnet18", {"classes": 5}, (3, 3, 40, 40), torchResnet18),
    ("resnet20", {}, (2, 3, 16, 16), torchResnet20),
]


@pytest.mark.peers
@pytest.mark.parametrize("name, options, shape, peer", PEERS)
def test_values_and_all_gradients_are_those_of_torch(name, options, shape, peer, rng):
    import torch

    graph = getattr(models, name)(**options).calcMode("float64")
    net = peer(torch.nn).double()
    pairs = list(zip(graph.params.items(), net.parameters(), strict=True))
    for (path, p), theirs in pairs:
        values = rng.standard_normal(p.shape) * 0.5 if path.endswith(("scale", "bias", ".b")) else p.data
        p.data = values + (path.endswith("scale"))
        ours = p.data.T if theirs.ndim == 2 else p.data
        assert theirs.shape == ours.shape, path
        theirs.data = torch.from_numpy(ours.copy())
    x = rng.standard_normal(shape)
    y, theirX = graph(x), torch.from_numpy(x).requires_grad_()
    theirY = net(theirX)
    close(y, theirY.detach().numpy(), "output")
    grad = rng.standard_normal(y.shape)
    graph.backward(grad)
    theirY.backward(torch.from_numpy(grad))
    close(graph.grad, theirX.grad.numpy(), "input")
    for (path, p), theirs in pairs:
        close(p.grad.T if theirs.ndim == 2 else p.grad, theirs.grad.numpy(), path)
    buffers = [b for n, b in net.named_buffers() if not n.endswith("num_batches_tracked")]
    states = [s for n, s in graph.states.items() if n.endswith((".mean", ".var"))]
    for ours, theirs in zip(states, buffers, strict=True):
        close(ours.data, theirs.numpy(), "running statistics")


def close(ours, theirs, what):
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10 * max(1, abs(theirs).max()), err_msg=what)


def test_dropout_is_where_the_paper_has_it():
    assert [p for p, m in models.vgg11().modules().items() if isinstance(m, Dropout)] == [
        "head.dropout",
        "head.dropout2",
    ]
    assert not any(isinstance(m, Dropout) for m in models.lenet().modules().values())
