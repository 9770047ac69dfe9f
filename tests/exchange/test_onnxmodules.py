"""The modules that operators of ONNX are read as hold what modules promise, and survive a file."""

import inspect

import numpy as np
import pytest

import puregraph
from puregraph import Gather, Graph, Input, Module, PuregraphError, checkModule
from puregraph.onnx import modules

CLASSES = [c for _, c in inspect.getmembers(modules, inspect.isclass) if issubclass(c, Module)]
EXAMPLES = [(m, s) for c in CLASSES for m, s in c.examples()]


@pytest.mark.parametrize(("module", "shapes"), EXAMPLES, ids=lambda v: type(v).__name__ if hasattr(v, "reads") else "")
def test_a_module_of_onnx_keeps_the_contract(module, shapes):
    with np.errstate(all="ignore"):
        checkModule(module, shapes)


def argumentsOf(module):
    args, kwargs = module.initArgs
    return [*args, *kwargs.items()]


def shown(value):
    """An argument as it can be compared: a graph as its listing."""
    return str(value) if isinstance(value, Graph) else value


@pytest.mark.parametrize("made", CLASSES, ids=lambda c: c.__name__)
def test_a_module_of_onnx_survives_a_file(made, tmp_path):
    module, shapes = next(made.examples())
    inputs = [Input(name=f"x{i}").node() for i in range(len(shapes))]
    net = Graph(inputs, module.node(*inputs, name="it"))
    net.save(tmp_path / "net.h5")
    again = puregraph.load(tmp_path / "net.h5")
    assert type(again["it"]) is made and list(map(shown, argumentsOf(again["it"]))) == list(
        map(shown, argumentsOf(module))
    )


def test_an_index_far_below_zero_is_refused_and_the_compiler_sees_how_indices_are_counted():
    x, index = Input(name="x").node(), Input(name="index").node()
    net = Graph([x, index], Gather(axis=1, fromEnd=True, name="chosen").node(x, index))
    data, at = np.arange(6.0, dtype=np.float32).reshape(2, 3), np.array([-3, 2, -1])
    program = net.compile((2, 3), (3,), dtypes=["f4", "i8"])
    for run in (net, program.run):
        np.testing.assert_array_equal(run(data, at), data[:, at])
    for wrong in (-4, -5, 3):
        with pytest.raises(PuregraphError, match=f"got {wrong}"):
            net(data, np.array([0, wrong]))
    with pytest.raises(PuregraphError, match="got -"):
        net(data[:, :0], np.array([-1]))
    assert "nestcode" in program.table() and "python" not in program.table()
