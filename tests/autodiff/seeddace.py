"""The claims of DaceML's page of autodiff."""

import inspect
from abc import ABC
from contextlib import contextmanager
from functools import wraps

import numpy as np
import pytest
from seedclaims import SeedPage

from puregraph import Add, Conv2D, Graph, Input, Linear, MatMul, Max, Min, Mul, Pointwise, Relu, Sequential, Sum, Tanh
from puregraph.autodiff import (
    AutoDiffException,
    BackwardContext,
    BackwardImplementation,
    BackwardResult,
    Descriptor,
    Function,
    JointGraph,
    add_backward_pass,
    make_backward_function,
)
from puregraph.compat.torch import asFunction
from puregraph.core import rules
from puregraph.core.errors import GraphWarning, PuregraphError
from puregraph.graph.backward import BackwardGraph
from puregraph.graph.module import Module
from puregraph.onnx import fromOnnx

PAGE = SeedPage("DaceML: autodiff", "`daceml.autodiff`, here `puregraph.autodiff`")
X = np.array([[1.0, 5.0], [2.0, -4.0]])


@contextmanager
def registry():
    """A registry of gradient rules without any, for a while."""
    before = dict(rules.REGISTRY)
    rules.REGISTRY.clear()
    try:
        yield
    finally:
        rules.REGISTRY.clear()
        rules.REGISTRY.update(before)


def alone(check):
    """Run a check with a registry of its own."""

    @wraps(check)
    def run():
        with registry():
            check()

    return run


def net(*modules):
    """A graph of one input x and modules in a row; the last one's node is y."""
    node = first = Input(name="x").node()
    for i, module in enumerate(modules):
        node = module.node(node, name="y" if i == len(modules) - 1 else f"h{i}")
    return Graph(first, node)


def gradient(graph, x=X, seed=1.0):
    """d(sum of y)/dx by `add_backward_pass`."""
    joint = add_backward_pass(graph, outputs=["y"], inputs=["x"])
    y = graph(x)
    return joint.run(x=x, gradient_y=np.full_like(y, seed))["gradient_x"]


def difference(graph, x=X):
    """d(sum of y)/dx by central differences."""
    slopes = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = 1e-6
        slopes[i] = (graph(x + step).sum() - graph(x - step).sum()) / 2e-6
    return slopes


def model(op, **options):
    """An ONNX model of one operator with weights W and b."""
    onnx = pytest.importorskip("onnx")
    shapes = {"Conv": [(2, 3, 1, 1), (2,)], "Gemm": [(2, 3), (3,)]}.get(op, [])
    arrays = [np.linspace(-1, 1, int(np.prod(shape))).reshape(shape).astype("f") for shape in shapes]
    names = ["W", "b"][: len(arrays)]
    info, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, ["x", *names], ["y"], "y", **options)],
        "net",
        [info("x", kind, (1, 3, 2, 2) if op == "Conv" else (2, 2))],
        [info("y", kind, None)],
        [onnx.numpy_helper.from_array(array, name) for array, name in zip(arrays, names)],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def times(factor, op="Tanh", seen=None, **kind):
    """Register dx = factor dy for a type of module; `seen` collects what `backward` got."""

    class Times(BackwardImplementation):
        @staticmethod
        def backward_can_be_applied(node, state, sdfg):
            if seen is not None:
                seen.append((node, state, sdfg))
            return True

        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            if seen is not None:
                seen.append((forward_node, context, given_gradients, required_gradients))
            reverse = Pointwise(formula="factor * dy", factor=float(factor))
            return reverse.node(), BackwardResult({"x": "y"}, {"y": "dy"})

    return BackwardImplementation.register(**(kind or {"op": op}), name="default")(Times)


# add_backward_pass ---------------------------------------------------------------------------------------------------


@PAGE.holds("add_backward_pass", "It adds a backward pass by automatic differentiation in reverse mode.")
def adds():
    graph = net(Tanh(), Sum(1))
    np.testing.assert_allclose(gradient(graph), difference(graph), rtol=1e-6, atol=1e-9)


