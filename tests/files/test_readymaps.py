"""Ready maps: networks with the names and weights of torchvision, transformers, torch.nn and Keras give their outputs."""

import importlib

import numpy as np
import pytest

from puregraph import models
from puregraph.core.errors import ArgumentError
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import (
    GRU,
    LSTM,
    RNN,
    BatchNorm,
    Conv1D,
    Conv2D,
    Conv3D,
    ConvNd,
    Deconv2D,
    DeconvNd,
    Embedder,
    GroupNorm,
    LayerNorm,
    Linear,
    RmsNorm,
)
from puregraph.serialize.weights import readWeights
from puregraph.serialize.weights.maps import readyMap
from puregraph.serialize.weights.saving import fileArrays

pytestmark = pytest.mark.peers


@pytest.fixture
def torch():
    module = pytest.importorskip("torch")
    module.set_num_threads(1)
    with module.no_grad():
        yield module


def twins():
    return importlib.import_module("torchtwins")


def nearly(ours, theirs, tolerance=1e-5):
    """Equal, relative to the largest value."""
    theirs = theirs.numpy() if hasattr(theirs, "numpy") else np.asarray(theirs)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= tolerance * max(1.0, np.abs(theirs).max())


def check(graph, module, names, inputs, tolerance=1e-5, back=True):
    """Load a module's weights, compare the outputs, and write the same weights."""
    torch = importlib.import_module("torch")
    graph.evalMode()
    state = module.state_dict()
    report = graph.load(state, names=names)
    assert report.complete
    nearly(graph(*inputs), module(*(torch.tensor(x) for x in inputs)), tolerance)
    made = fileArrays(graph, names)
    kept = {name for name in state if name not in report.ignored}
    if back:
        assert set(made) <= kept
        for name, array in made.items():
            assert np.array_equal(array, state[name].numpy()), name


# torchvision ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [18, 34, 50, 101, 152])
def test_resnets_of_torchvision(depth, torch, rng):
    block = twins().BasicBlock if depth < 50 else twins().Bottleneck
    counts = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}[depth]
    module = twins().randomized(twins().ResNet(block, counts, 7))
    check(models.resnet(depth, classes=7), module, "torchvision", [rng.standard_normal((2, 3, 33, 47), "float32")])


@pytest.mark.parametrize(("depth", "norm"), [(11, False), (11, True), (13, True), (16, False), (19, True)])
def test_vggs_of_torchvision(depth, norm, torch, rng):
    counts = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}[depth]
    module = twins().randomized(twins().Vgg(counts, norm, 5))
    check(models.vgg(depth, norm, 5, size=32), module, "torchvision", [rng.standard_normal((1, 3, 32, 32), "float32")])


def test_mobilenet_of_torchvision(torch, rng):
    module = twins().randomized(twins().MobileNet(9))
    check(models.mobilenet(classes=9), module, "torchvision", [rng.standard_normal((2, 3, 45, 64), "float32")])


def test_vit_of_torchvision(torch, rng):
    module = twins().randomized(twins().VisionTransformer(12, 4, 3, 2, 24, 41, 5))
    net = models.vit(12, 4, 3, 2, 24, 5, inner=41)
    check(net, module, "torchvision", [rng.standard_normal((3, 3, 12, 12), "float32")])


def test_names_of_older_files_of_vit(torch, rng):
    module = twins().randomized(twins().VisionTransformer(8, 4, 2, 2, 8, 32, 5))
    old = {
        n.replace("mlp.0", "mlp.linear_1").replace("mlp.3", "mlp.linear_2"): a for n, a in module.state_dict().items()
    }
    assert models.vit(8, 4, 2, 2, 8, 5).load(old, names="torchvision").complete


# torch.nn -------------------------------------------------------------------------------------------------------------


