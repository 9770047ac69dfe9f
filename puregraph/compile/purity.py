"""Purity: whether a rule that somebody else wrote refers to nothing that may change, so that it may be read once."""

from __future__ import annotations

import builtins
import dis
import functools
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from puregraph.evaluator import Evaluator
from puregraph.formula import Formula
from puregraph.kernel import Kernel

LIBRARIES = ("numpy", "math", "operator", "functools", "itertools", "puregraph")
IMPURE = {"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "STORE_DEREF"}
EFFECTS = {
    "print",
    "input",
    "open",
    "eval",
    "exec",
    "globals",
    "setattr",
    "delattr",
    "vars",
    "next",
    "id",
    "breakpoint",
}
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")


def isPure(rule: Any, kind: type) -> bool:
    """Whether a rule of a class of modules, as far as its text tells, only computes.

    It may use its arguments, what its module holds, constants, numpy, and functions of which the same is true.
    """
    return pure(rule, kind, set())


def pure(rule: Any, kind: type, seen: set[Any]) -> bool:
    """`isPure`, with the functions that are looked at already."""
    while isinstance(rule, functools.partial):
        rule = rule.func
    rule = getattr(rule, "__func__", rule)
    if isOurs(rule) or rule in seen:
        return True
    if not isinstance(rule, FunctionType) or set(rule.__code__.co_freevars) - {"__class__"}:
        return False
    seen.add(rule)
    return all(pureCode(code, rule.__globals__, kind, seen) for code in codesOf(rule.__code__))


def codesOf(code: CodeType) -> list[CodeType]:
    """A code, and those of the functions that it makes."""
    return [code, *(inner for c in code.co_consts if isinstance(c, CodeType) for inner in codesOf(c))]


def pureCode(code: CodeType, names: dict[str, Any], kind: type, seen: set[Any]) -> bool:
    """Whether a code only computes."""
    for step in dis.get_instructions(code):
        if step.opname in IMPURE:
            return False
        if step.opname in GLOBALS and not pureName(step.argval, names, kind, seen):
            return False
        if step.opname in ATTRIBUTES and not pureAttribute(step.argval, kind, seen):
            return False
    return True


def pureName(name: str, names: dict[str, Any], kind: type, seen: set[Any]) -> bool:
    """Whether what a name stands for stays as it is."""
    if name in names:
        value = names[name]
        if isinstance(value, ModuleType):
            return value.__name__.partition(".")[0] in LIBRARIES
        isConstant = name.isupper() and isinstance(value, (int, float, str, tuple, frozenset, type(None)))
        return isConstant or isOurs(value) or isinstance(value, FunctionType) and pure(value, kind, seen)
    return hasattr(builtins, name) and name not in EFFECTS


def pureAttribute(name: str, kind: type, seen: set[Any]) -> bool:
    """Whether an attribute of this name, if it is a method or property of the class, only computes."""
    if name == "random":
        return False
    found = getattr(kind, name, None)
    found = getattr(found, "fget", None) or getattr(found, "func", None) or found
    return not isinstance(found, FunctionType) or pure(found, kind, seen)


def isOurs(value: Any) -> bool:
    """Whether this is a function or class of numpy, of Python itself, or of this library."""
    if isinstance(value, (np.ufunc, Kernel, Formula, Evaluator)):
        return True
    home = (getattr(value, "__module__", None) or "").partition(".")[0]
    return isinstance(value, (type, FunctionType, BuiltinFunctionType)) and home in (*LIBRARIES, "builtins")
