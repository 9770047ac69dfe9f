"""What a machine's GPU can do, in a minute: each line says ok and a value, or FAILED and why.

    python scripts/probe.py [--out FOLDER]

Nothing stops it: a check that fails hides no other. In FOLDER it leaves what it printed, `probe.txt`, and what cuDNN
says of the device, `device.json`, with which `scripts/plans.py --properties` and `scripts/prebuild.py` plan elsewhere.
"""

import argparse
import json
import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

import puregraph as pg
from puregraph.core import device
from puregraph.core.storage import diskcache
from puregraph.models import mlp
from puregraph.ops.attention import cudnn as attention
from puregraph.ops.convolution import cudnn as convolution
from puregraph.ops.cuda.libraries import cudnn, tensorview
from puregraph.ops.cuda.runtime import compiler, runner
from puregraph.ops.cuda.runtime.launch import Launch, gridFor
from puregraph.ops.product.cuda import cublaslt
from puregraph.ops.product.cuda.librarygemm import product
from puregraph.optimizers import SGD

H200 = Path(__file__).parent.parent / "puregraph/ops/cuda/libraries/h200.json"
ADD = 'extern "C" __global__ void add(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1.0f; }'
SPIN = """extern "C" __global__ void spin(float* x, long n) {
    float y = x[0];
    for (long i = 0; i < n; i++) y = y * 0.999f + 0.001f;
    x[0] = y;
}"""
COUNT = 1024
REPEATS = 7


