"""The picture of a graph: a box for each node, a frame for each nested graph, an edge for each value that is read."""

from __future__ import annotations

import inspect
import math
import textwrap
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.errors import Fault, FormulaError, plural, show
from puregraph.core.shape import bind, symbols
from puregraph.draw.picture import Picture, PictureBox, PictureEdge, PictureGroup, replaced
from puregraph.graph.analysis.footprint import Footprint
from puregraph.graph.analysis.summary import bytesText, countText
from puregraph.graph.backward import BackwardGraph, ForwardValue, Gradient, readsOf
from puregraph.graph.inference import StepShapes
from puregraph.graph.steps import GraphStep, Steps, inputNames
from puregraph.ops.formula import Formula

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.graph.graph import Graph
    from puregraph.graph.module import Module

MAX_LINE_CHARACTERS = 44  # maximum characters of a line in a box
COSTS = "puregraph.modules.costs"


class GraphValue(NamedTuple):
    """A value in a graph: the box and output that it comes from, its shape and dtype."""

    box: str
    slot: str = ""
    shape: Any = None
    dtype: Any = None


def graphPicture(graph: Any, *shapes: Any, title: str = "") -> Picture:
    """Return a picture of a graph at input shapes; by default at the last inferred ones, or without any shapes."""
    known = list(shapes) or knownShapes(graph)
    if type(graph) is BackwardGraph:
        known = gradientShapes(graph, shapes)
    rows, inshapes = (graph.infer(*known).rows, graph.inferredShapes) if known else ([], [])
    steps = graph.steps(len(inshapes)) if known else graph.steps()
    return GraphDrawing(graph, steps, rows, inshapes, title).picture


def knownShapes(graph: Graph) -> list[Any]:
    """The shapes that a graph was last checked with, or that its inputs declare; empty if some are unknown."""
    if graph.inferredShapes is not None:
        return [list(graph.inferredShapes)]
    declared = [getattr(node.module, "shape", None) if node.module.views else None for node in graph.inputs]
    return [declared] if declared and None not in declared else []


def gradientShapes(graph: Graph, shapes: Any) -> list[Any]:
    """Return the input shapes of a backward graph, from the input shapes of its forward graph."""
    known = list(shapes) or knownShapes(graph.forwardGraph)
    if not known:
        return []
    footprint = Footprint(graph.forwardGraph, *known)
    numbers = [*footprint.steps.outputs, *graph.numbers]
    isSame = footprint.steps is graph.forwardSteps and all(n in footprint.shapes for n in numbers)
    return [[footprint.shapes[n] for n in numbers]] if isSame else []


def framesOf(graph: Graph) -> tuple[dict[str, PictureGroup], set[str]]:
    """Return a frame for every nested graph, and the paths of nodes that other graphs also read."""
    frames: dict[str, PictureGroup] = {}
    shared: set[str] = set()
    waiting = [(graph, "")]
    while waiting:
        outer, path = waiting.pop(0)
        for node, name in outer.paths.items():
            full = f"{path}.{name}" if path else name
            if node.module.isGraph:
                frames[full] = PictureGroup(full, name, path, node.module.brief())
                waiting.append((node.module, full))
            elif any(link.node not in outer.paths for link in node.fwds):
                shared.add(full)
    if type(graph) is BackwardGraph:  # the frames of the forward graph
        for name, group in framesOf(graph.forwardGraph)[0].items():
            parent = group.parent and f"grad:{group.parent}"
            frames[f"grad:{name}"] = PictureGroup(f"grad:{name}", f"grad:{group.title}", parent, group.module)
    return frames, shared


