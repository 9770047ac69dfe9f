"""Blocks of transformers: shapes, refusals, biases by distance, compiled steps, and PyTorch's values and gradients."""

import inspect
import warnings

import numpy as np
import pytest
from leftovers import leftToNumpy

from puregraph import (
    SGD,
    Attention,
    Linear,
    MultiHeadAttention,
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
    block,
    load,
    models,
)
from puregraph.core.foreign import hintFor
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules.costs import MSE
from puregraph.ops.random.reference import uniform
from puregraph.weights import readyMap

TINY = {  # a block, shapes of its inputs
    "self": (lambda: MultiHeadAttention(6, 3, useBias=False), [(2, 5, 6)]),
    "wide heads": (lambda: MultiHeadAttention(6, 4, width=2, groups=2, causal=True), [(2, 5, 6)]),
    "masked": (lambda: MultiHeadAttention(6, 2, masked=True), [(2, 5, 6), (1, 5, 5)]),
    "cross": (lambda: MultiHeadAttention(6, 2, cross=True, keysize=4), [(2, 3, 6), (2, 5, 4)]),
    "of values": (
        lambda: MultiHeadAttention(6, 2, cross=True, keysize=4, valuesize=3),
        [(2, 3, 6), (2, 5, 4), (2, 5, 3)],
    ),
    "three projections": (lambda: MultiHeadAttention(6, 2, packed=False, scale=1.0), [(2, 4, 6)]),
    "rotary": (lambda: MultiHeadAttention(8, 2, rotary=100.0, window=2, causal=True), [(2, 4, 8)]),
    "alibi": (lambda: MultiHeadAttention(6, 3, alibi=True, masked=True), [(2, 4, 6), (4, 4)]),
    "encoder layer": (lambda: TransformerEncoderLayer(6, 2, 5, masked=True), [(2, 4, 6), (1, 2, 4, 4)]),
    "gated": (
        lambda: TransformerEncoderLayer(8, 2, 5, activation="swiglu", normFirst=True, rotary=50.0, causal=True),
        [(2, 4, 8)],
    ),
    "decoder layer": (
        lambda: TransformerDecoderLayer(6, 2, 5, memoryMasked=True, activation="gelu", causal=True),
        [(2, 4, 6), (2, 3, 6), (4, 3)],
    ),
    "encoder": (lambda: TransformerEncoder(2, 4, 2, activation="tanhgelu", normFirst=True), [(2, 3, 4)]),
    "decoder": (lambda: TransformerDecoder(1, 4, 2, useBias=False, alibi=True, norm=True), [(2, 3, 4), (2, 5, 4)]),
    "both": (lambda: Transformer(4, 2, 1, 1, 6, sourceMasked=True), [(2, 3, 4), (2, 5, 4), (3, 3)]),
}


@pytest.mark.parametrize("name", TINY)
def test_gradients_of_a_block_are_central_differences(name, rng):
    make, shapes = TINY[name]
    net = make().calcMode("float64")
    data = [rng.standard_normal(shape) for shape in shapes]
    y = net(data if len(data) > 1 else data[0])
    assert y.shape == net.dataShapeFrom(shapes)
    g, arrays = rng.standard_normal(y.shape), [*data, *(p.data for p in net.params.values())]
    net.backward(g)
    grads = [*(net.grad if isinstance(net.grad, list) else [net.grad]), *(p.grad for p in net.params.values())]
    for i, (array, grad) in enumerate(zip(arrays, grads, strict=True)):
        step, start = 1e-6 * rng.standard_normal(array.shape), array.copy()
        ends = []
        for sign in (1, -1):
            array[...] = start + sign * step
            ends.append((net(data if len(data) > 1 else data[0]) * g).sum())
        array[...] = start
        assert abs((ends[0] - ends[1]) / 2 - (grad * step).sum()) <= 1e-13 + 1e-6 * np.abs(grad * step).sum(), i


@pytest.mark.parametrize("name", TINY)
def test_a_compiled_training_step_of_a_block_is_the_eager_one(name, rng):
    make, shapes = TINY[name]
    net, cost = make(), MSE()
    data = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    target = rng.standard_normal(net.dataShapeFrom(shapes)).astype(np.float32)
    cost(net(data if len(data) > 1 else data[0]), target)
    cost.backward()
    net.backward(cost.grad[0] if isinstance(cost.grad, list) else cost.grad)
    wanted = {path: p.grad.copy() for path, p in net.params.items()}
    program = net.compile([*shapes, target.shape], cost=MSE(), optimizer=SGD(1.0))
    before = {path: p.data.copy() for path, p in net.params.items()}
    program.run(*data, target)
    assert not leftToNumpy(program)
    for path, p in net.params.items():
        far = np.abs(before[path] - p.data - wanted[path]).max(initial=0)
        assert far <= 2e-4 * max(1.0, np.abs(wanted[path]).max(initial=0)), path


