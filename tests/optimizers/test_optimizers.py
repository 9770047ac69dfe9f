"""Optimizers: the steps of PyTorch's, clipping, what is left alone, and gradients that are missing or not finite."""

import itertools
import pickle

import numpy as np
import pytest
from bagofparams import CLASSES, OPTIMIZERS, Bag, assertSame, values

from puregraph.core import device
from puregraph.core.errors import ArgumentError, GraphWarning, PuregraphError
from puregraph.core.param import Param
from puregraph.graph.backward import BackwardGraph
from puregraph.graph.module import Module
from puregraph.graph.sequential import Sequential
from puregraph.modules import Linear, costs
from puregraph.modules.costs import MSE, CrossEntropy
from puregraph.optimizers import (
    SGD,
    Adam,
    AdamW,
    Cosine,
    MomentumSGD,
    NesterovSGD,
    OneCycle,
    Optimizer,
    RMSProp,
    Step,
    WarmUp,
)

# Against PyTorch --------------------------------------------------------------------------------------------


def follow(opt, theirs, net, rng, updates=20, before=lambda params: None, after=lambda: None):
    """Take the same steps with both, and compare every parameter after each."""
    import torch

    mirror = {name: torch.tensor(p.data.copy(), requires_grad=True) for name, p in net.params.items()}
    other, later = theirs(mirror)
    opt.setupOn(net)
    for _ in range(updates):
        net.draw(rng, 2.0)
        for name, p in net.params.items():
            mirror[name].grad = torch.tensor(p.grad.copy())
        grads = {name: p.grad.copy() for name, p in net.params.items()}
        before([p for p in mirror.values() if p.grad is not None])
        assert opt.update()
        other.step()
        for scheduler in later:
            scheduler.step()
        assertSame(grads, {name: p.grad for name, p in net.params.items()})
        for name, p in net.params.items():
            np.testing.assert_allclose(p.data, mirror[name].detach().numpy(), rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.peers
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("clip", ["", "norm", "loose", "value"])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_twenty_steps_are_those_of_pytorch(rng, name, decay, clip):
    import torch

    ours, theirs, settings = OPTIMIZERS[name]
    option = {"norm": {"clipNorm": 1.5}, "loose": {"clipNorm": 1e3}, "value": {"clipValue": 0.7}}.get(clip, {})

    def clipping(params):
        if "clipNorm" in option:
            torch.nn.utils.clip_grad_norm_(params, option["clipNorm"])
        elif option:
            torch.nn.utils.clip_grad_value_(params, option["clipValue"])

    def make(mirror):
        return getattr(torch.optim, theirs)(mirror.values(), **{**settings, "weight_decay": decay}), []

    follow(ours(decay=decay, **option), make, Bag(), rng, before=clipping)


@pytest.mark.peers
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_own_rates_and_no_decay_are_parameter_groups_of_pytorch(rng, name):
    import torch

    ours, theirs, settings = OPTIMIZERS[name]
    net = Bag()
    net.b.decay, net.W.rate, net.gain.rate = False, 0.25, 0.0

    def make(mirror):
        groups = [
            {"params": [mirror["W"]], "lr": settings["lr"] * 0.25},
            {"params": [mirror["gain"]], "lr": 0.0},
            {"params": [mirror["none"]]},
            {"params": [mirror["b"]], "weight_decay": 0.0},
        ]
        return getattr(torch.optim, theirs)(groups, **{**settings, "weight_decay": 0.2}), []

    follow(ours(decay=0.2), make, net, rng)


@pytest.mark.peers
def test_defaults_are_those_of_pytorch_where_puzzlelib_has_the_same(rng):
    import torch

    follow(Adam(), lambda mirror: (torch.optim.Adam(mirror.values()), []), Bag(), rng)
    follow(AdamW(), lambda mirror: (torch.optim.AdamW(mirror.values()), []), Bag(), rng)
    follow(SGD(), lambda mirror: (torch.optim.SGD(mirror.values()), []), Bag(), rng)


@pytest.mark.peers
def test_a_parameter_thawed_late_starts_as_in_pytorch(rng):
    import torch

    net, mirror, opt = Bag(), {}, Adam(0.05)
    mirror = {name: torch.tensor(p.data.copy(), requires_grad=True) for name, p in net.params.items()}
    theirs = torch.optim.Adam(mirror.values(), lr=0.05)
    opt.setupOn(net)
    net.W.trainable = False
    for update in range(12):
        net.draw(rng)
        net.W.trainable = update >= 6
        net.b.grad = None if update % 3 else net.b.grad
        for name, p in net.params.items():
            mirror[name].grad = torch.tensor(p.grad) if p.grad is not None and p.trainable else None
        opt.update()
        theirs.step()
    for name, p in net.params.items():
        np.testing.assert_allclose(p.data, mirror[name].detach().numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.peers
@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        (Step(3, 0.5), lambda opt, to: to.StepLR(opt, 3, gamma=0.5)),
        (Cosine(20), lambda opt, to: to.CosineAnnealingLR(opt, 20)),
        (Cosine(30, 0.1), lambda opt, to: to.CosineAnnealingLR(opt, 30, eta_min=0.01)),
        (WarmUp(6, start=0.2), lambda opt, to: to.LinearLR(opt, 0.2, total_iters=6)),
        (WarmUp(4), lambda opt, to: to.LinearLR(opt, 1 / 5, total_iters=4)),
        (
            WarmUp(5, Step(4, 0.3)),
            lambda opt, to: to.SequentialLR(
                opt, [to.LinearLR(opt, 1 / 6, total_iters=5), to.StepLR(opt, 4, gamma=0.3)], [5]
            ),
        ),
        (OneCycle(25), lambda opt, to: to.OneCycleLR(opt, 0.1, total_steps=25, cycle_momentum=False)),
        (
            OneCycle(22, rise=0.45, start=0.1, final=0.01),
            lambda opt, to: to.OneCycleLR(
                opt, 0.1, total_steps=22, pct_start=0.45, div_factor=10, final_div_factor=10, cycle_momentum=False
            ),
        ),
    ],
    ids=lambda given: repr(given) if not callable(given) or hasattr(given, "initArgs") else "peer",
)
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_schedules_are_those_of_pytorch(rng, schedule, theirs):
    import torch

    def make(mirror):
        opt = torch.optim.SGD(mirror.values(), lr=0.1, momentum=0.9)
        return opt, [theirs(opt, torch.optim.lr_scheduler)]

    follow(MomentumSGD(0.1, 0.9, schedule=schedule), make, Bag(), rng)


