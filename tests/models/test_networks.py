"""MobileNet, U-Net, transformers, GPT, ViT and DLRM: published counts, shapes, a step that helps, files, and PyTorch's values."""

import inspect

import numpy as np
import pytest

from puregraph import load, models
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import Clip, Transpose
from puregraph.modules.costs import BCE, MSE, CrossEntropy
from puregraph.optimizers import Adam

NETWORKS = {  # parameters; input shapes; output shape
    "mobilenet": (3_504_872, [("N", 3, 224, 224)], ("N", 1000)),
    "unet": (31_030_658, [("N", 1, 128, 128)], ("N", 2, 128, 128)),
    "transformer": (4_739_072, [("N", "T", 256)], ("N", "T", 256)),
    "gpt": (10_844_160, [("N", "T")], ("N", "T", 256)),
    "gpt2": (124_439_808, [("N", "T")], ("N", "T", 50257)),
    "vit": (86_567_656, [("N", 3, 224, 224)], ("N", 1000)),
    "bert": (109_482_240, [("N", "T")] * 3, [("N", "T", 768), ("N", 768)]),
    "llama": (6_738_415_616, [("N", "T")], ("N", "T", 32000)),
    "t5": (60_506_624, [("N", "T"), ("N", "T"), ("N", "S")], ("N", "S", 32128)),
    "dlrm": (540_677_217, [("N", 13), ("N", 26)], ("N", 1)),
}
PARTS = {"multiHeadAttention", "transformerBlock"}


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_and_shapes_are_the_published_ones_and_no_data_is_made(name):
    count, shapes, wanted = NETWORKS[name]
    graph = getattr(models, name)()
    assert graph.name == name and graph.numOfParams() == count
    assert graph.dataShapeFrom(shapes) == wanted
    assert not any(p.made for p in (*graph.params.values(), *graph.states.values()) if p.kind != "constant")
    assert f"{count:,}" in inspect.getdoc(getattr(models, name))


@pytest.mark.parametrize(
    ("size", "count"), [("gpt2medium", 354_823_168), ("gpt2large", 774_030_080), ("gpt2xl", 1_557_611_200)]
)
def test_the_sizes_of_gpt2(size, count):
    graph = models.gpt2(size)
    assert graph.numOfParams() == count and graph.name == size
    assert graph.dataShapeFrom(("N", 1024)) == ("N", 1024, 50257)
    assert f"{count:,}" in inspect.getdoc(models.gpt2)


@pytest.mark.parametrize(("layers", "heads", "size", "count"), [(12, 6, 384, 22_050_664), (24, 16, 1024, 304_326_632)])
def test_vits_of_other_sizes(layers, heads, size, count):
    graph = models.vit(layers=layers, heads=heads, size=size)
    assert graph.numOfParams() == count and f"{count:,}" in inspect.getdoc(models.vit)
    assert graph.dataShapeFrom(("N", 3, 224, 224)) == ("N", 1000)


@pytest.mark.parametrize(("width", "count"), [(0.5, 1_968_680), (1.4, 6_108_776)])
def test_mobilenets_of_other_widths(width, count):
    assert models.mobilenet(width=width).numOfParams() == count


def test_operations_of_mobilenet_are_twice_the_published_multiply_adds():
    assert models.mobilenet().flopsFrom((1, 3, 224, 224)) / 2e9 == pytest.approx(0.300, rel=0.08)


def test_the_parts_of_a_transformer():
    block = models.transformerBlock()
    assert block.numOfParams() == 12 * 256**2 + 13 * 256 == 789_760
    assert "789,760" in inspect.getdoc(models.transformerBlock)
    part = models.multiHeadAttention(8, 2)
    assert part.numOfParams() == 4 * 8 * 9 and part.dataShapeFrom(("N", "T", 8)) == ("N", "T", 8)
    assert models.multiHeadAttention(8, 2, useBias=False).numOfParams() == 4 * 64
    cross = models.multiHeadAttention(8, 2, cross=True, masked=True)
    assert cross.arguments == ("x", "memory", "mask") and cross.numOfParams() == 4 * 8 * 9
    assert cross.dataShapeFrom([("N", "T", 8), ("N", "S", 8), ("N", 1, 1, "S")]) == ("N", "T", 8)


