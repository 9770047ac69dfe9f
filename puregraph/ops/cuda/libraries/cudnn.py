"""cuDNN's graphs through NVIDIA's frontend: planned once for a device, cached on disk, and run.

A *task* is a NamedTuple that describes one call completely, without addresses. A planner compiles it to
a plan: the kernels that cuDNN chose and compiled, as bytes, and the workspace they need. Plans can be made without
a GPU, for a device described by its properties; `workspaces.json` has the results for the known models.

Source    NVIDIA, cuDNN frontend 1.32 and cuDNN 9.19 documentation, "Graph API"
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core import device
from puregraph.core.base.cachedproperty import CachedProperty
from puregraph.core.base.environment import variable
from puregraph.core.errors import DeviceError
from puregraph.core.storage import diskcache
from puregraph.ops.cuda.libraries import paths
from puregraph.ops.cuda.libraries.librarycall import LibraryCall, Time
from puregraph.ops.cuda.libraries.workspaces import known
from puregraph.ops.cuda.runtime.perdevice import PerDevice, ordinal

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray, Strided

MAJOR = 9  # cuDNN's major version
HINT = "the extras puregraph[cuda12] and puregraph[cuda13] bring it"
FAILED = "compilation failure"  # cuDNN's text: one kernel does not compile, or its compiler does not work here
TRIED = 10  # proposals that are measured; a convolution has up to 40, the most promising first
DEFAULTSTREAM = 0  # the stream that is never destroyed
OWN = "eng"  # prefix of the names of cuDNN's own plans; the frontend's other plans are compiled when they first run
DATA = {
    "float32": "FLOAT",
    "tf32": "FLOAT",
    "float16": "HALF",
    "bfloat16": "BFLOAT16",
    "float64": "DOUBLE",
    "int64": "INT64",
}
KINDS = ("float32", "float16", "bfloat16", "float64")


class Tensor(NamedTuple):
    """A tensor as cuDNN describes it: strides are in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __str__(self) -> str:
        """64x3x28x28, with the order of its axes in memory if that is another than channels last, or its strides."""
        text = "x".join(map(str, self.shape))
        if self.strides == channelsLast(self.shape):
            return text
        order = sorted(range(len(self.shape)), key=lambda i: -self.strides[i])
        if self.strides == dense(self.shape, order):
            return f"{text}[{''.join(map(str, order))}]"
        return f"{text}[{','.join(map(str, self.strides))}]"


PLAN_ALIGNMENT_BYTES = 16  # bytes: of the addresses that plans are made for


class CudnnPlan(NamedTuple):
    """The plan of a task: cuDNN's serialized plan, and the bytes of workspace."""

    data: bytes
    workspace: int


class CudnnCall(LibraryCall):
    """A task with its arrays. Slots have the order in which the task numbers its tensors, from 1 on."""

    library = "cuDNN"

    def __init__(self, task: Any, slots: tuple[tuple[str, Any], ...]) -> None:
        self.task, self.slots, self.name = task, slots, str(task)
        self.planner: CudnnPlanner | None = None
        self.graph: Any = None

    @property
    def workspace(self) -> int:
        planner = current()
        plan = None if planner is None else planner.plan(self.task)
        if plan is None:
            return known(self.name) or int(getattr(self.task, "expected", 0))
        return plan.workspace

    def prepare(self, addresses: Sequence[int]) -> None:
        planner = current()
        if planner is None:
            raise DeviceError(f"{self.name}: {missing() or device.reason()}")
        plan = planner.plan(self.task)
        if plan is None:
            raise DeviceError(f"cuDNN {planner.label} has no plan for {self.name}")
        self.planner, self.graph = planner, planner.load(plan)

    def run(self, addresses: Sequence[int], workspace: int, stream: int) -> None:
        if self.planner is None:
            self.prepare(addresses)
        self.planner.run(self.graph, addresses, workspace, stream)  # type: ignore[union-attr]

    def tune(self, addresses: Sequence[int], workspace: int, limit: int, stream: int, time: Time) -> None:
        self.prepare(addresses)
        planner: Any = self.planner
        planner.tune(self.task, limit, lambda graph: time(lambda: planner.run(graph, addresses, workspace, stream)))
        self.prepare(addresses)

    def emulate(self, arrays: Sequence[AnyArray]) -> None:
        self.task.emulate(arrays)


