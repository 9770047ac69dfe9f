"""Schedules against PyTorch's, chained, as values of options, and fitted to a run."""

import numpy as np
import pytest

from puregraph import MSE, Linear, Sequential, Trainer, seed
from puregraph.core.errors import ArgumentError
from puregraph.optimizers import (
    WSD,
    Adam,
    Chain,
    Cosine,
    CosineRestarts,
    Cyclic,
    Epochs,
    Exponential,
    Hold,
    MomentumSGD,
    MultiStep,
    Polynomial,
    Step,
    WarmUp,
)

PEERS = {
    "MultiStep": (MultiStep((7, 11, 30), 0.3), lambda s, o: s.MultiStepLR(o, [7, 11, 30], 0.3)),
    "Exponential": (Exponential(0.93), lambda s, o: s.ExponentialLR(o, 0.93)),
    "Polynomial": (Polynomial(24, 1.7), lambda s, o: s.PolynomialLR(o, 24, 1.7)),
    "line": (Polynomial(13, start=0.2, final=1.0), lambda s, o: s.LinearLR(o, 0.2, 1.0, 13)),
    "Hold": (Hold(0.4, 8), lambda s, o: s.ConstantLR(o, 0.4, 8)),
    "CosineRestarts": (
        CosineRestarts(5, 2, 0.1),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 5, 2, 0.1),
    ),
    "equal restarts": (CosineRestarts(6), lambda s, o: s.CosineAnnealingWarmRestarts(o, 6)),
    "Cyclic": (Cyclic(4, 7, 0.2), lambda s, o: s.CyclicLR(o, 0.2, 1.0, 4, 7, cycle_momentum=False)),
    "halving": (
        Cyclic(3, least=0.2, mode="halving"),
        lambda s, o: s.CyclicLR(o, 0.2, 1.0, 3, mode="triangular2", cycle_momentum=False),
    ),
    "exponential": (
        Cyclic(3, 2, 0.2, "exponential", 0.95),
        lambda s, o: s.CyclicLR(o, 0.2, 1.0, 3, 2, "exp_range", 0.95, cycle_momentum=False),
    ),
    "Chain": (
        Chain((Hold(0.5, 4), 6), (Exponential(0.9), 10), Step(5, 0.5)),
        lambda s, o: s.SequentialLR(
            o, [s.ConstantLR(o, 0.5, 4), s.ExponentialLR(o, 0.9), s.StepLR(o, 5, 0.5)], [6, 16]
        ),
    ),
}


@pytest.mark.peers
@pytest.mark.parametrize("name", PEERS)
def test_a_schedule_is_that_of_pytorch(name):
    import torch

    ours, theirs = PEERS[name]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = theirs(torch.optim.lr_scheduler, optimizer)
    for step in range(50):
        assert ours(step) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9, abs=1e-12), step
        optimizer.step()
        scheduler.step()


def trained(optimizer, epochs=3, **options):
    seed(0)
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((40, 3)), rng.standard_normal((40, 1))
    rates = []
    look = lambda trainer: rates.append(trainer.lastRate)  # noqa: E731
    trainer = Trainer(
        Sequential(Linear(3, 1)), MSE(), optimizer, batchsize=4, progress="none", callbacks=[look], **options
    )
    trainer.train(x, y, epochs=epochs)
    return trainer, rates


def test_warm_up_stable_and_decay_are_fitted_to_the_run():
    _, rates = trained(MomentumSGD(1.0, schedule=WSD(4, 10)))
    np.testing.assert_allclose(rates, [WSD(4, 10, 30)(step) for step in range(30)])
    assert rates[3] < 1 == rates[4] == rates[20] > rates[21]


def test_the_last_of_a_chain_takes_what_is_left_of_the_run():
    _, rates = trained(MomentumSGD(1.0, schedule=Chain((Hold(0.1), 10), Cosine())))
    np.testing.assert_allclose(rates, [0.1] * 10 + [Cosine(20)(step) for step in range(20)])
    _, rates = trained(MomentumSGD(1.0, schedule=Epochs(Chain((Hold(0.1), 1), Step(1, 0.5)))))
    assert rates[::10] == [0.1, 1.0, 0.5]


