"""Column reductions of one launch: the last block reduces the parts of all."""

import numpy as np
import pytest
from launches import gate, needsEmulator, needsNvrtc, runAll

from puregraph.ops.cuda.nests.launches import launches
from puregraph.ops.cuda.runtime.launch import TICKETS
from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand, Reduce

pytestmark = needsEmulator
OVER = frozenset([1])


def statistics(x, outer=1):
    """The launches of sums, of what follows from them and of a pass beside them; and their results."""
    n, c = x.shape[-2:]
    x = x.reshape(outer, -1, c)
    n = x.shape[1]
    s, v, y = np.full((outer, c), 7, "f4"), np.full((outer, c), 7, "f4"), np.full(x.shape, 7, "f4")
    whole, few = (n * c, c, 1), (c, 0, 1)
    lines = (
        ("q", Formula("x * x")),
        ("s", Reduce("sum", "x", OVER)),
        ("t", Reduce("sum", "q", OVER)),
        ("v", Formula(f"t / {n} - (s / {n}) ** 2")),
        ("y", Formula("x + 1")),
    )
    stores = {"s": Operand("f32", s, few), "v": Operand("f32", v, few), "y": Operand("f32", y, whole)}
    return launches(LoopNest(x.shape, {"x": Operand("f32", x, whole)}, lines, stores, "f32")), s, v, y


@pytest.mark.parametrize("n, c, outer", [(3000, 20, 1), (2500, 33, 1), (1500, 300, 1), (2 * 1300, 24, 2)])
def test_columns_of_many_rows_are_one_launch_that_gives_the_same_bits_each_time(rng, n, c, outer):
    x = rng.standard_normal((n, c)).astype("f4")
    found, s, v, y = statistics(x, outer)
    assert [launch.entry for launch in found] == ["columns"]
    assert any(what is TICKETS for _, what in found[0].slots)
    runAll(found)
    wide, before = x.reshape(outer, -1, c).astype(float), (s.copy(), v.copy())
    np.testing.assert_allclose(s, wide.sum(1), 1e-5, 1e-3)
    np.testing.assert_allclose(v, wide.var(1), 1e-5, 1e-5)
    assert (y == wide.astype("f4") + 1).all()
    runAll(found)
    assert all(np.array_equal(a, b) for a, b in zip((s, v), before))


@needsNvrtc
def test_three_blocks_find_the_registers_of_a_processor():
    found, *_ = statistics(np.zeros((4096, 64), "f4"))
    assert found[0].block[0] * found[0].block[1] == 384 and "__launch_bounds__(384, 3)" in found[0].source
    assert all(used.registers <= 56 for _, used in gate(found, everywhere=True))
