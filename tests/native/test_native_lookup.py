"""Native gathers, scatters, picks and largest numbers are those of numpy, to the last bit."""

import copy

import numpy as np
import pytest
from natively import needsNative, run

import puregraph as pg
from puregraph.compile.trace.withcost import withCost
from puregraph.ops.gather import native as gather
from puregraph.ops.gather import reference as scatter
from puregraph.ops.gather.scatterfused import scatterAddFused
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec
from puregraph.optimizers import SGD, AdamW, MomentumSGD

pytestmark = needsNative


def none():
    return np.zeros(1, dtype=np.int64)


@pytest.mark.parametrize("count, rows, width", [(1, 1, 1), (70, 9, 37), (500, 40, 64), (33, 1000, 130), (5, 7, 1)])
def test_gather_reads_rows_and_zero_for_none(count, rows, width):
    rng = np.random.default_rng(1)
    table = rng.standard_normal((rows, width + 3)).astype(np.float32)[:, :width]
    index, fault = rng.integers(-1, rows, count), none()
    y = np.full((count, width), 7, dtype=np.float32)
    run(gather.gather(table, table.strides[0] // 4, rows, index, count, y, width, fault), 3)
    assert np.array_equal(y, scatter.gather.reference(table, index)) and fault[0] == 0


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "count, rows, width", [(1, 1, 1), (700, 9, 37), (500, 40, 64), (33, 1000, 130), (50, 7, 1), (300, 20, 384)]
)
def test_scatter_adds_in_order(count, rows, width, threads):
    rng = np.random.default_rng(2)
    grad, index, fault = rng.standard_normal((count, width)).astype(np.float32), rng.integers(-1, rows, count), none()
    table = np.full((rows, width), 7, dtype=np.float32)
    run(gather.scatterAdd(grad, index, count, table, rows, width, fault), threads)
    assert np.array_equal(table, scatter.scatterAdd.reference(grad, index, rows)) and fault[0] == 0


@pytest.mark.parametrize("shape", [(5, 3), (64, 10), (3, 4, 5, 6), (1, 1), (200, 129)])
def test_classes_are_taken_and_put(shape):
    rng = np.random.default_rng(3)
    samples, classes, inner = shape[0], shape[1], int(np.prod(shape[2:]))
    x, labels = rng.standard_normal(shape).astype(np.float32), rng.integers(-1, classes, (shape[0], *shape[2:]))
    y, dx, fault = np.full(labels.shape, 7, dtype=np.float32), np.full(shape, 7, dtype=np.float32), none()
    run(gather.takeClass(x, labels, y, samples, classes, inner, fault), 2)
    assert np.array_equal(y, scatter.takeClass.reference(x, labels))
    run(gather.putClass(y, labels, dx, samples, classes, inner, fault), 2)
    assert np.array_equal(dx, scatter.putClass.reference(y, labels, classes)) and fault[0] == 0


@pytest.mark.parametrize("wrong", [-2, 5, 2**40, -(2**62)])
def test_an_index_out_of_range_is_reported_and_harmless(wrong):
    table, index = np.ones((5, 8), dtype=np.float32), np.array([0, wrong, 4])
    y, grown = np.full((3, 8), 7, dtype=np.float32), np.full((5, 8), 7, dtype=np.float32)
    picked, put = np.full(3, 7, dtype=np.float32), np.full((3, 5), 7, dtype=np.float32)
    wide = np.ones((3, 5), dtype=np.float32)
    for works in (
        lambda fault: gather.gather(table, 8, 5, index, 3, y, 8, fault),
        lambda fault: gather.scatterAdd(y, index, 3, grown, 5, 8, fault),
        lambda fault: gather.takeClass(wide, index, picked, 3, 5, 1, fault),
        lambda fault: gather.putClass(picked, index, put, 3, 5, 1, fault),
    ):
        fault = none()
        run(works(fault))
        assert fault[0] == 1
    assert y.tolist() == [[1] * 8, [0] * 8, [1] * 8] and grown.sum() == 16 and put.sum() == 2
    assert picked.tolist() == [1, 0, 1]


class Kept(EpilogueSpec):
    """Keeps sums as they come, and their double."""

    key = "kept"

    def __init__(self, y, double):
        super().__init__(y, y.shape[1])
        self.double = double

    @property
    def slots(self):
        return {**super().slots, "double": self.double}

    def open(self, code):
        super().open(code)
        self.twice = code.pointer("double", "f32")

    def put(self, code, row, column, sums, mask=None):
        super().put(code, row, column, sums, mask)
        self.twice.store(row * self.rowStride + column, sums * 2.0, mask)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "count, rows, width",
    [
        (1, 1, 1),
        (700, 9, 37),
        (500, 40, 64),
        (33, 1000, 130),
        (50, 7, 1),
        (256, 10000, 16),
        (90, 600, 1100),
        (9, 3, 512),
    ],
)
def test_what_scatter_adds_is_handed_on_row_by_row(count, rows, width, threads):
    rng = np.random.default_rng(2)
    grad = rng.standard_normal((count, width + 5)).astype(np.float32)[:, :width]
    indices, fault = rng.integers(-1, rows, (count, 3)), none()
    index = indices[:, 1]
    y, double = (np.full((rows, width), 7, dtype=np.float32) for _ in range(2))
    run(scatterAddFused(grad, width + 5, index, 3, count, Kept(y, double), rows, width, fault), threads)
    wanted = scatter.scatterAdd.reference(grad.copy(), index.copy(), rows)
    assert np.array_equal(y, wanted) and np.array_equal(double, 2 * wanted) and fault[0] == 0


