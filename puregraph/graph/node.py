"""Node: one use of a Module in a graph. A link is an edge from an output of one node to an argument of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.accumulate import accumulate, isValue, needPlain, shapeOf
from puregraph.core.applied import Applied, asGrads, isMarked
from puregraph.core.base.align import readOnly
from puregraph.core.base.dtype import isNumeric
from puregraph.core.base.fingerprint import fingerprint
from puregraph.core.errors import (
    DataError,
    DtypeError,
    Fault,
    GraphError,
    PuregraphError,
    ShapeError,
    addLocation,
    plural,
    show,
)
from puregraph.core.hooks import HOOKS
from puregraph.core.linkednode import Edge, LinkedNode, kindOf
from puregraph.core.machinememory import needOutputs
from puregraph.core.rules import RuleContext, gradientRule, readBy
from puregraph.core.shape import FreshSymbols, withValues
from puregraph.graph.rulecalls import forwardCall, gradientCall

if TYPE_CHECKING:
    from puregraph.core.linkednode import Parents
    from puregraph.core.protocols import AnyArray
    from puregraph.core.shape import Shape
    from puregraph.graph.module import Inputs, Module

NUMERIC = (
    "puregraph.modules.",
    "puregraph.modules.costs.",
    "puregraph.graph.pointwise",
)  # modules that compute only with numbers


def refuseLarge(error: Exception, module: Module, inputs: Sequence[Any], path: str, label: str) -> None:
    """Raises    ShapeError in place of the error of a rule whose outputs are larger than the memory of this machine"""
    if isinstance(error, PuregraphError) or not isinstance(error, (MemoryError, ValueError, OverflowError)):
        return
    try:
        needOutputs(module, *([getattr(x, key, None) for x in inputs] for key in ("shape", "dtype")))
    except ShapeError as fault:
        raise located(fault, path, label) from None
    except Exception:  # the rule's own error is raised
        return


class Node(LinkedNode):
    """One use of a Module in a graph, and the values of its last pass.

    `bwds` are the links to its parents, `fwds` to its children. `data` is the output of the last forward pass (a list
    for several), `grad` the gradient of its inputs (likewise).

    `parents`   None, a Node, `(node, slots)`, or a list of them. Slots are an output's index or name, or a list.
    `keywords`  parents for arguments given by name.
    `rule`      the name of a registered gradient rule to use here in place of the module's own.
    """

    __slots__ = ("grad", "inshapes", "made", "shape", "values")

    def __init__(
        self,
        mod: Any,
        parents: Parents = None,
        name: str | None = None,
        rule: str | None = None,
        keywords: dict[str, Any] | None = None,
    ):
        self.made: Any = None  # the output; `data` returns a read-only view, because gradient rules read it later
        self.grad: Any = None
        self.values: Applied | None = None
        self.inshapes: list[Any] = []
        self.shape: Any = None
        super().__init__(mod, parents, name, rule, keywords)

    # Forward ----------------------------------------------------------------------------------------------------------

    def forward(self, data: Any | None = None) -> None:
        """Run this node on `data` and every later node whose parents all have data."""

        def visit(node: Node) -> None:
            if node is self:
                node.updateData(data)
            elif all(link.node.made is not None for link in node.bwds):
                node.updateData(None)

        Node.traverseForward(self, visit)

    def updateData(self, data: Any) -> None:
        """Apply the module to `data` (with parents: to their outputs), and store the outputs in `data`.

        The gradient of an earlier pass is forgotten.

        Raises    ShapeError, with the node's path, if the shapes do not fit; DataError if a parent has no data yet
        """
        spec = self.module.inputSpec
        if self.bwds:
            inputs = [None if edge is None else self.read(*edge) for edge in self.sources]
        else:
            inputs = spec.fill(data, self)
        self.checkInputs(inputs, spec)
        shapes = [None if x is None else shapeOf(x) for x in inputs]
        try:
            self.module.dataShapeFrom(*shapes)
            self.module.followSizes(*shapes)
            stored = dict(zip(self.module.ruleNames, self.module.ruleParams()))
            arguments = inputs + [None if p is None else p.materialize() for p in stored.values()]
            result = forwardCall(self.module, arguments, len(inputs))
            outputs = result if type(result) is tuple else (result,)
            if HOOKS.look is not None:
                HOOKS.look(self.name, self.module, arguments, outputs)
        except ShapeError as error:
            raise located(error, self.name, self.label) from None
        except Exception as error:
            refuseLarge(error, self.module, inputs, self.name, self.label)
            addLocation(error, f"at '{self.name}' ({self.label}): given {show(shapes)}")
            raise
        visible = outputs[: len(self.module.outputNames)]
        ends = [*zip(spec.names, inputs), *zip(repeat(spec.names[-1]), inputs[len(spec.names) :])] if inputs else []
        saved = self.saved([*ends, *zip(self.module.outputNames, visible)], stored)
        self.values = Applied(arguments, outputs, self.module.isTraining, saved)
        self.grad = None
        self.made = visible[0] if len(visible) == 1 else list(visible)

    def read(self, parent: Node, slot: int) -> AnyArray | None:
        """One output of a parent.

        Raises    DataError if it has none yet
        """
        if parent.values is None:
            raise DataError(
                f"at '{self.name}' ({self.label}): its parent '{parent.name}' ({parent.label}) has no data yet: "
                "run that first, or call forward on each input, which waits for all parents of a node"
            )
        return parent.output(slot)

    def checkInputs(self, inputs: list[Any], spec: Inputs) -> None:
        """Refuse missing inputs and unsupported values; for numeric modules, also arrays of anything but numbers."""
        names, optional, _ = spec
        takesNumbers = type(self.module).__module__.startswith(NUMERIC)
        for i, x in enumerate(inputs):
            name = names[min(i, len(names) - 1)]
            if x is None:
                if not self.bwds and name not in optional:
                    raise DataError(f"at '{self.name}' ({self.label}): wanted an array for {name}, got None")
            elif not isValue(x):
                where = f"at '{self.name}' ({self.label})"
                if isinstance(x, (list, tuple)) and all(map(isValue, x)):
                    raise DataError(f"{where}: wanted {plural(len(names), 'input')} ({', '.join(names)}), got {len(x)}")
                needPlain(x, f"{where}, {name}")
                raise DataError(f"{where}: wanted arrays, got {kindOf(x)} for {name}; use np.array")
            elif takesNumbers and (isinstance(x, str) or type(x) is np.ndarray and not isNumeric(x.dtype)):
                kind = kindOf(x) if isinstance(x, str) else f"dtype {x.dtype}; convert with .astype('float32')"
                where = f"at '{self.name}' ({self.label})"
                raise DtypeError(f"{where}: wanted an array of real numbers for {name}, got {kind}")
        dtypes = {x.dtype for x in inputs if type(x) is np.ndarray}
        if self.module.masks or len(dtypes) > 1 or any(dtype.kind in "iub" for dtype in dtypes):
            try:
                self.module.dataTypeFrom(*[getattr(x, "dtype", None) for x in inputs])
            except DtypeError as error:
                faults: list[Fault | str] = [atNode(fault, self.name, self.label) for fault in error.faults]
                raise DtypeError(*(faults or [f"at '{self.name}' ({self.label}): {error}"])) from None

    def saved(self, arrays: list[tuple[str, Any]], stored: dict[str, Any]) -> list[tuple[str, Any, Any]]:
        """Marks or fingerprints, by name, of the values that the gradient rule reads, to detect later changes."""
        reads = readBy(self.module, self.rule)
        marks = [(name, x, fingerprint(x)) for name, x in arrays if reads is None or name in reads]
        return marks + [(n, p, p.mark()) for n, p in stored.items() if isMarked(p) and (reads is None or n in reads)]

    def output(self, slot: int) -> Any:
        """One output of the last forward pass; hidden ones included."""
        visible = self.made if isinstance(self.made, list) else [self.made]
        return visible[slot] if slot < len(visible) or self.values is None else self.values.outputs[slot]

    @property
    def data(self) -> Any:
        """The output of the last forward pass: an array, or a list of them.

        It is read-only, because gradient rules read it too.
        """
        return list(map(readOnly, self.made)) if isinstance(self.made, list) else readOnly(self.made)

    def dataShapeFrom(self, inshapes: dict, shapes: dict, onmodule: Callable | None = None) -> None:
        """Infer this node's output shape from `shapes` (of nodes so far) or `inshapes` (of input nodes); needs no data.

        Both map a node, or its name, to a shape (a list for several); the result is stored in
        `shapes[self]`. `onmodule(module, inshape)` is called after the module's own rule.
        """
        if self.bwds:
            inputShapes = [None if edge is None else shapeAt(edge[0], edge[1], shapes) for edge in self.sources]
        else:
            inshape = lookup(inshapes, self)
            inputShapes = list(inshape) if isinstance(inshape, list) else [inshape]
        try:
            inferred = self.module.dataShapeFrom(*inputShapes)
        except ShapeError as error:
            raise located(error, self.name, self.label) from None
        outs = withValues(self.module, inputShapes, inferred if isinstance(inferred, list) else [inferred])
        outs = FreshSymbols(s for s in inputShapes if isinstance(s, tuple)).named(self.name, self.module, outs)
        shapes[self] = outs if isinstance(inferred, list) else outs[0]
        self.inshapes, self.shape = inputShapes, shapes[self]
        if onmodule is not None:
            onmodule(self.module, inputShapes[0] if len(inputShapes) == 1 else inputShapes)

    # Backward ---------------------------------------------------------------------------------------------------------

    def backward(
        self,
        grad: AnyArray | None = None,
        updParamGrads: bool = True,
        updGrad: bool = True,
        scale: float = 1.0,
        momentum: float = 0.0,
    ) -> None:
        """Back-propagate from this node, the last of its branch, to its first nodes.

        `scale`, `momentum`: each parameter's gradient becomes scale * new + momentum * old; a parameter that several
        nodes use gets the sum of theirs.
        """
        branch: list[Node] = []
        Node.traverseBackward(self, branch.append)
        inside = set(branch)
        if updParamGrads:
            wanting = [p for node in branch for p in node.module.params.values() if node.module.wants(p)]
            for param in {id(p): p for p in wanting}.values():
                param.store(None, momentum=momentum)
        for node in branch:
            out = grad if node is self and grad is not None else node.buildOutGrad(grad, inside)
            node.pullBack(out, updParamGrads, updGrad or bool(node.bwds), scale, 1.0)

    def updateGrad(
        self,
        grad: AnyArray | None,
        updParamGrads: bool = True,
        updGrad: bool = True,
        scale: float = 1.0,
        momentum: float = 0.0,
    ) -> None:
        """Compute the gradients of the module's parameters and inputs from its output gradient.

        `grad`      the output gradient of a node without readers; with readers, `buildOutGrad` sums theirs
        `updGrad`   whether to compute the input gradient; a node with parents always does, because they need it
        `momentum`  as in `backward`, but for this node alone: if several nodes in a walk share a module, 1.0 adds their
                    gradients and 0.0 keeps that of the last node; `backward` always adds them

        Raises    PuregraphError if there was no forward pass, or the module's mode has changed since
        """
        if self.fwds:
            grad = self.buildOutGrad(grad)
        self.pullBack(grad, updParamGrads, updGrad or bool(self.bwds), scale, momentum)

    def pullBack(self, grad: Any, updParamGrads: bool, updGrad: bool, scale: float, momentum: float) -> None:
        """Run the gradient rule on this output gradient, regardless of readers, and store its results."""
        if self.values is None:
            raise PuregraphError(f"at '{self.name}' ({self.label}): backward needs a forward pass first")
        self.values.check(self.module, self.name)
        arguments, outputs = self.values[:2]
        params = self.module.ruleParams()
        count = len(arguments) - len(params)
        self.grad = None
        needs = self.module.needs(arguments[:count], updGrad, updParamGrads)
        grads: tuple = (None,) * len(arguments)
        if any(needs) and not isNothing(grad):
            try:
                rule = gradientRule(self.module, needs, self.rule, RuleContext(self))
                result = gradientCall(self.module, rule, needs, grad, [*arguments, *outputs])
                grads = asGrads(result, len(arguments), self.label)
                if HOOKS.look is not None:
                    HOOKS.look(self.name, self.module, [grad, *arguments, *outputs], grads, True)
            except Exception as error:
                addLocation(error, f"at '{self.name}' ({self.label}), backward")
                raise
        if updGrad:
            self.grad = grads[0] if count == 1 else list(grads[:count])
        for param, new, needed in zip(params, grads[count:], needs[count:], strict=True):
            if needed:
                param.store(new, scale, momentum, alias=new is grad)

    def buildOutGrad(self, grad: Any | None = None, inside: set[Node] | None = None) -> Any:
        """The gradient of the output (a list where there are several): the sum over its readers, or `grad` if none.

        `inside` limits the readers to those nodes.
        """
        readers = list(dict.fromkeys(link.node for link in self.fwds if inside is None or link.node in inside))
        if not readers:
            return grad
        totals: list[Any] = [None] * len(self.module.outputNames)
        for reader in readers:
            for (node, slot), new in reader.routed(reader.grad):
                if node is self and new is not None and slot < len(totals):
                    totals[slot] = new if totals[slot] is None else accumulate(totals[slot], new)
        return totals[0] if len(totals) == 1 else totals

    def routeInGrad(self, grad: Any) -> Any:
        """Sort the input gradients, or their shapes, by parent: `grad` itself for a node without parents.

        Each parent's entry is the gradient of its output, summed over the edges to it; of a parent with several outputs
        it is a list with one entry per output, None for outputs that this node does not read.
        """
        if not self.bwds:
            return grad
        table: dict[Any, list[Any]] = {}
        for (node, slot), new in self.routed(grad):
            totals = table.setdefault(node, [None] * len(node.module.outputNames))
            if new is not None and slot < len(totals):
                isFirst = totals[slot] is None or type(new) is tuple  # gradients of one output have the same shape
                totals[slot] = new if isFirst else accumulate(totals[slot], new)
        return {node: totals[0] if len(totals) == 1 else totals for node, totals in table.items()}

    def routed(self, grad: Any) -> list[tuple[Edge, Any]]:
        """Pairs of edge and gradient (or its shape), one per argument that has an edge."""
        several = isinstance(grad, list)
        return [(e, grad[i] if several else grad) for i, e in enumerate(self.sources) if e is not None]

    def gradShapeFrom(self, outshapes: Shape | list[Shape], shapes: dict) -> None:
        """Infer the shape of this node's `grad`, after `dataShapeFrom`, into `shapes[self]`; no data needed.

        `outshapes` is the shape of the gradient that comes from outside, for a node without readers.

        Raises    ShapeError if `outshapes` is not the shape of the output
        """
        if self.shape is None:
            raise GraphError(f"at '{self.name}' ({self.label}): gradShapeFrom needs dataShapeFrom first")
        try:
            shapes[self] = self.module.gradShapeFrom(self.buildOutGradShape(outshapes, shapes), *self.inshapes)
        except ShapeError as error:
            raise located(error, self.name, self.label) from None

    def buildOutGradShape(self, outshapes: Shape | list[Shape], shapes: dict) -> Shape | list[Shape]:
        """The shape of the output's gradient: that of the output, or `outshapes` for a node without readers."""
        return self.shape if self.fwds or outshapes is None else outshapes

    def reset(self) -> None:
        """Forget the values of the last pass, and the marks of walks."""
        self.made = self.grad = self.values = None
        self.fwdVisited = self.bwdVisited = False


