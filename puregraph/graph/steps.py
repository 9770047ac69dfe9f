"""Steps: a graph unfolded into one flat list of rule calls over numbered values, which every execution uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.accumulate import isArray
from puregraph.core.base.cachedproperty import CachedProperty
from puregraph.core.base.widen import forwardRule, hasBfloat16
from puregraph.core.errors import GraphError, PuregraphError, ShapeError, addLocation, show
from puregraph.core.hooks import HOOKS
from puregraph.core.machinememory import needOutputs
from puregraph.core.param import DerivedKind
from puregraph.core.rules import readBy
from puregraph.graph.node import Node, located
from puregraph.graph.rulecalls import NativeRules, nativeRule

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.graph.module import Module

ABSENT = 0  # the number of the value None, for omitted optional inputs and parameters


class GraphStep:
    """One call of a module's rule, over numbered values.

    `args` are the numbers of its inputs (the first `inputs` of them) and parameters, `outs` of its outputs. Other nodes
    may read only the `visible` ones. `frees` are the values that are freed after it, each with a flag if a later step
    still reads its shape. `stored` are the numbers of its parameters and states, `computed` of parameters that other
    steps compute.
    """

    __slots__ = ("args", "computed", "frees", "inputs", "module", "node", "outs", "path", "stored", "visible")

    def __init__(
        self,
        path: str,
        node: Node,
        args: tuple[int, ...],
        outs: tuple[int, ...],
        inputs: int,
        computed: tuple[int, ...] = (),
    ):
        self.path, self.node, self.module = path, node, node.module
        self.args, self.outs, self.inputs, self.computed = args, outs, inputs, computed
        self.stored = tuple([n for n in args[inputs:] if n not in computed]) if computed else args[inputs:]
        self.visible = outs[: len(outs) - len(node.module.hidden)]
        self.frees: tuple[tuple[int, bool], ...] = ()

    @property
    def handed(self) -> list[tuple[str, int]]:
        """The parameters that other steps compute: names and numbers."""
        names = self.module.ruleNames if self.computed else ()
        return [(name, n) for name, n in zip(names, self.args[self.inputs :]) if n in self.computed]

    def call(self, *arguments: Any) -> Any:
        """Call the module's current rule with these arguments."""
        return forwardRule(self.module, arguments, self.inputs)

    @property
    def label(self) -> str:
        return self.module.label

    def __repr__(self) -> str:
        return f"Step({self.path!r}, {self.label}, {list(self.args)} -> {list(self.outs)})"


