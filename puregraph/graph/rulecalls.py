"""Rule calls: a call of a module's rule, by native code where the arguments are large, else by numpy.

Native code takes some 20 microseconds longer to start, so small calls are left to numpy, with its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.base.widen import forwardRule, gradRule, hasBfloat16
from puregraph.core.late import Late
from puregraph.ops.kernel import allowed
from puregraph.ops.native.llvm import jit

if TYPE_CHECKING:
    from puregraph.core.rules import Rule
    from puregraph.graph.module import Module
    from puregraph.ops.formula.interpreter import Interpreter


class NativeRules:
    """The native code of rules: `cache` compiles it; calls with an argument of `leastBytes` or more use it."""

    leastBytes = 1 << 16
    cache: Any = Late("puregraph.compile.rules.rulecache", "CACHE")


def isLarge(values: Iterable[Any]) -> bool:
    """True if an array is large enough for native code."""
    least = NativeRules.leastBytes
    return any(x.nbytes >= least for x in values if type(x) is np.ndarray)


def nativeRule() -> Callable[[Module, Sequence[Any]], tuple | None] | None:
    """The function that runs a module's rule on large arguments, and returns None where numpy has to; None without
    native code."""
    return NativeRules.cache.run if allowed.fast and jit.available() else None


def forwardCall(module: Module, arguments: list[Any], count: int) -> Any:
    """The result of a module's forward rule; the first `count` arguments are its inputs."""
    native = nativeRule() if isLarge(arguments) and not hasBfloat16(arguments) else None
    result = None if native is None else native(module, arguments)
    return forwardRule(module, arguments, count) if result is None else result


def formulaCall(function: Interpreter, arguments: Sequence[Any], outs: Sequence[Any]) -> None:
    """Compute formulas of arrays and numbers, then write them to `outs`, which may be among the arguments."""
    if not (isLarge(outs) and nativeRule() is not None and NativeRules.cache.formulas(function, arguments, outs)):
        function(*arguments, out=outs)


def gradientCall(module: Module, rule: Rule, needs: tuple[bool, ...], grad: Any, values: list[Any]) -> Any:
    """The result of a module's gradient rule on an output gradient and the forward rule's arguments and outputs."""
    if isLarge(values) and not hasBfloat16(values) and nativeRule() is not None:
        result = NativeRules.cache.gradient(module, rule, needs, grad, values)
        if result is not None:
            return result
    return gradRule(rule, grad, values)
