"""The claims of PuzzleLib's page of Node."""

import inspect

import numpy as np
import pytest
from seedclaims import SeedPage

from puregraph import Add, Concat, Graph, Identity, Linear, Mul, Relu, Split, Tanh
from puregraph.core.errors import GraphError, PuregraphError
from puregraph.graph.module import Module
from puregraph.graph.node import Node

PAGE = SeedPage("PuzzleLib: Node", "`PuzzleLib.Containers.Node`, here `puregraph.graph.node.Node`")
X, DY = np.array([[1.0, 2.0]], np.float32), np.array([[1.0, 10.0, 100.0]], np.float32)


def parameters(method):
    """The names and defaults of a method's parameters."""
    return {n: p.default for n, p in inspect.signature(method).parameters.items() if n != "self"}


def pair():
    """first -> second, after a forward pass and backward to the gradients of second."""
    first = Linear(2, 3, name="first").node()
    second = Tanh(name="second").node(first)
    first.forward(X)
    second.updateGrad(DY)
    return first, second


def diamond():
    """y = a + a b, of a = x and b = relu(a), after a forward pass."""
    a = Identity(name="a").node()
    b = Relu(name="b").node(a)
    c = Mul(name="c").node(a, b)
    d = Add(name="d").node(a, c)
    a.forward(X)
    return a, b, c, d


def parted():
    """A node of three outputs, two of which a reader takes."""
    parts = Split(axis=1, sections=(1, 1, 1), name="parts").node()
    joined = Concat(axis=1, name="joined").node((parts, [2, 0]))
    parts.forward(DY)
    joined.updateGrad(np.array([[5.0, 7.0]], np.float32))
    return parts, joined


# Initialization ------------------------------------------------------------------------------------------------------


@PAGE.holds("Node", "The page is for those who want to know the structure, and who write modules: theirs work, too.")
def ownModules():
    class Third(Module):
        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            return x / 3

        def updateGrad(self, grad, x, y):
            return grad / 3

    node = Third().node()
    node.forward(X)
    node.backward(X)
    np.testing.assert_allclose(node.grad, X / 3)


@PAGE.holds("Node", "A Node wraps a module, which so becomes a node of a network's graph.")
def wraps():
    module = Relu()
    assert Node(module).module is module


@PAGE.holds("Node", "Networks can therefore be written as graphs.")
def writesGraphs():
    x = Node(Identity(name="x"))
    assert Graph(x, Node(Add(name="y"), [x, Node(Relu(name="r"), x)]))(X).tolist() == [[2, 4]]


@PAGE.holds("__init__", "It takes `mod`, `parents` and `name`; parents and name are None by default.")
def initParameters():
    found = parameters(Node.__init__)
    assert list(found)[:3] == ["mod", "parents", "name"] and found["parents"] is found["name"] is None


@PAGE.holds("__init__", "`mod` is a Module, which defines what the node does.")
def initModule():
    with pytest.raises(PuregraphError):
        Node("relu")
    node = Node(Relu())
    node.updateData(-X)
    assert node.data.tolist() == [[0, 0]]


@PAGE.holds("__init__", "`parents` are the nodes whose outputs are this node's input.")
def initParents():
    first, second = pair()
    np.testing.assert_allclose(second.data, np.tanh(first.data))


@PAGE.holds("__init__", "`parents` may be None: there are none.")
def initNoParents():
    assert Node(Relu(), None).bwds == []


@PAGE.holds("__init__", "`parents` may be a Node, the only ancestor.")
def initOneParent():
    parent = Node(Relu())
    assert [tuple(link) for link in Node(Relu(), parent).bwds] == [(parent, None)]


@PAGE.holds("__init__", "`parents` may be a tuple (Node, index) of one output.")
def initOneSlot():
    parts = Split(axis=1, sections=(1, 2)).node()
    relu = Node(Relu(), (parts, 1))
    parts.forward(DY)
    assert relu.data.tolist() == [[10, 100]]


@PAGE.holds("__init__", "`parents` may be a tuple (Node, list of indices) of several outputs.")
def initSeveralSlots():
    assert parted()[1].data.tolist() == [[100, 1]]


