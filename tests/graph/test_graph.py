"""Graph: checked when it is built, run in a fixed order, right in every way that two nodes can hang together."""

import copy
import pickle
import threading
import warnings

import numpy as np
import pytest

from puregraph.autodiff import add_backward_pass, make_backward_function
from puregraph.core.errors import DataError, DtypeError, GraphError, GraphWarning, PuregraphError, ShapeError, plural
from puregraph.core.param import Param
from puregraph.graph import Graph
from puregraph.graph.backward import BackwardGraph
from puregraph.graph.function import Function
from puregraph.graph.input import Input
from puregraph.graph.parallel import Parallel
from puregraph.graph.sequential import Sequential
from puregraph.modules import (
    Add,
    BatchNorm,
    Concat,
    Conv2D,
    Embedder,
    Flatten,
    Identity,
    Linear,
    Mul,
    Relu,
    Sigmoid,
    Split,
    Sub,
)


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("f")


def seedPage():
    """The graph of the page: two inputs, slots that fan out."""
    v1 = Linear(100, 50, name="v1").node()
    h1 = Split(axis=1, sections=(20, 20, 10), name="h1").node(v1)
    v2 = Linear(100, 50, name="v2").node()
    h2 = Concat(axis=1, name="h2").node((h1, [1, 2]), v2)
    h3 = Relu(name="h3")(h2)
    h4 = Concat(axis=1, name="h4").node((h1, 0), h3)
    return Graph(inputs=[v1, v2], outputs=h4)


def test_the_graph_of_the_page_has_its_shapes_before_any_data():
    net = seedPage()
    assert net.dataShapeFrom([(5, 100), (5, 100)]) == (5, 100)
    assert net.gradShapeFrom((5, 100)) == [(5, 100), (5, 100)]
    assert not any(p.made for p in net.params.values())


def test_the_graph_of_the_page_computes_what_numpy_computes():
    net = seedPage()
    x1, x2, g = data(5, 100), data(5, 100, seed=1), data(5, 100, seed=2)
    y = net([x1, x2])
    (w1, b1), (w2, b2) = ((net[v].W.data, net[v].b.data) for v in ("v1", "v2"))
    a, b = x1 @ w1 + b1, x2 @ w2 + b2
    joined = np.concatenate([a[:, 20:], b], axis=1)
    assert np.allclose(y, np.concatenate([a[:, :20], np.maximum(joined, 0)], axis=1), atol=1e-5)
    net.backward(g)
    dj = g[:, 20:] * (joined > 0)
    da, db = np.concatenate([g[:, :20], dj[:, :30]], axis=1), dj[:, 30:]
    assert np.allclose(net.grad[0], da @ w1.T, atol=1e-4) and np.allclose(net.grad[1], db @ w2.T, atol=1e-4)
    assert np.allclose(net["v1"].W.grad, x1.T @ da, atol=1e-4)
    assert np.allclose(net["v2"].b.grad, db.sum(axis=0), atol=1e-4)
    assert np.array_equal(net.getNodeByName("h3").data, np.maximum(joined, 0))
    assert np.array_equal(net.getNodeByName("h4").grad[0], g[:, :20])


def test_a_list_built_net_equals_the_same_net_of_nodes():
    fc, left, right = Linear(128, 64), Linear(64, 10), Linear(64, 5)
    x, g = data(32, 128), data(32, 15)
    listed = Sequential(fc, Sigmoid(), Branches(Parallel(left, right)), Concat(axis=1))
    v = fc.node()
    h = Sigmoid()(v)
    net = Graph(v, Concat(axis=1)(left.node(h), right.node(h)))
    results = []
    for model in (listed, net):
        y = model(x)
        model.backward(g)
        results.append([y, model.grad, fc.W.grad, left.W.grad, right.b.grad])
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


def Branches(parallel):
    """One value into every branch of a Parallel."""
    x = Input(name="x").node()
    return Graph(x, parallel.node(x, x))


def test_a_value_used_twice_gets_both_gradients():
    x = Input(name="x").node()
    net = Graph(x, Sub()(x, x))
    net(data(2, 3))
    net.backward(data(2, 3, seed=1))
    assert np.array_equal(net.grad, np.zeros((2, 3)))
    net = Graph(x, Mul()(x, x))
    net(data(2, 3))
    net.backward(np.ones((2, 3), "f"))
    assert np.allclose(net.grad, 2 * data(2, 3))


