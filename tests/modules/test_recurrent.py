"""RNN, LSTM and GRU: cells by hand, directions, lengths, states, PyTorch's values and gradients, long sequences."""

import numpy as np
import pytest
from peers import prepared

from puregraph import Graph, Input, Sequential
from puregraph.autodiff import Checkpoint, Variable, grad, vjp
from puregraph.core.errors import ArgumentError, DataError, ShapeError
from puregraph.core.shape import asShape
from puregraph.models import lstm
from puregraph.modules import GRU, LSTM, RNN, Linear
from puregraph.testing.check import checkModule

KINDS = [RNN, LSTM, GRU]
GATES = {RNN: 1, LSTM: 4, GRU: 3}


def s(a):
    return 1 / (1 + np.exp(-a))


def known(kind, **options):
    """One cell of one unit, with weights that are easy to follow."""
    module = kind(1, 1, **options).calcMode(np.float64)
    gates = GATES[kind]
    module.W.data = np.arange(1.0, gates + 1)[None] / 2
    module.U.data = np.arange(1.0, gates + 1)[None] / 4
    module.b.data = np.full(gates, 0.1)
    return module


# By hand --------------------------------------------------------------------------------------------------------------


def test_a_simple_cell_by_hand():
    y = known(RNN)(np.array([[[1.0], [-2.0]]]))[0, :, 0]
    h1 = np.tanh(0.5 + 0.1)
    assert np.allclose(y, [h1, np.tanh(-1 + 0.1 + h1 / 4)], rtol=1e-15)


def test_a_rectified_cell_by_hand():
    assert known(RNN, mode="relu")(np.array([[[1.0], [-2.0], [4.0]]]))[0, :, 0].tolist() == [0.6, 0.0, 2.1]


def test_long_short_term_memory_by_hand():
    module = known(LSTM, outputs=("y", "h", "c"))
    y, h, c = module(np.array([[[1.0], [-2.0]]]))
    wantedH = wantedC = 0.0
    for x in (1.0, -2.0):
        i, f, g, o = (k * x / 2 + 0.1 + k * wantedH / 4 for k in (1, 2, 3, 4))
        wantedC = s(f) * wantedC + s(i) * np.tanh(g)
        wantedH = s(o) * np.tanh(wantedC)
    assert np.allclose([h[0, 0], c[0, 0]], [wantedH, wantedC], rtol=1e-14)
    assert y.shape == (1, 2, 1) and y[0, 1] == h[0]


def test_a_gated_unit_by_hand():
    module = known(GRU)
    module.d.data = np.array([0.3])
    y = module(np.array([[[1.0], [-2.0]]]))[0, :, 0]
    h, wanted = 0.0, []
    for x in (1.0, -2.0):
        r, z = (s(k * x / 2 + 0.1 + k * h / 4) for k in (1, 2))
        g = np.tanh(1.5 * x + 0.1 + r * (0.75 * h + 0.3))
        h = (1 - z) * g + z * h
        wanted.append(h)
    assert np.allclose(y, wanted, rtol=1e-14)


def test_the_gradient_of_a_sum_by_hand():
    module = known(RNN, mode="relu")
    x = np.array([[[1.0], [2.0]]])  # h1 = 0.6, h2 = 1 + 0.1 + 0.15
    module(x)
    module.backward(np.ones((1, 2, 1)))
    assert np.allclose(module.grad[0][..., 0], [[0.5 * 1.25, 0.5]])
    assert np.allclose(module.W.grad, [[1.0 * 1.25 + 2.0]])
    assert np.allclose(module.U.grad, [[0.6]]) and np.allclose(module.b.grad, [2.25])


# Beginnings -----------------------------------------------------------------------------------------------------------


def test_recurrent_weights_start_orthogonal_and_the_forget_gate_open():
    module = LSTM(3, 5, direction="bi").calcMode(np.float64)
    for block in np.split(module.U.data, 8, axis=1):
        assert np.allclose(block @ block.T, np.eye(5))
    assert module.b.data.tolist() == ([0] * 5 + [1] * 5 + [0] * 10) * 2
    assert GRU(3, 5).b.data.any() == GRU(3, 5).d.data.any() == False  # noqa: E712
    none = GRU(3, 5, useBias=False)
    assert none.b is none.d is None and list(none.params) == ["W", "U"]


