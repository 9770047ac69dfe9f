"""What programs take for granted about memory: docs/memory.md names the tests, and those that stand nowhere else."""

import os
import re
import weakref

import numpy as np
import pytest
from source import ROOT

import puregraph as pg
from puregraph.core import device

PAGE = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and line.count("|") == 5]
TESTS = {
    name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
}
X = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)


def test_every_promise_has_a_test_that_exists():
    rows = [row for row in ROWS if not row.startswith("| taken for granted")]
    assert len(rows) >= 20
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named or "**the caller**" in row, row
        assert not set(named) - TESTS, row
    assert all((ROOT / "puregraph" / name).exists() for name in re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE))


class Fixed(pg.Module):
    """y = x W, where W is an array and no parameter."""

    def __init__(self, name=None):
        super().__init__(name)
        self.W = np.ones((128, 32), np.float32)

    def dataShapeFrom(self, x):
        return (x[0], 32)

    def updateData(self, x):
        return x @ self.W

    def updateGrad(self, grad, x, y):
        return grad @ self.W.T


@pytest.mark.skipif(device.name() != "cpu", reason="a GPU gets a copy")
def test_an_array_that_a_module_holds_may_change():
    net = pg.Sequential(Fixed(name="f"), pg.Relu())
    program = net.compile(X.shape, train=False)
    first = program.run(X)
    net["f"].W[17, 3] = 9
    changed = program.run(X)
    assert not np.array_equal(changed, first) and np.array_equal(changed, net.compile(X.shape, train=False).run(X))
    net["f"].W = np.full((128, 32), 2, np.float32)
    assert np.array_equal(program.run(X), net.compile(X.shape, train=False).run(X))


def test_an_input_lives_until_the_next_run():
    net = pg.Sequential(pg.Linear(128, 8), pg.Tanh()).evalMode()
    program, x = net.compile(X.shape), X.copy()
    wanted, gone = program.run(x), weakref.ref(x)
    del x
    assert np.array_equal(program.run(X), wanted) and gone() is None


def test_a_gradient_that_is_kept_has_to_be_copied():
    net, t = pg.Sequential(pg.Linear(128, 8, name="a")), np.zeros((64, 8), np.float32)
    programs = [net.compile((n, 128), (n, 8), cost=pg.MSE()) for n in (64, 32)]
    programs[0].run(X, t)
    kept = net["a"].W.grad
    first = device.toHost(kept).copy()
    programs[1].run(X[:32], t[:32])
    assert net["a"].W.grad is kept and not np.array_equal(device.toHost(kept), first)
    programs[0].run(X, t)
    assert np.array_equal(device.toHost(kept), first)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.skipif(device.name() != "cpu", reason="CUDA does not survive a fork")
def test_a_forked_process_does_not_write_to_the_memory_of_its_parent():
    net = pg.Sequential(pg.Linear(128, 128, name="a"), pg.Tanh(), pg.Linear(128, 8)).evalMode()
    program = net.compile(X.shape)
    lent = program.run(X, copy=False)
    wanted, weight = lent.copy(), net["a"].W.data.copy()
    child = os.fork()
    if child == 0:
        try:
            net["a"].W.data[...] = 3
            os._exit(int(np.array_equal(program.run(-X), wanted)))
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.array_equal(lent, wanted) and np.array_equal(program.run(X), wanted)
    assert np.array_equal(net["a"].W.data, weight)
