"""Fusion: how often a step passes over its activations, and that groups which do not fit together stay as they are."""

import numpy as np
import pytest
from natively import needsNative
from texts import gathered, onPaper

from puregraph.compile import pipeline
from puregraph.compile.passes import fusion
from puregraph.compile.passes.fusion import Fuser
from puregraph.compile.passes.group import Group
from puregraph.compile.passes.nestlines import CPU
from puregraph.compile.program import Program
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import Add, Constant, Dequantize, Gelu, LayerNorm, Linear, Quantize, Weight
from puregraph.modules.costs import MSE
from puregraph.optimizers import SGD


def passesOver(shape, net, **options):
    """How many of the arrays that a program's launches read or write have an activation's size."""
    with onPaper(True):
        launches = gathered(net, [shape], **options).launches
    slots = [what for each in launches for kind, what in each.slots if kind == "pointer"]
    return sum(what.size == np.prod(shape) for what in slots)


def between(*modules):
    """Modules between two products, which read and write the activations too."""
    return Sequential(Linear(256, 256, useBias=False), *modules, Linear(256, 256, useBias=False))


def test_a_layer_normalisation_reads_once_forward_and_two_operands_backward():
    assert passesOver((4096, 256), between(LayerNorm(256)), train=False) == 2
    assert passesOver((4096, 256), between(LayerNorm(256)), train=True) == 2 + 3


def chains(count):
    """The product of two sums of so many inputs each."""
    nodes = [Input(name=f"x{i}").node() for i in range(2 * count)]
    sums = []
    for part in (nodes[:count], nodes[count:]):
        total = part[0]
        for node in part[1:]:
            total = total + node
        sums.append(total)
    return Graph(nodes, sums[0] * sums[1])


def groupsOf(net, shapes):
    """The groups of the forward pass of a net."""
    return [step for step in Fuser(pipeline.schedule(net, shapes).calls, CPU).run() if isinstance(step, Group)]


def test_open_groups_over_one_space_become_one():
    (group,) = groupsOf(chains(5), [(3, 4)] * 10)
    assert len(group.loads) == 10 and len(group.calls) == 9


@needsNative
def test_a_tail_that_is_summed_besides_stays_the_epilogue_of_its_product():
    x, bias = Input(name="x").node(), Weight((64,), name="bias").node()
    h = Gelu(name="gelu")(Add(name="sum").node(bias, Linear(32, 64, useBias=False, name="below")(x)))
    net = Graph(x, Linear(64, 32, name="above")(h))
    step = net.compile([(16, 32), (16, 32)], cost=MSE(), optimizer=SGD(0.1))
    table = str(step.table())
    (row,) = [row for row in table.splitlines() if "grad:graph.gelu" in row]
    assert " gemm " in row, table


@needsNative
@pytest.mark.parametrize("count", [5, 12, 14])
def test_open_groups_that_do_not_fit_into_one_stay_as_they_were(count, rng):
    net, xs = chains(count), [rng.standard_normal((3, 40), np.float32) for _ in range(2 * count)]
    groups = groupsOf(net, [x.shape for x in xs])
    assert (len(groups) == 1) == (4 * count <= fusion.MAX_GROUP_OPERANDS)
    assert sum(len(group.calls) for group in groups) == 2 * count - 1
    assert np.array_equal(Program(net, [x.shape for x in xs]).run(*xs), net(*xs))


@needsNative
def test_whole_floats_are_stored_as_bytes_by_the_group_that_computes_them():
    """Quantize, Dequantize, Quantize: one pass over memory, with numpy's bytes, also of what leaves their range."""
    x = np.concatenate([np.arange(-300.0, 300, 0.25), [np.inf, -np.inf, 1e30, -1e30, 0.0, -0.0]]).astype(np.float32)
    data = Input(x.shape, "float32", name="x").node()
    known = [Constant(value).node() for value in (np.float32(1), np.uint8(3), np.float32(2), np.int8(-7))]
    bytesOf = Quantize("uint8").node(data, *known[:2])
    others = Quantize("int8").node(Dequantize().node(bytesOf, *known[:2]), *known[2:])
    net = Graph(data, [bytesOf, others])
    program = net.compile(x.shape, train=False)
    assert sum(call.kind.isNative for call in program.plan.schedule.calls) == 1
    for y, expected in zip(program.run(x), net(x)):
        assert y.dtype == expected.dtype
        np.testing.assert_array_equal(y, expected)