# Known steps ------------------------------------------------------------------------------------------------


def one(opt, steps=1, param=1.0, grad=2.0):
    """A lone parameter after some steps along the same gradient."""
    net = Bag(shapes={"w": (1,)})
    net.w.data = np.array([param])
    opt.setupOn(net)
    for _ in range(steps):
        net.w.grad = np.array([grad])
        opt.update()
    return float(net.w.data[0])


@pytest.mark.parametrize(
    ("opt", "steps", "wanted"),
    [
        (SGD(0.1), 1, 1 - 0.2),
        (SGD(0.1, decay=0.5), 1, 1 - 0.1 * (2 + 0.5)),
        (SGD(0.1, clipValue=0.5), 1, 1 - 0.05),
        (MomentumSGD(0.1, 0.5), 2, 1 - 0.2 - 0.1 * (1 + 2)),
        (NesterovSGD(0.1, 0.5), 1, 1 - 0.1 * (2 + 0.5 * 2)),
        (RMSProp(0.1, 0.75, 0.0), 1, 1 - 0.1 * 2 / np.sqrt(0.25 * 4)),
        (Adam(0.1, epsilon=0), 3, 1 - 0.3),
        (AdamW(0.1, epsilon=0, decay=0.5), 1, 1 - 0.1 - 0.05),
        (SGD(0.1, schedule=Step(1, 0.5)), 3, 1 - 0.2 - 0.1 - 0.05),
    ],
)
def test_steps_worked_out_by_hand(opt, steps, wanted):
    assert one(opt, steps) == pytest.approx(wanted, rel=1e-14)


def test_a_rule_of_ones_own_reads_like_its_paper():
    class SignSGD(Optimizer):
        scalars = {"bias": "1 - momRate ** step"}
        rule = {"mean": "momRate * mean + (1 - momRate) * grad", "param": "param - rate * sign(mean / bias)"}

        def __init__(self, learnRate, momRate):
            super().__init__(learnRate)
            self.momRate = momRate

    assert one(SignSGD(0.25, 0.9), 3) == 0.25
    assert one(SignSGD(0.25, 0.9), 3, grad=-5.0) == 1.75


