"""Networks exported by PyTorch, in opsets 17 and 18, are read, give what it gives, and have its gradients.

Its newer exporter needs onnxscript.
"""

import copy
import io
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

from puregraph.modules import BatchNorm  # noqa: E402
from puregraph.modules.costs import PointwiseCost  # noqa: E402
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402
from puregraph.optimizers import SGD  # noqa: E402

pytestmark = pytest.mark.peers
nn = torch.nn


class First(nn.Module):
    """The first output of a layer that has several."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *xs):
        return self.layer(*xs)[0]


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(x)


def images(*layers):
    """A network on a picture of 8 x 8."""
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), *layers), [(2, 2, 8, 8)]


NETS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), [(5, 3)]),
    "norm": lambda: images(nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)),
    "groups": lambda: images(nn.GroupNorm(2, 4), nn.SiLU(), nn.AvgPool2d(3, 2, 1)),
    "instance": lambda: images(nn.InstanceNorm2d(4, affine=True), nn.LeakyReLU(0.2), nn.AdaptiveAvgPool2d(1)),
    "depthwise": lambda: images(nn.Conv2d(4, 4, 3, 2, 1, groups=4), nn.Hardswish(), nn.Softmax(1)),
    "transposed": lambda: images(nn.ConvTranspose2d(4, 3, 3, 2, 1, 1), nn.Sigmoid()),
    "dilated": lambda: images(nn.Conv2d(4, 4, 3, dilation=2), nn.ELU(), nn.PReLU(4)),
    "sequence": lambda: (nn.Sequential(nn.Conv1d(2, 4, 3), nn.Softplus(), nn.MaxPool1d(2)), [(2, 2, 9)]),
    "volume": lambda: (nn.Sequential(nn.Conv3d(1, 2, 2), nn.Softsign()), [(1, 1, 3, 4, 3)]),
    "rnn": lambda: (First(nn.RNN(3, 4, batch_first=True)), [(2, 5, 3)]),
    "lstm": lambda: (First(nn.LSTM(3, 4, bidirectional=True)), [(5, 2, 3)]),
    "deep lstm": lambda: (First(nn.LSTM(3, 4, num_layers=2, batch_first=True)), [(2, 5, 3)]),
    "gru": lambda: (First(nn.GRU(3, 4, batch_first=True)), [(2, 5, 3)]),
    "layer norm": lambda: (nn.Sequential(nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 2)), [(2, 3, 6)]),
    "attention": lambda: (First(nn.MultiheadAttention(8, 2, batch_first=True)), [(2, 3, 8)] * 3),
    "encoder": lambda: (Block(), [(2, 3, 8)]),
    "unflattened": lambda: (nn.Sequential(nn.Linear(6, 6), nn.Unflatten(1, (2, 3)), nn.Mish(), nn.CELU()), [(4, 6)]),
    "shuffle": lambda: images(nn.PixelShuffle(2), nn.Hardsigmoid()),
    "pads": lambda: images(nn.ReflectionPad2d(1), nn.ConstantPad2d(1, 0.5), nn.LogSoftmax(1)),
    "selu": lambda: (nn.Sequential(nn.Linear(4, 4), nn.SELU(), nn.Dropout(), nn.Softmin(1)), [(3, 4)]),
}


QUICK = ("norm", "lstm", "encoder")
SLOW = [pytest.param(n, o, marks=pytest.mark.slow) for n in NETS for o in (17, 18) if n not in QUICK or o == 18]


@pytest.mark.parametrize(("name", "opset"), [*((name, 17) for name in QUICK), *SLOW])
def test_a_network_exported_by_torch_gives_its_outputs_and_gradients(name, opset):
    check(name, {"dynamo": False, "opset_version": opset})


class Untrained(nn.Module):
    """Layers whose biases are zeros and whose scales are ones, one of them at two positions; the embedding is tied."""

    def __init__(self, isTied):
        super().__init__()
        self.word, self.back = nn.Embedding(7, 6), nn.Linear(6, 7, bias=False)
        self.back.weight = self.word.weight if isTied else self.back.weight
        self.shared, self.single = nn.Linear(6, 6), nn.Linear(6, 6)
        self.first, self.second = nn.BatchNorm1d(6), nn.BatchNorm1d(6)
        self.norms = nn.ModuleList([nn.LayerNorm(6), nn.LayerNorm(6)])
        for layer in (self.shared, self.single):
            nn.init.zeros_(layer.bias)

    def forward(self, ids):
        x = self.norms[1](self.single(self.norms[0](self.word(ids)))).transpose(1, 2)
        x = torch.tanh(self.second(torch.tanh(self.first(x)) * 3 + x)).transpose(1, 2)
        return self.back(torch.tanh(self.shared(torch.tanh(self.shared(x)))))


@pytest.mark.parametrize(
    ("exporter", "isFolded"),
    [("traced 17", True), ("traced 17", False), pytest.param("newer", True, marks=pytest.mark.slow)],
)
def test_weights_that_an_exporter_merged_because_they_were_equal_are_trained_one_by_one(exporter, isFolded):
    if exporter == "newer":
        pytest.importorskip("onnxscript")
    torch.manual_seed(1)
    net, ids = Untrained(isTied=not isFolded), torch.tensor([[0, 1, 2, 3], [4, 5, 6, 0], [1, 3, 5, 2]])
    options = TRAINED[exporter] | {"optimize" if exporter == "newer" else "do_constant_folding": isFolded}
    graph = fromOnnx(exported(net.eval(), [ids], options)).trainMode()
    optimizer, own = torch.optim.SGD(net.train().parameters(), 0.1), SGD(learnRate=0.1)
    own.setupOn(graph)
    for _ in range(3):
        y, gy = net(ids), torch.randn(3, 4, 7)
        optimizer.zero_grad()
        y.backward(gy)
        optimizer.step()
        np.testing.assert_allclose(graph(ids.numpy()), y.detach().numpy(), rtol=1e-4, atol=1e-5)
        graph.backward(gy.numpy())
        own.update()
    wanted = net.eval()(ids).detach().numpy()
    np.testing.assert_allclose(graph.evalMode()(ids.numpy()), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("isFirst", [True, False])
def test_an_attention_exported_with_an_open_batch_has_its_shapes_and_is_written_again(isFirst):
    torch.manual_seed(1)
    net, x = First(nn.MultiheadAttention(8, 2, batch_first=isFirst)).eval(), torch.randn(3, 4, 8)
    options = {"input_names": ["q", "k", "v"], "dynamic_axes": {name: {1 - isFirst: "N"} for name in "qkv"}}
    graph = fromOnnx(exported(net, [x] * 3, {"dynamo": False, "opset_version": 17, **options}))
    shape = ("N", 4, 8) if isFirst else (3, "N", 8)
    assert graph.dataShapeFrom([shape] * 3) == shape
    again = fromOnnx(toOnnx(graph, None, [shape] * 3, 17))
    for size in (1, 5):
        xs = [torch.randn([size if n == "N" else n for n in shape]) for _ in range(3)]
        wanted = net(*xs).detach().numpy()
        for each in (graph, again):
            np.testing.assert_allclose(each(*[v.numpy() for v in xs]), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_a_network_that_torch_traced_for_its_newer_exporter_gives_its_outputs_and_gradients(name):
    pytest.importorskip("onnxscript")
    check(name, {"dynamo": True, "opset_version": 18, "verbose": False})


TRAINED = {  # exporters that leave the parameters as they are
    "traced 17": {"dynamo": False, "opset_version": 17, "training": torch.onnx.TrainingMode.PRESERVE},
    "traced 18": {"dynamo": False, "opset_version": 18, "training": torch.onnx.TrainingMode.PRESERVE},
    "newer": {"dynamo": True, "optimize": False, "verbose": False},
}


@pytest.mark.parametrize(
    ("name", "exporter"),
    [
        (n, e) if (n, e) == ("encoder", "traced 17") else pytest.param(n, e, marks=pytest.mark.slow)
        for n in NETS
        for e in TRAINED
    ],
)
def test_a_training_step_of_an_exported_network_is_that_of_torch(name, exporter):
    if exporter == "newer":
        pytest.importorskip("onnxscript")
    torch.manual_seed(1)
    net, shapes = NETS[name]()
    spread(net)
    xs = [torch.randn(shape) for shape in shapes]
    graph = fromOnnx(exported(net.eval(), xs, TRAINED[exporter])).trainMode()
    y = net.train(name == "norm")(*xs)  # by statistics of the batch; a Dropout is none in a file
    gy, sgd = torch.randn(y.shape), torch.optim.SGD(net.parameters(), 0.1)
    if exporter != "newer":
        freezeSecondBiases(net)
    y.backward(gy)
    sgd.step()
    own = SGD(learnRate=0.1)
    own.setupOn(graph)
    graph(*[x.numpy() for x in xs])
    graph.backward(gy.numpy())
    own.update()
    wanted = fromOnnx(exported(net.eval(), xs, TRAINED[exporter])).params
    assert graph.params.keys() == wanted.keys()
    for path, param in graph.params.items():
        np.testing.assert_allclose(param.data, wanted[path].data, rtol=1e-5, atol=1e-5, err_msg=path)


def spread(net):
    """Move all parameters, so that none is 0 and left out of the file."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.1 * torch.rand(parameter.shape)


