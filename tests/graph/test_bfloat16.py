"""bfloat16 is a dtype to store: every rule computes in float32, and what it gives is rounded once."""

import subprocess
import sys

import h5py
import ml_dtypes
import numpy as np
import pytest

from puregraph import (
    MSE,
    SGD,
    Adam,
    Add,
    Calculator,
    Cast,
    CheckpointError,
    Concat,
    Constant,
    CrossEntropy,
    Div,
    Dropout,
    DtypeError,
    Graph,
    GroupNorm,
    Input,
    LayerNorm,
    Less,
    Linear,
    Module,
    Param,
    Sequential,
    State,
    Tanh,
    Trainer,
    Validator,
    load,
)
from puregraph.autodiff import Variable
from puregraph.core.rules import gradientRule
from puregraph.serialize.blueprintreader import fromBlueprint
from puregraph.serialize.blueprintwriter import toBlueprint

BRAIN = np.dtype(ml_dtypes.bfloat16)


def numbers(*shape, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(BRAIN)


def made(seed=1):
    """A network of bfloat16, the same for each seed."""
    net = Sequential(Linear(4, 8, name="a"), Tanh(), LayerNorm(8, name="norm"), Linear(8, 3, name="c")).calcMode(BRAIN)
    for i, param in enumerate(net.params.values()):
        param.data = numbers(*param.shape, seed=seed + i, scale=0.4)
    return net


def wide(net):
    """A network of float32 with the values of another one."""
    found = fromBlueprint(toBlueprint(net)).calcMode(np.float32)
    for path, param in found.params.items():
        param.data = net.params[path].data.astype(np.float32)
    return found


def rounded(x):
    return x.astype(BRAIN).astype(np.float32)


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        (BRAIN, BRAIN),
        ("float16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("bool", BRAIN),
        ("int8", BRAIN),
        ("int16", BRAIN),
        ("int64", BRAIN),
    ],
)
def test_bfloat16_is_promoted_as_float16_is_and_the_two_to_float32(other, wanted):
    a, b = Input(name="a").node(), Input(name="b").node()
    net = Graph([a, b], Add().node(a, b))
    assert net.dataTypeFrom(BRAIN, other) == net.dataTypeFrom(other, BRAIN) == wanted
    x, y = numbers(3), np.ones(3, other)
    assert net(x, y).dtype == net(y, x).dtype == wanted
    np.testing.assert_array_equal(net(x, y), (x.astype(np.float32) + y.astype(np.float32)).astype(wanted))


def test_every_module_computes_in_float32_and_its_output_is_rounded_once():
    net, x = made(), numbers(5, 4)
    assert net.dataTypeFrom(BRAIN) == net.dtype == BRAIN
    value = x.astype(np.float32)
    for module in wide(net):
        value = rounded(module(value))
    y = net(x)
    assert y.dtype == BRAIN
    np.testing.assert_array_equal(y.astype(np.float32), value)


def test_gradients_have_the_dtype_of_the_parameter_and_are_those_of_float32_rounded_at_each_module():
    net, x = made(), numbers(5, 4)
    value, calls, found = x.astype(np.float32), [], {}
    for name, module in zip(("a", "tanh", "norm", "c"), wide(net), strict=True):
        arguments = [value, *module.ruleValues()]
        result = module.updateData(*arguments)
        value, *hidden = result if type(result) is tuple else (result,)
        value = rounded(value)
        calls.append((name, module, arguments, [value, *hidden]))
    g = numbers(5, 3, seed=9)
    net(x)
    net.backward(g)
    g = g.astype(np.float32)
    for name, module, arguments, outputs in reversed(calls):
        grads = gradientRule(module, (True,) * len(arguments))(g, *arguments, *outputs)
        g, *rest = map(rounded, grads if type(grads) is tuple else (grads,))
        found |= {f"{name}.{n}": each for n, each in zip(module.ruleNames, rest, strict=True)}
    assert net.grad.dtype == BRAIN
    np.testing.assert_array_equal(net.grad.astype(np.float32), g)
    assert found.keys() == net.params.keys()
    for path, param in net.params.items():
        assert param.grad.dtype == BRAIN
        np.testing.assert_array_equal(param.grad.astype(np.float32), found[path], err_msg=path)


def test_a_scaled_gradient_that_is_added_keeps_the_dtype():
    layer = Linear(4, 3).calcMode(BRAIN)
    layer(numbers(5, 4))
    layer.backward(numbers(5, 3), scale=0.5)
    layer.backward(numbers(5, 3), scale=0.5, momentum=0.9)
    assert layer.W.grad.dtype == layer.b.grad.dtype == layer.grad.dtype == BRAIN


