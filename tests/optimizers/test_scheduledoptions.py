"""Every number that a rule reads may be a schedule: eagerly, compiled, and through a file in the middle of a run."""

import inspect

import numpy as np
import pytest

from puregraph import MSE, Linear, Sequential, Trainer, optimizers, seed
from puregraph.compile.updater import Updater
from puregraph.core.errors import ArgumentError
from puregraph.optimizers import SAM, SGD, Polynomial

FIXED = {  # numbers that are read once, or are a schedule themselves
    "learnRate": "times `schedule`",
    "startSquares": "the state before the first update",
    "fading": "an exponent of the step",
    "clipNorm": "an option of all optimizers",
}
SPECIAL = {
    "MomentumSGD dampening": 0.4,
    "RMSProp momRate": 0.8,
    "ScheduleFree beta1": 0.9,
    "AdaGrad rateDecay": 0.2,
    "Rprop least": 0.02,
    "Adafactor least": 5.0,
}
SHIFTED = {"shrinking": 0.1, "begin": 2.0, "epsilon": 0.01, "decay": 0.1, "psi": 0.3, "most": 0.008, "clip": 0.5}


def cases():
    """(optimizer, option) of every optimizer and every option that is a number."""
    for name in optimizers.__all__:
        kind = getattr(optimizers, name)
        if not (isinstance(kind, type) and issubclass(kind, optimizers.Optimizer)):
            continue
        if name in ("Optimizer", "MultiOptimizer", "SAM", "LBFGS"):
            continue
        options = {n: p.default for n, p in inspect.signature(kind).parameters.items()} | {"decay": 0.0}
        yield from [(name, n) for n, value in options.items() if type(value) is float and n not in FIXED]


def scheduleOf(name, option):
    """A schedule from twice, or 0.9 of, the usual value down or up to another."""
    kind = getattr(optimizers, name)
    usual = {"decay": inspect.Parameter("decay", inspect.Parameter.KEYWORD_ONLY, default=0.1)}
    usual = {**usual, **inspect.signature(kind).parameters}[option].default
    value = SPECIAL.get(f"{name} {option}", SHIFTED.get(option, usual))
    return Polynomial(12, start=0.95 * value if value < 1 else value, final=0.7 * value if value < 1 else 1.5 * value)


def networkFor(name):
    net = Sequential(Linear(3, 4, name="one"), Linear(4, 2, name="two")).calcMode("float64")
    rng = np.random.default_rng(len(name))
    for p in net.params.values():
        p.data = rng.standard_normal(p.shape)
    return net


def draw(net, step):
    rng = np.random.default_rng(step)
    for p in net.params.values():
        p.grad = rng.standard_normal(p.shape)


def assertSame(one, other, tolerance=0.0):
    for path, p in one.params.items():
        np.testing.assert_allclose(other.params[path].data, p.data, rtol=tolerance, atol=tolerance, err_msg=path)


@pytest.mark.parametrize(("name", "option"), list(cases()))
def test_a_scheduled_option_is_one_that_is_set_before_each_update(name, option):
    """By hand, compiled, and restored after five updates."""
    schedule = scheduleOf(name, option)
    nets = [networkFor(name) for _ in range(4)]
    opts = [getattr(optimizers, name)(**{option: schedule}).setupOn(net) for net in nets[:3]]
    byHand = getattr(optimizers, name)(**{option: schedule(0)}).setupOn(nets[3])
    for net in nets:
        draw(net, 0)
    updater = Updater(nets[1], opts[1])
    for step in range(12):
        for net in nets:
            draw(net, step)
        if step == 5:
            state = {key: array.copy() for key, array in opts[2].state.items()}
            opts[2] = getattr(optimizers, name)(**{option: schedule}).setupOn(nets[2])
            opts[2].restore(5, state)
        setattr(byHand, option, schedule(step))
        opts[0].update()
        updater.run()
        opts[2].update()
        byHand.update()
    assert updater.why == ""
    assertSame(nets[0], nets[1], 1e-12)
    assertSame(nets[0], nets[2])
    assertSame(nets[0], nets[3], 1e-12)
    steady = networkFor(name)
    opt = getattr(optimizers, name)(**{option: schedule(0)}).setupOn(steady)
    for step in range(12):
        draw(steady, step)
        opt.update()
    weights = [(p.data, nets[0].params[path].data) for path, p in steady.params.items()]
    states = [(array, opts[0].state[key]) for key, array in opt.state.items()]
    assert any((a != b).any() for a, b in (*weights, *states)), "it has no effect"


@pytest.mark.parametrize(("name", "option"), list(cases()))
def test_a_run_with_a_scheduled_option_goes_through_a_file(name, option, tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((24, 3)), rng.standard_normal((24, 2))

    def trainer():
        seed(0)
        opt = getattr(optimizers, name)(**{option: scheduleOf(name, option)})
        return Trainer(networkFor(name), MSE(), opt, batchsize=4, shuffle=False, progress="none")

    whole, first = trainer(), trainer()
    whole.train(x, y, epochs=2)
    first.train(x, y, epochs=1)
    first.save(tmp_path / "run.h5")
    again = trainer().resume(tmp_path / "run.h5")
    again.train(x, y, epochs=1)
    assert again.optimizer.step == 12
    assertSame(whole.net, again.net)


@pytest.mark.parametrize(("kind", "option"), [("Adam", "beta2"), ("Rprop", "fall"), ("Muon", "momRate")])
def test_a_schedule_outside_the_bounds_of_its_option_is_refused(kind, option):
    net = networkFor(kind)
    opt = getattr(optimizers, kind)(**{option: lambda step: 1.0}).setupOn(net)
    draw(net, 0)
    with pytest.raises(ArgumentError, match=f"{option}: wanted a number from 0 to below 1, got 1.0"):
        opt.update()


def test_the_radius_of_sam_may_be_a_schedule():
    nets = [networkFor("SAM") for _ in range(2)]
    rho = Polynomial(12, start=0.5, final=0.05)
    opts = [SAM(SGD(0.1), rho=r).setupOn(net) for net, r in zip(nets, (rho, rho(0)))]
    for step in range(6):
        opts[1].rho = rho(step)
        for net, opt in zip(nets, opts):

            def closure(net=net):
                for p in net.params.values():
                    p.grad = p.data**3

            opt.update(closure)
    assertSame(nets[0], nets[1])
    assert rho in opts[0].optionSchedules