def freezeSecondBiases(net):
    """Train biases as one that a recurrent layer has as a sum; the candidate of a GRU has two."""
    for layer in net.modules():
        if isinstance(layer, nn.RNNBase):
            for label, parameter in layer.named_parameters():
                if "bias_hh" in label:
                    summed = 2 * layer.hidden_size if isinstance(layer, nn.GRU) else len(parameter)
                    parameter.register_hook(lambda grad, n=summed: torch.cat([torch.zeros(n), grad[n:]]))


class Attending(nn.Module):
    """Scaled dot-product attention."""

    def __init__(self, isCausal):
        super().__init__()
        self.isCausal = isCausal

    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.isCausal)


class Rooted(nn.Module):
    """An RMS norm as language models have it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


HEADS = [(1, 2, 5, 4)] * 3
WHOLE = {  # what is one module, and its node
    "gelu by erf": (nn.GELU, [(2, 3)], "Gelu"),
    "gelu by tanh": (lambda: nn.GELU(approximate="tanh"), [(2, 3)], "Gelu"),
    "swish": (nn.SiLU, [(2, 3)], "Swish"),
    "layer norm": (lambda: nn.LayerNorm(6), [(2, 3, 6)], "LayerNorm"),
    "rms norm": (lambda: nn.RMSNorm(6, 1e-6), [(2, 3, 6)], "RmsNorm"),
    "rms norm by hand": (Rooted, [(2, 3, 6)], "RmsNorm"),
    "linear of a sequence": (lambda: nn.Linear(6, 2), [(2, 3, 6)], "Linear"),
    "attention": (lambda: Attending(False), HEADS, "Attention"),
    "causal attention": (lambda: Attending(True), HEADS, "Attention"),
}
EXPORTERS = {
    "traced": {"dynamo": False, "opset_version": 17},
    "newer": {"dynamo": True, "opset_version": 18, "verbose": False},
}


BOTH = [(name, exporter) for name in WHOLE for exporter in EXPORTERS if (name, exporter) != ("rms norm", "traced")]


@pytest.mark.parametrize(
    ("name", "exporter"), [pytest.param(*each, marks=pytest.mark.slow) if "newer" in each else each for each in BOTH]
)
def test_what_torch_composes_of_small_operators_is_one_node(name, exporter):
    make, shapes, label = WHOLE[name]
    if exporter == "newer":
        pytest.importorskip("onnxscript")
    torch.manual_seed(1)
    net, xs = make().eval(), [torch.randn(shape) for shape in shapes]
    model = exported(net, xs, EXPORTERS[exporter])
    found = fromOnnx(model)
    labels = [node.label for node in found.nodes if node.label not in ("Input", "Transpose", "Constant")]
    assert labels == [label], (len(model.graph.node), labels)
    plain = fromOnnx(model, patterns=False)
    given = [x.numpy() for x in xs]
    np.testing.assert_allclose(found(*given), plain(*given), 1e-6, 1e-6)
    np.testing.assert_allclose(found(*given), net(*xs).detach().numpy(), 1e-5, 1e-6)


def exported(net, xs, options):
    """The model that PyTorch writes."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, tuple(x.detach() for x in xs), file, **options)
    return onnx.load_from_string(file.getvalue())


