"""States whose shapes have symbols: made at the first run, reset by name, eagerly, compiled and in files."""

import copy
import pickle

import numpy as np
import pytest
from natively import needsNative

import puregraph
from puregraph import Graph, Input, Linear, Module, Scan, Sequential, load
from puregraph.compile.program import Program
from puregraph.core.errors import ArgumentError, ShapeError
from puregraph.core.param import State
from puregraph.serialize.classnames import registerModule


@registerModule
class Total(Module):
    """y = total = total + x

    Shapes    x (N, width) -> the same
    Source    none
    """

    reads = ()

    def __init__(self, width, name=None):
        super().__init__(name)
        self.total = State(("N", width))

    def dataShapeFrom(self, x):
        return x

    def stateSizesFrom(self, x):
        return {"N": x[0]}

    def updateData(self, x, total):
        total += x
        return total.copy()

    def updateGrad(self, grad, x, total, y):
        return grad, None


def netOf():
    puregraph.seed(1)
    return Sequential(Linear(3, 4, name="fc"), Total(4, name="sum"), name="net")


def rows(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 3)).astype(np.float32)


def layer(net, x):
    return x @ net["fc"].W.data + net["fc"].b.data


def test_shapes_are_known_ahead_and_make_nothing():
    net = netOf()
    assert net.dataShapeFrom((5, 3)) == (5, 4) and net.dataShapeFrom(("M", 3)) == ("M", 4)
    state = net.states["sum.total"]
    assert state.declared == ("N", 4) and state.shape == (0, 4) and not state.made
    puregraph.summary(net, (5, 3))
    assert not state.made


def test_the_first_run_makes_it_and_reset_forgets_it():
    net = netOf()
    x, y = rows(5), rows(5, 1)
    np.testing.assert_allclose(net(x), layer(net, x), 1e-6)
    np.testing.assert_allclose(net(y), layer(net, x) + layer(net, y), 1e-5, 1e-6)
    assert net.states["sum.total"].shape == (5, 4)
    net.states["sum.total"].reset()
    assert net.states["sum.total"].shape == (0, 4)
    np.testing.assert_allclose(net(rows(2)), layer(net, rows(2)), 1e-6)
    net.states["sum.total"].reset()
    np.testing.assert_allclose(net(x), layer(net, x), 1e-6)


def test_other_sizes_are_refused_by_name():
    net = netOf()
    net(rows(5))
    message = r"at 'sum' \(Total\): wanted a state of shape \(5, 4\), as in the runs before, got \(2, 4\); call reset"
    for _ in range(2):
        with pytest.raises(ShapeError, match=message):
            net(rows(2))
    net.states["sum.total"].reset()
    net(rows(2))
    with pytest.raises(ShapeError, match="got"):
        net(rows(5))
    assert net.states["sum.total"].shape == (2, 4)


def test_a_module_alone():
    module = Total(3)
    np.testing.assert_array_equal(module(rows(5)), rows(5))
    np.testing.assert_array_equal(module(rows(5)), 2 * rows(5))
    with pytest.raises(ShapeError, match="call reset"):
        module(rows(2))


def test_refusals():
    with pytest.raises(ArgumentError, match="no symbols in its shape to reset"):
        State((3,)).reset()

    class Forgets(Total):
        def stateSizesFrom(self, x):
            return {}

    with pytest.raises(ShapeError, match="N missing"):
        Sequential(Forgets(3, name="sum"))(rows(5))


def test_in_a_graph_inside_a_module_it_is_refused():
    x, c, y = (Input(name=name).node() for name in ("x", "c", "y"))
    body = Graph([c, y], [c, Total(3, name="sum").node(y)])
    scan = Scan(body, 1, [(1, False)], [(1, False)], name="scan").node(x, Input(name="z").node())
    with pytest.raises(ShapeError, match="states of fixed sizes in a graph inside a module"):
        Graph([x, scan.bwds[1].node], [(scan, 0), (scan, 1)]).dataShapeFrom((5, 3), (5, 2, 3))


@needsNative
def test_compiled_steps_equal_eager_ones():
    eager, compiled = netOf(), netOf()
    program = compiled.compile((5, 3))
    for seed in range(4):
        np.testing.assert_allclose(program.run(rows(5, seed)), eager(rows(5, seed)), 1e-5, 1e-6)
    array = compiled.states["sum.total"].array
    np.testing.assert_allclose(array, eager.states["sum.total"].array, 1e-5, 1e-6)
    with pytest.raises(ShapeError, match="call reset"):
        compiled.compile((2, 3))
    for net in (eager, compiled):
        net.states["sum.total"].reset()
    other = compiled.compile((2, 3))
    for seed in range(3):
        np.testing.assert_allclose(other.run(rows(2, seed)), eager(rows(2, seed)), 1e-5, 1e-6)
    with pytest.raises(ShapeError, match="call reset"):
        program.run(rows(5))
    compiled.states["sum.total"].reset()
    np.testing.assert_allclose(program.run(rows(5)), layer(compiled, rows(5)), 1e-5, 1e-6)


@needsNative
def test_training_steps_and_gradients():
    eager, compiled = netOf(), netOf()
    step = Program(compiled, [(5, 3)], grads=(True,))
    for seed in range(3):
        x, g = rows(5, seed), np.ones((5, 4), np.float32)
        y = eager(x)
        eager.backward(g)
        np.testing.assert_allclose(step.run(x, g), y, 1e-5, 1e-6)
        np.testing.assert_allclose(compiled["fc"].W.grad, eager["fc"].W.grad, 1e-5, 1e-6)


@pytest.mark.parametrize("isMade", [False, True])
def test_files_and_copies_keep_values_and_symbols(tmp_path, isMade):
    net = netOf()
    if isMade:
        net(rows(5))
    net.save(tmp_path / "net.h5")
    others = [load(tmp_path / "net.h5"), copy.deepcopy(net), pickle.loads(pickle.dumps(net)), netOf()]
    others[3].load(tmp_path / "net.h5")
    wanted = net(rows(5, 1))
    for other in others:
        assert other.states["sum.total"].declared == ("N", 4)
        np.testing.assert_array_equal(other(rows(5, 1)), wanted)
        other.states["sum.total"].reset()
        np.testing.assert_allclose(other(rows(2)), layer(net, rows(2)), 1e-6)


def test_a_file_of_other_sizes_is_read_into_a_net_that_ran(tmp_path):
    net, other = netOf(), netOf()
    net(rows(5))
    net.save(tmp_path / "net.h5")
    other(rows(2))
    other.load(tmp_path / "net.h5")
    np.testing.assert_array_equal(other(rows(5, 1)), net(rows(5, 1)))