def test_a_setting_changed_by_hand_counts_from_then_on():
    opt = MomentumSGD(0.1, 0.9)
    opt.learnRate, opt.momRate = 0.5, 0.0
    assert one(opt, 2, grad=1.0) == 0.0


def test_schedules_stay_at_their_end():
    assert Cosine(10, 0.2)(10) == Cosine(10, 0.2)(1000) == pytest.approx(0.2)
    assert OneCycle(10, final=0.01)(9) == OneCycle(10, final=0.01)(50) == pytest.approx(0.01)
    assert WarmUp(3)(3) == WarmUp(3)(99) == 1.0
    assert OneCycle(10, rise=0.4)(3) == 1.0
    assert all(factor > 0 for factor in map(WarmUp(3), range(9)))


def test_the_rate_follows_the_schedule():
    opt = SGD(0.8, schedule=Step(2, 0.5)).setupOn(net := Bag())
    rates = []
    for _ in range(5):
        rates.append(opt.rate)
        net.draw(np.random.default_rng(0))
        opt.update()
    assert rates == [0.8, 0.8, 0.4, 0.4, 0.2] and opt.step == 5 and opt.learnRate == 0.8


# What is left alone -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", CLASSES)
def test_frozen_parameters_and_those_without_gradient_stay(rng, found):
    net = Bag()
    opt = found(decay=0.1).setupOn(net)
    net.draw(rng)
    opt.update()
    before, state = values(net), {name: array.copy() for name, array in opt.state.items()}
    net.draw(rng)
    net.W.trainable, net.b.grad = False, None
    opt.update()
    after, later = values(net), opt.state
    for name in ("W", "b"):
        np.testing.assert_array_equal(before[name], after[name])
    assert not np.array_equal(before["gain"], after["gain"])
    assert later.keys() == state.keys()
    for name in state:
        moved = not np.array_equal(state[name], later[name])
        assert moved == (name.endswith("gain") or name == "step/none"), name


def test_tied_parameters_take_one_step(rng):
    shared = Linear(3, 3, useBias=False, name="shared").calcMode("float64")
    net = Sequential([shared, Linear(3, 3, name="mid").calcMode("float64"), shared])
    opt = SGD(0.5).setupOn(net)
    assert list(opt.params) == ["shared.W", "mid.W", "mid.b"]
    before = shared.W.data.copy()
    shared.W.grad = rng.normal(size=(3, 3))
    opt.update()
    np.testing.assert_allclose(shared.W.data, before - 0.5 * shared.W.grad, rtol=1e-15)


def test_a_module_that_holds_one_parameter_twice_is_stepped_once():
    net = Bag(shapes={"w": (2,)})
    net.again = net.w
    opt = SGD(0.5).setupOn(net)
    before, net.w.grad = net.w.data.copy(), np.ones(2)
    opt.update()
    np.testing.assert_array_equal(net.w.data, before - 0.5)