@pytest.mark.parametrize("optimizer", [SGD(0.1), Adam(0.1), SGD(0.1, clipNorm=0.01)], ids=["SGD", "Adam", "clipped"])
def test_an_update_is_computed_in_float32_with_a_state_of_float32(optimizer):
    net, x = made(), numbers(5, 4)
    net(x)
    net.backward(numbers(5, 3))
    other = wide(net)
    for path, param in other.params.items():
        param.grad = net.params[path].grad.astype(np.float32)
    again = type(optimizer)(0.1, clipNorm=optimizer.clipNorm).setupOn(other)
    optimizer.setupOn(net).update()
    again.update()
    for path, param in net.params.items():
        assert param.data.dtype == BRAIN
        np.testing.assert_array_equal(param.data.astype(np.float32), rounded(other.params[path].data), err_msg=path)
    assert all(a.dtype == np.float32 for name, a in optimizer.state.items() if not name.startswith("step"))


def test_a_compiled_step_is_the_eager_one():
    net, x, target = made(), numbers(6, 4), numbers(6, 3, seed=4)
    program = net.evalMode().compile([(6, 4)])
    assert program.why == ""
    np.testing.assert_array_equal(program.run(x), net(x))
    first, second = made().trainMode(), made().trainMode()
    step = first.compile([(6, 4), (6, 3)], cost=MSE(), optimizer=Adam(0.01).setupOn(first))
    assert step.why == ""
    optimizer, cost = Adam(0.01).setupOn(second), MSE()
    for _ in range(3):
        loss = step.run(x, target)
        y = second(x)
        eager = cost(y, target)
        cost.backward()
        second.backward(cost.grad[0])
        optimizer.update()
        assert eager.dtype == np.asarray(loss[0] if isinstance(loss, (list, tuple)) else loss).dtype == BRAIN
    for path, param in first.params.items():
        a, b = param.data.astype(np.float32), second.params[path].data.astype(np.float32)
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3, err_msg=path)


def test_a_compiled_step_sees_what_was_written_to_a_parameter():
    net, x = made().evalMode(), numbers(6, 4)
    program = net.compile([(6, 4)])
    before = program.run(x).copy()
    net["a"].W.data[...] = 0
    assert not np.array_equal(program.run(x), before)
    np.testing.assert_array_equal(program.run(x), net(x))


@pytest.mark.parametrize("given", [BRAIN, np.dtype("float32")])
@pytest.mark.parametrize("isCompiled", [True, False])
def test_trainer_calculator_and_validator_take_floats_of_any_kind(given, isCompiled):
    net, x, labels = made(), numbers(32, 4).astype(given), np.arange(32) % 3
    trainer = Trainer(net, CrossEntropy(), Adam(0.05), batchsize=8, compile=isCompiled)
    trainer.train(x, labels, epochs=3)
    assert net["a"].W.data.dtype == BRAIN
    assert np.isfinite(trainer.history[-1]["loss"])
    assert Calculator(net, compile=isCompiled).calculate(x).dtype == BRAIN
    assert np.isfinite(Validator(net, CrossEntropy(), compile=isCompiled).validate(x, labels)["loss"])


def test_a_network_of_float32_is_given_bfloat16_by_what_converts_and_says_so_where_nothing_does():
    net, x = Sequential(Linear(4, 3)), numbers(5, 4)
    assert Calculator(net).calculate(x).dtype == np.float32
    with pytest.raises(DtypeError, match=r"computes in float32, got bfloat16.*calcMode\(ml_dtypes.bfloat16\)"):
        net(x)


def test_a_cast_to_bfloat16_and_back_rounds_within_a_network():
    net, x = Sequential(Linear(4, 3), Cast(BRAIN), Tanh(), Cast("float32")), numbers(5, 4).astype(np.float32)
    assert net.dataTypeFrom("float32") == np.float32
    y = net(x)
    np.testing.assert_array_equal(y, rounded(np.tanh(rounded(net[0](x)))))
    net(x)
    net.backward(y)
    assert net.grad.dtype == net[0].W.grad.dtype == np.float32
    np.testing.assert_array_equal(net.evalMode().compile([(5, 4)]).run(x), y)


