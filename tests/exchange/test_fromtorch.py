"""Modules of torch as graphs: values, gradients, names, dropout, other batches, and what cannot be read."""

import logging

import numpy as np
import pytest

from puregraph.core.errors import ArgumentError, GraphError, PuregraphError
from puregraph.modules import BatchNorm, Conv2D, Dropout, Linear
from puregraph.torch import DaceModule, asArray, asFunction, asModule, fromTorch

pytestmark = [
    pytest.mark.peers,
    pytest.mark.costly,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]
torch = pytest.importorskip("torch")
logging.getLogger("torch.__trace").disabled = True  # pytest would have it describe every step of an export
nn = torch.nn


class Residual(nn.Module):
    """A block of a residual network, with an activation that is used twice and works in place."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        return self.relu(y)


class Mixed(nn.Module):
    """Words, positions, attention, and operations on tensors that are no modules."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(9, 8), nn.Parameter(torch.randn(1, 6, 8))
        self.attention, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)
        self.register_buffer("scale", torch.linspace(0.5, 2.0, 8))

    def forward(self, ids):
        x = self.words(ids) + self.positions[:, : ids.shape[1]]
        y, _ = self.attention(x, x, x, need_weights=False)
        y = self.norm(x + y * 0.5) * self.scale
        mask = (ids > 3).unsqueeze(-1)
        z = torch.where(mask, y, -y).masked_fill(mask, 1.0)
        joined = torch.cat([y, z], -1)
        parts = torch.stack(torch.split(joined, 4, dim=-1), 1)
        return z.mean(1), joined.var(-1), parts.flip(-1).roll(1, 2), y.pow(2).sum((1, 2)).sqrt(), 3 - y.amax(-1) / 2


def nets():
    """(name, module, inputs) of networks of torch.nn."""
    image = torch.randn(2, 3, 17, 15)
    sequence = torch.randn(2, 5, 3)
    conv = nn.Sequential(
        nn.Conv2d(3, 4, (3, 5), (2, 1), (1, 2), dilation=(1, 2)),
        nn.GroupNorm(2, 4),
        nn.SiLU(),
        nn.Conv2d(4, 6, 3, padding="same", groups=2),
        nn.LeakyReLU(0.2),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.Hardswish(),
        nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False),
        nn.ConvTranspose2d(6, 3, 3, 2, 1, output_padding=1),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.AdaptiveAvgPool2d((3, 4)),
        nn.ReflectionPad2d(1),
        nn.Flatten(),
        nn.LazyLinear(5),
        nn.LogSoftmax(1),
    )
    conv(image)
    yield "conv", conv, (image,)
    smooth = [nn.GELU(), nn.GELU("tanh"), nn.ELU(), nn.Softplus(), nn.Tanh(), nn.Sigmoid(), nn.Hardsigmoid(), nn.Mish()]
    smooth += [nn.ReLU6(), nn.Hardtanh(), nn.Softsign(), nn.LogSigmoid(), nn.SELU(), nn.PReLU(4), nn.Softmax(-1)]
    yield (
        "activations",
        nn.Sequential(nn.Linear(3, 4), *smooth, nn.RMSNorm(4), nn.Linear(4, 2, bias=False)),
        (torch.randn(5, 3),),
    )
    yield "residual", nn.Sequential(nn.Conv2d(3, 4, 1), Residual(), Residual()), (image,)
    yield "mixed", Mixed(), (torch.randint(0, 9, (2, 6)),)
    yield "lstm", nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True), (sequence,)
    yield "gru", nn.GRU(3, 4, 2, bidirectional=True), (sequence,)
    yield "rnn", nn.RNN(3, 4, nonlinearity="relu", batch_first=True), (sequence,)
    yield (
        "encoder",
        nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2, enable_nested_tensor=False),
        (torch.randn(2, 5, 4),),
    )
    yield (
        "bilinear",
        nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(8, 3)),
        (torch.randn(2, 3, 5),),
    )
    yield (
        "volume",
        nn.Sequential(nn.Conv3d(2, 3, 2), nn.ReLU(), nn.AdaptiveMaxPool3d(1), nn.Flatten(1)),
        (torch.randn(2, 2, 4, 5, 3),),
    )
    yield "pixels", nn.Sequential(nn.Conv2d(3, 8, 1), nn.PixelShuffle(2), nn.Upsample(scale_factor=2)), (image,)