class CudnnPlanner:
    """Plans for one device: the GPU in use, or the one described by `properties`, a JSON text.

    `label` distinguishes devices and versions whose plans differ.
    """

    def __init__(self, properties: str = "") -> None:
        c = self.library = library()
        self.handle = None if properties else c.create_handle()
        self.plans: dict[str, CudnnPlan | None] = {}
        self.lock = threading.RLock()
        gpu = json.loads(properties or c.create_device_properties(ordinal()).serialize())
        multiprocessors, version = gpu["multiProcessorCount"], gpu["deviceVer"] // 10
        self.label = f"{c.backend_version_string()} {c.__version__} sm{version} {multiprocessors} {gpu['deviceName']}"
        self.options = {"handle": self.handle}
        if properties:
            self.options = {"device_property": c.create_device_properties(properties), "sm_version": version}

    def plan(self, task: Any) -> CudnnPlan | None:
        """The plan of a task, from memory, from disk or made now; None where cuDNN has none."""
        text = str(task)
        with self.lock:
            if text not in self.plans:
                self.plans[text] = self.fromDisk(text) or self.made(task, text)
            return self.plans[text]

    def fromDisk(self, text: str) -> CudnnPlan | None:
        """The stored plan with its workspace on this GPU; None if it cannot be loaded here. The workspace is asked for
        again, because without a device cuDNN does not know how many multiprocessors share some kernels' work."""
        stored = diskcache.read(self.fileOf(text), workspace=int)
        if stored is None:
            return None
        plan = CudnnPlan(stored[1], stored[0]["workspace"])
        try:
            graph = self.load(plan)
        except Exception:  # another driver or device of that name refuses the plan: the task is planned again
            return None
        return plan if self.handle is None else plan._replace(workspace=graph.get_workspace_size())

    def made(self, task: Any, text: str) -> CudnnPlan | None:
        """Make a plan now and store it; None if cuDNN has none."""
        graph = self.build(task)
        if graph is None:
            return None
        return self.kept(text, CudnnPlan(bytes(graph.serialize(as_bytes=True)), graph.get_workspace_size()))

    def kept(self, text: str, plan: CudnnPlan) -> CudnnPlan:
        """Store a plan, and return it."""
        diskcache.write(self.fileOf(text), {"workspace": plan.workspace, "key": f"{self.label} {text}"}, plan.data)
        return plan

    def fileOf(self, text: str) -> str:
        """The name of a plan's file."""
        return hashlib.blake2b(f"cudnn {self.label} {text}".encode(), digest_size=20).hexdigest()

    def tune(self, task: Any, limit: int, time: Callable[[Any], float]) -> None:
        """Keep the fastest, by `time`, of the first plans that need at most `limit` bytes of workspace."""
        times: list[tuple[float, int, CudnnPlan]] = []
        graph = self.proposed(task)
        for index in range(graph.get_execution_plan_count()):
            if len(times) == TRIED:
                break
            try:
                graph.build_plan_at_index(index)
            except Exception:  # proposals that were left out, or cannot be built
                continue
            plan = CudnnPlan(bytes(graph.serialize(as_bytes=True)), graph.get_workspace_size_plan_at_index(index))
            if plan.workspace <= limit:
                times.append((time(self.load(plan)), index, plan))
        if times:
            with self.lock:
                self.plans[str(task)] = self.kept(str(task), min(times)[2])

    def build(self, task: Any) -> Any:
        """A task as a cuDNN graph with a built plan; None if cuDNN has no plan.

        Raises    DeviceError with cuDNN's message if something else is wrong
        """
        try:
            graph = self.built(task)
        except Exception as error:
            if isinstance(error, self.refusal) and (FAILED not in str(error) or task is PROBE or self.compiles):
                return None
            message = f"cuDNN {self.label} cannot plan {task}; PUREGRAPH_CUDNN=off does without it: {error}"
            raise DeviceError(message) from error
        return graph

    def built(self, task: Any) -> Any:
        """The graph of a task with the first plan within the task's workspace limit, or the first plan if all exceed
        it."""
        room = getattr(task, "room", None)
        if room is not None:
            graph = self.proposed(task)
            graph.deselect_workspace_greater_than(room)
            with suppress(self.refusal):
                graph.build_plans()
                return graph
        graph = self.proposed(task)
        graph.build_plans()
        return graph

    @property
    def refusal(self) -> type[Exception]:
        """The exception of cuDNN if there is no plan."""
        return self.library.cudnnGraphNotSupportedError

    @CachedProperty
    def compiles(self) -> bool:
        """True if cuDNN can compile kernels here, tested on a kernel that it always supports."""
        return self.build(PROBE) is not None

    def proposed(self, task: Any) -> Any:
        """A task as a graph for which cuDNN proposed plans, best first."""
        c = self.library
        graph = self.graph(task)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([c.heur_mode.A, c.heur_mode.FALLBACK])
        graph.deselect_numeric_notes([getattr(c.numerical_note, note) for note in avoided(task)])
        names = [graph.get_plan_name_at_index(i) for i in range(graph.get_execution_plan_count())]
        graph.deselect_engines([name for name in names if not name.startswith(OWN)])
        return graph

    def graph(self, task: Any) -> Any:
        """A task as a graph of cuDNN."""
        c = self.library
        computed = c.data_type.DOUBLE if task.kind == "float64" else c.data_type.FLOAT
        graph = c.pygraph(
            io_data_type=self.data(task.kind),
            intermediate_data_type=computed,
            compute_data_type=computed,
            **self.options,
        )
        task.describe(GraphDraft(self, graph, task.kind))
        return graph

    def data(self, kind: str) -> Any:
        """cuDNN's constant for a dtype."""
        return getattr(self.library.data_type, DATA[kind])

    def load(self, plan: CudnnPlan) -> Any:
        """A stored plan as a graph that can be run."""
        c = self.library
        if self.handle is None:
            graph = c.pygraph(device_property=self.options["device_property"])
            graph.deserialize(plan.data)
        else:
            graph = c.pygraph(handle=self.handle)
            with self.lock:  # cuDNN tries the plan on the handle's stream, and that of the last run may be gone
                c.set_stream(handle=self.handle, stream=DEFAULTSTREAM)
                graph.deserialize(self.handle, plan.data)
        return graph

    def run(self, graph: Any, addresses: Sequence[int], workspace: int, stream: int) -> None:
        """Launch a graph on a stream."""
        with self.lock:
            self.library.set_stream(handle=self.handle, stream=stream)
            graph.execute(dict(enumerate(addresses, 1)), workspace, handle=self.handle)


