"""Steps on machines with several GPUs, and on several streams, as a tracer for CuPy carries them out."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from fakecupy import useGpu
from gpunets import close, images, perceptron, trained
from launches import needsEmulator

from puregraph.compile.gpu.runtime import capture, d2h, h2d
from puregraph.core import device
from puregraph.core.errors import DeviceError
from puregraph.graph.sequential import Sequential
from puregraph.modules import Linear
from puregraph.ops.cuda.libraries import cudnn
from puregraph.ops.cuda.runtime import runner
from puregraph.ops.product.cuda import cublaslt
from puregraph.optimizers import Adam

pytestmark = needsEmulator


@pytest.mark.parametrize("late", ["null first", "null last"])
def test_a_run_on_another_stream_comes_after_the_last_run(monkeypatch, rng, late):
    batches = images(rng, 4, 7)

    def trainedOn(*streams):
        program, net, got = trained(perceptron, batches[:1], Adam())
        twin = net.compile((5, 7))  # which reads the parameters that the program writes
        for batch, stream in zip(batches[1:], streams):
            with stream:
                got += [program.run(*batch), [twin.run(batch[0])]]
        return got

    with device.useDevice("cpu"):
        wanted = trainedOn(*[nullcontext()] * 3)
    other = useGpu(monkeypatch, late=late).cuda.Stream(non_blocking=True)
    for each, rest in zip(trainedOn(other, nullcontext(), other), wanted, strict=True):
        for y, z in zip(each, rest, strict=True):
            close(y, z)


def test_each_gpu_has_kernels_handles_and_streams_of_its_own(monkeypatch, rng):
    cupy, (batch,) = useGpu(monkeypatch), images(rng, 1, 7)
    program, _, _ = trained(perceptron, [batch], Adam())
    made = []
    monkeypatch.setattr(cublaslt.handle, "known", {})
    monkeypatch.setattr(cudnn.own, "known", {})
    create = SimpleNamespace(call=lambda name, _: made.append((name, cupy.machine.ordinal)))
    monkeypatch.setattr(cublaslt, "library", lambda: create)
    monkeypatch.setattr(cudnn, "CudnnPlanner", lambda: made.append(("plan", cupy.machine.ordinal)))
    text = 'extern "C" __global__ void nothing(int n) {}'

    def known():
        cublaslt.handle(), cudnn.own()
        return runner.module(text), runner.function(text, "nothing", 0), capture.capturer(), h2d.copier(), d2h.sender()

    first = known()
    with cupy.cuda.Device(1):
        assert not any(x is y for x, y in zip(first, known()))
        with pytest.raises(DeviceError, match="compiled on GPU 0, where its memory is, but GPU 1 is current"):
            program.run(*batch)
    assert all(x is y for x, y in zip(first, known()))
    assert made == [("Create", 0), ("plan", 0), ("Create", 1), ("plan", 1)]


def test_large_inputs_take_no_more_pinned_memory_than_their_size_and_graphs_are_uploaded(monkeypatch, rng):
    machine = useGpu(monkeypatch).machine
    net = Sequential(Linear(2500, 4)).trainMode()
    program = net.compile((300, 2500))
    for _ in range(3):
        program.run(rng.standard_normal((300, 2500)).astype("f4"))
    assert 2 * 3e6 <= machine.pinnedBytes < 2 * 3e6 + 4096
    assert len(machine.uploads) == 1