def layerCases(torch):
    """Modules of torch.nn, ours, and shapes of inputs."""
    nn = torch.nn
    yield nn.Linear(5, 3), Linear(5, 3, name="m"), (4, 5)
    yield nn.Linear(4, 4, bias=False), Linear(4, 4, useBias=False, name="m"), (3, 2, 4)
    yield nn.Linear(4, 4), Linear(4, 4, transpose=True, name="m"), (3, 4)
    yield nn.Conv1d(4, 6, 3, 2, 1), Conv1D(4, 6, 3, 2, 1, name="m"), (2, 4, 11)
    yield nn.Conv2d(4, 6, (3, 2), groups=2), Conv2D(4, 6, (3, 2), groups=2, name="m"), (2, 4, 7, 6)
    yield nn.Conv3d(2, 3, 2), Conv3D(2, 3, 2, name="m"), (2, 2, 3, 4, 5)
    yield nn.Conv3d(2, 3, (1, 2, 3)), ConvNd(2, 3, (1, 2, 3), name="m"), (2, 2, 3, 4, 5)
    yield nn.ConvTranspose2d(4, 6, 3, 2, 1), Deconv2D(4, 6, 3, 2, 1, name="m"), (2, 4, 5, 6)
    yield nn.ConvTranspose2d(4, 6, 3, groups=2), Deconv2D(4, 6, 3, groups=2, name="m"), (2, 4, 5, 6)
    yield nn.ConvTranspose1d(4, 3, 4, 2), DeconvNd(4, 3, (4,), 2, name="m"), (2, 4, 5)
    yield nn.BatchNorm1d(5), BatchNorm(5, name="m"), (4, 5)
    yield nn.BatchNorm2d(3, eps=1e-3), BatchNorm(3, 1e-3, name="m"), (4, 3, 2, 5)
    yield nn.BatchNorm2d(3, affine=False), BatchNorm(3, affine=False, name="m"), (4, 3, 2, 5)
    yield nn.LayerNorm(7), LayerNorm(7, name="m"), (3, 7)
    yield nn.LayerNorm((2, 7), eps=1e-3), LayerNorm((2, 7), 1e-3, name="m"), (3, 2, 7)
    yield nn.RMSNorm(7, eps=1e-5), RmsNorm(7, name="m"), (3, 7)
    yield nn.GroupNorm(2, 6), GroupNorm(2, 6, name="m"), (3, 6, 5)
    for count, direction in ((1, "uni"), (2, "bi")):
        for bias in (True, False):
            options = {"bias": bias, "bidirectional": count == 2, "batch_first": True}
            ours = {"direction": direction, "useBias": bias, "name": "m"}
            yield nn.LSTM(5, 3, **options), LSTM(5, 3, **ours), (2, 7, 5)
            yield nn.GRU(5, 3, **options), GRU(5, 3, **ours), (2, 7, 5)
            yield nn.RNN(5, 3, **options), RNN(5, 3, **ours), (2, 7, 5)
            yield nn.RNN(5, 3, nonlinearity="relu", **options), RNN(5, 3, mode="relu", **ours), (2, 7, 5)


def test_layers_of_torch(torch, rng):
    for module, ours, shape in layerCases(torch):
        twins().randomized(module)
        net = Sequential(ours).evalMode()
        x = rng.standard_normal(shape).astype("float32")
        state = {f"m.{name}": array for name, array in module.state_dict().items()}
        assert net.load(state, names="torch").complete, ours
        y = module(torch.tensor(x))
        nearly(net(x), y[0] if isinstance(y, tuple) else y)
        again = type(net)(ours).evalMode()
        made = fileArrays(net, "torch")
        assert set(made) == set(state)
        before = {path: np.array(stored.data) for path, stored in {**net.params, **net.states}.items()}
        assert again.load(made, names="torch").complete
        for path, stored in {**again.params, **again.states}.items():
            assert np.array_equal(before[path], stored.data), (ours, path)


def test_running_statistics_are_defined_as_in_torch(torch, rng):
    module, net = torch.nn.BatchNorm1d(3), Sequential(BatchNorm(3, name="m"))
    x = rng.standard_normal((5, 3)).astype("float32")
    net.trainMode()(x)
    module(torch.tensor(x))
    made = fileArrays(net, "torch")
    nearly(made["m.running_var"], module.running_var)
    nearly(made["m.running_mean"], module.running_mean)
    assert made["m.num_batches_tracked"] == module.num_batches_tracked == 1


def test_layers_of_a_recurrent_stack(torch, rng):
    for direction in ("uni", "bi"):
        net = models.lstm(4, 3, 2, 5, direction).evalMode()
        module = torch.nn.LSTM(4, 3, 2, bidirectional=direction == "bi", batch_first=True)
        out = torch.nn.Linear(6 if direction == "bi" else 3, 5)
        state = {f"rnn.{n}": a for n, a in module.state_dict().items()} | {
            f"out.{n}": a for n, a in out.state_dict().items()
        }
        assert net.load(state, names={"rnn.l{k}": "lstm{k+1}"}).complete
        x = rng.standard_normal((2, 6, 4)).astype("float32")
        _, (h, _) = module(torch.tensor(x))
        last = torch.cat([h[-2], h[-1]], 1) if direction == "bi" else h[-1]
        nearly(net(x), out(last))


def test_embeddings_of_torch(torch, rng):
    module = torch.nn.Embedding(11, 5)
    net = Sequential(Embedder(11, 5, name="m"))
    net.load({"m.weight": module.weight}, names="torch")
    ids = rng.integers(0, 11, (3, 4))
    nearly(net(ids), module(torch.tensor(ids)))


