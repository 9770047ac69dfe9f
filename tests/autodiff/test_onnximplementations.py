"""Gradient rules registered for operators of ONNX, as DaceML has them: asked for nodes that were read from a file."""

from abc import ABC
from inspect import isabstract

import numpy as np
import pytest

import puregraph
from puregraph.autodiff import BackwardImplementation, BackwardResult, add_backward_pass, make_backward_function
from puregraph.core import rules
from puregraph.core.errors import AutoDiffException, GraphWarning
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.pointwise import Pointwise
from puregraph.modules import Conv2D, Identity, Linear, MatMul, Sum, Tanh
from puregraph.onnx import fromOnnx


@pytest.fixture(autouse=True)
def empty():
    before = dict(rules.REGISTRY)
    rules.REGISTRY.clear()
    yield
    rules.REGISTRY.clear()
    rules.REGISTRY.update(before)


def model(*nodes, **arrays):
    """A model of one input x and one output y, of nodes (operator, inputs, outputs, attributes)."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    made = [
        helper.make_node(op, reads, writes, f"{op.lower()}_node", **options) for op, reads, writes, options in nodes
    ]
    shape = arrays.pop("x")
    graph = helper.make_graph(
        made,
        "net",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def conv(rng):
    weights = {"W": rng.standard_normal((2, 3, 3, 3)), "b": rng.standard_normal(2)}
    return model(("Conv", ["x", "W", "b"], ["y"], {"pads": [1, 1, 1, 1]}), x=(1, 3, 4, 4), **weights)


def gemm(rng, **options):
    return model(("Gemm", ["x", "W", "b"], ["y"], options), x=(5, 3), W=rng.standard_normal((3, 4)), b=np.ones(4))


def counting(op, asked):
    """Register an implementation for an operator that is asked and never applied."""

    @BackwardImplementation.register(op=op, name="counting")
    class Counting(BackwardImplementation):
        @staticmethod
        def backward_can_be_applied(node, state, sdfg):
            asked.append((op, node.name, type(node.module).__name__))
            return False

        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            raise NotImplementedError


def test_a_rule_for_conv_and_gemm_is_asked_for_nodes_of_these_operators(rng):
    asked = []
    counting("Conv", asked)
    counting("Gemm", asked)
    for made in (conv(rng), gemm(rng)):
        graph = fromOnnx(made)
        graph.backwardGraph()
    assert asked == [("Conv", "conv_node", "Conv2D"), ("Gemm", "gemm_node", "Linear")]
    asked.clear()
    add_backward_pass(conv(rng), "conv_node", "x")
    make_backward_function(gemm(rng))
    assert asked == [("Conv", "conv_node", "Conv2D"), ("Gemm", "gemm_node", "Linear")]
    asked.clear()
    x = Input((5, 3), name="x").node()
    Graph(x, Linear(3, 4)(x)).backwardGraph()
    assert not asked


@pytest.mark.parametrize(
    "op, options", [("Relu", {}), ("Exp", {}), ("Softmax", {"axis": 1}), ("Softplus", {}), ("ReduceSum", {})]
)
def test_the_rule_of_another_operator_that_reads_as_the_same_module_is_not_asked(op, options):
    asked = []
    for name in ("Relu", "Exp", "Softmax", "Softplus", "ReduceSum"):
        counting(name, asked)
    fromOnnx(model((op, ["x"], ["y"], options), x=(2, 3))).backwardGraph()
    assert {kind for kind, *_ in asked} == {op}


def test_a_rule_for_gemm_gives_its_gradient(rng):
    @BackwardImplementation.register(op="Gemm", name="default")
    class GemmBackward(BackwardImplementation):
        """dx = 3 dy W^T, three times what is right, so that it shows."""

        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            assert (given_gradients, required_gradients) == (["y"], ["x"])
            dy, W = Input(name="dy").node(), Input(name="W").node()
            product = MatMul(transpB=True).node(dy, W)
            return Graph([dy, W], Pointwise(formula="3 * g", name="dx")(product)).node(), BackwardResult(
                {"x": "dx"}, {"y": "dy"}
            )

    graph = fromOnnx(gemm(rng), trainable=False)
    x, dy = rng.standard_normal((5, 3)).astype("f"), rng.standard_normal((5, 4)).astype("f")
    graph(x)
    graph.backward(dy)
    first = graph.grad
    rules.REGISTRY.clear()
    graph.backwards.clear()
    graph(x)
    graph.backward(dy)
    np.testing.assert_allclose(first, 3 * graph.grad, rtol=1e-5)


def test_the_operator_of_a_node_is_kept_in_files(rng, tmp_path, recwarn):
    asked = []
    counting("Conv", asked)
    graph = fromOnnx(conv(rng))
    graph.save(tmp_path / "net.h5")
    again = puregraph.load(tmp_path / "net.h5")
    assert not recwarn.list
    again.backwardGraph()
    assert asked == [("Conv", "conv_node", "Conv2D")]
    rules.REGISTRY.clear()
    with pytest.warns(GraphWarning, match="Conv2D had a gradient rule of its own"):
        puregraph.load(tmp_path / "net.h5")


def test_an_operator_that_reads_as_several_nodes_is_not_one_of_them(rng):
    asked = []
    counting("MatMul", asked)
    graph = fromOnnx(gemm(rng, alpha=2.0))
    graph.backwardGraph()
    assert [kind for kind, *_ in asked] == ["MatMul"]
    assert {node.module.operator for node in graph.nodes} == {None}
    assert {type(node.module).__name__ for node in graph.nodes} >= {"MatMul", "Add", "Pointwise"}


def test_a_rule_for_an_operator_that_reads_as_several_nodes_is_said_not_to_be_used(rng):
    counting("Gemm", [])
    with pytest.warns(
        GraphWarning, match=r"at 'gemm_node' \(Gemm\): several modules .* register one for MatMul, Pointw"
    ):
        fromOnnx(gemm(rng, alpha=2.0))


def test_the_type_counts_before_the_operator_and_this_before_the_name_of_the_type(rng):
    class Named(BackwardImplementation):
        pass

    for kind in ({"op": "Conv2D"}, {"op": "Conv"}, {"node_type": Conv2D}):
        BackwardImplementation.register(**kind, name="a")(Named)
    (module,) = [node.module for node in fromOnnx(conv(rng)).nodes if node.bwds]
    found = [registered for _, registered in rules.candidates(module)]
    assert found == [rules.REGISTRY[kind, "a"] for kind in (Conv2D, "Conv", "Conv2D")]


# Names of connectors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("required", [{"x": "dx"}, {None: "dx"}, {"x": None}, {None: None}])
@pytest.mark.parametrize("given", [{"y": "dy"}, {None: "dy"}, {"y": None}, {None: None}])
def test_none_is_the_name_of_the_only_connector(required, given):
    @BackwardImplementation.register(op="Tanh", name="default")
    class TanhBackward(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            reverse = Pointwise(formula="5 * dy * (1 - y * y)", name="dx")
            dy, y = Input(name="dy").node(), Input(name="y").node()
            return Graph([dy, y], reverse(dy, y)).node(), BackwardResult(required, given)

    x = Input(name="x").node()
    graph = Graph(x, Tanh()(x))
    graph(np.array([0.5]))
    graph.backward(np.array([2.0]))
    np.testing.assert_allclose(graph.grad, 10 * (1 - np.tanh([0.5]) ** 2))


def test_none_is_refused_where_there_are_several_connectors():
    @BackwardImplementation.register(op="Tanh", name="default")
    class TanhBackward(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            return Pointwise(formula="a * b").node(), BackwardResult({None: None}, {None: None})

    x = Input(name="x").node()
    with pytest.raises(AutoDiffException, match="the gradient of output 'y' must be an input of the reverse node"):
        Graph(x, Tanh()(x)).backwardGraph()

    @BackwardImplementation.register(op="MatMul", name="default")
    class ProductBackward(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            return Identity().node(), BackwardResult({None: None}, {"y": None})

    a, b = Input(name="a").node(), Input(name="b").node()
    with pytest.raises(AutoDiffException, match="the gradient of 'a' must be an output of the reverse node"):
        Graph([a, b], MatMul()(a, b)).backwardGraph()


def test_a_backward_implementation_is_an_abstract_class():
    assert issubclass(BackwardImplementation, ABC) and isabstract(BackwardImplementation)
    with pytest.raises(TypeError, match="abstract"):
        BackwardImplementation()

    class Written(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            return Sum().node(), BackwardResult()

    assert not isabstract(Written) and Written.backward_can_be_applied(None, None, None)