@PAGE.differs(
    "add_backward_pass",
    "The backward pass is added to `state` itself.",
    "a new graph has both passes and the given one stays as it is, so that nothing is half changed by an error",
)
def addsToANewGraph():
    graph = net(Tanh())
    joint = add_backward_pass(graph, "y", "x")
    assert isinstance(joint, JointGraph) and len(graph.nodes) == 2 and len(joint.nodes) > 2


@PAGE.differs(
    "add_backward_pass",
    "It is experimental.",
    "it is part of the interface that stays; the suite compares it with Graph.backward to the last bit",
)
def isTested():
    graph = net(Tanh(), Sum(1))
    graph(X)
    graph.backward(np.ones((2,)))
    assert np.array_equal(gradient(graph), graph.grad)


@PAGE.holds("add_backward_pass", "Inputs and outputs may be given as nodes.")
def byNodes():
    graph = net(Tanh())
    joint = add_backward_pass(graph, outputs=[graph.outputs[0][0]], inputs=[graph.inputs[0]])
    assert joint.result.required_grad_names == {"x": "gradient_x"}


@PAGE.holds("add_backward_pass", "Inputs and outputs may be given as texts, the names of values.")
def byNames():
    assert add_backward_pass(net(Tanh()), ["y"], ["x"]).result.given_grad_names == {"y": "gradient_y"}


@PAGE.differs(
    "add_backward_pass",
    "Gradients of the outputs may be given as nodes or texts.",
    "the signature has no argument for them: they are inputs of the new graph, named `gradient_` and the output's name",
)
def gradsAreInputs():
    joint = add_backward_pass(net(Tanh()), ["y"], ["x"])
    assert [node.name for node in joint.inputs] == ["x", "gradient_y"]


@PAGE.holds("add_backward_pass", "A text must name exactly one value of the graph.")
def exactlyOne():
    with pytest.raises(AutoDiffException, match="'z'"):
        add_backward_pass(net(Tanh()), ["y"], ["z"])
    twice = Sequential(Linear(2, 2, name="a"), Linear(2, 2, name="b"))
    with pytest.raises(AutoDiffException, match="a.W"):
        add_backward_pass(twice, twice.outputNames[0], "W")


@PAGE.holds("add_backward_pass", "There should be no operations in place: they are refused.")
def noInplace():
    class Write(Function):
        @staticmethod
        def forward(ctx, x):
            x += 1
            return x

    x = Input(name="x").node()
    with pytest.raises(PuregraphError, match="writes into an input"):
        Graph(x, Write.node(Tanh()(x), name="y"))(X)


@PAGE.holds("add_backward_pass", "Maps, which are pointwise operations, may occur.")
def maps():
    graph = net(Pointwise(formula="exp(x) * x"))
    np.testing.assert_allclose(gradient(graph), difference(graph), rtol=1e-6)


@PAGE.holds("add_backward_pass", "AccessNodes, which are values by name, may occur, and be read several times.")
def accesses():
    x = Input(name="x").node()
    h = Tanh(name="h")(x)
    graph = Graph(x, Mul(name="y")(h, h))
    np.testing.assert_allclose(gradient(graph), difference(graph), rtol=1e-6, atol=1e-9)
    assert "h" in add_backward_pass(graph, "y", "h").result.required_grad_names


@PAGE.holds("add_backward_pass", "Reductions by sum may occur.")
def reducesSum():
    assert gradient(net(Sum(1))).tolist() == [[1, 1], [1, 1]]


@PAGE.holds("add_backward_pass", "Reductions by minimum may occur.")
def reducesMin():
    assert gradient(net(Min(1))).tolist() == [[1, 0], [0, 1]]


@PAGE.holds("add_backward_pass", "Reductions by maximum may occur.")
def reducesMax():
    assert gradient(net(Max(1))).tolist() == [[0, 1], [1, 0]]