@pytest.mark.parametrize("wrong", [(), (Step(1), 3), ((Step(1),), Step(2)), ((1, 2), Step(1)), ((Step(1), 0), Step(1))])
def test_a_chain_that_is_none_is_refused(wrong):
    with pytest.raises(ArgumentError, match="Chain: wanted"):
        Chain(*wrong)
    with pytest.raises(ArgumentError, match="wanted steps that rise"):
        MultiStep((3, 2))


@pytest.mark.parametrize("isCompiled", [False, True])
def test_an_option_may_be_a_schedule(isCompiled):
    """Momentum that falls and decay that rises, against the formula written out."""
    rng = np.random.default_rng(0)
    net = Sequential(Linear(3, 2, name="fc")).calcMode("float64")
    momentum, decay = Polynomial(12, start=0.9, final=0.5), lambda step: 0.01 * step
    opt = MomentumSGD(0.1, momRate=momentum, decay=decay).setupOn(net)
    w = {path: p.data.copy() for path, p in net.params.items()}
    v = {path: 0 * x for path, x in w.items()}
    updater = None
    for step in range(12):
        for path, p in net.params.items():
            p.grad = rng.standard_normal(p.shape)
            v[path] = momentum(step) * v[path] + p.grad + decay(step) * w[path]
            w[path] = w[path] - 0.1 * v[path]
        if isCompiled:
            from puregraph.compile import Updater

            updater = updater or Updater(net, opt)
            updater.run()
        else:
            opt.update()
        for path, p in net.params.items():
            np.testing.assert_allclose(p.data, w[path], rtol=1e-12)
    assert updater is None or updater.why == ""


def test_bias_corrections_follow_a_scheduled_beta():
    net = Sequential(Linear(1, 1, useBias=False, name="fc")).calcMode("float64")
    net["fc"].W.data = np.ones((1, 1))
    opt = Adam(0.1, beta1=lambda step: 0.9 - 0.1 * step).setupOn(net)
    m = v = 0.0
    w = 1.0
    for step in range(4):
        net["fc"].W.grad = np.full((1, 1), step + 1.0)
        opt.update()
        beta = 0.9 - 0.1 * step
        m, v = beta * m + (1 - beta) * (step + 1), 0.999 * v + 0.001 * (step + 1) ** 2
        w -= 0.1 * m / (1 - beta ** (step + 1)) / (np.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-8)
        assert net["fc"].W.data[0, 0] == pytest.approx(w, rel=1e-12)


def test_an_option_without_a_length_is_as_long_as_the_run():
    momentum = Polynomial(start=0.95, final=0.85)
    trained(MomentumSGD(0.01, momRate=momentum))
    assert momentum.total == 30 and momentum(30) == pytest.approx(0.85)


def test_a_scheduled_option_that_gives_no_number_is_refused():
    net = Sequential(Linear(1, 1))
    opt = MomentumSGD(0.1, momRate=lambda step: -1.0).setupOn(net)
    for p in net.params.values():
        p.grad = np.ones(p.shape, np.float32)
    with pytest.raises(ArgumentError, match="momRate: wanted a number from 0 on, finite, got -1.0"):
        opt.update()


def test_a_schedule_is_fitted_again_to_a_resumed_run_that_is_longer(tmp_path):
    trainer, _ = trained(MomentumSGD(1.0, schedule=Cosine()), epochs=2)
    trainer.save(tmp_path / "run.h5")
    again = Trainer(
        Sequential(Linear(3, 1)), MSE(), MomentumSGD(1.0, schedule=Cosine()), batchsize=4, progress="none"
    ).resume(tmp_path / "run.h5")
    rng = np.random.default_rng(1)
    again.train(rng.standard_normal((40, 3)), rng.standard_normal((40, 1)), epochs=5)
    assert again.optimizer.schedule.total == 20 + 50
    assert again.history[-1]["rate"] == Cosine(70)(69)


@pytest.mark.parametrize(
    "schedule", [MultiStep((3, 5)), WSD(2, 3), Chain((WarmUp(2), 3), CosineRestarts(4)), Polynomial(12, 2.0), Cyclic(3)]
)
def test_a_schedule_goes_through_a_file(schedule, tmp_path):
    trainer, rates = trained(MomentumSGD(0.01, schedule=schedule), epochs=1)
    trainer.save(tmp_path / "run.h5")
    again = Trainer(
        Sequential(Linear(3, 1)), MSE(), MomentumSGD(0.01, schedule=schedule), batchsize=4, progress="none"
    ).resume(tmp_path / "run.h5")
    assert again.optimizer.rate == trainer.optimizer.rate