def test_names_are_stable():
    assert list(models.transformerBlock(8, 2).params) == [
        *("norm1.scale", "norm1.bias", "attn.qkv.W", "attn.qkv.b", "attn.out.W", "attn.out.b"),
        *("norm2.scale", "norm2.bias", "mlp.fc1.W", "mlp.fc1.b", "mlp.fc2.W", "mlp.fc2.b"),
    ]
    gpt = models.gpt(layers=1)
    assert list(gpt.params)[:2] == ["words.W", "places.W"] and gpt.ties == {"scores.W": "words.W"}
    names = list(models.mobilenet().params)
    assert names[:3] == ["conv.W", "norm.scale", "norm.bias"] and "block17.path.conv3.W" in names
    assert names[-2:] == ["fc.W", "fc.b"] and "block1.path.conv1.W" not in names
    names = list(models.unet().params)
    assert names[0] == "down0.conv1.W" and "grow3.W" in names and "up0.conv2.b" in names and names[-1] == "scores.b"
    names = list(models.dlrm().params)
    assert {"bottom.fc4.b", "table26.W", "top.fc1.W"} <= set(names)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="wanted heads that divide the size 8, got 3"):
        models.multiHeadAttention(8, 3)
    with pytest.raises(ValueError, match="gpt2: wanted a size of gpt2, gpt2medium, .*, got 'huge'"):
        models.gpt2("huge")
    with pytest.raises(ValueError, match="unet: wanted a depth of at least 1, got 0"):
        models.unet(depth=0)
    with pytest.raises(ValueError, match="dlrm: wanted the sizes of the tables, at least one"):
        models.dlrm(tables=())
    with pytest.raises(ValueError, match="vit: wanted patches that fill an image of 30, got 16"):
        models.vit(30)
    with pytest.raises(ValueError, match=r"at 'places' \(Position\): wanted at most 256 positions"):
        models.gpt().dataShapeFrom((2, 257))
    with pytest.raises(ValueError, match=r"at 'join\d' \(Concat\)"):
        models.unet().dataShapeFrom((2, 1, 100, 100))


# A step, and files ----------------------------------------------------------------------------------------------------