@PAGE.holds("__init__", "`parents` may be a list of both.")
def initList():
    parts = Split(axis=1, sections=(1, 2)).node()
    joined = Node(Concat(axis=1), [(parts, 1), Node(Identity(), (parts, 0)), parts])
    parts.forward(DY)
    assert joined.data.tolist() == [[10, 100, 1, 1, 10, 100]]


@PAGE.holds("__init__", "`name` is the node's name.")
def initName():
    assert Node(Relu(name="module"), name="mine").name == "mine"


# Links ---------------------------------------------------------------------------------------------------------------


@PAGE.holds("addBackwards", "It saves in this node who its ancestors are.")
def savesAncestors():
    a, b = Node(Relu()), Node(Relu())
    b.addBackwards(a)
    assert b.bwds[0].node is a


@PAGE.holds("addBackwards", "It saves in the ancestors that this node descends from them.")
def savesDescendants():
    a, b = Node(Relu()), Node(Relu())
    b.addBackwards(a)
    assert a.fwds[0].node is b


@PAGE.holds("addBackwards", "Every Node has `fwds`, the nodes after it, and `bwds`, the nodes before it.")
def hasLinks():
    first, second = pair()
    assert [node for node, _ in first.fwds] == [second] and [node for node, _ in second.bwds] == [first]
    assert first.bwds == second.fwds == []


@PAGE.holds("addBackwards", "It updates `bwds` of this node and `fwds` of the ancestors, for each of several.")
def updatesBoth():
    parts, total, a = Split(axis=1, sections=(1, 1)).node(), Node(Add()), Node(Relu())
    total.addBackwards([(parts, 1), a])
    assert [(node, slots) for node, slots in total.bwds] == [(parts, (1,)), (a, None)]
    assert parts.fwds[0].node is a.fwds[0].node is total


@PAGE.holds("addBackwards", "`nodes` may be None, a Node, a tuple or a list, as for `parents`.")
def backwardsKinds():
    parts = Split(axis=1, sections=(1, 1)).node()
    for nodes, count in ((None, 0), (parts, 1), ((parts, 0), 1), ([(parts, 0), (parts, 1)], 2)):
        node = Node(Add())
        node.addBackwards(nodes)
        assert len(node.bwds) == count
    with pytest.raises(GraphError, match="a parent must be a Node"):
        Node(Add()).addBackwards("parts")


@PAGE.holds("addForward", "It updates `fwds`.")
def updatesForward():
    a, b = Node(Relu()), Node(Relu())
    a.addForward(b)
    assert a.fwds[0].node is b


@PAGE.differs("addForward", "It updates nothing else.", "the child's `bwds` are updated as well: links always agree")
def updatesTheChild():
    a, b = Node(Relu()), Node(Relu())
    a.addForward(b)
    assert b.bwds[0].node is a


@PAGE.holds("addForward", "`nodes` may be None, a Node, a tuple or a list.")
def forwardKinds():
    parts = Split(axis=1, sections=(1, 1)).node()
    for nodes, count in ((None, 0), (Node(Relu()), 1), ((Node(Relu()), 0), 2), ([(Node(Relu()), 1), Node(Add())], 4)):
        parts.addForward(nodes)
        assert len(parts.fwds) == count


# Forward -------------------------------------------------------------------------------------------------------------


@PAGE.holds("forward", "It runs the branch that starts at this node on a tensor, each node's operation once.")
def forwards():
    a, b, c, d = diamond()
    assert d.data.tolist() == [[2, 6]] and c.data.tolist() == [[1, 4]]


@PAGE.holds("forward", "`data` is None by default.")
def forwardDefault():
    assert parameters(Node.forward) == {"data": None}


@PAGE.differs(
    "forward",
    "`data` has at least two axes, and the first is that of the samples.",
    "how many axes there are is the module's matter: pointwise operations take any number",
)
def forwardAxes():
    node = Node(Relu())
    for x in (np.float32(3), np.ones(2), X):
        node.forward(x)
        assert node.data.shape == x.shape


