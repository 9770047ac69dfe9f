"""Optimizers: the steps of PyTorch's, schedules, clipping, what is left alone, and state that can be restored."""

import copy
import itertools
import pickle

import numpy as np
import pytest

from puregraph.core import device
from puregraph.core.errors import ArgumentError, CheckpointError, DataError, GraphWarning, PuregraphError
from puregraph.core.param import Param
from puregraph.graph.backward import BackwardGraph
from puregraph.graph.module import Module
from puregraph.graph.sequential import Sequential
from puregraph.modules import Linear, Relu, costs
from puregraph.modules.costs import BCE, MSE, CrossEntropy
from puregraph.optimizers import (
    SGD,
    Adam,
    AdamW,
    Cosine,
    Epochs,
    MomentumSGD,
    NesterovSGD,
    OneCycle,
    Optimizer,
    RMSProp,
    Schedule,
    Step,
    WarmUp,
)
from puregraph.train import Trainer

SHAPES = {"W": (3, 5), "b": (5,), "gain": (), "none": (0, 2)}
OPTIMIZERS = {  # ours, and PyTorch's with its arguments
    "sgd": (lambda **o: SGD(0.1, **o), "SGD", {"lr": 0.1}),
    "momentum": (lambda **o: MomentumSGD(0.1, 0.8, **o), "SGD", {"lr": 0.1, "momentum": 0.8}),
    "nesterov": (
        lambda **o: NesterovSGD(0.1, 0.8, **o),
        "SGD",
        {"lr": 0.1, "momentum": 0.8, "nesterov": True},
    ),
    "rmsprop": (
        lambda **o: RMSProp(0.05, factor=0.7, epsilon=1e-4, **o),
        "RMSprop",
        {"lr": 0.05, "alpha": 0.7, "eps": 1e-4},
    ),
    "adam": (
        lambda **o: Adam(0.05, 0.8, 0.95, 1e-6, **o),
        "Adam",
        {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6},
    ),
    "adamw": (
        lambda **o: AdamW(0.05, **{"decay": 0.0, **o}),
        "AdamW",
        {"lr": 0.05, "weight_decay": 0.0},
    ),
}
CLASSES = [SGD, MomentumSGD, NesterovSGD, RMSProp, Adam, AdamW]


class Bag(Module):
    """Parameters of several shapes, and nothing else."""

    def __init__(self, dtype="float64", shapes=SHAPES):
        super().__init__()
        for name, shape in shapes.items():
            setattr(self, name, Param(shape, lambda rng, shape: rng.standard_normal(shape), dtype))

    def draw(self, rng, size=1.0):
        """New gradients."""
        for p in self.params.values():
            p.grad = np.asarray(size * rng.standard_normal(p.shape)).astype(p.dtype)


def values(net):
    return {name: p.data.copy() for name, p in net.params.items()}