def test_a_checkpoint_holds_every_bfloat16_to_the_bit(tmp_path):
    every = np.arange(1 << 16, dtype=np.uint16).view(BRAIN)
    net = Sequential(Linear(4, 3, name="fc")).calcMode(BRAIN)
    net["fc"].every = Param((1 << 16,), dtype=BRAIN)
    net["fc"].every.data = every
    net.save(tmp_path / "net.pgh")
    other = Sequential(Linear(4, 3, name="fc")).calcMode(BRAIN)
    other["fc"].every = Param((1 << 16,), dtype=BRAIN)
    other.load(tmp_path / "net.pgh")
    np.testing.assert_array_equal(other["fc"].every.data.view(np.uint16), every.view(np.uint16))
    with h5py.File(tmp_path / "net.pgh") as file:  # a float like any other to who reads HDF5
        found = file["params/fc.W"]
        assert found.id.get_type().get_fields() == (15, 7, 8, 0, 7) and found.id.get_type().get_ebias() == 127
        np.testing.assert_array_equal(found[...], net["fc"].W.data.astype(found.dtype))


def test_a_network_of_bfloat16_comes_back_from_its_file_alone(tmp_path):
    net = Sequential(Linear(4, 3, name="fc"), Cast(BRAIN)).calcMode(BRAIN)
    net.save(tmp_path / "net.pgh")
    again = load(tmp_path / "net.pgh")
    again = getattr(again, "graph", again)
    assert again["fc"].W.dtype == again[1].dtype == BRAIN
    np.testing.assert_array_equal(again(numbers(5, 4)), net(numbers(5, 4)))


def test_without_ml_dtypes_a_file_of_bfloat16_says_what_is_missing(tmp_path, monkeypatch):
    net = Sequential(Linear(4, 3, name="fc")).calcMode(BRAIN)
    net.save(tmp_path / "net.pgh")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises((CheckpointError, DtypeError), match=r"pip install puregraph\[bfloat16\]"):
        load(tmp_path / "net.pgh")


def test_importing_puregraph_does_not_import_ml_dtypes():
    text = "import sys, puregraph; puregraph.Linear(2, 3); print('ml_dtypes' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr


class Counting(Module):
    """y = x, and the sum of all x so far."""

    def __init__(self):
        super().__init__("counting")
        self.total = State((3,), dtype=BRAIN)

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x, total):
        total += x.sum(axis=0)
        return x


def test_what_a_rule_writes_to_a_state_is_kept():
    net = Sequential(Counting())
    net(np.ones((2, 3), BRAIN))
    net[0](np.ones((2, 3), BRAIN))
    np.testing.assert_array_equal(net[0].total.data, np.full(3, 4, BRAIN))
    net.evalMode().compile([(2, 3)], dtypes=[BRAIN]).run(np.ones((2, 3), BRAIN))
    np.testing.assert_array_equal(net[0].total.data, np.full(3, 6, BRAIN))


def test_dtypes_are_converted_both_ways_without_a_loss():
    net = made()
    before = net["a"].W.data.copy()
    assert net.calcMode(np.float32)["a"].W.dtype == np.float32
    np.testing.assert_array_equal(net.calcMode(BRAIN)["a"].W.data, before)


def test_modules_on_variables_compute_as_on_arrays():
    net, x = made(), numbers(5, 4)
    v = Variable(x, requires_grad=True)
    y = net(v)
    np.testing.assert_array_equal(y.data, net(x))
    y.backward(numbers(5, 3, seed=9))
    net(x)
    found = v.grad.data if isinstance(v.grad, Variable) else v.grad
    assert found.dtype == BRAIN
    net.backward(numbers(5, 3, seed=9))
    np.testing.assert_array_equal(found, net.grad)


def test_values_that_are_joined_and_dropped_stay_in_bfloat16():
    a, b = Input(name="a").node(), Input(name="b").node()
    both = Concat(1).node(a, b)
    net = Graph([a, b], [both, GroupNorm(1, 8).calcMode(BRAIN).node(Dropout(0.5).node(both))])
    found = net(numbers(2, 4), numbers(2, 4, seed=1))
    assert [y.dtype for y in found] == [BRAIN, BRAIN]
    net.backward(found)
    assert [g.dtype for g in net.grad] == [BRAIN, BRAIN]


def test_formulas_and_constants_of_bfloat16_have_their_dtype_ahead_of_data():
    bfloat16 = np.dtype(ml_dtypes.bfloat16)
    x = Input(dtype=bfloat16, name="x").node()
    half = Constant(np.array([0.5], bfloat16), name="half").node()
    net = Graph(x, [Div(name="quotient")(x, half), Less(name="less")(x, half)])
    assert net.dataTypeFrom(bfloat16) == [bfloat16, np.dtype(bool)]
    quotient, less = net(np.array([0.25, 3], bfloat16))
    assert quotient.dtype == bfloat16 and list(quotient) == [0.5, 6] and list(less) == [True, False]