@PAGE.holds("add_backward_pass", "Operators of ONNX may occur.")
def onnxOperators():
    joint = add_backward_pass(model("Tanh"), "y", "x")
    found = joint.run(x=X.astype("f"), gradient_y=np.ones((2, 2), np.float32))["gradient_x"]
    np.testing.assert_allclose(found, 1 - np.tanh(X) ** 2, rtol=1e-4, atol=1e-6)


@PAGE.holds("add_backward_pass", "Nested graphs may occur, with the same constraints.")
def nested():
    graph = net(Graph(*(lambda z: (z, Mul()(Tanh()(z), z)))(Input(name="z").node()), name="inner"), Sum(1))
    np.testing.assert_allclose(gradient(graph), difference(graph), rtol=1e-6, atol=1e-9)


@PAGE.differs(
    "add_backward_pass",
    "Nested graphs may have several states if all but one only set arrays to zero.",
    "graphs have no states: nothing has to be set to zero before gradients are added up",
)
def nestedStates():
    x = Input(name="x").node()
    h = Tanh(name="h")(x)
    graph = Graph(x, Add(name="y")(h, h, x))
    np.testing.assert_allclose(gradient(graph), difference(graph), rtol=1e-6, atol=1e-9)


@PAGE.holds("add_backward_pass", "For an operator of ONNX the registry of backward implementations is asked first.")
@alone
def asksRegistry():
    times(5, "Tanh")
    assert gradient(fromOnnx(model("Tanh")), X.astype("f")).tolist() == [[5, 5], [5, 5]]


@PAGE.holds("add_backward_pass", "Without one that can be applied, a pure forward implementation is looked for.")
def asksPure():
    assert type(net(Tanh()).outputs[0][0].module).updateGrad is None and Tanh.formula
    np.testing.assert_allclose(gradient(net(Tanh())), 1 - np.tanh(X) ** 2, rtol=1e-12)


@PAGE.holds("add_backward_pass", "A pure forward implementation is differentiated by symbols.")
def symbolic():
    graph = net(Pointwise(formula="log(1 + x * x) * sigmoid(x)"))
    np.testing.assert_allclose(gradient(graph), difference(graph), rtol=1e-6)


@PAGE.holds("add_backward_pass", "If this is not possible either, an error says so.")
@alone
def fails():
    class Bare(Module):
        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            return x

    with pytest.raises(AutoDiffException, match="Bare has no gradient: tried a registered rule"):
        add_backward_pass(net(Bare()), "y", "x")


@PAGE.differs(
    "add_backward_pass",
    "`sdfg` is the parent of the state.",
    "one argument `graph` stands for `sdfg` and `state`: a Graph has one level",
)
def takesAGraph():
    assert list(inspect.signature(add_backward_pass).parameters)[:3] == ["graph", "outputs", "inputs"]


@PAGE.differs(
    "add_backward_pass",
    "`state` is where the forward pass is and the backward pass comes.",
    "`graph` is where the forward pass is; the returned graph runs both",
)
def runsBoth():
    y, dx = add_backward_pass(net(Tanh()), "y", "x")(X, np.ones_like(X))
    np.testing.assert_allclose(y, np.tanh(X))
    np.testing.assert_allclose(dx, 1 - np.tanh(X) ** 2)


@PAGE.holds("add_backward_pass", "`outputs` are the outputs of the function that is differentiated.")
def differentiatesOutputs():
    x = Input(name="x").node()
    graph = Graph(x, [Tanh(name="a")(x), Pointwise(formula="3 * x", name="b")(x)])
    joint = add_backward_pass(graph, outputs=["b"], inputs=["x"])
    assert joint.run(x=X, gradient_b=np.ones_like(X))["gradient_x"].tolist() == [[3, 3], [3, 3]]