class Steps:
    """The flat list of steps, with the origin of every value.

    `inputs`   the numbers of the graph's inputs, `outputs` of its outputs
    `params`   (number, module, name) of every parameter and state that a rule takes
    `shown`    (node, numbers) of nodes without a step: inputs and nested graphs
    `keepsData` if true, a run stores every node's `data`
    `producer` the path of the node that makes a value, and `names` a name for every value
    """

    def __init__(self) -> None:
        self.items: list[GraphStep] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.params: list[tuple[int, Any, str]] = []
        self.shown: list[tuple[Node, tuple[int, ...]]] = []
        self.declared: list[GraphStep] = []  # Inputs with a declared shape or dtype
        self.producer: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self.keepsData = True
        self.makesBfloat16 = False  # True if a module such as a Cast makes bfloat16 from other dtypes
        self.count = 1
        self.numbers: dict[tuple[int, str], int] = {}

    @CachedProperty
    def followers(self) -> list[GraphStep]:
        """The steps of modules with states whose shapes have symbols."""
        return [step for step in self.items if step.stored and step.module.followers]

    # Building ---------------------------------------------------------------------------------------------------------

    def new(self, path: str, names: Sequence[str]) -> tuple[int, ...]:
        """Numbers for new values."""
        first = self.count
        for number, name in enumerate(names, first):
            self.producer[number], self.names[number] = path, name
        self.count += len(names)
        return tuple(range(first, self.count))

    def addInputs(self, path: str, names: Sequence[str]) -> tuple[int, ...]:
        numbers = self.new(path, names)
        self.inputs += numbers
        return numbers

    def param(self, module: Any, name: str, path: str) -> int:
        """Return the number of a module's parameter, which is the same at every node of the module."""
        key = (id(module), name)
        if key not in self.numbers:
            (self.numbers[key],) = self.new(path, [f"{path}.{name}"])
            self.params.append((self.numbers[key], module, name))
        return self.numbers[key]

    def derive(self, derived: Any, path: str) -> int:
        """Return the number of a computed parameter; one step computes it for all readers."""
        key = (id(derived), "")
        if key not in self.numbers:
            self.numbers[key] = self.add(path, Node(derived), ())[0]
        return self.numbers[key]

    def add(
        self, path: str, node: Node, inputs: tuple[int, ...], handed: dict[str, int] | None = None
    ) -> tuple[int, ...]:
        """Append a call of the node's module. Returns the numbers of its outputs. `handed` has the values that replace
        parameters, by name."""
        module, ruleNames = node.module, node.module.ruleNames
        self.makesBfloat16 = self.makesBfloat16 or hasBfloat16([module])
        computed = dict(handed or {})
        for name in ruleNames:
            if name not in computed and isinstance(vars(module).get(name), DerivedKind):
                computed[name] = self.derive(vars(module)[name], f"{path}.{name}")
        params = tuple([computed[name] if name in computed else self.param(module, name, path) for name in ruleNames])
        visible = module.outputNames
        names = [path] if len(visible) == 1 else [f"{path}.{n}" for n in visible]
        outs = self.new(path, [*names, *[f"{path}.{n}" for n in module.hidden]])
        self.items.append(GraphStep(path, node, inputs + params, outs, len(inputs), tuple(computed.values())))
        return outs

    def declare(self, path: str, node: Node, args: tuple[int, ...]) -> None:
        """Record the declaration of a value by an Input."""
        self.declared.append(GraphStep(path, node, args, args, 1))

    def unfold(self, inner: Steps, path: str, inputs: tuple[int, ...]) -> tuple[int, ...]:
        """Append all steps of a nested graph, under its path. Returns the numbers of its outputs."""
        moved = {ABSENT: ABSENT, **dict(zip(inner.inputs, inputs, strict=True))}
        for node, numbers in inner.shown:
            if all(n in moved for n in numbers):
                self.shown.append((clone(node), tuple(moved[n] for n in numbers)))
        for step in inner.items:
            if isinstance(step.module, DerivedKind):
                moved[step.outs[0]] = self.derive(step.module, f"{path}.{step.path}")
                continue
            handed = {name: moved[n] for name, n in step.handed if not isinstance(vars(step.module)[name], DerivedKind)}
            args = tuple(moved[n] for n in step.args[: step.inputs])
            outs = self.add(f"{path}.{step.path}", clone(step.node), args, handed)
            moved.update(zip(step.outs, outs, strict=True))
        for step in inner.declared:
            self.declare(f"{path}.{step.path}", step.node, (moved[step.args[0]],))
        return tuple(moved[n] for n in inner.outputs)

    @CachedProperty
    def readValues(self) -> set[int]:
        """Return the values that steps read as inputs or computed parameters, and the outputs."""
        read = {n for step in self.items for n in (*step.args[: step.inputs], *step.computed)}
        return read.union(self.outputs)

    @CachedProperty
    def saved(self) -> tuple[list[int], list[tuple[int, Any, str]]]:
        """The values that gradient rules read and a user can modify: inputs and outputs by number, and parameters."""
        read: set[int] = set()
        for step in self.items:
            reads, module = readBy(step.module, step.node.rule), step.module
            names = [*inputNames(module, step.inputs), *module.ruleNames, *module.outputNames]
            numbers = (*step.args, *step.visible)
            read.update(n for n, name in zip(numbers, names) if reads is None or name in reads)
        ends = [n for n in dict.fromkeys((*self.inputs, *self.outputs)) if n in read]
        return ends, [row for row in self.params if row[0] in read]

    def freeAfterLastUse(self, reads: Callable[[GraphStep], Iterable[int]]) -> None:
        """Have every run free each value after the last step that reads its data, and leave nodes no data.

        `reads` gives the values whose data a step reads; one that only asks the shape of a freed value gets an outline.
        """
        self.keepsData = False
        read = {ABSENT, *self.inputs, *self.outputs, *(number for number, _, _ in self.params)}
        asked: set[int] = set()
        for step in reversed(self.items):
            last = {*reads(step), *step.outs} - read
            step.frees = tuple((n, n in asked) for n in sorted(last))
            read |= last
            asked.update(step.args)

    # Running ----------------------------------------------------------------------------------------------------------

    def leaves(self, data: list[Any], stored: dict[int, Any] | None) -> list[Any]:
        """The values before a pass, by number: inputs, parameters and states."""
        values: list[Any] = [None] * self.count
        for number, x in zip(self.inputs, data, strict=True):
            values[number] = x
        if stored is None:
            for number, module, name in self.params:
                param = getattr(module, name)
                if param is not None:
                    array = param.array
                    values[number] = param.materialize() if array is None else array
        else:
            for number, x in stored.items():
                values[number] = x
        return values

    def run(self, data: list[Any], stored: dict[int, Any] | None = None, outside: int | None = None) -> list[Any]:
        """Run one pass, and return every value by number. All state of the pass is local to this call.

        The first `outside` values of the data (None: all) are external, the others come from another pass.

        `stored` has parameters and states by number, in place of those of the modules; nodes then store no values.
        """
        values = self.leaves(data, stored)
        step: Any = None
        keeps = self.keepsData and stored is None
        look = HOOKS.look
        isPlain = not (self.makesBfloat16 or hasBfloat16(data[:outside], values))
        valueOf, least = values.__getitem__, NativeRules.leastBytes
        isSmall = isPlain and not any(x.nbytes >= least for x in values if type(x) is np.ndarray)
        native = nativeRule() if isPlain and not isSmall else None  # from the first large value on
        try:
            for step in self.items:
                outs = step.outs
                result = None if native is None else native(step.module, [values[i] for i in step.args])
                if result is None:
                    rule = step.module.updateData if isPlain else step.call
                    result = rule(*map(valueOf, step.args))
                if type(result) is not tuple:
                    result = (result,)
                if len(result) != len(outs):
                    raise GraphError(f"updateData gave {len(result)} outputs, its class names {len(step.outs)}")
                if step.stored:
                    for y in result:
                        if type(y) is np.ndarray and y.base is not None:
                            result = apart(result, [values[i] for i in step.stored])
                            break
                for number, y in zip(outs, result):
                    values[number] = y
                    if isSmall and type(y) is np.ndarray and y.nbytes >= least:
                        isSmall, native = False, nativeRule()
                if look is not None:
                    look(step.path, step.module, [values[i] for i in step.args], result)
                if keeps:
                    visible = len(step.visible)
                    step.node.made = result[0] if visible == 1 else list(result[:visible])
                else:
                    for number, asked in step.frees:
                        values[number] = shapeOnly(values[number]) if asked else None
                    result = y = None
        except ShapeError as error:
            raise located(error, step.path, step.label) from None
        except Exception as error:
            explain(error, step, [values[i] for i in step.args])
            raise
        for node, numbers in self.shown if keeps else ():
            node.made = values[numbers[0]] if len(numbers) == 1 else [values[n] for n in numbers]
        return values