@PAGE.holds("name", "It gives the name of the node.")
def givesName():
    assert pair()[0].name == "first"


@PAGE.holds("name", "It is a property.")
def isProperty():
    assert isinstance(inspect.getattr_static(Node, "name"), property)


@PAGE.holds("updateData", "It applies the node's operation to a tensor.")
def updates():
    node = Node(Tanh())
    node.updateData(data=X)
    np.testing.assert_allclose(node.data, np.tanh(X))


@PAGE.holds("dataShapeFrom", "It computes the shape of the data behind this node of a graph.")
def shapes():
    first, second = pair()
    shapes = {}
    first.dataShapeFrom({"first": (5, 2)}, shapes, None)
    second.dataShapeFrom({}, shapes, None)
    assert shapes[second] == (5, 3)


@PAGE.holds("dataShapeFrom", "It is a helper of the graph's own methods for shapes.")
def shapesOfGraph():
    first, second = pair()
    shapes = {}
    Node.traverseForward(first, Node.dataShapeFrom, {first: (5, 2)}, shapes, None)
    assert Graph(first, second).dataShapeFrom((5, 2)) == shapes[second]


@PAGE.holds("dataShapeFrom", "`inshapes` is a dictionary of the shapes of input nodes.")
def shapesOfInputs():
    first, _ = pair()
    for inshapes in ({"first": (5, 2)}, {first: (5, 2)}):
        shapes = {}
        first.dataShapeFrom(inshapes, shapes, None)
        assert shapes == {first: (5, 3)}


@PAGE.holds("dataShapeFrom", "`shapes` is a dictionary of the shapes of all nodes: empty first, complete at the end.")
def shapesOfAll():
    a, b, c, d = diamond()
    shapes = {}
    Node.traverseForward(a, Node.dataShapeFrom, {a: (5, 2)}, shapes, None)
    assert shapes == dict.fromkeys((a, b, c, d), (5, 2))


@PAGE.holds("dataShapeFrom", "`onmodule` is one more function that is called as shapes are computed.")
def shapesOnModule():
    first, second = pair()
    seen = []
    note = lambda module, shape: seen.append((module.name, shape))  # noqa: E731
    Node.traverseForward(first, Node.dataShapeFrom, {first: (5, 2)}, {}, note)
    assert seen == [("first", (5, 2)), ("second", (5, 3))]


@PAGE.differs(
    "dataShapeFrom",
    "As a rule `onmodule` optimizes a node for its output shape.",
    "it is called as the original's code calls it, with the module and its input shape, which is what a module is "
    "optimized for",
)
def shapesOnModuleInput():
    first, _ = pair()
    seen = []
    first.dataShapeFrom({first: (5, 2)}, {}, lambda module, shape: seen.append((module, shape)))
    assert seen == [(first.module, (5, 2))]


# Backward ------------------------------------------------------------------------------------------------------------

PASS = {"updParamGrads": True, "updGrad": True, "scale": 1.0, "momentum": 0.0}


@PAGE.holds("backward", "It takes `grad=None, updParamGrads=True, updGrad=True, scale=1.0, momentum=0.0`.")
def backwardParameters():
    assert parameters(Node.backward) == {"grad": None, **PASS}


@PAGE.holds("backward", "It walks the branch that ends at this node in the opposite direction.")
def backwards():
    a, b, c, d = diamond()
    d.backward(np.ones_like(X))
    assert [node.grad is not None for node in (a, b, c, d)] == [True] * 4


@PAGE.holds("backward", "It computes the gradients of the parameters of these nodes.")
def backwardsParameters():
    first, second = pair()
    second.backward(DY)
    np.testing.assert_allclose(first.module.W.grad, X.T @ (DY * (1 - np.tanh(first.data) ** 2)), rtol=1e-5)


@PAGE.holds("backward", "It computes the gradients of what goes into these nodes.")
def backwardsInputs():
    a, _, _, d = diamond()
    d.backward(np.ones_like(X))
    assert a.grad.tolist() == [[1 + 2, 1 + 4]]  # of x + x relu(x)


