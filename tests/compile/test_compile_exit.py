"""Large results are written directly into the caller's array, and no result changes later."""

import gc
import pickle

import numpy as np
import pytest
from natively import needsNative

import puregraph as pg
from puregraph.compile.memory import outputs
from puregraph.core.base import introspection
from puregraph.ops.ir.value import Value

pytestmark = needsNative
MANY = 300  # rows whose results are large enough


def classifier():
    pg.seed(0)
    return pg.Sequential(pg.Linear(16, 32), pg.Relu(), pg.Linear(32, 100)).evalMode()


def rows(seed=0, count=MANY):
    return np.random.default_rng(seed).normal(size=(count, 16)).astype("f")


def where(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("poison", [False, True])
def test_a_result_is_what_it_was_as_long_as_anybody_has_it(poison):
    net = classifier()
    program = net.compile((MANY, 16), poison=poison)
    results = [program.run(rows(seed)) for seed in range(5)]
    assert program.plan.ownOutputs
    for seed, y in enumerate(results):
        np.testing.assert_allclose(y, net(rows(seed)), rtol=1e-4, atol=1e-5)


def test_memory_that_nobody_has_is_used_again():
    program = classifier().compile((MANY, 16))
    places = set()
    for seed in range(20):
        y = program.run(rows(seed))  # the last one is there until this one has taken its name
        places.add(where(y))
        assert where(y) % 64 == 0
    assert len(places) == 2


@pytest.mark.parametrize(
    "part",
    [lambda y: y[3:5], lambda y: y.T, lambda y: y.reshape(-1)[::7], memoryview, np.asarray, lambda y: y.view("i4")],
    ids=["slice", "transposed", "steps", "memoryview", "itself", "otherwise"],
)
def test_a_part_of_a_result_keeps_its_memory(part):
    program = classifier().compile((MANY, 16))
    kept = part(program.run(rows()))
    wanted = np.array(kept)
    for seed in range(1, 6):
        program.run(rows(seed))
    gc.collect()
    np.testing.assert_array_equal(np.array(kept), wanted)


def test_without_counts_of_references_every_result_has_memory_of_its_own(monkeypatch):
    monkeypatch.setattr(introspection, "isCounted", lambda: False)
    program = classifier().compile((MANY, 16))
    results = [program.run(rows(seed)) for seed in range(4)]
    assert len({where(y) for y in results}) == 4


def test_gradients_of_inputs_are_given_away_too():
    net = classifier().trainMode()
    program = net.compile((MANY, 16), train=True, poison=True)
    x, g = rows(), np.random.default_rng(1).normal(size=(MANY, 100)).astype("f")
    large = np.concatenate([rows(i, MANY) for i in range(6)])
    program.run(x, g)
    first, before = program.grad, program.grad.copy()
    program.run(2 * x, -g)
    np.testing.assert_array_equal(first, before)
    wide = net.compile(large.shape, train=True)
    wide.run(large, np.ones((len(large), 100), "f"))
    assert len(wide.plan.ownOutputs) == 2
    kept, before = wide.grad, wide.grad.copy()
    wide.run(2 * large, np.ones((len(large), 100), "f"))
    np.testing.assert_array_equal(kept, before)


def twice():
    x = pg.Input().node()
    y = pg.Linear(16, 100).node(x)
    return pg.Graph(x, [y, y])


def test_two_results_of_one_value_are_two_arrays():
    program = twice().compile((MANY, 16))
    a, b = program.run(rows())
    np.testing.assert_array_equal(a, b)
    a[...] = 0
    assert (b != 0).any()


def turned():
    x = pg.Input().node()
    y = pg.Linear(16, 128).node(x)
    return pg.Graph(x, [pg.Transpose((1, 0)).node(y), pg.Reshape((-1, 64)).node(pg.Relu().node(y))])


def test_views_of_what_was_made_are_given_away_as_they_lie():
    pg.seed(1)
    net = turned().evalMode()
    program = net.compile((MANY, 16), poison=True)
    for seed in range(3):
        for ours, theirs in zip(program.run(rows(seed)), net(rows(seed))):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert len(program.plan.ownOutputs) == 2


def test_small_results_are_copied_and_take_part_in_the_arena():
    program = classifier().compile((8, 16))
    assert not program.plan.ownOutputs
    a = program.run(rows(0, 8))
    before = a.copy()
    program.run(rows(1, 8))
    np.testing.assert_array_equal(a, before)


def test_results_that_numpy_makes_are_copied():
    class Sorted(pg.Module):
        def updateData(self, x):
            return np.sort(x, axis=0)

        def updateGrad(self, grad, x, y):
            return grad

        def dataShapeFrom(self, shape):
            return shape

    pg.seed(0)
    net = pg.Sequential(pg.Linear(16, 100), Sorted()).evalMode()
    program = net.compile((MANY, 16))
    a, b = program.run(rows(0)), program.run(rows(1))
    assert not program.plan.ownOutputs
    np.testing.assert_allclose(a, net(rows(0)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(b, net(rows(1)), rtol=1e-4, atol=1e-5)


def test_a_table_says_result():
    program = classifier().compile((MANY, 16))
    assert [line.split()[-2] for line in program.table().splitlines() if "linear2" in line] == ["result"]


def test_a_result_can_be_written_to_and_pickled():
    program = classifier().compile((MANY, 16))
    y = program.run(rows())
    y += 1
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(y)), y)


def test_an_exit_keeps_two_pieces_of_memory():
    value = Value(1, (1000,), np.dtype("f"), (4,))
    found = outputs.StepOutput(value)
    kept = []
    for _ in range(5):
        found.renew()
        kept.append(found.array)
    assert len({where(x) for x in kept}) == 5 and len(found.spare) == 2
    kept.clear()
    places = set()
    for _ in range(5):
        found.renew()
        places.add(where(found.array))
    assert len(places) == 1