def assertSame(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


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


# State ------------------------------------------------------------------------------------------------------


def train(net, opt, rng, updates):
    for _ in range(updates):
        net.draw(rng)
        opt.update()


@pytest.mark.parametrize("found", CLASSES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_stop_restore_and_finish_is_the_uninterrupted_run_bit_for_bit(seed, found, dtype):
    options = {"schedule": WarmUp(3, Cosine(9)), "decay": 0.1, "clipNorm": 2.0}
    net = Bag(dtype)
    start = values(net)
    opt = found(0.01, **options).setupOn(net)
    net.b.trainable = False
    train(net, opt, np.random.default_rng(seed), 10)

    again, rng = Bag(dtype), np.random.default_rng(seed)
    for name, p in again.params.items():
        p.data = start[name].copy()
    first = found(0.01, **options).setupOn(again)
    again.b.trainable = False
    train(again, first, rng, 4)
    kept = {name: array.copy() for name, array in first.state.items()}
    second = found(0.01, **options).setupOn(again)
    second.restore(first.step, kept)
    before = {name: array.copy() for name, array in kept.items()}
    assertSame(second.state, kept)
    train(again, second, rng, 6)
    assertSame(values(net), values(again))
    assertSame(opt.state, second.state)
    assertSame(kept, before)
    assert second.step == opt.step == 10


def test_all_that_does_not_fit_is_listed_and_nothing_changes(rng):
    net = Bag()
    opt = Adam().setupOn(net)
    train(net, opt, rng, 2)
    arrays = dict(opt.state)
    arrays["m/old.W"] = arrays.pop("m/W")
    arrays["v/b"] = np.zeros(7)
    arrays["v/gain"] = np.array(1)
    arrays["step/none"] = np.array(-3)
    before = {name: array.copy() for name, array in opt.state.items()}
    with pytest.raises(CheckpointError) as caught:
        opt.restore(-1, arrays)
    text = str(caught.value)
    for words in (
        "'m/W' is missing",
        "'m/old.W' belongs to none",
        "'v/b' wanted (5,), got (7,)",
        "'v/gain' wanted floats, got int64",
        "'step/none' wanted at least 1, got -3",
        "step of at least 0, got -1",
    ):
        assert words in text
    assertSame(before, opt.state)
    assert opt.step == 2


def test_state_that_is_lost_altogether_is_missed():
    with pytest.raises(CheckpointError, match="no state of any parameter, but 5 updates were made"):
        Adam().setupOn(Bag()).restore(5, {})
    opt = SGD().setupOn(Bag())
    opt.restore(5, {})
    assert opt.step == 5


def test_setting_up_again_keeps_the_state_of_what_is_still_there(rng):
    first, second = (Linear(3, 3, name=name).calcMode("float64") for name in "ab")
    net = Sequential([first])
    opt = MomentumSGD().setupOn(net)
    first.W.grad, first.b.grad = rng.normal(size=(3, 3)), rng.normal(size=3)
    opt.update()
    kept = opt.state["velocity/a.W"].copy()
    net.append(second)
    assert opt.setupOn(net) is opt
    np.testing.assert_array_equal(opt.state["velocity/a.W"], kept)
    assert opt.step == 1 and "b.W" in opt.params
    opt.setupOn(Linear(3, 3))
    assert opt.step == 0 and opt.state == {}


# What it was set up on --------------------------------------------------------------------------------------


def arrays(module):
    return [param.data.copy() for param in module.params.values()]


def stays(module, before):
    return all(np.array_equal(a, b) for a, b in zip(arrays(module), before, strict=True))


def halves():
    return Sequential(Linear(4, 5, name="trunk"), Relu(), Linear(5, 3, name="head"))


@pytest.mark.parametrize("how", ["trainer", "eager trainer", "compile"])
def test_only_the_part_that_it_was_set_up_on_is_trained(rng, how):
    net, x, t = halves(), rng.normal(size=(8, 4)).astype("f"), rng.integers(0, 3, 8)
    opt = Adam(0.1).setupOn(net["head"])
    trunk, head = arrays(net["trunk"]), arrays(net["head"])
    if how == "compile":
        program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=opt)
        for _ in range(3):
            program.run(x, t)
    else:
        Trainer(net, CrossEntropy(), opt, progress="none", compile=how == "trainer").train(x, t, epochs=3)
    assert stays(net["trunk"], trunk) and not stays(net["head"], head)
    assert opt.step == 3 and list(opt.params) == ["head.W", "head.b"]


@pytest.mark.parametrize("compiled", [True, False])
def test_two_optimizers_train_the_two_networks_of_a_gan(rng, compiled):
    """The generator's step leaves the discriminator as it is, and the other way round."""
    generator = Sequential(Linear(2, 8), Relu(), Linear(8, 1), name="g")
    discriminator = Sequential(Linear(1, 8), Relu(), Linear(8, 1), name="d")
    gan = Sequential(generator, discriminator, name="gan")
    first, second = Adam(0.01).setupOn(generator), Adam(0.01).setupOn(discriminator)
    yes, no = np.ones((16, 1), "f"), np.zeros((16, 1), "f")
    if compiled:
        fool = gan.compile([(16, 2), (16, 1)], cost=BCE(), optimizer=first).run
        tell = discriminator.compile([(32, 1), (32, 1)], cost=BCE(), optimizer=second).run
    else:
        fool = Trainer(gan, BCE(), first, batchsize=32, compile=False, progress="none").train
        tell = Trainer(discriminator, BCE(), second, batchsize=32, compile=False, progress="none").train
    for _ in range(4):
        real, noise = rng.normal(3, 1, (16, 1)).astype("f"), rng.normal(size=(16, 2)).astype("f")
        g, d = arrays(generator), arrays(discriminator)
        tell(np.concatenate([real, generator(noise)]), np.concatenate([yes, no]))
        assert stays(generator, g) and not stays(discriminator, d)
        d = arrays(discriminator)
        fool(noise, yes)
        assert not stays(generator, g) and stays(discriminator, d)
    assert first.step == second.step == 4


@pytest.mark.parametrize("how", ["trainer", "compile"])
def test_an_optimizer_of_another_network_is_refused_by_name(rng, how):
    x, t = rng.normal(size=(8, 4)).astype("f"), rng.integers(0, 3, 8)
    first, second, opt = halves(), halves(), Adam(0.1, schedule=Cosine(10))

    def go(net):
        if how == "compile":
            net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=opt).run(x, t)
        else:
            Trainer(net, CrossEntropy(), opt, progress="none").train(x, t)

    go(first)
    before = arrays(second)
    with pytest.raises(
        PuregraphError, match="Adam: it is set up on Sequential, where it has made 1 update, .* setupOn"
    ):
        go(second)
    assert stays(second, before) and opt.step == 1
    opt.setupOn(second)
    assert opt.step == 0 and opt.rate == 0.1
    go(second)
    assert opt.step == 1


