"""RowCache: rows are written in place, eagerly and compiled, and nothing else is."""

import numpy as np
import pytest
from launches import needsEmulator, runAll
from leftovers import leftToNumpy
from natively import needsNative

from puregraph.compile.program import Program
from puregraph.core.errors import ShapeError
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import Attention, Mul, MulAddConst, Sum
from puregraph.ops.movement.reference import writeAt
from puregraph.train.decoding import RowCache


def netOf(cache, behind):
    x, offset = Input(name="x").node(), Input(name="offset").node()
    return Graph([x, offset], behind.node(cache.node(x, offset))).evalMode()


def wantedAfter(cache, rows, offset):
    """The definition, one row at a time."""
    y = cache.copy()
    for n, start in enumerate(offset):
        for i in range(rows.shape[2]):
            if 0 <= start + i < y.shape[2]:
                y[n, :, start + i] = rows[n, :, i]
    return y


SIZES = [(2, 3, 7, 5, 2), (1, 1, 1, 1, 1), (3, 2, 9, 17, 4), (2, 1, 4, 3, 6), (4, 2, 33, 64, 1)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("size", SIZES)
def test_rows_are_written_where_the_offsets_are(size, index, dtype, rng, monkeypatch):
    monkeypatch.setenv("PUREGRAPH_VERIFY", "1")
    n, h, s, d, t = size
    kept = RowCache(n, h, s, d, dtype)
    net = netOf(kept, MulAddConst(2.0))
    x = rng.standard_normal((n, t, h, d)).astype(dtype).swapaxes(1, 2)  # heads beside each other
    program = Program(net, [x.shape, (n,)], [dtype, index])
    wanted = kept.cache.data.copy()
    for turn in range(6):
        offset = rng.integers(-2, s + 1, n).astype(index)
        rows = (x + turn).astype(dtype)
        wanted = wantedAfter(wanted, rows, offset)
        y = net(rows, offset) if turn % 2 else program.run(rows, offset)
        assert np.array_equal(kept.cache.data, wanted) and np.array_equal(y, 2 * wanted)
    kept.reset()
    assert not kept.cache.data.any()


@needsNative
def test_a_compiled_step_writes_natively_and_copies_no_cache(rng):
    kept, values = RowCache(2, 3, 64, 16), RowCache(2, 3, 64, 16)
    q, offset = Input(name="q").node(), Input(name="offset").node()
    attention = Attention(causal=True).node(q, kept.node(q, offset), values.node(q, offset), offset=offset)
    net = Graph([q, offset], attention)
    program = net.compile([(2, 3, 1, 16), (2,)], train=False)
    assert not leftToNumpy(program) and program.bytes < kept.cache.data.nbytes / 4
    x = rng.standard_normal((2, 3, 1, 16)).astype(np.float32)
    assert np.allclose(program.run(x, np.array([0, 0])), x, rtol=1e-6)


def test_a_cache_that_is_an_output_is_copied(rng):
    kept = RowCache(1, 1, 4, 2)
    x, offset = Input(name="x").node(), Input(name="offset").node()
    net = Graph([x, offset], kept.node(x, offset)).evalMode()
    program = Program(net, [(1, 1, 1, 2), (1,)], [np.float32, np.int64])
    first = program.run(np.ones((1, 1, 1, 2), np.float32), np.array([0]))
    before = first.copy()
    program.run(np.full((1, 1, 1, 2), 5, np.float32), np.array([0]))
    assert np.array_equal(first, before)


def test_two_caches_of_one_shape_stay_apart(rng):
    kept = [RowCache(1, 2, 4, 3), RowCache(1, 2, 4, 3)]
    a, b, offset = (Input(name=name).node() for name in ("a", "b", "offset"))
    net = Graph([a, b, offset], Sum()(Mul()(kept[0].node(a, offset), kept[1].node(b, offset)))).evalMode()
    program = Program(net, [(1, 2, 1, 3)] * 2 + [(1,)], [np.float32, np.float32, np.int64])
    x, y = (rng.standard_normal((1, 2, 1, 3)).astype(np.float32) for _ in range(2))
    assert np.allclose(program.run(x, y, np.array([2])), (x * y).sum(), rtol=1e-5)
    assert np.array_equal(kept[0].cache.data[:, :, 2:3], x) and np.array_equal(kept[1].cache.data[:, :, 2:3], y)


def test_a_cache_at_two_nodes_is_written_by_one_after_the_other(rng):
    kept = RowCache(1, 1, 4, 2)
    a, b, offset = (Input(name=name).node() for name in ("a", "b", "offset"))
    net = Graph([a, b, offset], [Sum()(kept.node(a, offset)), Sum()(kept.node(b, offset))]).evalMode()
    x, y = (rng.standard_normal((1, 1, 1, 2)).astype(np.float32) for _ in range(2))
    program = Program(net, [x.shape, x.shape, (1,)], [np.float32, np.float32, np.int64])
    first, second = program.run(x, y, np.array([1]))
    assert np.allclose([first, second], [x.sum(), y.sum()], rtol=1e-6)
    assert np.array_equal(kept.cache.data[:, :, 1:2], y)


def test_sizes_that_do_not_fit_are_refused():
    kept = RowCache(2, 3, 5, 4)
    assert kept.dataShapeFrom((2, 3, "t", 4), (2,)) == (2, 3, 5, 4)
    with pytest.raises(ShapeError, match=r"wanted \(2, 3, t, 4\), got \(2, 3, 1, 5\)"):
        kept.dataShapeFrom((2, 3, 1, 5), (2,))
    with pytest.raises(ShapeError, match=r"offset of shape \(2,\)"):
        kept.dataShapeFrom((2, 3, 1, 4), (3,))


@needsEmulator
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
def test_the_cuda_text_writes_the_rows_of_the_reference(size, dtype, rng):
    n, h, s, d, t = size
    cache, rows = np.zeros((n, h, s, d), dtype), rng.standard_normal((n, t, h, d)).astype(dtype).swapaxes(1, 2)
    offset = rng.integers(-2, s + 1, n)
    wanted = wantedAfter(cache, rows, offset)
    runAll(writeAt.implementations["cuda"](cache, cache, rows, offset))
    assert np.array_equal(cache, wanted)
