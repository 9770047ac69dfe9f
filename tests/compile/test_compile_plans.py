"""The calls and the memory of a program, and the time that compiling takes."""

import copy
import gc
import random
import time
import warnings

import numpy as np
import pytest
from smallsteps import batch, classifier, same
from smallsteps import plain as plain

from puregraph import (
    MSE,
    SGD,
    Adam,
    CrossEntropy,
    Dropout,
    Expand,
    Graph,
    Identity,
    Input,
    Linear,
    Mul,
    Pointwise,
    Relu,
    Reshape,
    Sequential,
    Tanh,
    models,
)
from puregraph.compile import Program, Programs, schedule
from puregraph.compile.memory.arena import arranged, bestFit, inOrder, inUse
from puregraph.compile.memory.planner import ALIGNMENT_BYTES, MemoryPlan
from puregraph.compile.trace.schedule import traceStep
from puregraph.compile.trace.steprequest import StepRequest
from puregraph.core.errors import PuregraphError
from puregraph.modules import Weight

pytestmark = pytest.mark.usefixtures("numpyOnly")


# Calls and memory -----------------------------------------------------------------------------------------------------


def test_equal_calls_are_made_once_and_unneeded_ones_not_at_all():
    x = Input(name="x").node()
    a, b = Tanh(name="a").node(x), Tanh(name="b").node(x)
    net = Graph(x, [a, b])
    full = traceStep(net, [(3,)])
    lean = schedule(net, [(3,)])
    assert len(full.calls) == 2 and len(lean.calls) == 1 and lean.outputs[0] is lean.outputs[1]
    net = classifier()
    assert len(schedule(net, [(8, 4)], None, StepRequest(wanted=[False])).calls) == 0


def test_the_sign_of_an_input_is_read_from_its_relu():
    net = Sequential(Linear(4, 5), Relu(), Linear(5, 2))
    found = schedule(net, [(3, 4)], None, StepRequest((True,)))
    relu = next(c for c in found.calls if "relu" in c.origin.path and c.origin.phase == "forward")
    back = next(c for c in found.calls if c.origin.path == "grad:relu" and c.kind.isElementwise)
    assert relu.outs[0] in back.arguments and relu.arguments[0] not in back.arguments


def test_a_listing_names_nodes_formulas_and_shapes():
    text = str(schedule(classifier(Dropout(0.5)), [(8, 4)], request=StepRequest((True,))))
    for words in (
        "linear  (Linear, forward)",
        "product",
        "relu(x)",
        "grad:dropout  (Gradient, backward)",
        "float64[8, 6]",
    ):
        assert words in text
    assert "gradient %" in text and "<Schedule of Sequential: " in text


class Piece:
    def __init__(self, size, birth, death):
        self.size, self.birth, self.death, self.offset = size, birth, death, -1


@pytest.mark.parametrize("place", [arranged, bestFit, inOrder])
@pytest.mark.parametrize("seed", range(6))
def test_no_two_buffers_in_use_at_one_time_overlap(place, seed):
    rng = random.Random(seed)
    pieces = []
    for _ in range(200):
        birth = rng.randrange(100)
        pieces.append(Piece(64 * rng.randint(1, 50), birth, birth + rng.randrange(30)))
    total = place(pieces)
    start, size, birth, death = (
        np.array([getattr(p, name) for p in pieces]) for name in ("offset", "size", "birth", "death")
    )
    assert (0 <= start).all() and (start + size <= total).all() and not (start % 64).any()
    isBefore = ((start + size)[:, None] <= start) | (death[:, None] < birth)
    assert (isBefore | isBefore.T | np.eye(len(pieces), dtype=bool)).all()
    least = max(sum(p.size for p in pieces if p.birth <= t <= p.death) for t in range(130))
    assert total <= 1.35 * least


def test_other_orders_are_tried_where_memory_would_be_wasted():
    totals = []
    for seed in range(8):
        rng = random.Random(seed)
        births = [rng.randrange(60) for _ in range(80)]
        pieces = [Piece(64 * 2 ** rng.randrange(8), birth, birth + rng.randrange(40)) for birth in births]
        found = arranged(pieces)
        assert found == max(p.offset + p.size for p in pieces) >= inUse(pieces)
        totals.append((found, min(bestFit(sorted(pieces, key=lambda p: (-p.size, p.birth))), inOrder(pieces))))
    assert all(found <= before for found, before in totals) and sum(found < before for found, before in totals) >= 4


