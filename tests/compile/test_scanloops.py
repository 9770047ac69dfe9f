"""A Scan is one call of a compiled step: its body is recorded once, and native code runs all of its runs."""

import numpy as np
import pytest

import puregraph
from puregraph import (
    LSTM,
    MSE,
    And,
    Cast,
    Constant,
    Conv2D,
    Dropout,
    Graph,
    GroupNorm,
    Identity,
    Input,
    Less,
    Linear,
    Loop,
    Pointwise,
    Scan,
    Sum,
    Tanh,
)
from puregraph.compile.lower import loopworks
from puregraph.ops.native.llvm import jit
from puregraph.ops.recurrent.repeatbody import repeatBody

pytestmark = pytest.mark.skipif(not jit.available(), reason="needs llvmlite")


def inputs(*names):
    return [Input(name=name).node() for name in names]


def lstm(width, size):
    """The cell of an LSTM, with the gates i, f, g, o side by side."""
    c, h, x = inputs("c", "h", "x")
    gates = Linear(size, 4 * size, name="u", useBias=False).node(h) + Linear(width, 4 * size, name="w").node(x)
    i, f, g, o = [gates[:, k * size : (k + 1) * size] for k in range(4)]
    cell = Pointwise(formula="sigmoid(f) * c + sigmoid(i) * tanh(g)", name="cell").node(f, c, i, g)
    out = Pointwise(formula="sigmoid(o) * tanh(c)", name="out").node(o, cell)
    return Graph([c, h, x], [cell, out, out])


def plain(width, size):
    h, x = inputs("h", "x")
    new = Tanh(name="tanh").node(Linear(size, size, name="u").node(h) + Linear(width, size, name="w").node(x))
    return Graph([h, x], [new, new])


def convolutional(width, size):
    """A recurrent cell of maps, with a norm that has reductions."""
    h, x = inputs("h", "x")
    both = Conv2D(size, size, 3, pad=1, name="u").node(h) + Conv2D(width, size, 3, pad=1, name="w").node(x)
    new = Tanh(name="tanh").node(GroupNorm(2, size, name="norm").node(both))
    return Graph([h, x], [new, new])


def netOf(cell, carried, ins=((1, False),), outs=((1, False),), dtype="float32"):
    puregraph.seed(3)
    ends = inputs(*(f"c{i}" for i in range(carried)), *(f"x{i}" for i in range(len(cell.inputs) - carried)))
    node = Scan(cell, carried, list(ins), list(outs), name="scan").node(*ends)
    net = Graph(ends, Identity(name="rows").node((node, carried)))
    return net.calcMode(dtype)


def agree(net, arrays, target, near):
    """Outputs, and gradients of inputs and parameters, compiled and eagerly."""
    wanted = net(*arrays)
    program = net.compile(*[x.shape for x in arrays], dtypes=[x.dtype for x in arrays])
    assert not program.why and "Python" not in program.table() and "numpy" not in program.table()
    np.testing.assert_allclose(program.run(*arrays), wanted, near, near)
    net(*arrays)
    net.backward(target)
    grads, expected = net.grad, {path: p.grad.copy() for path, p in net.params.items()}
    step = net.compile(*[x.shape for x in arrays], dtypes=[x.dtype for x in arrays], train=True)
    step.run(*arrays, target)
    assert "Python" not in step.table() and "numpy" not in step.table()
    for g, e in zip(step.grad, grads, strict=True):
        np.testing.assert_allclose(g, e, near, near * np.abs(e).max())
    for path, p in net.params.items():
        np.testing.assert_allclose(p.grad, expected[path], near, near * np.abs(expected[path]).max(), err_msg=path)


def draw(*shapes, dtype="float32"):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype, near", [("float32", 2e-4), ("float64", 1e-11)])
@pytest.mark.parametrize("length", [1, 2, 7, 24])
@pytest.mark.parametrize("batch, width, size", [(1, 5, 8), (3, 24, 6), (8, 8, 24)])
def test_an_lstm_as_a_scan(batch, width, size, length, dtype, near):
    net = netOf(lstm(width, size), 2, dtype=dtype)
    *arrays, target = draw((batch, size), (batch, size), (batch, length, width), (batch, length, size), dtype=dtype)
    agree(net, arrays, target, near)


