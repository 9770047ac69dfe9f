"""Launches on CuPy's arrays, as a tracer for CuPy runs them: what is allocated, waited for, and captured."""

import numpy as np
import pytest
from fakecupy import CaptureError, FakeArray, useCupy
from launches import needsEmulator

from puregraph.core.errors import DeviceError
from puregraph.ops.cuda.nests import launches
from puregraph.ops.cuda.runtime import runner
from puregraph.ops.cuda.runtime.launch import Launch
from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand, Reduce
from puregraph.ops.gather.reference import gather
from puregraph.ops.kernel import kernel

pytestmark = needsEmulator
ADD = 'extern "C" __global__ void add(float* x, float a) { x[threadIdx.x] += a; }'


@pytest.fixture
def cupy(monkeypatch):
    return useCupy(monkeypatch)


def adding(x, a):
    """The launch of x += a."""
    return Launch("add", ADD, "add", (("pointer", x), ("float", a)), (1, 1, 1), (x.size, 1, 1))


def norm(x, y):
    """The launches of y = sqrt(sum of x^2), in parts."""
    lines = (("p", Formula("x * x")), ("s", Reduce("sum", "p", frozenset([0]))), ("y", Formula("sqrt(s)")))
    return launches.launches(LoopNest(x.shape, {"x": Operand("f32", x, (1,))}, lines, {"y": Operand("f32", y, (0,))}))


def test_a_kernel_with_launches_runs_them(cupy, rng):
    table, index = rng.standard_normal((7, 5)).astype("f4"), rng.integers(-1, 7, (3, 4))
    there = cupy.asarray(table), cupy.asarray(index)
    before = cupy.machine.allocations
    y = gather(*there)
    assert isinstance(y, FakeArray)
    assert (cupy.machine.launches, cupy.machine.allocations - before) == (1, 1)
    assert (cupy.machine.reads, cupy.machine.waits) == (0, 0)
    np.testing.assert_array_equal(cupy.asnumpy(y), gather(table, index))


def test_what_the_launches_do_not_handle_goes_through_the_host(cupy):
    @kernel
    def tripled(x):
        return x * 3

    @tripled.shape
    def tripled(x):
        return x.shape, x.dtype

    @tripled.cuda
    def tripled(y, x):
        return NotImplemented

    assert cupy.asnumpy(tripled(cupy.asarray(np.arange(3.0)))).tolist() == [0, 3, 6]
    assert (cupy.machine.launches, cupy.machine.reads) == (0, 2)


def test_several_results_are_a_tuple(cupy):
    @kernel
    def both(x):
        return x + 1, x + 2

    @both.shape
    def both(x):
        return [(x.shape, x.dtype)] * 2

    @both.cuda
    def both(out, x):
        text = """
        extern "C" __global__ void both(float* y, float* z, const float* x) {
          y[threadIdx.x] = x[threadIdx.x] + 1, z[threadIdx.x] = x[threadIdx.x] + 2;
        }"""
        slots = tuple(("pointer", array) for array in (*out, x))
        return [Launch("both", text, "both", slots, (1, 1, 1), (x.size, 1, 1))]

    y, z = both(cupy.asarray(np.arange(3, dtype="f4")))
    assert (cupy.asnumpy(y).tolist(), cupy.asnumpy(z).tolist()) == ([1, 2, 3], [2, 3, 4])


def test_memory_beside_is_allocated_for_a_run(cupy, rng):
    x, y = cupy.asarray(rng.standard_normal(70000).astype("f4")), cupy.empty((1,), np.float32)
    before = cupy.machine.allocations
    runner.run(norm(x, y))
    assert cupy.machine.allocations - before == 1
    np.testing.assert_allclose(cupy.asnumpy(y), np.linalg.norm(x.values.astype(float)), rtol=1e-6)


def test_numbers_keep_their_bits(cupy):
    y = cupy.empty((2,), np.uint64)
    text = 'extern "C" __global__ void k(uint64* y, unsigned a, uint64 b) { y[0] = a, y[1] = b; }'
    slots = (("pointer", y), ("int", 2**32 - 5), ("long", 2**64 - 7))
    runner.run([Launch("numbers", text, "k", slots, (1, 1, 1), (1, 1, 1))])
    assert cupy.asnumpy(y).tolist() == [2**32 - 5, 2**64 - 7]


def test_an_array_on_the_host_is_refused(cupy):
    with pytest.raises(DeviceError, match="wanted arrays on the GPU, got ndarray; move it with puregraph.toDevice"):
        runner.run([adding(np.zeros(3, "f4"), 1.0)])


def test_launches_are_captured_and_run_when_the_graph_does(cupy):
    x, stream = cupy.asarray(np.zeros(4, "f4")), cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        runner.start([adding(x, 2.0), adding(x, 3.0)], runner.addressOf)
        graph = stream.end_capture()
    assert cupy.asnumpy(x).tolist() == [0] * 4
    graph.launch(stream)
    graph.launch(stream)
    assert cupy.asnumpy(x).tolist() == [10] * 4
    assert (cupy.machine.launches, cupy.machine.replays) == (4, 2)