@pytest.mark.parametrize(
    ("make", "shape"),
    [(lambda: models.lenet(norm=True), (8, 1, 28, 28)), (lambda: models.cifarResnet(8), (4, 3, 16, 16))],
)
def test_the_arena_is_close_to_what_is_in_use_at_one_time(make, shape, plain):
    program = make().compile([shape, shape[:1]], cost=CrossEntropy(), optimizer=SGD())
    plan = program.plan
    inUse = [0] * (len(plan.schedule.calls) + 2)
    for b in plan.buffers:
        for t in range(b.birth, b.death + 1):
            inUse[t] += b.size
    assert max(inUse) <= program.bytes <= 1.05 * max(inUse)
    assert program.bytes == program.executable.memory.arena.nbytes
    assert program.executable.memory.arena.__array_interface__["data"][0] % ALIGNMENT_BYTES == 0


def test_results_take_over_the_memory_of_what_ends(plain):
    chain = Sequential(*[Pointwise(formula="x * 1.5 + 0.5") for _ in range(10)])
    assert chain.compile((100, 100)).bytes == 100 * 100 * 4
    plan = MemoryPlan(schedule(chain, [(100, 100)]))
    assert len(plan.buffers) == 1 and len(plan.overwritten) == 9


def test_parameters_and_gradients_are_written_where_they_lie(rng):
    net, (x, t) = classifier(), batch(rng)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=Adam())
    assert not program.plan.copies
    arrays = [p.data for p in net.params.values()]
    program.run(x, t)
    assert all(p.data is a for p, a in zip(net.params.values(), arrays, strict=True))


def test_several_shapes_share_parameters_and_one_arena(rng):
    net = classifier(Dropout(0.3))
    twin = copy.deepcopy(net)
    programs = Programs(net)
    for count in (3, 50, 8, 3, 50, 8):
        x = rng.standard_normal((count, 4))
        assert same(programs.get([x]).run(x), twin(x))
    arenas = {id(p.executable.memory.arena) for p in programs.kept.values()}
    assert len(programs.kept) == 3 and len(arenas) == 1


def test_many_shapes_are_compiled_when_they_come_again(rng):
    net = classifier()
    programs = Programs(net)
    found = [programs.get([np.zeros((n, 4))]) for n in range(1, 9)]
    assert [p is not None for p in found] == [True] * 4 + [False] * 4
    assert programs.get([np.zeros((8, 4))]) is not None


def test_a_budget_that_cannot_be_kept_is_refused():
    with pytest.raises(
        PuregraphError, match=r"wanted a step within 1,000 bytes, got down to [\d,]+ by computing cheap"
    ):
        models.lenet().compile([(8, 1, 28, 28), (8,)], cost=CrossEntropy(), budget=1000)


# Cost -----------------------------------------------------------------------------------------------------------------


def chain(count):
    node = first = Input(name="x").node()
    for _ in range(count // 2):
        node = Tanh().node(Linear(4, 4).node(node))
    return Graph(first, node)


def seconds(count):
    net = chain(count)
    for p in net.params.values():
        _ = p.data
    gc.collect()
    start = time.process_time()
    program = net.compile([(3, 4), (3, 4)], cost=MSE(), optimizer=Adam())
    assert program.executable is not None
    return time.process_time() - start


def test_calls_and_memory_grow_with_the_graph():
    small, large = (chain(n).compile([(3, 4), (3, 4)], cost=MSE(), optimizer=Adam()) for n in (500, 1000))
    calls = [len(p.executable.schedule.calls) for p in (small, large)]
    assert 1.9 < calls[1] / calls[0] < 2.1 and 1.9 < large.bytes / small.bytes < 2.1


@pytest.mark.slow
def test_ten_thousand_nodes_compile_in_seconds():
    times = [min(seconds(n) for _ in range(3)) for n in (5000, 10000)]
    assert times[1] < 10 and times[1] < 2.2 * times[0]


def test_nothing_warns_while_compiling():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models.transformer(1, 8, 2).compile((2, 5, 8), train=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("last", [Identity(), Expand((1, 2)), Reshape((2,)), Expand((3, 2))], ids=str)
def test_an_output_that_is_a_parameter_is_what_it_was_before_the_update(dtype, last):
    def results(isCompiled):
        x = Input(name="x").node()
        weight = Weight((1, 2), dtype, name="weight").node()
        net = Graph(x, [last.node(weight), Mul(name="product").node(x, weight)]).trainMode()
        net.params["weight.W"].data = np.ones((1, 2), dtype)
        optimizer, data = SGD(0.5).setupOn(net), np.full((1, 2), 2, dtype)
        grads = [np.ones(shape, dtype) for shape in net.dataShapeFrom((1, 2))]
        program = Program(net, [(1, 2)], [np.dtype(dtype)], grads=(True, True), optimizer=optimizer)
        for _ in range(3):
            if isCompiled:
                yield program.run(data, *grads)
                assert not program.why
            else:
                yield net(data)
                net.backward(grads)
                optimizer.update()

    for got, wanted in zip(results(True), results(False), strict=True):
        for y, expected in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(y, expected)
