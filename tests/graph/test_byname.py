"""Inputs by name, outputs unpacked, and what is called by its name in messages."""

import numpy as np
import pytest

from puregraph import (
    MSE,
    SGD,
    Add,
    Calculator,
    Concat,
    CrossEntropy,
    Graph,
    GraphError,
    Input,
    Linear,
    Pointwise,
    Sequential,
    ShapeError,
    Split,
    Sub,
    Trainer,
    Transpose,
    Validator,
)
from puregraph.core.errors import DataError, UnknownAttributeError

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((2, 12, 3), dtype=np.float32)


def difference():
    a, b = Input(name="a").node(), Input(name="b").node()
    return Graph([a, b], Linear(3, 2, name="out")(Sub()(a, b)), name="net")


def test_a_graph_takes_a_dict_by_the_names_of_its_inputs():
    net = difference()
    assert np.array_equal(net({"b": B, "a": A}), net(A, B))
    assert net.dataShapeFrom({"b": ("N", 3), "a": ("N", 3)}) == net.dataShapeFrom([("N", 3), ("N", 3)])


@pytest.mark.parametrize("given", [{"a": A}, {"a": A, "c": B}, {"a": A, "b": B, "c": B}])
def test_a_dict_of_other_names_is_refused_with_the_names(given):
    with pytest.raises(GraphError, match=r"net.*: wanted a dict with an array for each input \(a, b\), got a"):
        difference()(given)
    with pytest.raises(GraphError, match=r"wanted a dict with a shape for each input \(a, b\), got a"):
        difference().dataShapeFrom(dict.fromkeys(given, (2, 3)))
    with pytest.raises(DataError, match="data: wanted arrays for a, b by name, got a"):
        Trainer(difference(), MSE(), SGD(0.1), progress=False).train(given, A[:, :2])


def trained(data, **options):
    net = difference()
    net["out"].W.data = np.ones((3, 2), "f4")
    trainer = Trainer(net, MSE(), SGD(0.1), batchsize=4, progress=False)
    trainer.train(data, A[:, :2], **options)
    return trainer


def test_a_trainer_a_validator_and_a_calculator_take_dicts_by_name():
    by, inOrder = {"b": B, "a": A}, [A, B]
    one, two = trained(by, validation=(by, A[:, :2])), trained(inOrder, validation=(inOrder, A[:, :2]))
    assert one.history[0]["val loss"] == two.history[0]["val loss"]
    assert np.array_equal(Calculator(one.net).calculate(by), Calculator(two.net).calculate(inOrder))
    found = [Validator(one.net, MSE()).validate(each, A[:, :2]) for each in (by, inOrder)]
    assert found[0] == found[1]
    assert (
        trained(by, validation=0.25).history[0]["val loss"] == trained(inOrder, validation=0.25).history[0]["val loss"]
    )


def test_batches_may_be_dicts_by_name():
    batches = [({"b": B[:6], "a": A[:6]}, A[:6, :2]), ({"a": A[6:], "b": B[6:]}, A[6:, :2])]
    trainer = Trainer(difference(), MSE(), SGD(0.1), progress=False)
    trainer.train(batches)
    assert trainer.meters.samples == 12


def test_a_node_of_several_outputs_unpacks_into_nodes():
    x = Input(name="x").node()
    left, right = Split(axis=1, sections=(1, 2), name="parts")(x)
    net = Graph(x, Concat(axis=1)(right * 2.0, left))
    assert np.array_equal(net(A), np.concatenate([A[:, 1:] * 2, A[:, :1]], axis=1))


@pytest.mark.parametrize(("slot", "wanted"), [(0, A[:, :1]), (-1, A[:, 1:]), ("1", A[:, 1:])])
def test_an_output_of_a_node_of_several_is_picked_by_its_index_or_name(slot, wanted):
    x = Input(name="x").node()
    parts = Split(axis=1, sections=(1, 2), name="parts")(x)
    assert np.array_equal(Graph(x, parts[slot])(A), wanted)
    with pytest.raises(GraphError, match="'parts' .Split. has no output 2; it has 2"):
        _ = parts[2]


def test_a_node_of_one_output_is_sliced_and_does_not_unpack():
    x = Input(name="x").node()
    assert np.array_equal(Graph(x, x[:, 0])(A), A[:, 0])
    with pytest.raises(GraphError, match="'x' .Input. has one output: .* slices it, Split gives several"):
        _, _ = x
    assert iter(Split(axis=1, sections=(1, 2))(x)) is not None


def test_a_target_and_the_inputs_of_a_model_have_their_names_in_messages():
    with pytest.raises(ShapeError, match="wanted .12, 2., got .12, 3. from 'net.out', 'target'"):
        Trainer(difference(), MSE(), SGD(0.1), progress=False).train([A, B], A)
    with pytest.raises(ShapeError, match="at 'net.sub' .Sub.*'a', 'b'"):
        Trainer(difference(), MSE(), SGD(0.1), progress=False).train([A, B[:, :2]], A[:, :2])
    with pytest.raises(ShapeError, match=r"at 'net.fc' .Linear.: wanted \(..., 4\), got \(12, 3\) from 'data'"):
        net = Sequential(Linear(4, 2, name="fc"), name="net")
        Trainer(net, MSE(), SGD(0.1), progress=False).train(A, A)


@pytest.mark.parametrize("name", ["data", "target"])
def test_a_network_may_itself_be_called_data_or_target(name):
    net = Sequential(Linear(3, 2, name="fc"), name=name)
    Trainer(net, MSE(name="cost"), SGD(0.1), progress=False).train(A, A[:, :2])
    x = Input(name=name).node()
    Trainer(Graph(x, Linear(3, 2)(x)), MSE(), SGD(0.1), progress=False).train(A, A[:, :2])


def test_classes_on_the_last_axis_are_told_the_transpose_that_moves_them():
    labels = np.zeros((2, 5), np.int64)
    with pytest.raises(ShapeError, match=r"the classes are on axis 1; Transpose\(\(0, 2, 1\)\)"):
        CrossEntropy()(np.ones((2, 5, 7), "f4"), labels)
    net = Sequential(Transpose((0, 2, 1)))
    assert CrossEntropy()(net(np.ones((2, 5, 7), "f4")), labels) > 0
    with pytest.raises(ShapeError, match=r"Transpose\(\(0, 3, 1, 2\)\)"):
        CrossEntropy().dataShapeFrom((2, 5, 6, 7), (2, 5, 6))
    with pytest.raises(ShapeError, match="a label for each position, not one-hot"):
        CrossEntropy().dataShapeFrom((2, 5), (2, 5))


@pytest.mark.parametrize("value", [np.ones((3, 2), "f4"), [1.0, 2.0], 0, 0.5])
def test_an_array_in_the_place_of_a_parameter_is_refused_at_the_assignment(value):
    module = Linear(3, 2)
    with pytest.raises(UnknownAttributeError, match=r"Linear: W is a parameter of shape \(3, 2\).*W.data = "):
        module.W = value
    other = Linear(3, 2)
    module.W, module.b = other.W, None
    assert module.W is other.W and module(A).shape == (12, 2)


def test_operators_and_names_of_other_nodes_are_as_they_were():
    x = Input(name="x").node()
    assert np.array_equal(Graph(x, Add()(x, Pointwise(formula="x + 1")(x)))(A), A + (A + 1))
