"""Compiling grows with the graph, and no faster: what is alike is read, shaped and compiled once."""

import copy
import gc
import sys
from functools import partial

import numpy as np
import pytest
from natively import needsNative

from puregraph import MSE, BatchNorm, Dropout, Graph, Input, LayerNorm, Linear, MomentumSGD, Relu, Sequential, Tanh
from puregraph.compile import Program
from puregraph.compile.trace.graphtracer import GraphTracer
from puregraph.core.base import uncollected
from puregraph.modules import Elu, Slice, Split, Sub, Transpose
from puregraph.ops.kernel import useFast

modes = pytest.mark.parametrize("fast", [False, pytest.param(True, marks=needsNative)], ids=["numpy", "native"])


def chain(blocks):
    return Sequential(*[m for _ in range(blocks) for m in (Linear(8, 8), Relu(), LayerNorm(8), Tanh())])


def compiled(net, size=8):
    return net.compile([(4, size), (4, size)], cost=MSE(), optimizer=MomentumSGD(0.1))


def callsTo(work):
    """How many functions of Python are called meanwhile."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@modes
def test_twice_the_nodes_take_twice_the_calls(fast):
    with useFast(fast):
        compiled(chain(2))
        small, large = (callsTo(partial(compiled, net)) for net in (chain(24), chain(48)))
    assert 1.5 * small < large < 2.2 * small


def reads(monkeypatch, net):
    """How many rules are run to read them, when a net is compiled."""
    count = []
    read = GraphTracer.read
    monkeypatch.setattr(GraphTracer, "read", lambda self, *given: count.append(1) or read(self, *given))
    compiled(net)
    monkeypatch.undo()
    return len(count)


def test_equal_modules_are_read_once(monkeypatch):
    assert reads(monkeypatch, chain(30)) == reads(monkeypatch, chain(3))


def agree(net, *data, fast=False):
    """Compare two compiled runs with those of a copy: outputs, gradients and states."""
    dtype = "float32" if fast else "float64"
    net.calcMode(dtype)
    data = [x.astype(dtype) for x in data]
    twin = copy.deepcopy(net)
    with useFast(fast):
        program = Program(net, [x.shape for x in data], [x.dtype for x in data], grads=[True] * len(net.outputs))
        for _ in range(2):
            wanted = listed(twin(list(data)))
            grads = [np.cos(y) for y in wanted]
            twin.backward(grads if len(grads) > 1 else grads[0])
            pairs = [*zip(listed(program.run(*data, *grads)), wanted, strict=True), (program.grad, twin.grad)]
            pairs += [(p.grad, twin.params[path].grad) for path, p in net.params.items()]
            pairs += [(s.data, twin.states[path].data) for path, s in net.states.items()]
            for a, b in pairs:
                assert (a is None) == (b is None)
                if a is not None:
                    np.testing.assert_allclose(a, b, *((1e-4, 1e-5) if fast else (0, 0)))


def listed(value):
    return value if isinstance(value, list) else [value]


def test_modules_that_differ_in_one_number_are_told_apart(rng):
    twins = [Elu(0.5), Elu(1.0), Elu(0.5), LayerNorm(6), LayerNorm(6, epsilon=0.1), LayerNorm(6), Dropout(0.2)]
    agree(Sequential(*twins, Dropout(0.4), Dropout(0.2)), rng.standard_normal((3, 6)))


def test_a_module_in_another_mode_is_told_apart(rng):
    net = Sequential(BatchNorm(6), BatchNorm(6), BatchNorm(6), Dropout(0.3), Dropout(0.3))
    net[1].evalMode(), net[3].evalMode()
    agree(net, rng.standard_normal((5, 6)))


def test_one_value_given_twice_is_told_from_two(rng):
    x = Input(name="x").node()
    y, z = Tanh().node(x), Relu().node(x)
    agree(Graph(x, [Sub().node(y, y), Sub().node(y, z), Sub().node(z, y), Sub().node(z, z)]), rng.standard_normal(4))


@modes
def test_views_of_other_places_are_repeated_there(fast, rng):
    x = Input(name="x").node()
    parts = Split(1, (3, 3, 3), name="parts").node(x)
    ends = [Tanh().node(Slice((slice(1, None, 2),)).node(Transpose((1, 0)).node((parts, i)))) for i in (2, 0, 1)]
    more = [Relu().node(Slice((slice(None), slice(1, 3))).node((parts, i))) for i in (0, 1)]
    agree(Graph(x, [*ends, *more]), rng.standard_normal((4, 9)), fast=fast)


def test_a_state_that_two_nodes_share_changes_twice(rng):
    x, norm = Input(name="x").node(), BatchNorm(5)
    agree(Graph(x, [norm.node(norm.node(x)), BatchNorm(5).node(x)]), rng.standard_normal((6, 5)))


def test_objects_that_others_froze_stay_frozen_and_are_counted_once(monkeypatch):
    """`gc.get_freeze_count` walks through all of them: a server that froze millions would wait for it at each program."""
    counts = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counts.append(1) or 4_000_000)
    monkeypatch.setattr(gc, "unfreeze", lambda: pytest.fail("objects of others are no longer frozen"))
    monkeypatch.setattr(uncollected, "FROZEN", {"by others": False})
    for blocks in (1, 2, 3):
        compiled(chain(blocks))
    assert len(counts) == 1


def test_objects_made_without_collection_count_as_old_ones(monkeypatch):
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    monkeypatch.setattr(uncollected, "FROZEN", {"by others": False})
    calls = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: calls.append("unfreeze"))
    compiled(chain(1))
    compiled(chain(2))
    assert calls and calls == ["freeze", "unfreeze"] * (len(calls) // 2)