class Rectifier(NamedTuple):
    """The task of a relu, which cuDNN compiles during planning."""

    kind: str
    x: Tensor
    repeats: bool = True

    def describe(self, draft: GraphDraft) -> None:
        """Write the task into a graph of cuDNN."""
        draft.write(draft.graph.relu(draft.read(self.x)), self.x)


PROBE = Rectifier("float16", Tensor((1, 8, 8, 8), (512, 1, 64, 8)))


class GraphDraft:
    """A graph that a task is being written into: its tensors are numbered as they come, from 1 on."""

    def __init__(self, planner: CudnnPlanner, graph: Any, kind: str) -> None:
        self.planner, self.graph, self.kind, self.count = planner, graph, kind, 0

    def read(self, tensor: Tensor, kind: str = "") -> Any:
        """The next tensor, which is read."""
        self.count += 1
        data = self.planner.data(kind or self.kind)
        return self.graph.tensor(
            uid=self.count,
            name=f"t{self.count}",
            dim=list(tensor.shape),
            stride=list(tensor.strides),
            data_type=data,
        )

    def write(self, made: Any, tensor: Tensor, kind: str = "") -> None:
        """The next tensor, which gets a node's result."""
        self.count += 1
        made.set_output(True).set_uid(self.count).set_dim(list(tensor.shape)).set_stride(list(tensor.strides))
        made.set_data_type(self.planner.data(kind or self.kind))


