"""A tracer for CuPy and the GPU below it: arrays are numpy's, kernels run in the emulator.

It can be broken in each way that real installations are. It counts what a GPU waits for, it logs what the host asks of
it, with the number of graphs that were still to be done then, and while a stream captures it refuses what CUDA refuses: to allocate, to hand numbers to the host, to wait, and to multiply matrices by CuPy.

With `late` a stream does what is put on it only when somebody waits for it, all other streams before it or after it: so
it comes to light if one that has to wait for another does not.
"""

import ctypes
import re
import sys
import weakref
from bisect import bisect
from functools import cache
from types import ModuleType, SimpleNamespace

import numpy as np
from strict import Strict, bare, demandWhole, putCupy

from puregraph.compile.gpu.runtime import capture, d2h, gpuexecutable, h2d, streamorder
from puregraph.core import device
from puregraph.ops.attention import cudnn as attention
from puregraph.ops.convolution import cudnn as convolution
from puregraph.ops.cuda.libraries import cudnn
from puregraph.ops.cuda.runtime import compiler, dependentlaunch, runner
from puregraph.ops.cuda.runtime.launch import Launch
from puregraph.ops.product.cuda import librarygemm
from puregraph.testing.emulator import emulator
from puregraph.testing.emulator.emulator import Region

MAGIC = b"fake cubin\n"
SHARED = re.compile(r"__shared__ char \w+\[(\d+)\]")
KNOWN = capture.capturer, h2d.copier, d2h.sender
PRODUCTS = {np.matmul, np.dot, np.einsum, np.tensordot, np.inner, np.vdot}
CTYPES = {"i4": ctypes.c_int32, "i8": ctypes.c_int64, "f4": ctypes.c_float, "f8": ctypes.c_double}


class CaptureError(RuntimeError):
    """What a GPU does not do while a stream captures."""