def images(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def tinyGpt(**options):
    net = models.gpt(11, 8, 2, 2, 16, **options)
    x = Input(name="text").node()
    return Graph(x, Transpose((0, 2, 1), name="turn")(net.node(x)))


TINY = {
    "mobilenet": (
        lambda: models.mobilenet(classes=4, width=0.25, dropout=0.0),
        lambda rng: [images(rng, 4, 3, 64, 64)],
        lambda rng: rng.integers(0, 4, 4),
        CrossEntropy,
    ),
    "unet": (
        lambda: models.unet(maps=4, depth=2),
        lambda rng: [images(rng, 2, 1, 16, 12)],
        lambda rng: rng.integers(0, 2, (2, 16, 12)),
        CrossEntropy,
    ),
    "unet with norm": (
        lambda: models.unet(2, 3, maps=4, depth=1, norm=True),
        lambda rng: [images(rng, 2, 2, 8, 8)],
        lambda rng: rng.integers(0, 3, (2, 8, 8)),
        CrossEntropy,
    ),
    "transformer": (
        lambda: models.transformer(2, 8, 2),
        lambda rng: [images(rng, 3, 5, 8)],
        lambda rng: images(rng, 3, 5, 8),
        MSE,
    ),
    "gpt": (tinyGpt, lambda rng: [rng.integers(0, 11, (3, 7))], lambda rng: rng.integers(0, 11, (3, 7)), CrossEntropy),
    "gpt with dropout": (
        lambda: tinyGpt(dropout=0.1),
        lambda rng: [rng.integers(0, 11, (3, 7))],
        lambda rng: rng.integers(0, 11, (3, 7)),
        CrossEntropy,
    ),
    "vit": (
        lambda: models.vit(8, 4, 2, 2, 12, 5, 2),
        lambda rng: [images(rng, 3, 2, 8, 8)],
        lambda rng: rng.integers(0, 5, 3),
        CrossEntropy,
    ),
    "dlrm": (
        lambda: models.dlrm(3, (5, 7, 2), 4, (8,), (8,)),
        lambda rng: [images(rng, 6, 3), rng.integers(0, 2, (6, 3))],
        lambda rng: rng.integers(0, 2, (6, 1)).astype(np.float32),
        BCE,
    ),
}


@pytest.mark.parametrize("name", TINY)
def test_steps_lower_the_cost_and_reach_every_parameter(name, rng):
    make, data, target, cost = TINY[name]
    net, inputs, wanted, cost = make(), data(rng), target(rng), cost()
    assert net(inputs).shape == net.dataShapeFrom([x.shape for x in inputs])
    optimizer = Adam(1e-3).setupOn(net)
    found = []
    for _ in range(8):
        found.append(float(cost(net(inputs), wanted)))
        cost.backward()
        net.backward(cost.grad[0] if isinstance(cost.grad, list) else cost.grad, updGrad=False)
        assert all(p.grad is not None and np.isfinite(p.grad).all() for p in net.params.values())
        optimizer.update()
    missed = [path for path, p in net.params.items() if not p.grad.any() and not path.endswith("attn.qkv.b")]
    assert not missed and min(found[1:3]) < found[0] and found[-1] < found[0]


@pytest.mark.parametrize("name", TINY)
def test_a_file_brings_it_back(name, rng, tmp_path):
    make, data, *_ = TINY[name]
    net, inputs = make().evalMode(), data(rng)
    y = net(inputs)
    net.save(tmp_path / "net.h5")
    again = load(tmp_path / "net.h5").evalMode()
    assert again.ties == net.ties and np.array_equal(again(inputs), y)
    other = make().evalMode()
    other.load(tmp_path / "net.h5")
    assert np.array_equal(other(inputs), y)


def test_a_gpt_does_not_see_what_is_to_come(rng):
    net = models.gpt(11, 8, 2, 2, 16)
    a = rng.integers(0, 11, (1, 8))
    b = a.copy()
    b[0, 5:] = (b[0, 5:] + 1) % 11
    y, z = net(a).copy(), net(b)
    assert np.allclose(y[:, :5], z[:, :5], atol=1e-6) and not np.allclose(y[:, 5:], z[:, 5:], atol=1e-3)
    assert np.allclose(net(a[:, :3]), y[:, :3], atol=1e-6)


def test_blocks_of_gpt_start_with_smaller_steps_the_more_there_are():
    shallow, deep = (models.gpt(layers=n, size=96)["block1"]["mlp.fc2"].W for n in (1, 16))
    assert shallow.data.std() == pytest.approx(0.02 / np.sqrt(2), rel=0.05)
    assert deep.data.std() == pytest.approx(0.02 / np.sqrt(32), rel=0.05)


def test_texts_are_read_alike_compiled_and_eagerly(rng):
    ids, mask = rng.integers(0, 31, (3, 7)), np.ones((3, 7), np.int64)
    mask[1, 4:] = 0
    nets = [
        (models.bert(31, 17, 2, 3, 24, 40), (ids, mask, ids % 2)),
        (models.llama(31, 2, 4, 24, 40, 2), (ids,)),
        (models.t5(31, 2, 3, 24, 40, 5), (ids, mask, ids[:, :5])),
    ]
    for net, inputs in nets:
        net.evalMode()
        y, z = net(*inputs), net.compile([x.shape for x in inputs]).run(*inputs)
        for eager, compiled in zip(*((v if isinstance(v, (list, tuple)) else [v]) for v in (y, z)), strict=True):
            assert np.allclose(eager, compiled, atol=1e-5)


def test_llama_wants_heads_that_fit():
    with pytest.raises(ValueError, match="llama: wanted heads that divide the size 24 into even parts"):
        models.llama(size=24, heads=8)
    with pytest.raises(ValueError, match="groups that divide the heads, got 4 heads, 3 groups"):
        models.llama(size=64, heads=4, groups=3)


# Against PyTorch ------------------------------------------------------------------------------------------------------


def asTheirs(path, array):
    """A weight of a Linear is the other way round there, a table of words is not."""
    return array.T if array.ndim == 2 and not path.startswith(("words", "places", "token", "where")) else array


def share(net, theirs, rng):
    """Random parameters, the same on both sides; theirs in the order of ours."""
    for (path, p), t in zip(net.params.items(), theirs, strict=True):
        p.data = rng.standard_normal(p.shape) * 0.3 + path.endswith("scale")
        values = asTheirs(path, p.data)
        assert tuple(t.shape) == values.shape, path
        t.data = t.data.new_tensor(values.copy())


def gradientsAgree(net, theirs, tolerance=1e-11):
    for (path, p), t in zip(net.params.items(), theirs, strict=True):
        close(asTheirs(path, p.grad), t.grad.numpy(), path, tolerance)


def close(ours, theirs, what, tolerance=1e-11):
    assert ours.shape == theirs.shape, what
    assert np.abs(ours - theirs).max() <= tolerance * max(1, np.abs(theirs).max()), what


@pytest.mark.peers
@pytest.mark.parametrize("causal", [False, True])
def test_a_block_is_that_of_torch(causal, rng):
    import torch

    net = models.transformerBlock(12, 3, inner=20, causal=causal).calcMode("float64")
    peer = torch.nn.TransformerEncoderLayer(12, 3, 20, 0.0, "gelu", batch_first=True, norm_first=True).double()
    a = peer.self_attn
    theirs = [
        *(peer.norm1.weight, peer.norm1.bias, a.in_proj_weight, a.in_proj_bias, a.out_proj.weight, a.out_proj.bias),
        *(peer.norm2.weight, peer.norm2.bias, peer.linear1.weight, peer.linear1.bias),
        *(peer.linear2.weight, peer.linear2.bias),
    ]
    share(net, theirs, rng)
    x, g = rng.standard_normal((2, 7, 12)), rng.standard_normal((2, 7, 12))
    t = torch.tensor(x, requires_grad=True)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64) if causal else None
    y = peer(t, src_mask=mask, is_causal=causal)
    close(net(x), y.detach().numpy(), "output")
    net.backward(g)
    y.backward(torch.tensor(g))
    close(net.grad, t.grad.numpy(), "input")
    gradientsAgree(net, theirs)


