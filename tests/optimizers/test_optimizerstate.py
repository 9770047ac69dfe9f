"""The state of optimizers: restored, copied, of what it was set up on; and schedules as long as a run."""

import copy

import numpy as np
import pytest
from bagofparams import CLASSES, Bag, assertSame, values

from puregraph.core.errors import ArgumentError, CheckpointError, DataError, GraphWarning, PuregraphError
from puregraph.graph.sequential import Sequential
from puregraph.modules import Linear, Relu
from puregraph.modules.costs import BCE, CrossEntropy
from puregraph.optimizers import (
    SGD,
    Adam,
    Cosine,
    Epochs,
    MomentumSGD,
    OneCycle,
    Optimizer,
    RMSProp,
    Schedule,
    Step,
    WarmUp,
)
from puregraph.train import Trainer

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