@PAGE.holds("backward", "`grad` is the gradient of the objective function.")
def backwardsGrad():
    a, _, _, d = diamond()
    d.backward(grad=np.array([[1.0, 10.0]], np.float32))
    assert a.grad.tolist() == [[3, 50]]


@PAGE.holds("backward", "`updParamGrads` says whether gradients of parameters are computed.")
def backwardsWithoutParameters():
    first, second = pair()
    second.backward(DY, updParamGrads=False)
    assert first.module.W.grad is None and first.grad is not None


@PAGE.holds("backward", "`updGrad` says whether gradients of the input data are computed.")
def backwardsWithoutInputs():
    first, second = pair()
    second.backward(DY, updGrad=False)
    assert first.grad is None and first.module.W.grad is not None


@PAGE.holds("backward", "`scale` scales the gradient.")
def backwardsScale():
    first, second = pair()
    second.backward(DY)
    once = first.module.W.grad.copy()
    second.backward(DY, scale=3.0)
    np.testing.assert_allclose(first.module.W.grad, 3 * once, rtol=1e-6)


@PAGE.holds("backward", "`momentum` says how much of the former gradient is kept.")
def backwardsMomentum():
    first, second = pair()
    second.backward(DY)
    once = first.module.W.grad.copy()
    second.backward(DY, momentum=0.25)
    np.testing.assert_allclose(first.module.W.grad, 1.25 * once, rtol=1e-6)


@PAGE.holds("updateGrad", "It takes `grad`, `updParamGrads`, `updGrad`, `scale` and `momentum`, with these defaults.")
def updateGradParameters():
    assert parameters(Node.updateGrad) == {"grad": inspect.Parameter.empty, **PASS}


@PAGE.holds("updateGrad", "It computes the gradients of the node's parameters and of its input data.")
def updatesGrad():
    node = Linear(2, 3).node()
    node.updateData(X)
    node.updateGrad(DY)
    np.testing.assert_allclose(node.module.W.grad, X.T @ DY)
    np.testing.assert_allclose(node.grad, DY @ node.module.W.data.T, rtol=1e-6)


@PAGE.holds("updateGrad", "`grad` is the gradient tensor; a node with descendants takes theirs.")
def updateGradTakes():
    first, second = pair()
    first.updateGrad(1000 * DY)
    np.testing.assert_allclose(first.grad, second.grad @ first.module.W.data.T, rtol=1e-6)


@PAGE.holds("updateGrad", "`updParamGrads` says whether the node's parameters get gradients.")
def updateGradWithoutParameters():
    first, _ = pair()
    first.updateGrad(DY, False, True, 1.0, 0.0)
    assert first.module.W.grad is None and first.grad is not None


@PAGE.holds("updateGrad", "`updGrad` says whether the node's input data gets a gradient.")
def updateGradWithoutInputs():
    first, _ = pair()
    first.updateGrad(DY, True, False, 1.0, 0.0)
    assert first.grad is None and first.module.W.grad is not None


@PAGE.differs(
    "updateGrad",
    "`updGrad` does so for every node.",
    "a node with parents always has its input gradient, because they need it; the original does the same",
)
def updateGradOfInner():
    _, second = pair()
    second.updateGrad(DY, True, False, 1.0, 0.0)
    assert second.grad is not None


@PAGE.holds("updateGrad", "`scale` scales the gradient.")
def updateGradScale():
    node = Linear(2, 3).node()
    node.updateData(X)
    node.updateGrad(DY, True, True, 0.5, 0.0)
    np.testing.assert_allclose(node.module.W.grad, 0.5 * X.T @ DY)


@PAGE.holds("updateGrad", "`momentum` says how much of the former gradient is kept.")
def updateGradMomentum():
    node = Linear(2, 3).node()
    node.updateData(X)
    for _ in range(2):
        node.updateGrad(DY, True, True, 1.0, 0.5)
    np.testing.assert_allclose(node.module.W.grad, 1.5 * X.T @ DY)