def test_a_network_that_has_grown_is_trained_whole(rng):
    net, opt = Sequential(Linear(4, 4, name="a")), Adam(0.1)
    x, t = rng.normal(size=(8, 4)).astype("f"), rng.integers(0, 3, 8)
    Trainer(net, CrossEntropy(), opt, progress="none").train(x, t)
    net.append(Linear(4, 3, name="b"))
    Trainer(net, CrossEntropy(), opt, progress="none").train(x, t)
    assert list(opt.params) == ["a.W", "a.b", "b.W", "b.b"] and opt.step == 2


def test_a_frozen_part_leaves_nothing_to_train(rng):
    net = halves()
    opt = Adam(0.1).setupOn(net["head"])
    for param in net["head"].params.values():
        param.trainable = False
    with pytest.raises(DataError, match="nothing can be trained of what Adam is set up on: all of it is frozen"):
        Trainer(net, CrossEntropy(), opt, progress="none").train(np.zeros((8, 4), "f"), np.zeros(8, int))


def test_a_part_that_is_trained_goes_through_save_and_resume(rng, tmp_path):
    x, t = rng.normal(size=(8, 4)).astype("f"), rng.integers(0, 3, 8)

    def made():
        net = halves()
        return Trainer(net, CrossEntropy(), Adam(0.1).setupOn(net["head"]), progress="none")

    one, other = made(), made()
    one.train(x, t, epochs=2)
    one.save(tmp_path / "part.h5")
    other.resume(tmp_path / "part.h5")
    assert other.optimizer.state.keys() == one.optimizer.state.keys()
    for trainer in (one, other):
        trainer.train(x, t, epochs=2)
    assert all(np.array_equal(a, b) for a, b in zip(arrays(one.net), arrays(other.net)))


# Schedules as long as a run ---------------------------------------------------------------------------------


SAMPLES = np.zeros((40, 4), "f"), np.zeros(40, int)  # ten batches of four an epoch


