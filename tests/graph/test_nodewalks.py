"""Walks over nodes with the methods of PuzzleLib's Node: forward by updateData, backward by updateGrad, marks after."""

import numpy as np
import pytest

from puregraph.core.errors import PuregraphError
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.node import Node
from puregraph.modules import Add, Concat, Embedder, Identity, Linear, Mul, Relu, Split, Sum, Tanh


def diamond(rng, dtype="float64"):
    """A graph with a node of several outputs, a repeated output, and a value with three readers."""
    first = Linear(4, 6, name="first").calcMode(dtype).node()
    parts = Split(axis=1, sections=(1, 2, 3), name="parts").node(first)
    curved = Tanh(name="curved").node((parts, 1))
    joined = Concat(axis=1, name="joined").node((parts, [2, 0, 0]), curved, first)
    last = Linear(13, 3, name="last").calcMode(dtype).node(joined)
    return first, last, rng.standard_normal((5, 4)).astype(dtype), rng.standard_normal((5, 3)).astype(dtype)


def test_a_walk_with_update_grad_gives_every_parent_the_gradient_of_the_graph(rng):
    first, last, x, dy = diamond(rng)
    net = Graph(first, last)
    net(x)
    net.backward(dy)
    wanted = net.grad, {name: p.grad for name, p in net.params.items()}
    Node.traverseForward(first, Node.updateData, x)
    Node.traverseBackward(last, Node.updateGrad, dy, True, True, 1.0, 0.0)
    assert np.array_equal(first.grad, wanted[0])
    assert all(np.array_equal(net.params[name].grad, g) for name, g in wanted[1].items())
    Node.traverseBackward(last, Node.updateGrad, dy, True, True, 0.5, 0.25)
    assert all(np.allclose(net.params[name].grad, 0.75 * g) for name, g in wanted[1].items())


def test_a_walk_with_update_grad_agrees_with_differences(rng):
    first, last, x, dy = diamond(rng)

    def value(x):
        Node.traverseForward(first, Node.updateData, x)
        return (last.data * dy).sum()

    along = rng.standard_normal(x.shape)
    slope = (value(x + 1e-6 * along) - value(x - 1e-6 * along)) / 2e-6
    value(x)
    Node.traverseBackward(last, Node.updateGrad, dy)
    assert (first.grad * along).sum() == pytest.approx(slope, rel=1e-7)


def test_update_grad_of_a_node_with_readers_takes_theirs_and_not_the_given_one():
    first = Identity(name="first").node()
    last = Mul(name="last").node(first, first)
    first.forward(np.array([3.0]))
    last.updateGrad(np.array([1.0]))
    first.updateGrad(np.array([100.0]))
    assert first.grad.tolist() == [6.0]


def test_a_walk_without_input_gradients_still_reaches_all_parameters(rng):
    first, last, x, dy = diamond(rng)
    Node.traverseForward(first, Node.updateData, x)
    Node.traverseBackward(last, Node.updateGrad, dy)
    wanted = first.module.W.grad
    Node.traverseBackward(last, Node.updateGrad, dy, True, False)
    assert first.grad is None and np.array_equal(first.module.W.grad, wanted)
    first.module.W.grad = None
    Node.traverseBackward(last, Node.updateGrad, dy, False, True)
    assert first.module.W.grad is None and first.grad is not None


def test_a_forward_pass_forgets_the_gradient_of_the_pass_before():
    first = Identity(name="first").node()
    left, right = Relu(name="left").node(first), Relu(name="right").node(first)
    first.forward(np.ones(2))
    for end in (left, right):
        Node.traverseBackward(end, Node.updateGrad, np.ones(2))
    assert first.grad.tolist() == [2, 2]
    first.forward(np.ones(2))
    assert right.grad is None
    Node.traverseBackward(left, Node.updateGrad, np.ones(2))
    assert first.grad.tolist() == [1, 1]


def test_a_node_whose_parent_has_no_data_says_which():
    a, b = Identity(name="a").node(), Identity(name="b").node()
    total = Add(name="total").node(a, b)
    with pytest.raises(PuregraphError, match=r"at 'total' \(Add\): its parent 'b' \(Identity\) has no data yet"):
        Node.traverseForward(a, Node.updateData, np.ones(2))
    Node.traverseForward(b, Node.updateData, np.ones(2))
    assert total.data.tolist() == [2, 2]


def test_route_in_grad_is_a_dictionary_of_what_each_parent_gets():
    first = Identity(name="first").node()
    parts = Split(axis=1, sections=(1, 2, 1), name="parts").node(first)
    joined = Concat(axis=1, name="joined").node((parts, [1, 0]), first, (parts, 0))
    first.forward(np.ones((1, 4)))
    joined.updateGrad(np.arange(8.0)[None])
    routed = joined.routeInGrad(joined.grad)
    assert list(routed) == [parts, first] and routed[first].tolist() == [[3, 4, 5, 6]]
    assert [None if g is None else g.tolist() for g in routed[parts]] == [[[2 + 7]], [[0, 1]], None]
    shapes = joined.routeInGrad([(1, 2), (1, 1), (1, 4), (1, 1)])
    assert shapes == {parts: [(1, 1), (1, 2), None], first: (1, 4)}
    assert first.routeInGrad("as it came") == "as it came"


def test_route_in_grad_of_an_input_without_a_gradient_has_none_for_its_parent():
    words = Input(name="words", dtype="int64").node()
    vectors = Embedder(5, 2, name="vectors").node(words)
    words.forward(np.array([[1, 3]]))
    vectors.updateGrad(np.ones((1, 2, 2), np.float32))
    assert vectors.routeInGrad(vectors.grad) == {words: None}


def test_walks_mark_what_they_visited_until_it_is_cleared():
    a = Identity(name="a").node()
    b, c = Identity(name="b").node(a), Identity(name="c").node(a)
    d = Add(name="d").node(b, c)

    def marks(kind):
        return [getattr(node, kind) for node in (a, b, c, d)]

    seen = []
    Node.traverseForward(b, lambda node: seen.append(marks("fwdVisited")))
    assert seen == [[False] * 4, [False, True, False, False]]
    assert marks("fwdVisited") == [False, True, False, True] and not any(marks("bwdVisited"))
    Node.traverseBackward(d, lambda node: None)
    assert all(marks("bwdVisited"))
    d.clearTraverse()
    assert marks("fwdVisited") == [False, True, False, False] and marks("bwdVisited") == [True, True, True, False]
    a.forward(np.ones(2))
    b.reset()
    assert marks("fwdVisited") == [True, False, True, True] and b.data is None and a.data is not None


def test_marks_left_by_one_walk_do_not_stop_the_next():
    a = Identity(name="a").node()
    b = Identity(name="b").node(a)
    for x in (1.0, 2.0):
        Node.traverseForward(a, Node.updateData, np.array([x]))
        assert b.data.tolist() == [x]

    def fail(node):
        if node is a:
            raise KeyError(node.name)

    with pytest.raises(KeyError):
        Node.traverseBackward(b, fail)
    assert not (a.bwdVisited or b.bwdVisited)


def test_passes_of_a_graph_leave_marks_alone():
    a = Identity(name="a").node()
    net = Graph(a, Sum(name="s").node(a))
    net(np.ones((2, 3)))
    net.backward()
    assert not any(node.fwdVisited or node.bwdVisited for node in net.nodes)
