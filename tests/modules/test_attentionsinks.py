"""Attention with sinks, and its log-sum-exp as an output: next to torch, blind rows, compiled, derivatives, ONNX."""

import numpy as np
import pytest
from leftovers import leftToNumpy
from natively import needsNative

from puregraph.autodiff.forward.forwardmode import hvp, vjp
from puregraph.autodiff.tape.engine import grad
from puregraph.autodiff.tape.variable import Variable
from puregraph.compile.program import Program
from puregraph.core.errors import GraphError, ShapeError
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import Attention, MultiHeadAttention, Sum, Tanh
from puregraph.ops.attention.limits import Limits
from puregraph.ops.random.reference import uniform

OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window": 3, "aligned": "end"},
    "cap": {"causal": True, "cap": 0.7},
    "dropout": {"causal": True, "dropout": 0.4},
}
MASKS = {
    "none": lambda rng: None,
    "bools": lambda rng: rng.random((3, 1, 5, 9)) < 0.8,
    "floats": lambda rng: rng.standard_normal((1, 4, 5, 9)),
}
LENGTHS = np.array([3, 6, 9])


def problem(rng, mask, dtype=np.float64, lengths=LENGTHS):
    """Inputs by name: four heads of queries, two of keys."""
    shapes = {"q": (3, 4, 5, 3), "k": (3, 2, 9, 3), "v": (3, 2, 9, 6)}
    named = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    made = MASKS[mask](rng)
    named |= {} if made is None else {"mask": made if made.dtype == bool else made.astype(dtype)}
    return named | {"lengths": lengths}


def netOf(named, dtype=np.float64, **options):
    """A graph of one Attention, with sinks of different sizes."""
    module = Attention(**options)
    if module.sinks is not None:
        module.sinks.data = np.array([-1.0, 0.3, 2.0, 0.0], dtype)
    nodes = {name: Input(name=name).node() for name in named}
    first = [nodes.pop(name) for name in "qkv"]
    return Graph([*first, *nodes.values()], module.node(*first, **nodes, name="attention")).calcMode(np.dtype(dtype))


def byTorch(net, named, u, w):
    """y, lse, and the gradients of q, k, v and the sinks for sum(u y + w lse), from all scores in torch."""
    import torch

    module = net["attention"]
    leaves = [torch.tensor(named[name], requires_grad=True) for name in "qkv"]
    q, k, v = leaves[0], *(x.repeat_interleave(2, 1) for x in leaves[1:])
    x = q @ k.mT * q.shape[-1] ** -0.5
    x = x if module.cap is None else module.cap * torch.tanh(x / module.cap)
    mask = named.get("mask")
    if mask is not None:
        x = x.masked_fill(~torch.tensor(mask), -torch.inf) if mask.dtype == bool else x + torch.tensor(mask)
    shift = named["lengths"] - 5 if module.aligned == "end" else None
    limits = Limits(shift, named["lengths"], module.window, None)
    x = x.masked_fill(~torch.tensor(limits.visible(named["q"], slice(0, 5), slice(0, 9), module.causal)), -torch.inf)
    sinks = None
    if module.sinks is not None:
        sinks = torch.tensor(module.sinks.data, requires_grad=True)
        x = torch.cat([x, sinks.reshape(1, 4, 1, 1).expand(3, 4, 5, 1)], -1)
    p = torch.softmax(x, -1)[..., :9]
    if module.dropout:
        kept = uniform((3, 4, 5, 9), module.key.data, module.count.data - 1) >= module.dropout
        p = p * torch.tensor(kept) / (1 - module.dropout)
    y, lse = p @ v, torch.logsumexp(x, -1, keepdim=True)
    ((y * torch.tensor(u)).sum() + (lse * torch.tensor(w)).sum()).backward()
    return [x.detach().numpy() for x in (y, lse)], [
        x.grad.numpy() for x in (*leaves, *([] if sinks is None else [sinks]))
    ]


CASES = [(name, mask, sinks) for name in OPTIONS for mask in MASKS for sinks in (4, None)]
BLIND = [
    (name, mask, None) for name, mask, _ in CASES if mask == "bools" or name == "window"
]  # torch's gradient is nan


@pytest.mark.peers
@pytest.mark.parametrize(("name", "mask", "sinks"), [case for case in CASES if case not in BLIND])
def test_values_and_gradients_are_those_of_torch(name, mask, sinks, rng):
    named = problem(rng, mask)
    net = netOf(named, sinks=sinks, lse=True, **OPTIONS[name])
    u, w = rng.standard_normal((3, 4, 5, 6)), rng.standard_normal((3, 4, 5, 1))
    outputs = net(*named.values())
    net.backward([u, w])
    wanted, grads = byTorch(net, named, u, w)
    got = [*net.grad[:3], *([net["attention"].sinks.grad] if sinks else [])]
    for a, b in zip([*outputs, *got], [*wanted, *grads], strict=True):
        assert np.abs(a - b).max() <= 1e-12 * max(1, np.abs(b).max())