def rates(schedule, epochs=3, source=SAMPLES, **options):
    """The learning rate of every step."""
    found = []
    look = lambda trainer: found.append(trainer.lastRate)  # noqa: E731
    options = {"batchsize": 4, "progress": "none", "callbacks": [look], **options}
    Trainer(halves(), CrossEntropy(), SGD(1.0, schedule=schedule), **options).train(*source, epochs=epochs)
    return found


@pytest.mark.parametrize(
    "build", [Cosine, OneCycle, lambda total=None: WarmUp(5, Cosine(None if total is None else 25))]
)
def test_a_schedule_without_a_length_is_as_long_as_the_run(build):
    assert rates(build()) == rates(build(30)) and len(rates(build())) == 30


@pytest.mark.parametrize("wrong", [-1.0, np.inf, np.nan, None, "0.5", 1j, [0.5, 1.0], 10**400])
def test_a_schedule_that_gives_no_factor_is_refused_before_the_step(wrong):
    steps = []
    for first in (0, 12, 29):  # from the first step on, on the way, at the last one
        with pytest.raises(ArgumentError, match=r"schedule: wanted a factor .* finite, got .* after \d+ updates"):
            rates(lambda step, first=first: 1.0 if step != first else wrong, callbacks=[steps.append])
    optimizer = SGD(0.1, schedule=lambda step: wrong)
    with pytest.raises(ArgumentError, match="schedule: wanted a factor of the learning rate from 0 on"):
        optimizer.rate
    assert rates(lambda step: np.float32(0.5)) == rates(lambda step: np.array(0.5)) == [0.5] * 30


def test_the_lengths_of_a_schedule_in_epochs_are_epochs():
    assert rates(Epochs(Step(1))) == rates(Step(10)) == [0.1**k for k in range(3) for _ in range(10)]
    assert rates(Epochs(Step(1)), accumulate=5) == [1.0] * 2 + [0.1] * 2 + [0.1**2] * 2
    np.testing.assert_allclose(rates(Epochs(Cosine(3))), rates(Cosine(30)), rtol=1e-12)
    np.testing.assert_allclose(rates(Epochs(Cosine())), rates(Cosine(30)), rtol=1e-12)
    np.testing.assert_allclose(
        rates(Epochs(WarmUp(1, Cosine(2), start=0.5))), rates(WarmUp(10, Cosine(20), start=0.5)), rtol=1e-12
    )
    np.testing.assert_allclose(rates(WarmUp(10, Epochs(Step(1)))), rates(WarmUp(10, Step(10))), rtol=1e-12)
    assert rates(Epochs(lambda epoch: 0.5 ** int(epoch)))[::10] == [1.0, 0.5, 0.25]


def test_a_schedule_in_epochs_that_is_over_before_the_run_says_so_in_updates():
    with pytest.warns(GraphWarning, match="is over after 20 updates, this run after 30"):
        rates(Epochs(Cosine(2)))


def test_a_schedule_in_epochs_wants_somebody_to_say_how_long_one_is():
    with pytest.raises(ArgumentError, match=r"the number of updates in an epoch is not set.* fitEpoch\(n\)"):
        rates(Epochs(Step(1)), source=(lambda: iter([(SAMPLES[0][:4], SAMPLES[1][:4])]),))
    for wrong in (OneCycle(), Epochs(Step(1)), WarmUp(3, OneCycle(9))):
        with pytest.raises(ArgumentError, match="Epochs: wanted a schedule such as"):
            Epochs(wrong)


def test_a_schedule_without_a_length_counts_steps_of_several_batches():
    assert rates(Cosine(), accumulate=5) == rates(Cosine(6), accumulate=5)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (
            Cosine(10),
            r"Cosine\(10\) is over after 10 updates, this run after 30: the factor .* is then 0 until the end",
        ),
        (OneCycle(5), r"OneCycle\(5\) is over after 5 updates.* 4e-06 until the end; lengths are .* an epoch has 10"),
        (WarmUp(5, Cosine(10)), "is over after 15 updates"),
        (Cosine(29, final=0.1), "is over after 29 updates"),
        (Step(2, 0.1), "is over after 14 updates"),
        (lambda step: 0.1**step, "is over after 7 updates"),
    ],
)
def test_a_schedule_that_is_over_before_the_run_is_says_so_before_the_first_step(schedule, words):
    steps = []
    with pytest.warns(GraphWarning, match=f"schedule: .*{words}") as found:
        rates(schedule, callbacks=[lambda trainer: steps.append(len(found))])
    assert len(found) == 1 and steps[0] == 1