def check(name, options):
    """Compare a network with what is read of its export: outputs, gradients, and that it trains."""
    torch.manual_seed(1)
    net, shapes = NETS[name]()
    net.eval()
    xs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    graph = fromOnnx(exported(net, xs, options))
    wanted = net(*xs)
    y = graph(*[x.detach().numpy() for x in xs])
    np.testing.assert_allclose(y, wanted.detach().numpy(), rtol=1e-5, atol=1e-5)
    gy = torch.randn(wanted.shape)
    wanted.backward(gy)
    graph.backward(gy.numpy())
    grads = graph.grad if isinstance(graph.grad, list) else [graph.grad]
    for x, gx in zip(xs, grads, strict=True):
        np.testing.assert_allclose(gx, x.grad.numpy(), rtol=1e-4, atol=1e-5)
    assert any(p.trainable for p in graph.params.values())


def repBlocks(count):
    """An untrained network of blocks of a 3x3, a 1x1 and an identity branch, each with a norm of the batch."""

    class Block(torch.nn.Module):
        def __init__(self, before, maps, stride):
            super().__init__()
            self.wide = torch.nn.Conv2d(before, maps, 3, stride, 1, bias=False)
            self.one = torch.nn.Conv2d(before, maps, 1, stride, bias=False)
            kept = [maps] if before == maps and stride == 1 else []
            self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(n) for n in (maps, maps, *kept))

        def forward(self, x):
            parts = [self.wide(x), self.one(x), x]
            return torch.relu(sum(norm(part) for norm, part in zip(self.norms, parts)))

    blocks = [Block(3 if i == 0 else 8, 8, 2 if i in (0, 7, 14) else 1) for i in range(count)]
    return torch.nn.Sequential(*blocks, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())


