"""GPU executable: a schedule with its GPU memory, as captured graphs and the Python calls between them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.gpu.lower.copylaunch import stored
from puregraph.compile.gpu.lower.gpulowering import GpuTask
from puregraph.compile.gpu.runtime import autotune
from puregraph.compile.gpu.runtime.capture import Section
from puregraph.compile.gpu.runtime.devicearena import DeviceBuffers, DeviceWorkspace, block, emptied
from puregraph.compile.gpu.runtime.h2d import DeviceInputs
from puregraph.compile.gpu.runtime.streamorder import order
from puregraph.compile.gradientbuckets import BucketStart
from puregraph.compile.memory.planner import MemoryPlan
from puregraph.compile.report.steptable import CapturedGraphs
from puregraph.compile.runtime.bind import Bound, Running, bound
from puregraph.compile.trace.abstract import dummy
from puregraph.core import device
from puregraph.core.errors import DeviceError, addLocation
from puregraph.ops.cuda.libraries.librarycall import LibraryCall
from puregraph.ops.cuda.runtime import runner
from puregraph.ops.cuda.runtime.diagnose import lacking
from puregraph.ops.cuda.runtime.launch import TICKETS, PointerTable
from puregraph.ops.cuda.runtime.perdevice import ordinal
from puregraph.ops.gather.labels import fractions
from puregraph.ops.ir.strides import isDense
from puregraph.ops.ir.value import Call, CallOrigin, Offset, Value

if TYPE_CHECKING:
    from puregraph.compile.runtime.buffers import Workspace
    from puregraph.core.device import Array
    from puregraph.core.protocols import AnyArray

POISON_BYTE = 255  # fills memory after its last use: NaN as float, -1 as integer


def fractionsCheck(value: Value) -> Call:
    """The call that refuses an input with elements that are not from 0 to 1."""
    return Call(fractions, (value,), {}, [], "kernel", CallOrigin(value.name, "numbers from 0 to 1"))


class GpuExecutable:
    """The calls of a schedule on the arrays of a plan.

    `parts`    Sections, CuPy calls, and Python calls, in order
    `numbers`  (name, host array) of scalars that the caller sets
    `failed`   the call that raised
    """

    neverWarns, packedWeights = True, None

    def __init__(self, plan: MemoryPlan, workspace: Workspace, poison: bool = False):
        self.schedule, self.plan = plan.schedule, plan
        self.hostUpdate = self.schedule.hostUpdate
        workspace.device = workspace.device or DeviceWorkspace()
        natives = [call.function for call in self.schedule.calls if call.kind.isNative]
        self.checks = {c: native.calls[0] for native in natives for c in native.checks}
        self.checks |= {c: fractionsCheck(c.value) for c in self.schedule.checks}
        self.deviceInputs = DeviceInputs(self.schedule.scalars, self.schedule.inputs, list(self.checks), block)
        self.memory = DeviceBuffers(plan, workspace.device, self.deviceInputs)
        workspace.device.users.add(self)
        self.hostUpdate.bind(self.deviceInputs.number)
        setByUpdate = self.hostUpdate.written()
        self.numbers = [(v.source, self.deviceInputs.number(v)) for v in self.schedule.scalars if v not in setByUpdate]
        self.wanted = [(v.shape, v.dtype) for v in self.schedule.inputs]
        self.objects: dict[int, Any] = {}
        self.starts: dict[int, int] = {}  # the address of a result, by number; 0 if it has gaps
        self.extra: dict[int, Value] = {}  # by id of a Scratch
        self.tables: dict[int, Any] = {}  # GPU memory of tables and tickets, by id
        self.failed: Call | None = None
        self.ordinal = ordinal()
        self.parts: list[tuple[Call | None, Callable[[], Any]]] = []
        self.sections: dict[int, Section] = {}  # by call number
        self.add(poison)
        if poison:
            self.memory.arena[...] = POISON_BYTE

    # Building ---------------------------------------------------------------------------------------------------------

    def add(self, poison: bool) -> None:
        """Bind all calls."""
        ends: dict[int, list[Any]] = {}
        for buffer in self.plan.buffers if poison else ():
            ends.setdefault(buffer.death, []).append(buffer)
        for i, call in enumerate(self.schedule.calls):
            if call.kind.isNative:
                self.launch(call.function.works)
                self.sections[i] = self.section()
            elif isinstance(call.function, BucketStart):
                self.startBucket(i, call)
            elif call.kind.isHost:
                arguments = [None if v is None else self.memory(v) for v in call.arguments]
                self.parts.append((call, partial(call.function, *arguments)))
            elif not call.kind.isView:
                self.parts += [(call, step) for step in self.boundTo(i, call)]
            for buffer in ends.get(i, ()):
                self.section().starts.append(partial(poisoned, *self.memory.region(buffer)))
        for target, value in self.plan.copies:
            self.launch([GpuTask(launch) for launch in stored(value, target.array)])
        for section in {id(s): s for s in self.sections.values() if s.exchange is not None}.values():
            section.starts.append(section.exchange.join)

    def startBucket(self, i: int, call: Call) -> None:
        """Add the start of a bucket, which enqueues launches and library calls on the current and a side stream."""
        section = self.sections[i] = self.section()
        section.exchange = call.function.buckets.device
        arguments = [None if v is None else self.memory(v) for v in call.arguments]
        section.starts.append(partial(call.function, *arguments))
        section.count += 1

    def launch(self, tasks: Sequence[Any]) -> None:
        """Add launches."""
        section = self.section()
        for task in tasks:
            workspace = 0 if task.workspace is None else self.memory.address(task.workspace)
            self.extra.update((id(scratch), value) for scratch, value in task.extra)
            start: Callable[[], None] = partial(runner.start, [task.what], self.operandAddress, workspace)
            if isinstance(task.what, LibraryCall) and autotune.isWanted():
                room = 0 if task.workspace is None else task.workspace.nbytes
                start = autotune.Tuned(task.what, self.operandAddress, workspace, room)
            section.starts.append(start)
        section.count += 1

    def section(self) -> Section:
        """The Section at the end."""
        if not self.parts or type(self.parts[-1][1]) is not Section:
            self.parts.append((None, Section()))
        return self.parts[-1][1]  # type: ignore[return-value]

    def operandAddress(self, what: Any) -> int:
        """The address of a slot's operand."""
        if isinstance(what, Offset):
            return self.memory.address(what.value) + what.bytes
        value = self.extra.get(id(what)) or getattr(what, "value", what)
        if type(value) is Value:
            return self.memory.address(value)
        if value is TICKETS and id(value) not in self.tables:
            self.tables[id(value)] = sys.modules["cupy"].zeros(TICKETS.shape, TICKETS.dtype)
        if value is TICKETS:
            value = self.tables[id(value)]
        if isinstance(value, PointerTable):
            if id(value) not in self.tables:
                self.tables[id(value)] = sys.modules["cupy"].asarray(value.filled(self.operandAddress))
            value = self.tables[id(value)]
        return runner.addressOf(value)

    def boundTo(self, i: int, call: Call) -> list[Callable[[], object]]:
        """Bind a call as calls of CuPy."""
        if call.kind.isOpaque:
            outs = [None if y is None or y.role == "object" else self.memory(y) for y in call.outs]
            operands = [None if v is None or v.role == "object" else self.memory(v) for v in call.arguments]
            return [done(Bound(call, Running(call, outs, self.objects), operands, {}))]
        return list(map(done, bound(call, self.memory, self.plan.overwritten.get(i))))

    def release(self) -> None:
        """Release the memory and the calls bound to it; the program then builds another executable from the plan."""
        self.parts.clear()
        self.sections.clear()
        self.objects.clear()
        self.memory.release()

    def restore(self) -> None:
        """Do nothing: changes by a failed run stay."""

    # Running ----------------------------------------------------------------------------------------------------------

    def takes(self, inputs: Sequence[AnyArray]) -> bool:
        """True if inputs have the expected shapes and dtypes, on the host or on the GPU."""
        if len(inputs) != len(self.wanted):
            return False
        for x, (shape, dtype) in zip(inputs, self.wanted):
            if not (type(x) is np.ndarray or device.isDeviceArray(x)) or x.shape != shape or x.dtype != dtype:
                return False
        return True

    def run(self, inputs: Sequence[Array]) -> bool:
        """Start all parts; the results are in memory once the GPU has finished.

        Raises    the error of a kernel for host integers that are out of bounds; any error of a call, with the call in
                  `failed`; errors of Python calls between them unchanged; DeviceError on another GPU
        """
        if ordinal() != self.ordinal:
            raise DeviceError(
                f"this step was compiled on GPU {self.ordinal}, where its memory is, but GPU {ordinal()} is current: "
                f"run it within `with cupy.cuda.Device({self.ordinal}):`"
            )
        order().follow()
        block = self.deviceInputs.fill(inputs)
        if block is None:
            self.refuse(inputs)
            return False
        self.failed = None
        self.hostUpdate.before()
        self.deviceInputs.put(block, inputs)
        for target in self.schedule.written:
            target.bumpVersion()
        for call, part in self.parts:
            self.failed = None if call is None or call.kind.isHost else call
            if part() is False and call is not None and call.kind.isHost:
                return True
        self.failed = None
        self.hostUpdate.after()
        if self.objects:
            self.objects.clear()
        return True

    def refuse(self, inputs: Sequence[AnyArray]) -> None:
        """Run the numpy reference of a kernel, which raises for its indices."""
        hostInputs = {v.number: x for v, x in zip(self.schedule.inputs, inputs) if not device.isDeviceArray(x)}
        for bounds, call in self.checks.items():
            value = bounds.value
            if value.root.number in hostInputs:
                x = np.ascontiguousarray(hostInputs[value.root.number])
                seen = np.ndarray(value.shape, value.dtype, x, value.offset, value.strides)
                arguments = [seen if a is value else dummy(a) if type(a) is Value else a for a in call.arguments]
                try:
                    call.function.reference(*arguments, **call.options)
                except Exception as error:
                    addLocation(error, f"at '{call.origin.path}' ({call.origin.label})")
                    raise

    def captured(self) -> CapturedGraphs:
        """The captured graphs, and the reasons why some calls were not captured."""
        sections = [part for _, part in self.parts if type(part) is Section]
        graphs = [s for s in sections if s.graph is not None]
        numbers = {i: str(graphs.index(s) + 1) for i, s in self.sections.items() if s in graphs}
        notes = [f"{len(graphs)} graph{'s' * (len(graphs) != 1)} of CUDA"]
        notes += ["the first run will show what can be captured"] if not any(s.hasRun for s in sections) else []
        notes += [f"not captured: {s.why}" for s in sections if s.why]
        notes += lacking()
        return CapturedGraphs(numbers, "; ".join(notes))

    def taken(self, value: Value, copy: bool) -> AnyArray:
        """A result as the user gets it: an array on the GPU, also for a scalar, valid once the GPU has finished."""
        if not copy:
            return self.memory(value)
        start = self.starts.get(value.number)
        if start is None:
            isWhole = isDense(value.shape, value.strides, value.dtype.itemsize)
            start = self.starts[value.number] = self.memory.address(value) if isWhole else 0
        if start == 0:
            return self.memory(value).copy()
        made, cuda = emptied(value.shape, value.dtype, value.strides), sys.modules["cupy"].cuda
        kind, stream = cuda.runtime.memcpyDeviceToDevice, cuda.get_current_stream().ptr
        cuda.runtime.memcpyAsync(made.data.ptr, start, value.nbytes, kind, stream)
        return made


def done(step: Bound) -> Callable[[], object]:
    """A function that makes a CuPy call and discards its result."""

    def make() -> None:
        step.function(*step.arguments, **step.options)

    return make


def poisoned(address: int, size: int) -> None:
    """Fill memory with the poison byte."""
    cuda = sys.modules["cupy"].cuda
    cuda.runtime.memsetAsync(address, POISON_BYTE, size, cuda.get_current_stream().ptr)