@pytest.mark.parametrize("name", TINY)
def test_a_file_brings_a_block_back(name, rng, tmp_path):
    make, shapes = TINY[name]
    net = make().evalMode()
    data = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    net.save(tmp_path / "net.h5")
    assert np.array_equal(load(tmp_path / "net.h5").evalMode()(data), net(data))


def test_an_empty_batch_and_one_key_pass():
    for name, (make, shapes) in TINY.items():
        empty = [(0, *s[1:]) if len(s) == 3 and s[0] == 2 else s for s in shapes]
        net = make()
        data = [np.zeros(s, np.float32) for s in empty]
        assert net(data if len(data) > 1 else data[0]).shape == net.dataShapeFrom(empty), name
    one = MultiHeadAttention(6, 2, cross=True)
    assert one(np.ones((1, 3, 6), np.float32), np.ones((1, 1, 6), np.float32)).shape == (1, 3, 6)


def test_lengths_hide_later_keys(rng):
    net = TransformerDecoderLayer(6, 2, lengths=True, memoryLengths=True)
    x, memory = rng.standard_normal((2, 4, 6)).astype("float32"), rng.standard_normal((2, 5, 6)).astype("float32")
    lengths, ends = np.array([4, 2]), np.array([3, 5])
    y = net(x, memory, lengths, ends).copy()
    x[1, 2:], memory[0, 3:] = 7.0, -7.0
    z = net(x, memory, lengths, ends)
    assert np.array_equal(y[0], z[0]) and np.array_equal(y[1, :2], z[1, :2]) and not np.allclose(y[1, 2:], z[1, 2:])


def test_biases_fall_with_the_distance():
    x = Input(name="x").node()
    y = Graph(x, block.alibiBias(x, 6))(np.zeros((1, 3, 1), np.float32))
    slopes = [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]  # of four heads, then every second one of eight
    assert np.array_equal(-y[:, 0, 2] / 2, np.float32(slopes)) and not y.diagonal(axis1=1, axis2=2).any()


def test_dropout_of_a_layer_follows_its_key_and_count(rng):
    net = TransformerEncoderLayer(8, 2, dropout=0.4)
    x = rng.standard_normal((2, 5, 8)).astype("float32")
    states = {path: s.data.copy() for path, s in net.states.items()}
    y = net(x).copy()
    assert not np.array_equal(net(x), y)
    for path, state in net.states.items():
        state.data = states[path]
    assert np.array_equal(net(x), y)
    assert np.array_equal(net.evalMode()(x), net(x))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropped_weights_are_zero_and_the_others_larger(rng, p):
    net = Attention(dropout=p)
    q, k, v = (rng.standard_normal((2, 3, n, 4)) for n in (5, 7, 7))
    kept = uniform((2, 3, 5, 7), net.key.materialize(), net.count.materialize()) >= p
    weights = softmax(q @ k.swapaxes(-1, -2) / 2) * kept / (1 - p)
    assert np.allclose(net(q, k, v), weights @ v, rtol=0, atol=1e-12)
    assert net.count.data == 1
    assert np.array_equal(net.evalMode()(q, k, v), Attention()(q, k, v))


def test_dropped_weights_average_to_the_attention(rng):
    net = Attention(dropout=0.3)
    q, k, v = (rng.standard_normal((400, 2, n, 4)) for n in (3, 5, 5))
    q[1:], k[1:], v[1:] = q[:1], k[:1], v[:1]
    mean, sure = net(q, k, v).mean(axis=0), Attention()(q[:1], k[:1], v[:1])[0]
    assert np.abs(mean - sure).max() < 0.15


@pytest.mark.parametrize("settings", [{}, {"causal": True}, {"causal": True, "window": 3, "cap": 2.0}])
@pytest.mark.parametrize("masked", [False, True])
def test_a_compiled_step_drops_weights_like_the_eager_pass(rng, settings, masked):
    net = MultiHeadAttention(8, 2, masked=masked, dropout=0.4, **settings)
    data = [rng.standard_normal((3, 5, 8)).astype("float32")]
    data += [rng.standard_normal((5, 5)).astype("float32")] if masked else []
    target = rng.standard_normal((3, 5, 8)).astype("float32")
    start = {path: s.materialize().copy() for path, s in net.states.items()}
    step = net.compile([*(x.shape for x in data), target.shape], cost=MSE())
    assert not leftToNumpy(step)
    step.run(*data, target)
    grads = {path: p.grad.copy() for path, p in net.params.items()}
    for path, state in net.states.items():
        state.data = start[path]
    net.backward(2 * (net(*data) - target) / target.size)
    for path, p in net.params.items():
        assert np.allclose(p.grad, grads[path], rtol=0, atol=2e-6), path