def test_multi_head_attention_of_torch(torch, rng):
    module = twins().randomized(torch.nn.MultiheadAttention(12, 3, batch_first=True))
    x = rng.standard_normal((2, 5, 12)).astype("float32")
    net = models.multiHeadAttention(12, 3).evalMode()
    assert net.load(module.state_dict(), names="torch").complete
    nearly(net(x), module(*[torch.tensor(x)] * 3)[0])
    start = Input(name="x").node()
    inside = Graph(start, models.multiHeadAttention(12, 3, name="attn").node(start)).evalMode()
    assert inside.load({f"attn.{name}": a for name, a in module.state_dict().items()}, names="torch").complete
    nearly(inside(x), module(*[torch.tensor(x)] * 3)[0])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_transformer_encoder_of_torch(torch, rng):
    layer = torch.nn.TransformerEncoderLayer(12, 3, 20, 0.0, "gelu", batch_first=True, norm_first=True)
    module = twins().randomized(torch.nn.TransformerEncoder(layer, 2, torch.nn.LayerNorm(12)))
    check(models.transformer(2, 12, 3, 20), module, "torch", [rng.standard_normal((2, 5, 12), "float32")])


# transformers ---------------------------------------------------------------------------------------------------------

TINY = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2}


@pytest.fixture
def hf(torch, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module("transformers")
        module.logging.set_verbosity_error()
        yield module


def randomized(torch, module, scale=0.1):
    """The module in eval mode, with weights that differ in every array."""
    generator = torch.Generator().manual_seed(1)
    for array in module.parameters():
        array.add_(scale * torch.randn(array.shape, generator=generator))
    return module.eval()


def tokens(rng):
    mask = np.ones((3, 7), np.int64)
    mask[1, 5:] = mask[2, 3:] = 0
    return rng.integers(0, 31, (3, 7)), mask


def test_gpt2_of_transformers(torch, hf, rng):
    config = hf.GPT2Config(
        n_embd=24, n_layer=2, n_head=3, vocab_size=31, n_positions=17, bos_token_id=1, eos_token_id=1
    )
    module = randomized(torch, hf.GPT2LMHeadModel(config))
    ids, _ = tokens(rng)
    net = models.gpt(31, 17, 2, 3, 24).evalMode()
    assert net.load(module.state_dict(), names="huggingface").complete
    nearly(net(ids), module(torch.tensor(ids)).logits)
    bare = models.gpt(31, 17, 2, 3, 24).evalMode()
    assert bare.load(module.transformer.state_dict(), names="huggingface").complete, "a file without the head"
    assert np.array_equal(bare(ids), net(ids))


def test_bert_of_transformers(torch, hf, rng):
    config = hf.BertConfig(**TINY, num_attention_heads=3, intermediate_size=40, max_position_embeddings=17)
    module = randomized(torch, hf.BertModel(config))
    ids, mask = tokens(rng)
    types = rng.integers(0, 2, ids.shape)
    net = models.bert(31, 17, 2, 3, 24, 40).evalMode()
    assert net.load(module.state_dict(), names="huggingface").complete
    theirs = module(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask), token_type_ids=torch.tensor(types))
    hidden, pooled = net(ids, mask, types)
    nearly(hidden[mask > 0], theirs.last_hidden_state[torch.tensor(mask) > 0])
    nearly(pooled, theirs.pooler_output)
    headed = {f"bert.{name}": array for name, array in module.state_dict().items()}
    assert net.load(headed, names="huggingface").complete
    assert np.array_equal(net(ids, mask > 0, types)[1], pooled), "masks of bools are the same"


def test_vit_of_transformers(torch, hf, rng, tmp_path):
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
    module = randomized(
        torch, hf.ViTForImageClassification(hf.ViTConfig(**sizes, image_size=8, patch_size=4, num_labels=5))
    )
    net = models.vit(8, 4, 2, 3, 24, 5, inner=40, epsilon=1e-12).evalMode()
    x = rng.standard_normal((2, 3, 8, 8)).astype("float32")
    assert net.load(module.state_dict(), names="huggingface").complete
    nearly(net(x), module(torch.tensor(x)).logits)
    module.save_pretrained(tmp_path)
    import safetensors.numpy

    file = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    again = models.vit(8, 4, 2, 3, 24, 5, inner=40, epsilon=1e-12).evalMode()
    assert again.load(file, names="huggingface").complete
    assert np.array_equal(again(x), net(x))


@pytest.mark.parametrize(("groups", "tied"), [(2, False), (4, True), (1, False)])
def test_llama_of_transformers(groups, tied, torch, hf, rng):
    sizes = {"num_attention_heads": 4, "num_key_value_heads": groups, "intermediate_size": 40}
    config = hf.LlamaConfig(**TINY, **sizes, tie_word_embeddings=tied, bos_token_id=1, eos_token_id=2)
    module = randomized(torch, hf.LlamaForCausalLM(config))
    ids, _ = tokens(rng)
    net = models.llama(31, 2, 4, 24, 40, groups, tied=tied).evalMode()
    assert net.load(module.state_dict(), names="huggingface").complete
    nearly(net(ids), module(torch.tensor(ids)).logits)


