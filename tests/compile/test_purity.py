"""What a rule of a user's module reads beside its arguments is looked at again, or the rule runs as it is."""

import functools
import types

import numpy as np
import pytest

from puregraph import Linear, Module, Param, Sequential, registerRule
from puregraph.compile import Program
from puregraph.core import rules

SCALE = 2.0
SIZES = (2.0, 3.0)
TABLE = [2.0, 3.0]
LARGE = np.full((3, 40), 2.0, np.float32)
HOLDER = types.SimpleNamespace(scale=2.0)


def factor():
    """A function that rules call."""
    return 2.0


def doubled(x, scale=2.0):
    """A function with a default."""
    return x * scale


class Base(Module):
    """What a method of Rule asks by `super()`."""

    def scale(self):
        return SCALE


class Rule(Base):
    """A module that multiplies by what `scale` says."""

    amount = 2.0
    amounts = [2.0, 3.0]

    def __init__(self, name=None):
        super().__init__(name)
        self.items = [2.0, 3.0]
        self.nested = ({"a": [2.0]},)
        self.table = {"a": 2.0}
        self.array = np.full((3, 40), 2.0, np.float32)
        self.small = np.full(1, 2.0, np.float32)
        self.zero = np.full((), 2.0, np.float32)
        self.wholes = np.full(3, 2)
        self.arrays = {"a": np.full(3, 2.0, np.float32)}
        self.V = Param((3,), lambda rng, shape: np.full(shape, 2.0, np.float32))
        self.holder = types.SimpleNamespace(scale=2.0)
        self.number = 2.0
        self.call = functools.partial(doubled, scale=2.0)
        self.inner = Linear(2, 2)
        self.inner.number = 2.0
        self.W = Param((40,), "ones")

    def dataShapeFrom(self, x):
        return x

    def scale(self):
        return super().scale()

    @classmethod
    def ofClass(cls):
        return cls.amount

    @staticmethod
    def still():
        return SCALE

    @property
    def shown(self):
        return SCALE * 1.0


def replaced(name, value):
    """A change of a global of this file."""
    return lambda module: globals().__setitem__(name, value)


def onClass(name, value):
    """A change of an attribute of the class."""
    return lambda module: setattr(type(module), name, value)


