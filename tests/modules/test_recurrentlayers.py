"""Recurrent layers one after another and cells in a Scan: next to single layers, and torch's with its state dict."""

import numpy as np
import pytest

from puregraph import (
    ArgumentError,
    GRUCell,
    Input,
    LSTMCell,
    RecurrentLayers,
    RNNCell,
    Scan,
    Sequential,
    modules,
    summary,
)
from puregraph.graph import Graph

CELLS = {"LSTM": LSTMCell, "GRU": GRUCell, "RNN": RNNCell}


@pytest.mark.peers
@pytest.mark.parametrize("direction", ["uni", "bi"])
@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_state_dict_of_torch_gives_the_numbers_of_torch(kind, direction, layers):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs = torch.nn.ModuleDict(
        {"rnn": getattr(torch.nn, kind)(3, 4, layers, batch_first=True, bidirectional=direction == "bi")}
    )
    theirs = theirs.double()
    net = Sequential(RecurrentLayers(kind, 3, 4, layers, direction, name="rnn")).calcMode(np.float64)
    net.load(theirs.state_dict(), names="torch")
    x = np.random.default_rng(0).standard_normal((2, 5, 3))
    assert np.allclose(net(x), theirs["rnn"](torch.from_numpy(x))[0].detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", CELLS)
def test_a_cell_in_a_scan_is_the_layer_in_values_and_gradients(kind):
    rng, layer = np.random.default_rng(0), getattr(modules, kind)(3, 4).calcMode(np.float64)
    body = CELLS[kind](3, 4)
    count = len(layer.cell)
    scan = Scan(body, carried=count, inputs=[(1, False)], outputs=[(1, False)]).calcMode(np.float64)
    assert {path.rsplit(".", 1)[-1] for path in scan.params} == set(layer.params)
    for path, param in scan.params.items():
        param.data = layer.params[path.rsplit(".", 1)[-1]].data = rng.standard_normal(param.shape)
    starts, x, seed = rng.standard_normal((count, 2, 4)), rng.standard_normal((2, 5, 3)), rng.standard_normal((2, 5, 4))
    nodes = [Input(name=f"i{i}").node() for i in range(count + 1)]
    net = Graph(nodes, (scan.node(*nodes), count)).calcMode(np.float64)
    assert np.allclose(net([*starts, x]), layer(x, *starts), rtol=1e-12)
    net.backward(seed)
    layer.backward(seed)
    gx, *gstarts = [g for g in layer.grad if g is not None]
    for ours, wanted in zip(net.grad, [*gstarts, gx]):
        assert np.allclose(ours, wanted, rtol=1e-10, atol=1e-12)
    for path, param in net.params.items():
        assert np.allclose(param.grad, layer.params[path.rsplit(".", 1)[-1]].grad, rtol=1e-10, atol=1e-12)


def test_dropout_is_between_layers_only_and_a_block_is_one_row():
    block = RecurrentLayers("LSTM", 3, 4, layers=3, dropout=0.5, name="lstm")
    names = [type(module).__name__ for module in block.modules().values()]
    assert names.count("Dropout") == 2 and names.count("LSTM") == 3
    plain = RecurrentLayers("LSTM", 3, 4, layers=3, name="lstm").evalMode()
    x = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)
    for path, param in plain.params.items():
        param.data = block.params[path].data
    assert np.array_equal(block.evalMode()(x), plain(x)) and not np.array_equal(block.trainMode()(x), plain(x))
    assert "lstm" in str(summary(Sequential(block), ("N", "T", 3)))


def test_states_enter_and_leave_in_the_order_of_layers():
    net = RecurrentLayers("LSTM", 3, 4, layers=2, starts=True, states=True)
    shapes = net.dataShapeFrom([("N", "T", 3), *[("N", 4)] * 4])
    assert shapes == [("N", "T", 4), *[("N", 4)] * 4]


def test_another_kind_is_refused():
    with pytest.raises(ArgumentError, match="wanted kind as one of 'LSTM', 'GRU', 'RNN', got 'lstm'"):
        RecurrentLayers("lstm", 3, 4)


