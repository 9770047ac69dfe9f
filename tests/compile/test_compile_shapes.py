"""Programs for many shapes: a bounded number is kept, and none is compiled again and again."""

import sys
import warnings

import numpy as np
import pytest

from puregraph import SGD, Calculator, CrossEntropy, Linear, Relu, Sequential, Trainer
from puregraph.compile import Programs
from puregraph.compile.opensteps import OpenSteps
from puregraph.compile.program import Program
from puregraph.core.errors import GraphWarning

MODULE = sys.modules[Programs.__module__]  # a function has its name
MOST = 32


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """Memory for MOST programs."""
    monkeypatch.setattr(Program, "bytesBeside", 1)
    monkeypatch.setattr(MODULE, "MIN_KEPT_BYTES", MOST)
    monkeypatch.setattr(MODULE, "memoryBytes", lambda: 0)


@pytest.fixture
def built(monkeypatch):
    """The shapes that are compiled, in order, each for itself."""
    monkeypatch.setattr(OpenSteps, "schedule", lambda self, program: None)
    found, original = [], MODULE.Program

    def make(graph, shapes, *more, **options):
        found.append(shapes[0])
        return original(graph, shapes, *more, **options)

    monkeypatch.setattr(MODULE, "Program", make)
    return found


def batches(first, last):
    return [np.ones((n, 3), "f4") for n in range(first, last)]


def test_more_shapes_than_are_kept_are_warned_of_once_and_run_eagerly(built):
    net = Sequential(Linear(3, 2), Relu()).evalMode()
    given = batches(1, MOST + 9)
    wanted = [net(x) for x in given]
    calculator = Calculator(net)
    with pytest.warns(GraphWarning, match="more than 32 shapes.*run eagerly") as told:
        for _ in range(6):
            for x, y in zip(given, wanted):
                np.testing.assert_allclose(calculator.calculate([x]), y, rtol=1e-5)
    assert len(told) == 1
    assert len(built) == len(set(built)) == MOST, "each is compiled once"


def test_shapes_that_come_no_more_make_room_for_others(built):
    programs = Programs(Sequential(Linear(3, 2), Relu()).evalMode())
    for _ in range(2):
        for x in batches(1, MOST + 1):
            programs.get([x])
    assert len(built) == MOST
    later = batches(100, 110)
    with pytest.warns(GraphWarning, match="more than 32 shapes"):
        for _ in range(60):
            for x in later:
                programs.get([x])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(programs.get([x]) is not None for x in later)
    assert len(built) == MOST + 10 and len(programs.kept) == len(programs.used) == MOST


def test_what_is_known_of_shapes_is_bounded(monkeypatch, built):
    monkeypatch.setattr(MODULE, "MAX_COUNTED_SHAPES", 50)
    programs = Programs(Sequential(Relu()).evalMode())
    for x in batches(1, 300):
        programs.get([x])
    assert len(programs.seen) <= 50 and len(built) == 4


def test_training_steps_are_compiled_for_each_shape_at_first_use_and_stay(monkeypatch, rng):
    monkeypatch.undo()
    data = [(rng.standard_normal((n, 3), np.float32), rng.integers(0, 2, n)) for n in range(1, 61)]
    trainer = Trainer(Sequential(Linear(3, 2), Relu(), Linear(2, 2)), CrossEntropy(), SGD(), progress=None)
    objective, passes = trainer.objective, []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in (1, 2):
            trainer.train(data, epochs=epoch)
            passes.append(list(objective.programs.kept.values()))
    assert len(passes[0]) == 60 and set(map(id, passes[0])) == set(map(id, passes[1]))
    assert len({id(p.executable.memory.arena) for p in passes[1]}) == 1