def located(error: ShapeError, path: str, label: str, source: str = "") -> ShapeError:
    """Return the same error, with a location for every fault without one."""
    return ShapeError(*(atNode(fault, path, label, source) for fault in error.faults))


def atNode(fault: Fault, path: str, label: str, source: str = "") -> Fault:
    """Return a fault with its node, unless it already has one."""
    path = f"{path}.{fault.path}" if fault.path else path
    return fault._replace(path=path, module=fault.module or label, source=fault.source or source)


def lookup(table: dict, node: Node) -> Any:
    """Look up a node in a table by node or by name."""
    entry = table.get(node, table.get(node.name))
    if entry is None:
        raise GraphError(f"no shape is known for '{node}': give it in the dictionary, or visit its parents first")
    return entry


def isNothing(grad: Any) -> bool:
    """True if no output has a gradient."""
    return grad is None or isinstance(grad, list) and all(g is None for g in grad)


def shapeAt(node: Node, slot: int, shapes: dict) -> Shape:
    """Return the shape of one output of a node, including hidden ones."""
    shape, count = lookup(shapes, node), len(node.module.outputNames)
    if slot >= count:
        return node.module.hiddenShapeFrom(*node.inshapes)[slot - count]
    return shape[slot] if isinstance(shape, list) else shape