# how a rule reads a 2, and what makes it a 5
READS = {
    "a global number": (lambda self: SCALE, replaced("SCALE", 5.0)),
    "a number in a global tuple": (lambda self: SIZES[0], replaced("SIZES", (5.0, 3.0))),
    "an item of a global list": (lambda self: TABLE[0], lambda module: TABLE.__setitem__(0, 5.0)),
    "a global array": (lambda self: LARGE, lambda module: LARGE.fill(5)),
    "an attribute of a global": (lambda self: HOLDER.scale, lambda module: setattr(HOLDER, "scale", 5.0)),
    "a global function": (lambda self: factor(), replaced("factor", lambda: 5.0)),
    "a default of a function": (lambda self: doubled(1.0), lambda m: setattr(doubled, "__defaults__", (5.0,))),
    "an attribute of the class": (lambda self: self.amount, onClass("amount", 5.0)),
    "an attribute of its type": (lambda self: type(self).amount, onClass("amount", 5.0)),
    "an attribute of the class by name": (lambda self: Rule.amount, lambda module: setattr(Rule, "amount", 5.0)),
    "an item of a list of the class": (lambda self: self.amounts[0], lambda module: module.amounts.__setitem__(0, 5.0)),
    "a method of the class": (lambda self: self.ofClass(), onClass("amount", 5.0)),
    "a static method": (lambda self: self.still(), replaced("SCALE", 5.0)),
    "a property": (lambda self: self.shown, replaced("SCALE", 5.0)),
    "a number of its own": (lambda self: self.number, lambda module: setattr(module, "number", 5.0)),
    "a number around its back": (lambda self: self.number, lambda module: vars(module).__setitem__("number", 5.0)),
    "an item of a list": (lambda self: self.items[0], lambda module: module.items.__setitem__(0, 5.0)),
    "an item inside": (lambda self: self.nested[0]["a"][0], lambda m: m.nested[0]["a"].__setitem__(0, 5.0)),
    "an item of a dict": (lambda self: self.table["a"], lambda module: module.table.update(a=5.0)),
    "an array": (lambda self: self.array, lambda module: module.array.fill(5)),
    "an array that took another's place": (lambda self: self.array, lambda m: setattr(m, "array", m.array * 2.5)),
    "a small array": (lambda self: self.small, lambda module: module.small.fill(5)),
    "an array without axes": (lambda self: self.zero, lambda module: module.zero.fill(5)),
    "an element of an array": (lambda self: self.array[0, 0], lambda module: module.array.fill(5)),
    "an element as a number": (lambda self: float(self.array[0, 0]), lambda module: module.array.fill(5)),
    "an element by item": (lambda self: self.array.item(0), lambda module: module.array.fill(5)),
    "a row of an array": (lambda self: self.array[1:2], lambda module: module.array.fill(5)),
    "the maximum of an array": (lambda self: self.array.max(), lambda module: module.array.fill(5)),
    "a function of an array": (lambda self: np.sqrt(self.array * self.array), lambda module: module.array.fill(5)),
    "a function of a small array": (lambda self: self.small * 1, lambda module: module.small.fill(5)),
    "a choice by an array": (lambda s: 5.0 if s.array[0, 0] > 3 else 2.0, lambda module: module.array.fill(5)),
    "an array of integers": (lambda self: float(self.wholes[0]), lambda module: module.wholes.fill(5)),
    "an array in a dict": (lambda self: self.arrays["a"][0], lambda module: module.arrays["a"].fill(5)),
    "data of a parameter": (lambda self: self.V.data[0], lambda module: module.V.data.fill(5)),
    "other data of a parameter": (lambda s: s.V.data[0], lambda m: setattr(m.V, "data", np.full(3, 5, np.float32))),
    "a method of a base": (lambda self: self.scale(), replaced("SCALE", 5.0)),
    "an attribute of an object": (lambda self: self.holder.scale, lambda m: setattr(m.holder, "scale", 5.0)),
    "a module inside": (lambda self: self.inner.number, lambda module: setattr(module.inner, "number", 5.0)),
    "a function that it holds": (lambda self: self.call(1.0), lambda module: module.call.keywords.update(scale=5.0)),
    "an attribute by its name": (lambda self: getattr(self, "num" + "ber"), lambda m: setattr(m, "number", 5.0)),
    "its dictionary": (lambda self: self.__dict__["items"][0], lambda module: module.items.__setitem__(0, 5.0)),
}


@pytest.fixture(autouse=True)
def asBefore(monkeypatch):
    """What tests change is as it was after them."""
    kept = {name: globals()[name] for name in ("SCALE", "SIZES", "factor")}
    monkeypatch.setattr(rules, "REGISTRY", {})
    yield
    globals().update(kept)
    TABLE[:], HOLDER.scale, Rule.amount, Rule.amounts[:] = [2.0, 3.0], 2.0, 2.0, [2.0, 3.0]
    LARGE.fill(2)
    doubled.__defaults__ = (2.0,)


def forward(read):
    """A class whose forward rule reads."""

    class Forward(Rule):
        def updateData(self, x, W):
            return x * W * self.read()

        def updateGrad(self, grad, x, W, y):
            return grad * W, (grad * x).sum(axis=0)

    Forward.read = read
    return Forward


def backward(read):
    """A class whose gradient rule reads."""

    class Backward(Rule):
        def updateData(self, x, W):
            return x * W

        def updateGrad(self, grad, x, W, y):
            return grad * W * self.read(), (grad * x * self.read()).sum(axis=0)

    Backward.read = read
    return Backward


def registered(read):
    """A class with a rule that somebody registered, which reads."""

    class Registered(Rule):
        def updateData(self, x, W):
            return x * W

    Registered.read = read

    @registerRule(Registered)
    def rule(module, grad, x, W, y):
        return grad * W * module.read(), (grad * x * module.read()).sum(axis=0)

    return Registered


