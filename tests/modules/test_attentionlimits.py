"""What limits the keys of a query: offsets, lengths, windows; and capped scores. Eager, compiled, in ONNX, by torch."""

import numpy as np
import pytest
from leftovers import leftToNumpy
from natively import needsNative
from peers import ours

from puregraph.autodiff.forward.forwardmode import hvp, vjp
from puregraph.autodiff.tape.engine import grad
from puregraph.autodiff.tape.variable import Variable
from puregraph.compile.program import Program
from puregraph.core.errors import ArgumentError, ShapeError
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import Attention, Sum, Tanh, Transpose
from puregraph.ops.attention import reference as file
from puregraph.ops.attention.reference import FLOOR, attend

SIZES = {"n": 3, "h": 4, "heads": 2, "t": 5, "s": 9, "d": 3, "e": 6}
OPTIONS = {
    "end": {"causal": True, "aligned": "end"},
    "window": {"causal": True, "window": 3},
    "window at the end": {"causal": True, "window": 2, "aligned": "end"},
    "cap": {"cap": 0.7},
    "all": {"causal": True, "aligned": "end", "window": 4, "cap": 1.3},
}
LENGTHS, OFFSETS = np.array([0, 4, 9]), np.array([-2, 0, 6])


def arrays(rng, dtype=np.float64, n=3, h=4, heads=2, t=5, s=9, d=3, e=6):
    return [rng.standard_normal(x).astype(dtype) for x in ((n, h, t, d), (n, heads, s, d), (n, heads, s, e))]


def visible(module, n, t, s, lengths=None, offset=None):
    """The definition, one key at a time."""
    sees = np.ones((n, 1, t, s), bool)
    for sample in range(n):
        count = s if lengths is None else lengths[sample]
        shift = 0 if offset is None else offset[sample]
        shift = count - t if module.aligned == "end" else shift
        for i in range(t):
            for j in range(s):
                hidden = j >= count or module.causal and j > i + shift
                hidden = hidden or module.window is not None and j <= i + shift - module.window
                sees[sample, 0, i, j] = not hidden
    return sees


