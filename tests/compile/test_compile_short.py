"""A run with nothing to decide is the same as any other: what has changed is seen, and what is wrong is told."""

import numpy as np
import pytest
from natively import needsNative, unverified

import puregraph as pg
from puregraph.compile import Program
from puregraph.compile.runtime.buffers import Workspace
from puregraph.core.errors import DtypeError, ShapeError

pytestmark = needsNative


@pytest.fixture
def net():
    pg.seed(0)
    return pg.Sequential(pg.Flatten(), pg.Linear(12, 5), pg.Tanh(), pg.Linear(5, 3)).evalMode()


def images(seed=0, n=2):
    return np.random.default_rng(seed).standard_normal((n, 3, 4)).astype("f4")


@unverified
def test_small_networks_take_it_and_steps_that_learn_do_not(net):
    assert net.compile([(2, 3, 4)], train=False).fastPath is not None
    cost, optimizer = pg.MSE(), pg.optimizers.SGD(0.1)
    assert net.compile([(2, 3, 4), (2, 3)], cost=cost, optimizer=optimizer).fastPath is None


def test_results_belong_to_who_asked_unless_they_want_no_copy(net):
    program = net.compile([(2, 3, 4)], train=False)
    first, second = program.run(images(0)), program.run(images(1))
    np.testing.assert_allclose(first, net(images(0)), rtol=1e-5)
    np.testing.assert_allclose(second, net(images(1)), rtol=1e-5)
    lent = program.run(images(0), copy=False)
    program.run(images(1), copy=False)
    np.testing.assert_array_equal(lent, second)


def test_a_change_of_weights_modes_and_modules_is_seen(net):
    program, x = net.compile([(2, 3, 4)], train=False), images()
    before = program.run(x)
    net["linear"].W.data[...] *= 2
    np.testing.assert_allclose(program.run(x), net(x), rtol=1e-5)
    net["linear"].W.data = np.zeros((12, 5), "f4")
    np.testing.assert_allclose(program.run(x), net(x), rtol=1e-5)
    assert not np.array_equal(before, program.run(x))


def test_inputs_that_do_not_fit_are_refused_and_those_that_can_be_made_to_fit_are_taken(net):
    program = net.compile([(2, 3, 4)], train=False)
    program.run(images())
    with pytest.raises(ShapeError, match="compile for that shape"):
        program.run(images(n=3))
    with pytest.raises(DtypeError, match="float32"):
        program.run(images().astype("f8"))
    apart = np.zeros((2, 3, 8), "f4")[..., ::2]
    apart[...] = images()
    np.testing.assert_allclose(program.run(apart), net(images()), rtol=1e-5)
    np.testing.assert_allclose(program.run(np.asfortranarray(images())), net(images()), rtol=1e-5)


@unverified
def test_memory_that_moved_is_followed(net):
    workspace = Workspace()
    small = Program(net, [(2, 3, 4)], train=False, workspace=workspace)
    small.run(images())
    Program(net, [(600, 3, 4)], train=False, workspace=workspace).run(images(n=600))
    np.testing.assert_allclose(small.run(images()), net(images()), rtol=1e-5)
    assert small.fastPath([images()], True) is not None  # from where it is now; nobody keeps the memory before


@unverified
def test_a_step_with_several_outputs_is_short_and_its_outputs_are_separate(rng):
    x = pg.Input((3, 4), name="x").node()
    first = pg.Linear(4, 5, name="first")(x)
    net = pg.Graph(x, [first, pg.Relu(name="second")(first)]).evalMode()
    program = net.compile([(3, 4)])
    assert program.fastPath is not None
    values = [rng.standard_normal((3, 4)).astype(np.float32) for _ in range(2)]
    results = [program.run(v) for v in values]
    for v, outputs in zip(values, results):
        for y, wanted in zip(outputs, net(v)):
            np.testing.assert_allclose(y, wanted, atol=1e-6)
    assert not np.shares_memory(*results[0]) and not np.shares_memory(results[0][0], results[1][0])
    assert program.runFast([values[0].astype(np.float64)]) is None
