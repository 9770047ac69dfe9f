"""The claims of afnio's page of Node and GradientEdge."""

import numpy as np
from seedclaims import SeedPage

from puregraph import autodiff
from puregraph.autodiff import Function, Variable
from puregraph.compat.text import functional as F

PAGE = SeedPage("afnio: Node and GradientEdge", "`afnio.autodiff.graph`, here `puregraph.autodiff.graph`")


def leaf(*values):
    return Variable(np.array(values), requires_grad=True)


def summed():
    """The example of the page."""
    a = Variable("Hello,", requires_grad=True)
    b = Variable("world!", requires_grad=True)
    return a, b, F.sum([a, b])


# Node ----------------------------------------------------------------------------------------------------------------


@PAGE.holds("Node", "Node is the base class of what stands in the backward graph.")
def base():
    x = leaf(1.0)
    made = [x * x, np.exp(x), x.sum(), summed()[2]]
    assert all(isinstance(y.grad_fn, autodiff.graph.Node) for y in made)
    assert isinstance(autodiff.graph.get_gradient_edge(x).node, autodiff.graph.Node)


@PAGE.holds("Node", "A Node is one operation of the backward graph.")
def oneOperation():
    x = leaf(1.0)
    y = np.exp(x) * x
    assert y.grad_fn.name() == "MulBackward0"
    assert [edge.node.name() for edge in y.grad_fn.next_functions] == ["ExpBackward0", "AccumulateGrad"]


@PAGE.holds("Node", "A Node produces gradients during backpropagation.")
def produces():
    x, y = leaf(2.0), leaf(5.0)
    assert [g.tolist() for g in (x * y).grad_fn.apply(np.array([10.0]))] == [[50], [20]]


@PAGE.holds("Node", "A Node may have several inputs.")
def severalInputs():
    assert len(summed()[2].grad_fn.next_functions) == 2


@PAGE.holds("Node", "A Node may have several outputs.")
def severalOutputs():
    parts = F.split(Variable("a b", requires_grad=True), " ")
    assert parts[0].grad_fn is parts[1].grad_fn and parts[0].grad_fn.num_outputs == 2


@PAGE.holds("Node", "Nodes are connected by GradientEdge objects.")
def connected():
    assert all(isinstance(edge, autodiff.graph.GradientEdge) for edge in summed()[2].grad_fn.next_functions)


@PAGE.holds(
    "next_functions", "The attribute `next_functions` holds the edges to the node's parents in the backward graph."
)
def nextFunctions():
    a, b, c = summed()
    assert c.grad_fn.next_functions == tuple(autodiff.graph.get_gradient_edge(v) for v in (a, b))


@PAGE.holds("next_functions", "It is a tuple of GradientEdge.")
def isTuple():
    assert type(summed()[2].grad_fn.next_functions) is tuple


@PAGE.holds("next_functions", "It is a property.")
def isProperty():
    assert isinstance(autodiff.graph.Node.next_functions, property)


@PAGE.holds("next_functions", "It can be written.")
def isWritable():
    c = summed()[2]
    c.grad_fn.next_functions = c.grad_fn.next_functions[::-1]
    a, b = (edge.node for edge in c.grad_fn.next_functions)
    assert (a.variable.data, b.variable.data) == ("world!", "Hello,")


@PAGE.holds("next_functions", "Each entry is a pair of a Node and the number of one of its outputs.")
def isPair():
    node, number = (leaf(1.0) * 2).grad_fn.next_functions[0]
    assert isinstance(node, autodiff.graph.Node) and number == 0


@PAGE.holds("next_functions", "An entry says where gradients go next during backpropagation.")
def goesNext():
    x, other = leaf(1.0), leaf(1.0)
    y = x * 2
    y.grad_fn.next_functions = [autodiff.graph.get_gradient_edge(other)]
    y.backward(np.ones(1))
    assert x.grad is None and other.grad.tolist() == [2]


@PAGE.holds("name", "`name()` gives the name of the backward node as a text.")
def nameIsText():
    assert type((leaf(1.0) * 2).grad_fn.name()) is str


