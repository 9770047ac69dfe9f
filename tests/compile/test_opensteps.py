"""Open steps: programs for new sizes are made from one step with open sizes, and compute the same bits."""

import operator
import sys
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
from natively import needsNative, unverified

import puregraph as pg
from puregraph import models
from puregraph.compile import Programs
from puregraph.compile.memory.arena import BufferOrder, arranged, inUse
from puregraph.compile.memory.planner import Buffer
from puregraph.compile.opensteps import OpenSteps
from puregraph.core.opensize import (
    ClosedStepError,
    OpenSize,
    SizeTape,
    decided,
    largest,
    numberIn,
    sized,
    smallest,
    unchanging,
)
from puregraph.core.variants import Variants
from puregraph.ops.ir.value import Value
from puregraph.ops.ir.views import ArrayView, viewed

pytestmark = [needsNative, unverified]


@pytest.fixture
def counts(monkeypatch):
    """How many programs were made from open steps, and how many were compiled for their own sizes."""
    made, original = Counter(), OpenSteps.schedule

    def schedule(self, program):
        result = original(self, program)
        made["own" if result is None else "open"] += 1
        return result

    monkeypatch.setattr(OpenSteps, "schedule", schedule)
    return made


@contextmanager
def closed():
    """Every program is compiled for its own sizes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenSteps, "schedule", lambda self, program: None)
        yield


def mlp():
    return pg.Sequential(pg.Linear(12, 24), pg.Relu(), pg.Linear(24, 5)), (12,), 5


def convolutions():
    first = pg.Conv2D(3, 8, 3, pad=1), pg.BatchNorm(8), pg.Relu(), pg.MaxPool2D()
    return pg.Sequential(*first, pg.Conv2D(8, 16, 3), pg.Relu(), pg.Flatten(), pg.Linear(144, 7)), (3, 10, 10), 7


def pointwise():
    layers = pg.Conv2D(6, 6, 3, pad=1, groups=6), pg.BatchNorm(6), pg.Relu(), pg.Conv2D(6, 24, 1), pg.Relu()
    return pg.Sequential(*layers, pg.Flatten(), pg.Linear(720, 3)), (6, 5, 6), 3


def normalised():
    return pg.Sequential(pg.Linear(20, 32), pg.LayerNorm(32), pg.Dropout(0.2), pg.Linear(32, 4)), (20,), 4


def recurrent():
    return pg.Sequential(pg.LSTM(6, 16, outputs="h"), pg.Linear(16, 3)), (9, 6), 3


NETS = (mlp, convolutions, pointwise, normalised, recurrent)
SIZES = [24, 31, 25, 8, 40, 17, 200, 33, 64, 5, 1, 72]


def trained(make, optimizer):
    """Parameters and states after a step with each size."""
    pg.seed(0)
    (net, shape, classes), rng = make(), np.random.default_rng(0)
    trainer = pg.Trainer(net, pg.CrossEntropy(), optimizer, shuffle=False, progress=None)
    for n in SIZES:
        trainer.train([(rng.standard_normal((n, *shape), np.float32), rng.integers(0, classes, n))])
    return [np.array(stored.data) for stored in (*net.params.values(), *net.states.values())]


@pytest.mark.parametrize("make", NETS, ids=lambda make: make.__name__)
def test_training_with_new_sizes_computes_the_bits_of_programs_for_each_size(make, counts):
    given = trained(make, pg.Adam(0.01))
    with closed():
        wanted = trained(make, pg.Adam(0.01))
    assert all(map(np.array_equal, given, wanted))
    assert counts["open"] >= 6, counts


def predicted(shapes):
    """The outputs of a GPT for texts of some (batch, length)."""
    pg.seed(0)
    programs = Programs(models.gpt(17, 32, 2, 4, 64).evalMode())
    rng = np.random.default_rng(1)
    batches = [rng.integers(0, 17, shape) for shape in shapes]
    return [programs.get([x], isAlways=True).run(x) for x in batches]


def test_batches_and_lengths_are_open_at_once(counts):
    shapes = [(4, 9), (5, 9), (6, 13), (9, 7), (11, 23), (8, 20), (3, 31), (3, 31)]
    given = predicted(shapes)
    with closed():
        wanted = predicted(shapes)
    for a, b in zip(given, wanted):
        np.testing.assert_array_equal(a, b)
    assert counts["open"] >= 3, counts


def test_what_a_step_was_made_from_may_change(counts):
    net = pg.Sequential(pg.Linear(3, 4), pg.Relu()).evalMode()
    programs = Programs(net)
    for n in (5, 6, 7):
        programs.get([np.ones((n, 3), "f4")])
    assert counts == {"own": 1, "open": 2}
    net["linear"].W.data = np.full((3, 4), 2, "f4")
    net["linear"].b.data[...] = 1
    for n in (8, 5):
        x = np.ones((n, 3), "f4")
        np.testing.assert_array_equal(programs.get([x]).run(x), np.full((n, 4), 7, "f4"))
    net["relu"].slope = 0.5
    x = -np.ones((9, 3), "f4")
    np.testing.assert_array_equal(programs.get([x]).run(x), net(x))


def openSizesIn(what, known):
    """The open sizes that can be reached from an object."""
    if id(what) in known:
        return []
    known[id(what)] = what
    if type(what) is OpenSize:
        return [what]
    if isinstance(what, dict):
        return [size for part in what.values() for size in openSizesIn(part, known)]
    if isinstance(what, (list, tuple)):
        return [size for part in what for size in openSizesIn(part, known)]
    return []


def test_nothing_is_open_in_a_program(counts):
    programs = Programs(convolutions()[0].evalMode())
    for n in (20, 31, 44):
        programs.get([np.ones((n, 3, 10, 10), "f4")])
    assert counts["open"] == 2
    for program in programs.kept.values():
        executable = program.executable
        schedule, known = executable.schedule, {}
        values = [v for call in schedule.calls for v in (*call.values(), *call.outs) if v is not None]
        parts = [(v.shape, v.strides, v.offset, v.size) for v in (*values, *schedule.inputs, *schedule.outputs)]
        parts += [(w.slots, w.tasks) for s in executable.segments for step in s.steps for w in step]
        assert not openSizesIn(parts, known)


def test_a_table_has_the_sizes_of_its_program(counts):
    programs = Programs(pg.Sequential(pg.Linear(12, 24), pg.Relu()).evalMode())
    for n in (20, 31, 44):
        program = programs.get([np.ones((n, 12), "f4")])
    table = program.table()
    assert "44" in table and "31" not in table and counts["open"] == 2
    assert table == programs.graph.compile((44, 12), train=False).table()


def test_many_sizes_take_the_memory_of_the_largest(monkeypatch):
    module = sys.modules["puregraph.compile.cache"]
    monkeypatch.setattr(module, "MIN_KEPT_BYTES", 1 << 20)
    monkeypatch.setattr(module, "memoryBytes", lambda: 0)
    programs = Programs(mlp()[0].evalMode())
    for n in np.random.default_rng(0).permutation(np.arange(40, 440)):
        x = np.ones((n, 12), "f4")
        assert programs.get([x]).run(x).shape == (n, 5)
    kept = list(programs.kept.values())
    assert len(kept) < 100 and len({id(program.workspace.array) for program in kept}) == 1


def looked(sizes):
    """The table of an embedding after a step with each number of rows."""
    pg.seed(0)
    net, rng = pg.Sequential(pg.Embedder(400, 6), pg.Linear(6, 3)), np.random.default_rng(0)
    trainer = pg.Trainer(net, pg.CrossEntropy(), pg.SGD(0.1), shuffle=False, progress=None)
    for n in sizes:
        trainer.train([(rng.permutation(400)[:n], rng.integers(0, 3, n))])
    return np.array(net["embedder"].W.data)


def test_a_kernel_has_scratch_memory_for_the_indices_of_its_program(counts):
    sizes = [24, 31, 390, 5, 17, 200]
    result = looked(sizes)
    with closed():
        wanted = looked(sizes)
    np.testing.assert_array_equal(result, wanted)
    assert counts["open"] >= 4


def test_the_width_of_a_block_of_columns_follows_the_sizes(counts):
    programs, rng = Programs(pg.Sequential(pg.Mean(axis=1)).evalMode()), np.random.default_rng(0)
    for n in (20, 31, 150, 70, 9, 64):
        x = rng.standard_normal((4, 25, n), np.float32)
        np.testing.assert_allclose(programs.get([x], isAlways=True).run(x), x.mean(1), rtol=0, atol=1e-6)
    assert counts == {"own": 1, "open": 5}
    assert all(program.isOpened for program in [*programs.kept.values()][1:])


@pytest.mark.parametrize("make", [mlp, convolutions, normalised], ids=lambda make: make.__name__)
def test_one_step_serves_nearly_all_sizes(make, counts):
    (net, shape, _), rng = make(), np.random.default_rng(0)
    programs = Programs(net.evalMode())
    for n in [33, *range(2, 60), 64, 100, 101, 128, 200, 256, 331, 1]:
        programs.get([rng.standard_normal((n, *shape), np.float32)], isAlways=True)
    (steps,) = programs.openSteps.values()
    assert len(steps.steps) <= 3 and counts["own"] <= 2, counts


def test_pieces_around_a_size_that_depends_on_the_data_are_open(counts):
    x, mask = pg.Input(name="x").node(), pg.Input(name="mask").node()
    rows = pg.Compress()(pg.Tanh()(pg.Linear(3, 4)(x)), mask)
    net = pg.Graph([x, mask], pg.Linear(6, 2)(pg.Relu()(pg.Linear(4, 6)(rows)))).evalMode()
    programs, rng = Programs(net), np.random.default_rng(0)
    for n in (40, 33, 57, 21, 64, 12):
        data = [rng.standard_normal((64, 3), np.float32), np.arange(64) < n]
        program = programs.get(data, isAlways=True)
        np.testing.assert_allclose(program.run(*data), net(data), 1e-5, 1e-6)
    assert program.partitioned is not None and counts["open"] == 5


def test_open_programs_verify_themselves(monkeypatch, counts):
    monkeypatch.setenv("PUREGRAPH_VERIFY", "1")
    programs, rng = Programs(convolutions()[0].evalMode()), np.random.default_rng(0)
    for n in (20, 31, 44):
        x = rng.standard_normal((n, 3, 10, 10), np.float32)
        program = programs.get([x])
        program.run(x)
    assert counts["open"] == 2
    assert all(step.kind.isNative or step.kind.isView for step in program.executable.schedule.calls)


# Sizes ----------------------------------------------------------------------------------------------------------------


def test_a_tape_computes_expressions_for_other_symbols():
    tape = SizeTape([10, 7])
    n, m = tape.symbols
    assert 0 * n == 0 and n * 1 is n and n + 0 is n and m // 1 is m
    results = [n * 4 + 1, (n + m) // 3, n % 4, 100 // n, -(-n // 8), smallest(n, 12), largest(n, m, 3)]
    tape.close()
    numbers = tape([20, 9])
    assert [numbers[r.index] for r in results] == [81, 9, 0, 5, 3, 12, 20]


@pytest.mark.parametrize(
    "ask, holds",
    [
        (lambda n: n > 5, lambda n: n > 5),
        (lambda n: 3 <= n, lambda n: n >= 3),
        (lambda n: n == 10, lambda n: n == 10),
        (lambda n: n in (1, 2), lambda n: n not in (1, 2)),
        (lambda n: range(n), lambda n: n == 10),
        (lambda n: f"{n}", lambda n: n == 10),
        (lambda n: np.empty(n), lambda n: n == 10),
        (lambda n: float(n), lambda n: n == 10),
        (lambda n: max(n, 8), lambda n: n >= 8),
        (lambda n: sorted([n, 4]), lambda n: n > 4),
        (lambda n: bool(n), lambda n: n != 0),
        (lambda n: [0] * n, lambda n: n == 10),
        (lambda n: 1 << n, lambda n: n == 10),
    ],
    ids=range(13),
)
def test_a_step_holds_for_the_symbols_that_answer_alike(ask, holds):
    tape = SizeTape([10])
    ask(tape.symbols[0])
    tape.close()
    assert [n for n in range(1, 25) if tape([n]) is not None] == [n for n in range(1, 25) if holds(n)]


def test_decisions_are_taken_again():
    parts = decided(lambda n, low: (min(4, n // low), "few" if n < 20 else "many"))
    kind = unchanging(lambda n: n % 2)
    tape = SizeTape([10])
    (n,) = tape.symbols
    count, text = parts(n, 3)
    assert kind(n) == 0 and text == "few"
    total = count * 2
    tape.close()
    assert [n for n in range(1, 30) if tape([n]) is not None] == list(range(2, 20, 2))
    assert tape([6])[total.index] == 4


def test_texts_keep_their_sizes():
    tape = SizeTape([10])
    text = sized("product {}x{}", tape.symbols[0], 3)
    tape.close()
    assert text == "product 10x3" and not tape.questions and text.sizes == (tape.symbols[0], 3)


def test_a_closed_tape_answers_what_was_asked_before_and_nothing_new():
    tape = SizeTape([10])
    (n,) = tape.symbols
    assert n * 2 > 5
    tape.close()
    assert n * 2 > 5
    for ask in (lambda: n > 7, lambda: n + 3, lambda: f"{n}", lambda: decided(lambda n: n)(n)):
        with pytest.raises(ClosedStepError):
            ask()


def test_a_size_that_was_needed_as_a_number_is_a_number_from_then_on():
    tape = SizeTape([10, 7])
    n, m = tape.symbols
    assert range(n) == range(10)
    asked = len(tape.questions)
    results = n + 3, n * n > 50, decided(lambda n: n // 3)(n), 2 - n
    tape.close()
    assert results == (13, True, 3, -8) and type(results[0]) is int and len(tape.questions) == asked
    assert n - 4 == 6 and f"{n + 1}" == "11" and tape([10, 9]) and not tape([11, 7])
    with pytest.raises(ClosedStepError):
        n + m


def test_a_step_that_is_refused_leaves_the_others():
    programs = Programs(mlp()[0].evalMode())
    for n in (20, 31, 3):
        programs.get([np.ones((n, 12), "f4")], isAlways=True)
    (steps,) = programs.openSteps.values()
    (kept, *_), (other, *_) = steps.steps
    steps.refuse(other)
    assert [step for step, *_ in steps.steps] == [kept] and steps.failures == 1


def test_two_tapes_do_not_mix():
    (n,), (m,) = SizeTape([10]).symbols, SizeTape([20]).symbols
    for ask in (lambda: n + m, lambda: n < m, lambda: n == m):
        with pytest.raises(ClosedStepError):
            ask()


def test_a_rule_with_variants_asks_nothing_of_its_step():
    traced = []

    def rule(n, k):
        traced.append(n)
        return ["few", n] if n < 4 else ["many", n * k, n + 1]

    tape = SizeTape([10])
    variants = Variants(rule, (tape.symbols[0] * 2, 3))
    for n in (10, 20, 1, 8, 1, 9):
        variant, numbers = variants([2 * n])
        result = [numberIn(part, numbers) for part in variant.result]
        assert result == (["few", 2] if n == 1 else ["many", 6 * n, 2 * n + 1])
    assert len(traced) == 2 and not tape.questions


def test_a_rule_keeps_few_variants():
    (n,) = SizeTape([10]).symbols
    variants = Variants(lambda n: [0] * n, (n,))
    for size in range(1, 50):
        assert len(variants([size])[0].result) == size
    assert len(variants.kept) == 16


# Views ----------------------------------------------------------------------------------------------------------------


def compared(function, x, *arguments):
    """Assert that a view is what numpy makes, error or not."""
    try:
        wanted = function(x, *arguments)
    except (ValueError, IndexError):
        with pytest.raises((ValueError, IndexError)):
            viewed(function, ArrayView(x.shape, x.strides, x.itemsize), *arguments)
        return
    view = viewed(function, ArrayView(x.shape, x.strides, x.itemsize), *arguments)
    start = wanted.__array_interface__["data"][0] - x.__array_interface__["data"][0]
    assert (view.shape, view.strides) == (wanted.shape, wanted.strides), (function, x.shape, arguments)
    assert view.offset == start or not wanted.size


def randomKey(rng, rank):
    def end():
        return None if rng.random() < 0.5 else int(rng.integers(-7, 8))

    kinds = [None, int(rng.integers(-3, 4)), slice(end(), end(), int(rng.choice([1, 2, 3, -1, -2])))]
    return (*[kinds[rng.integers(0, 3)] for _ in range(rng.integers(0, rank + 1))], Ellipsis)


def test_views_are_those_of_numpy(rng):
    for _ in range(1500):
        rank = int(rng.integers(1, 5))
        x = np.zeros(rng.choice([0, 1, 1, 2, 3, 5], rank), "f4").transpose(rng.permutation(rank))
        compared(operator.getitem, x, randomKey(rng, rank))
        compared(np.transpose, x, tuple(rng.permutation(rank).tolist()))
        compared(np.expand_dims, x, int(rng.integers(0, rank + 1)))
        compared(np.flip, x, int(rng.integers(0, rank)))
        compared(np.squeeze, x)
        compared(np.broadcast_to, x, (2, *[4 if n == 1 and rng.random() < 0.5 else n for n in x.shape]))
        compared(np.lib.stride_tricks.sliding_window_view, x, int(rng.integers(1, 4)), int(rng.integers(0, rank)))
        if rank > 1:
            compared(np.diagonal, x, int(rng.integers(-3, 4)), *rng.permutation(rank)[:2].tolist())


# Memory ---------------------------------------------------------------------------------------------------------------


def test_buffers_of_other_sizes_are_arranged_alike(rng):
    alike = 0
    for _ in range(30):
        count = int(rng.integers(1, 120))
        births = np.sort(rng.integers(0, count, count))
        deaths = births + rng.integers(0, 12, count)
        fixed, each = rng.integers(1, 9, count), rng.integers(0, 40, count)

        def buffers(n, births=births, deaths=deaths, fixed=fixed, each=each):
            value = Value(1, (1,), np.dtype("f4"), (4,))
            made = [Buffer(value, int(birth), int(death)) for birth, death in zip(births, deaths)]
            for buffer, a, k in zip(made, fixed, each):
                buffer.size = 64 * int(a + k * n)
            return made

        first = buffers(10)
        arranged(first)
        order = BufferOrder(first)
        for n in (3, 11, 64):
            again = buffers(n)
            total = order.arrange(again)
            if total is None:
                continue
            alike += 1
            assert total <= 1.01 * inUse(again)
            for i, a in enumerate(again):
                for b in again[:i]:
                    isApart = a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
                    assert isApart or a.death < b.birth or b.death < a.birth
    assert alike > 20
    assert BufferOrder(buffers(10)).arrange(buffers(10)[1:]) is None
