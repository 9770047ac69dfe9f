"""Graphs in training loops of torch, and nets of torch in ours: the same steps, and how few calls they take."""

import copy
import os
import sys
import threading

import numpy as np
import pytest

from puregraph.core.errors import DtypeError, PuregraphError, ShapeError
from puregraph.graph.sequential import Sequential
from puregraph.modules import BatchNorm, Linear, Relu, Tanh
from puregraph.ops.native.llvm import jit
from puregraph.optimizers import SGD, Adam
from puregraph.torch import asArray, asFunction, asModule

pytestmark = pytest.mark.peers
torch = pytest.importorskip("torch")


# Training -------------------------------------------------------------------------------------------------------------


def classes(rng, count=96):
    """A small problem: points, and the side of a curve that they are on."""
    x = rng.standard_normal((count, 6)).astype(np.float32)
    return x, (x[:, 0] * x[:, 1] > x[:, 2]).astype(np.int64)


def theirNet(ours):
    """The same network in torch, with the same weights."""
    first = torch.nn.Linear(6, 16, bias=False)  # a bias before BatchNorm is noise
    net = torch.nn.Sequential(first, torch.nn.BatchNorm1d(16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    with torch.no_grad():
        for layer, name in ((net[0], "a"), (net[3], "b")):
            layer.weight.copy_(torch.from_numpy(ours.params[f"{name}.W"].data.T.copy()))
        net[3].bias.copy_(torch.from_numpy(ours.params["b.b"].data))
    return net


def ourNet():
    return Sequential(
        Linear(6, 16, useBias=False, name="a"), BatchNorm(16, name="norm"), Tanh(), Linear(16, 2, name="b"), name="net"
    )


def trained(net, optimizer, x, y, cost=torch.nn.functional.cross_entropy):
    """The costs of fifty steps of torch."""
    costs = []
    for i in range(50):
        rows = slice(i % 3 * 32, i % 3 * 32 + 32)
        optimizer.zero_grad()
        loss = cost(net(torch.from_numpy(x[rows])), torch.from_numpy(y[rows]))
        loss.backward()
        optimizer.step()
        costs.append(loss.item())
    return costs


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW"])
def test_fifty_steps_of_an_optimizer_of_torch_are_those_of_a_net_of_torch(optimizer, rng):
    (x, y), graph = classes(rng), ourNet()
    theirs = theirNet(graph)
    module = asModule(graph)
    make = getattr(torch.optim, optimizer)
    wanted = trained(theirs, make(theirs.parameters(), lr=0.02), x, y)
    found = trained(module, make(module.parameters(), lr=0.02), x, y)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert found[-1] < 0.8 * found[0]
    np.testing.assert_allclose(graph.params["a.W"].array.T, asArray(theirs[0].weight), atol=1e-5)
    np.testing.assert_allclose(graph.states["norm.mean"].array, asArray(theirs[1].running_mean), atol=1e-5)


def test_a_layer_of_puregraph_in_a_net_of_torch(rng):
    x, y = classes(rng)
    fc = Linear(16, 16, name="fc")
    layers = torch.nn.Linear(6, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 2)
    fc.W.data, fc.b.data = layers[1].weight.detach().numpy().T, layers[1].bias.detach().numpy()
    pure = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1], torch.nn.ReLU(), layers[2])
    mixed = copy.deepcopy(pure)
    mixed[2] = asModule(fc)
    costs = [trained(net, torch.optim.Adam(net.parameters(), lr=0.02), x, y) for net in (pure, mixed)]
    np.testing.assert_allclose(costs[0], costs[1], atol=1e-5)
    np.testing.assert_allclose(fc.W.array.T, asArray(pure[2].weight), atol=1e-5)


@pytest.mark.parametrize("make", [lambda: SGD(0.1), lambda: Adam(0.02)])
def test_an_optimizer_of_puregraph_updates_a_graph_in_a_loop_of_torch(make, rng):
    (x, y), graph = classes(rng), ourNet()
    theirs = theirNet(graph)
    function, optimizer = asFunction(graph, [(32, 6)]), make().setupOn(graph)
    kind = (
        torch.optim.SGD(theirs.parameters(), lr=0.1)
        if isinstance(optimizer, SGD)
        else torch.optim.Adam(theirs.parameters(), lr=0.02)
    )

    class Steps:
        zero_grad = staticmethod(lambda: None)
        step = staticmethod(optimizer.update)

    wanted, found = trained(theirs, kind, x, y), trained(function, Steps, x, y)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert function.module.a.W.data_ptr() == graph.params["a.W"].array.ctypes.data


