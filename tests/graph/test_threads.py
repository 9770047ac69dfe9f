"""Several threads use one Calculator, Validator, Program, Graph, Module or formula at once: each gets its own results."""

import ast
import copy
import sys
import threading
import time

import numpy as np
import pytest

from puregraph import (
    MSE,
    SGD,
    Accuracy,
    BatchNorm,
    Calculator,
    Conv2D,
    CrossEntropy,
    Dropout,
    Formula,
    GlobalAvgPool,
    Linear,
    Relu,
    Sequential,
    Trainer,
    Validator,
)
from puregraph.compile import Program
from puregraph.compile.runtime.buffers import Workspace
from puregraph.core.errors import DataError
from puregraph.train.modes import HOLDERS, inMode

COUNT = 8
SIZES = (200, 96, 33, 7, 128, 1, 65, 130)
EVERYDAY, MANY = 160, 10_000


def network():
    return Sequential(
        Conv2D(3, 8, 3, pad=1, name="c"), BatchNorm(8), Relu(name="r"), Dropout(0.5), GlobalAvgPool(), Linear(8, 10)
    )


def images(count=200):
    return np.random.default_rng(0).normal(size=(count, 3, 8, 8)).astype("f4")


def together(work, calls):
    """Call `work(number)` that often in all, in eight threads that begin together; what it found wrong."""
    begin, wrong, errors = threading.Barrier(COUNT), [], []

    def run(number):
        begin.wait()
        try:
            for _ in range(calls // COUNT):
                if not work(number):
                    wrong.append(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(COUNT)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads meet in the middle of everything
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(250)
    finally:
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return wrong


def near(a, b):
    return np.allclose(a, b, rtol=1e-4, atol=1e-5)


def calculators(calls):
    """One Calculator, batches of several shapes."""
    net, big = network().evalMode(), images()
    wanted = {n: net(big[:n]) for n in SIZES}
    net.trainMode()  # which a Calculator changes for a while
    own = Calculator(net, batchsize=32)
    assert not together(lambda i: near(own.calculate(big[: SIZES[i]]), wanted[SIZES[i]]), calls)
    assert net["c"].isTraining and not HOLDERS.before


def validators(calls):
    """One Validator, with a metric."""
    net, big = network().trainMode(), images()
    labels = np.arange(len(big)) % 10
    wanted = {n: Validator(net, CrossEntropy(), [Accuracy()], 32).validate(big[:n], labels[:n]) for n in SIZES}
    own = Validator(net, CrossEntropy(), [Accuracy()], batchsize=32)

    def work(i):
        found = own.validate(big[: SIZES[i]], labels[: SIZES[i]])
        return all(near(found[name], value) for name, value in wanted[SIZES[i]].items())

    assert not together(work, calls)
    assert net["c"].isTraining and not HOLDERS.before


def programs(calls):
    """Programs of several shapes that share their memory, and of each shape one for two threads."""
    net, workspace = network().evalMode(), Workspace()
    shapes = [images(n) for n in (64, 3, 17, 40)]
    made = [Program(net, [x.shape], workspace=workspace) for x in shapes]
    given = [shapes[i % 4] + i for i in range(COUNT)]
    wanted = [net(x) for x in given]
    assert not together(lambda i: near(made[i % 4].run(given[i]), wanted[i]), calls)


def graphs(calls):
    """A graph itself, nested, in batches of several sizes."""
    net = Sequential(Linear(6, 8), Sequential(Relu(), Linear(8, 8), name="inner"), Linear(8, 3)).evalMode()
    given = [np.random.default_rng(i).normal(size=(SIZES[i], 6)).astype("f4") for i in range(COUNT)]
    wanted, shapes = [net(x) for x in given], [(x.shape[0], 3) for x in given]
    assert not together(
        lambda i: np.array_equal(net(given[i]), wanted[i]) and net.dataShapeFrom(given[i].shape) == shapes[i],
        10 * calls,
    )


def modules(calls):
    """A lone module."""
    fc = Linear(6, 3)
    given = [np.random.default_rng(i).normal(size=(SIZES[i], 6)).astype("f4") for i in range(COUNT)]
    wanted = [fc(x) for x in given]
    assert not together(lambda i: np.array_equal(fc(given[i]), wanted[i]), calls)


def formulas(calls):
    """Formulas that are made and read at once, in several dtypes."""
    xs = [np.linspace(-3, 3, 50 + i).astype("f4" if i % 2 else "f8") for i in range(COUNT)]

    def work(i):
        number = np.random.default_rng().integers(40) + 0.25
        found = Formula(f"where(x > {number}, exp(-x * x), tanh(x) + {number})").derivative("x")(x=xs[i])
        x = xs[i].astype("f8")
        return np.allclose(found, np.where(x > number, -2 * x * np.exp(-x * x), 1 - np.tanh(x) ** 2), 1e-4, 1e-5)

    assert not together(work, calls)


WAYS = [calculators, validators, programs, graphs, modules, formulas]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_eight_threads_get_right_results(way):
    way(EVERYDAY)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_eight_threads_get_right_results_ten_thousand_times(way):
    way(MANY)


class Overtaken(Sequential):
    """A graph in which another thread always runs before the call comes back."""

    def __setattr__(self, name, value):
        super().__setattr__(name, "another's" if name == "data" and value is not None else value)


def test_a_graph_gives_back_what_it_calculated_itself():
    x = np.ones((2, 3), "f4")
    fc = Linear(3, 2)
    assert np.array_equal(Overtaken(fc)(x), fc(x))


def test_training_in_several_threads_is_as_right_as_in_one():
    """Each has a network of its own; what they share is the pool, formulas and kernels."""
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(40, 4)).astype("f4"), rng.normal(size=(40, 2)).astype("f4")
    first = Sequential(Linear(4, 8), Relu(), Linear(8, 2))

    def trained():
        net = copy.deepcopy(first)
        Trainer(net, MSE(), SGD(0.1), batchsize=16, progress=None).train(x, t, epochs=2)
        return [p.data for p in net.params.values()]

    wanted = trained()
    assert not together(lambda i: all(map(near, trained(), wanted)), 8)


def test_a_net_is_not_evaluated_while_another_thread_trains_it():
    net = network().evalMode()
    ready, done = threading.Event(), threading.Event()

    def train():
        with inMode(True, net):
            ready.set()
            done.wait(60)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        ready.wait(60)
        with pytest.raises(DataError, match=r"wanted evalMode for .* another thread has in trainMode .*deepcopy"):
            Calculator(net).calculate(images(4))
        with inMode(True, net):  # the same mode is no harm
            pass
        assert net["c"].isTraining
    finally:
        done.set()
        thread.join(60)
    assert not net["c"].isTraining and not HOLDERS.before
    assert Calculator(net).calculate(images(4)).shape == (4, 10)


def test_the_last_thread_that_evaluates_restores_the_mode():
    net = network().trainMode()
    inside, done = threading.Event(), threading.Event()

    def evaluate():
        with inMode(False, net):
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=evaluate)
    with inMode(False, net):
        thread.start()
        inside.wait(60)
    assert not net["c"].isTraining
    done.set()
    thread.join(60)
    assert net["c"].isTraining and not HOLDERS.before


def test_a_mode_within_a_mode_of_one_thread_is_left_as_it_was():
    net = network().evalMode()
    with inMode(True, net):
        net["c"].isTraining = False  # frozen by hand
        with inMode(False, net):
            assert not net["r"].isTraining
        assert net["r"].isTraining and not net["c"].isTraining
    assert not net["r"].isTraining and not net["c"].isTraining


def test_texts_of_formulas_are_parsed_by_one_thread_at_a_time(monkeypatch):
    inside, most = [], []

    def parse(text, mode="exec"):
        inside.append(text)
        most.append(len(inside))
        time.sleep(0.001)
        inside.pop()
        return made(text, mode=mode)

    made = ast.parse
    monkeypatch.setattr(ast, "parse", parse)
    threads = [threading.Thread(target=Formula, args=(f"{k}.25 * x + {k}",)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1 and len(most) == 8
