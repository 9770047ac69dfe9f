"""How modules calculate: what `calcMode` says, to whom, and what it leaves as it is."""

import copy
import pickle

import numpy as np
import pytest

from puregraph import CrossEntropy, Graph, Input
from puregraph.autodiff import Checkpoint
from puregraph.core import device, initial
from puregraph.core.errors import PuregraphError
from puregraph.graph.sequential import Sequential
from puregraph.modules import BatchNorm, Linear, Relu, Tanh
from puregraph.optimizers import Adam
from puregraph.serialize.blueprintwriter import ownAttributes
from puregraph.serialize.checkpoint import loadGraph


def nested():
    initial.seed(1)
    return Sequential(
        Sequential(Linear(4, 6, name="fc"), Relu(), name="body"),
        Checkpoint(Sequential(Linear(6, 6), Tanh())),
        BatchNorm(6, name="norm"),
        Linear(6, 3, name="head"),
    )


def precisions(net):
    return {path: module.precision for path, module in net.modules().items()}


def test_modules_calculate_in_float32_until_they_are_told_otherwise():
    assert set(precisions(nested()).values()) == {"float32"}


@pytest.mark.parametrize("name", ["bfloat16", "float16", "tf32"])
def test_a_name_is_for_all_modules_of_a_graph_and_changes_no_number(name):
    net, plain = nested(), nested()
    assert net.calcMode(name) is net
    assert net.precision == net["body"].precision == name
    assert set(precisions(net).values()) == {name}
    assert all(p.dtype == np.float32 for p in net.params.values())
    x = np.ones((5, 4), np.float32)
    np.testing.assert_array_equal(net(x), plain(x))


def test_a_module_or_a_nested_graph_that_is_told_afterwards_is_an_exception():
    net = nested().calcMode("bfloat16")
    net["head"].calcMode("float32")
    net["body"].calcMode("tf32")
    found = precisions(net)
    assert found["head"] == "float32" and found["body.fc"] == "tf32" and found["norm"] == "bfloat16"


def test_float32_also_converts_and_dtypes_leave_the_precision_alone():
    net = nested().calcMode("bfloat16").calcMode(np.float64)
    assert net["head"].precision == "bfloat16" and net["head"].W.dtype == np.float64
    net.calcMode("float32")
    assert net["head"].precision == net["body.fc"].precision == "float32" and net["head"].W.dtype == np.float32
    net.calcMode(np.float16)
    assert net["head"].precision == "float32" and net["head"].W.dtype == np.float16


@pytest.mark.parametrize("wrong", ["bf16", "half", "int32", np.int32, np.longdouble, None, 16])
def test_anything_else_is_refused_and_nothing_is_changed(wrong):
    net = nested().calcMode("tf32")
    with pytest.raises(PuregraphError, match=r"calcMode: wanted how to calculate, one of 'float32', .*; got"):
        net.calcMode(wrong)
    assert set(precisions(net).values()) == {"tf32"} and net["head"].W.dtype == np.float32


def test_a_checkpoint_does_not_know_how_its_graph_calculated():
    plain, net = nested(), nested().calcMode("float16")
    net["head"].calcMode("bfloat16")
    assert net.save(None) == plain.save(None)
    assert set(precisions(loadGraph(net.save(None))).values()) == {"float32"}


def test_a_graph_class_of_ones_own_does_not_keep_it_either():
    class Own(Sequential):
        pass

    net = Own(Linear(3, 4)).calcMode("float16")
    assert net.precision == "float16" and "precision" not in ownAttributes(net)


def test_copies_calculate_as_what_they_were_copied_from():
    net = nested().calcMode("float16")
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert precisions(twin) == precisions(net)


def program(net):
    return net.compile((5, 4), (5,), cost=CrossEntropy(), optimizer=Adam())


def batch(rng):
    return rng.standard_normal((5, 4)).astype(np.float32), rng.integers(0, 3, 5)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "tf32"])
def test_a_cpu_calculates_in_float32_and_gives_what_it_gave(rng, name):
    with device.useDevice("cpu"):
        plain, net = program(nested()), program(nested().calcMode(name))
        x, t = batch(rng)
        for _ in range(3):
            for y, z in zip(plain.run(x, t), net.run(x, t), strict=True):
                np.testing.assert_array_equal(y, z)
        assert net.bytes == plain.bytes and net.table() == plain.table()


def test_a_program_is_compiled_anew_when_a_module_calculates_otherwise(rng):
    with device.useDevice("cpu"):
        net = nested()
        found = program(net)
        x, t = batch(rng)
        found.run(x, t)
        built = found.executable
        net["head"].calcMode("float32")
        found.run(x, t)
        assert found.executable is built
        net["head"].calcMode("bfloat16")
        found.run(x, t)
        assert found.executable is not built


def test_a_module_whose_rule_cannot_be_read_counts_as_well(rng):
    class Odd(Relu):
        def updateData(self, x):
            return x if float(x.sum()) > 1e9 else np.maximum(x, 0)

    with device.useDevice("cpu"):
        x = Input(name="x").node()
        net = Graph(x, Odd(name="odd").node(x))
        found = net.compile((5, 4))
        found.run(np.ones((5, 4), np.float32))
        found.run(np.ones((5, 4), np.float32))
        current = found.current
        net["odd"].calcMode("float16")
        found.run(np.ones((5, 4), np.float32))
        assert found.current is not current
