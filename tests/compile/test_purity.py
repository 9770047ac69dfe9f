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


class Rule(Module):
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
        self.holder = types.SimpleNamespace(scale=2.0)
        self.number = 2.0
        self.call = functools.partial(doubled, scale=2.0)
        self.inner = Linear(2, 2)
        self.inner.number = 2.0
        self.W = Param((40,), "ones")

    def dataShapeFrom(self, x):
        return x

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