def avoided(task: Any) -> list[str]:
    """Numerical notes that a task's kernels must not have: rounding float32, summing in less than float32, or being
    nondeterministic."""
    notes = ["NONDETERMINISTIC"] if task.repeats else []
    return notes + (
        ["TENSOR_CORE", "DOWN_CONVERT_INPUTS"] if task.kind == "float32" else ["REDUCED_PRECISION_REDUCTION"]
    )


# Availability -------------------------------------------------------------------------------------------------------


@cache
def library() -> Any:
    """NVIDIA's frontend; loads cuDNN and the libraries that it needs first.

    Raises    DeviceError where one of them is missing
    """
    if not variable("CUDNN", True):
        raise DeviceError("cuDNN is switched off by PUREGRAPH_CUDNN")
    paths.load("cudnn", (MAJOR,), HINT)
    paths.load("cublasLt", hint=f"cuDNN needs it; {HINT}")
    paths.load("nvrtc", hint=f"cuDNN needs it; {HINT}")
    try:
        import cudnn  # optional: the extras cuda12 and cuda13
    except Exception as error:  # an incompatible cuDNN raises other errors than ImportError
        raise DeviceError(f"nvidia-cudnn-frontend cannot be imported: {device.brief(error)}; {HINT}") from error
    return cudnn


@cache
def missing() -> str | None:
    """The reason why cuDNN cannot be used; None if it can."""
    try:
        library()
    except DeviceError as error:
        return str(error)
    return None


class PlannerChoice:
    """The planner set by `usePlanner`, or None for that of the GPU in use."""

    def __init__(self) -> None:
        self.asked: CudnnPlanner | None = None


chooser = PlannerChoice()


def current() -> CudnnPlanner | None:
    """The planner in use; None without a GPU or without cuDNN."""
    if chooser.asked is not None:
        return chooser.asked
    return own() if device.name() == "cuda" and missing() is None else None


@PerDevice
def own() -> CudnnPlanner:
    """The planner of the current GPU."""
    return CudnnPlanner()


def usePlanner(planner: CudnnPlanner | None) -> ExitStack:
    """Use this planner from now on; with `with usePlanner(p):` until the block ends."""
    undo = ExitStack()
    undo.callback(setattr, chooser, "asked", chooser.asked)
    chooser.asked = planner
    return undo


def isPlanned(task: Any) -> bool:
    """True if cuDNN has a plan for a task. Without a planner, the table of known tasks decides; unknown tasks are
    assumed to have one."""
    planner = current()
    if planner is not None:
        return planner.plan(task) is not None
    return device.name() != "cuda" and known(str(task)) is not None


# Shapes -------------------------------------------------------------------------------------------------------------


def dense(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """The strides of an array without gaps, given the order of its axes, the contiguous one last."""
    return tuple([prod(shape[j] for j in order[order.index(i) + 1 :]) for i in range(len(shape))])


def channelsLast(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of an array without gaps, channels last."""
    return dense(shape, [0, *range(2, len(shape)), 1])


def tensor(x: Any, lay: Callable[[Sequence[int]], tuple[int, ...]] = channelsLast) -> Tensor:
    """An array as a tensor of cuDNN; axes of length one get the strides of a usual layout."""
    usual = lay(x.shape)
    strides = [step // x.dtype.itemsize for step in x.strides]
    if all(n == 1 or mine == its for n, mine, its in zip(x.shape, strides, usual)):
        return Tensor(tuple(x.shape), usual)
    return Tensor(tuple(x.shape), tuple(strides))


def areAligned(*arrays: Strided) -> bool:
    """True if arrays, or Values that become arrays, start at the alignment that plans require."""
    starts = [getattr(getattr(x, "value", x), "offset", 0) for x in arrays if x is not None]
    return not any(start % PLAN_ALIGNMENT_BYTES for start in starts)


def isPlain(x: Strided) -> bool:
    """True if an array has a dtype that cuDNN supports, and non-negative strides of whole elements."""
    size = x.dtype.itemsize
    leadsOn = all(step % size == 0 and step >= (n > 1) for n, step in zip(x.shape, x.strides))
    return bool(x.size) and x.dtype.name in KINDS and leadsOn