def test_the_same_parent_twice_as_separate_edges_keeps_its_halves_apart():
    v = Linear(4, 3, name="v").node()
    net = Graph(v, Concat(axis=1)(v, v))
    g = data(2, 6)
    net(data(2, 4))
    net.backward(g)
    assert np.allclose(net.grad, (g[:, :3] + g[:, 3:]) @ net["v"].W.data.T, atol=1e-6)


def test_slots_may_repeat_be_reordered_or_stay_unused():
    x = Input(name="x").node()
    s = Split(axis=1, sections=(1, 1, 1), name="s").node(x)
    g4, g1 = data(2, 4), data(2, 1)
    net = Graph(x, Concat(axis=1)((s, [0, 0, 1, 2])))
    net(data(2, 3))
    net.backward(g4)
    assert np.allclose(net.grad, np.stack([g4[:, 0] + g4[:, 1], g4[:, 2], g4[:, 3]], axis=1))
    net = Graph(x, Add()((s, 0), (s, 2), (s, 1)))
    net(data(2, 3))
    net.backward(g1)
    assert np.array_equal(net.grad, np.repeat(g1, 3, axis=1))
    net = Graph(x, Relu()((s, 1)))
    assert net(data(2, 3)).shape == (2, 1) and net.dataShapeFrom((2, 3)) == (2, 1)
    net.backward(g1)
    assert np.array_equal(net.grad[:, [0, 2]], np.zeros((2, 2))) and net.grad.shape == (2, 3)


def test_slot_gradients_are_summed_over_readers():
    x, w = Input(name="x").node(), Input(name="w").node()
    s = Split(axis=1, sections=(2, 2, 2), name="s").node(x)
    a, b = Concat(axis=1)((s, 0), w), Concat(axis=1)((s, [0, 1, 2]), w)
    net = Graph([x, w], Concat(axis=1)(a, b))
    g = data(3, 12)
    net(data(3, 6), data(3, 2))
    net.backward(g)
    assert np.allclose(net.grad[0], np.concatenate([g[:, :2] + g[:, 4:6], g[:, 6:10]], axis=1))
    assert np.allclose(net.grad[1], g[:, 2:4] + g[:, 10:12])


def test_an_output_inside_the_graph_and_a_slot_may_be_outputs():
    x = Input(name="x").node()
    h = Linear(3, 4, name="h").node(x)
    s = Split(axis=1, sections=(1, 3), name="s").node(h)
    net = Graph(x, [h, (s, 1)])
    assert net.outputNames == ("h", "s.1")
    y = net(data(2, 3))
    assert [v.shape for v in y] == [(2, 4), (2, 3)]
    g = data(2, 4, seed=3)
    net.backward([g, None])
    assert np.allclose(net.grad, g @ net["h"].W.data.T, atol=1e-6)
    net.backward([g, np.ones((2, 3), "f")])
    assert np.allclose(net.grad, (g + [0, 1, 1, 1]) @ net["h"].W.data.T, atol=1e-5)


def test_a_branch_that_leads_nowhere_is_left_out_and_said_once():
    v = Linear(4, 5, name="v").node()
    aux = Linear(5, 2, name="aux").node(v)
    head = Linear(5, 3, name="head").node(v)
    with pytest.warns(
        GraphWarning, match=r"left out, because no output of the graph needs it: 'aux' \(Linear\)"
    ) as caught:
        net = Graph(v, head)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net(data(2, 4))
        net.backward(data(2, 3))
    assert net.grad.shape == (2, 4) and aux.data is None and "aux.W" not in net.params


def test_a_wrong_shape_names_the_node_and_the_next_good_call_is_right():
    net = seedPage()
    good = [data(5, 100), data(5, 100)]
    wanted = net(good).copy()
    with pytest.raises(
        ShapeError, match=r"at 'v2' \(Linear\): wanted \(..., 100\), got \(5, 99\) from the graph's input"
    ):
        net(data(5, 100), data(5, 99))
    with pytest.raises(PuregraphError, match="backward needs a forward pass first"):
        net.backward(data(5, 100))
    assert np.array_equal(net(good), wanted)