# States and outputs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_may_be_read_in_two_parts(kind, rng):
    states = ("h", "c") if kind is LSTM else ("h",)
    module = prepared(kind(3, 4, outputs=("y", *states)), rng)
    x = rng.standard_normal((2, 7, 3))
    y, *last = module(x)
    first, *carried = module(x[:, :3])
    second, *end = module(x[:, 3:], *carried)
    assert np.allclose(np.concatenate([first, second], axis=1), y, rtol=1e-14)
    assert all(np.allclose(a, b, rtol=1e-14) for a, b in zip(end, last, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_those_that_were_asked_for_in_that_order(kind, rng):
    x = rng.standard_normal((2, 5, 3))
    y = prepared(kind(3, 4), np.random.default_rng(0))(x)
    h, again = prepared(kind(3, 4, outputs=["h", "y"]), np.random.default_rng(0))(x)
    assert np.array_equal(again, y) and np.array_equal(h, y[:, -1])
    assert np.array_equal(prepared(kind(3, 4, outputs="h"), np.random.default_rng(0))(x), h)


@pytest.mark.parametrize("kind", KINDS)
def test_two_directions_are_two_layers_side_by_side(kind, rng):
    both = prepared(kind(3, 4, direction="bi", outputs=("y", "h")), rng)
    x = rng.standard_normal((2, 5, 3))
    y, h = both(x)
    half = GATES[kind] * 4
    for part, turn in ((slice(0, half), 1), (slice(half, None), -1)):
        one = kind(3, 4).calcMode(np.float64)
        for name in ("W", "U", "b"):
            getattr(one, name).data = getattr(both, name).data[..., part]
        if kind is GRU:
            one.d.data = both.d.data[:4] if turn == 1 else both.d.data[4:]
        side = slice(0, 4) if turn == 1 else slice(4, 8)
        wanted = one(x[:, ::turn])
        assert np.allclose(y[..., side], wanted[:, ::turn], rtol=1e-13)
        assert np.allclose(h[:, side], wanted[:, -1], rtol=1e-13)


def test_layers_stand_behind_one_another_in_a_sequential(rng):
    net = Sequential(LSTM(3, 4, direction="bi"), GRU(8, 5), RNN(5, 6, outputs="h"), Linear(6, 2))
    assert net.dataShapeFrom(("N", "T", 3)) == ("N", 2)
    assert net(rng.standard_normal((4, 9, 3)).astype("f")).shape == (4, 2)


def test_states_go_from_an_encoder_to_a_decoder(rng):
    x, t = Input(name="x").node(), Input(name="t").node()
    encoder = LSTM(3, 4, outputs=("h", "c"), name="encoder")(x)
    net = Graph([x, t], LSTM(2, 4, name="decoder").node(t, (encoder, "h"), (encoder, "c"))).calcMode(np.float64)
    assert net.dataShapeFrom([("N", "S", 3), ("N", "T", 2)]) == ("N", "T", 4)
    y = net([rng.standard_normal((5, 6, 3)), rng.standard_normal((5, 2, 2))])
    net.backward(np.ones_like(y))
    assert net.grad[0].shape == (5, 6, 3) and net.grad[0].any() and net.params["encoder.U"].grad.any()


# Lengths --------------------------------------------------------------------------------------------------------------


def masked(kind, x, lengths, direction="bi", **options):
    """A graph in which only the lengths are given besides x."""
    a, b = Input(name="x").node(), Input(name="lengths").node()
    return Graph([a, b], kind(x.shape[2], 4, direction=direction, **options).node(a, lengths=b, name="cell"))


@pytest.mark.parametrize("kind", KINDS)
def test_padding_counts_for_nothing_whatever_it_holds(kind, rng):
    x, lengths = rng.standard_normal((4, 5, 3)), np.array([5, 2, 0, 3])
    net = masked(kind, x, lengths, outputs=("y", "h")).calcMode(np.float64)
    for i, n in enumerate(lengths):
        x[i, n:] = (np.nan, np.inf, 1e300)
    y, h = net([x, lengths])
    gy, gh = rng.standard_normal(y.shape), rng.standard_normal(h.shape)
    net.backward([gy, gh])
    gx, params = net.grad[0], {path: p.grad for path, p in net.params.items()}
    total = dict.fromkeys(params, 0.0)
    cell = net["cell"]
    for i, n in enumerate(lengths):
        assert not y[i, n:].any() and not gx[i, n:].any()
        if n:
            alone, last = cell(x[i : i + 1, :n])
            cell.backward([gy[i : i + 1, :n], gh[i : i + 1]])
            assert np.allclose(y[i, :n], alone[0], rtol=1e-13) and np.allclose(h[i], last[0], rtol=1e-13)
            assert np.allclose(gx[i, :n], cell.grad[0][0], rtol=1e-11)
            for path in total:
                total[path] = total[path] + cell.params[path.rpartition(".")[2]].grad
        else:
            assert not h[i].any()
    for path, g in params.items():
        assert np.allclose(g, total[path], rtol=1e-11, atol=1e-13), path


def test_a_state_that_is_left_out_is_left_out_on_every_way(rng):
    x, c0, lengths = rng.standard_normal((2, 5, 3)), rng.standard_normal((2, 4)), np.array([3, 5])
    module = LSTM(3, 4).calcMode(np.float64)
    wanted, ones = module(x, None, c0, lengths), np.ones((2, 5, 4))
    module.backward(ones)
    gx, gh, gc, _ = module.grad
    assert gh is None and gc.any()
    for made in (module, Checkpoint(module)):
        ins = [Input(name=name).node() for name in ("x", "c0", "lengths")]
        net = Graph(ins, made.node(ins[0], c0=ins[1], lengths=ins[2]))
        assert np.array_equal(net([x, c0, lengths]), wanted)
        net.backward(ones)
        assert np.array_equal(net.grad[0], gx) and np.array_equal(net.grad[1], gc) and net.grad[2] is None
        assert np.array_equal(vjp(net, [x, c0, lengths], ones).inputs[1], gc)
    leaves = Variable(x, requires_grad=True), Variable(c0, requires_grad=True)
    y = module(leaves[0], None, leaves[1], lengths)
    assert np.array_equal(y.data, wanted)
    assert all(np.array_equal(a.data, b) for a, b in zip(grad(y, leaves, ones), (gx, gc), strict=True))


def test_wrong_lengths_are_refused(rng):
    x = rng.standard_normal((2, 3, 1)).astype("f")
    for wrong in (4, -1):
        with pytest.raises(DataError, match=f"GRU: wanted lengths from 0 to 3, the time steps of x, got {wrong}"):
            masked(GRU, x, None)([x, np.array([1, wrong])])
    with pytest.raises(DataError, match="lengths in whole numbers, got float64"):
        GRU(1, 2).updateData(x, None, np.array([1.0, 2.0]), *GRU(1, 2).ruleValues())


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_that_do_not_fit_are_refused(kind):
    module = kind(3, 4, direction="bi", outputs=("y", "h"))
    assert module.dataShapeFrom(asShape(("N", "T", 3))) == [("N", "T", 8), ("N", 8)]
    with pytest.raises(ShapeError, match=r"wanted \(n, t, 3\), got \(5, 3\); samples first, then time steps"):
        module.dataShapeFrom((5, 3))
    with pytest.raises(ShapeError, match="at least one time step"):
        module.dataShapeFrom((5, 0, 3))
    with pytest.raises(ShapeError, match=r"h0 of shape \(5, 8\), got \(5, 4\)"):
        module.dataShapeFrom((5, 2, 3), (5, 4))


def test_options_that_are_none_are_refused():
    with pytest.raises(ArgumentError, match="direction as one of 'uni', 'bi', got 'both'"):
        LSTM(3, 4, direction="both")
    with pytest.raises(ShapeError, match="outputs among 'y', 'h', each once, got 'c'"):
        GRU(3, 4, outputs="c")
    with pytest.raises(ShapeError, match="outputs among 'y', 'h', 'c', each once"):
        LSTM(3, 4, outputs=("h", "h"))
    with pytest.raises(ArgumentError, match="mode as one of 'tanh', 'relu', got 'lstm'; gated cells are LSTM and GRU"):
        RNN(3, 4, mode="lstm")
    with pytest.raises(ShapeError, match="hsize as a whole number of at least 1, got 0"):
        GRU(3, 0)


# Numbers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("direction", ["uni", "bi"])
def test_all_that_a_module_promises_with_everything_given(kind, direction):
    d = 2 if direction == "bi" else 1
    states = ("h", "c") if kind is LSTM else ("h",)
    shapes = [(3, 4, 2), *[(3, 3 * d)] * len(states), (3,)]
    checkModule(kind(2, 3, direction=direction, outputs=(*states, "y")), shapes)


@pytest.mark.parametrize("kind", KINDS)
def test_five_hundred_moments_stay_finite(kind, rng):
    module = kind(4, 8, direction="bi")
    x = 100 * rng.standard_normal((2, 500, 4)).astype("f")
    y = module(x)
    module.backward(np.ones_like(y))
    assert np.abs(y).max() <= 1
    assert all(np.isfinite(g).all() for g in (module.grad[0], *(p.grad for p in module.params.values())))


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_sequence_has_the_gradient_of_central_differences(kind, rng):
    module = kind(2, 3, outputs="h").calcMode(np.float64)
    x, v = rng.standard_normal((1, 500, 2)), rng.standard_normal(module.U.shape)
    u = rng.standard_normal(module(x).shape)
    module.backward(u)
    grad, U, step = np.sum(module.U.grad * v), module.U.data, 1e-6
    ends = []
    for at in (U + step * v, U - step * v):
        module.U.data = at
        ends.append(np.sum(u * module(x)))
    assert np.isclose(grad, (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_no_sample_gives_no_gradient(kind):
    module = kind(3, 4)
    y = module(np.zeros((0, 5, 3), "f"))
    module.backward(y)
    assert y.shape == (0, 5, 4) and not module.W.grad.any() and module.U.grad.shape == module.U.shape


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_on_a_tape_have_gradients(kind, rng):
    module = prepared(kind(3, 4, direction="bi"), rng)
    x, v = rng.standard_normal((2, 5, 3)), rng.standard_normal((2, 5, 3))

    def slope(at, further=False):
        leaf = Variable(at, requires_grad=True)
        (g,) = grad((module(leaf) ** 2).sum(), [leaf], create_graph=further)
        return leaf, g

    leaf, g = slope(x, True)
    (second,) = grad((g * v).sum(), [leaf])
    far, near = (np.asarray(slope(x + step * v)[1].data) for step in (1e-6, -1e-6))
    assert np.allclose(second.data, (far - near) / 2e-6, rtol=1e-6, atol=1e-7)


# Against PyTorch ------------------------------------------------------------------------------------------------------


def twin(module, mode="tanh"):
    """PyTorch's module with the same weights, and what its gradients are called here."""
    import torch

    kind, bi = type(module), module.sides == 2
    options = {"nonlinearity": mode} if kind is RNN else {}
    peer = getattr(torch.nn, kind.__name__)(
        module.W.shape[0], module.hsize, batch_first=True, bidirectional=bi, **options
    )
    peer = peer.double()
    for i in range(module.sides):
        rows = slice(i * GATES[kind] * module.hsize, (i + 1) * GATES[kind] * module.hsize)
        end = "l0_reverse" if i else "l0"
        second = np.zeros(GATES[kind] * module.hsize)
        if kind is GRU:
            second[2 * module.hsize :] = module.d.data[i * module.hsize : (i + 1) * module.hsize]
        for name, value in (
            ("weight_ih", module.W.data[:, rows].T),
            ("weight_hh", module.U.data[:, rows].T),
            ("bias_ih", module.b.data[rows]),
            ("bias_hh", second),
        ):
            getattr(peer, f"{name}_{end}").data = torch.from_numpy(np.array(value))
    return peer


def gathered(peer, module):
    """The gradients of PyTorch's weights, laid out as ours."""
    ends = ["l0", "l0_reverse"][: module.sides]
    found = {"W": [], "U": [], "b": [], "d": []}
    for end in ends:
        found["W"].append(getattr(peer, f"weight_ih_{end}").grad.numpy().T)
        found["U"].append(getattr(peer, f"weight_hh_{end}").grad.numpy().T)
        found["b"].append(getattr(peer, f"bias_ih_{end}").grad.numpy())
        found["d"].append(getattr(peer, f"bias_hh_{end}").grad.numpy()[-module.hsize :])
    return {name: np.concatenate(found[name], axis=-1) for name in module.params}


def states(t):
    """(sides, n, hsize) of PyTorch as (n, sides hsize)."""
    return t.detach().numpy().transpose(1, 0, 2).reshape(t.shape[1], -1)


def near(a, b, tolerance=1e-12):
    assert a.shape == b.shape
    assert np.abs(a - b).max() <= tolerance * max(1.0, np.abs(b).max())


@pytest.mark.peers
@pytest.mark.parametrize("lengths", [None, [6, 2, 4, 1]])
@pytest.mark.parametrize("direction", ["uni", "bi"])
@pytest.mark.parametrize(("kind", "mode"), [(RNN, "tanh"), (RNN, "relu"), (LSTM, ""), (GRU, "")])
def test_values_and_all_gradients_are_pytorch_s(kind, mode, direction, lengths, rng):
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    names = ("h", "c") if kind is LSTM else ("h",)
    options = {"mode": mode} if kind is RNN else {}
    module = kind(3, 5, direction=direction, outputs=("y", *names), **options).calcMode(np.float64)
    for p in module.params.values():
        p.data = 0.5 * rng.standard_normal(p.shape)
    peer, d = twin(module, mode or "tanh"), module.sides
    x, first = rng.standard_normal((4, 6, 3)), [rng.standard_normal((4, 5 * d)) for _ in names]
    gy, *glast = rng.standard_normal((4, 6, 5 * d)), *(rng.standard_normal((4, 5 * d)) for _ in names)

    tx = torch.from_numpy(x.copy()).requires_grad_()
    given = [torch.from_numpy(v.reshape(4, d, 5).transpose(1, 0, 2).copy()).requires_grad_() for v in first]
    fed = tx if lengths is None else pack_padded_sequence(tx, torch.tensor(lengths), True, enforce_sorted=False)
    ty, last = peer(fed, tuple(given) if kind is LSTM else given[0])
    last = last if kind is LSTM else [last]
    if lengths is not None:
        ty, _ = pad_packed_sequence(ty, batch_first=True)
    cost = (ty * torch.from_numpy(gy)).sum()
    for t, g in zip(last, glast):
        cost = cost + (t * torch.from_numpy(g.reshape(4, d, 5).transpose(1, 0, 2).copy())).sum()
    cost.backward()

    y, *end = module(x, *first, *([] if lengths is None else [np.array(lengths)]))
    module.backward([gy, *glast])
    near(y, ty.detach().numpy())
    for mine, theirs in zip(end, last, strict=True):
        near(mine, states(theirs))
    near(module.grad[0], tx.grad.numpy())
    for mine, theirs in zip(module.grad[1:], given):
        near(mine, states(theirs.grad))
    for name, theirs in gathered(peer, module).items():
        near(module.params[name].grad, theirs)


@pytest.mark.peers
def test_the_model_of_two_layers_is_pytorch_s(rng):
    import torch

    net = lstm(3, 4, classes=5, direction="bi").calcMode(np.float64)
    peer = torch.nn.LSTM(3, 4, num_layers=2, batch_first=True, bidirectional=True).double()
    for i in range(2):
        layer = net[f"lstm{i + 1}"]
        one = twin(layer)
        for name, p in one.named_parameters():
            getattr(peer, name.replace("l0", f"l{i}")).data = p.data
    x = rng.standard_normal((2, 7, 3))
    _, (h, _) = peer(torch.from_numpy(x))
    near(net(x), states(h[2:]) @ net["out"].W.data + net["out"].b.data)
