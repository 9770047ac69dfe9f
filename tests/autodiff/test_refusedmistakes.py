"""Mistakes with arrays, dtypes, parameters, Functions and budgets: each is refused with a sentence before it does harm."""

import array
import decimal

import numpy as np
import pytest

from puregraph import MSE, SGD, BatchNorm, Graph, Input, Linear, Relu, Sequential, SoftMax
from puregraph.autodiff import Function, Variable, add_backward_pass
from puregraph.core.errors import PuregraphError

X = np.ones((3, 4), np.float32)
SHAPE = [(3, 4)]


def net():
    x = Input(name="x").node()
    return Graph(x, Linear(4, 2, name="fc").node(x))


def function(forward, backward=lambda ctx, g: g):
    return type("Own", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def inGraph(*rules):
    """Run a Function behind another node of a graph, forward and backward."""
    x = Input(name="x").node()
    graph = Graph(x, function(*rules).node(Relu(name="r").node(x), name="own"))
    graph(X)
    graph.backward(np.ones((3, 4), np.float32))


def onTape(*rules):
    """Run a Function behind another operation of a tape, forward and backward."""
    v = Variable(np.ones((3, 4)), requires_grad=True)
    function(*rules).apply(v * 1).sum().backward()


def then(change):
    """A forward rule that changes its input and returns it."""
    return lambda ctx, x: (change(x), x)[1]


def saving(ctx, x):
    ctx.save_for_backward(x)
    return x * 2


def savedAndWritten(ctx, x):
    ctx.save_for_backward(x)
    x[0] = 0
    return x * 2


def masked(x):
    return np.ma.masked_array(np.asarray(x.data), np.asarray(x.data) > 0)


def sent(g):
    """A gradient sent back through a graph."""
    graph = net()
    graph(X)
    graph.backward(g)


def seeded(g):
    (Variable(np.ones((3, 2)), requires_grad=True) * 1).backward(g)


def assigned(name, value):
    setattr(Linear(4, 2).W, name, value)


def replaced(value):
    Linear(4, 2).W = value


def joint(**options):
    return add_backward_pass(net(), "fc", ["x"], **options)


def doubled(ctx, x):
    return x * 2


WRITES = {
    "item": then(lambda x: x.__setitem__(0, 0)),
    "+=": lambda ctx, x: x.__iadd__(1),
    "out": lambda ctx, x: np.add(x, 1, out=x),
    "fill": then(lambda x: x.fill(0)),
    "sort": then(lambda x: x.sort()),
    "put": then(lambda x: np.put(x, [0], [5])),
    "copyto": then(lambda x: np.copyto(x, 0)),
    "shuffle": then(lambda x: np.random.default_rng(0).shuffle(x)),
    "view": then(lambda x: x.reshape(-1).__setitem__(0, 1)),
    "flat": then(lambda x: x.flat.__setitem__(0, 1)),
}
ODD = {"complex": "c16", "object": "O", "bytes": "S3", "text": "U3", "seconds": "m8[s]", "void": "V4"}
ASSIGNED = {
    "list": [[1.0] * 2] * 4,
    "number": 1.0,
    "shape": np.ones((2, 4)),
    "complex": np.ones((4, 2), complex),
    "text": np.full((4, 2), "a"),
    "object": np.ones((4, 2), object),
    "word": "he",
}
MISTAKES = {
    **{f"a write in a graph: {name}": lambda f=f: inGraph(f) for name, f in WRITES.items()},
    "a write into a gradient": lambda: inGraph(doubled, lambda ctx, g: np.multiply(g, 2, out=g)),
    "a write into a saved value": lambda: inGraph(saving, lambda ctx, g: ctx.saved_variables[0].__setitem__(0, 1)),
    "a write into data on the tape": lambda: onTape(then(lambda x: x.data.__setitem__(0, 0))),
    "put on the tape": lambda: onTape(then(lambda x: np.put(x, [0], [5]))),
    "copyto on the tape": lambda: onTape(then(lambda x: np.copyto(x, 0.0))),
    "a write by indices on the tape": lambda: onTape(then(lambda x: x.__setitem__(np.array([0]), 0))),
    "a write after saving on the tape": lambda: onTape(savedAndWritten, lambda ctx, g: g * ctx.saved_variables[0]),
    "a gradient of another shape on the tape": lambda: onTape(doubled, lambda ctx, g: g[0]),
    "too many gradients on the tape": lambda: onTape(doubled, lambda ctx, g: (g, g)),
    "a masked result on the tape": lambda: onTape(lambda ctx, x: masked(x)),
    "a masked gradient on the tape": lambda: onTape(doubled, lambda ctx, g: masked(g)),
    "nothing forward": lambda: inGraph(lambda ctx, x: None),
    "a list forward": lambda: inGraph(lambda ctx, x: [x, x]),
    "a list forward on the tape": lambda: onTape(lambda ctx, x: [x]),
    "a list backward": lambda: inGraph(doubled, lambda ctx, g: [g]),
    "a list backward on the tape": lambda: onTape(doubled, lambda ctx, g: [g]),
    "two outputs of one name": lambda: inGraph(lambda ctx, x: (x, x)),
    "a text forward": lambda: inGraph(lambda ctx, x: "a"),
    "a matrix forward": lambda: inGraph(lambda ctx, x: np.matrix(x)),
    "a masked array forward": lambda: inGraph(lambda ctx, x: np.ma.masked_array(x, x > 0)),
    "a masked array backward": lambda: inGraph(doubled, lambda ctx, g: np.ma.masked_array(g, g > 0)),
    "a gradient of another shape": lambda: inGraph(doubled, lambda ctx, g: g[0]),
    "a number for a gradient": lambda: inGraph(doubled, lambda ctx, g: 2.0),
    **{f"{k} to a graph": lambda d=d: net()(np.ones((3, 4)).astype(d)) for k, d in ODD.items()},
    **{f"{k} to a module": lambda d=d: SoftMax()(np.ones((3, 4)).astype(d)) for k, d in ODD.items()},
    **{f"{k} to a cost": lambda d=d: MSE()(np.ones((3, 4)).astype(d), X) for k, d in ODD.items()},
    **{f"{k} to a program": lambda d=d: net().compile((3, 4)).run(np.ones((3, 4)).astype(d)) for k, d in ODD.items()},
    "other bytes to a graph": lambda: net()(X.astype(">f4")),
    "long doubles to a graph": lambda: net()(X.astype("g")),
    "half to a graph of float32": lambda: net()(X.astype("e")),
    "a complex gradient": lambda: sent(np.ones((3, 2), complex)),
    "texts for a gradient": lambda: sent(np.full((3, 2), "a")),
    "a list for a gradient": lambda: sent([[1, 2]] * 3),
    "a number for the gradient of a graph": lambda: sent(1.0),
    "a text for a seed": lambda: seeded("a"),
    "a complex seed": lambda: seeded(np.ones((3, 2), complex)),
    "an object seed": lambda: seeded(np.ones((3, 2), object)),
    "a list to a graph": lambda: net()([[1.0, 2.0, 3.0, 4.0]]),
    "an array of Python to a graph": lambda: net()(array.array("f", [1, 2, 3, 4])),
    "memory to a graph": lambda: net()(memoryview(X)),
    "a decimal to a module": lambda: Relu()(decimal.Decimal(1)),
    **{f"{k} for data": lambda v=v: assigned("data", v) for k, v in ASSIGNED.items()},
    **{f"{k} for grad": lambda v=v: assigned("grad", v) for k, v in ASSIGNED.items()},
    **{f"{k} for a parameter": lambda v=v: replaced(v) for k, v in ASSIGNED.items()},
    "a Variable for data": lambda: assigned("data", Variable(np.ones((4, 2)))),
    "None for data": lambda: assigned("data", None),
    "a State for a parameter": lambda: replaced(BatchNorm(4).mean),
    "an entry of params": lambda: Linear(4, 2).params.__setitem__("W", 1),
    "a word for trainable": lambda: assigned("trainable", "no"),
    "a number for trainable": lambda: assigned("trainable", 0),
    "a word for rate": lambda: assigned("rate", "fast"),
    "nan for rate": lambda: assigned("rate", float("nan")),
    "a budget below 0": lambda: joint(budget=-1, shapes=SHAPE),
    "no budget at all": lambda: joint(budget=0, shapes=SHAPE),
    "a broken budget": lambda: joint(budget=1.5, shapes=SHAPE),
    "a budget in words": lambda: joint(budget="1GB", shapes=SHAPE),
    "a budget of nan": lambda: joint(budget=float("nan"), shapes=SHAPE),
    "a budget of True": lambda: joint(budget=True, shapes=SHAPE),
    "a list for a budget": lambda: joint(budget=[1], shapes=SHAPE),
    "a budget without shapes": lambda: joint(budget=10**9),
    "a number for shapes": lambda: joint(budget=10**9, shapes=3),
    "too many shapes": lambda: joint(budget=10**9, shapes=SHAPE * 2),
    "shapes that do not fit": lambda: joint(budget=10**9, shapes=[(3, 5)]),
    "symbols for a budget": lambda: joint(budget=10**9, shapes=[("N", 4)]),
    "a size below 0": lambda: joint(budget=10**9, shapes=[(-3, 4)]),
    "a budget and a strategy": lambda: joint(budget=9, shapes=SHAPE, data_forwarding_strategy="recompute_all"),
    "an unknown strategy": lambda: joint(data_forwarding_strategy="keep"),
    "values without a strategy": lambda: joint(data_to_recompute=["fc"]),
    "unknown values": lambda: joint(data_forwarding_strategy="user_defined", data_to_recompute=["nothing"]),
    "accumulate in words": lambda: joint(accumulate="no"),
    "a peak without shapes": lambda: joint().peak(),
    "a peak of one shape": lambda: joint().peak((3, 4)),
    "a peak of numbers": lambda: joint().peak(3, 4),
    "a compile budget in words": lambda: net().compile((3, 4), budget="1MB"),
    "a compile budget of nan": lambda: net().compile((3, 4), budget=float("nan")),
    "a compile budget of True": lambda: net().compile((3, 4), budget=True),
}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_with_a_sentence(mistake):
    with pytest.raises(PuregraphError) as caught:
        MISTAKES[mistake]()
    assert len(str(caught.value).split()) > 3


@pytest.mark.parametrize("run", [inGraph, onTape])
def test_a_list_of_arrays_is_answered_with_what_to_return(run):
    with pytest.raises(PuregraphError, match=r"Own\.forward returned a list: return an array, or a tuple of arrays"):
        run(lambda ctx, x: [x])
    with pytest.raises(PuregraphError, match=r"Own\.backward returned a list: return an array, or a tuple with one"):
        run(doubled, lambda ctx, g: [g])


def test_outputs_without_names_are_answered_with_how_to_name_them():
    with pytest.raises(PuregraphError, match=r"Own\.forward returned 2 outputs, expected 1 \(y\): set outputNames"):
        inGraph(lambda ctx, x: (x, x))


@pytest.mark.parametrize("dtype", ODD)
def test_a_leaf_of_another_dtype_requires_no_gradient(dtype):
    with pytest.raises(TypeError, match="only floating point values and text can require gradients, got"):
        Variable(np.ones((3, 4)).astype(ODD[dtype]), requires_grad=True)


def test_gradients_that_fit_are_taken_whatever_numbers_they_hold():
    fc = Sequential(Linear(4, 2))
    W, optimizer = fc.params["linear.W"], SGD(1.0).setupOn(fc)
    before = W.data.copy()
    W.grad = np.ones((4, 2), np.int64)
    fc.params["linear.b"].grad = np.zeros(2, np.float32)
    optimizer.update()
    np.testing.assert_allclose(W.data, before - 1, rtol=1e-6)
