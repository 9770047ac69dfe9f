"""Memo: clone the calls of a rule for an equal module on equal arguments instead of tracing it again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import MethodType
from typing import Any

from puregraph.compile.trace.recorder import Recorder
from puregraph.core.param import Stored
from puregraph.graph.module import Module
from puregraph.ops.formula import Formula
from puregraph.ops.ir.value import ARRAYS, Call, Value, changed, comparable

# Attributes that no rule reads, and the mode, which is a separate part of a key
PASSING = ("name", "initArgs", "lastCall", "isTraining", "thawedMode", "precision")
Key = tuple[Any, ...]


class MemoKeys:
    """Keys for this library's rules, which read only their module and their arguments."""

    def __init__(self) -> None:
        self.modules: dict[int, Key] = {}

    def __call__(self, module: Module, values: Sequence[Value | None]) -> Key:
        """The key of a module's rule on these arguments: everything that its calls depend on."""
        return self.of(module), tuple([None if v is None else self.about(v, values) for v in values])

    def about(self, value: Value, values: Sequence[Value | None]) -> Key:
        """The part of a key for one argument: its role, shape, dtype, strides, and its first occurrence.

        A value whose role is in ARRAYS is identified by its number.
        """
        identity = value.number if value.role in ARRAYS else values.index(value)
        return value.role, identity, value.shape, value.dtype, value.strides

    def of(self, module: Module) -> Key:
        """The class of a module, its mode, and its attributes."""
        key = self.modules.get(id(module))
        if key is None:
            attributes = [(name, self.held(a)) for name, a in vars(module).items() if name not in PASSING]
            key = self.modules[id(module)] = type(module), module.isTraining, tuple(attributes)
        return key

    def held(self, a: Any) -> Any:
        """An attribute of a module; a mutable one is known by its identity."""
        if isinstance(a, Stored):
            return type(a), a.shape, a.dtype
        if isinstance(a, Module):
            return comparable(a) if a.isGraph else self.of(a)
        if isinstance(a, MethodType):
            return a.__func__, self.held(a.__self__)
        if isinstance(a, partial):
            return self.held(a.func), tuple(map(self.held, a.args)), comparable(a.keywords)
        return a if isinstance(a, Formula) else comparable(a)


class MemoEntry:
    """The calls of a rule on some arguments, its results, and the new values of its States."""

    def __init__(
        self, calls: list[Call], values: Sequence[Value | None], results: list[Any], changes: list[tuple[int, Value]]
    ):
        self.calls, self.values, self.results, self.changes = calls, values, results, changes

    def again(self, recorder: Recorder, values: Sequence[Value | None]) -> tuple[list[Any], list[tuple[int, Value]]]:
        """Clone the calls for other arguments."""
        made = {old.number: new for old, new in zip(self.values, values) if old is not None}

        def now(v: Value) -> Any:
            return made.get(v.number, v)

        for call in self.calls:
            arguments = changed(call.arguments, now)
            options = {k: changed(a, now) for k, a in call.options.items()} if call.options else {}
            outs = [None if y is None else recorder.value(y.shape, y.dtype, y.strides) for y in call.outs]
            again = recorder.add(call.function, arguments, options, outs, call.kind, call.several)
            if call.kind.isView or call.kind.isUpdate:
                lay(call, again)
            made.update((y.number, new) for y, new in zip(call.outs, outs) if y is not None)
        return [None if y is None else now(y) for y in self.results], [(i, now(y)) for i, y in self.changes]


def lay(call: Call, again: Call) -> None:
    """Give cloned views the same offset relative to their first argument."""
    before, now = call.arguments[0], again.arguments[0]
    for old, new in zip(call.outs, again.outs):
        new.base, new.offset = now.root, now.offset + old.offset - before.offset
