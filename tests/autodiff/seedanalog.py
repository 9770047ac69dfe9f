"""The claims of AnalogVNN's page of BackwardGraph."""

import inspect
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from seedclaims import SeedPage

from puregraph import Linear
from puregraph.autodiff import (
    AccumulateGrad,
    AcyclicDirectedGraph,
    ArgsKwargs,
    BackwardGraph,
    BackwardIdentity,
    ForwardGraph,
    GraphEnum,
    InputOutput,
    ModelGraphState,
    Occurrence,
)

PAGE = SeedPage("AnalogVNN: BackwardGraph", "`analogvnn.graph.BackwardGraph`, here `puregraph.autodiff.BackwardGraph`")
X = np.array([2.0, 3.0])


def square(x):
    return x * x


def product(a, b):
    return a * b


def chain(*nodes):
    """x -> square -> ... -> y."""
    graph = ForwardGraph()
    graph.add_connection(graph.INPUT, *(nodes or (square,)), graph.OUTPUT)
    return graph


def ran(*nodes, x=X):
    """A chain after its forward pass, and its backward graph."""
    graph = chain(*nodes)
    graph(x)
    return graph, BackwardGraph().from_forward(graph)


def twoInputs():
    """y = a b, of two inputs, after a forward pass."""
    graph = ForwardGraph()
    for i in range(2):
        graph.add_edge(graph.INPUT, product, in_arg=i, out_arg=i)
    graph.add_connection(product, graph.OUTPUT)
    graph(np.array([2.0]), np.array([5.0]))
    return BackwardGraph().from_forward(graph)


def named(a):
    return {"double": 2 * a, "triple": 3 * a}


# The class -----------------------------------------------------------------------------------------------------------


@PAGE.holds("class", "There is a class BackwardGraph, which is the backward graph of a forward graph.")
def isAClass():
    assert inspect.isclass(BackwardGraph) and ran()[1].forward_graph is not None


@PAGE.holds("class", "It takes `graph_state`, a ModelGraphState that it shares with the forward graph.")
def takesState():
    state = ModelGraphState()
    graph = ForwardGraph(state)
    graph.add_connection(graph.INPUT, square, graph.OUTPUT)
    assert list(inspect.signature(BackwardGraph).parameters) == ["graph_state"]
    back = BackwardGraph(graph_state=state).from_forward(graph)
    graph(X)
    assert back.graph_state is state and back(np.ones(2)).tolist() == [4, 6]


@PAGE.holds("class", "`graph_state` is None by default.")
def stateIsOptional():
    assert inspect.signature(BackwardGraph).parameters["graph_state"].default is None
    assert isinstance(BackwardGraph().graph_state, ModelGraphState)


@PAGE.holds("class", "Its base is AcyclicDirectedGraph.")
def base():
    assert issubclass(BackwardGraph, AcyclicDirectedGraph)


@PAGE.holds("class", "Like every graph of that base it can be rendered into a file.")
def renders():
    path = ran()[1].render("back", mkdtemp(), format="dot")
    assert "square" in Path(path).read_text()


# __call__ ------------------------------------------------------------------------------------------------------------


@PAGE.holds("__call__", "Calling it runs the backward pass through its nodes.")
def call():
    assert ran(square, Occurrence(square))[1](np.ones(2)).tolist() == [32, 108]


@PAGE.holds("__call__", "`gradient` is the gradient of the loss with respect to the output of the forward graph.")
def callGradient():
    assert ran()[1](gradient=np.array([10.0, 100.0])).tolist() == [40, 600]


@PAGE.holds("__call__", "`gradient` may be several values, one for each output.")
def callSeveral():
    def both(a):
        return 2 * a, 3 * a

    assert ran(both)[1]([np.array([1.0, 0.0]), np.array([0.0, 1.0])]).tolist() == [2, 3]


@PAGE.holds("__call__", "`gradient` may be left out.")
def callWithout():
    assert ran(square, np.sum)[1]().tolist() == [4, 6]
    graph, back = ran()
    graph.graph_state.set_loss((graph.graph_state.leaves.args[0] * np.array([1.0, 2.0])).sum())
    assert back().tolist() == [4, 12]


@PAGE.holds("__call__", "The result is the gradient of the loss with respect to the inputs.")
def callResult():
    assert [g.tolist() for g in twoInputs()(np.ones(1))] == [[5], [2]]