def test_it_is_the_lstm_of_the_zoo():
    batch, length, width, size = 3, 9, 5, 8
    net, zoo = netOf(lstm(width, size), 2), LSTM(width, size)
    params = net.params
    params["scan.body.u.W"].data[...], params["scan.body.w.W"].data[...] = zoo.U.data, zoo.W.data
    params["scan.body.w.b"].data[...] = zoo.b.data
    (x,) = draw((batch, length, width))
    zero = np.zeros((batch, size), np.float32)
    got = net.compile(zero.shape, zero.shape, x.shape).run(zero, zero, x)
    np.testing.assert_allclose(got, zoo(x)[0] if isinstance(zoo(x), list) else zoo(x), 1e-5, 1e-6)


@pytest.mark.parametrize("length", [1, 5])
def test_convolutions_in_a_scan(length):
    net = netOf(convolutional(3, 4), 1)
    h, x, target = draw((2, 4, 5, 6), (2, length, 3, 5, 6), (2, length, 4, 5, 6))
    agree(net, [h, x], target, 1e-3)


@pytest.mark.parametrize("ins", [(0, False), (1, True), (-2, False)])
@pytest.mark.parametrize("outs", [(0, True), (1, False), (-1, True)])
def test_every_axis_and_direction(ins, outs):
    axis, length, out = ins[0] % 3, 5, outs[0] % 3
    net = netOf(plain(4, 6), 1, [ins], [outs])
    shape, rows = [3, 4], [3, 6]
    shape.insert(axis, length)
    rows.insert(out, length)
    h, x, target = draw((3, 6), tuple(shape), tuple(rows))
    agree(net, [h, x], target, 2e-4)


def test_two_slices_and_a_shared_value():
    h, x, y, z = inputs("h", "x", "y", "z")
    new = Tanh(name="tanh").node(Linear(6, 6, name="u").node(h) * x + y * z)
    net = netOf(Graph([h, x, y, z], [new, new * z]), 1, [(1, False), (0, True)])
    agree(net, draw((2, 6), (2, 5, 6), (5, 2, 6), (6,)), *draw((2, 5, 6)), 2e-4)


def test_a_scan_inside_a_scan():
    h, x = inputs("h", "x")
    inner = Scan(plain(4, 6), 1, [(1, False)], [(1, False)], name="inner").node(h, x)
    last = Tanh(name="last").node((inner, 0))
    net = netOf(Graph([h, x], [last, last]), 1, [(0, False)], [(0, False)])
    agree(net, draw((3, 6), (4, 3, 5, 4)), *draw((4, 3, 6)), 2e-4)


def test_the_code_is_made_once_for_any_length():
    made = []
    for length in (10, 300):
        net = netOf(plain(4, 6), 1)
        program = net.compile((2, 6), (2, length, 4), (2, length, 6), cost=MSE())
        made.append({w.key for s in program.executable.segments for step in s.steps for w in step})
        rows = sum(len(step) for s in program.executable.segments for step in s.steps)
        assert rows >= 3 * length
    assert len(made[0]) == len(made[1])


def test_frozen_parameters_and_steps_of_an_optimizer():
    net = netOf(plain(4, 6), 1)
    net.params["scan.body.u.W"].trainable = False
    h, x, target = draw((2, 6), (2, 5, 4), (2, 5, 6))
    before = {path: p.data.copy() for path, p in net.params.items()}
    step = net.compile(h.shape, x.shape, target.shape, cost=MSE(), optimizer=puregraph.SGD(0.1))
    first = step.run(h, x, target)[0]
    for _ in range(20):
        last = step.run(h, x, target)[0]
    assert last < first
    changed = {path for path, p in net.params.items() if not np.array_equal(p.data, before[path])}
    assert changed == set(net.params) - {"scan.body.u.W"}


def test_a_body_that_changes_a_state_runs_as_before():
    h, x = inputs("h", "x")
    new = Dropout(0.5, name="drop").node(Linear(6, 6, name="u").node(h) + x)
    net = netOf(Graph([h, x], [new, new]), 1)
    h, x, target = draw((2, 6), (2, 5, 6), (2, 5, 6))
    step = net.compile(h.shape, x.shape, target.shape, cost=MSE())
    step.run(h, x, target)
    assert "Python" in step.table()


