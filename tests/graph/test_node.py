"""Node: the methods of the page that every user of PuzzleLib knows, with its faults gone."""

import numpy as np
import pytest

from puregraph.core.errors import GraphError, PuregraphError, ShapeError
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.node import Node
from puregraph.modules import Add, BatchNorm, Concat, Identity, Linear, Relu, Split, Sub


def ones(*shape):
    return np.ones(shape, np.float32)


def test_links_are_noted_at_both_ends_and_unpack_as_node_and_slots():
    parent = Split(axis=1, sections=(2, 2, 2), name="parts").node()
    child = Concat(axis=1).node((parent, [1, 2]))
    (node, slots) = child.bwds[0]
    assert node is parent and list(slots) == [1, 2]
    (node, slots) = parent.fwds[0]
    assert node is child and list(slots) == [1, 2]


def test_add_forward_makes_the_same_edges_as_add_backwards():
    a, b = Identity().node(), Identity().node()
    a.addForward(b)
    assert b.bwds[0].node is a and a.fwds[0].node is b
    parts, whole = Split(axis=1, sections=(1, 1)).node(), Concat(axis=1).node()
    parts.addForward([(whole, [1, 0])])
    assert list(whole.bwds[0].slots) == [1, 0]


def test_a_slot_may_be_the_name_of_an_output_and_may_repeat():
    parts = Split(axis=1, sections=(1, 2)).node()
    assert list(Concat(axis=1).node((parts, ["1", "0", "1"])).bwds[0].slots) == [1, 0, 1]


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        (lambda s: (s, 7), r"at 'join' \(Concat\): 'parts' \(Split\) has no output 7; it has 2: 0 '0', 1 '1'"),
        (lambda s: (s, s), "to give several parents, pass a list"),
        (lambda s: (s, -1), "has no output -1"),
        (lambda s: (s, True), "has no output True"),
        (lambda s: "parts", "a parent must be a Node, .* got str 'parts'"),
        (lambda s: 3, "got int 3"),
    ],
)
def test_a_bad_parent_is_refused_at_once_with_the_names(parent, message):
    parts = Split(axis=1, sections=(1, 2), name="parts").node()
    with pytest.raises(GraphError, match=message):
        Concat(axis=1).node(parent(parts), name="join")