def test_layers_drop_the_weights_of_each_attention(rng):
    net = TransformerDecoderLayer(8, 2, attentionDropout=0.3)
    counts = [path for path in net.states if path.endswith("count")]
    assert counts == ["attn.attention.count", "cross.attention.count"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MultiHeadAttention(8, 3), "wanted heads that divide the size 8, got 3"),
        (lambda: MultiHeadAttention(8, 4, groups=3), "wanted groups that divide the 4 heads, got 3"),
        (lambda: MultiHeadAttention(8, 4, keysize=3), "keysize is for cross-attention, got cross=False"),
        (lambda: MultiHeadAttention(8, 4, cross=True, alibi=True), "alibi is for self-attention, got cross=True"),
        (lambda: TransformerEncoderLayer(8, 2, activation="tanh"), "wanted activation as one of 'relu', 'gelu'"),
        (lambda: TransformerEncoder(0, 8, 2), "wanted layers as a whole number of at least 1, got 0"),
        (lambda: TransformerEncoder(1, 8, 2, heads=1), "heads"),
        (lambda: TransformerDecoder(1, 8, 2, depth=1), "depth"),
        (lambda: MultiHeadAttention(8, num_heads=2), "heads"),
    ],
)
def test_options_that_do_not_fit_are_refused(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


def test_the_blocks_are_public_and_foreign_names_lead_to_them():
    assert models.multiHeadAttention is block.MultiHeadAttention is MultiHeadAttention
    assert "MultiHeadAttention" in hintFor("MultiheadAttention")
    for name in block.__all__:
        assert ">>>" in inspect.getdoc(getattr(block, name)), name


# Against PyTorch ------------------------------------------------------------------------------------------------------

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")


def masks(rng, n, t, s):
    """A bool mask (t, s) and the number of keys of each sample, both of which leave the first key."""
    mask, lengths = rng.random((t, s)) < 0.7, rng.integers(1, s + 1, n)
    mask[:, 0] = True
    return mask, lengths, np.arange(s) >= lengths[:, None]


def same(net, peer, inputs, y, rng, what):
    """Compare the values, and the gradients of all floating inputs and parameters, in float64."""
    g = rng.standard_normal(tuple(y.shape))
    leaves = [x for x in inputs if not isinstance(x, np.ndarray)]
    y.backward(y.new_tensor(g))
    arrays = [x if isinstance(x, np.ndarray) else x.detach().numpy() for x in inputs]
    ours = net(arrays if len(arrays) > 1 else arrays[0])
    near(ours, y.detach().numpy(), what)
    net.backward(g)
    grads = net.grad if isinstance(net.grad, list) else [net.grad]
    for i, x in enumerate(leaves):
        near(grads[i], x.grad.numpy(), f"{what}: gradient of input {i}")
    if not net.isTraining:
        return  # there are no gradients of parameters
    theirs = {name: p.grad.numpy() for name, p in peer.named_parameters()}
    for link in readyMap("torch", net).links(net, set(theirs)):
        made = link.how.toFile([net.params[path].grad for path in link.paths], len(link.files))
        for name, grad in zip(link.files, made, strict=True):
            near(grad, theirs.pop(name), f"{what}: gradient of {name}")
    assert not theirs


def near(ours, theirs, what):
    assert ours.shape == theirs.shape, what
    far = np.abs(ours - theirs).max(initial=0)
    assert far <= 1e-10 * max(1, np.abs(theirs).max(initial=0)), f"{what}: {far:.1e}"


def loaded(net, peer, training):
    """The block in float64 with the weights of a module of torch that differ in every array."""
    import torch

    with torch.no_grad():
        for p in peer.parameters():
            p.add_(0.2 * torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(p.numel())))
    peer.train(training)
    net.calcMode("float64")
    assert net.load(peer.state_dict(), names="torch").complete
    return net.trainMode() if training else net.evalMode()