def test_all_faults_are_listed_with_their_parents():
    x = Input(name="x").node()
    a = Linear(4, 5, name="a").node(x)
    b = Linear(3, 2, name="b").node(x)
    c = Linear(9, 1, name="c").node(b)
    net = Graph(x, [a, c, Relu(name="r").node(a)])
    with pytest.raises(ShapeError) as error:
        net.dataShapeFrom((2, 3))
    assert [f.path for f in error.value.faults] == ["a", "c"]
    text = str(error.value)
    assert "2 nodes do not fit their inputs" in text
    assert "at 'a' (Linear): wanted (..., 4), got (2, 3) from 'x'" in text
    assert "at 'c' (Linear): wanted (..., 9), got (2, 2) from 'b'" in text


def test_symbols_are_carried_through_a_model():
    net = Sequential(Conv2D(1, 16, 3, stride=2, pad=1), Relu(), Flatten())
    assert net.dataShapeFrom(("N", 1, 8, 8)) == ("N", 256)
    conv = Conv2D(1, 4, 3, stride=2, pad=1)
    assert conv.dataShapeFrom(("N", 1, "H", "W"))[:2] == ("N", 4)
    shape = Sequential(conv).dataShapeFrom(("N", 1, "H", 9))
    assert str(shape[2]) == "(H - 1)//2 + 1" and shape[3] == 5
    with pytest.raises(ShapeError, match="got \\(N, 3, 8, 8\\) from the graph's input"):
        net.dataShapeFrom(("N", 3, 8, 8))


def test_an_exception_of_a_rule_keeps_its_type_and_gains_the_place():
    class Broken(Identity):
        def updateData(self, x):
            raise KeyError("inside")

    net = Sequential(Sequential(Identity(), Broken(name="bad"), name="block"))
    with pytest.raises(KeyError, match="inside") as error:
        net(data(2, 3))
    place = "\n".join(getattr(error.value, "__notes__", error.value.args))
    assert "at 'block.bad' (Broken)" in place and "(2, 3)" in place


def test_rules_that_contradict_each_other_are_named():
    class Lies(Identity):
        def dataShapeFrom(self, x):
            return (1, 2)

    class Two(Identity):
        def dataShapeFrom(self, x):
            return [x, x]

    class Nothing(Identity):
        def dataShapeFrom(self, x):
            return None

    class Empty(Identity):
        def updateData(self, x):
            return None

    cases = {
        Lies: r"at 'bad' \(Lies\): dataShapeFrom says \(1, 2\), updateData gave shape \(2, 3\)",
        Two: r"at 'bad' \(Two\): dataShapeFrom wanted to give a tuple, gave \[\(2, 3\), \(2, 3\)\]",
        Nothing: r"at 'bad' \(Nothing\): dataShapeFrom wanted to give a tuple, gave None",
        Empty: r"at 'bad' \(Empty\): dataShapeFrom says \(2, 3\), updateData gave NoneType",
    }
    for kind, message in cases.items():
        net = Sequential(kind(name="bad"))
        for _ in range(2):
            with pytest.raises(PuregraphError, match=message):
                net(data(2, 3))


def test_a_list_of_modules_cannot_hold_itself():
    net = Sequential(Relu(), name="net")
    with pytest.raises(GraphError, match="Sequential 'net' cannot hold itself"):
        net.append(Sequential(net))
    assert len(net) == 1


def test_build_errors_say_which_node():
    a, b = Identity(name="a").node(), Identity(name="b").node()
    with pytest.raises(GraphError, match=r"the outputs need 'a' \(Identity\), which no input reaches"):
        Graph(b, Add()(a, b))
    c = Identity(name="c").node(a)
    with pytest.raises(GraphError, match=r"input 'c' \(Identity\) has parents: 'a'"):
        Graph(c, c)
    with pytest.raises(GraphError, match="an input is given twice"):
        Graph([a, a], c)
    with pytest.raises(GraphError, match="two nodes are named 'fc': a Linear and a Linear"):
        Sequential(Linear(2, 2, name="fc"), Linear(2, 2, name="fc"))
    with pytest.raises(GraphError, match="an input of a graph must be a Node, got Linear"):
        Graph(Linear(2, 2), c)
    with pytest.raises(GraphError, match="an output of a graph must be a Node"):
        Graph(a, "c")
    d = Add(name="d").node(a, c)
    a2 = Identity(name="loop").node(d)
    d.addBackwards(a2)
    with pytest.raises(GraphError, match="these nodes form a cycle: 'd' -> 'loop' -> 'd'|'loop' -> 'd' -> 'loop'"):
        Graph(a, d)