@PAGE.holds("buildOutGrad", "It prepares the gradient tensors that come from the descendants.")
def buildsOutGrad():
    parts, _ = parted()
    first, last, third = parts.buildOutGrad(None)
    assert (first.tolist(), last, third.tolist()) == ([[7]], None, [[5]])


@PAGE.differs(
    "buildOutGrad",
    "What it prepares is a list, still to be added up.",
    "it is the sum over all descendants, in a list with one entry for each output; a single output has its sum alone",
)
def buildsSums():
    a, b, c, d = diamond()
    for node in (d, c, b):
        node.updateGrad(np.ones_like(X))
    assert a.buildOutGrad(None).tolist() == [[3, 5]]


@PAGE.holds("buildOutGrad", "Without descendants it returns the gradient tensor that it was given.")
def buildsTheGiven():
    assert pair()[1].buildOutGrad(DY) is DY


@PAGE.holds("routeInGrad", "It prepares a dictionary of the gradient tensors for the ancestors.")
def routes():
    parts, joined = parted()
    (routed,) = [joined.routeInGrad(joined.grad)]
    assert list(routed) == [parts]
    assert [None if g is None else g.tolist() for g in routed[parts]] == [[[7]], None, [[5]]]


@PAGE.holds("routeInGrad", "The same goes for the shapes of gradients.")
def routesShapes():
    parts, joined = parted()
    assert joined.routeInGrad([(4, 1), (4, 2)]) == {parts: [(4, 2), None, (4, 1)]}


@PAGE.holds("routeInGrad", "Without ancestors it returns the gradient tensor or shape that it was given.")
def routesTheGiven():
    first, _ = pair()
    assert first.routeInGrad(DY) is DY and first.routeInGrad((1, 3)) == (1, 3)


@PAGE.holds("gradShapeFrom", "It computes the shape of the gradient at this node.")
def gradShapes():
    first, second = pair()
    Node.traverseForward(first, Node.dataShapeFrom, {first: (5, 2)}, {}, None)
    shapes = {}
    for node in (second, first):
        node.gradShapeFrom((5, 3), shapes)
    assert shapes == {second: (5, 3), first: (5, 2)}


@PAGE.holds("gradShapeFrom", "`outshapes` is the shape of the gradient of the objective function.")
def gradShapesOut():
    first, second = pair()
    Node.traverseForward(first, Node.dataShapeFrom, {first: (5, 2)}, {}, None)
    with pytest.raises(PuregraphError, match=r"wanted a gradient of shape \(5, 3\), got \(5, 4\)"):
        second.gradShapeFrom((5, 4), {})


@PAGE.holds("gradShapeFrom", "`shapes` is a dictionary of all nodes' gradient shapes, which grows with the pass.")
def gradShapesGrow():
    a, b, c, d = diamond()
    Node.traverseForward(a, Node.dataShapeFrom, {a: (5, 2)}, {}, None)
    shapes = {}
    Node.traverseBackward(d, Node.gradShapeFrom, (5, 2), shapes)
    assert shapes == {d: [(5, 2)] * 2, c: [(5, 2)] * 2, b: (5, 2), a: (5, 2)}


@PAGE.differs(
    "buildOutGradShape",
    "It prepares a list of the gradient shapes that come from the descendants.",
    "they all are the shape of the output, so that shape is returned; of several outputs it is a list",
)
def buildsShapes():
    parts, joined = parted()
    Node.traverseForward(parts, Node.dataShapeFrom, {parts: (4, 3)}, {}, None)
    assert parts.buildOutGradShape((4, 2), {joined: [(4, 1), (4, 1)]}) == [(4, 1)] * 3


@PAGE.holds("buildOutGradShape", "Without descendants it returns the output shape of the node.")
def buildsOutputShape():
    first, second = pair()
    Node.traverseForward(first, Node.dataShapeFrom, {first: (5, 2)}, {}, None)
    assert second.buildOutGradShape(None, {}) == second.buildOutGradShape((5, 3), {}) == (5, 3)


# State and walks -----------------------------------------------------------------------------------------------------


@PAGE.holds("reset", "It resets what the node keeps: input data, results, gradients.")
def resets():
    first, _ = pair()
    first.updateGrad(None)
    first.reset()
    assert first.data is first.grad is first.values is None


