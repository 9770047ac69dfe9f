"""Steps of one kind that need not wait for one another are one step, and give what they gave."""

import numpy as np
import pytest
from natively import needsNative, unverified

import puregraph as pg
from puregraph.compile import Program
from puregraph.compile.runtime.concurrent import MAX_PARALLEL_STEPS, overlap
from puregraph.ops.native.threads import pool
from puregraph.ops.native.threads.batch import batched

pytestmark = needsNative


@pytest.fixture(params=[1, 3])
def threads(request):
    before = pool.threads()
    pool.setThreads(request.param)
    yield
    pool.setThreads(before)


def stepsOf(program):
    return [len(step) for segment in program.executable.segments for step in segment.steps]


def tables(count, rows=400, size=12):
    """Rows of several tables side by side."""
    pg.seed(count)
    words = pg.Input(name="words").node()
    found = []
    for i in range(count):
        column = pg.Slice((slice(None), i), name=f"column{i}").node(words)
        found.append(pg.Embedder(rows, size, name=f"table{i}").node(column))
    return pg.Graph(words, pg.Linear(count * size, 2).node(pg.Concat(axis=1).node(found)))


@unverified
@pytest.mark.parametrize("count", [7, MAX_PARALLEL_STEPS + 5])
def test_tables_are_read_and_updated_together(count, threads):
    rng = np.random.default_rng(0)
    net, twin = tables(count), tables(count)
    x, t = rng.integers(-1, 400, (250, count)), rng.integers(0, 2, 250)
    optimizers = pg.MomentumSGD(0.5), pg.MomentumSGD(0.5).setupOn(twin)
    program = net.compile([x.shape, t.shape], cost=pg.CrossEntropy(), optimizer=optimizers[0])
    assert max(stepsOf(program)) == min(count, MAX_PARALLEL_STEPS)
    cost = pg.CrossEntropy()
    for _ in range(3):
        loss = program.run(x, t)[0]
        assert cost(twin(x), t) == pytest.approx(loss, rel=1e-5)
        cost.backward()
        twin.backward(cost.grad[0] if isinstance(cost.grad, (list, tuple)) else cost.grad, updGrad=False)
        optimizers[1].update()
        for path, p in net.params.items():
            np.testing.assert_allclose(p.data, twin.params[path].data, rtol=1e-4, atol=1e-6)


def test_what_depends_on_each_other_is_not_done_together(threads):
    pg.seed(0)
    net = pg.Sequential(*[pg.Linear(40, 40, useBias=False) for _ in range(6)])
    x = np.random.default_rng(0).standard_normal((600, 40)).astype(np.float32)
    program = net.evalMode().compile(x.shape)
    assert set(stepsOf(program)) == {1}
    for _ in range(20):
        np.testing.assert_allclose(program.run(x), net(x), rtol=1e-3, atol=1e-4)


def test_memory_that_is_used_again_keeps_steps_apart(threads):
    """Values that follow one another in the arena are made and read in turn, though none depends on the other."""
    pg.seed(0)
    a = pg.Input(name="x").node()
    sums = None
    for i in range(12):
        part = pg.Relu(name=f"relu{i}").node(pg.Linear(32, 32, name=f"fc{i}").node(a))
        sums = part if sums is None else pg.Add(name=f"sum{i}").node(sums, part)
    net = pg.Graph(a, sums).evalMode()
    x = np.random.default_rng(0).standard_normal((500, 32)).astype(np.float32)
    program = Program(net, [x.shape], ["f4"], poison=True)
    for _ in range(20):
        np.testing.assert_allclose(program.run(x), net(x), rtol=1e-4, atol=1e-5)


def test_ranges_meet_where_they_have_a_byte_in_common():
    assert (
        overlap([(0, 4), (8, 12)], [(11, 20)])
        and not overlap([(0, 4), (8, 12)], [(4, 8), (12, 20)])
        and not overlap([], [(0, 9)])
    )


def test_a_single_step_is_no_bundle():
    assert batched([(3, 4, 5)]) == ((3, 4, 5), None)
    (_, _, tasks), words = batched([(3, 4, 2), (5, 6, 1)])
    assert tasks == 3 and words.tolist() == [[3, 4, 0], [3, 4, 1], [5, 6, 0]]