def test_gradients_of_a_function_add_up_until_an_update(rng):
    graph = Sequential(Linear(3, 2, useBias=False, name="fc"))
    function, optimizer = asFunction(graph), SGD(0.0).setupOn(graph)
    x = torch.randn(4, 3)
    wanted = asArray(x).sum(0)
    for _ in range(2):
        (function(x).sum() + function(x).sum()).backward()
        np.testing.assert_allclose(graph["fc"].W.grad[:, 0], 2 * wanted, rtol=1e-5)
        function(x).sum().backward()
        np.testing.assert_allclose(graph["fc"].W.grad[:, 0], 3 * wanted, rtol=1e-5)
        optimizer.update()
    torch.autograd.grad(function(x.requires_grad_()).sum(), x)
    np.testing.assert_allclose(graph["fc"].W.grad[:, 0], 3 * wanted, rtol=1e-5)


def test_gradients_share_memory_with_those_of_torch_after_either_is_replaced(rng):
    graph = Sequential(Linear(3, 2, name="fc"))
    function, x = asFunction(graph), torch.randn(4, 3)
    tensor, param, wanted = function.module.fc.W, graph["fc"].W, asArray(x).sum(0)
    changes = [
        (lambda: None, 1),
        (lambda: None, 2),
        (lambda: setattr(tensor.grad, "data", torch.zeros(3, 2)), 1),
        (lambda: setattr(tensor, "grad", None), 1),
        (lambda: setattr(tensor, "grad", torch.zeros(3, 2)), 1),
        (lambda: setattr(param, "grad", None), 1),
        (lambda: tensor.grad.mul_(2.0), 3),
        (lambda: setattr(param, "grad", np.ones((3, 2), np.float32)), 4),
    ]
    for change, count in changes:
        change()
        before = param.gradVersion
        function(x).sum().backward()
        np.testing.assert_allclose(param.grad[:, 0], count * wanted, rtol=1e-4, atol=1e-6)
        assert param.grad.ctypes.data == tensor.grad.data_ptr() and param.gradVersion > before


def test_a_function_of_other_shapes_is_refused_at_once():
    with pytest.raises(ShapeError, match="at 'fc'"):
        asFunction(Sequential(Linear(3, 2, name="fc")), [(5, 4)])
    with pytest.raises(PuregraphError, match="shapes as a list of shapes"):
        asFunction(Sequential(Linear(3, 2, name="fc")), (5, 4))
    with pytest.raises(PuregraphError, match="graph as a module"):
        asFunction(torch.nn.Linear(3, 2))


def test_a_loader_of_torch_gives_batches_to_a_trainer(rng):
    from puregraph import CrossEntropy, Trainer

    x, y = classes(rng)
    data = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    loader = torch.utils.data.DataLoader(data, batch_size=32)
    first, second = ourNet(), ourNet()
    for path, p in first.params.items():
        second.params[path].data = p.data
    history = Trainer(first, CrossEntropy(), Adam(0.02), progress="none").train(loader, epochs=3)
    wanted = Trainer(second, CrossEntropy(), Adam(0.02), batchsize=32, shuffle=False, progress="none").train(
        x, y, epochs=3
    )
    assert [row["loss"] for row in history] == [row["loss"] for row in wanted]


def test_threads_call_one_module_at_once(rng):
    module = asModule(Sequential(Linear(20, 30, name="a"), Relu(), Linear(30, 10, name="b")))
    inputs = [torch.randn(7 + i % 3, 20) for i in range(8)]
    wanted = []
    for x in inputs:
        x.requires_grad_()
        wanted.append((module(x).detach(), *torch.autograd.grad(module(x).sum(), x)))
    faults = []

    def work(x, y, g):
        try:
            for _ in range(50):
                found = module(x)
                torch.testing.assert_close(found.detach(), y)
                torch.testing.assert_close(torch.autograd.grad(found.sum(), x)[0], g)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(x, *pair)) for x, pair in zip(inputs, wanted)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[0]