@needsNative
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lse", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "dropout"])
def test_compiled_steps_give_values_and_gradients_of_eager_ones(name, mask, lse, dtype, rng, monkeypatch):
    monkeypatch.setenv("PUREGRAPH_VERIFY", "1")
    named = problem(rng, mask, dtype, np.array([0, 6, 9]))
    net = netOf(named, dtype, sinks=4, lse=lse, **OPTIONS[name])
    inputs = list(named.values())
    seeds = [rng.standard_normal((3, 4, 5, size)).astype(dtype) for size in ((6, 1) if lse else (6,))]
    outputs = net(*inputs)
    net.backward(seeds if lse else seeds[0])
    eager = [*net.grad, net["attention"].sinks.grad]
    program = Program(net, [x.shape for x in inputs], [x.dtype for x in inputs], grads=(True,) * len(seeds))
    assert not leftToNumpy(program)
    got = program.run(*inputs, *seeds)
    near = {"rtol": 3e-5, "atol": 3e-5} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-12}
    for a, b in zip(got if lse else [got], outputs if lse else [outputs], strict=True):
        np.testing.assert_allclose(a, b, **near)
    for a, b in zip([*program.grad, net["attention"].sinks.grad], eager, strict=True):
        assert (a is None and b is None) or np.allclose(a, b, **near)


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "dropout"])
def test_second_derivatives_on_the_tape_are_those_of_forward_over_reverse(name, rng):
    named, module = problem(rng, "floats"), Attention(sinks=4, lse=True, **OPTIONS[name])
    module.sinks.data = np.array([-1.0, 0.3, 2.0, 0.0])
    inputs = list(named.values())
    nodes, weights = {name: Input(name=name).node() for name in named}, Input(name="u").node()
    out = module.node(*(nodes[name] for name in "qkv"), mask=nodes["mask"], lengths=nodes["lengths"])
    net = Graph([*nodes.values(), weights], Sum()(Tanh()((out, 0)) * weights * (out, 1))).calcMode(np.float64)
    ws, u = [rng.standard_normal(x.shape) for x in inputs[:4]], rng.standard_normal((3, 4, 5, 6))
    leaves = [Variable(x, requires_grad=x.dtype.kind == "f") for x in inputs]
    first = grad(net(*leaves, u), leaves[:4], create_graph=True)
    second = grad(sum((g * w).sum() for g, w in zip(first, ws)), leaves[:4])
    back = vjp(net, [*inputs, u]).inputs
    products = hvp(net, [*inputs, u], [*ws, *[None] * (len(inputs) - 3)]).inputs
    step = 1e-6
    ends = [vjp(net, [*(x + sign * step * w for x, w in zip(inputs, ws)), LENGTHS, u]).inputs for sign in (1, -1)]
    for mine, twice, g, h, up, down in zip(first, second, back, products, *ends):
        assert np.allclose(mine.data, g, rtol=1e-10, atol=1e-12)
        assert np.allclose(twice.data, h, rtol=1e-9, atol=1e-10)
        assert np.allclose(h, (up - down) / (2 * step), rtol=1e-5, atol=1e-6)


def test_a_row_that_sees_no_key_has_zeros_and_the_logarithm_of_its_sink(rng):
    named = problem(rng, "none", lengths=np.array([0, 4, 9]))
    for sinks in (4, None):
        net = netOf(named, sinks=sinks, lse=True)
        y, lse = net(*named.values())
        net.backward([np.ones_like(y), np.ones_like(lse)])
        assert not y[0].any() and np.isfinite(lse[1:]).all()
        wanted = (
            np.full((4, 5, 1), -np.inf)
            if sinks is None
            else np.tile(net["attention"].sinks.data[:, None, None], (5, 1))
        )
        assert np.array_equal(lse[0], wanted)
        assert all(np.isfinite(g).all() and not g[0].any() for g in net.grad[:3])


def test_a_sink_of_minus_infinity_is_none_and_a_large_one_takes_all(rng):
    q, k, v, _ = problem(rng, "none").values()
    module = Attention(sinks=4).calcMode(np.float64)
    module.sinks.data = np.array([-np.inf, -np.inf, 1e5, 0.0])
    y, without = module(q, k, v), Attention()(q, k, v)
    assert np.allclose(y[:, :2], without[:, :2], rtol=1e-14) and not y[:, 2].any()
    assert (np.abs(y[:, 3]) < np.abs(without[:, 3])).all()


def test_many_heads_have_a_sink_for_each(rng):
    net = MultiHeadAttention(8, heads=4, groups=2, sinks=True)
    assert net["attention"].sinks.shape == (4,)
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    net["attention"].sinks.data = np.full(4, 3, np.float32)
    with_, net["attention"].sinks.data = net(x), np.full(4, -np.inf, np.float32)
    assert np.abs(with_ - net(x)).max() > 1e-3
    with pytest.raises(ShapeError, match="wanted sinks=4, one for each head of q, got 3"):
        Attention(sinks=3).dataShapeFrom((2, 4, 3, 5), (2, 4, 3, 5), (2, 4, 3, 5))


@pytest.mark.parametrize("isFixed", [True, False])
@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "dropout"])
def test_onnx_has_the_sinks_and_refuses_the_log_sum(name, isFixed, rng):
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    from puregraph.onnx import fromOnnx, toOnnx

    named = problem(rng, "floats", np.float32, np.array([0, 6, 9]))
    if isFixed:
        named.pop("lengths")
    net, inputs = netOf(named, np.float32, sinks=4, **OPTIONS[name]), list(named.values())
    open = [("N", 4, "T", 3), ("N", 2, "S", 3), ("N", 2, "S", 6), (1, 4, "T", "S"), ("N",)][: len(inputs)]
    shapes, dtypes = [x.shape for x in inputs] if isFixed else open, [x.dtype for x in inputs]
    model = toOnnx(net, shapes=shapes, dtypes=dtypes)
    onnx.checker.check_model(model)
    got = ReferenceEvaluator(model).run(None, dict(zip([i.name for i in model.graph.input], inputs)))
    for y in (got[0], fromOnnx(model)(*inputs)):
        assert np.allclose(y, net(*inputs), rtol=1e-4, atol=1e-5)
    with pytest.raises(GraphError, match="lse has no operator in ONNX"):
        toOnnx(netOf(named, np.float32, lse=True, **OPTIONS[name]), shapes=shapes, dtypes=dtypes)