NAMES = "conv activations residual mixed lstm gru rnn encoder bilinear volume pixels".split()


def outputsOf(result):
    """The tensors of a result, in order."""
    if isinstance(result, torch.Tensor):
        return [result]
    parts = result.values() if isinstance(result, dict) else result
    return [t for part in parts for t in outputsOf(part) if part is not None]


def compare(module, inputs, tolerance=1e-5):
    """Outputs of a module and its graph are equal, and so are gradients of inputs and sums of those of parameters."""
    graph = fromTorch(module, inputs)
    module.eval()
    ours = asModule(graph)
    wanted, found = outputsOf(module(*inputs)), outputsOf(ours(*inputs))
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)
    floats = [x for x in inputs if x.is_floating_point()]
    seeds = [torch.randn_like(y) for y in wanted]
    grads = []
    for net in (module, ours):
        for x in floats:
            x.requires_grad_().grad = None
        sum((y * seed).sum() for y, seed in zip(outputsOf(net(*inputs)), seeds)).backward()
        params = [p.grad.norm() for p in net.parameters() if p.grad is not None]
        grads.append((*[x.grad for x in floats], torch.stack(params).square().sum() if params else torch.zeros(())))
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b, atol=tolerance * 10, rtol=tolerance * 100)
    return graph


@pytest.mark.parametrize("name", NAMES)
def test_layers_of_torch_have_the_same_values_and_gradients(name):
    torch.manual_seed(0)
    ((module, inputs),) = [(module, inputs) for n, module, inputs in nets() if n == name]
    isShared = name in ("lstm", "gru", "rnn")  # whose two biases are one, so that sums of gradients differ
    compare(module, inputs) if not isShared else compareRecurrent(module, inputs)


def compareRecurrent(module, inputs):
    """Outputs of a recurrent module and its graph are equal, and so are all gradients."""
    graph = fromTorch(module, inputs)
    ours, (x,) = asModule(graph), inputs
    wanted, found = outputsOf(module(x)), outputsOf(ours(x))
    seeds = [torch.randn_like(y) for y in wanted]
    for y, a in zip(wanted, found):
        torch.testing.assert_close(a, y, atol=1e-5, rtol=1e-5)
    grads = []
    for net in (module, ours):
        x.requires_grad_().grad = None
        sum((y * seed).sum() for y, seed in zip(outputsOf(net(x)), seeds)).backward()
        grads.append(x.grad)
    torch.testing.assert_close(grads[1], grads[0], atol=1e-5, rtol=1e-4)
    cells = [step.module for step in graph.steps().items if hasattr(step.module, "U")]
    sides = ("", "_reverse") if module.bidirectional else ("",)
    assert len(cells) == module.num_layers
    for layer, cell in enumerate(cells):
        theirs = {n: [getattr(module, f"{n}_l{layer}{side}").grad for side in sides] for n in NAMESOFCELL}
        pairs = [(cell.W, torch.cat([g.T for g in theirs["weight_ih"]], 1))]
        pairs += [(cell.U, torch.cat([g.T for g in theirs["weight_hh"]], 1)), (cell.b, torch.cat(theirs["bias_ih"]))]
        if hasattr(cell, "d"):
            pairs.append((cell.d, torch.cat([g[2 * module.hidden_size :] for g in theirs["bias_hh"]])))
        byId = {id(slot.stored): slot.tensor.grad for slot in ours.sharing.params}
        for param, grad in pairs:
            torch.testing.assert_close(byId[id(param)], grad, atol=1e-5, rtol=1e-4)


