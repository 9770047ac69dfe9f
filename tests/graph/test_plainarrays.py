"""Arrays of numpy with operators of their own: masked ones, matrices, units. Every door refuses them, by name."""

import numpy as np
import pytest

from puregraph import (
    MSE,
    SGD,
    Calculator,
    Constant,
    CrossEntropy,
    Graph,
    Input,
    Linear,
    Relu,
    SoftMax,
    Trainer,
)
from puregraph.autodiff import Variable, add_backward_pass, grad, jvp, vjp
from puregraph.core.errors import PuregraphError

ROWS, COLUMNS = 3, 4
PLAIN = np.random.default_rng(0).random((ROWS, COLUMNS)).astype(np.float32)
TARGET = np.zeros((ROWS, 2), np.float32)


class Metres(np.ndarray):
    """An array whose products are of its own."""

    def __mul__(self, other):
        raise AssertionError("a rule computed with it")


KINDS = {
    "masked array": lambda x: np.ma.masked_array(x, x > 0.5),
    "matrix": lambda x: np.matrix(x),
    "Metres": lambda x: x.view(Metres),
}


def small():
    x = Input(name="x").node()
    return Graph(x, Linear(COLUMNS, 2, name="fc").node(x))


def backward(net, *inputs):
    """What goes back through a net, from a gradient that is given."""

    def run(g):
        net(*inputs)
        net.backward(g)

    return run


def leaf():
    return Variable(PLAIN, requires_grad=True)


def setting(owner, name):
    return lambda value: setattr(owner, name, value)


DOORS = {
    "module": lambda v: SoftMax()(v),
    "graph": lambda v: small()(v),
    "graph that met the shape": lambda v: [net := small(), net(PLAIN), net(v)],
    "prediction": lambda v: MSE()(v, PLAIN),
    "target": lambda v: MSE()(PLAIN, v),
    "gradient of a module": lambda v: backward(Relu(), PLAIN)(v),
    "gradient of a graph": lambda v: backward(Graph(x := Input(name="x").node(), Relu(name="r").node(x)), PLAIN)(v),
    "program": lambda v: small().compile(PLAIN.shape).run(v),
    "target of a program": lambda v: (
        small().compile(PLAIN.shape, PLAIN.shape[:1] + (2,), cost=MSE(), optimizer=SGD(0.1)).run(PLAIN, v[:, :2])
    ),
    "joint graph": lambda v: add_backward_pass(small(), "fc", ["x"])(v, TARGET),
    "Variable": lambda v: Variable(v),
    "data of a Variable": lambda v: setting(leaf(), "data")(v),
    "grad of a Variable": lambda v: setting(leaf(), "grad")(v),
    "seed of a tape": lambda v: (leaf() * 1).backward(v),
    "seed of grad": lambda v: grad((x := leaf()) * 1, x, v),
    "left operand": lambda v: v * leaf(),
    "right operand": lambda v: leaf() * v,
    "matrix product": lambda v: leaf() @ v.T,
    "function of numpy": lambda v: np.where(PLAIN > 0, leaf(), v),
    "module on the tape": lambda v: MSE()(leaf(), v),
    "primal": lambda v: jvp(np.sin, v, PLAIN),
    "tangent": lambda v: jvp(np.sin, PLAIN, v),
    "cotangent": lambda v: vjp(np.sin, PLAIN, v),
    "data of a parameter": lambda v: setting(Linear(ROWS, COLUMNS).W, "data")(v),
    "grad of a parameter": lambda v: setting(Linear(ROWS, COLUMNS).W, "grad")(v),
    "Constant": lambda v: Constant(v),
    "weights of classes": lambda v: CrossEntropy(weights=v[0]),
    "Calculator": lambda v: Calculator(small()).calculate(v),
    "Trainer": lambda v: Trainer(small(), MSE(), SGD(0.1), 3, progress="none").train(v, TARGET, epochs=1),
}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("door", [door for door in DOORS if door != "left operand"])
def test_arrays_with_operators_of_their_own_are_refused_at_every_door(door, kind):
    with pytest.raises(PuregraphError, match=f"got an? {kind}"):
        DOORS[door](KINDS[kind](PLAIN))


def test_a_masked_array_on_the_left_of_a_variable_loses_no_gradient_silently():
    with pytest.raises(TypeError, match="a Variable that requires a gradient is no plain array"):
        DOORS["left operand"](KINDS["masked array"](PLAIN))


def test_arrays_of_other_classes_that_compute_as_numpy_does_are_welcome(tmp_path):
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=PLAIN.shape)
    mapped[...] = PLAIN
    np.testing.assert_array_equal(SoftMax()(mapped), SoftMax()(PLAIN))
    np.testing.assert_array_equal(small()(mapped).shape, TARGET.shape)
    assert type((Variable(mapped, requires_grad=True) * 2).sum().data) is np.float32