class Machine:
    """The memory of a GPU, what was asked of it, and what a stream captures at present (None: it does not)."""

    def __init__(self):
        self.memory = weakref.WeakValueDictionary()
        self.functions = {}  # by their handles
        self.allowed = {}  # bytes of shared memory that kernels may ask for, where that was said
        self.pinned, self.free = {}, {}
        self.captured = None
        self.ordinal = 0  # the GPU that is current
        self.late = ""
        self.streams = weakref.WeakSet()
        self.allocations = self.reads = self.writes = self.waits = self.launches = self.replays = self.copies = 0
        self.done = self.calls = self.dependent = 0
        self.uploads, self.pinnedBytes = [], 0
        self.log = []
        self.total, self.live, self.cached = None, 0, 0  # bytes there are, if that is known, and those in use or kept

    def give(self, size):
        """Take back memory that nobody has any more."""
        self.live -= size

    def note(self, what):
        """What the host did, and how many graphs it had started by then that were still to be done."""
        self.log.append((what, self.replays - self.done))

    def refuse(self, what):
        if self.captured is not None:
            raise CaptureError(f"{what} while a stream captures")

    def own(self, values):
        """Memory that is new counts; a view of known memory does not."""
        root = emulator.rootOf(values)
        address = root.ctypes.data
        if self.memory.get(address) is not root:
            self.refuse(f"memory for {values.dtype}{list(values.shape)} is allocated")
            self.allocations += 1
            self.memory[address] = root

    def find(self, address, pinned=False):
        """The memory that an address lies in."""
        for start, root in [*self.memory.items(), *(self.pinned.items() if pinned else ())]:
            if start <= address < start + max(root.nbytes, 1):
                return root
        raise RuntimeError(f"cudaErrorIllegalAddress: {address:#x}")

    def listed(self, table):
        """The memory that a table has addresses of."""
        starts = {root.ctypes.data: root for root in self.memory.values()}
        keys = sorted(starts)
        whole = flatBytes(table)
        for address in whole[: whole.size // 8 * 8].view(np.int64).tolist():
            place = bisect(keys, address) - 1
            if place >= 0 and address < keys[place] + starts[keys[place]].nbytes:
                yield starts[keys[place]]

    def bytesAt(self, address, count, pinned=False):
        """Some bytes of memory."""
        whole = flatBytes(self.find(address, pinned))
        start = address - whole.ctypes.data
        if start + count > whole.size:
            raise RuntimeError(f"cudaErrorIllegalAddress: {count} bytes at {address:#x}")
        return whole[start : start + count]

    def do(self, action, stream=None):
        """Something on a stream: now, later, or at each launch of the graph that is captured."""
        stream = stream or currentStream()
        if self.captured is not None:
            self.captured.add(action, stream)
        elif self.late:
            stream.queue.append(action)
        else:
            action()

    def finish(self):
        """Have all streams do what was put on them."""
        for stream in sorted(self.streams, key=lambda s: s.ptr != 0, reverse=self.late == "null last"):
            stream.drain(len(stream.queue))

    def copy(self, to, source, count, kind, stream):
        """memcpyAsync, from or to memory of the host that is pinned."""
        to, source = self.bytesAt(to, count, kind == 2), self.bytesAt(source, count, kind == 1)
        self.copies += 1
        self.note({1: "in", 2: "out", 3: "within"}[kind])
        self.do(lambda: np.copyto(to, source), byAddress(stream))

    def allow(self, function, attribute, count):
        """funcSetAttribute."""
        source, entry = self.functions[function].key
        own = compiler.cubin(source, "sm_90").resources[entry].shared
        if own + count > emulator.SHARED_MEMORY_BYTES:
            raise RuntimeError(f"CUDA_ERROR_INVALID_VALUE: {own} + {count} bytes of shared memory for {entry}")
        self.allowed[source, entry] = count

    def set(self, to, value, count, stream):
        """memsetAsync."""
        to = self.bytesAt(to, count)
        self.do(lambda: to.fill(value), byAddress(stream))

    def launch(self, source, entry, grid, block, values, shared, cooperative=False):
        """Start a kernel on numbers and addresses."""
        code = emulator.program(source)
        emulator.demandApart(entry, entry, code, lambda i, j: values[i] == values[j])
        roots = {}
        for i, ((role, _), value) in enumerate(zip(code.wants[entry], values)):
            if role != "n":
                root = self.find(value)
                roots.setdefault(root.ctypes.data, (root, i))
                for each in self.listed(root) if code.wants[entry][i] == ("r", "i8") else ():
                    roots.setdefault(each.ctypes.data, (each, i))
        numbers = [
            CTYPES[np.asarray(v).dtype.str[1:]](v) if isinstance(v, np.generic) else ctypes.c_void_p(v) for v in values
        ]

        def action():
            self.launches += 1
            regions = [Region(root, 1, None, i) for root, i in roots.values() if root.nbytes]
            emulator.call(code, entry, grid, block, shared, numbers, regions, cooperative)

        self.do(action)


def flatBytes(root):
    """All bytes of an array that has its own memory."""
    return root.ravel(order="K").view(np.uint8) if root.nbytes else np.empty(0, np.uint8)


class FakeArray(Strict):
    """An array that numpy cannot read, as CuPy's cannot, in the memory of a machine."""

    machine = Machine()

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        dtype = np.dtype(dtype)
        if memptr is None and strides is not None:
            raise ValueError("memptr is required if strides is given.")
        if memptr is None:
            values = np.ndarray(shape, dtype, strides=strides, order=order)
        else:
            values = np.ndarray(shape, dtype, flatBytes(memptr.mem.root), memptr.offset, strides)
        self.machine.own(values)
        self.values = values

    @classmethod
    def of(cls, values):
        self = object.__new__(cls)
        self.values = np.asarray(values)
        cls.machine.own(self.values)
        return self

    @classmethod
    def perform(cls, function, args, options):
        machine = cls.machine
        if machine.captured is None:
            machine.calls += 1
            machine.finish()
            return super().perform(function, args, options)
        if function in PRODUCTS:
            raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
        out = options.get("out")
        given = out[0] if isinstance(out, tuple) else out
        if given is None:
            machine.refuse(f"{getattr(function, '__name__', function)} makes an array")
        values, target = bare(tuple(args)), given.values
        machine.do(lambda: function(*values, out=target))
        return given

    def __setitem__(self, key, value):
        key, value = bare(key), bare(value)
        demandWhole(self.values, key, value)
        self.machine.do(lambda: self.values.__setitem__(key, value))

    def get(self, stream=None, order="C", out=None):
        """A copy on the host."""
        self.machine.refuse("numbers are handed to the host")
        self.machine.finish()
        self.machine.reads += 1
        self.machine.note("read")
        if out is None:
            return np.array(self.values)
        out[...] = self.values
        return out

    def __reduce__(self):
        return FakeArray.of, (self.values,)

    def __bool__(self):
        return bool(self.get())

    def __float__(self):
        return float(self.get())

    def __int__(self):
        return int(self.get())

    def set(self, values, stream=None):
        """A copy from the host."""
        self.machine.refuse("pageable memory of the host is read")
        self.machine.finish()
        self.machine.writes += 1
        self.values[...] = values

    @property
    def data(self):
        root = emulator.rootOf(self.values)
        return MemoryPointer(
            SimpleNamespace(root=root, ptr=root.ctypes.data), self.values.ctypes.data - root.ctypes.data
        )


class CudaRuntimeError(RuntimeError):
    """What CUDA's runtime refuses, by its number."""

    def __init__(self, status):
        super().__init__(f"error {status} of CUDA")
        self.status = status


class Memory:
    """Bytes outside the pool. With a `total` of the machine there may be too few."""

    def __init__(self, size):
        machine = FakeArray.machine
        if machine.total is not None and machine.live + machine.cached + size > machine.total:
            raise CudaRuntimeError(2)
        self.root = np.full(size, 0xFF, np.uint8)
        machine.live += size
        weakref.finalize(self.root, machine.give, size)
        self.ptr, self.size = self.root.ctypes.data, size
        FakeArray.machine.own(self.root)


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.offset, self.ptr = mem, offset, mem.ptr + offset

    def __add__(self, offset):
        return MemoryPointer(self.mem, self.offset + offset)


class Pinned:
    """Memory of the host that a GPU reads and writes as it goes on. When nobody sees it any more, a pool has it again:
    who has it too early finds other numbers in it."""

    @staticmethod
    def of(size):
        machine, size = FakeArray.machine, max(size, 1)
        machine.pinnedBytes += 1 << (size - 1).bit_length()  # as CuPy's pool does
        free = machine.free.setdefault(size, [])
        root = free.pop() if free else np.full(size, 0xFF, np.uint8)
        machine.pinned[root.ctypes.data] = root
        made = pinnedType(size).from_buffer(root)
        made.root, made.free = root, free
        return made

    @property
    def ptr(self):
        return self.root.ctypes.data

    def __del__(self):
        self.root.fill(0xEE)
        self.free.append(self.root)


class PinnedMemory:
    """A block of its own, of the very size."""

    def __init__(self, size):
        before = FakeArray.machine.pinnedBytes
        self.pointer = Pinned.of(size)
        FakeArray.machine.pinnedBytes = before + size


@cache
def pinnedType(size):
    return type("PinnedBytes", (Pinned, ctypes.c_ubyte * size), {})


class Module:
    """Machine code that is the text itself."""

    def load(self, cubin):
        assert cubin.startswith(MAGIC), "not what the fake compiler makes"
        self.source = cubin[len(MAGIC) :].decode()

    def get_function(self, entry):
        return Function(self, entry)


class Function:
    def __init__(self, module, entry):
        self.module, self.entry, self.key, self.ptr = module, entry, (module.source, entry), id(self)
        FakeArray.machine.functions[self.ptr] = self
        assert entry in emulator.program(module.source).kernels, f"CUDA_ERROR_NOT_FOUND: {entry}"

    def __call__(self, grid, block, args, shared_mem=0, stream=None, enable_cooperative_groups=False):
        machine = FakeArray.machine
        own = compiler.cubin(self.module.source, "sm_90").resources[self.entry].shared
        if shared_mem > machine.allowed.get(self.key, runner.STATIC_SHARED - own):
            raise RuntimeError(f"CUDA_ERROR_INVALID_VALUE: {shared_mem} bytes of shared memory for {self.entry}")
        args = [a.data.ptr if isinstance(a, FakeArray) else a for a in args]
        machine.launch(self.module.source, self.entry, grid, block, args, shared_mem, enable_cooperative_groups)


def launchKernelEx(config, handle, parameters, extra):
    """cuLaunchKernelEx of cuda-bindings: a kernel that may begin before the launch before it has ended must wait for it
    before all else."""
    function = FakeArray.machine.functions[int(handle)]
    source, entry = function.key
    mayOverlap = any(a.value.programmaticStreamSerializationAllowed for a in config.attrs[: config.numAttrs])
    if mayOverlap and not re.search(rf"\b{entry}\s*\([^{{]*{{ {re.escape(dependentlaunch.WAIT)}", source):
        raise RuntimeError(f"{entry} begins while the launch before it still runs, and does not wait for it")
    wants = emulator.program(source).wants[entry]
    addresses = (ctypes.c_void_p * len(wants)).from_address(parameters)
    values = []
    for (role, letters), address in zip(wants, addresses):
        kind = CTYPES[letters.replace("u", "i")] if role == "n" else ctypes.c_void_p
        value = kind.from_address(address).value
        values.append(np.dtype(letters.replace("u", "i")).type(value) if role == "n" else value)
    grid, block = ([getattr(config, f"{of}Dim{axis}") for axis in "XYZ"] for of in ("grid", "block"))
    assert int(config.hStream) == currentStream().ptr, "another stream"
    FakeArray.machine.dependent += 1
    function(tuple(grid), tuple(block), values, shared_mem=config.sharedMemBytes)
    return (sys.modules["cuda.bindings.driver"].CUresult.CUDA_SUCCESS,)


class Captured:
    """What streams capture: actions, each behind others; a stream takes part from the first event of another one that it
    waits for. `ends` has for each stream the actions that its next one comes behind."""

    def __init__(self, origin):
        self.origin, self.actions, self.behind, self.streams = origin, [], [], []
        self.ends = {origin: frozenset()}

    def add(self, action, stream):
        if stream not in self.ends:
            raise CaptureError("something is put on a stream that takes no part in the capture")
        self.behind.append(self.ends[stream])
        self.ends[stream] = frozenset({len(self.actions)})
        self.actions.append(action)
        self.streams.append(stream)

    def fork(self, stream, ends):
        """A stream comes behind some actions."""
        self.ends[stream] = self.ends.get(stream, frozenset()) | ends

    def check(self):
        """Refuse a stream that nobody has joined."""
        seen, left = set(), list(self.ends[self.origin])
        while left:
            number = left.pop()
            seen.add(number)
            left += self.behind[number] - seen
        if any(ends - seen for ends in self.ends.values()):
            raise CaptureError("cudaErrorStreamCaptureUnjoined")

    def inOrder(self, late):
        """The actions in an order that a GPU may do them in: as captured, or those of other streams as late as they may
        be, or as early."""
        left, done = list(range(len(self.actions))), set()
        while left:
            ready = [n for n in left if self.behind[n] <= done]
            own = [n for n in ready if (self.streams[n] is self.origin) == (late == "null first")]
            number = (own if late and own else ready)[0]
            left.remove(number)
            done.add(number)
            yield self.actions[number]


class Graph:
    """What a stream captured; `holds` are the communicators whose calls it has."""

    def __init__(self, captured):
        self.actions = list(captured.inOrder(FakeArray.machine.late))
        for action in self.actions:
            for communicator in getattr(action, "communicators", ()):
                communicator.graphs.add(self)

    def launch(self, stream=None):
        machine = FakeArray.machine
        assert machine.captured is None
        machine.replays += 1
        machine.note("graph")
        for action in self.actions:
            machine.do(action, stream)
        machine.do(self.end, stream)

    def end(self):
        FakeArray.machine.done += 1

    def upload(self, stream=None):
        FakeArray.machine.uploads.append(stream)


class Stream:
    """A stream: what is put on it is done in order, and by `late` not before somebody waits."""

    current = []
    null = None

    def __init__(self, null=False, non_blocking=False):
        self.ptr = 0 if null else id(self)
        self.queue, self.done = [], 0
        FakeArray.machine.streams.add(self)

    def drain(self, count):
        """Do what was put here, up to so many things since the beginning."""
        while self.done < count:
            action, self.queue[self.done] = self.queue[self.done], None
            self.done += 1
            action()

    def __enter__(self):
        Stream.current.append(self)
        return self

    def __exit__(self, *fault):
        Stream.current.pop()

    def use(self):
        Stream.current[:] = [self]
        return self

    def begin_capture(self, mode=None):
        machine = FakeArray.machine
        if self.ptr == 0:
            raise RuntimeError("cudaErrorStreamCaptureUnsupported: the null stream does not capture")
        machine.refuse("another capture begins")
        machine.captured = Captured(self)

    def end_capture(self):
        machine = FakeArray.machine
        captured, machine.captured = machine.captured, None
        captured.check()
        return Graph(captured)

    def is_capturing(self):
        captured = FakeArray.machine.captured
        return captured is not None and self in captured.ends

    def synchronize(self):
        FakeArray.machine.refuse("a stream is waited for")
        FakeArray.machine.waits += 1
        self.drain(len(self.queue))
        FakeArray.machine.note("wait")

    def record(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        """Go on when the event has come."""
        machine = FakeArray.machine
        if event.captured is not None:
            if event.captured is not machine.captured:
                raise CaptureError("an event of a capture is waited for outside of it")
            machine.captured.fork(self, event.mark)
            return
        machine.refuse("another stream is waited for")
        stream, count = event.mark
        machine.do(lambda: stream.drain(count), self)


def currentStream():
    """The stream in use."""
    return Stream.current[-1] if Stream.current else Stream.null


def byAddress(ptr):
    """The stream of an address."""
    return next(stream for stream in FakeArray.machine.streams if stream.ptr == ptr)


class Event:
    """A mark in a stream."""

    def __init__(self, *options, **more):
        self.ptr, self.mark, self.machine = id(self), (Stream.null, 0), FakeArray.machine
        self.captured = None

    def record(self, stream=None):
        stream = stream or currentStream()
        captured = self.machine.captured
        self.captured = captured if captured is not None and stream in captured.ends else None
        self.mark = (stream, len(stream.queue)) if self.captured is None else captured.ends[stream]

    @property
    def done(self):
        self.refuse("an event is asked")
        stream, count = self.mark
        return stream.done >= count

    def refuse(self, what):
        """What an event of a capture cannot be asked, nor any while a stream captures."""
        self.machine.refuse(what)
        if self.captured is not None:
            raise CaptureError(f"{what}, which was captured")

    def synchronize(self):
        self.refuse("an event is waited for")
        self.machine.waits += 1
        stream, count = self.mark
        isOpen = count > stream.done
        stream.drain(count)
        self.machine.note("wait" if isOpen else "pass")


class Ordinal:
    """A GPU by its index, or the current one; all have the same memory here."""

    compute_capability, pci_bus_id = "90", "0000:00:00.0"
    attributes = {"MultiProcessorCount": 132, "CooperativeLaunch": 1, "MaxSharedMemoryPerBlockOptin": 227 << 10}

    def __init__(self, index, synchronize):
        self.id, self.synchronize = FakeArray.machine.ordinal if index is None else index, synchronize

    def __enter__(self):
        self.before, FakeArray.machine.ordinal = FakeArray.machine.ordinal, self.id
        return self

    def __exit__(self, *fault):
        FakeArray.machine.ordinal = self.before


class Cupy(ModuleType):
    """The module: functions that it has not of its own are numpy's, on its arrays."""

    ndarray = FakeArray

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        function = getattr(np, name)
        if not callable(function) or isinstance(function, type):
            return function

        return lambda *args, **options: FakeArray.perform(function, args, options)


def makeCupy(available=True, fault=None, wrong=0.0, late="", driver=13000):
    """A module like cupy: with a GPU or not, raising `fault` from its kernels, or off by `wrong`; `driver` is the CUDA
    that the driver is for, 0 for none; `late` as above: "null first" or "null last" says when the null stream does what
    was put on it."""
    cupy = Cupy("cupy")
    machine = FakeArray.machine = Machine()
    machine.late = late
    Stream.null = Stream(null=True)
    cupy.__version__ = "14.2.0"
    cupy.machine = machine

    def asarray(values, dtype=None):
        if fault:
            raise fault
        if isinstance(values, FakeArray):
            return values if dtype is None else values.astype(dtype, copy=False)
        machine.refuse("pageable memory of the host is read")
        machine.writes += 1
        return FakeArray.of(np.array(values, dtype))

    def asnumpy(array):
        values = array.get()
        return values + wrong if wrong else values

    def synchronize():
        machine.refuse("the device is waited for")
        machine.waits += 1
        machine.finish()
        machine.note("wait")

    def ascontiguousarray(array, dtype=None):
        x = array if dtype is None else array.astype(dtype, copy=False)
        return x if x.flags.c_contiguous else x.copy()

    cupy.asarray = cupy.array = asarray
    cupy.asnumpy, cupy.ascontiguousarray = asnumpy, ascontiguousarray
    cupy.empty = lambda shape, dtype=float, order="C": FakeArray(shape, dtype, order=order)
    cupy.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: setattr(machine, "cached", 0))
    cupy.cuda = SimpleNamespace(
        is_available=lambda: available,
        Device=lambda index=None: Ordinal(index, synchronize),
        runtime=SimpleNamespace(
            getDeviceProperties=lambda index: {"name": b"Toy GPU"},
            runtimeGetVersion=lambda: 13020,
            driverGetVersion=lambda: driver,
            deviceSynchronize=synchronize,
            CUDARuntimeError=CudaRuntimeError,
            memGetInfo=lambda: (machine.total - machine.live - machine.cached, machine.total),
            memcpyAsync=machine.copy,
            memsetAsync=machine.set,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
        ),
        function=SimpleNamespace(Module=Module, Function=Function),
        driver=SimpleNamespace(funcSetAttribute=machine.allow, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8),
        Stream=Stream,
        Event=Event,
        Graph=Graph,
        Memory=Memory,
        MemoryPointer=MemoryPointer,
        alloc=lambda size: MemoryPointer(Memory(max(size, 1)), 0),
        alloc_pinned_memory=Pinned.of,
        PinnedMemory=PinnedMemory,
        PinnedMemoryPointer=lambda memory, offset: memory.pointer,
        get_current_stream=currentStream,
    )
    return cupy


def pretended(source, arch):
    """What takes the place of a cubin; memory that blocks share it has as far as the text declares it in bytes."""
    shared = sum(map(int, SHARED.findall(source)))
    names = emulator.ENTRY.findall(source)
    return compiler.Cubin(MAGIC + source.encode(), {name: compiler.Resources(32, 0, 0, shared) for name in names})


def useCupy(monkeypatch, **faults):
    """Have a fake CuPy imported, and texts compiled to what it runs."""
    cupy = makeCupy(**faults)
    putCupy(monkeypatch, cupy)
    monkeypatch.setattr(compiler, "cubin", pretended)
    monkeypatch.setattr(runner, "ALLOWED", {})
    for each in (*KNOWN, runner.architecture, runner.function, runner.module, streamorder.order):
        monkeypatch.setattr(each, "known", {})
    monkeypatch.setattr(Stream, "current", [])
    return cupy


def useGpu(monkeypatch, libraries=True, **faults):
    """Have a fake GPU in use; `libraries` says whether cuBLASLt and cuDNN have plans, which numpy carries out."""
    cupy = useCupy(monkeypatch, **faults)
    monkeypatch.setattr(device, "chooser", device.DeviceChooser())
    device.useDevice("cuda")
    cupy.machine.reads = cupy.machine.writes = 0
    for module, name in ((librarygemm, "isPossible"), (convolution, "isPlanned"), (attention, "isPlanned")):
        monkeypatch.setattr(module, name, lambda task: libraries)
    monkeypatch.setattr(cudnn, "current", lambda: None)
    monkeypatch.setattr(librarygemm.Product, "workspace", 1 << 10)
    monkeypatch.setattr(gpuexecutable.GpuExecutable, "add", prepared(gpuexecutable.GpuExecutable.add))
    for call in (librarygemm.Product, cudnn.CudnnCall):
        monkeypatch.setattr(call, "prepare", lambda self, addresses: None)
        monkeypatch.setattr(call, "run", runLibrary)
    return cupy


def prepared(add):
    """What adds the calls of a step, with all their texts compiled at once before."""

    def adds(self, poison):
        works = [work.what for call in self.schedule.calls if call.kind.isNative for work in call.function.works]
        emulator.prepare(each.source for each in works if isinstance(each, Launch))
        add(self, poison)

    return adds


def runLibrary(self, addresses, workspace, stream):
    """A library's call, in numpy."""
    machine = FakeArray.machine
    if isinstance(self, cudnn.CudnnCall) and any(address % cudnn.PLAN_ALIGNMENT_BYTES for address in addresses):
        raise RuntimeError(f"CUDNN_STATUS_NOT_SUPPORTED_MISALIGNED_POINTER: {self.name}")
    if self.workspace:
        machine.bytesAt(workspace, self.workspace)
    arrays = [arrayAt(address, what) for address, (_, what) in zip(addresses, self.slots)]

    def action():
        with np.errstate(all="ignore"):
            self.emulate(arrays)

    machine.do(action, byAddress(stream))


def arrayAt(address, what):
    """What lies at an address, seen as something that has shape, dtype and strides."""
    root = flatBytes(FakeArray.machine.find(address))
    dtype = np.uint16 if what.dtype.name == "bfloat16" else what.dtype
    return np.ndarray(what.shape, dtype, root, address - root.ctypes.data, what.strides)