def test_a_keyword_parent_goes_to_the_argument_of_that_name():
    a, b = Input(name="a").node(), Input(name="b").node()
    first, second = Sub().arguments
    node = Sub(name="minus").node(**{second: a, first: b})
    net = Graph([a, b], node)
    assert net(3 * ones(2), 5 * ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(GraphError, match=f"{first} is given twice"):
        _ = Sub(name="minus").node(a, b, **{first: a}).sources
    with pytest.raises(GraphError, match="no input is named 'mask'"):
        Sub(name="minus").node(a, mask=b)
    with pytest.raises(GraphError, match=f"{second} is missing"):
        Graph([a], Sub(name="minus").node(a))


def test_forward_runs_a_branch_and_waits_where_a_parent_has_no_data():
    v1, v2 = Linear(3, 2, name="v1").node(), Linear(3, 2, name="v2").node()
    total = Add(name="total").node(v1, v2)
    last = Relu(name="last").node(total)
    v1.forward(ones(4, 3))
    assert v1.data.shape == (4, 2) and total.data is None
    v2.forward(ones(4, 3))
    assert np.array_equal(last.data, np.maximum(v1.data + v2.data, 0))


def test_backward_of_nodes_equals_backward_of_the_graph():
    v = Linear(4, 5, name="v").node()
    readers = [Linear(5, 3, name=f"r{i}").node(v) for i in range(3)]
    last = Add(name="last").node(*readers)
    net = Graph(v, last)
    x, g = np.random.default_rng(0).standard_normal((2, 2, 4)).astype("f"), ones(2, 3)
    net(x[0])
    net.backward(g)
    wanted, weights = net.grad, {n: p.grad for n, p in net.params.items()}
    v.forward(x[0])
    last.backward(g)
    assert np.array_equal(v.grad, wanted)
    assert all(np.array_equal(net.params[n].grad, w) for n, w in weights.items())
    last.backward(g, scale=0.5, momentum=0.25)
    assert all(np.allclose(net.params[n].grad, 0.75 * w) for n, w in weights.items())
    last.backward(g, updGrad=False)
    assert v.grad is None


def test_a_module_at_two_nodes_adds_its_gradients_in_a_walk_over_nodes():
    shared = Linear(3, 3, name="shared")
    a = shared.node(name="first")
    b = shared.node(a, name="second")
    a.forward(ones(2, 3))
    b.backward(ones(2, 3))
    walked = shared.W.grad
    net = Graph(a, b)
    net(ones(2, 3))
    net.backward(ones(2, 3))
    assert np.allclose(walked, shared.W.grad)


class Second(Sub):
    """The difference, with a gradient for its second input alone."""

    def updateGrad(self, grad, a, b, y):
        return None, -grad


def test_a_node_without_a_gradient_does_not_make_its_module_accumulate():
    shared = Linear(3, 3, name="shared")
    first = shared.node(name="first")
    last = Second(name="last").node(shared.node(first, name="second"), first)
    first.forward(ones(2, 3))
    last.backward(ones(2, 3))
    once = shared.W.grad.copy()
    last.backward(ones(2, 3))
    assert np.array_equal(shared.W.grad, once)


def test_a_graph_inside_a_walk_over_nodes_gives_the_graph_gradients():
    inner = Graph(*[n := Linear(3, 3, name="fc").node()] * 2, name="inner")
    a = inner.node(name="one")
    b = inner.node(a, name="two")
    x = ones(2, 3)
    a.forward(x)
    b.backward(ones(2, 3))
    walked, grad = n.module.W.grad, a.grad
    net = Graph(*[i := Input().node()], inner.node(inner.node(i, name="one"), name="two"))
    net(x)
    net.backward(ones(2, 3))
    assert np.allclose(walked, n.module.W.grad) and np.allclose(grad, net.grad)


def test_build_out_grad_sums_over_readers():
    parts = Split(axis=1, sections=(1, 1), name="parts").node()
    both = Concat(axis=1).node(parts, (parts, 1))
    parts.forward(ones(2, 2))
    both.backward(np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    grads = parts.buildOutGrad()
    assert grads[0].tolist() == [[1], [4]] and grads[1].tolist() == [[5], [11]]


def test_shapes_of_nodes_are_inferred_without_data():
    v = Linear(4, 6, name="v").node()
    parts = Split(axis=1, sections=(2, 4), name="parts").node(v)
    join = Concat(axis=1, name="join").node((parts, [1, 0]))
    shapes, seen = {}, []
    Node.traverseForward(v, lambda n: n.dataShapeFrom({"v": (5, 4)}, shapes, lambda m, s: seen.append((m.name, s))))
    assert shapes[join] == (5, 6) and shapes[parts] == [(5, 2), (5, 4)]
    assert seen == [("v", (5, 4)), ("parts", (5, 6)), ("join", [(5, 4), (5, 2)])]
    grads = {}
    Node.traverseBackward(join, lambda n: n.gradShapeFrom((5, 6), grads))
    assert grads[v] == (5, 4) and grads[join] == [(5, 4), (5, 2)]
    assert parts.buildOutGradShape((5, 6), grads) == [(5, 2), (5, 4)]
    with pytest.raises(ShapeError, match=r"at 'join' \(Concat\): wanted a gradient of shape \(5, 6\), got \(5, 7\)"):
        join.gradShapeFrom((5, 7), {})
    with pytest.raises(GraphError, match="gradShapeFrom needs dataShapeFrom first"):
        Linear(4, 6).node().gradShapeFrom((5, 6), {})
    with pytest.raises(GraphError, match="no shape is known for 'v'"):
        v.dataShapeFrom({}, {}, None)
    with pytest.raises(ShapeError, match=r"at 'v' \(Linear\): wanted \(..., 4\), got \(5, 3\)"):
        v.dataShapeFrom({v: (5, 3)}, {}, None)


def test_traversal_visits_each_node_once_after_its_parents_or_children():
    a = Identity(name="a").node()
    b, c = Identity(name="b").node(a), Identity(name="c").node(a)
    d = Add(name="d").node(b, c, a)
    seen = []
    Node.traverseForward(a, lambda n, tag: seen.append((n.name, tag)), 7)
    names = [n for n, tag in seen if tag == 7]
    assert sorted(names) == ["a", "b", "c", "d"] and names[0] == "a" and names[-1] == "d"
    back = []
    Node.traverseBackward(d, lambda n: back.append(n.name))
    assert sorted(back) == ["a", "b", "c", "d"] and back[0] == "d" and back[-1] == "a"


def test_an_exception_in_a_visit_leaves_nothing_marked():
    a = Identity(name="a").node()
    b = Identity(name="b").node(a)

    def fail(node):
        raise KeyError(node.name)

    with pytest.raises(KeyError):
        Node.traverseForward(a, fail)
    seen = []
    Node.traverseForward(a, seen.append)
    assert seen == [a, b]
    a.clearTraverse()


def test_a_traversal_names_the_whole_cycle():
    a, b = Identity(name="a").node(), Identity(name="b").node()
    b.addBackwards(a)
    a.addBackwards(b)
    with pytest.raises(GraphError, match="cycle: 'a' -> 'b' -> 'a'"):
        Node.traverseForward(a, print)


def test_reset_forgets_the_values_and_str_is_the_name():
    node = Linear(2, 2, name="fc").node()
    node.forward(ones(1, 2))
    node.reset()
    assert node.data is None and node.grad is None and str(node) == node.name == "fc"
    assert repr(node) == "Node('fc', Linear)"
    with pytest.raises(PuregraphError, match="backward needs a forward pass first"):
        node.backward(ones(1, 2))


@pytest.mark.parametrize("name", ["", "a.b", "a/b", 3, "a\0", "a\n", "\ud800"])
def test_a_name_that_would_break_paths_is_refused(name):
    with pytest.raises(GraphError, match=r"without '.' and '/'"):
        Identity(name=name)
    with pytest.raises(GraphError, match=r"without '.' and '/'"):
        Identity().node(name=name)


def test_a_gradient_that_was_not_asked_for_is_not_kept():
    norm = BatchNorm(3).evalMode()
    norm(np.ones((2, 3), np.float32))
    norm.backward(np.ones((2, 3), np.float32))
    assert norm.grad is not None and norm.scale.grad is None and norm.bias.grad is None