@pytest.mark.parametrize("isCompiled", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("isOwn", [False, True], ids=["merged arrays", "arrays of their own"])
def test_gradients_of_twenty_untrained_blocks_in_float32_are_as_near_to_float64_as_those_of_torch(isOwn, isCompiled):
    torch.manual_seed(5)
    net, x, g = repBlocks(20), torch.randn(4, 3, 32, 32), torch.randn(4, 8)
    norms = [module for module in net.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms if isOwn else ():
        for array in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            torch.nn.init.uniform_(array, 0.9, 1.1)
    file, preserved = io.BytesIO(), torch.onnx.TrainingMode.PRESERVE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net.eval(), (x,), file, training=preserved, do_constant_folding=False, opset_version=17, dynamo=False
        )
    wanted, torchs = (slopes(net, x, g, dtype) for dtype in (torch.float64, torch.float32))
    graph = fromOnnx(onnx.load_from_string(file.getvalue())).trainMode()
    assert sum(isinstance(module, BatchNorm) for module in graph.modules().values()) == len(norms) == 57
    before = {name: param.data.copy() for name, param in graph.params.items()}
    if isCompiled:
        cost, optimizer = PointwiseCost(formula="x * target"), SGD(1.0)
        graph.compile(x.shape, g.shape, cost=cost, optimizer=optimizer).run(x.numpy(), g.numpy())
        ours = [(before[name] - param.data) * g.numel() for name, param in graph.params.items()]
    else:
        graph(x.numpy())
        graph.backward(g.numpy())
        ours = [param.grad for param in graph.params.values()]
    assert distance(ours, wanted) < max(10 * distance(torchs, wanted), 1e-5)


def slopes(net, x, g, dtype):
    """The gradients of the parameters of a copy of a network of PyTorch in another dtype."""
    net = copy.deepcopy(net).to(dtype).train()
    net(x.to(dtype)).backward(g.to(dtype))
    return [param.grad.numpy() for param in net.parameters()]


def distance(gradients, wanted):
    """The largest distance of a gradient from the one of its size that is nearest, beside that one's largest element."""
    return max(
        min(np.abs(a.ravel() - b.ravel()).max() / np.abs(b).max() for b in wanted if b.size == a.size)
        for a in map(np.float64, gradients)
    )