def test_what_cuda_forbids_while_it_captures_is_refused(cupy, rng):
    x, y = cupy.asarray(np.ones((4, 4), "f4")), cupy.empty((1,), np.float32)
    long, stream = cupy.asarray(rng.standard_normal(70000).astype("f4")), cupy.cuda.Stream(non_blocking=True)
    with pytest.raises(RuntimeError, match="the null stream does not capture"):
        cupy.cuda.get_current_stream().begin_capture()
    stream.begin_capture()
    for fault, words in [
        (lambda: cupy.empty((3,)), "memory for .* is allocated while a stream captures"),
        (lambda: x + 1, "add makes an array"),
        (lambda: x.sum(), "sum makes an array"),
        (lambda: cupy.asnumpy(x), "handed to the host"),
        (lambda: cupy.asarray(np.ones(2)), "memory of the host is read"),
        (lambda: stream.synchronize(), "a stream is waited for"),
        (lambda: cupy.cuda.Device().synchronize(), "the device is waited for"),
        (lambda: cupy.cuda.Event().synchronize(), "an event is waited for"),
        (lambda: runner.run(norm(long, y)), "memory for float32.* is allocated"),
    ]:
        with pytest.raises(CaptureError, match=words):
            fault()
    with pytest.raises(NotImplementedError, match="cuBLAS"):
        np.matmul(x, x, out=x)
    with pytest.raises(CaptureError, match="a stream that takes no part in the capture"):
        np.add(x, 1, out=x)
    with stream:
        np.add(x, 1, out=x)
        x[1] = 7
    graph = stream.end_capture()
    assert x.values.max() == 1
    graph.launch()
    assert x.values[:2].tolist() == [[2] * 4, [7] * 4]


def test_a_kernel_that_leaves_its_memory_is_found_there_too(cupy):
    x = cupy.empty((3,), np.float32)
    with pytest.raises(RuntimeError, match="reads 4 bytes at byte 12 of argument 0, which has 12"):
        runner.run([adding(x, 1.0)._replace(block=(4, 1, 1))])
    with pytest.raises(RuntimeError, match="cudaErrorIllegalAddress"):
        runner.start([adding(x, 1.0)], lambda what: 64)


def test_an_arena_outside_the_pool_holds_arrays(cupy):
    arena = cupy.cuda.Memory(1024)
    before = cupy.machine.allocations
    x = cupy.ndarray((2, 3), np.float32, cupy.cuda.MemoryPointer(arena, 512))
    x[...] = 3
    assert cupy.machine.allocations == before
    assert x.data.ptr == arena.ptr + 512
    runner.run([adding(x, 4.0)])
    assert x.values.tolist() == [[7] * 3] * 2


# Shared memory ---------------------------------------------------------------------------------------------------------


def sharing(x, count, own=0):
    """A launch that adds through so many bytes of shared memory, beside those that the text declares."""
    declared = f"__shared__ char own[{own}]; own[threadIdx.x] = 0;" if own else ""
    text = f"""extern "C" __global__ void add(float* x) {{
      DYNAMIC(float, room);
      {declared}
      room[threadIdx.x] = 1;
      x[threadIdx.x] += room[threadIdx.x];
    }}"""
    return Launch("add", text, "add", (("pointer", x),), (1, 1, 1), (x.size, 1, 1), count)


def test_more_shared_memory_than_usual_is_asked_for(cupy):
    x = cupy.asarray(np.zeros(4, "f4"))
    runner.run([sharing(x, 48 << 10)])
    assert cupy.machine.allowed == {}
    runner.run([sharing(x, 227 << 10)])
    assert list(cupy.machine.allowed.values()) == [227 << 10]
    assert cupy.asnumpy(x).tolist() == [2] * 4


def test_what_a_text_declares_counts(cupy):
    x = cupy.asarray(np.zeros(4, "f4"))
    runner.run([sharing(x, (48 << 10) - 256, own=256)])
    assert cupy.machine.allowed == {}
    runner.run([sharing(x, 48 << 10, own=256)])
    assert list(cupy.machine.allowed.values()) == [48 << 10]
    with pytest.raises(RuntimeError, match=r"CUDA_ERROR_INVALID_VALUE: 256 \+ 232448 bytes of shared memory for add"):
        runner.run([sharing(x, 227 << 10, own=256)])


def test_a_launch_with_less_shared_memory_takes_nothing_from_one_with_more(cupy):
    x = cupy.asarray(np.zeros(4, "f4"))
    for count in (100 << 10, 60 << 10, 100 << 10):
        runner.run([sharing(x, count)])
    assert cupy.asnumpy(x).tolist() == [3] * 4