@pytest.mark.parametrize("gated", [False, True])
def test_t5_of_transformers(gated, torch, hf, rng):
    sizes = {"vocab_size": 31, "d_model": 24, "d_kv": 5, "d_ff": 40, "num_layers": 2, "num_heads": 3}
    kind = "gated-gelu" if gated else "relu"
    config = hf.T5Config(**sizes, feed_forward_proj=kind, tie_word_embeddings=not gated)
    module = randomized(torch, hf.T5ForConditionalGeneration(config))
    ids, mask = tokens(rng)
    targets = rng.integers(0, 31, (3, 9))
    net = models.t5(31, 2, 3, 24, 40, 5, gated=gated, tied=not gated).evalMode()
    report = net.load(module.state_dict(), names="huggingface")
    assert report.complete
    assert "encoder.embed_tokens.weight" in report.ignored
    for texts in ((ids, mask, targets), (rng.integers(0, 31, (1, 200)), np.ones((1, 200), int), targets[:1])):
        text, seen, start = map(torch.tensor, texts)
        nearly(net(*texts), module(input_ids=text, attention_mask=seen, decoder_input_ids=start).logits)


# Keras ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def keras(torch, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    if importlib.util.find_spec("keras") is None:
        pytest.skip("keras is not installed")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield importlib.import_module("keras")


def kerasCases(L):
    """Layers of Keras, ours, shapes of inputs with channels last, and whether ours has them first."""
    yield L.Dense(4), Linear(3, 4, name="m"), (2, 3), False
    yield L.Conv1D(4, 3), Conv1D(3, 4, 3, name="m"), (2, 7, 3), True
    yield L.Conv2D(4, (3, 2)), Conv2D(3, 4, (3, 2), name="m"), (2, 7, 6, 3), True
    yield L.Conv2D(4, 3, groups=2), Conv2D(6, 4, 3, groups=2, name="m"), (2, 7, 6, 6), True
    yield L.DepthwiseConv2D(3, depth_multiplier=2), Conv2D(3, 6, 3, groups=3, name="m"), (2, 7, 6, 3), True
    yield L.Conv2DTranspose(4, 3, strides=2), Deconv2D(3, 4, 3, 2, name="m"), (2, 5, 6, 3), True
    yield L.BatchNormalization(), BatchNorm(3, 1e-3, name="m"), (2, 7, 6, 3), True
    yield L.LayerNormalization(), LayerNorm(3, 1e-3, name="m"), (2, 3), False
    for direction in ("uni", "bi"):
        for theirs, ours in ((L.LSTM, LSTM), (L.GRU, GRU), (L.SimpleRNN, RNN)):
            layer = theirs(4, return_sequences=True)
            layer = L.Bidirectional(layer) if direction == "bi" else layer
            yield layer, ours(3, 4, direction=direction, name="m"), (2, 5, 3), False


def test_layers_of_keras(keras, rng, tmp_path):
    for layer, ours, shape, isChannelsFirst in kerasCases(keras.layers):
        entry = keras.Input(shape[1:])
        model = keras.Model(entry, layer(entry))
        for weight in model.weights:
            values = 0.3 * rng.standard_normal(weight.shape)
            weight.assign(0.5 + values**2 if "variance" in weight.path else values)
        x = rng.standard_normal(shape).astype("float32")
        wanted = model(x, training=False).detach().numpy()
        model.save_weights(tmp_path / "x.weights.h5")
        file = f"layers/{next(iter(readWeights(tmp_path / 'x.weights.h5'))).split('/')[1]}"
        net = Sequential(ours).evalMode()
        assert net.load(tmp_path / "x.weights.h5", names={file: "m"}).complete, ours
        y = net(np.moveaxis(x, -1, 1) if isChannelsFirst else x)
        nearly(np.moveaxis(y, 1, -1) if isChannelsFirst else y, wanted)


# Other graphs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["torchvision", "huggingface"])
def test_a_graph_of_no_family_is_refused_with_its_way(name):
    with pytest.raises(ArgumentError, match=f"names='{name}' is for .* of puregraph.models"):
        readyMap(name, Sequential(Linear(3, 2, name="fc")))


def test_unknown_maps_are_refused():
    with pytest.raises(ArgumentError, match="wanted a NameMap, a dict or one of 'torch', 'torchvision', 'huggingface'"):
        readyMap("tensorflow", models.lenet())