def test_rows_that_are_out_of_range_are_reported_and_left_out():
    grad, index, fault = np.ones((3, 8), dtype=np.float32), np.array([0, 9, -3]), none()
    y, double = (np.full((5, 8), 7, dtype=np.float32) for _ in range(2))
    run(scatterAddFused(grad, 8, index, 1, 3, Kept(y, double), 5, 8, fault))
    assert fault[0] == 1 and y[0].tolist() == [1] * 8 and not y[1:].any()


@pytest.mark.parametrize("optimizer", [SGD(0.1), MomentumSGD(0.1), AdamW(0.01), MomentumSGD(0.1, clipNorm=0.1)])
@pytest.mark.parametrize("keepGrads", [False, True])
def test_a_table_is_updated_as_its_gradient_is_made(optimizer, keepGrads):
    optimizer = copy.deepcopy(optimizer)  # it serves one network
    rng = np.random.default_rng(4)
    pg.seed(2)
    words = pg.Input(name="words").node()
    column = pg.Slice((slice(None), slice(0, 2)), name="column").node(words)
    net = pg.Graph(words, pg.Linear(12, 3).node(pg.Flatten().node(pg.Embedder(50, 6, name="table").node(column))))
    twin = copy.deepcopy(net)
    other = copy.deepcopy(optimizer).setupOn(twin)
    task = withCost(twin, pg.CrossEntropy(), 1, 1).trainMode()
    program = net.compile([(20, 4), (20,)], cost=pg.CrossEntropy(), optimizer=optimizer, keepGrads=keepGrads)
    assert all(
        c.kind.name in ("native", "view", "host")
        for c in program.executable.schedule.calls
        if c.origin.phase != "update"
    )
    for _ in range(4):
        x, t = rng.integers(-1, 50, (20, 4)), rng.integers(0, 3, 20)
        loss = program.run(x, t)[0]
        assert task([x, t])[0] == pytest.approx(loss, rel=1e-5)
        task.backward([np.float32(1), None], updGrad=False)
        other.update()
        for path, p in net.params.items():
            np.testing.assert_allclose(p.data, twin.params[path].data, rtol=1e-4, atol=1e-6)
            if keepGrads:
                np.testing.assert_allclose(p.grad, twin.params[path].grad, rtol=1e-4, atol=1e-6)