@pytest.mark.peers
def test_cross_attention_with_a_mask_is_that_of_torch(rng):
    import torch

    net = models.multiHeadAttention(12, 3, cross=True, masked=True).calcMode("float64")
    peer = torch.nn.MultiheadAttention(12, 3, batch_first=True).double()
    values = {path: rng.standard_normal(p.shape) for path, p in net.params.items()}
    for path, p in net.params.items():
        p.data = values[path]
    state = {
        "in_proj_weight": np.concatenate([values["q.W"], values["kv.W"]], axis=1).T,
        "in_proj_bias": np.concatenate([values["q.b"], values["kv.b"]]),
        "out_proj.weight": values["out.W"].T,
        "out_proj.bias": values["out.b"],
    }
    peer.load_state_dict({name: torch.tensor(v) for name, v in state.items()})
    x, memory, g = rng.standard_normal((2, 4, 12)), rng.standard_normal((2, 6, 12)), rng.standard_normal((2, 4, 12))
    seen = rng.random((2, 6)) < 0.7
    seen[:, 0] = True
    a, b = torch.tensor(x, requires_grad=True), torch.tensor(memory, requires_grad=True)
    y, _ = peer(a, b, b, key_padding_mask=torch.tensor(~seen))
    close(net([x, memory, seen[:, None, None]]), y.detach().numpy(), "output")
    net.backward(g)
    y.backward(torch.tensor(g))
    close(net.grad[0], a.grad.numpy(), "x")
    close(net.grad[1], b.grad.numpy(), "memory")
    wanted = peer.in_proj_weight.grad.numpy().T
    close(net.params["q.W"].grad, wanted[:, :12], "q")
    close(net.params["kv.W"].grad, wanted[:, 12:], "kv")


@pytest.mark.peers
@pytest.mark.parametrize("groups", [1, 2, None])
def test_attention_of_rotated_heads_in_groups_is_that_of_torch(groups, rng):
    import torch

    net = models.multiHeadAttention(24, 4, causal=True, groups=groups, rotary=50.0, window=3, cap=1.5)
    net.calcMode("float64")
    weights = {path: torch.tensor(rng.standard_normal(p.shape), requires_grad=True) for path, p in net.params.items()}
    for path, p in net.params.items():
        p.data = weights[path].detach().numpy()
    x, g, count = rng.standard_normal((2, 7, 24)), rng.standard_normal((2, 7, 24)), groups or 4
    t = torch.tensor(x, requires_grad=True)
    parts = torch.split(t @ weights["qkv.W"] + weights["qkv.b"], (24, 6 * count, 6 * count), -1)
    q, k, v = (part.view(2, 7, -1, 6).transpose(1, 2) for part in parts)
    angles = torch.outer(torch.arange(7.0, dtype=torch.float64), 50.0 ** (-torch.arange(0, 6, 2).double() / 6)).repeat(
        1, 2
    )
    turn = [h * angles.cos() + torch.cat([-h[..., 3:], h[..., :3]], -1) * angles.sin() for h in (q, k)]
    q, k, v = turn[0], *(h.repeat_interleave(4 // count, 1) for h in (turn[1], v))
    scores = 1.5 * torch.tanh(q @ k.mT / 6**0.5 / 1.5)
    seen = torch.ones(7, 7).tril().triu(-2) > 0
    y = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1) @ v
    y = y.transpose(1, 2).reshape(2, 7, 24) @ weights["out.W"] + weights["out.b"]
    y.backward(torch.tensor(g))
    close(net(x), y.detach().numpy(), "output")
    net.backward(g)
    close(net.grad, t.grad.numpy(), "input")
    for path, p in net.params.items():
        close(p.grad, weights[path].grad.numpy(), path)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"groups": 3}, "groups that divide the 4 heads, got 3"), ({"rotary": 10.0, "cross": True}, "got cross=True")],
)
def test_attention_of_groups_or_rotations_that_do_not_fit_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        models.multiHeadAttention(24, 4, **options)