NAMESOFCELL = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def test_names_are_paths_and_weights_are_copies():
    module = nn.Sequential(nn.Conv2d(3, 4, 1), Residual())
    graph = fromTorch(module, torch.randn(2, 3, 5, 5))
    assert list(graph.params) == [
        *("0.W", "0.b", "1_conv1.W", "1_bn1.scale", "1_bn1.bias", "1_conv2.W", "1_bn2.scale", "1_bn2.bias"),
    ]
    assert list(graph.modules()) == ["0", "1_conv1", "1_bn1", "1_relu", "1_conv2", "1_bn2", "1_add", "1_relu:2"]
    assert isinstance(graph["1_conv1"], Conv2D) and isinstance(graph["1_bn1"], BatchNorm) and not graph.isTraining
    before = graph.params["0.W"].array.copy()
    with torch.no_grad():
        module[0].weight.add_(1.0)
    np.testing.assert_array_equal(graph.params["0.W"].array, before)
    assert not fromTorch(module, torch.randn(2, 3, 5, 5), trainable=False).trainable


def test_another_batch_and_a_symbol_fit():
    graph = fromTorch(
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(100, 2)), torch.randn(2, 3, 5, 5)
    )
    assert graph.dataShapeFrom(("N", 3, 5, 5)) == ("N", 2) and graph(np.zeros((7, 3, 5, 5), np.float32)).shape == (7, 2)


def test_dropout_is_kept_and_the_module_stays_in_its_mode():
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.25), nn.BatchNorm1d(4))
    module[2].eval()
    graph = fromTorch(module, (torch.ones(5, 3),))
    assert isinstance(graph["1"], Dropout) and graph["1"].p == 0.25
    assert [part.training for part in module] == [True, True, False]
    x = np.ones((50, 3), np.float32)
    np.testing.assert_array_equal(graph(x), graph(x))
    graph.trainMode()
    assert not np.array_equal(graph(x), graph(x))


def test_a_layer_that_is_used_twice_is_one_module():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)
            self.out = nn.Linear(3, 9)
            self.words = nn.Embedding(9, 3)
            self.out.weight = self.words.weight

        def forward(self, x):
            return self.out(self.fc(torch.tanh(self.fc(x))))

    graph = fromTorch(Twice(), torch.randn(2, 3))
    assert list(graph.params) == ["fc.W", "fc.b", "out.W", "out.b"]
    assert isinstance(graph["fc"], Linear)


def test_what_cannot_be_read_is_listed_at_once_by_path():
    class Odd(nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x) + torch.linalg.inv_ex(x @ x.T)[0].sum()

    with pytest.raises(GraphError) as refusal:
        fromTorch(nn.Sequential(nn.Linear(3, 3), Odd(), nn.Sequential(Odd())), torch.randn(2, 3))
    text = str(refusal.value)
    assert text.startswith("fromTorch: 4 operations of Sequential cannot be read:")
    assert "at '1': special_bessel_j0" in text and "at '2.0': linalg_inv_ex" in text

    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(GraphError, match="torch.export cannot read Branching"):
        fromTorch(Branching(), torch.randn(2, 3))
    with pytest.raises(ArgumentError, match=r"wanted a torch\.nn\.Module, got builtin_function_or_method"):
        fromTorch(torch.tanh, torch.randn(2, 3))


def test_a_graph_from_torch_is_saved_and_loaded(tmp_path):
    import puregraph

    graph = fromTorch(nn.Sequential(nn.Conv2d(3, 4, 1), Residual()), torch.randn(2, 3, 5, 5))
    graph.save(tmp_path / "net.h5")
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 5)).astype(np.float32)
    np.testing.assert_array_equal(puregraph.load(tmp_path / "net.h5").evalMode()(x), graph(x))


