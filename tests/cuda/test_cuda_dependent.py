"""Launches that begin while the one before them still runs: each kernel waits before all else, or is told."""

import numpy as np
import pytest
from fakecupy import launchKernelEx, useCupy, useGpu
from launches import needsEmulator, needsNvrtc

from puregraph import MSE, Adam, Trainer, seed
from puregraph.core.errors import DeviceError
from puregraph.models import mlp
from puregraph.ops.cuda.nests import launches
from puregraph.ops.cuda.runtime import compiler, dependentlaunch, runner
from puregraph.ops.cuda.runtime.dependentlaunch import WAIT, waiting
from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand, Reduce
from puregraph.testing.emulator import emulator
from puregraph.testing.emulator.emulator import KernelError

pytestmark = needsEmulator


@pytest.fixture
def driver(monkeypatch):
    """cuda-bindings, whose driver is the fake GPU's."""
    found = pytest.importorskip("cuda.bindings.driver")
    monkeypatch.setattr(found, "cuLaunchKernelEx", launchKernelEx)
    monkeypatch.setenv("PUREGRAPH_OVERLAPLAUNCHES", "on")
    return found


def norm(x, y):
    """The launches of y = sqrt(sum of x^2), in parts."""
    lines = (("p", Formula("x * x")), ("s", Reduce("sum", "p", frozenset([0]))), ("y", Formula("sqrt(s)")))
    return launches.launches(LoopNest(x.shape, {"x": Operand("f32", x, (1,))}, lines, {"y": Operand("f32", y, (0,))}))


def test_kernels_that_wait_give_what_others_do(rng):
    x, y = rng.standard_normal(70000).astype("f4"), np.zeros(1, "f4")
    found = [each._replace(source=waiting(each.source)) for each in norm(x, y)]
    assert len(found) == 2 and all(each.source.count(WAIT) == 1 for each in found)
    emulator.run(found)
    np.testing.assert_allclose(y, np.linalg.norm(x.astype(float)), 1e-6)


def test_a_kernel_that_reads_or_writes_before_it_waits_is_told(rng):
    x, y = rng.standard_normal(100).astype("f4"), np.zeros(100, "f4")
    nest = LoopNest((100,), {"x": Operand("f32", x, (1,))}, (("y", Formula("2 * x")),), {"y": Operand("f32", y, (1,))})
    (launch,) = launches.launches(nest)
    source = waiting(launch.source)
    emulator.run([launch._replace(source=source)])
    assert np.array_equal(y, 2 * x)
    for early, words in (("if (l_x0[0] > 9) return; ", "reads"), ("s_y0[0] = 0; ", "writes")):
        with pytest.raises(KernelError, match=rf"{words} argument \d's memory before it has waited"):
            emulator.run([launch._replace(source=source.replace(WAIT, early + WAIT))])
    with pytest.raises(DeviceError, match=r"griddepcontrol.wait moves memory: its asm statement must be volatile"):
        emulator.run([launch._replace(source=source.replace(' ::: "memory"', ""))])


def test_launches_overlap_where_that_is_asked_for(driver, monkeypatch, rng):
    cupy = useCupy(monkeypatch)
    x = rng.standard_normal(70000).astype("f4")
    there, y = cupy.asarray(x), cupy.asarray(np.zeros(1, "f4"))
    runner.run(norm(there, y))
    assert (cupy.machine.launches, cupy.machine.dependent) == (2, 2)
    np.testing.assert_allclose(cupy.asnumpy(y), np.linalg.norm(x.astype(float)), 1e-6)
    runner.run([each._replace(cooperative=True) for each in norm(there, y)])
    assert (cupy.machine.launches, cupy.machine.dependent) == (4, 2)
    monkeypatch.setattr(dependentlaunch, "waiting", lambda source: source)
    with pytest.raises(RuntimeError, match="rows begins while the launch before it still runs, and does not wait"):
        runner.run(norm(there, y))


def test_the_driver_s_word_is_handed_on(driver, monkeypatch, rng):
    cupy = useCupy(monkeypatch)
    monkeypatch.setattr(driver, "cuLaunchKernelEx", lambda *given: (driver.CUresult.CUDA_ERROR_INVALID_VALUE,))
    with pytest.raises(DeviceError, match="cuLaunchKernelEx failed: CUDA_ERROR_INVALID_VALUE"):
        runner.run(norm(cupy.asarray(np.ones(9, "f4")), cupy.asarray(np.ones(1, "f4"))))


@pytest.mark.parametrize(
    ("said", "architecture", "wanted"),
    [
        ("on", "sm_90", True),
        ("on", "sm_100", True),
        ("on", "sm_80", False),
        ("off", "sm_90", False),
        ("", "sm_90", False),
    ],
)
def test_it_takes_a_word_and_a_gpu_that_can(monkeypatch, said, architecture, wanted):
    monkeypatch.setenv("PUREGRAPH_OVERLAPLAUNCHES", said)
    assert dependentlaunch.isWanted(architecture) == wanted


def test_a_training_is_the_same(driver, monkeypatch, rng):
    data, target = rng.standard_normal((24, 6)).astype("f4"), rng.standard_normal((24, 3)).astype("f4")

    def trained():
        cupy = useGpu(monkeypatch, late="null last")
        seed(0)
        trainer = Trainer(mlp(6, (8,), 3), MSE(), Adam(1e-2), batchsize=8)
        trainer.train(data, target, epochs=2)
        return [cupy.asnumpy(p.data) for p in trainer.net.params.values()], cupy.machine

    found, machine = trained()
    assert machine.dependent and machine.replays > 3
    monkeypatch.setenv("PUREGRAPH_OVERLAPLAUNCHES", "off")
    wanted, machine = trained()
    assert not machine.dependent
    assert all(np.array_equal(x, y) for x, y in zip(found, wanted))


@needsNvrtc
def test_the_wait_is_in_the_machine_code_of_a_gpu_that_has_it(rng):
    sources = [waiting(each.source) for each in norm(np.zeros(70000, "f4"), np.zeros(1, "f4"))]
    assert all(compiler.cubin(source, "sm_90").data for source in sources)
    with pytest.raises(DeviceError, match="griddepcontrol"):
        compiler.cubin(sources[0], "sm_80")