@PAGE.holds("add_backward_pass", "`inputs` are the values by which it is differentiated.")
def differentiatesInputs():
    a, b = Input(name="a").node(), Input(name="b").node()
    joint = add_backward_pass(Graph([a, b], Mul(name="y")(a, b)), ["y"], inputs=["b"])
    found = joint.run(a=X, b=X, gradient_y=np.ones_like(X))
    assert np.array_equal(found["gradient_b"], X) and "gradient_a" not in found


# make_backward_function ----------------------------------------------------------------------------------------------


@PAGE.holds("make_backward_function", "It makes a differentiable function of an ONNX model.")
def makes():
    forward, backward, _, forwarded = make_backward_function(model("Gemm"))
    values = forward(X.astype("f"))
    grads = backward(*values[-len(forwarded) :], np.ones((2, 3), np.float32))
    W = np.linspace(-1, 1, 6).reshape(2, 3)
    np.testing.assert_allclose(grads[0], np.ones((2, 3)) @ W.T, rtol=1e-5)


@PAGE.differs(
    "make_backward_function",
    "The function is one of PyTorch.",
    "it is a pair of graphs that need no PyTorch; `puregraph.compat.torch.asFunction(fromOnnx(model))` is a function that "
    "PyTorch differentiates",
)
def makesGraphs():
    forward, backward, *_ = make_backward_function(net(Tanh()))
    assert isinstance(forward, Graph) and isinstance(backward, Graph)
    torch = pytest.importorskip("torch")
    x = torch.tensor(X.astype("f"), requires_grad=True)
    asFunction(fromOnnx(model("Tanh")), isCompiled=False)(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 1 - np.tanh(X) ** 2, rtol=1e-4, atol=1e-6)


@PAGE.differs(
    "make_backward_function",
    "It is not to be used on its own, but through `DaceModule(..., backward=True)`.",
    "it is public, and complete: its two graphs run, print, compile and are drawn like any other; "
    "`puregraph.compat.torch.asModule(net)` is a module of PyTorch with gradients",
)
def makesAlone():
    forward, backward, *_ = make_backward_function(net(Tanh()))
    y, *forwarded = forward(X)
    np.testing.assert_allclose(backward(*forwarded, np.ones_like(X)), 1 - y**2)


@PAGE.holds("make_backward_function", "`model` is an ONNX model.")
def makesOfAModel():
    assert make_backward_function(model("Tanh"))[0](X.astype("f"))[0].shape == (2, 2)


@PAGE.holds("make_backward_function", "`apply_strict` is False by default.")
def strictDefault():
    assert inspect.signature(make_backward_function).parameters["apply_strict"].default is False


@PAGE.differs(
    "make_backward_function",
    "`apply_strict` says whether strict transformations are applied before the backward pass is made.",
    "a graph needs none: the argument is accepted and has no effect",
)
def strict():
    loose, firm = (make_backward_function(net(Tanh()), apply_strict=flag)[1] for flag in (False, True))
    assert str(loose) == str(firm)


@PAGE.holds("make_backward_function", "It returns four values.")
def returnsFour():
    assert len(make_backward_function(net(Tanh()))) == 4


@PAGE.holds("make_backward_function", "The first is the graph of the forward pass.")
def returnsForward():
    np.testing.assert_allclose(make_backward_function(net(Tanh(), Relu()))[0](X)[0], np.maximum(np.tanh(X), 0))


@PAGE.holds("make_backward_function", "The second is the graph of the backward pass.")
def returnsBackward():
    forward, backward, _, forwarded = make_backward_function(net(Pointwise(formula="x * x")))
    assert backward(*forward(X)[-len(forwarded) :], np.ones_like(X)).tolist() == (2 * X).tolist()


@PAGE.holds("make_backward_function", "The third is the BackwardResult, with the names of gradients.")
def returnsResult():
    result = make_backward_function(net(Tanh()))[2]
    assert isinstance(result, BackwardResult) and result.required_grad_names == {"x": "gradient_x"}