# Overhead -------------------------------------------------------------------------------------------------------------


def callsOf(run):
    """The names of the Python functions of the library that a call runs."""
    names = []

    def note(frame, event, argument):
        if event == "call" and f"{os.sep}puregraph{os.sep}" in frame.f_code.co_filename:
            names.append(frame.f_code.co_name)

    run(), run()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return names


@pytest.mark.skipif(not jit.available(), reason="without native code steps run in numpy")
def test_a_call_of_known_shapes_takes_the_shortest_way():
    module = asModule(Sequential(Linear(4, 4, name="fc")).trainMode())
    x, grad = torch.randn(8, 4, requires_grad=True), torch.randn(8, 4)
    y = module(x)
    wanted = (x, *module.parameters())

    def backward():
        torch.autograd.grad(y, wanted, grad, retain_graph=True)

    slow = {"checkData", "separate", "ownerOf", "get", "runChecked"}
    for run, most in [(torch.no_grad()(lambda: module(x)), 30), (lambda: module(x), 40), (backward, 40)]:
        names = callsOf(run)
        assert len(names) <= most, names
        assert names.count("runFast") == 1 and slow.isdisjoint(names), names


@pytest.mark.skipif(not jit.available(), reason="without native code steps run in numpy")
def test_gradients_that_accumulate_are_not_wrapped_again():
    for layers in (1, 6):
        function = asFunction(Sequential([Linear(4, 4, name=f"fc{i}") for i in range(layers)]))
        y = function(torch.randn(8, 4))
        names = callsOf(lambda y=y: y.sum().backward(retain_graph=True))
        assert names.count("end") == 2 * layers and names.count("asArray") == 1, names


@pytest.mark.skipif(not jit.available(), reason="without native code steps run in numpy")
def test_gradients_after_an_update_are_arrays_of_the_backward_pass():
    for layers in (1, 6):
        graph = Sequential([Linear(4, 4, name=f"fc{i}") for i in range(layers)])
        function, optimizer = asFunction(graph), SGD(0.0).setupOn(graph)
        y = function(torch.randn(8, 4))
        y.sum().backward(retain_graph=True)
        names = callsOf(lambda y=y, o=optimizer: (o.update(), y.sum().backward(retain_graph=True)))
        assert names.count("end") == 2 * layers and names.count("asArray") == 1, names
        for slot in function.module.sharing.params:
            assert slot.stored.grad.ctypes.data == slot.tensor.grad.data_ptr()


def test_gradients_that_a_hook_replaces_are_those_of_torch():
    graph = Sequential(Linear(4, 4, name="fc"))
    function, optimizer = asFunction(graph), SGD(0.0).setupOn(graph)
    tensor, param, x = function.module.fc.W, graph["fc"].W, torch.randn(8, 4)
    seed = torch.arange(32.0).view(8, 4)
    for hook in (lambda g: g.T, lambda g: g.mul_(2.0), lambda g: 3.0 * g, lambda g: g[:, :1].expand(4, 4)):
        handle = tensor.register_hook(hook)
        function(x).backward(seed)
        handle.remove()
        np.testing.assert_allclose(param.grad, asArray(hook(x.T @ seed)), rtol=1e-5, atol=1e-4)
        assert param.grad.ctypes.data == tensor.grad.data_ptr()
        optimizer.update()


def test_another_shape_is_checked_and_a_known_one_runs_again(rng):
    module = asModule(Sequential(Linear(4, 3, name="fc")))
    for count in (5, 7, 5, 5):
        x = torch.randn(count, 4, requires_grad=True)
        y = module(x)
        torch.testing.assert_close(y, x @ module.fc.W + module.fc.b)
        y.sum().backward()
        torch.testing.assert_close(x.grad, module.fc.W.detach().sum(1).expand(count, 4))
    with pytest.raises(ShapeError, match="fc"):
        module(torch.randn(5, 6))
    with pytest.raises(DtypeError, match="of tensors"):
        module(torch.randn(5, 4).double())