@pytest.mark.parametrize("found", CLASSES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_array_stays_the_same_object_and_keeps_its_dtype(rng, found, dtype):
    net = Bag(dtype)
    opt = found(0.01).setupOn(net)
    arrays = {name: p.data for name, p in net.params.items()}
    exact = Bag()
    for name, p in exact.params.items():
        p.data = arrays[name].astype("float64")
    twin = found(0.01).setupOn(exact)
    for _ in range(3):
        net.draw(rng)
        for name, p in exact.params.items():
            p.grad = net.params[name].grad.astype("float64")
        opt.update()
        twin.update()
    wide = "float32" if dtype == "float16" else dtype
    tolerance = {"float16": 2e-3, "float32": 1e-6, "float64": 0}[dtype]
    for name, p in net.params.items():
        assert p.data is arrays[name] and p.data.dtype == dtype
        np.testing.assert_allclose(p.data, exact.params[name].data, rtol=tolerance, atol=tolerance)
    assert all(array.dtype == wide for name, array in opt.state.items() if not name.startswith("step/"))


def test_gradients_are_forgotten(rng):
    net = Bag()
    net.draw(rng)
    SGD().setupOn(net).zeroGradParams()
    assert all(p.grad is None for p in net.params.values())


def test_large_parameters_are_those_of_small_ones(rng):
    """Large arrays are worked on in pieces."""
    shape = (3, 200_003)
    whole, parts = Bag(shapes={"w": shape}), Bag(shapes={f"w{i}": shape[1:] for i in range(3)})
    for i, p in enumerate(parts.params.values()):
        p.data = whole.w.data[i].copy()
    first, second = Adam(0.1, decay=0.1).setupOn(whole), Adam(0.1, decay=0.1).setupOn(parts)
    for _ in range(3):
        whole.draw(rng)
        for i, p in enumerate(parts.params.values()):
            p.grad = whole.w.grad[i].copy()
        first.update()
        second.update()
    for i, p in enumerate(parts.params.values()):
        np.testing.assert_array_equal(whole.w.data[i], p.data)


# Gradients that are missing or not finite -------------------------------------------------------------------


def test_an_update_without_any_gradient_says_what_is_missing():
    with pytest.raises(PuregraphError, match="none of 4 parameters has a gradient; setupOn.* backward in trainMode"):
        SGD().setupOn(Bag()).update()
    with pytest.raises(PuregraphError, match="none of 0 parameters"):
        SGD().update()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("options", [{"clipNorm": 1.0}, {"onNonFinite": "raise"}])
def test_a_gradient_that_is_not_finite_is_named(rng, options, bad):
    net = Bag()
    opt = MomentumSGD(**options).setupOn(net)
    net.draw(rng)
    net.b.grad[2] = bad
    before = values(net)
    with pytest.raises(PuregraphError, match="MomentumSGD: at update 0 the gradient of 'b' is not finite; .*skip"):
        opt.update()
    assertSame(before, values(net))
    assert opt.step == 0 and not opt.state


@pytest.mark.parametrize("options", [{}, {"clipNorm": 1.0}])
def test_a_gradient_that_is_not_finite_is_skipped_if_so_asked(rng, options):
    net = Bag()
    opt = Adam(onNonFinite="skip", **options).setupOn(net)
    net.draw(rng)
    net.gain.grad = np.array(np.nan)
    before = values(net)
    assert opt.update() is False
    assertSame(before, values(net))
    assert opt.step == 0 and not opt.state
    net.draw(rng)
    assert opt.update() is True
    assert opt.step == 1


@pytest.mark.parametrize(("dtype", "size"), [("float16", 1e4), ("float32", 1e30), ("float64", 1e100)])
def test_the_norm_of_large_gradients_does_not_overflow(dtype, size):
    net = Bag(dtype, {"a": (3,), "b": (4, 4)})
    opt = SGD(1.0, clipNorm=1.0).setupOn(net)
    for p in net.params.values():
        p.data[...] = 0
        p.grad = np.full_like(p.data, size)
    opt.update()
    np.testing.assert_allclose(opt.norm, size * np.sqrt(19), rtol=1e-3)
    np.testing.assert_allclose(net.a.data, -1 / np.sqrt(19), rtol=1e-3)


# Gradients that are overwritten -----------------------------------------------------------------------------------------


def cycles(between):
    """Two updates by hand, each behind two backward passes; `between` does the second one."""
    net, cost = Sequential(Linear(3, 2)), CrossEntropy()
    optimizer = SGD(0.1).setupOn(net)
    x, t = np.ones((4, 3), np.float32), np.array([0, 1, 1, 0])
    for _ in range(2):
        cost(net(x), t)
        cost.backward()
        net.backward(cost.grad[0])
        between(net, optimizer, cost.grad[0])
        optimizer.update()


def test_gradients_that_a_second_backward_overwrites_are_said_as_pytorch_would_add_them():
    with pytest.warns(
        GraphWarning, match=r"SGD: of 2 gradients of 'linear.W' .* only the last .* backward.momentum=1.0"
    ):
        cycles(lambda net, optimizer, grad: net.backward(grad))


@pytest.mark.parametrize(
    "between",
    [
        lambda net, optimizer, grad: None,
        lambda net, optimizer, grad: net.backward(grad, momentum=1.0),
        lambda net, optimizer, grad: net.backward(grad, updParamGrads=False),
        lambda net, optimizer, grad: (optimizer.zeroGradParams(), net.backward(grad)),
        lambda net, optimizer, grad: optimizer.update(),
        lambda net, optimizer, grad: (net.backward(grad), optimizer.setupOn(net)),
    ],
    ids=["one", "added", "without parameters", "forgotten", "applied", "set up"],
)
def test_gradients_that_are_added_forgotten_or_applied_are_not_overwritten(between):
    cycles(between)  # a warning is an error here


def test_step_is_a_number_and_called_as_pytorchs_says_what_makes_an_update():
    optimizer = Adam().setupOn(Sequential(Linear(3, 2)))
    assert optimizer.step == 0 and f"{optimizer.step + 1}" == "1" and type(vars(optimizer)["step"]) is int
    with pytest.raises(PuregraphError, match="optimizer.step is the number of updates so far; optimizer.update"):
        optimizer.step()
    assert pickle.loads(pickle.dumps(optimizer)).step == 0


def test_gradients_that_the_step_of_another_network_left_are_no_loss(rng):
    generator, judge = Sequential(Linear(2, 3)), Sequential(Linear(3, 1))
    ofGenerator, ofJudge, cost = Adam(1e-3).setupOn(generator), Adam(1e-3).setupOn(judge), MSE()
    noise, real, ones = rng.standard_normal((8, 2)), rng.standard_normal((8, 3)), np.ones((8, 1), np.float32)
    noise, real = noise.astype(np.float32), real.astype(np.float32)

    def judged(x, target, **options):
        cost(judge(x), target)
        cost.backward()
        judge.backward(cost.grad[0], **options)

    for _ in range(3):
        fake = generator(noise)
        judged(real, ones)
        judged(fake, 0 * ones, momentum=1.0)
        ofJudge.update()
        judged(fake, ones)
        generator.backward(judge.grad)
        ofGenerator.update()
    judged(real, ones)
    judged(fake, 0 * ones)
    with pytest.warns(GraphWarning, match="Adam: of 2 gradients of 'linear.W' .* only the last"):
        ofJudge.update()


def test_a_rule_that_names_neither_state_nor_an_attribute_is_refused_when_it_is_set_up():
    class Broken(Optimizer):
        rule = {"param": "param - rate * velocity"}

    with pytest.raises(ArgumentError, match=r"Broken: its rule names 'velocity'.* set self.velocity in __init__"):
        Broken(1e-3).setupOn(Sequential(Linear(3, 2)))


def test_a_parameter_without_axes_is_still_an_array_after_arithmetic_on_it():
    class Scale(Module):
        """y = s x"""

        def __init__(self, name=None):
            super().__init__(name)
            self.s = Param((), 2.0)

        def dataShapeFrom(self, x):
            return x

        def updateData(self, x, s):
            return x * s

        def updateGrad(self, grad, x, s, y):
            return grad * s, (grad * x).sum()

    net = Sequential(Scale(name="scale"))
    param, optimizer, ones = net.params["scale.s"], SGD(0.1).setupOn(net), np.ones((2, 3), np.float32)
    param.data = param.data * 2  # numpy gives a number, not an array
    net(ones)
    net.backward(ones)
    optimizer.update()
    assert type(param.data) is np.ndarray and param.data == np.float32(4 - 0.1 * 6)


# Training ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opt", "steps"),
    list(
        itertools.chain(
            [(SGD(0.2), 200), (MomentumSGD(0.05), 200), (NesterovSGD(0.05), 200)],
            [(RMSProp(0.05, schedule=Cosine(300)), 300), (Adam(0.1, schedule=Cosine(300)), 300)],
            [(AdamW(0.1, decay=1e-4, schedule=WarmUp(20, Cosine(280))), 300)],
        )
    ),
    ids=repr,
)
def test_a_regression_is_solved(rng, device, opt, steps):
    solve(rng, device, opt, steps)


def solve(rng, name, opt, steps):
    assert BackwardGraph  # which gives graphs their backward pass
    W, b = rng.normal(size=(4, 2)), rng.normal(size=2)
    x = rng.normal(size=(64, 4))
    net, cost = Sequential([Linear(4, 2, name="fc")]).calcMode("float64"), costs.MSE()
    opt.setupOn(net)
    x, wanted = device.toDevice(x), device.toDevice(x @ W + b)
    for _ in range(steps):
        value = cost(net(x), wanted)
        cost.backward()
        net.backward(cost.grad[0])
        opt.update()
    assert float(value) < 1e-6
    np.testing.assert_allclose(device.toHost(net.params["fc.W"].data), W, atol=3e-3)
    assert all(device.isDeviceArray(a) == (name == "cuda") for k, a in opt.state.items() if k[:5] != "step/")