@PAGE.holds("name", "The name is that of the operation that made the output in the forward pass.")
def nameOfOperation():
    x = leaf(1.0)
    assert [y.grad_fn.name() for y in (x + x, np.exp(x), x.reshape((1, 1)))] == [
        "AddBackward0",
        "ExpBackward0",
        "ReshapeBackward0",
    ]


@PAGE.holds("example", "Two texts that require gradients are summed by `sum` of the functional operations.")
def exampleSum():
    a, b, c = summed()
    assert c.data == "<ITEM>Hello,</ITEM><ITEM>world!</ITEM>" and c.requires_grad


@PAGE.holds("example", "The `grad_fn` of the sum is an instance of `autodiff.graph.Node`.")
def exampleInstance():
    assert isinstance(summed()[2].grad_fn, autodiff.graph.Node)


@PAGE.holds("example", "Its `name()` is `SumBackward0`.")
def exampleName():
    assert summed()[2].grad_fn.name() == "SumBackward0"


# GradientEdge --------------------------------------------------------------------------------------------------------


@PAGE.holds("GradientEdge", "GradientEdge is a NamedTuple.")
def edgeIsNamedTuple():
    edge = autodiff.graph.GradientEdge(None, 0)
    assert isinstance(edge, tuple) and edge._fields == ("node", "output_nr")


@PAGE.holds("GradientEdge", "It is one edge of the backward graph and says where a gradient goes.")
def edgeSaysWhere():
    x = leaf(1.0, 2.0)
    edge = autodiff.graph.get_gradient_edge(x * 1)
    (g,) = autodiff.grad((x * 3).sum(), autodiff.graph.get_gradient_edge(x))
    assert edge.node is not None and g.tolist() == [3, 3]


@PAGE.holds("GradientEdge", "It points to one backward node and one output of that node.")
def edgePoints():
    parts = F.split(Variable("a b", requires_grad=True), " ")
    edges = [autodiff.graph.get_gradient_edge(part) for part in parts]
    assert edges == [(parts[0].grad_fn, 0), (parts[0].grad_fn, 1)]


@PAGE.holds("GradientEdge", "Every Variable that takes part in autodiff has an edge.")
def everyVariable():
    x = leaf(1.0)
    y = x * 2
    assert autodiff.graph.get_gradient_edge(x).node.name() == "AccumulateGrad"
    assert autodiff.graph.get_gradient_edge(y) == (y.grad_fn, 0)


@PAGE.holds("GradientEdge", "`autodiff.graph.get_gradient_edge(variable)` gives the edge of a Variable's gradient.")
def getsEdge():
    variable = leaf(1.0)
    edge = autodiff.graph.get_gradient_edge(variable)
    assert edge.node.variable is variable and edge.output_nr == 0


@PAGE.holds("GradientEdge", "`node` is the node that produces gradients, an instance of a backward Function.")
def edgeNode():
    _, _, c = summed()
    assert isinstance(autodiff.graph.get_gradient_edge(c).node, Function)
    assert all(isinstance(edge.node, Function) for edge in c.grad_fn.next_functions)


@PAGE.holds("GradientEdge", "Such nodes are named AccumulateGrad, SumBackward0 or ChatCompletionBackward0.")
def edgeNames():
    prompt = Variable("Answer.", role="the prompt", requires_grad=True)
    answer = F.chat_completion(lambda messages: "Yes.", [{"role": "user", "content": prompt}])
    nodes = [answer.grad_fn, answer.grad_fn.next_functions[0].node, summed()[2].grad_fn]
    assert [node.name() for node in nodes] == ["ChatCompletionBackward0", "AccumulateGrad", "SumBackward0"]


@PAGE.holds("GradientEdge", "`output_nr` is the index of the output of `node`.")
def edgeNumber():
    _, second = F.split(Variable("a b", requires_grad=True), " ")
    number = autodiff.graph.get_gradient_edge(second).output_nr
    assert (type(number), number) == (int, 1)