class Probe:
    """The checks on the GPU in use; each gives a text, or raises."""

    def __init__(self, folder, isQuick=False):
        self.folder, self.isQuick = folder, isQuick
        self.large, self.edge, self.nodes = (1 << 12, 16, (1, 3)) if isQuick else (1 << 30, 8192, (1, 10, 100, 1000))
        self.cupy = device.arrays()
        self.cuda = self.cupy.cuda
        self.stream = self.cuda.Stream(non_blocking=True)

    # What there is ----------------------------------------------------------------------------------------------------

    def versions(self):
        """driver, CUDA and libraries"""
        runtime = self.cuda.runtime
        found = {
            **{name: text for name, text in device.versions().items() if text != "not installed"},
            "driver's CUDA": runtime.driverGetVersion(),
            "CuPy's CUDA": runtime.runtimeGetVersion(),
            "NVRTC": ".".join(map(str, compiler.version())),
            "cuBLASLt": cublaslt.library().version,
        }
        return ", ".join(f"{name} {text}" for name, text in found.items())

    def properties(self):
        """what cuDNN says of the device, next to what plans were made for"""
        found = json.loads(cudnn.library().create_device_properties(cudnn.ordinal()).serialize())
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "device.json").write_text(json.dumps(found, indent=1) + "\n")
        planned = json.loads(H200.read_text())
        names = sorted({*found, *planned})
        other = [f"{n} {found.get(n)}, not {planned.get(n)}" for n in names if found.get(n) != planned.get(n)]
        return f"{found['deviceName']}; " + ("as in h200.json" if not other else "; ".join(other))

    def plans(self):
        """plans that were made without a GPU, loaded on it"""
        planner = cudnn.current()
        if planner is None:
            raise RuntimeError(cudnn.missing())
        loaded, refused = 0, []
        for folder in diskcache.folders():
            for path in Path(folder).glob(f"*{diskcache.SUFFIX}"):
                header, data = diskcache.unpack(path.stem, path.read_bytes()) or ({}, b"")
                if "workspace" not in header or not header["key"].startswith(planner.label):
                    continue
                try:
                    planner.load(cudnn.CudnnPlan(data, header["workspace"]))
                    loaded += 1
                except Exception as error:
                    refused.append(device.brief(error))
        return f"{loaded} of {loaded + len(refused)} load" + (f"; the first refusal: {refused[0]}" if refused else "")

    # Launches ---------------------------------------------------------------------------------------------------------

    def launch(self):
        """a kernel, compiled, loaded and run"""
        x = self.cupy.asarray(np.zeros(COUNT, np.float32))
        begun = time.perf_counter()
        add(x)
        device.synchronize()
        seconds = time.perf_counter() - begun
        want(device.toHost(x), np.ones(COUNT, np.float32))
        return f"{1e3 * seconds:.1f} ms the first time"

    def overhead(self):
        """time to start a kernel, and from one to the next"""
        x = self.cupy.asarray(np.zeros(COUNT, np.float32))
        host, gpu = self.times(lambda: add(x), 1000)
        return f"{1e6 * host:.1f} us for the host, {1e6 * gpu:.1f} us from one to the next"

    def graph(self):
        """time to start a captured graph, and of each kernel in it"""
        found = []
        for nodes in self.nodes:
            x = self.cupy.asarray(np.zeros(COUNT, np.float32))
            graph = self.captured(lambda x=x, nodes=nodes: [add(x) for _ in range(nodes)])
            launches = []
            with self.stream:
                host, gpu = self.times(lambda graph=graph, done=launches: done.append(graph.launch(self.stream)), 50)
            want(device.toHost(x), np.full(COUNT, len(launches) * nodes, np.float32))
            found.append(f"{nodes} kernels {1e6 * host:.1f} us host, {1e6 * gpu / nodes:.2f} us each")
        return "; ".join(found)

    def step(self):
        """a training step, captured, with the results of the CPU"""
        x, t = np.random.default_rng(0).standard_normal((64, 784)).astype(np.float32), np.arange(64) % 10
        costs = {}
        for name in ("cpu", "cuda"):
            with device.useDevice(name):
                pg.seed(0)
                program = mlp().compile([x.shape, t.shape], cost=pg.CrossEntropy(), optimizer=SGD(0.1))
                given = [device.toDevice(x), device.toDevice(t)]
                costs[name] = [float(device.toHost(program.run(*given)[0])) for _ in range(5)]
        want(np.array(costs["cuda"]), np.array(costs["cpu"]), 1e-4)
        host, gpu = self.times(lambda: program.run(*given), 4)
        note = program.executable.captured().note
        return f"{note}; {1e6 * host:.1f} us for the host, {1e6 * gpu:.1f} us a step"

    # Memory -----------------------------------------------------------------------------------------------------------

    def copies(self):
        """bandwidth on the device, and between it and the host"""
        runtime, found = self.cuda.runtime, []
        to, source = (self.cupy.empty(self.large, np.uint8) for _ in "ab")
        pinned = self.cuda.alloc_pinned_memory(self.large // 4)
        kinds = runtime.memcpyDeviceToDevice, runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost
        for what, kind, one, other, size, count in (
            ("on the device (read and written)", kinds[0], to.data.ptr, source.data.ptr, self.large, 2),
            ("from pinned memory", kinds[1], to.data.ptr, pinned.ptr, self.large // 4, 1),
            ("to pinned memory", kinds[2], pinned.ptr, source.data.ptr, self.large // 4, 1),
        ):
            _, gpu = self.times(partial(self.copy, one, other, size, kind), 5)
            found.append(f"{count * size / gpu / 1e9:,.0f} GB/s {what}")
        return ", ".join(found)

    def overlap(self):
        """a copy from pinned memory while a kernel runs"""
        x, to = self.cupy.asarray(np.zeros(1, np.float32)), self.cupy.empty(self.large // 4, np.uint8)
        pinned, kind = self.cuda.alloc_pinned_memory(self.large // 4), self.cuda.runtime.memcpyHostToDevice
        other = self.cuda.Stream(non_blocking=True)

        def seconds(*starts):
            device.synchronize()
            begun = time.perf_counter()
            for stream, start in starts:
                with stream:
                    start()
            device.synchronize()
            return time.perf_counter() - begun

        kernel = self.stream, lambda: spin(x, 1 if self.isQuick else 1 << 21)
        copy = other, partial(self.copy, to.data.ptr, pinned.ptr, self.large // 4, kind)
        seconds(kernel, copy)
        alone, both = [seconds(kernel), seconds(copy)], seconds(kernel, copy)
        hidden = (sum(alone) - both) / min(alone)
        text = f"{100 * hidden:.0f} % of the shorter hidden: {', '.join(f'{1e3 * s:.1f}' for s in (*alone, both))} ms"
        if hidden < 0.5 and not self.isQuick:
            raise RuntimeError(f"only {text}")
        return text

    # Libraries --------------------------------------------------------------------------------------------------------

    def products(self):
        """a product by cuBLASLt, captured"""
        rng = np.random.default_rng(0)
        a, b, out = (rng.standard_normal((64, 64)).astype(np.float32) for _ in "abc")
        return self.library(product(out, a, b), [a, b], [out])

    def peak(self):
        """the largest product"""
        shape = self.edge, self.edge
        a, b = (self.cupy.asarray(np.random.default_rng(i).standard_normal(shape).astype(np.float16)) for i in (0, 1))
        out = self.cupy.empty(shape, np.float16)
        call = product(out, a, b)
        addresses = [runner.addressOf(x) for x in (a, b, out)]
        room = self.cupy.empty((max(call.workspace, 1),), np.uint8)
        call.prepare(addresses)
        _, gpu = self.times(lambda: call.run(addresses, runner.addressOf(room), runner.stream()), 5)
        return f"{2 * self.edge**3 / gpu / 1e12:,.0f} TFLOP/s in float16, {self.edge} on each side"

    def refusal(self):
        """what CuPy's own product does while a stream captures"""
        a = self.cupy.asarray(np.ones((4, 4), np.float32))
        out = a @ a
        try:
            self.captured(lambda: self.cupy.matmul(a, a, out=out))
        except Exception as error:
            return f"refused, as expected: {device.brief(error)}"
        return "captured"

    def maps(self):
        """a convolution by cuDNN, captured"""
        rng = np.random.default_rng(0)
        x, W, y = (
            rng.standard_normal(s).astype(np.float16).transpose(0, 3, 1, 2)
            for s in ((4, 14, 14, 16), (32, 3, 3, 16), (4, 14, 14, 32))
        )
        return self.library(convolution.convolve(y, x, W, 1, 1, 1, 1), [x, W], [y])

    def heads(self):
        """attention by cuDNN, captured"""
        rng = np.random.default_rng(0)
        q, k, v, y = (rng.standard_normal((2, 64, 4, 64)).astype(np.float16).swapaxes(1, 2) for _ in "qkvy")
        outs = [y, np.zeros((2, 4, 64, 1), np.float32)]
        return self.library(attention.attend(outs, q, k, v, True, 0.125), [q, k, v], outs)

    # Ways to do it ----------------------------------------------------------------------------------------------------

    def library(self, call, reads, writes):
        """A call of a library: its results are numpy's, called directly and from a captured graph."""
        if call is NotImplemented:
            raise RuntimeError("the library has no plan for it")
        near = [np.array(a, order="K", copy=True) for a in (*reads, *writes)]
        call.emulate(near)
        flats = [tensorview.flat(a, a.dtype.name) for a in (*reads, *writes)]
        arrays = [self.cupy.asarray(np.ascontiguousarray(a)) for a in flats]
        addresses = [runner.addressOf(array) for array in arrays]
        room = self.cupy.empty((max(call.workspace, 1),), np.uint8)
        begun = time.perf_counter()
        call.prepare(addresses)
        planned = time.perf_counter() - begun
        device.synchronize()
        start = lambda: call.run(addresses, runner.addressOf(room), runner.stream())  # noqa: E731
        with self.stream:
            start()
        graph = self.captured(start)
        for how in ("direct", "captured"):
            for array, wanted in zip(arrays[len(reads) :], near[len(reads) :]):
                want(device.toHost(array), tensorview.flat(wanted, wanted.dtype.name), 5e-3, how)
                array[...] = 0
            device.synchronize()
            graph.launch(self.stream)
            self.stream.synchronize()
        with self.stream:
            _, gpu = self.times(lambda: graph.launch(self.stream), 20)
        return f"planned in {1e3 * planned:.1f} ms, runs in {1e6 * gpu:.1f} us"

    def copy(self, to, source, size, kind):
        """Copy bytes."""
        self.cuda.runtime.memcpyAsync(to, source, size, kind, runner.stream())

    def captured(self, start):
        """The launches of a function, captured as a graph."""
        device.synchronize()
        with self.stream:
            self.stream.begin_capture()
            try:
                start()
            finally:
                graph = self.stream.end_capture()
        return graph

    def times(self, start, count):
        """Seconds that a call takes on the host, and on the GPU by events: medians of a few runs of `count`."""
        hosts, gpus = [], []
        count, repeats = (2, 1) if self.isQuick else (count, REPEATS)
        for _ in range(3):
            start()
        for _ in range(repeats):
            device.synchronize()
            first, last = self.cuda.Event(), self.cuda.Event()
            first.record()
            begun = time.perf_counter()
            for _ in range(count):
                start()
            hosts.append((time.perf_counter() - begun) / count)
            last.record()
            device.synchronize()
            gpus.append(self.cuda.get_elapsed_time(first, last) / 1000 / count)
        return statistics.median(hosts), max(statistics.median(gpus), 1e-9)


def add(x):
    """Add one to each element."""
    grid = gridFor(COUNT)
    runner.start([Launch("add", ADD, "add", (("pointer", x),), grid, (256, 1, 1))], runner.addressOf)


def spin(x, n):
    """Keep one thread busy."""
    slots = ("pointer", x), ("long", n)
    runner.start([Launch("spin", SPIN, "spin", slots, (1, 1, 1), (1, 1, 1))], runner.addressOf)


CHECKS = (
    *("versions", "properties", "plans", "launch", "overhead", "graph", "copies", "overlap"),
    *("products", "peak", "refusal", "maps", "heads", "step"),
)


def want(got, wanted, tolerance=0.0, how=""):
    """Raise unless values are as wanted, by their norm."""
    got, wanted = (np.asarray(x, np.float64).ravel() for x in (got, wanted))
    far = np.linalg.norm(got - wanted)
    if not far <= tolerance * np.linalg.norm(wanted):
        raise RuntimeError(f"{how} numbers are off by {far:.3g}, their norm being {np.linalg.norm(wanted):.3g}".strip())


def run(probe, say):
    """All checks: how many failed."""
    failed = 0
    for name in CHECKS:
        check = getattr(probe, name)
        try:
            say(f"ok      {check.__doc__}: {check()}")
        except Exception as error:  # of a driver, a library, this code: it hides no other check
            failed += 1
            say(f"FAILED  {check.__doc__}: {device.brief(error)}")
    say(f"{len(CHECKS) - failed} of {len(CHECKS)} checks passed")
    return failed


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.environ.get("OUT") or ".", metavar="FOLDER")
    options = parser.parse_args(arguments)
    why = device.chooser.choose("auto", "probe").reason
    if not why.startswith("cuda"):
        print(f"skipped: {why}")
        return 0
    device.useDevice("cuda")
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "probe.txt", "w") as file:

        def say(line):
            print(line, flush=True)
            print(line, file=file, flush=True)

        say(why)
        return min(run(Probe(folder), say), 1)


if __name__ == "__main__":
    sys.exit(main())