class GraphDrawing:
    """The picture of a graph while it is built.

    In a backward graph, values of the forward pass and gradients of parameters have no boxes: the nodes that read or
    compute them list them in their text.
    """

    def __init__(self, graph: Graph, steps: Steps, rows: list[StepShapes], inshapes: list[Any], title: str):
        self.graph, self.steps = graph, steps
        self.dtype = np.dtype(graph.dtype or np.float32)
        self.rows = {id(row.step): row for row in rows if row.shapes is not None or row.step in steps.items}
        self.isKnown = bool(rows)
        self.declared = {row.step.args[0]: row.fault for row in rows if row.step in steps.declared and row.fault}
        self.symbols = tuple(dict.fromkeys(s for shape in inshapes for s in symbols(shape)))
        self.sizes = {self.symbols[0]: 1} if len(self.symbols) == 1 else {}
        self.values: dict[int, GraphValue] = {}
        self.owners: dict[int, str] = {}
        self.counted: set[int] = set()
        self.products: dict[tuple[Any, ...], int | None] = {}
        self.said: dict[Any, Any] = {}  # cached descriptions of classes and formulas
        isBack = type(graph) is BackwardGraph
        self.picture = Picture(title or graph.name or (graph.title() if isBack else type(graph).__name__))
        self.picture.groups, self.outside = framesOf(graph)
        self.addInputs(inshapes)
        for step in steps.items:
            self.addStep(step)
        self.addOutputs()
        used = {(edge.source, edge.slot) for edge in self.picture.edges}
        for i, box in enumerate(self.picture.boxes):
            slots = tuple(slot for slot in box.slots if (box.name, slot) in used)
            self.picture.boxes[i] = replaced(box, slots=slots if len(slots) > 1 else ())
        self.picture.notes = tuple(self.notes())

    # Frames, inputs and outputs ---------------------------------------------------------------------------------------

    def groupOf(self, path: str) -> str:
        """The innermost frame around a node."""
        path = f"grad:{path[4:]}" if path.startswith("sum:") else path
        while path:
            path = path.rpartition(".")[0]
            if path in self.picture.groups:
                return path
        return ""

    def nameOf(self, path: str) -> str:
        """The name of a node's box, which begins with the name of the frame around it."""
        group = self.groupOf(path)
        return path if path.startswith(f"{group}.") or not group else f"{group}.sum:{path[len(group) :]}"

    def addInputs(self, inshapes: Sequence[object]) -> None:
        """Add a box for each input."""
        dtypes = self.graph.inputTypes(len(self.steps.inputs))
        held = {n for node, numbers in self.steps.shown if type(node.module) is ForwardValue for n in numbers}
        for i, number in enumerate(self.steps.inputs):
            if number in held:
                continue  # a value of the forward pass
            shape = inshapes[i] if inshapes else None
            name, fault = self.steps.names[number], self.declared.get(number)
            value = GraphValue(f"input {name}", "", shape, dtypes[i])
            self.values[number] = value
            lines = tuple(faultLines(fault)) if fault else ()
            story = (("input", name), ("shape", self.valueText(value)), *faultStory(fault))
            kind = "fault" if fault else "input"
            self.picture.boxes.append(PictureBox(value.box, name, kind, lines, story=story))

    def addOutputs(self) -> None:
        """Add a box for each output."""
        of = self.graph
        count = sum(e is not None for e in of.inputGrads) if type(of) is BackwardGraph else len(of.outputNames)
        for i, (name, number) in enumerate(zip(of.outputNames[:count], self.steps.outputs)):
            value = self.values.get(number)
            if value is None:
                continue
            box = f"output {i}"
            story = (("output", name), ("shape", self.valueText(value)))
            self.picture.boxes.append(PictureBox(box, name, "output", story=story))
            self.addEdge(number, box, "")

    def notes(self) -> list[str]:
        """Return the notes of the graph: its size, its cost, and the sizes that costs are shown for."""
        boxes = self.picture.boxes
        params = list(self.graph.params.values())
        lines = [f"{plural(len(self.steps.items), 'node')}"]
        if params:
            lines[0] += f", {sum(p.size for p in params):,} parameters ({bytesText(sum(p.nbytes for p in params))})"
        flops = [box.flops for box in boxes if box.flops is not None]
        if flops and len(flops) == len(self.steps.items):
            lines[0] += f", {flopText(sum(flops))}{'' if type(self.graph) is BackwardGraph else ' forward'}"
        if self.sizes and self.isKnown:
            lines.append(f"bytes and FLOPs for {self.symbols[0]} = 1")
        faults = sum(box.kind == "fault" for box in boxes)
        if faults:
            lines.append("1 node does not fit its inputs" if faults == 1 else f"{faults} nodes do not fit their inputs")
        return lines

    # One node ---------------------------------------------------------------------------------------------------------

    def addStep(self, step: GraphStep) -> None:
        """Add the box of a node and the edges into it."""
        if type(step.module).__name__ == "Parameter":  # a parameter of a joint graph has no box
            return
        module, row, path, group = step.module, self.rows.get(id(step)), self.nameOf(step.path), self.groupOf(step.path)
        names = module.outputNames
        for i, number in enumerate(step.outs):
            isVisible = i < len(step.visible)
            slot = "" if isVisible and len(names) == 1 else names[i] if isVisible else module.hidden[i - len(names)]
            shape = row.shapes[i] if row and row.shapes is not None and isVisible else None
            dtype = row.dtypes[i] if row and i < len(row.dtypes) else None
            self.values[number] = GraphValue(path, slot, shape, dtype)
        newParams = [p for p in module.params.values() if id(p) not in self.counted]
        self.counted.update(map(id, newParams))
        known = row is not None and row.shapes is not None
        fault = row.fault if row else None
        nbytes = flops = None
        if known and row is not None:
            types = dict(enumerate(row.dtypes))
            made = [] if module.views else [(types.get(i) or self.dtype, s) for i, s in enumerate(row.shapes or [])]
            counts = [(np.dtype(dtype).itemsize, self.number(*shape)) for dtype, shape in made]
            nbytes = None if any(n is None for _, n in counts) else sum(size * n for size, n in counts if n is not None)
            flops = self.number(module.flopsFrom(*row.inshapes))
        box = PictureBox(
            path,
            path[len(group) + 1 :] if group else path,
            self.kindOf(module, fault, known),
            (),
            group,
            params=sum(p.size for p in newParams),
            nbytes=nbytes,
            flops=flops,
            matches=step.path.partition(":")[2],
        )
        lines = self.linesOf(step, box, fault)
        read = {n for n in step.outs if n in self.steps.readValues}
        slots = tuple(self.values[n].slot for n in step.outs if n in read) if len(read) > 1 else ()
        inputs = [(n, name) for n, name in zip(step.args, inputNames(module, step.inputs)) if n in self.values]
        arguments = argumentNames([name for _, name in inputs])
        if isinstance(module, Gradient):  # it uses only the shape of the other values
            read, arguments = set(readsOf(step)), ()
            inputs = [(n, name) for n, name in inputs if n in read]
        story = self.storyOf(step, box, row)
        self.picture.boxes.append(replaced(box, lines=lines, story=story, slots=slots, arguments=arguments))
        grads = step.args[: module.grads] if isinstance(module, Gradient) else step.args
        for (number, _), name in zip(inputs, arguments or [""] * len(inputs)):
            self.addEdge(number, path, name, "" if number in grads else "kept")

    def kindOf(self, module: Module, fault: Fault | None, known: bool) -> str:
        """Return the kind of a module's box, which decides its shape."""
        if fault:
            return "fault"
        if self.isKnown and not known:
            return "unknown"
        if isinstance(module, Gradient):
            return "gradient"
        if type(module).__module__.startswith(COSTS):
            return "cost"
        return "state" if module.states else "module"

    def linesOf(self, step: GraphStep, box: PictureBox, fault: Fault | None) -> tuple[str, ...]:
        """Return the text lines in a box below its name."""
        module = step.module
        lines = textwrap.wrap(module.brief(), MAX_LINE_CHARACTERS)[:3]
        if fault:
            return (*lines, *faultLines(fault))
        if box.kind == "unknown":
            return (*lines, "shape unknown: a fault above")
        costs = costLine(box)
        lines += keptLines(module) if isinstance(module, Gradient) else []
        lines += [costs] if costs else []
        lines += ["computed again"] if step.path.startswith("again:") else []
        owner = self.owners.setdefault(id(module), step.path)
        if owner != step.path and (module.params or module.states):
            lines.append(f"same module as {owner}")
        if getattr(module, "isFrozen", False):
            lines.append("frozen")
        if step.path in self.outside:
            lines.append("read outside of this graph too")
        return tuple(lines)

    def storyOf(self, step: GraphStep, box: PictureBox, row: StepShapes | None) -> tuple[tuple[str, str], ...]:
        """Return all details that a page shows of a node."""
        module = step.module
        rows = [("node", step.path), ("module", repr(module))]
        if row:
            ends = zip(inputNames(module, step.inputs), row.inshapes)
            rows += [("takes", ", ".join(f"{name} {show(s)}" for name, s in ends if s is not None))]
            rows += [("gives", ", ".join(self.valueText(self.values[n]) for n in step.visible))] if row.shapes else []
        stored = {**module.params, **module.states}
        rows += [("stores", ", ".join(f"{name} {show(p.shape)}" for name, p in stored.items()))] if stored else []
        rows += [("costs", costLine(box))] if costLine(box) else []
        formula = getattr(module, "formula", None)
        rows += self.once(formula, formulaStory) if isinstance(formula, Formula) else []
        rows += faultStory(row.fault) if row and row.fault else []
        text = self.once(type(module), inspect.getdoc) or ""
        return (*rows, *((("about", text),) if text else ()))

    def once(self, of: Any, say: Callable[[Any], Any]) -> Any:
        """Return the description of a class or formula, computed once."""
        if of not in self.said:
            self.said[of] = say(of)
        return self.said[of]

    def addEdge(self, number: int, target: str, argument: str, kind: str = "") -> None:
        """Add the edge from a value to one of its readers."""
        value = self.values.get(number)
        if value is not None:
            edge = PictureEdge(
                value.box, target, f"{value.box}:{number}", self.valueText(value), value.slot, argument, kind
            )
            self.picture.edges.append(edge)

    # Texts ------------------------------------------------------------------------------------------------------------

    def valueText(self, value: GraphValue) -> str:
        """The shape of a value, and its dtype if it differs from the graph's."""
        if value.shape is None:
            return "" if value.dtype is None or value.dtype == self.dtype else str(value.dtype)
        isUsual = value.dtype is None or value.dtype == self.dtype
        return show(value.shape) if isUsual else f"{show(value.shape)} {value.dtype}"

    def number(self, *sizes: Any) -> int | None:
        """Return the product of sizes, for one sample if the batch is the only symbol; None if it is unknown."""
        if sizes not in self.products:
            bound = bind(sizes, self.sizes) if self.sizes else sizes
            isKnown = all(isinstance(n, (int, np.integer)) for n in bound)
            self.products[sizes] = math.prod(map(int, bound)) if isKnown else None
        return self.products[sizes]


