"""Anomaly mode: the first node with NaN or infinity is named, forward and backward, and only inside the block."""

import threading

import numpy as np
import pytest
from strict import Strict, useStrict

from puregraph.autodiff.checks.anomaly import AnomalyError, detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from puregraph.autodiff.forward.forwardmode import jvp
from puregraph.autodiff.tape.engine import grad
from puregraph.autodiff.tape.variable import Variable
from puregraph.core.errors import AutoDiffException
from puregraph.core.hooks import HOOKS
from puregraph.graph import Graph
from puregraph.graph.function import Function
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.graph.sequential import Sequential
from puregraph.modules import Add, BatchNorm, Identity, Linear, Relu, SoftMax, Split, costs

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def net(*formulas):
    """A linear layer, then pointwise functions, named f1, f2, ..."""
    parts = [Pointwise(f"f{i}", formula) for i, formula in enumerate(formulas, 1)]
    linear = Linear(2, 2, useBias=False, name="fc").calcMode("float64")
    linear.W.data = np.eye(2)
    return Sequential(linear, *parts, name="net")


def caught(call):
    with pytest.raises(AnomalyError) as found, detect_anomaly():
        call()
    return found.value


def test_the_first_node_forward_is_named():
    error = caught(lambda: net("x - 1", "log(x)", "x * 2")(np.array([[2.0, 0.5], [3.0, 1.0]])))
    assert (error.path, error.stage, error.name) == ("f2", "forward", "its output")
    text = str(error)
    assert "forward at 'f2' (Pointwise): its output holds 1 NaN and 1 infinite of 4 values, shape (2, 2)" in text
    assert "the first at (0, 1)" in text and "input 'x' (2, 2) from -0.5 to 2: look for" in text


def test_the_first_node_backward_is_named():
    graph = net("abs(x)", "sqrt(x)", "x * 2")
    x = np.array([[4.0, 0.0]])
    graph(x)
    error = caught(lambda: graph.backward(np.ones((1, 2))))
    assert (error.path, error.stage, error.name) == ("f2", "backward", "the gradient of input 'x'")
    assert "backward at 'f2' (Pointwise): the gradient of input 'x' holds 1 infinite of 2 values" in str(error)
    assert "the gradient of its output (1, 2) from 2 to 2" in str(error) and "add an epsilon before it" in str(error)


def test_the_gradient_of_a_parameter_is_named():
    graph = Sequential(Linear(2, 1, name="fc").calcMode("float64"))
    graph(np.full((1, 2), 1e200))
    error = caught(lambda: graph.backward(np.full((1, 1), 1e200)))
    assert error.name == "the gradient of parameter 'W'"


def test_a_sum_of_gradients_is_named():
    x = Input(name="x").node()
    h = Identity(name="h")(x)
    graph = Graph(x, Add(name="both")(h, h))
    graph(np.ones(2))
    with pytest.raises(AnomalyError, match="where the gradients of 'h' are added: their sum holds 2 infinite"):
        with detect_anomaly():
            graph.backward(np.full(2, 1.5e308))


def test_bad_data_is_told_from_a_bad_node():
    graph = net("x + 1")
    error = caught(lambda: graph(np.array([[np.nan, 1.0]])))
    assert error.path == "fc" and "input 'x' held 1 NaN before: it came in from outside" in str(error)
    graph["fc"].W.data = np.array([[1.0, np.inf], [0.0, 1.0]])
    assert "parameter 'W' held 1 infinite before: an earlier update" in str(caught(lambda: graph(np.ones((1, 2)))))
    graph["fc"].W.data = np.eye(2)
    graph(np.ones((1, 2)))
    error = caught(lambda: graph.backward(np.array([[1.0, np.nan]])))
    assert error.path == "f1" and "the gradient of its output held 1 NaN before" in str(error)


def test_half_precision_is_told_its_limit():
    graph = net("x * x").calcMode(np.float16)
    error = caught(lambda: graph(np.full((1, 2), 300, np.float16)))
    assert error.path == "f1" and "65504" in str(error)


def test_infinities_may_be_let_through():
    mask = np.array([0.0, -np.inf, 0.0])
    x = Input(name="x").node()
    graph = Graph(x, SoftMax(axis=-1)(Add(name="masked")(x, Shift(mask, name="mask")(x))))
    assert caught(lambda: graph(np.ones((2, 3)))).path == "mask"
    with detect_anomaly(check_inf=False):
        assert np.array_equal(graph(np.ones((2, 3))), np.tile([0.5, 0, 0.5], (2, 1)))
        graph.backward(np.ones((2, 3)))
    with pytest.raises(AnomalyError, match="1 NaN of 3"), detect_anomaly(check_inf=False):
        Pointwise(formula="x - x + 0 * x")(np.array([np.inf, 1.0, 2.0]))
    with pytest.raises(AnomalyError, match="holds 1 infinite of 2"), detect_anomaly(check_nan=False):
        Pointwise(formula="1 / x")(np.array([np.nan, 0.0]))


class Shift(Module):
    """y = x + mask

    Shapes    x (any) -> y as x
    Source    none
    """

    reads = ()

    def __init__(self, mask, name=None):
        super().__init__(name)
        self.mask = mask

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x + self.mask

    def updateGrad(self, grad, x, y):
        return grad