@pytest.mark.parametrize(
    "schedule",
    [Cosine(30), Cosine(1000), OneCycle(30), WarmUp(5), WarmUp(5, Cosine(25)), Step(10), lambda step: 0.9**step],
)
def test_a_schedule_that_fits_its_run_is_not_spoken_of(schedule):
    assert len(rates(schedule)) == 30


def test_a_schedule_without_a_length_goes_on_from_a_file_as_if_it_had_not_been_stopped(tmp_path):
    def made(*callbacks):
        options = {"batchsize": 4, "progress": "none", "callbacks": callbacks}
        return Trainer(halves(), CrossEntropy(), SGD(1.0, schedule=Cosine()), **options)

    def stop(trainer):
        if trainer.step == 13:
            trainer.save(tmp_path / "run.h5")
            raise KeyboardInterrupt

    first = made(stop)
    with pytest.raises(KeyboardInterrupt):
        first.train(*SAMPLES, epochs=3)
    second = made().resume(tmp_path / "run.h5")
    second.train(*SAMPLES, epochs=3)
    assert second.optimizer.schedule.total == 30 and second.history[-1]["rate"] == Cosine(30)(29)


def test_a_length_that_nobody_knows_is_asked_for():
    with pytest.raises(ValueError, match=r"Cosine: wanted a total, .* no Trainer sets it: write Cosine\(1000\)"):
        SGD(schedule=Cosine()).rate
    batches = ((SAMPLES[0][:4], SAMPLES[1][:4]) for _ in range(5))
    with pytest.raises(ValueError, match="OneCycle: wanted a total"):
        rates(OneCycle(), 1, (batches,))


def test_a_copy_goes_its_own_way(rng):
    net = Bag()
    opt = Adam().setupOn(net)
    train(net, opt, rng, 2)
    twinNet, twin = copy.deepcopy((net, opt))
    before = values(net)
    train(twinNet, twin, rng, 1)
    assertSame(before, values(net))
    assert (opt.step, twin.step) == (2, 3)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: SGD(-1), "SGD: wanted learnRate of at least 0, got -1"),
        (lambda: Adam(Linear(1, 1)), "got Linear.*; a Trainer gives an optimizer its parameters"),
        (lambda: SGD(decay=-1), "decay of at least 0"),
        (lambda: SGD(clipNorm=-1), "clipNorm of at least 0"),
        (lambda: SGD(clipNorm=1, clipValue=1), "clipNorm or clipValue, got both"),
        (lambda: SGD(onNonFinite="ignore"), "onNonFinite as one of 'raise', 'skip', or None, got 'ignore'"),
        (lambda: Adam(beta2=1), "beta2 from 0 to below 1, got 1"),
        (lambda: RMSProp(factor=1.5), "factor from 0 to below 1"),
        (lambda: Step(0), "Step: wanted size of at least 1, got 0"),
        (lambda: Cosine(0), "total of at least 1"),
        (lambda: WarmUp(-3), "steps of at least 1"),
        (lambda: OneCycle(3, rise=0.1), "no update to go up"),
    ],
)
def test_settings_out_of_range_are_refused(build, words):
    with pytest.raises(ValueError, match=words):
        build()


def test_a_class_without_a_rule_is_refused():
    with pytest.raises(TypeError, match="Optimizer has no update"):
        Optimizer(0.1)
    with pytest.raises(NotImplementedError, match="write __call__"):
        Schedule()(0)


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