def explain(error: Exception, step: GraphStep, values: list[AnyArray]) -> None:
    """Add the step to the error of its rule.

    Raises    ShapeError in place of a foreign error, if the step does not accept these shapes
    """
    shapes = [getattr(x, "shape", None) for x in values]
    types = [getattr(x, "dtype", None) for x in values]
    fault = None if isinstance(error, PuregraphError) else misfitOf(step, shapes, types)
    if fault is not None:
        raise fault from None
    addLocation(error, f"at '{step.path}' ({step.label}): given {show(shapes)}")


def misfitOf(
    step: GraphStep, shapes: list[tuple[int, ...] | None], types: Sequence[np.dtype | None] = ()
) -> ShapeError | None:
    """The error of a step whose shape rule refuses these shapes, once sizes that depend on the data are there.

    Outputs that are larger than the memory are refused as well.
    """
    try:
        needOutputs(step.module, shapes[: step.inputs], types[: step.inputs])
    except ShapeError as error:
        return located(error, step.path, step.label)
    except Exception:
        return None  # the rule has raised an error itself
    return None


def apart(result: tuple, stored: list[AnyArray | None]) -> tuple:
    """A rule's results; views of a parameter or state are copied, so that no result shares its memory."""
    kept = [a for a in stored if type(a) is np.ndarray]
    return tuple(
        [y.copy() if type(y) is np.ndarray and any(np.may_share_memory(y, a) for a in kept) else y for y in result]
    )


def inputNames(module: Module, count: int) -> list[str]:
    """The name of each of `count` inputs; a variadic module's inputs share one name."""
    names = module.arguments
    return [names[min(i, len(names) - 1)] for i in range(count)]


def shapeOnly(x: Any) -> AnyArray | None:
    """A zero-stride stand-in with x's shape and dtype; other values are returned unchanged."""
    return spread(x, x.shape, x.dtype) if isArray(x) else x


def spread(like: AnyArray | None, shape: tuple[int, ...], dtype: np.dtype) -> AnyArray:
    """Return zeros that take the memory of a single one, on the device of `like`."""
    zero = np.zeros_like(like, shape=(1,), dtype=dtype).reshape(())  # CuPy takes shape=() for none
    return np.broadcast_to(zero, shape)


def clone(node: Node) -> Node:
    """Clone a node for another use of its module, as for the nodes of a nested graph in the surrounding graph."""
    copy = Node(node.module)
    copy.rename, copy.original = (
        node.rename,
        node,
    )  # the constructor refuses names with dots, which segments have
    return copy
