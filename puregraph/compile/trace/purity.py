"""Purity: whether a rule of a user only computes, and what it reads beside its arguments.

Such a rule is traced once. The plain values it reads elsewhere are checked before every run. Arrays of floats that its
module holds are values of the program, see `withTracers`. A rule that reads anything else is not traced at all, but
runs as it is.
"""

from __future__ import annotations

import builtins
import functools
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from puregraph.base.introspection import namesIn
from puregraph.formula import Formula
from puregraph.formula.interpreter import Interpreter
from puregraph.kernel import Kernel

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
HIDDEN = {"random", "__dict__", "__getattribute__"}  # attributes behind which anything may change
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype)
MISSING = object()


class ImpureError(Exception):
    """A rule may do more than compute, or read what cannot be checked again."""


class Read(NamedTuple):
    """A name that a rule reads beside its arguments: its holder, the name, and the value."""

    holder: Any
    name: str
    value: Any
    snapshot: Any

    @property
    def isSame(self) -> bool:
        """Whether it is still the same."""
        found = self.holder
        now = found.get(self.name, MISSING) if type(found) is dict else getattr(found, self.name, MISSING)
        if self.snapshot is None:
            return now is self.value or now == self.value
        if now is self.value and isinstance(now, PLAIN):
            return True
        return isPlain(now) and snapshot(now) == self.snapshot


class Reads:
    """What the rules of a module read beside their arguments: `found`, if they do nothing else than compute.

    They may use what their module holds, constants, numpy, and functions of which the same is true. `arrays` are the
    names of the arrays of floats among what their module holds.
    """

    def __init__(self, module: Any):
        self.module, self.kind = module, type(module)
        self.seen: set[Any] = set()
        self.found: list[Read] = []
        self.arrays: set[str] = set()

    def rule(self, rule: Any) -> None:
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

    def globalName(self, name: str, names: dict[str, Any]) -> None:
        """A global name or a name of an enclosing function."""
        if name in names:
            self.value(names, name, names[name])
        elif not hasattr(builtins, name) or name in EFFECTS:
            raise ImpureError

    def attribute(self, name: str, bases: tuple[type, ...]) -> None:
        """An attribute of this name: of the module, or of its class, if these have one; by `super()` of any base."""
        if name in HIDDEN:
            raise ImpureError
        own = vars(self.module)
        if name in own and isTraceable(own[name]):
            self.arrays.add(name)
        elif name in own:
            self.value(own, name, own[name])
        for base in bases:
            found = getattr(base, name, MISSING)
            inner = getattr(found, "fget", None) or getattr(found, "func", None) or getattr(found, "__func__", None)
            if inner is not None and not isinstance(found, functools.partial):
                self.rule(inner)
            elif found is not MISSING and not isBasic(base, name):
                self.value(base, name, found)

    def value(self, holder: Any, name: str, value: Any) -> None:
        """A value that is read: recorded, if a change of it can be detected."""
        if isinstance(value, FunctionType):
            self.rule(value)
        elif isinstance(value, ModuleType):
            if value.__name__.partition(".")[0] not in LIBRARIES:
                raise ImpureError
        elif not isPlain(value) and not isOurs(value):
            raise ImpureError
        self.found.append(Read(holder, name, value, snapshot(value) if isPlain(value) else None))


def readsOf(rules: list[Any], module: Any) -> Reads | None:
    """What rules of a module read beside their arguments; None if they may do more than compute."""
    reads = Reads(module)
    try:
        for rule in rules:
            reads.rule(rule)
    except ImpureError:
        return None
    return reads


def isTraceable(value: Any) -> bool:
    """Whether a value is an array of floats that compiled code can read where it is."""
    isFloats = type(value) is np.ndarray and value.dtype.kind == "f"
    return isFloats and value.flags.aligned and value.dtype.isnative


def withTracers(module: Any, tracers: dict[str, Any]) -> Any:
    """A copy of a module whose rules find tracers in place of arrays: what they compute of these is traced, too."""
    found = object.__new__(type(module))
    own = {name: rebound(value, module, found) for name, value in vars(module).items()}
    vars(found).update(own, **tracers)
    return found


def rebound(rule: Any, module: Any, other: Any) -> Any:
    """A rule, or anything else, with another module in place of the one it is bound to."""
    if type(rule) is functools.partial:
        given = [other if a is module else a for a in rule.args]
        return functools.partial(rebound(rule.func, module, other), *given, **rule.keywords)
    if type(rule) is MethodType and rule.__self__ is module:
        return MethodType(rule.__func__, other)
    return rule


def isBasic(kind: type, name: str) -> bool:
    """Whether a class has an attribute from this library, or from Python itself."""
    owner = next((base for base in kind.__mro__ if name in vars(base)), object)
    return owner.__module__.partition(".")[0] in ("puregraph", "builtins")


def isPlain(value: Any) -> bool:
    """Whether a value is a number, a text, an array of integers, or a container of only these: a change of it can be
    detected."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value) in (list, tuple, set, frozenset) and all(map(isPlain, value))
    if type(value) is dict:
        return all(map(isPlain, value)) and all(map(isPlain, value.values()))
    return isinstance(value, (*PLAIN, slice)) or isIntegers(value)


def isIntegers(value: Any) -> bool:
    """Whether a value is an array of integers or booleans, which shapes may depend on."""
    return type(value) is np.ndarray and value.dtype.kind in "iub"


def snapshot(value: Any) -> Any:
    """A plain value, with the types of all its parts, as it is now."""
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


def isOurs(value: Any) -> bool:
    """Whether this is a function or class of numpy, of Python itself, or of this library."""
    if isinstance(value, (np.ufunc, Kernel, Formula, Interpreter)):
        return True
    home = (getattr(value, "__module__", None) or "").partition(".")[0]
    return isinstance(value, (type, FunctionType, BuiltinFunctionType)) and home in (*LIBRARIES, "builtins")