def test_a_failed_graph_leaves_its_nodes_free_for_a_right_one():
    v, w = Linear(3, 4, name="v").node(), Linear(3, 4, name="w").node()
    o = Add(name="o").node(v, w)
    with pytest.raises(GraphError):
        Graph(v, o)
    net = Graph([v, w], o)
    assert sorted(net.params) == ["v.W", "v.b", "w.W", "w.b"] and net(data(2, 3), data(2, 3)).shape == (2, 4)


def test_names_come_from_the_user_or_by_position_and_are_stable():
    def build():
        return Sequential(
            Linear(3, 4), Relu(), Linear(4, 4, name="relu2"), Relu(), Sequential(Linear(4, 2), name="head")
        )

    first, second = build(), build()
    assert list(first.paths.values()) == ["linear", "relu", "relu2", "relu3", "head"]
    assert list(first.params) == list(second.params)
    assert "head.linear.W" in first.params


def test_two_graphs_share_nodes_and_run_alternately():
    v = Linear(3, 4, name="v").node()
    a, b = Relu(name="a").node(v), Sigmoid(name="b").node(v)
    with pytest.warns(GraphWarning, match="'b' \\(Sigmoid\\)") as caught:
        first, second = Graph(v, a), Graph(v, b)
    assert len(caught) == 1
    x, z = data(2, 3), data(2, 3, seed=5)
    for _ in range(2):
        ya, yb = first(x), second(z)
        first.backward(np.ones_like(ya))
        assert np.allclose(first.grad, (ya > 0) @ v.module.W.data.T, atol=1e-6)
        second.backward(np.ones_like(yb))
        assert np.allclose(second.grad, (yb * (1 - yb)) @ v.module.W.data.T, atol=1e-6)