@pytest.mark.peers
@pytest.mark.parametrize("seed", range(20))
def test_random_settings_have_the_values_and_gradients_of_torch_eager_and_compiled(seed):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    n, t, insize, hsize, layers = (int(k) for k in rng.integers(1, (4, 6, 6, 7, 4)))
    kind, direction = list(CELLS)[seed % 3], ["uni", "bi"][seed // 3 % 2]
    theirs = getattr(torch.nn, kind)(insize, hsize, layers, batch_first=True, bidirectional=direction == "bi")
    holder = torch.nn.ModuleDict({"rnn": theirs}).double()
    x = rng.standard_normal((n, t, insize))
    target = rng.standard_normal((n, t, hsize * (1 + (direction == "bi"))))
    xs = torch.from_numpy(x).requires_grad_()
    y = theirs(xs)[0]
    ((y - torch.from_numpy(target)) ** 2).mean().backward()
    for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 2e-4)):
        net = Sequential(RecurrentLayers(kind, insize, hsize, layers, direction, name="rnn")).calcMode(dtype)
        net.load(holder.state_dict(), names="torch")
        data, wanted = x.astype(dtype), target.astype(dtype)
        values = net(data)
        assert np.allclose(values, y.detach().numpy(), rtol=tolerance, atol=tolerance)
        net.backward((2 * (values - wanted) / target.size).astype(dtype))
        assert np.allclose(net.grad, xs.grad.numpy(), rtol=tolerance, atol=tolerance)
        eager = {path: param.grad.copy() for path, param in net.params.items()}
        for param in net.params.values():
            param.grad = np.full_like(param.grad, np.nan)
        net.compile([x.shape, target.shape], cost=modules.costs.MSE()).run(data, wanted)
        for path, param in net.params.items():
            assert np.allclose(param.grad, eager[path], rtol=tolerance, atol=tolerance), path
            if path.endswith(".W"):  # torch has the transpose, by direction
                i = path.split(".")[-2][1:]
                names = [f"weight_ih_l{i}", f"weight_ih_l{i}_reverse"][: 1 + (direction == "bi")]
                grads = np.concatenate([getattr(theirs, name).grad.numpy().T for name in names], axis=1)
                assert np.allclose(param.grad, grads, rtol=tolerance, atol=tolerance), path


@pytest.mark.peers
@pytest.mark.parametrize("direction", ["uni", "bi"])
@pytest.mark.parametrize("kind", CELLS)
def test_the_state_dict_of_a_layer_of_torch_alone_loads_and_is_written_again(kind, direction, tmp_path):
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn, kind)(3, 4, 3, batch_first=True, bidirectional=direction == "bi").double()
    net = RecurrentLayers(kind, 3, 4, 3, direction).calcMode(np.float64)
    net.load(theirs.state_dict(), names="torch")
    x = np.random.default_rng(0).standard_normal((2, 5, 3))
    wanted = theirs(torch.from_numpy(x))[0].detach().numpy()
    assert np.allclose(net(x), wanted, rtol=1e-10, atol=1e-12)
    net.save(tmp_path / "net.safetensors", names="torch")
    safe = pytest.importorskip("safetensors.torch")
    theirs.load_state_dict(safe.load_file(tmp_path / "net.safetensors"))
    assert np.allclose(theirs(torch.from_numpy(x))[0].detach().numpy(), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.peers
@pytest.mark.parametrize("seed", range(20))
def test_random_projections_have_the_values_and_gradients_of_torch_eager_and_compiled(seed):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    n, t, insize, projection, layers = (int(k) for k in rng.integers(1, (4, 6, 6, 5, 4)))
    hsize, sides, useBias = projection + int(rng.integers(1, 4)), 1 + seed % 2, seed % 3 > 0
    options = {"bias": useBias, "batch_first": True, "bidirectional": sides == 2, "proj_size": projection}
    theirs = torch.nn.LSTM(insize, hsize, layers, **options).double()
    holder = torch.nn.ModuleDict({"rnn": theirs})
    block = {"direction": "bi" if sides == 2 else "uni", "useBias": useBias, "projection": projection, "name": "rnn"}
    x, target = rng.standard_normal((n, t, insize)), rng.standard_normal((n, t, sides * projection))
    xs = torch.from_numpy(x).requires_grad_()
    y = theirs(xs)[0]
    ((y - torch.from_numpy(target)) ** 2).mean().backward()
    for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 2e-4)):
        net = RecurrentLayers("LSTM", insize, hsize, layers, **block).calcMode(dtype)
        if seed % 2:
            net.load(theirs.state_dict(), names="torch")
        else:
            net = Sequential(net).calcMode(dtype)
            net.load(holder.state_dict(), names="torch")
        data, wanted = x.astype(dtype), target.astype(dtype)
        values = net(data)
        assert np.allclose(values, y.detach().numpy(), rtol=tolerance, atol=tolerance)
        net.backward((2 * (values - wanted) / target.size).astype(dtype))
        assert np.allclose(net.grad, xs.grad.numpy(), rtol=tolerance, atol=tolerance)
        eager = {path.removeprefix("rnn."): param.grad.copy() for path, param in net.params.items()}
        for i, side in [(i, side) for i in range(layers) for side in ("", "_reverse")[:sides]]:
            end = "Reverse" if side else ""
            paths = {"weight_ih": f"W{end}", "weight_hh": f"scan{end}.body.U", "weight_hr": f"scan{end}.body.P"}
            for name, path in paths.items():
                grad = getattr(theirs, f"{name}_l{i}{side}").grad.numpy().T
                assert np.allclose(eager[f"l{i}.{path}.W"], grad, rtol=tolerance, atol=tolerance), path
            if useBias:
                grad = getattr(theirs, f"bias_hh_l{i}{side}").grad.numpy()
                assert np.allclose(eager[f"l{i}.W{end}.b"], grad, rtol=tolerance, atol=tolerance)
        for param in net.params.values():
            param.grad = np.full_like(param.grad, np.nan)
        net.compile([x.shape, target.shape], cost=modules.costs.MSE()).run(data, wanted)
        for path, param in net.params.items():
            assert np.allclose(param.grad, eager[path.removeprefix("rnn.")], rtol=tolerance, atol=tolerance), path


