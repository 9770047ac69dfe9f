"""Graph tracer: trace each rule of a graph into calls; a rule that cannot be traced becomes an opaque call."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from puregraph.compile.trace.memo import MemoEntry, MemoKeys
from puregraph.compile.trace.numpyrules import readerOf
from puregraph.compile.trace.opaque import NotCompiledError, OpaqueRule, RuleProfile, outputsOf
from puregraph.compile.trace.purity import Read, readsOf, rebound, withTracers
from puregraph.compile.trace.recorder import RecordedArray, RecordedMemory, Recorder, UnreadableError
from puregraph.compile.weightgather import WeightGather
from puregraph.core.base.align import addressOf
from puregraph.core.base.signals import isAsynchronous
from puregraph.core.base.widen import forwardRule
from puregraph.core.device import toHost
from puregraph.core.param import FixedState, Param, State, Stored
from puregraph.graph.function import FunctionCall
from puregraph.graph.steps import GraphStep
from puregraph.ops.ir.value import Call, CallOrigin, Value, comparable

RuleResults = tuple[list[Any], list[tuple[int, Value]]]


class GraphTracer:
    """Traces the rules of a graph, one after another.

    `unread`  the ids of modules with an opaque rule
    `trial`   the results of opaque rules, if they have run
    `stored`  every Param and State by its id, with its first Value; `now`: its present Value
    `weights` weights that are sharded across processes; forward and backward gather them on first use
    """

    def __init__(self, trial: RuleProfile | None = None, weights: Any = None):
        self.recorder, self.trial, self.weights = Recorder(readerOf), trial, weights
        self.gathered: dict[int, Value] = {}  # by parameter id
        self.unread: set[int] = set()
        self.reads: list[Read | ConstantRead | WeightGather] = []  # what rules read besides their arguments
        self.stored: dict[int, tuple[Any, Value]] = {}
        self.now: dict[int, Value] = {}
        self.states: dict[int, int] = {}  # the number of a State's value -> the State's id
        self.keys = MemoKeys()
        self.known: dict[Any, MemoEntry] = {}  # rules that were traced so far

    def held(self, stored: Any, name: str) -> Value:
        """The present Value of a Param, a State, or another target."""
        if isinstance(stored, FixedState) and stored.isAhead:
            read = ConstantRead(stored)
            self.reads.append(read)
            return self.recorder.constant(read.elements)
        if self.weights is not None and self.weights.has(stored):
            return self.gather(stored, name)
        key = id(stored)
        if key not in self.now:
            array, isState = arrayOf(stored, name), isinstance(stored, State)
            role = "param" if isinstance(stored, Param) else "state"
            value = self.recorder.value(array.shape, array.dtype, array.strides, role, name, stored)
            self.stored[key] = stored, value
            self.setValue(key, value, isState)
        return self.now[key]

    def gather(self, param: Param, name: str) -> Value:
        """The Value of a sharded weight, gathered from all processes."""
        if id(param) not in self.gathered:
            function = WeightGather(self.weights, param)
            self.reads.append(function)
            made = self.recorder.made(function, (), {}, "other", param.shape, param.dtype)
            made.name = name
            self.gathered[id(param)] = made
        return self.gathered[id(param)]

    def setValue(self, key: int, value: Value, isState: bool = True) -> None:
        """Set the Value of a Param or State from now on."""
        self.now[key] = value
        if isState:
            self.states[value.number] = key

    def targets(self) -> list[tuple[Any, Value]]:
        """Every Param, State and other target, with its first Value.

        Raises    NotCompiledError if two of them share memory: a store to one would change the other
        """
        pairs = list(self.stored.values())
        spans = sorted([(*spanOf(stored.array), value.name) for stored, value in pairs])
        for (_, end, firstName), (begin, _, secondName) in pairwise(spans):
            if begin < end:
                raise NotCompiledError(
                    f"wanted memory of their own for '{firstName}' and '{secondName}', which share some; copy one"
                )
        return pairs

    @property
    def changes(self) -> list[tuple[Any, Value]]:
        """Every State that rules have changed, with its new Value."""
        return [(stored, self.now[key]) for key, (stored, first) in self.stored.items() if self.now[key] is not first]

    # One rule ---------------------------------------------------------------------------------------------------------

    def rule(self, step: GraphStep, values: list[Any], phase: str) -> list[Any]:
        """The Values of a rule's results, from the Values of its arguments; None stays None."""
        shapes = tuple([None if v is None else v.shape for v in values])
        precision = getattr(step.module, "of", step.module).precision
        self.recorder.origin = CallOrigin(step.path, step.label, shapes, phase, precision)
        calls = self.recorder.calls
        mark = len(calls)
        try:
            results, changes = self.traceOnce(step, values) if isTrusted(step) else self.traceTwice(step, values)
        except Exception as error:  # the rule raises the same error when it runs
            if isAsynchronous(error):
                raise
            del calls[mark:]
            self.unread.add(id(getattr(step.module, "of", step.module)))
            results, changes = self.addOpaque(step, values, str(error))
        for i, value in changes:
            self.setValue(self.states[values[i].number], value)
        return results

    def traceOnce(self, step: GraphStep, values: list[Any]) -> RuleResults:
        """Run a rule on tracers, or clone the calls of an equal rule traced before."""
        key = self.keys(step.module, values)
        noted = self.known.get(key)
        if noted is not None:
            return noted.again(self.recorder, values)
        mark = len(self.recorder.calls)
        results, changes = self.read(step, values)
        self.known[key] = MemoEntry(self.recorder.calls[mark:], values, results, changes)
        return results, changes

    def read(self, step: GraphStep, values: list[Any], module: Any = None) -> RuleResults:
        """Run a rule on tracers: its results, and the new Values of States. `module` replaces the step's module."""
        if isinstance(step.module, FunctionCall):
            raise UnreadableError("a Function may do more than compute")
        handles = [self.recorder.handle(v) for v in values]
        result = forwardRule(module or step.module, handles, step.inputs)
        results = [self.taken(y) for y in (result if type(result) is tuple else (result,))]
        if len(results) != len(step.outs):
            raise UnreadableError("the number of results differs from what the class declares")
        changes = []
        for i, (value, handle) in enumerate(zip(values, handles)):
            if type(handle) is RecordedArray and handle.current is not value:
                if value.number not in self.states:
                    raise UnreadableError("a rule writes to an argument")
                changes.append((i, handle.value))
        return results, changes

    def traceTwice(self, step: GraphStep, values: list[Any]) -> RuleResults:
        """Run a rule on tracers twice and check that it repeats the same calls without side effects."""
        calls, module = self.recorder.calls, getattr(step.module, "of", step.module)
        rules = [module.updateData, getattr(step.module, "rule", None) or module.updateData]
        reads = readsOf(rules, module)
        if id(module) in self.unread or reads is None:
            raise UnreadableError("a rule may depend on more than its arguments")
        mark, before = len(calls), dict(vars(module))
        attributes = {name: self.recorder.attribute(before[name], name) for name in reads.arrays}
        tracers = {name: RecordedArray(self.recorder, v, RecordedMemory()) for name, v in attributes.items()}
        traced = self.withTracers(step.module, tracers) if tracers else step.module
        self.read(step, values, traced)
        once = signature(calls[mark:])
        del calls[mark:]
        outcome = self.read(step, values, traced)
        now = vars(module)
        if signature(calls[mark:]) != once or now.keys() != before.keys() or any(now[k] is not before[k] for k in now):
            raise UnreadableError("a rule makes different calls each time")
        if any(tracers[name].current is not value for name, value in attributes.items()):
            raise UnreadableError("a rule writes to an array that its module holds")
        if not all(read.isSame for read in reads.records):
            raise UnreadableError("a rule changes what it reads")
        self.reads += reads.records
        return outcome

    def withTracers(self, module: Any, tracers: dict[str, Any]) -> Any:
        """A step's module with tracers in place of arrays; for a gradient step, inside the forward module too."""
        of = getattr(module, "of", None)
        if of is None:
            return withTracers(module, tracers)
        inner = withTracers(of, tracers)
        return withTracers(module, {"of": inner, "rule": rebound(module.rule, of, inner)})

    def taken(self, y: Any) -> Any:
        """The Value of a result."""
        if y is None:
            return None
        if type(y) is RecordedArray:
            return y.current
        if isinstance(y, (np.ndarray, np.generic)):
            return self.recorder.constant(y)
        raise UnreadableError(f"a result is {type(y).__name__}")

    def addOpaque(self, step: GraphStep, values: list[Any], reason: str) -> RuleResults:
        """Add a rule as one opaque call."""
        outs = outputsOf(self.recorder, step, values, self.trial)
        count, changes = len(outs), []
        states = [i for i, v in enumerate(values) if v is not None and v.number in self.states]
        for i in states:
            new = self.recorder.value(values[i].shape, values[i].dtype, values[i].strides)
            outs.append(new)
            changes.append((i, new))
        self.recorder.add(OpaqueRule(step.call, tuple(states), reason), tuple(values), {}, outs, "rule", True)
        return outs[:count], changes