@PAGE.holds("make_backward_function", "The fourth maps the names of what the backward pass reads to descriptors.")
def returnsForwarded():
    forwarded = make_backward_function(net(Tanh()), shapes=[(2, 2)])[3]
    assert list(forwarded) == ["x", "y"] and isinstance(forwarded["y"], Descriptor) and forwarded["y"].shape == (2, 2)


# BackwardImplementation ----------------------------------------------------------------------------------------------


@PAGE.holds("BackwardImplementation", "It is an abstract base class.")
def isAbstract():
    assert issubclass(BackwardImplementation, ABC) and inspect.isabstract(BackwardImplementation)


@PAGE.holds("BackwardImplementation", "`register` takes `node_type`, the type that the implementation is for.")
@alone
def registersType():
    times(7, node_type=Tanh)
    assert gradient(net(Tanh())).tolist() == [[7, 7], [7, 7]]


@PAGE.holds("BackwardImplementation", "`register` takes `op` instead, the name of an operator of ONNX.")
@alone
def registersOperator():
    times(7, op="Softplus")
    assert gradient(fromOnnx(model("Softplus")), X.astype("f")).tolist() == [[7, 7], [7, 7]]


@PAGE.holds(
    "BackwardImplementation", 'Such an operator is "Conv": its nodes are asked for, and so are those of "Gemm".'
)
@alone
def registersConv():
    for op in ("Conv", "Gemm"):
        seen = []
        times(1, op, seen)
        graph = fromOnnx(model(op))
        with pytest.raises(PuregraphError):  # dx = dy has another shape than x
            shape = (1, 3, 2, 2) if op == "Conv" else (2, 2)
            y = graph(np.ones(shape, np.float32))
            graph.backward(np.ones_like(y))
        assert seen[0][0].name == "y" and type(seen[0][0].module) is {"Conv": Conv2D, "Gemm": Linear}[op]


@PAGE.differs(
    "BackwardImplementation",
    "Every node of that operator is asked for.",
    "an operator that is read as several nodes, such as Gemm with `alpha`, is none of them: a warning says so, and names "
    "the types whose rules count",
)
@alone
def registersPart():
    seen = []
    times(1, "Gemm", seen)
    with pytest.warns(GraphWarning, match="the gradient rule registered for Gemm is not used here"):
        graph = fromOnnx(model("Gemm", alpha=2.0))
    graph.backwardGraph()
    assert not seen


@PAGE.holds("BackwardImplementation", "`register` expects `name`, which names the implementation.")
@alone
def registersName():
    with pytest.raises(ValueError, match="wanted name="):
        BackwardImplementation.register(op="Tanh")
    times(7)
    x = Input(name="x").node()
    assert gradient(Graph(x, Tanh().node(x, name="y", rule="default"))).tolist() == [[7, 7], [7, 7]]


@PAGE.holds(
    "backward", "It is abstract and static: backward(forward_node, context, given_gradients, required_gradients)."
)
def backwardSignature():
    method = inspect.getattr_static(BackwardImplementation, "backward")
    assert isinstance(method, staticmethod) and method.__isabstractmethod__
    assert list(inspect.signature(BackwardImplementation.backward).parameters) == [
        "forward_node", "context", "given_gradients", "required_gradients"
    ]  # fmt: skip


@PAGE.holds("backward", "It makes the reverse node of a forward node and returns it.")
@alone
def backwardReturnsNode():
    times(7)
    assert gradient(net(Tanh())).tolist() == [[7, 7], [7, 7]]


@PAGE.differs(
    "backward",
    "It adds the reverse node to the backward pass.",
    "it returns a node of no graph; whoever asked for it puts it in, which Graph.backward and BackwardGraph do as well",
)
@alone
def backwardAddsNothing():
    times(7)
    graph = net(Tanh())
    graph(X)
    graph.backward(np.ones_like(X))
    assert graph.grad.tolist() == BackwardGraph(graph)(np.ones_like(X)).tolist() == [[7, 7], [7, 7]]