@pytest.mark.peers
def test_a_gpt_is_that_of_torch(rng):
    import torch
    from torch import nn

    net = models.gpt(11, 8, 2, 3, 12).calcMode("float64")

    class Peer(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(11, 12), nn.Embedding(8, 12)
            activation = lambda x: nn.functional.gelu(x, approximate="tanh")  # noqa: E731
            self.blocks = nn.ModuleList(
                nn.TransformerEncoderLayer(12, 3, 48, 0.0, activation, batch_first=True, norm_first=True)
                for _ in range(2)
            )
            self.norm = nn.LayerNorm(12)

        def forward(self, x):
            h = self.words(x) + self.places(torch.arange(x.shape[1]))
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=torch.float64)
            for block in self.blocks:
                h = block(h, src_mask=mask, is_causal=True)
            return self.norm(h) @ self.words.weight.T

        def inOurOrder(self):
            yield from (self.words.weight, self.places.weight)
            for b in self.blocks:
                a = b.self_attn
                yield from (b.norm1.weight, b.norm1.bias, a.in_proj_weight, a.in_proj_bias, a.out_proj.weight)
                yield from (a.out_proj.bias, b.norm2.weight, b.norm2.bias, b.linear1.weight, b.linear1.bias)
                yield from (b.linear2.weight, b.linear2.bias)
            yield from (self.norm.weight, self.norm.bias)

    peer = Peer().double()
    theirs = list(peer.inOurOrder())
    share(net, theirs, rng)
    x, g = rng.integers(0, 11, (2, 6)), rng.standard_normal((2, 6, 11))
    y = peer(torch.tensor(x))
    close(net(x), y.detach().numpy(), "output")
    net.backward(g)
    y.backward(torch.tensor(g))
    gradientsAgree(net, theirs, 1e-10)