@pytest.mark.parametrize("place", [forward, backward, registered])
@pytest.mark.parametrize("kind", READS)
def test_a_program_sees_what_its_rules_read(kind, place):
    read, change = READS[kind]
    module = place(read)(name="m")
    net = Sequential(module, name="net")
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    g = np.ones_like(x)
    program = Program(net, [x.shape], [x.dtype], None, grads=(True,))

    def both():
        """The outputs and gradients, compiled and eager."""
        found = [program.run(x, g).copy(), np.copy(program.grad), module.W.grad.copy()]
        y = net(x)
        net.backward(g)
        wanted = [y, net.grad, module.W.grad]
        for a, b in zip(found, wanted):
            assert np.allclose(a, b, rtol=1e-5, atol=1e-6), kind
        return found

    first = both()
    for a, b in zip(both(), first):
        assert np.array_equal(a, b)
    change(module)
    moved = [np.allclose(b, 2.5 * a, rtol=1e-5) for a, b in zip(first, both())]
    assert any(moved), "nothing changed: the test shows nothing"


@pytest.mark.parametrize(
    "read",
    [
        lambda self: self.array,
        lambda self: np.sqrt(self.array[0]),
        lambda self: self.array.max(axis=0) * self.small,
        lambda self: np.concatenate([self.array[:1], self.array[1:]]) * self.zero,
        lambda self: self.array.astype(np.float64).astype(np.float32),
    ],
)
def test_what_a_rule_computes_of_arrays_that_its_module_holds_is_compiled(read):
    net = Sequential(forward(read)(name="m"), name="net").evalMode()
    x = np.ones((3, 40), np.float32)
    program = net.compile([x.shape])
    for n in (1.0, 3.0):
        for array in (net["m"].array, net["m"].small, net["m"].zero):
            array[...] = n
        assert np.allclose(program.run(x), net(x), rtol=1e-5)
        assert "rule" not in {call.kind.name for call in program.executable.schedule.calls}


def test_equal_arrays_of_two_modules_are_told_apart():
    cls = forward(lambda self: self.small)
    net = Sequential(cls(name="a"), cls(name="b"), name="net").evalMode()
    x = np.ones((3, 40), np.float32)
    program = net.compile([x.shape])
    for name, wanted in [("a", 10), ("b", 25)]:
        program.run(x)
        net[name].small.fill(5)
        assert np.all(program.run(x) == wanted)


class ByItem(Rule):
    def updateData(self, x):
        self.array[0, 0] = 3
        return x * self.array


class ByView(Rule):
    def updateData(self, x):
        self.array[0][1:] = 3
        return x * self.array


class ByOut(Rule):
    def updateData(self, x):
        return x * np.add(self.array, 1, out=self.array)


@pytest.mark.parametrize("cls", [ByItem, ByView, ByOut])
def test_a_rule_that_writes_to_an_array_that_its_module_holds_runs_as_it_is(cls):
    net, other = [Sequential(cls(name="m"), name="net").evalMode() for _ in range(2)]
    x = np.ones((3, 40), np.float32)
    program = net.compile([x.shape])
    for _ in range(3):
        assert np.array_equal(program.run(x), other(x))
    assert np.array_equal(net["m"].array, other["m"].array)


def test_an_array_that_a_module_gives_is_copied():
    class Table(Rule):
        def updateData(self, x):
            return self.array

    net = Sequential(Table(name="m"), name="net").evalMode()
    program, x = net.compile([(3, 40)]), np.ones((3, 40), np.float32)
    for copy in (True, False):
        program.run(x, copy=copy).fill(9)
        assert np.all(net["m"].array == 2) and np.all(program.run(x) == 2)


def test_a_rule_that_reads_constants_alone_is_compiled():
    class Plain(Rule):
        def updateData(self, x, W):
            return np.tanh(x) * W * self.number * SCALE * self.amount * self.items[0] * SIZES[1]

        def updateGrad(self, grad, x, W, y):
            return grad * W, (grad * x).sum(axis=0)

    net = Sequential(Plain(name="m"), name="net")
    program = net.compile([(3, 40)], train=False)
    x = np.ones((3, 40), np.float32)
    assert np.allclose(program.run(x), net(x), rtol=1e-5)
    assert "rule" not in {call.kind.name for call in program.executable.schedule.calls}
