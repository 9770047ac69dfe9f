"""Program: a compiled step of a graph, compiled again when the graph or the optimizer changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from puregraph.compile.backend import GPU, NATIVE, NUMPY, backendFor
from puregraph.compile.conform import adaptIntegers, conformed, followFloats
from puregraph.compile.eager import eagerStep, inMode, runAfterFailure, trialRun
from puregraph.compile.fallback import REPORT, isOwn, nodesIn, noteHalves, warnOnce
from puregraph.compile.memory.planner import MemoryPlan
from puregraph.compile.pipeline import schedule
from puregraph.compile.report.steptable import table
from puregraph.compile.results import StepResults, gatherGrads
from puregraph.compile.runtime.buffers import Workspace
from puregraph.compile.runtime.compilelock import compiling
from puregraph.compile.runtime.errstate import raises
from puregraph.compile.runtime.fastpath import fastPathOf
from puregraph.compile.runtime.gc import tidied
from puregraph.compile.runtime.validity import Validity
from puregraph.compile.trace.opaque import AssumedProfile, NotCompiledError, OpenSizesError, UntriedError
from puregraph.compile.trace.schedule import Schedule
from puregraph.compile.trace.steprequest import StepRequest
from puregraph.compile.verify import VerifyError
from puregraph.core.base.dtype import isFloating
from puregraph.core.base.signals import isAsynchronous
from puregraph.core.device import toHost
from puregraph.core.errors import PuregraphError, ShapeError, addLocation, show
from puregraph.core.hooks import HOOKS
from puregraph.core.late import Late
from puregraph.core.machinememory import largeFault
from puregraph.core.opensize import ClosedStepError
from puregraph.graph import Graph
from puregraph.graph.inference import followSizes

if TYPE_CHECKING:
    from puregraph.compile.opensteps import OpenSteps
    from puregraph.core.shape import Shape
    from puregraph.graph.module import Module

MADE = (
    "backend",
    "executable",
    "fastPath",
    "partitioned",
    "current",
    "workspace",
    "results",
)  # attributes that a copy builds again


CALL_BYTES = 8 << 10  # memory of a compiled call with its values and arguments, measured


class Program:
    """A compiled step of a graph for inputs of given shapes; `graph.compile` makes one.

    `graph`      the graph, in the current modes of its modules, or in the mode `train` (True: all train)
    `dtypes`     of the inputs; default: int64 for labels and other indices, otherwise the graph's dtype
    `grads`      None: forward only; "one": backward from the first output, a scalar; or for each output whether its
                 gradient is passed as an extra input
    `optimizer`  updates the parameters at the end of each run
    `budget`     the most bytes that the arena may have; cheap values are computed again to meet it

    Every run first checks the program and compiles it again if something has changed: the graph and its modules, their
    attributes, modes, which parameters are trained, the optimizer's options. Parameters, states and the optimizer's
    arrays are the same arrays that a run of the graph would use.

    The graph runs instead of compiled code for values that are not arrays, while a hook is set (`detect_anomaly`), and
    if numpy is set to raise errors. It also runs if an untraced rule deviates from its trial run (`why` has the
    reason), if compiling fails (with a warning), or if a call fails, to locate the error.

    If sizes depend on the data, the step runs in pieces: a node with such a size runs as Python, the steps before and
    after it as programs, one for each size (`why` names the first such node, `table()` lists the pieces).

    With parameters on a GPU the step runs there, as CUDA graphs from the second run on, and the host does not wait:
    outputs are arrays on the GPU, and a gradient that is not finite is reported some runs later.

    `data` and `grad` of nodes are not set; `Param.grad` is an array that the next run writes to again.
    """

    partitionedType = Late("puregraph.compile.partitioned", "PartitionedGraph")
    optimizerType: Any = Late("puregraph.optimizers.multioptimizer", "MultiOptimizer")
    draw: Any = Late("puregraph.draw.programpicture", "drawProgram")
    plot: Any = Late("puregraph.draw.programpicture", "plotArena")
    profile: Any = Late("puregraph.compile.report.stepprofile", "profile")
    _repr_html_: Any = Late("puregraph.draw.notebook", "programHtml")
    observer: Any = None  # a StepObserver; with one, the steps run one by one

    def __init__(
        self,
        graph: Graph,
        shapes: Sequence[Shape],
        dtypes: Sequence[DTypeLike] | None = None,
        train: bool | None = None,
        poison: bool = False,
        workspace: Workspace | None = None,
        budget: int | None = None,
        openSteps: OpenSteps | None = None,
        **options: Any,
    ):
        self.graph, self.shapes, self.train = graph, [tuple(s) for s in shapes], train
        self.fixedDtypes, self.poison, self.workspace, self.budget = dtypes, poison, workspace or Workspace(), budget
        self.openSteps: Any = openSteps
        self.request = StepRequest(**options)
        self.asking: Any = None  # an optimizer, such as LBFGS, whose update runs the step several times
        self.isAsked = False  # True while that update runs
        if getattr(self.request.optimizer, "asksAgain", False):
            self.asking, self.request = self.request.optimizer, replace(self.request, optimizer=None)
        self.optimizer: Any = self.request.optimizer
        self.grad: Any = None
        self.build()

    # Building ---------------------------------------------------------------------------------------------------------

    def build(self, dtypes: Sequence[Any] | None = None) -> None:
        """Compile; if that is not possible, set `why`, and the graph runs instead."""
        wanted = dtypes or self.fixedDtypes or self.graph.inputTypes(len(self.shapes) or None)
        self.dtypes = list(map(np.dtype, wanted))
        real = next((d for d in self.dtypes if isFloating(d)), np.float32)
        self.isLoose = self.fixedDtypes is None and self.graph.dtype is None
        self.backend, self.executable, self.current, self.isOpened = NUMPY, None, None, False
        self.fastPath: Callable[[Sequence[Any], bool], Any] | None = None
        self.partitioned: Any = None
        self.why, self.untried = "", False
        opened, refused = None, None
        held: list[Any] = []
        unread: set[int] = set()
        reads: list[Any] = []
        with compiling(), inMode(self.modules, self.train), tidied():
            try:
                self.backend = backendFor(self.graph, self.graph.dtype or real)
                if self.backend is not GPU and any(m.precision == "bfloat16" for m in self.modules):
                    noteHalves(self.graph)
                if self.steps.followers:
                    followSizes(self.steps, self.shapes)
                opened = self.openSteps.schedule(self) if self.mayBeOpen else None
                self.isOpened = opened is not None
                schedule = self.schedule() if opened is None else opened
                held, unread, reads = schedule.held, schedule.unread, schedule.reads
                plan = self.backend.plan(schedule, self.budget) if opened is None else self.backend.planOf(opened)
                self.results = StepResults(schedule, self.request)
                self.buildExecutable(plan)
            except ClosedStepError:
                if opened is None:
                    raise
                refused = opened
            except NotCompiledError as error:
                self.executable = None
                self.why, self.untried = str(error), type(error) is UntriedError
                if isinstance(error, OpenSizesError) and not self.scales:
                    self.partitioned = self.partitionedType(self.graph, self.shapes, self.dtypes, self.request)
                if type(error) is NotCompiledError:
                    warnOnce(self.graph, f"{self!r} is not compiled, its graph runs instead: {error}")
            except Exception as error:
                self.executable = None
                if isOwn(error):
                    if isinstance(error, MemoryError):
                        self.refuseLarge()
                    raise
                self.why = f"{nodesIn(error, self.graph)}{type(error).__name__}: {error}"
                warnOnce(self.graph, f"{self!r} cannot be compiled, its graph runs instead: {self.why}; {REPORT}")
            anyMode = self.train is not None
            self.current = Validity(self.graph, self.steps, held, self.optimizer, anyMode, unread, reads)
        if refused is not None:
            self.openSteps.refuse(refused.model)
            self.openSteps = None
            self.build(dtypes)

    def refuseLarge(self) -> None:
        """Raise ShapeError naming the nodes whose outputs are larger than the memory of this machine, if any."""
        faults = []
        for row in self.graph.infer(*self.shapes, dtypes=self.dtypes).rows:
            for shape, dtype in zip(row.shapes or [], row.dtypes):
                fault = None if shape is None else largeFault("an output", shape, dtype or "float32")
                if fault is not None:
                    faults.append(fault._replace(path=row.step.path, module=row.step.label))
        if faults:
            raise ShapeError(*faults)

    def buildExecutable(self, plan: MemoryPlan) -> None:
        """Build an executable of a plan in the workspace."""
        looking = () if self.observer is None else (self.observer,)
        self.executable = self.backend.build(plan, self.workspace, self.poison, *looking)
        isGpu, isAdded = self.backend.name == "gpu", self.request.added
        decides = looking or isGpu or self.results.grads or self.isLoose or isAdded
        self.fastPath = None if decides else fastPathOf(self.executable)

    @property
    def steps(self) -> Any:
        """The steps of the graph now."""
        return self.graph.steps(len(self.shapes) or None)

    @property
    def modules(self) -> list[Module]:
        """The modules of the graph now."""
        return [s.module for s in self.steps.items]

    @property
    def scales(self) -> bool:
        """True if some gradients are stored in float16."""
        return self.backend.halves and any(m.precision == "float16" for m in self.modules)

    @property
    def mayBeOpen(self) -> bool:
        """True if this program may be made from a step with open sizes."""
        isPlain = self.budget is None and self.request.trial is None
        isPlain = isPlain and not self.steps.followers  # the sizes of their states are no open sizes
        return self.openSteps is not None and self.backend is NATIVE and isPlain

    def schedule(self, **changed: Any) -> Schedule:
        """The calls of this step."""
        return self.scheduleFor(self.shapes, **changed)

    def scheduleFor(self, shapes: Sequence[Shape], **changed: Any) -> Schedule:
        """The calls of a step like this one, for other shapes."""
        request = replace(
            self.request, layout=self.backend.layout, keepsComposite=self.backend.keepsComposite, scales=self.scales
        )
        return schedule(self.graph, shapes, self.dtypes, replace(request, **changed))

    def __getstate__(self) -> dict:
        return {k: v for k, v in vars(self).items() if k not in MADE} | {"openSteps": None}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state)
        self.workspace = Workspace()
        self.build()

    # Running ----------------------------------------------------------------------------------------------------------

    def run(self, *inputs: Any, copy: bool = True, **numbers: float) -> Any:
        """Run the step on these inputs; returns the graph's output, or a list of outputs.

        The gradients of inputs are then in `grad`. `numbers` are scalars that the step reads: `scale` multiplies the
        gradients.

        Any thread may call this: programs that share a `workspace` run one after another, and results belong to the
        caller. With `copy=False` the next run, of any thread, may overwrite the outputs. `grad` is always that of the
        last run.

        Raises    ShapeError, DtypeError, DataError for inputs that do not fit; any error that the graph would raise;
                  PuregraphError for a run inside of a run, such as by a signal handler
        """
        if self.asking is not None and not self.isAsked:
            return self.runAsked(inputs, numbers)
        workspace = self.workspace
        with workspace.lock:
            if workspace.isHeld:
                raise workspace.refusal()
            workspace.isHeld = True
            try:
                if self.fastPath is not None and not numbers and self.current and HOOKS.look is None and not raises():
                    result = self.fastPath(inputs, copy)
                    if result is not None:
                        return result
                return self.runChecked(inputs, copy, numbers)
            finally:
                workspace.isHeld = False

    def runAsked(self, inputs: Sequence[Any], numbers: dict[str, float]) -> Any:
        """Run the step, then the optimizer's update, which may run it again; returns the outputs of the first run."""

        def closure() -> float:
            result = self.run(*inputs, copy=True, **numbers)
            return float(toHost(result[0] if isinstance(result, list) else result))

        self.isAsked = True
        try:
            result = self.run(*inputs, copy=True, **numbers)
            self.asking.update(closure)
        finally:
            self.isAsked = False
        return result

    def runFast(self, inputs: Sequence[Any]) -> Any:
        """Run as `run` does if nothing has to be checked or converted, else return None before running anything.

        Nothing else shares the memory of the outputs.
        """
        workspace = self.workspace
        if self.fastPath is None:
            return None
        with workspace.lock:
            if workspace.isHeld:
                raise workspace.refusal()
            workspace.isHeld = True
            try:
                return self.fastPath(inputs, True) if self.current and HOOKS.look is None and not raises() else None
            finally:
                workspace.isHeld = False

    def runChecked(self, inputs: Sequence[Any], copy: bool, numbers: dict[str, float]) -> Any:
        """Run with all checks; the caller holds the workspace until results are copied or in separate memory."""
        if not self.isCurrent():
            self.build()
        elif self.executable is not None and not self.executable.memory.isCurrent:
            with compiling():
                self.buildExecutable(self.executable.plan)
        if self.isLoose:
            followFloats(self, inputs)
        elif self.fixedDtypes is None and not (self.executable is not None and self.executable.takes(inputs)):
            adaptIntegers(self, inputs)
        executable = self.executable
        arrays = inputs if executable is not None and executable.takes(inputs) else conformed(self, list(inputs))
        isElsewhere = arrays is not inputs and executable is not None and not executable.takes(arrays)
        if HOOKS.look is not None or raises() or isElsewhere:
            return self.runEagerly(list(arrays), numbers)
        if self.partitioned is not None:
            return eagerStep(self, arrays, numbers, self.partitioned)
        if executable is None:
            return trialRun(self, arrays, numbers) if self.untried else self.runEagerly(arrays, numbers)
        self.prepare(executable, numbers)
        try:
            if executable.neverWarns:
                isDone = executable.run(arrays)
            else:
                with np.errstate(all="ignore"):
                    isDone = executable.run(arrays)
        except Exception as error:
            if isinstance(error, VerifyError) or executable.failed is None or isAsynchronous(error):
                raise
            origin = executable.failed.origin
            if origin.phase == "update" or (self.request.added and origin.phase != "forward"):
                addLocation(error, f"at '{origin.path}' ({origin.label})")  # the step cannot be repeated
                raise
            return runAfterFailure(self, error, list(arrays), numbers)
        return self.results(self, executable, copy) if isDone else self.runEagerly(list(arrays), numbers)

    def isCurrent(self) -> bool:
        """True if nothing has changed since compiling."""
        if not self.current:
            self.request = replace(self.request, trial=None)
            return False
        return True

    def refresh(self) -> None:
        """Pack all weights again at the next run; needed after a write through a raw address."""
        with self.workspace.lock:
            if self.executable is not None and self.executable.packedWeights is not None:
                self.executable.packedWeights.isStale = True

    def prepare(self, executable: Any, numbers: dict[str, float]) -> None:
        """Write scalars, and gradients to accumulate, to the arrays that the step reads."""
        for name, array in executable.numbers:
            if name in numbers:
                array[...] = numbers[name]
        if self.request.added:
            gatherGrads(executable.schedule)

    @property
    def isAhead(self) -> bool:
        """True if `run` returns before the GPU has finished."""
        return self.backend is GPU

    # Reporting --------------------------------------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        """The size of the arena: the memory of a run besides inputs, outputs, parameters and states."""
        if self.executable is not None:
            return self.executable.plan.bytes
        return self.plan.bytes if self.partitioned is None else self.partitioned.bytes

    @property
    def bytesBeside(self) -> int:
        """An estimate of the memory that a program takes beside the arena: its calls, and weights that it packs."""
        if self.executable is None:
            return CALL_BYTES
        packed = self.executable.schedule.packedWeights
        calls = len(self.executable.schedule.calls) * CALL_BYTES
        return calls + (0 if packed is None else sum(value.nbytes for value in packed.values.values()))

    @property
    def plan(self) -> MemoryPlan:
        """The memory plan of this step; before the first run it assumes results for rules that could not be traced.

        A program that was made from an open step is compiled for its own sizes first, so that its calls have them.

        Raises    PuregraphError if the step is not compiled, with the reason
        """
        if self.untried:
            return planAhead(self)
        with self.workspace.lock:
            if self.isOpened:
                if self.workspace.isHeld:
                    raise self.workspace.refusal()
                self.openSteps = None
                self.build(self.dtypes)
        if self.executable is None:
            hint = "" if self.partitioned is None else "; it runs in pieces, which `table()` lists with their plans"
            raise PuregraphError(f"{self!r} is not compiled: {self.why}{hint}")
        return self.executable.plan

    def table(self) -> str:
        """Every call: node, formula, dtype, shape and layout, bytes, offset, operations; pieces come first."""
        if self.partitioned is not None:
            return self.partitioned.table()
        return table(self.plan, graphs=None if self.executable is None else self.executable.captured())

    def runEagerly(self, inputs: list[Any], numbers: dict[str, float]) -> Any:
        """Run the graph and the optimizer instead of compiled code."""
        return eagerStep(self, inputs, numbers)

    def __repr__(self) -> str:
        return f"<Program of {self.graph.title()} for {', '.join(map(show, self.shapes))}>"


def planAhead(program: Program) -> MemoryPlan:
    """The plan of a step that has not run; rules that could not be traced have the results that shape rules infer."""
    with compiling(), inMode(program.modules, program.train), tidied():
        return program.backend.plan(program.schedule(trial=AssumedProfile()), program.budget)