@PAGE.holds("backward", "For each input that needs a gradient, an output of the reverse node gives it, under its name.")
@alone
def backwardGives():
    @BackwardImplementation.register(node_type=MatMul, name="default")
    class ProductBackward(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            dy, *operands = [Input(name=name).node() for name in ("dy", *forward_node.module.arguments)]
            first, second = MatMul(transpB=True, name="first"), MatMul(transpA=True, name="second")
            outputs = [first(dy, operands[1]), second(operands[0], dy)]
            names = dict(zip(required_gradients, ("first", "second")))
            return Graph([dy, *operands], outputs).node(), BackwardResult(names, {"y": "dy"})

    a, b = Input(name="a").node(), Input(name="b").node()
    joint = add_backward_pass(Graph([a, b], MatMul(name="y")(a, b)), "y", ["a", "b"])
    found = joint.run(a=X, b=2 * X, gradient_y=np.ones((2, 2)))
    np.testing.assert_allclose(found["gradient_a"], np.ones((2, 2)) @ (2 * X).T)
    np.testing.assert_allclose(found["gradient_b"], X.T @ np.ones((2, 2)))


@PAGE.holds("backward", "A reverse node that reads an input of the forward node has a connector of the same name.")
@alone
def backwardReads():
    @BackwardImplementation.register(op="Tanh", name="default")
    class Reads(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            reverse = Pointwise(formula="dy * (1 - tanh(x) ** 2)")
            return reverse.node(), BackwardResult({"x": "y"}, {"y": "dy"})

    np.testing.assert_allclose(gradient(net(Tanh())), 1 - np.tanh(X) ** 2)


@PAGE.differs(
    "backward",
    "Connectors have the names of the inputs and outputs of the operator of ONNX.",
    "they have the names of the module that stands for it, as `forward_node.module.arguments` lists them",
)
@alone
def backwardNames():
    seen = []
    times(1, "Gemm", seen)
    fromOnnx(model("Gemm")).backwardGraph()
    node, _, given, required = seen[-1]
    assert (node.module.arguments, node.module.ruleNames) == (("x",), ("W", "b"))
    assert (given, required) == (["y"], ["x"])


@PAGE.holds("backward", "`forward_node` is the node of the forward pass.")
@alone
def backwardNode():
    seen = []
    times(1, seen=seen)
    graph = net(Tanh())
    graph.backwardGraph()
    assert seen[-1][0] is graph.outputs[0][0]


@PAGE.holds("backward", "`context` is the BackwardContext of this node.")
@alone
def backwardContext():
    seen = []
    times(1, seen=seen)
    net(Tanh()).backwardGraph()
    assert isinstance(seen[-1][1], BackwardContext)


@PAGE.holds("backward", "`given_gradients` names the outputs whose gradients will be connected.")
@alone
def backwardGiven():
    seen = []
    times(1, seen=seen)
    net(Tanh()).backwardGraph()
    assert seen[-1][2] == ["y"]


@PAGE.holds("backward", "`required_gradients` names the inputs for which gradients are to be made.")
@alone
def backwardRequired():
    seen = []
    times(1, seen=seen)
    net(Tanh()).backwardGraph()
    assert seen[-1][3] == ["x"]


@PAGE.holds("backward", "The result is a pair: the reverse node, and a BackwardResult with the names of gradients.")
@alone
def backwardResult():
    @BackwardImplementation.register(op="Tanh", name="default")
    class Alone(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            return Pointwise(formula="1 * dy").node()

    with pytest.raises(AutoDiffException, match=r"wanted \(Node, BackwardResult\)"):
        net(Tanh()).backwardGraph()


@PAGE.holds("backward_can_be_applied", "It says, as a bool, whether the implementation can be used for a node.")
@alone
def applies():
    assert BackwardImplementation.backward_can_be_applied(None, None, None) is True

    class Never(times(7)):
        @staticmethod
        def backward_can_be_applied(node, state, sdfg):
            return False

    rules.REGISTRY.clear()
    BackwardImplementation.register(op="Tanh", name="never")(Never)
    np.testing.assert_allclose(gradient(net(Tanh())), 1 - np.tanh(X) ** 2)


@PAGE.holds("backward_can_be_applied", "It is static and takes `node`, `state` and `sdfg`, the candidates.")
@alone
def appliesTo():
    assert isinstance(inspect.getattr_static(BackwardImplementation, "backward_can_be_applied"), staticmethod)
    seen = []
    times(1, seen=seen)
    graph = net(Tanh())
    graph.backwardGraph()
    assert seen[0] == (graph.outputs[0][0], graph, graph)


# BackwardContext and BackwardResult ----------------------------------------------------------------------------------


def context():
    """The context that a rule gets for a node of a graph, with that graph."""
    seen = []
    with registry():
        times(1, seen=seen)
        graph = net(Tanh())
        back = graph.backwardGraph()
    return seen[-1][1], graph, back


@PAGE.holds("BackwardContext", "It holds the graphs that are needed to make reverse nodes, five values in this order.")
def contextFields():
    names = ["forward_sdfg", "forward_state", "backward_sdfg", "backward_state", "backward_generator"]
    assert list(inspect.signature(BackwardContext).parameters) == names
    assert [getattr(BackwardContext(*range(5)), name) for name in names] == list(range(5))


@PAGE.holds("BackwardContext", "`forward_sdfg` is the graph of the forward pass.")
def contextForward():
    found, graph, _ = context()
    assert found.forward_sdfg is graph


@PAGE.differs("BackwardContext", "`forward_state` is the state of the forward pass.", "a graph is its own state")
def contextForwardState():
    found, graph, _ = context()
    assert found.forward_state is graph


@PAGE.holds("BackwardContext", "`backward_sdfg` is the graph of the backward pass.")
def contextBackward():
    found, _, back = context()
    assert found.backward_sdfg is back


@PAGE.differs("BackwardContext", "`backward_state` is the state of the backward pass.", "a graph is its own state")
def contextBackwardState():
    found, _, back = context()
    assert found.backward_state is back


@PAGE.differs(
    "BackwardContext",
    "`backward_generator` is the generator of the backward pass, a BackwardPassGenerator.",
    "the backward graph builds itself, so it is its own generator",
)
def contextGenerator():
    found, _, back = context()
    assert found.backward_generator is back


@PAGE.holds("BackwardResult", "It is what differentiating a node returns: the names of gradients it gives and needs.")
def resultNames():
    result = add_backward_pass(net(Tanh()), "y", "x").result
    assert isinstance(result, BackwardResult)
    assert (result.required_grad_names, result.given_grad_names) == ({"x": "gradient_x"}, {"y": "gradient_y"})


@PAGE.holds("BackwardResult", "It holds two dictionaries, `required_grad_names` and `given_grad_names`.")
def resultFields():
    assert list(inspect.signature(BackwardResult).parameters) == ["required_grad_names", "given_grad_names"]


@PAGE.holds("BackwardResult", "None may stand for a name in both, where a connector has none.")
@alone
def resultNone():
    @BackwardImplementation.register(op="Tanh", name="default")
    class Nameless(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            return Pointwise(formula="7 * dy").node(), BackwardResult({None: None}, {None: None})

    assert gradient(net(Tanh())).tolist() == [[7, 7], [7, 7]]


@PAGE.differs(
    "BackwardResult",
    "`given_grad_names` maps the names of inputs to their gradients.",
    "the page has the two descriptions the wrong way round: as in the original's code, these are the outputs",
)
def resultGiven():
    assert list(add_backward_pass(net(Tanh()), "y", "x").result.given_grad_names) == ["y"]


@PAGE.differs(
    "BackwardResult",
    "`required_grad_names` maps the names of outputs to their gradients.",
    "the page has the two descriptions the wrong way round: as in the original's code, these are the inputs",
)
def resultRequired():
    assert list(add_backward_pass(net(Tanh()), "y", "x").result.required_grad_names) == ["x"]