class ConstantRead:
    """The elements that a constant had when the program was compiled."""

    def __init__(self, stored: FixedState):
        self.stored, self.version, self.elements = stored, stored.version, toHost(stored.materialize()).copy()

    @property
    def isSame(self) -> bool:
        """True if the elements have not changed."""
        if self.stored.version != self.version:
            now = toHost(self.stored.materialize())
            if now.dtype != self.elements.dtype or not np.array_equal(now, self.elements):
                return False
            self.version = self.stored.version
        return True


def arrayOf(stored: Any, name: str) -> Any:
    """The memory of a Param, a State or another target; compiled code needs it writeable, aligned and contiguous.

    Raises    NotCompiledError if it is unsuitable
    """
    array = stored.materialize() if isinstance(stored, Stored) else stored.array
    if isinstance(array, np.ndarray) and not (array.flags.carray and array.dtype.isnative):
        raise NotCompiledError(
            f"wanted memory for '{name}' that is writeable, aligned, and row by row without gaps; give it a copy"
        )
    return array


def spanOf(array: Any) -> tuple[int, int]:
    """The address range of an array; empty on a GPU, or without elements."""
    isHere = isinstance(array, np.ndarray) and array.size
    return (addressOf(array), addressOf(array) + array.nbytes) if isHere else (0, 0)


def isTrusted(step: GraphStep) -> bool:
    """True if a rule belongs to this library, whose rules are pure."""
    return all((owner.__module__ or "").startswith("puregraph.") for owner in rulesOf(step))


def rulesOf(step: GraphStep) -> list[Any]:
    """The functions and classes of a rule."""
    module = step.module
    rule = getattr(module, "rule", None)
    return [type(getattr(module, "of", module)), getattr(rule, "func", rule) or type(module)]


def signature(calls: list[Call]) -> list[Any]:
    """The calls as a comparable form, without the numbers of Values."""
    numbers: dict[int, int] = {}
    for call in calls:
        for y in call.outs:
            numbers[y.number] = -len(numbers) - 1
    return [
        (call.kind, comparable(call.function), comparable(call.arguments, numbers), comparable(call.options, numbers))
        for call in calls
    ]