def keptLines(module: Gradient) -> list[str]:
    """Return the values that a gradient rule reads from the forward pass, and the parameters whose gradients it
    computes."""
    of = module.of
    inputs = inputNames(of, len(module.needed) - len(of.ruleNames))
    names = [*inputs, *of.ruleNames, *of.outputNames, *of.hidden]
    there = module.present[module.grads :] if module.present else [True] * len(names)
    read = [name for name, reads, isThere in zip(names, module.readsData[module.grads :], there) if reads and isThere]
    gradients = [of.ruleNames[i - len(inputs)] for i in module.wanted if i >= len(inputs)]
    lines = [f"keeps {', '.join(dict.fromkeys(read))}"] if read else []
    return [*lines, f"gives d{', d'.join(gradients)}"] if gradients else lines


def argumentNames(names: list[str]) -> tuple[str, ...]:
    """The names of a node's inputs, numbers for a variable number of inputs; empty if the names are not informative."""
    if len(set(names)) == 1:
        return tuple(map(str, range(len(names)))) if len(names) > 2 else ()
    return () if all(len(name) == 1 for name in names) else tuple(names)


def costLine(box: PictureBox) -> str:
    """Return parameters, bytes and FLOPs of a box on one line."""
    costs = [f"{box.params:,} params"] if box.params else []
    costs += [bytesText(box.nbytes)] if box.nbytes else []
    costs += [flopText(box.flops)] if box.flops else []
    return ", ".join(costs)