def plain(module, q, k, v, mask=None, lengths=None, offset=None):
    """All scores at once."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    x = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    x = x if module.cap is None else module.cap * np.tanh(x / module.cap)
    x = x if mask is None else np.where(mask, x, -np.inf) if mask.dtype == bool else x + mask
    x = np.where(visible(module, len(q), q.shape[2], k.shape[2], lengths, offset), x, -np.inf)
    p = np.exp(x - np.maximum(x.max(axis=-1, keepdims=True), -1e30))
    total = p.sum(axis=-1, keepdims=True)
    return p / np.where(total > 0, total, 1) @ v


def inputsOf(name, rng, dtype=np.float64, isMasked=False):
    """Keyword inputs of a case: with lengths everywhere, with offsets where the module takes them."""
    named = dict(zip("qkv", arrays(rng, dtype)))
    named |= {"mask": rng.standard_normal((1, 4, 5, 9)).astype(dtype)} if isMasked else {}
    named["lengths"] = LENGTHS
    return named | ({"offset": OFFSETS} if name == "window" else {})


def netOf(module, named):
    nodes = {name: Input(name=name).node() for name in named}
    first = [nodes.pop(name) for name in "qkv"]
    return Graph([*first, *nodes.values()], module.node(*first, **nodes))


@pytest.mark.parametrize("block", [1, 3, 100])
@pytest.mark.parametrize("isMasked", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_blocks_of_any_size_give_the_definition(name, isMasked, block, rng, monkeypatch):
    monkeypatch.setattr(file, "BLOCK", block)
    named, module = inputsOf(name, rng, isMasked=isMasked), Attention(**OPTIONS[name])
    y = netOf(module, named)(*named.values())
    assert np.allclose(y, plain(module, **named), rtol=1e-12, atol=1e-13)
    assert not y[0].any() and y[2].any()  # the first sample has no key


def test_causal_alone_still_begins_at_the_first_key_and_end_sees_the_last(rng):
    q, k, v = arrays(rng, n=1, h=2, t=1, s=3)
    assert np.allclose(Attention(causal=True)(q, k, v), v[:, :, :1])
    assert np.allclose(Attention(causal=True, aligned="end")(q, k, v), Attention()(q, k, v))


def test_an_offset_is_where_the_first_query_stands(rng):
    q, k, v = arrays(rng, t=9)
    whole = Attention(causal=True)(q, k, v)
    offset = np.array([0, 3, 7])
    named = {"q": np.stack([x[:, o : o + 2] for x, o in zip(q, offset)]), "k": k, "v": v, "offset": offset}
    net = netOf(Attention(causal=True), named)
    rows = net(*named.values())
    assert np.allclose(rows, np.stack([x[:, o : o + 2] for x, o in zip(whole, offset)]), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "shapes", "error", "words"),
    [
        ({"window": 3}, None, ArgumentError, "window needs causal=True"),
        ({"aligned": "end"}, None, ArgumentError, 'aligned="end" needs causal=True'),
        ({"cap": 0.0}, None, ArgumentError, "cap as a finite number above 0"),
        ({"causal": True, "window": 0}, None, ShapeError, "window as a whole number of at least 1"),
        ({}, {"lengths": (3, 1)}, ShapeError, r"lengths of shape \(2,\)"),
        ({"causal": True}, {"offset": (1,)}, ShapeError, r"offset of shape \(2,\)"),
        ({}, {"offset": (2,)}, ShapeError, "offset needs causal=True"),
        ({"causal": True, "aligned": "end"}, {"offset": (2,)}, ShapeError, 'of no use with aligned="end"'),
    ],
)
def test_limits_that_do_not_fit_are_refused(options, shapes, error, words):
    with pytest.raises(error, match=words):
        module = Attention(**options)
        module.dataShapeFrom((2, 4, 3, 5), (2, 4, 3, 5), (2, 4, 3, 5), **(shapes or {}))


@pytest.mark.parametrize("name", OPTIONS)
def test_second_derivatives_on_the_tape_are_those_of_forward_over_reverse(name, rng):
    named, module = inputsOf(name, rng, isMasked=True), Attention(**OPTIONS[name])
    inputs = list(named.values())
    ws = [rng.standard_normal(x.shape) for x in inputs[:4]]
    u = rng.standard_normal((3, 4, 5, 6))
    leaves = [Variable(x, requires_grad=x.dtype.kind == "f") for x in inputs]
    cost = (np.tanh(netOf(module, named)(*leaves)) * u).sum()
    first = grad(cost, leaves[:4], create_graph=True)
    second = grad(sum((g * w).sum() for g, w in zip(first, ws)), leaves[:4])

    nodes, weights = {name: Input(name=name).node() for name in named}, Input(name="u").node()
    more = {name: node for name, node in nodes.items() if name not in "qkv"}
    y = module.node(*(nodes[name] for name in "qkv"), **more)
    net = Graph([*nodes.values(), weights], Sum()(Tanh()(y) * weights))
    back = vjp(net, [*inputs, u]).inputs
    products = hvp(net, [*inputs, u], [*ws, *[None] * (len(inputs) - 3)]).inputs
    for mine, twice, g, h in zip(first, second, back, products):
        assert np.allclose(mine.data, g, rtol=1e-10, atol=1e-12)
        assert np.allclose(twice.data, h, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("isMasked", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
@needsNative
def test_compiled_steps_give_values_and_gradients_of_eager_ones(name, isMasked, dtype, rng, monkeypatch):
    monkeypatch.setenv("PUREGRAPH_VERIFY", "1")
    named, module = inputsOf(name, rng, dtype, isMasked), Attention(**OPTIONS[name])
    named["lengths"] = LENGTHS.astype(np.int32)
    inputs, net = list(named.values()), netOf(module, named)
    u = rng.standard_normal((3, 4, 5, 6)).astype(dtype)
    y = net(*inputs)
    net.backward(u)
    program = Program(net, [x.shape for x in inputs], [x.dtype for x in inputs], grads=(True,))
    assert not leftToNumpy(program)
    got = program.run(*inputs, u)
    near = {"rtol": 3e-5, "atol": 3e-6} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-12}
    assert np.allclose(got, y, **near)
    for a, b in zip(program.grad, net.grad, strict=True):
        assert (a is None and b is None) or np.allclose(a, b, **near)


@needsNative
@pytest.mark.parametrize("order", [(0, 3, 1, 2), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_a_mask_of_any_strides_is_read_natively(order, rng):
    q, k, v = arrays(rng, np.float32)
    shape = [0] * 4
    for axis, n in zip(order, (1, 4, 5, 9)):
        shape[axis] = n
    table = rng.standard_normal(shape).astype(np.float32)
    nodes = [Input(name=name).node() for name in ("q", "k", "v", "table")]
    net = Graph(nodes, Attention().node(*nodes[:3], mask=Transpose(order).node(nodes[3])))
    inputs = [q, k, v, table]
    program = Program(net, [x.shape for x in inputs], [x.dtype for x in inputs], grads=(True,))
    assert not leftToNumpy(program)
    u = rng.standard_normal((3, 4, 5, 6)).astype(np.float32)
    assert np.allclose(program.run(*inputs, u), net(*inputs), rtol=3e-5, atol=3e-6)
    net.backward(u)
    for a, b in zip(program.grad, net.grad, strict=True):
        assert np.allclose(a, b, rtol=3e-5, atol=3e-5)


def test_a_row_without_keys_has_the_least_log_sum(rng):
    q, k, v = arrays(rng)
    y, lse = attend(q, k, v, None, False, 1.0, (None, LENGTHS, None, None))
    assert (lse[0] == FLOOR).all() and not y[0].any() and (lse[1:] > FLOOR).all()


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("t", [0, 2])
def test_empty_batches_and_queries_pass(n, t, rng):
    q, k, v = arrays(rng, n=n, t=t)
    module = Attention(causal=True, aligned="end", window=2, cap=1.0)
    y = module(q, k, v)
    module.backward(np.ones_like(y))
    assert y.shape == (n, 4, t, 6) and [g.shape for g in module.grad[:3]] == [q.shape, k.shape, v.shape]


@pytest.mark.peers
@pytest.mark.parametrize("name", OPTIONS)
def test_values_and_gradients_are_those_of_torch(name, rng):
    """By its products and softmax with the same mask; the end alignment is that of causal_lower_right."""
    import torch

    module = Attention(**OPTIONS[name])
    inputs, u = arrays(rng), rng.standard_normal((3, 4, 5, 6))
    leaves = [torch.tensor(x, requires_grad=True) for x in inputs]
    q, k, v = leaves[0], *(x.repeat_interleave(2, 1) for x in leaves[1:])
    x = q @ k.mT * q.shape[-1] ** -0.5
    x = x if module.cap is None else module.cap * torch.tanh(x / module.cap)
    x = x.masked_fill(~torch.tensor(visible(module, 3, 5, 9)), -torch.inf)
    y = torch.softmax(x, -1) @ v
    y.backward(torch.tensor(u))
    wanted = [y.detach().numpy(), *(x.grad.numpy() for x in leaves)]
    for a, b in zip(ours(module, inputs, u), wanted, strict=True):
        assert np.abs(a - b).max() <= 1e-12 * max(1, np.abs(b).max())
    if name == "end":
        from torch.nn.attention.bias import causal_lower_right

        again = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(5, 9))
        assert np.allclose(again.detach().numpy(), wanted[0])


@pytest.mark.parametrize("isFixed", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_onnx_has_the_same_limits(name, isFixed, rng):
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    from puregraph.onnx import toOnnx

    named = inputsOf(name, rng, np.float32)
    if isFixed:
        named.pop("lengths")
    module = Attention(**OPTIONS[name])
    net, inputs = netOf(module, named), list(named.values())
    open = [("N", 4, "T", 3), ("N", 2, "S", 3), ("N", 2, "S", 6), *[("N",)] * 2][: len(inputs)]
    shapes = [x.shape for x in inputs] if isFixed else open
    model = toOnnx(net, shapes=shapes, dtypes=[x.dtype for x in inputs])
    onnx.checker.check_model(model)
    got = ReferenceEvaluator(model).run(None, dict(zip([i.name for i in model.graph.input], inputs)))
    assert np.allclose(got[0], net(*inputs), rtol=1e-4, atol=1e-5)
