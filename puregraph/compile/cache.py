"""Cache: `graph.compile(...)`, and the compiled programs of a graph by shapes and dtypes."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from puregraph.compile.opensteps import OpenSteps
from puregraph.compile.program import Program
from puregraph.compile.runtime.buffers import Workspace
from puregraph.compile.trace.costchecks import warnOf
from puregraph.compile.trace.withcost import withCost
from puregraph.core.arguments import Bytes, Flag, ModuleLike, Optimizers, Types, takes
from puregraph.core.errors import GraphError, GraphWarning, need, plural
from puregraph.core.errors.userwarning import warnUser
from puregraph.core.machinememory import memoryBytes
from puregraph.graph import Graph
from puregraph.graph.module import shapesOf

if TYPE_CHECKING:
    from puregraph.optimizers.optimizer import Optimizer

SHAPES_AT_FIRST_USE = 4  # this many shapes are compiled at first use, later ones when they come a second time
KEPT_SHARE = 16  # programs take at most one part in this many of the machine's memory, beside their arena
MIN_KEPT_BYTES = 256 << 20  # but this much on any machine
MAX_GPU_PROGRAMS = 32  # maximum number of programs kept on a GPU, where each has kernels and graphs for its sizes
UNUSED_BATCHES = 512  # a program unused for this many batches may be replaced
MAX_COUNTED_SHAPES = 4096  # maximum number of shapes whose uses are counted


class Programs:
    """The programs of one graph by shapes and dtypes; all of them share one arena.

    Programs for more shapes are made from the `OpenSteps` of the first ones, in a few milliseconds. Where these do not
    hold, a training step on a CPU is compiled for each shape at first use: kernels are shared, and it runs eagerly many
    times slower. Of other steps only the first few shapes are, later ones when they come a second time. Once programs
    fill the memory that is theirs, the least recently used one makes room; without open steps, other shapes run eagerly
    until a program has been unused for long: compiling shapes again and again as they alternate would take longer than
    running them. A warning says so once. `check` checks the shapes first.
    """

    def __init__(self, graph: Graph, check: Callable[[list[Any]], None] | None = None):
        self.graph, self.check, self.workspace = graph, check, Workspace()
        self.kept: OrderedDict[Any, Program] = OrderedDict()
        self.seen: Counter[Any] = Counter()
        self.used: dict[Any, int] = {}  # the index of the last batch, by key
        self.count = 0
        self.hasWarned = False
        self.openSteps: dict[Any, OpenSteps] = {}
        self.around: Callable[[list[Any]], AbstractContextManager] = nullcontext  # context to build a program in

    def __getstate__(self) -> dict:
        return {"graph": self.graph, "check": self.check}

    def __setstate__(self, state: dict) -> None:
        Programs.__init__(self, **state)

    def get(self, arrays: Sequence[Any], isAlways: bool = False, **options: object) -> Program | None:
        """The program for arrays like these; None if compiling one does not pay yet (`isAlways`: compile it now)."""
        shapes, dtypes = [x.shape for x in arrays], [x.dtype for x in arrays]
        key = *shapes, *dtypes, *[(k, v if isinstance(v, (bool, str, tuple)) else id(v)) for k, v in options.items()]
        with self.workspace.lock:
            if isAlways:
                self.seen[key] += 1
            return self.getKnown(key, shapes, dtypes, options)

    def getKnown(self, key: Any, shapes: list[Any], dtypes: list[Any], options: dict[str, Any]) -> Program | None:
        """The program of a key, compiled by one thread at a time."""
        self.count += 1
        program = self.kept.get(key)
        if program is None:
            if len(self.seen) >= MAX_COUNTED_SHAPES:
                self.seen.clear()
            self.seen[key] += 1
            openSteps = self.openSteps.setdefault((tuple(map(len, shapes)), key[len(shapes) :]), OpenSteps())
            isOpen = bool(openSteps.steps)
            isFirst = self.seen[key] == 1 and len(self.kept) >= SHAPES_AT_FIRST_USE
            if isFirst and not isOpen and not self.compilesNew(options):
                return None
            if self.check is not None:
                self.check(shapes)
            if self.isFull and not self.evictOldest(isOpen):
                return None
            with self.around(shapes):
                program = self.kept[key] = Program(
                    self.graph, shapes, dtypes, workspace=self.workspace, openSteps=openSteps, **options
                )
        self.kept.move_to_end(key)
        self.used[key] = self.count
        return program

    def compilesNew(self, options: dict[str, Any]) -> bool:
        """True if a step is compiled for shapes at first use: for training, with kernels that sizes share."""
        last = next(reversed(self.kept.values()))
        return options.get("grads") is not None and last.executable is not None and not last.isAhead

    @property
    def isFull(self) -> bool:
        """True if no more programs fit: on a CPU into their memory, on a GPU into their number."""
        if self.kept and next(reversed(self.kept.values())).isAhead:
            return len(self.kept) >= MAX_GPU_PROGRAMS
        size = sum(program.bytesBeside for program in self.kept.values())
        return size >= max(MIN_KEPT_BYTES, memoryBytes() // KEPT_SHARE)

    def evictOldest(self, isOpen: bool) -> bool:
        """Drop the least recently used program if it has been unused for long; warn the first time none is.

        With open steps it is dropped at once: making it again takes little.
        """
        oldest = next(iter(self.kept))
        if isOpen or self.count - self.used[oldest] > UNUSED_BATCHES:
            del self.kept[oldest], self.used[oldest]
            return True
        if not self.hasWarned:
            self.hasWarned = True
            warnUser(
                f"{self.graph.title()}: its inputs come in more than {len(self.kept)} shapes, for which programs "
                "are kept; batches of others run eagerly, which is slower. Pad them to fewer shapes, or sort them by "
                "length",
                GraphWarning,
            )
        return False


@takes(
    cost=ModuleLike | None,
    optimizer=Optimizers | None,
    train=Flag | None,
    dtypes=Types | None,
    budget=Bytes | None,
)
def compile(
    graph: Graph,
    *shapes: Any,
    cost: Any = None,
    optimizer: Optimizer | None = None,
    train: bool | None = None,
    dtypes: Sequence[Any] | None = None,
    sampleWeight: Any = None,
    **options: Any,
) -> Program:
    """A Program for inputs of these shapes: `program.run(*inputs)` returns the outputs of the graph, but runs faster.

    `shapes`     the shapes of the inputs, or one list of them; with a cost, followed by the shapes of its targets
    `cost`       is joined to the graph: the outputs are then the cost and the graph's outputs, and every run also
                 leaves the gradients of the cost in `Param.grad`
    `optimizer`  updates the parameters at the end of each run: those of the part that it was set up on, else all; a
                 dict has one for each pattern of paths, see `MultiOptimizer`
    `train`      the mode of all modules: True or False; None: True with a cost, otherwise their current modes. True
                 without a cost takes the gradients of the outputs as extra inputs (1 if the output is one number), and
                 leaves the gradients of the inputs in `program.grad`
    `dtypes`     one for each shape; default: int64 for labels and other indices, otherwise the graph's dtype
    `sampleWeight`  the shape (n,) of sample weights for the cost; they are the last input of the program

    Raises    ShapeError if the shapes do not fit; GraphError for an optimizer without a cost, or if the numbers of
              dtypes and shapes differ; PuregraphError for an optimizer that was set up on another network
    """
    inputShapes = shapes[0] if len(shapes) == 1 and isinstance(shapes[0], list) else shapes
    weights = [] if sampleWeight is None else shapesOf(sampleWeight)
    allShapes = [s for shape in inputShapes for s in shapesOf(shape)] + weights
    for shape in allShapes:
        need(all(type(n) is int for n in shape), "sizes to compile for", shape, "give a number for each symbol")
    if weights and cost is None:
        raise GraphError(f"{graph.title()}: sampleWeight needs a cost, got none; pass cost=")
    if dtypes is not None and len(dtypes) != len(allShapes):
        raise GraphError(
            f"{graph.title()}, compile: expected {plural(len(allShapes), 'dtype')}, one for each of its shapes, "
            f"got {len(dtypes)}; leave dtypes out for those of the graph"
        )
    net = graph
    grads: str | tuple[bool, ...] | None = None
    if cost is not None:
        inputs = len(graph.inputs)
        net = withCost(graph, cost, inputs, len(allShapes) - inputs, bool(weights))
        warnOf(net, cost, allShapes)
        grads, train = "one", True if train is None else train
        options.setdefault("updGrad", False)
    elif optimizer is not None:
        outputs = graph.dataShapeFrom(allShapes)
        if outputs != ():
            raise GraphError(f"{graph.title()}: an optimizer needs one number to minimize: give a cost")
        grads, train = "one", True if train is None else train
    elif train:
        outputs = graph.dataShapeFrom(allShapes)
        grads = "one" if outputs == () else (True,) * (len(outputs) if isinstance(outputs, list) else 1)
    if isinstance(optimizer, dict):
        optimizer = Program.optimizerType(optimizer)
    if optimizer is not None:
        getattr(optimizer, "setupFor", optimizer.setupOn)(graph)
    return Program(net, allShapes, dtypes, train, grads=grads, optimizer=optimizer, **options)