@pytest.mark.peers
@pytest.mark.parametrize(("inmaps", "outmaps", "stride", "expansion"), [(4, 4, 1, 3), (4, 6, 2, 2), (4, 4, 1, 1)])
def test_a_block_of_mobilenet_is_that_of_torch(inmaps, outmaps, stride, expansion, rng):
    import torch
    from torch import nn

    from puregraph.models.mobilenet import inverted

    inner = inmaps * expansion
    wide = [nn.Conv2d(inmaps, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6()] if expansion > 1 else []
    peer = nn.Sequential(
        *wide,
        *(nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.ReLU6()),
        *(nn.Conv2d(inner, outmaps, 1, bias=False), nn.BatchNorm2d(outmaps)),
    ).double()
    net = inverted(inmaps, outmaps, stride, expansion, "block").calcMode("float64")
    share(net, list(peer.parameters()), rng)
    x = rng.standard_normal((3, inmaps, 6, 5))
    t = torch.tensor(x, requires_grad=True)
    y = peer(t) + t if stride == 1 and inmaps == outmaps else peer(t)
    close(net(x), y.detach().numpy(), "output")
    g = rng.standard_normal(y.shape)
    net.backward(g)
    y.backward(torch.tensor(g))
    close(net.grad, t.grad.numpy(), "input", 1e-10)
    gradientsAgree(net, list(peer.parameters()), 1e-10)
    assert sum(isinstance(m, Clip) for m in net.modules().values()) == (2 if expansion > 1 else 1)


@pytest.mark.peers
def test_a_unet_is_that_of_torch(rng):
    import torch
    from torch.nn import functional as F

    net = models.unet(2, 3, maps=3, depth=1).calcMode("float64")
    for p in net.params.values():
        p.data = rng.standard_normal(p.shape) * 0.3
    w = {path: torch.tensor(p.data, requires_grad=True) for path, p in net.params.items()}

    def double(x, name):
        for i in (1, 2):
            x = F.relu(F.conv2d(x, w[f"{name}.conv{i}.W"], w[f"{name}.conv{i}.b"], padding=1))
        return x

    x, g = rng.standard_normal((2, 2, 6, 4)), rng.standard_normal((2, 3, 6, 4))
    skip = double(torch.tensor(x), "down0")
    h = double(F.max_pool2d(skip, 2), "down1")
    h = double(torch.cat([skip, F.conv_transpose2d(h, w["grow0.W"], w["grow0.b"], stride=2)], 1), "up0")
    y = F.conv2d(h, w["scores.W"], w["scores.b"])
    close(net(x), y.detach().numpy(), "output")
    net.backward(g)
    y.backward(torch.tensor(g))
    for path, p in net.params.items():
        close(p.grad, w[path].grad.numpy(), path)


@pytest.mark.peers
def test_a_vit_is_that_of_torch(rng):
    import torch

    net = models.vit(8, 4, 2, 3, 12, 5, 2, epsilon=1e-5).calcMode("float64")
    layer = torch.nn.TransformerEncoderLayer(12, 3, 48, 0.0, "gelu", batch_first=True, norm_first=True).double()
    peer = torch.nn.TransformerEncoder(layer, 2, torch.nn.LayerNorm(12).double(), enable_nested_tensor=False)
    patches, head = torch.nn.Conv2d(2, 12, 4, 4).double(), torch.nn.Linear(12, 5).double()
    token, where = (torch.nn.Parameter(torch.zeros(n, 12).double()) for n in (1, 5))
    theirs = [*patches.parameters(), token, where]
    for each in peer.layers:
        a = each.self_attn
        theirs += [each.norm1.weight, each.norm1.bias, a.in_proj_weight, a.in_proj_bias, a.out_proj.weight]
        theirs += [a.out_proj.bias, each.norm2.weight, each.norm2.bias, each.linear1.weight, each.linear1.bias]
        theirs += [each.linear2.weight, each.linear2.bias]
    theirs += [*peer.norm.parameters(), *head.parameters()]
    share(net, theirs, rng)
    x, g = rng.standard_normal((3, 2, 8, 8)), rng.standard_normal((3, 5))
    t = torch.tensor(x, requires_grad=True)
    h = patches(t).flatten(2).transpose(1, 2)
    y = head(peer(torch.cat([token.expand(3, 1, 12), h], 1) + where)[:, 0])
    close(net(x), y.detach().numpy(), "output")
    net.backward(g)
    y.backward(torch.tensor(g))
    close(net.grad, t.grad.numpy(), "input")
    gradientsAgree(net, theirs)


@pytest.mark.peers
def test_a_dlrm_is_that_of_torch(rng):
    import torch

    net = models.dlrm(3, (5, 7, 2), 4, (6,), (8,)).calcMode("float64")
    w = {path: torch.tensor(p.data, requires_grad=True) for path, p in net.params.items()}
    x, c, g = rng.standard_normal((6, 3)), rng.integers(0, 2, (6, 3)), rng.standard_normal((6, 1))
    h = torch.tensor(x)
    for i in (1, 2):
        h = torch.relu(h @ w[f"bottom.fc{i}.W"] + w[f"bottom.fc{i}.b"])
    rows = torch.stack([h, *(w[f"table{i + 1}.W"][torch.tensor(c[:, i])] for i in range(3))], 1)
    li, lj = torch.tril_indices(4, 4, -1)
    z = torch.cat([h, (rows @ rows.transpose(1, 2))[:, li, lj]], 1)
    y = torch.relu(z @ w["top.fc1.W"] + w["top.fc1.b"]) @ w["top.fc2.W"] + w["top.fc2.b"]
    close(net([x, c]), y.detach().numpy(), "output")
    net.backward(g)
    y.backward(torch.tensor(g))
    for path, p in net.params.items():
        close(p.grad, w[path].grad.numpy(), path)