def test_dacemodule_computes_a_module_and_skips_gradients_of_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x, y):
            h = torch.relu(self.a(x) * y)
            return torch.log_softmax(self.b(h), 1), h

    module, x, y = Two(), torch.randn(5, 3, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    net = DaceModule(module, (x, y), backward=True, inputs_to_skip=["y"])
    out, h = net(x, y)
    wanted, _ = module(x, y)
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=1e-5)
    out.t().sum().backward(retain_graph=True)
    gx = torch.autograd.grad(wanted.sum(), [x, module.a.weight])
    torch.testing.assert_close(x.grad, gx[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(net.a.W.grad, gx[1], atol=1e-5, rtol=1e-4)
    assert y.grad is None
    h.sum().backward()
    assert not DaceModule(module, (x.detach(), y.detach()))(x.detach(), y.detach())[0].requires_grad
    with pytest.raises(ArgumentError, match="there is no input 'z' to skip"):
        DaceModule(module, (x, y), inputs_to_skip=["z"])
    with pytest.raises(ArgumentError, match="wanted dummy_inputs"):
        DaceModule(module)


def test_a_model_of_onnx_is_a_function_of_torch(tmp_path, rng):
    pytest.importorskip("onnx")
    from puregraph import Sequential, Tanh
    from puregraph.onnx import toOnnx

    net = Sequential(Linear(3, 4, name="fc"), Tanh(name="act"))
    toOnnx(net, tmp_path / "net.onnx", shapes=[("N", 3)])
    x = torch.randn(5, 3, requires_grad=True)
    for source in (tmp_path / "net.onnx", toOnnx(net, shapes=[("N", 3)])):
        y = asFunction(source)(x)
        np.testing.assert_allclose(asArray(y), net(asArray(x)), atol=1e-6)
        (g,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(g, (1 - y.detach() ** 2) @ torch.from_numpy(net["fc"].W.array.T.copy()))
    with pytest.raises(PuregraphError, match=r"ends in \.onnx"):
        asFunction("net.pt")


TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 99}
WORDS = {**TINY, "max_position_embeddings": 32}
TRANSFORMERS = {
    "Bert": WORDS,
    "Roberta": WORDS,
    "Electra": {**WORDS, "embedding_size": 16},
    "Albert": {**WORDS, "embedding_size": 16},
    "MPNet": WORDS,
    "Llama": {**WORDS, "num_key_value_heads": 1},
    "Qwen2": {**WORDS, "num_key_value_heads": 1},
    "GPTNeoX": WORDS,
    "GPT2": {"vocab_size": 99, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32},
    "DistilBert": {
        "vocab_size": 99,
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 24,
        "max_position_embeddings": 32,
    },
    "ViT": {k: v for k, v in TINY.items() if k != "vocab_size"} | {"image_size": 32, "patch_size": 8},
}


class Plain(nn.Module):
    """A model of transformers that gives its last hidden state alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        options = {"use_cache": False} if "use_cache" in self.model.config.to_dict() else {}
        return self.model(x, **options).last_hidden_state


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_networks_of_transformers(name):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**TRANSFORMERS[name])
    x = torch.randn(2, 3, 32, 32) if name == "ViT" else torch.randint(3, 90, (2, 7))
    compare(Plain(getattr(transformers, f"{name}Model")(config)), (x,), 2e-5)


TORCHVISION = "alexnet resnet18 mobilenet_v2 mobilenet_v3_small squeezenet1_1 shufflenet_v2_x0_5 efficientnet_b0 convnext_tiny regnet_y_400mf mnasnet0_5 densenet121 vgg11_bn".split()


@pytest.mark.slow
@pytest.mark.parametrize("name", TORCHVISION)
def test_networks_of_torchvision(name):
    try:
        import torchvision
    except (ImportError, RuntimeError) as error:  # one that was built for another torch
        pytest.skip(f"torchvision cannot be imported: {error}")
    torch.manual_seed(0)
    module = getattr(torchvision.models, name)(weights=None, num_classes=10)
    compare(module, (torch.randn(2, 3, 64, 64),), 1e-4)


def test_an_example_of_one_sample_with_one_element_a_channel_is_enough():
    module = nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4))
    compare(module, (torch.randn(1, 3, 2, 2),))


@pytest.mark.parametrize("make", [nn.ReLU6, nn.Hardtanh, lambda: nn.Hardtanh(0.5, 1.5), lambda: Clamp(-1.0, 1.0)])
def test_derivatives_at_the_bounds_of_a_clip_are_those_of_torch(make):
    """Where a dead unit is followed by a convolution without bias, the input of a ReLU6 is exactly 0."""
    x = torch.tensor([-2.0, -1.0, 0.0, 0.5, 1.0, 1.5, 6.0, 7.0])
    compare(nn.Sequential(nn.Identity(), make()), (x,))


class Clamp(nn.Module):
    """torch.clamp as a module; its derivative is 1 at both bounds."""

    def __init__(self, low, high):
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x):
        return x.clamp(self.low, self.high)