def test_lone_modules_are_looked_at():
    root = Pointwise("root", "sqrt(x)")
    assert caught(lambda: root(np.array([-1.0]))).path == "root"
    root(np.array([0.0]))
    error = caught(lambda: root.backward(np.ones(1)))
    assert error.stage == "backward" and error.name == "the gradient of input 'x'"


def test_hidden_outputs_and_several_outputs_are_named():
    norm = Sequential(BatchNorm(1, epsilon=0.0, name="norm").calcMode("float64"))
    error = caught(lambda: norm(np.ones((3, 1))))
    assert error.path == "norm"
    split = Sequential(Split(axis=0, sections=(1, 1), name="parts"))
    assert caught(lambda: split(np.array([1.0, np.nan]))).name == "output '1'"


def test_nested_graphs_and_costs_are_named_by_their_path():
    x, t = Input(name="x").node(), Input(name="t").node()
    graph = Graph([x, t], costs.MSE(name="cost")(net("exp(x)").node(x, name="inner"), t))
    error = caught(lambda: graph(np.full((1, 2), 1e3), np.zeros((1, 2))))
    assert error.path == "inner.f1"


def test_nothing_is_looked_at_outside():
    graph = net("log(x)")
    bad = np.array([[-1.0, 1.0]])
    assert HOOKS.look is None and np.isnan(graph(bad)).any()
    caught(lambda: graph(bad))
    assert HOOKS.look is None and not is_anomaly_enabled() and np.isnan(graph(bad)).any()


def test_blocks_nest_and_decorate():
    graph = net("1 / x")
    zero = np.array([[0.0, 1.0]])
    with detect_anomaly():
        with detect_anomaly(check_inf=False):
            graph(zero)
        with pytest.raises(AnomalyError):
            graph(zero)

    @detect_anomaly()
    def run():
        return graph(zero)

    with pytest.raises(AnomalyError):
        run()
    with pytest.raises(AnomalyError):
        run()
    assert not is_anomaly_enabled()


def test_it_can_be_switched_on_for_good():
    graph = net("1 / x")
    zero = np.array([[0.0, 1.0]])
    try:
        set_detect_anomaly(True)
        assert is_anomaly_enabled()
        with pytest.raises(AnomalyError):
            graph(zero)
        with set_detect_anomaly(False):
            graph(zero)
        assert is_anomaly_enabled()
    finally:
        set_detect_anomaly(False)
    assert not is_anomaly_enabled()


def test_another_thread_is_left_alone():
    graph, results = net("1 / x"), []
    with detect_anomaly():
        thread = threading.Thread(target=lambda: results.append(graph(np.array([[0.0, 1.0]]))))
        thread.start()
        thread.join()
    assert np.isinf(results[0]).any()


def test_values_are_the_same_inside_and_a_failed_pass_can_be_repeated():
    graph = Sequential(Linear(3, 4), Relu(), Linear(4, 2))
    x = np.ones((2, 3), np.float32)
    wanted = graph(x)
    with detect_anomaly():
        assert np.array_equal(graph(x), wanted)
        bad = x.copy()
        bad[0, 0] = np.nan
        with pytest.raises(AnomalyError):
            graph(bad)
        assert np.array_equal(graph(x), wanted)
        jvp(graph, x, x)


def test_it_is_an_error_of_differentiation_and_of_arithmetic():
    assert issubclass(AnomalyError, AutoDiffException) and issubclass(AnomalyError, ArithmeticError)


def test_it_looks_at_device_arrays(monkeypatch):
    useStrict(monkeypatch)
    graph = Sequential(Pointwise("f", "log(x)"))
    with pytest.raises(AnomalyError, match=r"2 NaN of 4 values, shape \(2, 2\), the first at \(0, 1\).* from -2 to 2"):
        with detect_anomaly():
            graph(Strict([[1.0, -1.0], [-2.0, 2.0]]))


def test_operations_on_variables_are_looked_at():
    x = Variable(np.array([1.0, -1.0]), requires_grad=True)
    error = caught(lambda: np.sum(np.log(x) * 2))
    assert (error.path, error.stage) == ("Log", "forward") and "1 NaN of 2" in str(error)
    assert "argument 0 (2,) from -1 to 1" in str(error)
    y = np.sum(np.sqrt(Variable(np.array([4.0, 0.0]), requires_grad=True)))
    error = caught(y.backward)
    assert (error.path, error.stage) == ("SqrtBackward0", "backward")
    assert "the gradient of input 0 holds 1 infinite of 2" in str(error)


def test_modules_and_functions_on_variables_are_looked_at():
    class Half(Function):
        @staticmethod
        def forward(ctx, x):
            return Variable(1 / x.data)

        @staticmethod
        def backward(ctx, grad):
            return grad

    x = Variable(np.array([[0.0, 1.0]]), requires_grad=True)
    assert caught(lambda: Half.apply(x)).path == "Half"
    assert caught(lambda: net("1 / x")(x)).path == "f1"
    y = net("x + 1", "sqrt(x - 1)")(x)
    error = caught(lambda: y.backward(np.ones((1, 2))))
    assert error.stage == "backward" and "'f2'" in str(error)
    plain = np.sum(np.log(Variable(np.array([0.0]))))
    assert np.isinf(plain.data)


def test_a_pass_that_is_recorded_is_looked_at():
    x = Variable(np.array([4.0, 1.0]), requires_grad=True)
    with detect_anomaly():
        (g,) = grad(np.sum(np.sqrt(x)), x, create_graph=True)
        assert np.allclose(g.data, [0.25, 0.5])
        np.sum(g).backward()