def test_two_threads_run_two_graphs_that_share_nodes():
    v = Linear(16, 16, name="v").node()
    ends = [Relu(name="a").node(v), Sigmoid(name="b").node(v)]
    with pytest.warns(GraphWarning):
        nets = [Graph(v, end) for end in ends]
    xs = [data(8, 16, seed=i) for i in range(2)]
    wanted = [net(x).copy() for net, x in zip(nets, xs, strict=True)]
    wrong = []

    def work(net, x, y):
        for _ in range(200):
            if not np.array_equal(net(x), y):
                wrong.append(net)
            net.backward(np.ones_like(y), updParamGrads=False)

    threads = [threading.Thread(target=work, args=row) for row in zip(nets, xs, wanted, strict=True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_accumulation_scale_and_modes():
    net = Sequential(Linear(3, 4, name="fc"), BatchNorm(4, name="bn"), Relu())
    x, g = data(6, 3), data(6, 4, seed=2)
    net(x)
    net.backward(g)
    once = {n: p.grad.copy() for n, p in net.params.items()}
    net.backward(g)
    assert all(np.array_equal(p.grad, once[n]) for n, p in net.params.items())
    net.backward(g, momentum=1.0)
    assert all(np.allclose(p.grad, 2 * once[n], rtol=1e-6) for n, p in net.params.items())
    net.backward(g, scale=0.5, momentum=0.25)
    assert all(np.allclose(p.grad, once[n], rtol=1e-5) for n, p in net.params.items())
    net.backward(g, updGrad=False)
    assert net.grad is None and all(np.array_equal(p.grad, once[n]) for n, p in net.params.items())
    net.backward(g, updParamGrads=False, scale=9.0)
    assert net.grad is not None and all(np.array_equal(p.grad, once[n]) for n, p in net.params.items())
    net.evalMode()
    net(x)
    net.backward(2 * g)
    assert net.grad is not None and all(np.array_equal(p.grad, once[n]) for n, p in net.params.items())


def test_a_frozen_parameter_gets_no_gradient():
    net = Sequential(Linear(3, 4, name="a"), Linear(4, 2, name="b"))
    net["a"].W.trainable = False
    net(data(2, 3))
    net.backward(data(2, 2))
    assert net["a"].W.grad is None and net["a"].b.grad is not None and net["b"].W.grad is not None
    net["a"].W.trainable = True
    net.backward(data(2, 2))
    assert net["a"].W.grad is not None


def test_shared_and_tied_parameters_add_up_and_are_stored_once():
    shared = Linear(3, 3, name="fc")
    x1, x2 = Input(name="x1").node(), Input(name="x2").node()
    net = Graph([x1, x2], Add()(shared.node(x1), shared.node(x2)))
    a, b, g = data(2, 3), data(2, 3, seed=1), data(2, 3, seed=2)
    net(a, b)
    net.backward(g)
    assert np.allclose(shared.W.grad, a.T @ g + b.T @ g, atol=1e-5)
    assert list(net.params) == ["fc.W", "fc.b"] and net.ties == {"fc2.W": "fc.W", "fc2.b": "fc.b"}
    one, two = Linear(3, 3, useBias=False, name="one"), Linear(3, 3, useBias=False, name="two")
    two.W = one.W
    tied = Sequential(one, two)
    tied(a)
    tied.backward(g)
    assert list(tied.params) == ["one.W"] and tied.ties == {"two.W": "one.W"}
    h = a @ one.W.data
    assert np.allclose(one.W.grad, h.T @ g + a.T @ (g @ one.W.data.T), atol=1e-4)


def test_a_parameter_replaced_or_tied_after_a_pass_gets_the_gradient():
    one, two = Linear(3, 3, useBias=False, name="one"), Linear(3, 3, useBias=False, name="two")
    net = Sequential(one, two)
    x, g = data(2, 3), data(2, 3, seed=1)
    net(x)
    net.backward(g)
    old = two.W
    old.grad = None
    two.W = Param((3, 3), "ones")
    net(x)
    net.backward(g)
    assert old.grad is None and np.allclose(two.W.grad, (x @ one.W.data).T @ g, atol=1e-5)
    two.W = one.W
    net(x)
    net.backward(g)
    h = x @ one.W.data
    assert np.allclose(one.W.grad, h.T @ g + x.T @ (g @ one.W.data.T), atol=1e-4)
    assert list(net.params) == ["one.W"]


def test_gradients_belong_to_their_owners():
    net = Graph(*[Identity(name="same").node()] * 2)
    g = data(2, 3)
    before = g.copy()
    net(data(2, 3))
    net.backward(g)
    assert net.grad is not g
    net.grad[:] = 0
    assert np.array_equal(g, before)
    x = Input(name="x").node()
    three = Graph(x, Add()(x, x, x))
    three(data(2, 3))
    three.backward(g)
    assert np.array_equal(g, before) and np.allclose(three.grad, 3 * before)


class Foreign:
    """A tensor of another library: it has a shape and a dtype, which is not numpy's."""

    shape, dtype = (2, 3), "float32"

    def __array__(self, dtype=None, copy=None):
        return np.ones((2, 3), np.float32)


def test_bad_data_gets_one_clear_sentence():
    net = Sequential(Linear(3, 2), name="net")
    with pytest.raises(DataError, match=r"Sequential 'net': wanted arrays, got float"):
        net(1.0)
    with pytest.raises(DataError, match=r"at 'linear' \(Linear\): wanted arrays, got list for x; use np.array"):
        Linear(3, 2)([[1.0, 2.0, 3.0]])
    with pytest.raises(DataError, match="wanted arrays, got list"):
        net([[1.0, 2.0, 3.0]])
    with pytest.raises(DataError, match=r"wanted arrays, got Foreign; np.asarray\(x\) makes an array of it$"):
        net(Foreign())
    with pytest.raises(DataError, match="wanted arrays, got Foreign for x; use np.array"):
        Linear(3, 2)(Foreign())
    with pytest.raises(
        DtypeError, match=r"the graph computes in float32, got float64; convert the data with .astype\('float32'\)"
    ):
        net(np.ones((2, 3)))
    with pytest.raises(DtypeError, match="wanted numbers, got dtype <U1"):
        net(np.full((2, 3), "a"))
    with pytest.raises(GraphError, match="wanted 1 input "):
        net(data(2, 3), data(2, 3))
    net(data(2, 3))
    with pytest.raises(ShapeError, match=r"wanted a gradient of shape \(2, 2\), got \(2, 3\)"):
        net.backward(data(2, 3))
    with pytest.raises(GraphError, match="backward wanted a gradient, got none"):
        net.backward()


def test_a_graph_computes_in_the_dtype_it_is_told():
    for dtype in ("float16", "float32", "float64"):
        net = Sequential(Linear(3, 4), BatchNorm(4), Relu(), Linear(4, 2)).calcMode(np.dtype(dtype))
        x = data(5, 3).astype(dtype)
        y = net(x)
        net.backward(np.ones_like(y))
        assert y.dtype == net.grad.dtype == dtype
        assert all(p.data.dtype == p.grad.dtype == dtype for p in net.params.values())
    with pytest.raises(PuregraphError, match="np.float16, np.float32, np.float64 or ml_dtypes.bfloat16; got 'int32'"):
        net.calcMode("int32")


def test_whole_numbers_do_not_enter_where_parameters_are_floats():
    with pytest.raises(DtypeError, match=r"at 'conv2d' \(Conv2D\): wanted float32 for x, got uint8"):
        Sequential(Conv2D(1, 2, 3))(np.ones((1, 1, 5, 5), np.uint8))
    words = Sequential(Embedder(5, 3), Relu())
    assert words(np.array([[1, 4]])).shape == (1, 2, 3)
    assert Sequential(Identity(), Embedder(5, 3))(np.array([1])).shape == (1, 3)


def test_a_mode_that_changes_between_forward_and_backward_is_noticed():
    net = Sequential(Linear(3, 4), BatchNorm(4, name="norm"))
    net(data(2, 3))
    net["norm"].evalMode()
    with pytest.raises(PuregraphError, match=r"at 'norm' \(BatchNorm\), backward: the forward pass was in trainMode"):
        net.backward(data(2, 4))
    net(data(2, 3))
    net.backward(data(2, 4))


def test_an_empty_list_of_modules_hands_on_what_comes_in():
    net = Sequential()
    assert np.array_equal(net(data(2, 3)), data(2, 3)) and net.dataShapeFrom(("N", 3)) == ("N", 3)
    assert len(net) == 0 and net.params == {} and "Sequential" in repr(net)
    assert net.append(Linear(3, 2))(data(2, 3)).shape == (2, 2)
    with pytest.raises(GraphError, match="wanted at least one output, got none"):
        Graph(Input().node(), [])


@pytest.mark.parametrize("size", ["3", 3.0, -3, None, True])
def test_a_size_that_is_none_is_refused_where_it_is_given(size):
    with pytest.raises(ShapeError, match="wanted insize as a whole number of at least 0, got"):
        Linear(size, 4)


def test_lists_edit_like_lists_and_fail_whole():
    net = Sequential(Linear(3, 4, name="a"), Relu(name="b"))
    net.append(Linear(4, 5, name="c")).insert(1, Identity(name="i"))
    assert [m.name for m in net] == ["a", "i", "b", "c"] and len(net) == 4
    assert net.pop(1).name == "i" and net["c"] is net[2] is net[-1]
    assert net[:2][0] is net["a"] and isinstance(net[:2], Sequential)
    before = net(data(2, 3)).copy()
    with pytest.raises(GraphError, match="two modules|two nodes are named 'a'"):
        net.append(Linear(5, 5, name="a"))
    with pytest.raises(GraphError, match="wanted Modules, got int"):
        net.append(3)
    assert np.array_equal(net(data(2, 3)), before)
    net["b"] = Sigmoid(name="b")
    assert not np.array_equal(net(data(2, 3)), before)
    del net["b"]
    net.extend([Relu(), Relu()])
    assert list(net.paths.values()) == ["a", "c", "relu", "relu2"]
    with pytest.raises(GraphError, match="has no module 'zzz'; it has a, c"):
        net["zzz"]


def test_editing_a_nested_list_is_noticed_by_the_graph_around_it():
    inner = Sequential(Linear(3, 3, name="fc"), name="inner")
    net = Sequential(inner, Relu())
    net(data(2, 3))
    inner.append(Linear(3, 7, name="wide"))
    assert net(data(2, 3)).shape == (2, 7) and "inner.wide.W" in net.params


def test_a_nested_graph_used_twice_shares_parameters_but_not_values():
    block = Sequential(Linear(3, 3, name="fc"), Sigmoid(), name="block")
    x = Input(name="x").node()
    one = block.node(x, name="one")
    two = block.node(one, name="two")
    net = Graph(x, two)
    v = data(2, 3)
    y = net(v)
    net.backward(np.ones_like(y))
    h = net.getNodeByName("one.sigmoid").data
    assert np.array_equal(net.getNodeByName("two.sigmoid").data, y) and np.array_equal(one.data, h)
    dy = y * (1 - y)
    dh = (dy @ block["fc"].W.data.T) * h * (1 - h)
    assert np.allclose(block["fc"].W.grad, h.T @ dy + v.T @ dh, atol=1e-5)
    assert list(net.params) == ["one.fc.W", "one.fc.b"]


def test_copies_and_pickles_are_equal_and_independent():
    net = seedPage()
    x = [data(5, 100), data(5, 100)]
    y = net(x)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert np.array_equal(twin(x), y)
        twin["v1"].W.data = twin["v1"].W.data * 0
        assert np.array_equal(net(x), y)
    nested = Sequential(Sequential(Linear(3, 3)), Parallel(Linear(3, 2)))
    twin = copy.deepcopy(nested)
    assert np.array_equal(twin(data(2, 3)), nested(data(2, 3))) and list(twin.params) == list(nested.params)
    node = net.nodes[0]
    a, b = copy.deepcopy([node, node.fwds[0].node])
    assert a.fwds[0].node is b and b.bwds[0].node is a and a is not node


def test_printing_shows_nodes_modules_and_sources():
    net = Sequential(Linear(3, 4, name="fc"), Relu(), name="small")
    lines = str(net).splitlines()
    assert lines[0] == "<Sequential 'small': 2 nodes, fc -> relu>"
    assert lines[1].split() == ["fc", "Linear(3,", "4)", "<-", "fc.x"]
    with pytest.raises(GraphError, match="has no node 'rely'; it has relu"):
        net.getNodeByName("rely")


def listedGraphs():
    """Graphs of every kind that prints its nodes."""
    x = Input(name="x").node()
    flat = Graph(x, Relu(name="r").node(Linear(3, 4, name="l").node(x)), name="flat")
    nested = Sequential(Sequential(Linear(3, 3), Relu(), name="in"), Linear(3, 2), name="nested")
    apart = make_backward_function(flat)[:2]
    joint = add_backward_pass(flat, ["r"], ["l.W"])
    return [Sequential(Relu()), flat, nested, BackwardGraph(flat), BackwardGraph(nested), joint, *apart]


@pytest.mark.parametrize("index", range(8))
def test_a_listing_counts_the_nodes_that_it_shows(index):
    first, *rest = str(listedGraphs()[index]).splitlines()
    assert f": {plural(len(rest), 'node')}, " in first


def test_on_module_is_called_with_the_input_shape():
    seen = []
    Sequential(Linear(3, 4), Relu()).dataShapeFrom((5, 3), onmodule=lambda m, s: seen.append((type(m).__name__, s)))
    assert seen == [("Linear", (5, 3)), ("Relu", (5, 4))]


def test_an_input_node_that_takes_any_number_takes_what_is_given():
    join = Sequential(Concat(axis=1), Linear(6, 1))
    assert join([data(2, 3), data(2, 3)]).shape == (2, 1)
    assert join([data(2, 2), data(2, 2), data(2, 2)]).shape == (2, 1)
    join.backward(data(2, 1))
    assert [g.shape for g in join.grad] == [(2, 2)] * 3


def test_one_function_at_two_nodes_is_named_by_position():
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

    x = Input(name="x").node()
    net = Graph(x, Twice.node(Twice.node(x)))
    assert list(net.paths.values()) == ["x", "twice", "twice2"]
    assert net(np.ones(2)).tolist() == [4, 4]


def test_a_module_that_a_list_repeats_is_one_layer_and_said_so_unless_it_has_a_name():
    with pytest.warns(
        GraphWarning, match=r"the same Linear 3 times, .*: .*\[Linear\(\.\.\.\) for _ in range\(3\)\]; to share"
    ):
        net = Sequential([Linear(3, 3)] * 3)
    assert len(net.params) == 2
    cell = Linear(3, 3, name="cell")
    assert len(Sequential(cell, Relu(), cell).params) == len(Sequential(cell, cell).params) == 2
    assert len(Sequential([Linear(3, 3) for _ in range(3)]).params) == 6
    Sequential([Relu()] * 3)