def test_the_same_bits_for_any_number_of_threads():
    from puregraph.ops.native.threads import pool

    net = netOf(lstm(24, 40), 2)
    *arrays, target = draw((8, 40), (8, 40), (8, 13, 24), (8, 13, 40))
    step = net.compile(*[x.shape for x in (*arrays, target)], cost=MSE())
    before, bits = pool.threads(), []
    try:
        for count in (1, 2, 3, 4):
            pool.setThreads(count)
            step.run(*arrays, target)
            bits.append([p.grad.tobytes() for p in net.params.values()])
    finally:
        pool.setThreads(before)
    assert all(b == bits[0] for b in bits)


def test_a_loop_too_long_for_a_table_runs_in_numpy(monkeypatch):
    monkeypatch.setattr(loopworks, "MAX_WORKS", 1)
    net = netOf(lstm(5, 6), 2)
    *arrays, target = draw((3, 6), (3, 6), (3, 7, 5), (3, 7, 6))
    net(*arrays)
    net.backward(target)
    expected = {path: p.grad.copy() for path, p in net.params.items()}
    step = net.compile(*[x.shape for x in arrays], train=True)
    step.run(*arrays, target)
    assert "numpy" in step.table()
    for path, p in net.params.items():
        np.testing.assert_allclose(p.grad, expected[path], 1e-5, 1e-5, err_msg=path)


def test_guard_bands(monkeypatch):
    monkeypatch.setenv("PUREGRAPH_VERIFY", "1")
    net = netOf(lstm(5, 6), 2)
    *arrays, target = draw((3, 6), (3, 6), (3, 7, 5), (3, 7, 6))
    agree(net, arrays, target, 2e-4)


def test_repeat_in_numpy():
    def body(carried, slices, shared):
        (c,), (x,), (z,) = carried, slices, shared
        return [c * z + x], [c], [c - x]

    x = np.arange(4.0)
    states, sums, rows = repeatBody(body, [np.float64(1)], [x], [2.0], isReversed=True)
    wanted = [1.0]
    for value in x[::-1]:
        wanted.append(2 * wanted[-1] + value)
    np.testing.assert_array_equal(states, wanted)
    assert sums == sum(wanted[:-1])
    np.testing.assert_array_equal(rows, (np.array(wanted[:-1]) - x[::-1])[::-1])


def counted(size, count, rank=0):
    """A Loop of a fixed number of runs, which reads its number and a shared value."""
    t, goesOn, c, x = inputs("t", "goesOn", "c", "x")
    number = Cast("float32", name="number").node(t)
    new = Tanh(name="tanh").node(Linear(size, size, name="u").node(c) * (1 + number) + x)
    ends = inputs("c", "x")
    fixed = [Constant(np.full((1,) * rank, n)).node() for n in (np.int64(count), np.bool_(True))]
    node = Loop(Graph([t, goesOn, c, x], [goesOn, new, new * x]), 1, (rank, rank), name="loop").node(*fixed, *ends)
    return Graph(ends, Identity(name="rows").node((node, 1)))


@pytest.mark.parametrize("count, rank", [(1, 0), (6, 0), (6, 1)])
def test_a_loop_of_a_fixed_number_of_runs(count, rank):
    net = counted(6, count, rank)
    agree(net, draw((3, 6), (3, 6)), *draw((count, 3, 6)), 2e-4)


def test_a_loop_whose_end_depends_on_data_runs_as_before():
    t, goesOn, c = inputs("t", "goesOn", "c")
    less = Less(name="less").node(Sum(name="sum").node(c), Constant(np.float32(50)).node())
    small = And(name="small").node(goesOn, less)
    ends = inputs("c")
    fixed = [Constant(np.array(n)).node() for n in (100, True)]
    node = Loop(Graph([t, goesOn, c], [small, 2 * c, t]), 1, name="loop").node(*fixed, *ends)
    net = Graph(ends, Identity(name="y").node((node, 0)))
    x = np.ones(3, np.float32)
    program = net.compile(x.shape)
    np.testing.assert_array_equal(program.run(x), net(x))
    assert program.partitioned is not None