@PAGE.holds("reset", "It also unsets the flags `fwdVisited` and `bwdVisited`.")
def resetsFlags():
    first, second = pair()
    Node.traverseBackward(second, Node.updateGrad, DY)
    assert first.fwdVisited and first.bwdVisited
    first.reset()
    assert not (first.fwdVisited or first.bwdVisited) and second.fwdVisited


@PAGE.holds("clearTraverse", "It unsets the flags `fwdVisited` and `bwdVisited`.")
def clears():
    first, second = pair()
    Node.traverseBackward(second, Node.updateGrad, DY)
    second.clearTraverse()
    assert not (second.fwdVisited or second.bwdVisited) and second.data is not None


@PAGE.differs(
    "clearTraverse",
    "The flags are those of the walks.",
    "a walk sets them for others to read and reads none itself, so that one that was not cleared changes no result",
)
def flagsStopNothing():
    first, second = pair()
    for x in (X, 2 * X):
        Node.traverseForward(first, Node.updateData, x)
        np.testing.assert_allclose(second.data, np.tanh(x @ first.module.W.data + first.module.b.data), rtol=1e-5)


@PAGE.holds("__str__", "It gives the node's name to be displayed.")
def readable():
    assert str(pair()[0]) == "first"


@PAGE.holds("traverseForward", "It is a static method that takes a node, a function and arguments for the function.")
def walkIsStatic():
    assert isinstance(inspect.getattr_static(Node, "traverseForward"), staticmethod)
    assert list(parameters(Node.traverseForward)) == ["node", "func", "args"]


@PAGE.holds("traverseForward", "It goes through all nodes that are derived from the node.")
def walksForward():
    a, b, c, d = diamond()
    seen = []
    Node.traverseForward(b, seen.append)
    assert seen == [b, c, d]


@PAGE.differs(
    "traverseForward",
    "The walk is recursive.",
    "an explicit stack visits the same nodes, each once and after its parents, in graphs of any depth",
)
def walksDeep():
    first = last = Node(Identity())
    for _ in range(20_000):
        last = Node(Identity(), last)
    seen = []
    Node.traverseForward(first, seen.append)
    assert len(seen) == 20_001 and seen[-1] is last


@PAGE.holds("traverseForward", "`func` is called on each node, with further positional arguments.")
def walksWithArguments():
    a, _, _, d = diamond()
    Node.traverseForward(a, Node.updateData, 2 * X)
    assert d.data.tolist() == [[6, 20]]


@PAGE.holds("traverseBackward", "It is a static method that takes a node, a function and arguments, as its table says.")
def walkBackIsStatic():
    assert isinstance(inspect.getattr_static(Node, "traverseBackward"), staticmethod)
    assert list(parameters(Node.traverseBackward)) == ["node", "func", "args"]


@PAGE.holds("traverseBackward", "It goes through all parents of the node.")
def walksBackward():
    a, b, c, d = diamond()
    seen = []
    Node.traverseBackward(c, seen.append)
    assert seen == [c, b, a]


@PAGE.holds("traverseBackward", "`func` may be `Node.updateGrad`: the walk then computes all gradients.")
def walksGradients():
    a, _, _, d = diamond()
    Node.traverseBackward(d, Node.updateGrad, np.ones_like(X), True, True, 1.0, 0.0)
    assert a.grad.tolist() == [[3, 5]]
    first, second = pair()
    second.backward(DY)
    wanted = first.grad, first.module.W.grad.copy()
    Node.traverseBackward(second, Node.updateGrad, DY, True, True, 1.0, 0.0)
    assert np.array_equal(first.grad, wanted[0]) and np.array_equal(first.module.W.grad, wanted[1])


@PAGE.differs(
    "traverseBackward",
    "Its signature is `traverseBackward(self)`, of a static method.",
    "the signature is a misprint of the page: the table below it and the original's code have node, func and args",
)
def walkBackSignature():
    with pytest.raises(TypeError):
        Node.traverseBackward(pair()[1])
