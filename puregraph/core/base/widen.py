"""Widen: store float16 and bfloat16, but compute in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.base.dtype import isBfloat16, isFloating, promoted

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from puregraph.core.protocols import AnyArray

HALF = np.dtype(np.float16)


def widened(rule: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """`rule`, with float16 arrays passed as float32, and its result cast back if all floats were of float16."""

    @wraps(rule)
    def wide(*args: Any, **options: Any) -> np.ndarray:
        if not any(map(isHalf, args)):
            return rule(*args, **options)
        floats = [a.dtype for a in args if hasattr(a, "dtype") and isFloating(a.dtype)]
        return rule(*map(widen, args), **options).astype(promoted(floats))

    return wide


def asResultType(*xs: AnyArray) -> Sequence[AnyArray]:
    """Convert arrays to their common dtype; unlike in numpy, integers do not widen the floats."""
    first = xs[0].dtype
    if all(x.dtype == first for x in xs):
        return xs
    dtype = promoted(x.dtype for x in xs)
    return [x if x.dtype == dtype else x.astype(dtype) for x in xs]


def isHalf(value: object) -> bool:
    """True if `value` is an array of float16."""
    return hasattr(value, "dtype") and value.dtype == HALF


def widen(value: AnyArray) -> AnyArray:
    """`value` in float32 if it is an array of float16 or bfloat16, else itself."""
    return value.astype(np.float32) if hasattr(value, "dtype") and isNarrow(value.dtype) else value


def isNarrow(dtype: DTypeLike) -> bool:
    """True if a dtype is a 16-bit float."""
    return dtype == HALF or isBfloat16(dtype)


def divided(g: AnyArray, count: AnyArray | int) -> AnyArray:
    """Return g / count; 16-bit floats are divided in float32, which can hold any count, and rounded once."""
    y = widen(g) / count
    return y if y.dtype == g.dtype else y.astype(g.dtype)


class Met:
    """Rare dtypes that this process has used; passes skip the checks for others."""

    bfloat16 = False  # True once any value had this dtype


def noteDtype(dtype: DTypeLike) -> None:
    """Note that arrays of this dtype may be met from now on."""
    if isBfloat16(dtype):
        Met.bfloat16 = True


def hasBfloat16(values: Iterable[object], others: Iterable[object] = ()) -> bool:
    """True if any value has the dtype bfloat16; `others` are checked only once one was seen."""
    for x in (*values, *others) if Met.bfloat16 else values:
        dtype = getattr(x, "dtype", None)
        if getattr(dtype, "kind", None) == "V" and isBfloat16(dtype):
            Met.bfloat16 = True
            return True
    return False


def forwardRule(module: Any, arguments: Sequence[Any], count: int) -> Any:
    """Call a module's forward rule; the first `count` arguments are its inputs.

    The rule never receives bfloat16: 16-bit floats are cast to float32, and outputs to the inferred dtypes. Views and
    nested graphs run without casts.
    """
    if module.views or module.isGraph or not hasBfloat16(arguments):
        return module.updateData(*arguments)
    wideArguments = list(map(widen, arguments))
    result = module.updateData(*wideArguments)
    for p, narrow, wide in zip(module.ruleParams(), arguments[count:], wideArguments[count:]):
        if wide is not narrow and p.kind == "state":  # the rule may have written to it
            narrow[...] = wide
    dtypes = [getattr(x, "dtype", None) for x in arguments]
    said = module.dataTypeFrom(*dtypes[:count])
    usual = promoted(d for d in dtypes if d is not None and isFloating(d))
    kinds = [d or usual for d in (said if isinstance(said, list) else [said])]
    if type(result) is not tuple:
        return stored(result, kinds[0])
    return (*map(stored, result, kinds), *result[len(kinds) :])


def gradRule(rule: Callable[..., Any], grad: Any, values: list[Any]) -> Any:
    """Call a gradient rule with the output gradient and the forward rule's arguments and outputs.

    Casts as in `forwardRule`; each gradient is cast to the dtype of its argument.
    """
    if not hasBfloat16(values):
        return rule(grad, *values)
    result = rule([*map(widen, grad)] if isinstance(grad, list) else widen(grad), *map(widen, values))
    kinds = [getattr(x, "dtype", None) for x in values]
    return tuple(map(stored, result, kinds)) if type(result) is tuple else stored(result, kinds[0])


def stored(y: AnyArray, dtype: DTypeLike | None) -> AnyArray:
    """Convert a float32 result to a 16-bit float dtype; other values are returned unchanged."""
    isWide = dtype is not None and isNarrow(dtype) and getattr(y, "dtype", None) == np.float32
    return y.astype(dtype) if isWide else y