@pytest.mark.peers
@pytest.mark.parametrize("seed", range(24))
def test_multi_head_attention_is_that_of_torch(seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    heads, width, n, t, s = (int(rng.integers(1, high)) for high in (5, 5, 4, 8, 9))
    size, bias, training = heads * width, bool(rng.integers(2)), bool(seed % 2)
    kind = ("self", "cross", "keys", "values")[seed % 4]
    keysize, valuesize = (int(x) for x in rng.integers(1, 9, 2))
    options = {"keys": {"kdim": keysize, "vdim": keysize}, "values": {"kdim": keysize, "vdim": valuesize}}
    peer = torch.nn.MultiheadAttention(size, heads, bias=bias, batch_first=True, **options.get(kind, {})).double()
    ours = {"keysize": keysize} if kind in ("keys", "values") else {}
    ours |= {"valuesize": valuesize} if kind == "values" else {}
    useMask, useLengths = bool(rng.integers(2)), bool(rng.integers(2))
    made = MultiHeadAttention(
        size, heads, cross=kind != "self", masked=useMask, lengths=useLengths, useBias=bias, **ours
    )
    net = loaded(made, peer, training)
    s = t if kind == "self" else s
    widths = {"self": (), "cross": (size,), "keys": (keysize,), "values": (keysize, valuesize)}[kind]
    tensors = [
        torch.tensor(rng.standard_normal(shape), requires_grad=True)
        for shape in [(n, t, size), *((n, s, w) for w in widths)]
    ]
    q, k, v = (tensors * 3)[:3] if len(tensors) != 2 else (tensors[0], tensors[1], tensors[1])
    mask, lengths, hidden = masks(rng, n, t, s)
    floats = rng.standard_normal((t, s)) if rng.integers(2) else None
    theirs = {"attn_mask": torch.tensor(~mask if floats is None else floats)} if useMask else {}
    theirs |= (
        {"key_padding_mask": torch.tensor(hidden if floats is None or not useMask else np.where(hidden, -1e300, 0.0))}
        if useLengths
        else {}
    )
    y, _ = peer(q, k, v, need_weights=False, **theirs)
    extra = [mask if floats is None else floats] * useMask + [lengths] * useLengths
    same(net, peer, [*tensors, *extra], y, rng, f"{kind} {size} {heads} {bias}")


def layerOptions(rng):
    """Options of a layer: torch's, and ours."""
    heads, width, inner = (int(rng.integers(1, high)) for high in (4, 4, 9))
    normFirst, bias, name = bool(rng.integers(2)), bool(rng.integers(2)), ("relu", "gelu")[rng.integers(2)]
    theirs = {"dropout": 0.0, "activation": name, "norm_first": normFirst, "bias": bias, "batch_first": True}
    return (heads * width, heads, inner), theirs, {"activation": name, "normFirst": normFirst, "useBias": bias}


@pytest.mark.peers
@pytest.mark.parametrize("seed", range(24))
def test_encoders_are_those_of_torch(seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    sizes, theirs, ours = layerOptions(rng)
    useMask, useLengths, training = (bool(x) for x in rng.integers(0, 2, 3))
    n, t = int(rng.integers(1, 4)), int(rng.integers(1, 8))
    ours |= {"masked": useMask, "lengths": useLengths}
    peer = torch.nn.TransformerEncoderLayer(*sizes, **theirs)
    if seed % 2:
        norm = torch.nn.LayerNorm(sizes[0], bias=theirs["bias"]) if theirs["norm_first"] else None
        peer = torch.nn.TransformerEncoder(peer, 2, norm, enable_nested_tensor=False)
        made = TransformerEncoder(2, *sizes[:2], inner=sizes[2], **ours)
    else:
        made = TransformerEncoderLayer(*sizes, **ours)
    net = loaded(made, peer.double(), training)
    mask, lengths, hidden = masks(rng, n, t, t)
    x = torch.tensor(rng.standard_normal((n, t, sizes[0])), requires_grad=True)
    name = "mask" if seed % 2 else "src_mask"
    extra = {name: torch.tensor(~mask)} if useMask else {}
    extra |= {"src_key_padding_mask": torch.tensor(hidden)} if useLengths else {}
    same(net, peer, [x, *[mask] * useMask, *[lengths] * useLengths], peer(x, **extra), rng, f"{sizes} {ours}")


@pytest.mark.peers
@pytest.mark.parametrize("seed", range(24))
def test_decoders_are_those_of_torch(seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    sizes, theirs, ours = layerOptions(rng)
    used = [bool(x) for x in rng.integers(0, 2, 4)]
    training, n, t, s = bool(rng.integers(2)), *(int(rng.integers(1, high)) for high in (4, 8, 8))
    ours |= dict(zip(("masked", "memoryMasked", "lengths", "memoryLengths"), used))
    peer = torch.nn.TransformerDecoderLayer(*sizes, **theirs)
    if seed % 2:
        norm = torch.nn.LayerNorm(sizes[0], bias=theirs["bias"]) if theirs["norm_first"] else None
        peer, made = (
            torch.nn.TransformerDecoder(peer, 2, norm),
            TransformerDecoder(2, *sizes[:2], inner=sizes[2], **ours),
        )
    else:
        made = TransformerDecoderLayer(*sizes, **ours)
    net = loaded(made, peer.double(), training)
    own, memory = masks(rng, n, t, t), masks(rng, n, t, s)
    x, m = (torch.tensor(rng.standard_normal((n, c, sizes[0])), requires_grad=True) for c in (t, s))
    given = [~own[0], ~memory[0], own[2], memory[2]]
    names = ("tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask")
    extra = {name: torch.tensor(value) for name, value, isUsed in zip(names, given, used) if isUsed}
    inputs = [value for value, isUsed in zip((own[0], memory[0], own[1], memory[1]), used) if isUsed]
    same(net, peer, [x, m, *inputs], peer(x, m, **extra), rng, f"{sizes} {ours}")


@pytest.mark.peers
@pytest.mark.parametrize("seed", range(20))
def test_encoder_and_decoder_together_are_those_of_torch(seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    (size, heads, inner), theirs, ours = layerOptions(rng)
    training, n, s, t = bool(rng.integers(2)), *(int(rng.integers(1, high)) for high in (4, 7, 7))
    useLengths, isCausal = bool(rng.integers(2)), bool(rng.integers(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = torch.nn.Transformer(size, heads, 2, 1, inner, **theirs).double()
    made = Transformer(size, heads, 2, 1, inner=inner, causal=isCausal, sourceLengths=useLengths, **ours)
    net = loaded(made, peer, training)
    x, y = (torch.tensor(rng.standard_normal((n, c, size)), requires_grad=True) for c in (s, t))
    _, lengths, hidden = masks(rng, n, s, s)
    both = (
        dict.fromkeys(("src_key_padding_mask", "memory_key_padding_mask"), torch.tensor(hidden)) if useLengths else {}
    )
    mask = torch.ones(t, t, dtype=torch.bool).triu(1) if isCausal else None
    same(net, peer, [x, y, *[lengths] * useLengths], peer(x, y, tgt_mask=mask, **both), rng, f"{size} {heads} {ours}")


@pytest.mark.peers
def test_weights_of_blocks_are_saved_under_names_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    nn = torch.nn
    pairs = [
        (MultiHeadAttention(6, 2), nn.MultiheadAttention(6, 2)),
        (MultiHeadAttention(6, 2, cross=True), nn.MultiheadAttention(6, 2)),
        (MultiHeadAttention(6, 2, packed=False), nn.MultiheadAttention(6, 2)),
        (MultiHeadAttention(6, 2, cross=True, keysize=4), nn.MultiheadAttention(6, 2, kdim=4, vdim=4)),
        (MultiHeadAttention(6, 2, cross=True, keysize=4, valuesize=3), nn.MultiheadAttention(6, 2, kdim=4, vdim=3)),
        (TransformerEncoderLayer(6, 2, 5), nn.TransformerEncoderLayer(6, 2, 5)),
        (TransformerDecoderLayer(6, 2, 5), nn.TransformerDecoderLayer(6, 2, 5)),
        (Transformer(6, 2, 1, 2, inner=5), nn.Transformer(6, 2, 1, 2, 5)),
    ]
    for net, peer in pairs:
        net.load(peer.state_dict(), names="torch")
        net.save(tmp_path / "net.npz", names="torch")
        with np.load(tmp_path / "net.npz") as file:
            made = {name: file[name] for name in file.files}
        state = peer.state_dict()
        assert set(made) == set(state) and all(np.array_equal(made[name], state[name].numpy()) for name in made)


def test_other_layers_of_the_names_q_and_kv_are_saved_as_they_are(tmp_path):
    x = Input(name="x").node()
    net = Graph(x, Linear(4, 3, name="q")(x) + Linear(4, 3, name="kv")(x))
    net.save(tmp_path / "net.npz", names="torch")
    with np.load(tmp_path / "net.npz") as file:
        assert set(file.files) == {"q.weight", "q.bias", "kv.weight", "kv.bias"}
