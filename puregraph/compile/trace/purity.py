"""Purity: whether a user's rule only computes, and the values that it reads besides its arguments.

A pure rule is traced once. Plain values that it reads are checked before every run. Float arrays of its module are
values of the program, see `withTracers`. A rule that reads anything else is not traced and runs as Python.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.base.introspection import namesIn
from puregraph.ops.formula import Formula
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.kernel import Kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from puregraph.core.rules import Rule
    from puregraph.graph.module import Module

LIBRARIES = ("numpy", "math", "operator", "functools", "itertools", "puregraph")
EFFECTS = {
    *(
        "print",
        "input",
        "open",
        "eval",
        "exec",
        "globals",
        "locals",
        "getattr",
        "hasattr",
        "setattr",
        "delattr",
        "vars",
    ),
    *("dir", "next", "id", "breakpoint"),
}
HIDDEN = {"random", "__dict__", "__getattribute__"}  # reading one of these may give anything
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype)
MISSING = object()


class ImpureError(Exception):
    """A rule may have side effects, or read a value whose changes cannot be detected."""


class Read(NamedTuple):
    """A name that a rule reads besides its arguments: its holder, the name, and the value."""

    holder: Any
    name: str
    value: Any
    snapshot: Any

    @property
    def isSame(self) -> bool:
        """True if the name still holds the same value."""
        holder = self.holder
        now = holder.get(self.name, MISSING) if type(holder) is dict else getattr(holder, self.name, MISSING)
        if self.snapshot is None:
            return now is self.value or now == self.value
        if now is self.value and isinstance(now, PLAIN):
            return True
        return isPlain(now) and snapshot(now) == self.snapshot


class Reads:
    """The values that a module's rules read besides their arguments, for rules that only compute.

    Such rules may use their module's attributes, constants, numpy, and functions that only compute, too. `records`
    has a Read for each value; `arrays` has the names of the module's float arrays.
    """

    def __init__(self, module: Module):
        self.module, self.kind = module, type(module)
        self.seen: set[Any] = set()
        self.records: list[Read] = []
        self.arrays: set[str] = set()

    def rule(self, rule: Callable[..., Any]) -> None:
        """Check a rule.

        Raises    ImpureError if it may do more than compute
        """
        while isinstance(rule, functools.partial):
            rule = rule.func
        rule = getattr(rule, "__func__", rule)
        if isOurs(rule) or rule in self.seen:
            return
        if not isinstance(rule, FunctionType) or set(rule.__code__.co_freevars) - {"__class__"}:
            raise ImpureError
        self.seen.add(rule)
        for name in ("__defaults__", "__kwdefaults__"):
            self.value(rule, name, getattr(rule, name))
        names = list(namesIn(rule.__code__))
        bases = self.kind.__mro__ if ("global", "super") in names else (self.kind,)
        for kind, name in names:
            if kind == "write":
                raise ImpureError
            if kind == "global":
                self.globalName(name, rule.__globals__)
            else:
                self.attribute(name, bases)

    def globalName(self, name: str, names: Mapping[str, object]) -> None:
        """Check a global name that a rule reads."""
        if name in names:
            self.value(names, name, names[name])
        elif not hasattr(builtins, name) or name in EFFECTS:
            raise ImpureError

    def attribute(self, name: str, bases: tuple[type, ...]) -> None:
        """Check an attribute that a rule reads: from the module, its class, or with `super()` any base class."""
        if name in HIDDEN:
            raise ImpureError
        attributes = vars(self.module)
        if name in attributes and isTraceable(attributes[name]):
            self.arrays.add(name)
        elif name in attributes:
            self.value(attributes, name, attributes[name])
        for base in bases:
            value = getattr(base, name, MISSING)
            inner = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", None)
            if inner is not None and not isinstance(value, functools.partial):
                self.rule(inner)
            elif value is not MISSING and not isBasic(base, name):
                self.value(base, name, value)

    def value(self, holder: Any, name: str, value: object) -> None:
        """Record a value that a rule reads, if its changes can be detected."""
        if isinstance(value, FunctionType):
            self.rule(value)
        elif isinstance(value, ModuleType):
            if value.__name__.partition(".")[0] not in LIBRARIES:
                raise ImpureError
        elif not isPlain(value) and not isOurs(value):
            raise ImpureError
        self.records.append(Read(holder, name, value, snapshot(value) if isPlain(value) else None))


def readsOf(rules: list[Callable[..., Any]], module: Module) -> Reads | None:
    """The values that a module's rules read besides their arguments; None if they may do more than compute."""
    reads = Reads(module)
    try:
        for rule in rules:
            reads.rule(rule)
    except ImpureError:
        return None
    return reads


def isTraceable(value: Any) -> bool:
    """True if a value is a float array that compiled code can read in place."""
    isFloats = type(value) is np.ndarray and value.dtype.kind == "f"
    return isFloats and value.flags.aligned and value.dtype.isnative


def withTracers(module: Module, tracers: Mapping[str, object]) -> Rule:
    """A copy of a module with tracers in place of its arrays, so that operations on them are traced."""
    clone = object.__new__(type(module))
    attributes = {name: rebound(value, module, clone) for name, value in vars(module).items()}
    vars(clone).update(attributes, **tracers)
    return clone


def rebound(rule: Rule, module: Module, other: object) -> Rule:
    """A rule bound to `module`, rebound to `other`; any other value is returned unchanged."""
    if type(rule) is functools.partial:
        arguments = [other if a is module else a for a in rule.args]
        return functools.partial(rebound(rule.func, module, other), *arguments, **rule.keywords)
    if type(rule) is MethodType and rule.__self__ is module:
        return MethodType(rule.__func__, other)
    return rule


def isBasic(kind: type, name: str) -> bool:
    """True if a class inherits this attribute from this library or from Python itself."""
    owner = next((base for base in kind.__mro__ if name in vars(base)), object)
    return owner.__module__.partition(".")[0] in ("puregraph", "builtins")


def isPlain(value: object) -> bool:
    """True if changes to a value can be detected: numbers, text, integer arrays, and containers of these."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value) in (list, tuple, set, frozenset) and all(map(isPlain, value))
    if type(value) is dict:
        return all(map(isPlain, value)) and all(map(isPlain, value.values()))
    return isinstance(value, (*PLAIN, slice)) or isIntegers(value)


def isIntegers(value: object) -> bool:
    """True if a value is an integer or boolean array; shapes may depend on it."""
    return type(value) is np.ndarray and value.dtype.kind in "iub"


def snapshot(value: Any) -> Any:
    """An immutable copy of a plain value, with the types of all its parts."""
    kind = type(value)
    if kind in (list, tuple):
        return kind, tuple(map(snapshot, value))
    if kind in (set, frozenset):
        return kind, frozenset(map(snapshot, value))
    if kind is dict:
        return kind, tuple([(snapshot(key), snapshot(v)) for key, v in value.items()])
    if kind is np.ndarray:
        return kind, value.shape, value.dtype, value.tobytes()
    return kind, value


def isOurs(value: object) -> bool:
    """True for a function or class of numpy, Python itself, or this library."""
    if isinstance(value, (np.ufunc, Kernel, Formula, Interpreter)):
        return True
    home = (getattr(value, "__module__", None) or "").partition(".")[0]
    return isinstance(value, (type, FunctionType, BuiltinFunctionType)) and home in (*LIBRARIES, "builtins")