@PAGE.holds("__call__", "The result is an ArgsKwargsOutput: one value, a list of values, or ArgsKwargs for named ones.")
def callKinds():
    assert isinstance(ran()[1](np.ones(2)), np.ndarray) and isinstance(twoInputs()(np.ones(1)), list)
    graph = ForwardGraph()
    graph.add_edge(graph.INPUT, square, in_kwarg="x", out_arg=0)
    graph.add_connection(square, graph.OUTPUT)
    graph(x=X)
    result = BackwardGraph().from_forward(graph)(np.ones(2))
    assert isinstance(result, ArgsKwargs) and result.kwargs["x"].tolist() == [4, 6]


# compile -------------------------------------------------------------------------------------------------------------


@PAGE.holds("compile", "It compiles the graph: the order of its nodes is settled.")
def compiles():
    steps = [row.node for row in ran(square, np.tanh)[1].compile().inspect()]
    assert steps == ["OUTPUT", "tanh", "square", "INPUT"]


@PAGE.holds("compile", "With `is_static` the graph is taken not to change, and its plan is cached.")
def compilesStatic():
    back = ran()[1].compile(is_static=True)
    plan = back.plan
    back(np.ones(2))
    assert back.plan is plan


@PAGE.holds("compile", "Without `is_static` nothing is cached: each pass plans anew.")
def compilesDynamic():
    back = ran()[1].compile(is_static=False)
    assert back.plan is not back.plan and back(np.ones(2)).tolist() == [4, 6]


@PAGE.holds("compile", "`is_static` is True by default.")
def compilesStaticByDefault():
    assert inspect.signature(BackwardGraph.compile).parameters["is_static"].default is True


@PAGE.holds("compile", "It returns the BackwardGraph itself.")
def compileReturns():
    back = ran()[1]
    assert back.compile() is back and isinstance(back, BackwardGraph)


@PAGE.differs(
    "compile",
    "It raises ValueError if there was no forward pass yet.",
    "compiling needs the graph and no values, so it may come before the forward pass; a ValueError is raised for a graph "
    "that cannot run, as the original's code does",
)
def compileRaises():
    graph = chain()
    back = BackwardGraph().from_forward(graph).compile()
    graph(X)
    assert back(np.ones(2)).tolist() == [4, 6]
    with pytest.raises(ValueError, match="OUTPUT doesn't exist in the backward graph"):
        BackwardGraph().compile()


# from_forward --------------------------------------------------------------------------------------------------------


@PAGE.holds("from_forward", "It makes the backward graph by inverting the forward graph.")
def inverts():
    edges = {(e.source, e.target) for edges in ran()[1].outgoing.values() for e in edges}
    assert edges == {(GraphEnum.OUTPUT, square), (square, GraphEnum.INPUT)}


@PAGE.holds("from_forward", "`forward_graph` may be an AcyclicDirectedGraph that runs forward.")
def invertsGraph():
    graph = chain()
    assert isinstance(graph, AcyclicDirectedGraph) and BackwardGraph().from_forward(forward_graph=graph).nodes


@PAGE.holds("from_forward", "`forward_graph` may be a DiGraph of networkx.")
def invertsNetworkx():
    networkx = pytest.importorskip("networkx")
    digraph = networkx.DiGraph([(square, np.tanh)])
    back = BackwardGraph().from_forward(digraph)
    back.forward_graph(X)
    np.testing.assert_allclose(back(np.ones(2)), 2 * X * (1 - np.tanh(X * X) ** 2))


@PAGE.holds("from_forward", "It returns the BackwardGraph itself.")
def invertReturns():
    back = BackwardGraph()
    assert back.from_forward(chain()) is back


# calculate -----------------------------------------------------------------------------------------------------------


@PAGE.holds("calculate", "It computes the gradient of the whole graph with respect to the loss.")
def calculates():
    assert ran(square, Occurrence(square))[1].calculate(np.ones(2)).tolist() == [32, 108]


@PAGE.holds("calculate", "Positional arguments are the gradients of the outputs by position.")
def calculatesArgs():
    def both(a):
        return 2 * a, 3 * a

    assert ran(both)[1].calculate(np.ones(2), 10 * np.ones(2)).tolist() == [32, 32]


@PAGE.holds("calculate", "Keyword arguments are the gradients of the outputs that have names.")
def calculatesKwargs():
    back = ran(named)[1]
    assert back.calculate(double=np.ones(2), triple=np.array([0.0, 1.0])).tolist() == [2, 5]


@PAGE.holds("calculate", "The result is the gradient of the loss with respect to the inputs, as an ArgsKwargsOutput.")
def calculateResult():
    first, second = twoInputs().calculate(np.ones(1))
    assert (first.tolist(), second.tolist()) == ([5], [2])