@pytest.mark.peers
def test_first_and_last_states_of_projections_are_those_of_torch():
    torch = pytest.importorskip("torch")
    theirs = torch.nn.LSTM(3, 5, 2, batch_first=True, bidirectional=True, proj_size=2).double()
    net = RecurrentLayers("LSTM", 3, 5, 2, "bi", starts=True, states=True, projection=2).calcMode(np.float64)
    net.load(theirs.state_dict(), names="torch")
    rng = np.random.default_rng(0)
    x, h, c = (rng.standard_normal(shape) for shape in ((4, 6, 3), (4, 4, 2), (4, 4, 5)))
    y, (hs, cs) = theirs(torch.from_numpy(x), (torch.from_numpy(h), torch.from_numpy(c)))
    first = [np.concatenate(list(s[2 * i : 2 * i + 2]), -1) for i in range(2) for s in (h, c)]
    last = [np.concatenate(list(s.detach().numpy()[2 * i : 2 * i + 2]), -1) for i in range(2) for s in (hs, cs)]
    for ours, wanted in zip(net([x, *first]), [y.detach().numpy(), *last]):
        assert np.allclose(ours, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.peers
@pytest.mark.parametrize("projection", [2, None])
@pytest.mark.parametrize("direction", ["uni", "bi"])
def test_time_steps_beyond_the_lengths_are_those_of_a_packed_sequence_of_torch(projection, direction):
    torch = pytest.importorskip("torch")
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    sides = 1 + (direction == "bi")
    options = {"bidirectional": sides == 2, "proj_size": projection or 0}
    theirs = torch.nn.LSTM(3, 5, 2, batch_first=True, **options).double()
    block = {"states": True, "lengths": True, "projection": projection}
    net = RecurrentLayers("LSTM", 3, 5, 2, direction, **block).calcMode(np.float64)
    net.load(theirs.state_dict(), names="torch")
    rng, lengths = np.random.default_rng(0), np.array([6, 1, 4, 2])
    x = rng.standard_normal((4, 6, 3))
    xs = torch.from_numpy(x).requires_grad_()
    packed = pack_padded_sequence(xs, torch.from_numpy(lengths), batch_first=True, enforce_sorted=False)
    y, (h, c) = theirs(packed)
    y = pad_packed_sequence(y, batch_first=True)[0]
    last = [torch.cat(list(s[sides * i : sides * i + sides]), -1) for i in range(2) for s in (h, c)]
    outputs = net([x, lengths])
    assert (outputs[0][1, 1:] == 0).all()
    for ours, wanted in zip(outputs, [y, *last], strict=True):
        assert np.allclose(ours, wanted.detach().numpy(), rtol=1e-10, atol=1e-12)
    seeds = [rng.standard_normal(wanted.shape) for wanted in outputs]
    net.backward(seeds)
    torch.autograd.backward([y, *last], [torch.from_numpy(seed) for seed in seeds])
    assert np.allclose(net.grad[0], xs.grad.numpy(), rtol=1e-10, atol=1e-12)
    weights = [p.grad.numpy().T for p in theirs.parameters() if p.ndim == 2]
    ours = [p.grad for path, p in net.params.items() if not path.endswith(".b")]
    if projection:
        assert sorted(np.abs(g).sum() for g in ours) == pytest.approx(sorted(np.abs(g).sum() for g in weights))


def test_a_compiled_step_of_a_projection_with_lengths_is_the_eager_one():
    net = RecurrentLayers("LSTM", 3, 5, 2, "bi", projection=2, lengths=True)
    rng, lengths = np.random.default_rng(1), np.array([4, 0, 2])
    x, target = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 3), (3, 4, 4)))
    values = net([x, lengths])
    net.backward(2 * (values - target) / target.size)
    eager = {path: param.grad.copy() for path, param in net.params.items()}
    net.compile([x.shape, lengths.shape, target.shape], cost=modules.costs.MSE()).run(x, lengths, target)
    for path, param in net.params.items():
        assert np.allclose(param.grad, eager[path], rtol=2e-4, atol=1e-6), path


def test_a_projection_takes_an_empty_batch_and_is_refused_elsewhere():
    net = RecurrentLayers("LSTM", 3, 4, projection=2, direction="bi")
    assert net(np.zeros((0, 5, 3), np.float32)).shape == (0, 5, 4)
    with pytest.raises(ArgumentError, match="projection is for an LSTM without other options, got it with GRU"):
        RecurrentLayers("GRU", 3, 4, projection=2)
