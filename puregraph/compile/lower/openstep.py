"""Open step: a lowered schedule whose sizes are open, and the schedules for numbers that are made from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile import verify
from puregraph.compile.lower.lowering import NativeCall
from puregraph.core.opensize import OpenScalar, OpenSize, SizedText, SizeTape, isOpen
from puregraph.ops.ir.bounds import Bounds
from puregraph.ops.ir.value import Call, Offset, Value
from puregraph.ops.native.llvm.kernelcall import KernelCall

if TYPE_CHECKING:
    from puregraph.compile.memory.arena import BufferOrder
    from puregraph.compile.trace.schedule import Schedule


class OpenStep:
    """A lowered schedule for any sizes that its tape holds for; `order` arranges the buffers of its plans."""

    def __init__(self, schedule: Schedule, tape: SizeTape):
        tape.close()
        self.schedule, self.tape = schedule, tape
        self.order: BufferOrder | None = None
        self.fixed: dict[int, Value] = {}  # the Values without open sizes, by number

    @property
    def isNative(self) -> bool:
        """True if numbers occur in native calls alone, where they can be exchanged."""
        packed = self.schedule.packedWeights
        works = [] if packed is None else packed.works
        isFixed = not any(type(what) is OpenSize for work in works for what in (*work.slots.values(), work.tasks))
        return isFixed and self.schedule.buckets is None and all(map(isExchanged, self.schedule.calls))

    def schedules(self, symbols: Sequence[int]) -> Schedule | None:
        """The schedule for some numbers; None if the step does not hold for them."""
        numbers = self.tape(symbols)
        if numbers is None:
            return None
        schedule = Exchange(numbers, self.fixed).schedule(self.schedule)
        schedule.model = self
        return schedule


def isExchanged(call: Call) -> bool:
    """True for a native call, a view, and a Python call that reads arrays alone."""
    return call.kind.isNative or call.kind.isView or call.kind.isHost


class Exchange:
    """Puts numbers in place of open sizes; Values without any are shared, and added to `fixed`."""

    def __init__(self, numbers: list[Any], fixed: dict[int, Value]):
        self.numbers = numbers
        self.fixed, self.values = fixed, fixed.copy()
        self.calls: dict[int, Call] = {}

    def schedule(self, old: Schedule) -> Schedule:
        """The schedule with numbers."""
        new, value = copy(old), self.value
        new.inputs = [value(v) for v in old.inputs]
        new.calls = [self.call(call) for call in old.calls]
        new.outputs = [None if v is None else value(v) for v in old.outputs]
        new.inputGrads = [None if v is None else value(v) for v in old.inputGrads]
        new.gradients = [value(v) for v in old.gradients]
        new.paramGrads = [(param, value(v)) for param, v in old.paramGrads]
        new.stores = [(target, value(v)) for target, v in old.stores]
        new.checks = [self.bounds(check) for check in old.checks]
        return new

    def size(self, size: Any) -> Any:
        """The number of an open size; anything else as it is."""
        return self.numbers[size.index] if type(size) is OpenSize else size

    def sizes(self, sizes: tuple) -> tuple:
        """Sizes with numbers for open ones."""
        numbers = self.numbers
        return tuple([numbers[size.index] if type(size) is OpenSize else size for size in sizes])

    def value(self, old: Value) -> Value:
        """The Value with numbers."""
        new = self.values.get(old.number)
        if new is not None:
            return new
        base = None if old.base is None else self.value(old.base)
        isChanged = isOpen((old.size, old.offset)) or base is not old.base
        source = old.source
        if type(source) is OpenScalar:
            source = np.array(self.size(source.size), source.dtype)
        if isChanged or source is not old.source or isOpen(old.strides):
            shape, strides = self.sizes(old.shape), self.sizes(old.strides)
            new = Value(old.number, shape, old.dtype, strides, old.role, old.name, source)
            new.base, new.offset = base, self.size(old.offset)
        else:
            new = self.fixed[old.number] = old
        self.values[old.number] = new
        if new is not old and old.base is not None and old.call is not None:
            new.call = self.call(old.call)
        return new

    def call(self, old: Call) -> Call:
        """The call on Values with numbers."""
        new = self.calls.get(id(old))
        if new is None:
            new = Call(old.function, (), old.options, [], old.kind, old.origin, old.several)
            self.calls[id(old)] = new
            new.outs = [None if y is None else self.value(y) for y in old.outs]
            new.arguments = self.nested(old.arguments)
            if old.options:
                new.options = {name: self.nested(option) for name, option in old.options.items()}
            if type(old.function) is NativeCall:
                new.function = self.native(old.function)
            elif old.kind.isHost:
                new.function = copy(old.function)  # it holds arrays of one program
        return new

    def nested(self, nested: Any) -> Any:
        """Arguments with numbers."""
        kind = type(nested)
        if kind is Value:
            return self.value(nested)
        if kind is OpenSize:
            return self.numbers[nested.index]
        if kind is tuple or kind is list:
            return kind([self.nested(part) for part in nested])
        if kind is slice:
            return slice(self.nested(nested.start), self.nested(nested.stop), self.nested(nested.step))
        return nested

    def native(self, old: NativeCall) -> NativeCall:
        """The kernel calls of a step."""
        works = [work for call in old.works for work in self.works(call, self.size)]
        checks = tuple([self.bounds(check) for check in old.checks])
        name = "; ".join(dict.fromkeys(work.name for work in works))
        calls, inlined = old.calls, old.inlined
        if verify.isOn():  # it computes them again
            calls, inlined = list(map(self.call, calls)), list(map(self.call, inlined))
        return NativeCall(name, works, calls, old.results, old.over, checks, inlined, old.faults)

    def works(self, old: KernelCall, number: Callable[[Any], Any]) -> list[KernelCall]:
        """The kernel calls that a call stands for; `number` gives the number of an open size."""
        if old.again is None:
            return [self.work(old, number)]
        calls, numberIn = old.again.resolved(number)
        return [work for call in calls for work in self.works(call, numberIn)]

    def work(self, old: KernelCall, number: Callable[[Any], Any]) -> KernelCall:
        """A kernel call."""
        values, slots = self.values, {}
        for name, what in old.slots.items():
            kind = type(what)
            if kind is OpenSize:
                slots[name] = number(what)
            elif kind is Value:
                slots[name] = values.get(what.number) or self.value(what)
            elif kind is Offset:
                slots[name] = Offset(self.value(what.value), number(what.bytes))
            else:
                slots[name] = what
        title = old.name
        if type(title) is SizedText:
            title = title.template.format(*map(number, title.sizes))
        return KernelCall(title, old.key, old.write, slots, number(old.tasks), old.halves)

    def bounds(self, old: Bounds) -> Bounds:
        """The bounds of an input."""
        return Bounds(self.value(old.value), self.size(old.low), self.size(old.limit), old.ignored)