@PAGE.holds("calculate", "It raises ValueError if there was no forward pass yet.")
def calculateRaises():
    with pytest.raises(ValueError, match="No forward pass has been performed yet"):
        BackwardGraph().from_forward(chain()).calculate(np.ones(2))


# _pass ---------------------------------------------------------------------------------------------------------------


@PAGE.holds("_pass", "It runs the backward pass through the graph.")
def passes():
    assert ran(square, np.negative)[1]._pass(GraphEnum.OUTPUT, np.ones(2))[square].outputs.args[0].tolist() == [-4, -6]


@PAGE.holds("_pass", "`from_node` is the node that the pass starts from.")
def passesFrom():
    grads = ran(square, np.negative)[1]._pass(square, np.ones(2))
    assert np.negative not in grads and grads[GraphEnum.INPUT].outputs.args[0].tolist() == [4, 6]


@PAGE.holds("_pass", "Positional arguments are the gradients of the outputs by position.")
def passesArgs():
    back = ran()[1]
    assert back._pass(GraphEnum.OUTPUT, np.array([0.0, 1.0]))[square].inputs.args[0].tolist() == [0, 1]


@PAGE.holds("_pass", "Keyword arguments are the gradients of the outputs that have names.")
def passesKwargs():
    grads = ran(named)[1]._pass(GraphEnum.OUTPUT, triple=np.ones(2))
    assert grads[GraphEnum.INPUT].inputs.args[0].tolist() == [3, 3]


@PAGE.holds("_pass", "The result maps each node to its input and output gradients, an InputOutput.")
def passResult():
    grads = ran()[1]._pass(GraphEnum.OUTPUT, np.ones(2))
    assert set(grads) == {GraphEnum.OUTPUT, square, GraphEnum.INPUT}
    assert all(isinstance(g, InputOutput) for g in grads.values())
    assert (grads[square].inputs.args[0].tolist(), grads[square].outputs.args[0].tolist()) == ([1, 1], [4, 6])


# _calculate_gradients ------------------------------------------------------------------------------------------------


def single(node, x=X):
    """The input gradients of one node from output gradients of ones."""
    graph, back = ran(node, x=x)
    return back._calculate_gradients(node, InputOutput(ArgsKwargs([np.ones_like(graph.graph_state.outputs.args[0])])))


@PAGE.holds("_calculate_gradients", "It computes a module's gradient from the gradients of the module's outputs.")
def single0():
    assert single(square).args[0].tolist() == [4, 6]


@PAGE.holds("_calculate_gradients", "`module` may be an AccumulateGrad.")
def singleAccumulate():
    graph = ForwardGraph()
    graph.add_connection(graph.INPUT, square, graph.OUTPUT)
    graph.add_connection(square, np.negative, graph.OUTPUT)
    graph(X)
    back = BackwardGraph().from_forward(graph)
    (fanIn,) = [node for node in back.nodes if isinstance(node, AccumulateGrad)]
    grads = ArgsKwargs([[np.array([1.0]), np.array([2.0])]])
    assert back._calculate_gradients(fanIn, InputOutput(grads)).args[0].tolist() == [3]


@PAGE.holds("_calculate_gradients", "`module` may be a layer, with parameters.")
def singleLayer():
    layer = Linear(2, 3)
    grads = single(layer, np.ones((1, 2), np.float32))
    np.testing.assert_allclose(grads.args[0], layer.W.data.sum(1)[None], rtol=1e-6)
    assert layer.W.grad.tolist() == np.ones((2, 3)).tolist()


@PAGE.holds("_calculate_gradients", "`module` may be a BackwardModule, whose gradient was chosen by a person.")
def singleBackwardModule():
    assert single(BackwardIdentity(square)).args[0].tolist() == [1, 1]


@PAGE.holds("_calculate_gradients", "`module` may be any callable.")
def singleCallable():
    assert single(lambda x: 7 * x).args[0].tolist() == [7, 7]


@PAGE.holds("_calculate_gradients", "`grad_outputs` is an InputOutput, which holds the gradients of the outputs.")
def singleGradOutputs():
    assert list(inspect.signature(BackwardGraph._calculate_gradients).parameters)[1:] == ["module", "grad_outputs"]
    assert single(square).args[0].tolist() == [4, 6]


@PAGE.holds("_calculate_gradients", "The result is the gradients of the module's inputs, as ArgsKwargs.")
def singleResult():
    assert isinstance(single(square), ArgsKwargs)
