"""Attention: known values, blocks, masks, shared heads, equality with PyTorch, derivatives of every order."""

import re
import warnings

import numpy as np
import pytest
from peers import ours
from strict import Strict

from puregraph import MSE, SGD, Calculator, Linear, Reshape, Trainer, Validator
from puregraph.autodiff.forward.forwardmode import hvp, vjp
from puregraph.autodiff.tape.engine import grad
from puregraph.autodiff.tape.variable import Variable
from puregraph.core.errors import DtypeError, GraphError, GraphWarning, ShapeError
from puregraph.core.shape import asShape, bind
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import Attention, Sum, Tanh
from puregraph.ops.attention import reference as file
from puregraph.ops.attention.reference import FLOOR, attend, attendGrad
from puregraph.ops.kernel import useFast
from puregraph.testing.check import checkModule


def plain(q, k, v, mask=None, causal=False, scale=None):
    """The definition, all scores at once; zeros for rows that see no key."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    s = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    high = np.maximum(s.max(axis=-1, keepdims=True), -1e30)
    p = np.exp(s - high)
    total = p.sum(axis=-1, keepdims=True)
    return p / np.where(total > 0, total, 1) @ v


def arrays(rng, n=2, h=4, heads=2, t=7, s=9, d=3, e=5, dtype=np.float64):
    shapes = (n, h, t, d), (n, heads, s, d), (n, heads, s, e)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


MASKS = {
    "none": lambda rng: None,
    "bools": lambda rng: rng.random((2, 4, 7, 9)) < 0.6,
    "bools of a batch": lambda rng: rng.random((2, 1, 1, 9)) < 0.7,
    "bools of heads": lambda rng: rng.random((4, 7, 1)) < 0.7,
    "floats": lambda rng: rng.standard_normal((2, 4, 7, 9)),
    "floats for all": lambda rng: rng.standard_normal((7, 9)),
    "floats of keys": lambda rng: rng.standard_normal((9,)),
    "floats of heads": lambda rng: rng.standard_normal((1, 4, 1, 1)),
    "minus infinity": lambda rng: np.where(rng.random((2, 1, 7, 9)) < 0.3, -np.inf, 0.5),
}


@pytest.mark.parametrize("block", [1, 2, 4, 100])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_blocks_of_any_size_give_the_definition(name, causal, block, rng, monkeypatch):
    q, k, v = arrays(rng)
    mask = MASKS[name](rng)
    inputs = [q, k, v] + [mask] * (mask is not None)
    module = Attention(causal=causal)
    u = rng.standard_normal((2, 4, 7, 5))
    whole = [module(*inputs), *(module.backward(u), module.grad)[1]]
    monkeypatch.setattr(file, "BLOCK", block)
    parts = [module(*inputs), *(module.backward(u), module.grad)[1]]
    assert np.allclose(whole[0], plain(q, k, v, mask, causal), rtol=1e-13, atol=1e-14)
    for a, b in zip(whole, parts, strict=True):
        assert (a is None and b is None) or np.allclose(a, b, rtol=1e-12, atol=1e-13)


def test_a_row_that_sees_no_key_is_zero_and_so_are_its_gradients(rng):
    q, k, v = arrays(rng)
    mask = rng.random((2, 4, 7, 9)) < 0.5
    mask[:, :, 3] = False
    for given in (mask, np.where(mask, 0.0, -np.inf), np.where(mask, 0.0, np.finfo(np.float64).min)):
        module = Attention()
        with np.errstate(all="raise", under="ignore"):
            y = module(q, k, v, given)
            module.backward(np.ones_like(y))
        assert not y[:, :, 3].any() and y[:, :, 2].any()
        gq, gk, gv, *_ = module.grad
        assert not gq[:, :, 3].any() and all(np.isfinite(g).all() for g in (gq, gk, gv))
        _, lse = attend(q, k, v, given, False, 1.0)
        assert (lse[:, :, 3] == FLOOR).all() and (lse[:, :, 2] > FLOOR).all()
    hidden = np.zeros((2, 4, 7, 9), bool)
    assert not Attention()(q, k, v, hidden).any()


def test_known_values():
    q, k = np.zeros((1, 1, 2, 4)), np.ones((1, 1, 3, 4))
    v = np.array([3.0, 6.0, 0.0]).reshape(1, 1, 3, 1)
    assert np.allclose(Attention()(q, k, v)[0, 0, :, 0], [3, 3])  # equal scores: the mean
    assert np.allclose(Attention(causal=True)(q, k, v)[0, 0, :, 0], [3, 4.5])
    strong = np.array([[0.0, 0, 1, 0]]).reshape(1, 1, 1, 4)
    keys = np.eye(4)[:3].reshape(1, 1, 3, 4)
    assert np.allclose(Attention(scale=1000.0)(strong, keys, v)[0, 0, 0, 0], 0)  # all weight on the third
    one = np.log(2) * strong
    assert np.isclose(Attention(scale=1.0)(one, keys, v)[0, 0, 0, 0], (3 + 6 + 0) / 4)
    assert np.isclose(Attention()(one, keys, v)[0, 0, 0, 0], 9 / (2 + np.sqrt(2)))  # 1 / sqrt 4


def test_large_scores_do_not_overflow(rng):
    q, k, v = arrays(rng, dtype=np.float32)
    with np.errstate(over="raise", invalid="raise"):
        assert np.isfinite(Attention()(1e4 * q, 1e4 * k, v)).all()


@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_computes_in_single(causal, rng):
    q, k, v = arrays(rng, t=40, s=50, d=16, dtype=np.float16)
    module = Attention(causal=causal)
    y = module(q, k, v)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    assert y.dtype == np.float16
    assert np.abs(y - plain(*wide, causal=causal)).max() < 2e-3
    module.backward(np.ones_like(y))
    got = module.grad
    module(*wide)
    module.backward(np.ones(y.shape))
    for a, b in zip(got[:3], module.grad):
        assert a.dtype == np.float16 and np.abs(a - b).max() < 4e-3 * max(1, np.abs(b).max())


def test_memory_grows_with_the_sum_of_lengths(rng, monkeypatch):
    import tracemalloc

    def peak(t):
        inputs = [rng.standard_normal((1, 2, t, 8), np.float32) for _ in range(3)]
        module = Attention(causal=True)
        tracemalloc.start()
        with useFast(False):  # compiling native code takes memory once
            module.backward(np.ones_like(module(*inputs)))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    monkeypatch.setattr(file, "BLOCK", 32)
    small, large = peak(256), peak(1024)
    assert large < 5 * small and large < 2 * 1024 * 1024 * 4  # all scores alone would take that


# Shapes ---------------------------------------------------------------------------------------------------------------


def test_symbols_are_carried_through():
    q, k, v = asShape(("N", 8, "T", 64)), asShape(("N", 2, "S", 64)), asShape(("N", 2, "S", 32))
    assert Attention().dataShapeFrom(q, k, v) == ("N", 8, "T", 32)
    assert Attention().dataShapeFrom(q, k, v, asShape(("N", 1, 1, "S"))) == ("N", 8, "T", 32)
    flops = Attention().flopsFrom(q, k, v)
    assert bind((flops,), {"N": 3, "T": 5, "S": 7}) == (
        Attention().flopsFrom((3, 8, 5, 64), (3, 2, 7, 64), (3, 2, 7, 32)),
    )


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ([(2, 4, 3, 5), (2, 4, 3), (2, 4, 3, 5)], r"wanted \(n, h, t, d\), \(n, h / g"),
        ([(2, 4, 3, 5), (2, 4, 3, 6), (2, 4, 3, 5)], "q and k have one d"),
        ([(2, 4, 3, 5), (2, 4, 3, 5), (2, 4, 2, 5)], "k and v have one s"),
        ([(2, 4, 3, 5), (1, 4, 3, 5), (1, 4, 3, 5)], "all have one n"),
        ([(2, 4, 3, 5), (2, 3, 3, 5), (2, 3, 3, 5)], "a multiple of the 3 of k"),
        ([(2, 0, 3, 5), (2, 2, 3, 5), (2, 2, 3, 5)], "a multiple of the 2 of k"),
        ([(2, 4, 3, 5), (2, 4, 0, 5), (2, 4, 0, 5)], "at least one key"),
        ([(2, 4, 3, 5)] * 3 + [(2, 4, 3, 4)], "shapes that broadcast"),
        ([(2, 4, 3, 5)] * 3 + [(5, 2, 4, 3, 3)], r"a mask that broadcasts to \(2, 4, 3, 3\)"),
        ([(1, 4, 3, 5)] * 3 + [(2, 1, 1, 1)], r"a mask that broadcasts to \(1, 4, 3, 3\)"),
    ],
)
def test_what_does_not_fit_is_refused(shapes, words):
    with pytest.raises(ShapeError, match=words):
        Attention().dataShapeFrom(*shapes)


def test_a_mask_of_whole_numbers_is_refused(rng):
    with pytest.raises(DtypeError, match=r"wanted bools or floats for mask, got int64; convert with .astype\(bool\)"):
        Attention()(*arrays(rng), np.ones((7, 9), np.int64))


class Hiding(Attention):
    """y as Attention has it, with a mask of bools.

    Shapes    as Attention
    Source    Attention
    """

    def sample(self, rng, *shapes):
        *rest, mask = shapes
        return [*(rng.standard_normal(s) for s in rest), rng.random(mask) < 0.6]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [(2, 4, 3, 5), (2, 1, 1, 5), (5,), (1, 4, 3, 1)])
def test_a_mask_of_bools_keeps_every_promise(causal, mask):
    checkModule(Hiding(causal), [(2, 4, 3, 2), (2, 2, 5, 2), (2, 2, 5, 3), mask])


def test_in_a_graph_the_mask_may_be_left_out_or_named(rng):
    q, k, v = arrays(rng)
    mask = rng.random((7, 9)) < 0.5
    a, b, c, m = (Input(name=name).node() for name in "qkvm")
    open, hidden = Graph([a, b, c], Attention().node(a, b, c)), Graph([a, b, c, m], Attention().node(a, b, c, mask=m))
    assert np.array_equal(open(q, k, v), Attention()(q, k, v))
    assert np.array_equal(hidden(q, k, v, mask), Attention()(q, k, v, mask))
    hidden.backward(np.ones((2, 4, 7, 5)))
    assert hidden.grad[3] is None and hidden.grad[0].shape == q.shape


def test_a_graph_that_begins_with_attention_takes_a_mask_or_none(rng):
    q, k, v = arrays(rng)
    node = Attention(name="mix").node()
    net, mask = Graph(node, node), rng.standard_normal((7, 9))
    for inputs in ([q, k, v], [q, k, v, mask]):
        y = net(inputs)
        net.backward(np.ones_like(y))
        assert np.array_equal(y, Attention()(*inputs)) and len(net.grad) == len(inputs)
        assert net.dataShapeFrom([x.shape for x in inputs]) == y.shape
    with pytest.raises(GraphError, match=r"wanted 3 inputs \(mix.q, mix.k, mix.v\), got 7"):
        net([q, k, v, mask, mask, mask, mask])


# On arrays that are not numpy's, and derivatives ----------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_the_kernels_run_on_device_arrays(causal, rng, monkeypatch):
    monkeypatch.setattr(file, "BLOCK", 3)
    q, k, v = arrays(rng)
    mask, g, rest = (rng.standard_normal(s) for s in ((2, 1, 7, 9), (2, 4, 7, 5), (2, 4, 7, 1)))
    y, lse = attend(q, k, v, mask, causal, 0.5)
    wanted = [y, lse, *attendGrad(g, q, k, v, mask, lse, rest, causal, 0.5, True)]
    moved = [Strict(x) for x in (q, k, v, mask)]
    y, lse = attend.reference(*moved, causal, 0.5)
    got = [y, lse, *attendGrad.reference(Strict(g), *moved, lse, Strict(rest), causal, 0.5, True)]
    for a, b in zip(got, wanted, strict=True):
        assert isinstance(a, Strict) and np.array_equal(a.values, b)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["none", "bools", "floats", "floats of keys", "floats of heads"])
def test_second_derivatives_on_the_tape_are_those_of_forward_over_reverse(name, causal, rng):
    q, k, v = arrays(rng)
    mask = MASKS[name](rng)
    inputs = [q, k, v] + [mask] * (mask is not None)
    ws = [rng.standard_normal(x.shape) for x in inputs if x.dtype.kind == "f"]
    u = rng.standard_normal((2, 4, 7, 5))
    leaves = [Variable(x, requires_grad=x.dtype.kind == "f") for x in inputs]
    floats = [x for x in leaves if x.requires_grad]
    cost = (np.tanh(Attention(causal)(*leaves)) * u).sum()
    first = grad(cost, floats, create_graph=True)
    dot = sum((g * w).sum() for g, w in zip(first, ws))
    second = grad(dot, floats)

    nodes = [Input(name=name).node() for name in "qkvm"[: len(inputs)]]
    weights = Input(name="u").node()
    net = Graph([*nodes, weights], Sum()(Tanh()(Attention(causal).node(*nodes)) * weights))
    back = vjp(net, [*inputs, u]).inputs
    products = hvp(net, [*inputs, u], [*ws, *[None] * (len(inputs) + 1 - len(ws))]).inputs
    for mine, twice, g, h in zip(first, second, back, products):
        assert np.allclose(mine.data, g, rtol=1e-10, atol=1e-12)
        assert np.allclose(twice.data, h, rtol=1e-9, atol=1e-11)


# Against PyTorch ------------------------------------------------------------------------------------------------------


@pytest.mark.peers
@pytest.mark.parametrize("block", [3, 256])
@pytest.mark.parametrize(
    ("name", "causal"), [("none", True), *((n, False) for n in MASKS if "heads" not in n and n != "minus infinity")]
)
def test_values_and_all_gradients_are_those_of_torch(name, causal, block, rng, monkeypatch):
    import torch

    monkeypatch.setattr(file, "BLOCK", block)
    inputs = arrays(rng)
    mask = MASKS[name](rng)
    if mask is not None:
        if mask.dtype == bool:
            mask[..., 0] = True  # torch gives NaN for rows without a key
        inputs.append(mask)
    u = rng.standard_normal((2, 4, 7, 5))
    got = ours(Attention(causal), inputs, u)
    leaves = [torch.tensor(x, requires_grad=x.dtype.kind == "f") for x in inputs]
    y = torch.nn.functional.scaled_dot_product_attention(
        leaves[0],
        leaves[1].repeat_interleave(2, 1),
        leaves[2].repeat_interleave(2, 1),
        attn_mask=leaves[3] if mask is not None else None,
        is_causal=causal,
    )
    y.backward(torch.tensor(u))
    wanted = [y.detach().numpy(), *(x.grad.numpy() for x in leaves if x.requires_grad)]
    for a, b in zip(got, wanted, strict=True):
        assert np.abs(a - b).max() <= 1e-12 * max(1, np.abs(b).max())


def masked():
    """Attention with a mask behind a view, in a graph."""
    nodes = [Input(name=name).node() for name in ("q", "k", "v", "mask")]
    return Graph(nodes, Attention(name="read").node(*nodes[:3], mask=Reshape((0, 1, 7, 9)).node(nodes[3])))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_floats_of_0_and_1_that_hide_nothing_are_told(rng, kind):
    mask = (rng.random((2, 7, 9)) < 0.6).astype(kind)
    wanted = r"the mask holds 0 and 1 as floats.*give mask.astype\(bool\)"
    with pytest.warns(GraphWarning, match=wanted):
        masked()(*arrays(rng, dtype=kind), mask)
    with pytest.warns(GraphWarning, match=wanted):
        Attention()(*arrays(rng, dtype=kind), mask[:, None])
    net, data = masked(), [*arrays(rng, dtype=np.float32), mask.astype(np.float32)]
    net = Graph(net.inputs, Linear(5, 5, name="fc").node(net.outputs[0]))
    trainer = Trainer(net, MSE(), SGD(0.1), batchsize=2, progress="none", shuffle=False)
    with pytest.warns(GraphWarning, match=rf"'read' \(Attention\): {wanted}"):
        trainer.train(data, np.zeros((2, 4, 7, 5), np.float32))


@pytest.mark.parametrize("isCompiled", [True, False])
def test_floats_of_0_and_1_that_hide_nothing_are_told_where_a_network_is_only_run(rng, isCompiled):
    mask = (rng.random((2, 7, 9)) < 0.6).astype(np.float32)
    net, data = masked(), [*arrays(rng, dtype=np.float32), mask]
    wanted = r"'read' \(Attention\): the mask holds 0 and 1 as floats.*give mask.astype\(bool\)"
    for run in (Calculator(net, compile=isCompiled).calculate, Validator(net, MSE(), compile=isCompiled).validate):
        more = () if run.__name__ == "calculate" else (np.zeros((2, 4, 7, 5), np.float32),)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            run(data, *more)
        assert any(re.search(wanted, str(one.message)) for one in told)
        run([*data[:3], mask > 0], *more)


@pytest.mark.parametrize("make", [np.zeros, np.ones, lambda shape: np.tri(*shape[1:])[None] * np.ones(shape) - 1])
def test_masks_that_are_added_on_purpose_are_not_told(rng, make):
    masked()(*arrays(rng), make((2, 7, 9)).astype(np.float64))
    masked()(*arrays(rng), rng.random((2, 7, 9)) < 0.6)