def flopText(number: int) -> str:
    """A number of operations in three digits: 852 kFLOP."""
    text = countText(number)
    return f"{text}FLOP" if " " in text else f"{text} FLOP"


def faultLines(fault: Fault) -> list[str]:
    """Return the lines of a fault: expected and actual values, their source, and a hint."""
    source = f" from {fault.source}" if fault.source else ""
    lines = []
    for what, text in (("wanted", fault.wanted), ("got", f"{fault.given}{source}"), ("try", fault.hint)):
        lines += textwrap.wrap(f"{what} {text}", MAX_LINE_CHARACTERS, subsequent_indent="  ")[:4] if text else []
    return lines


def faultStory(fault: Fault | None) -> list[tuple[str, str]]:
    """The rows that a page shows for a fault."""
    if fault is None:
        return []
    source = f" from {fault.source}" if fault.source else ""
    rows = [("wanted", fault.wanted), ("got", f"{fault.given}{source}"), ("try", fault.hint)]
    return [(what, str(text)) for what, text in rows if text]


def formulaStory(formula: Formula) -> list[tuple[str, str]]:
    """The rows that a page shows for a formula: its text, and its derivative by each input."""
    rows = [("formula", str(formula))]
    for name in formula.names:
        try:
            rows.append((f"d/d{name}", f"{formula.derivative(name)!s:.400}"))
        except FormulaError:
            continue  # it has no derivative
    return rows


def totals(boxes: list[PictureBox]) -> dict[str, Any]:
    """Add up the costs of boxes; a total is None if one of the costs is unknown."""
    sums: dict[str, Any] = defaultdict(int)
    sums["params"] = sum(box.params for box in boxes)
    for name in ("nbytes", "flops"):
        costs = [getattr(box, name) for box in boxes]
        sums[name] = None if None in costs or not costs else sum(costs)
    sums["count"] = sum(box.count * box.repeats for box in boxes)
    return dict(sums)
