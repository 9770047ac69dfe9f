"""Library calls: products and convolutions by cuBLASLt and cuDNN, with epilogues of bias, residual and activation."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from puregraph.compile.gpu.lower.fallbackgemm import fallbackLaunches
from puregraph.compile.lower.lowering import needed
from puregraph.compile.passes.group import Group
from puregraph.ops.formula import Formula
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.operation import declared
from puregraph.ops.product.cuda.librarygemm import product

ACTIVATIONS = {
    "": "t",
    "relu": "relu(t)",
    "gelu": "t * sigmoid(2 * sqrt(2 / pi) * (t + 0.044715 * t ** 3))",
    "erf": "0.5 * t * erfc(-t / sqrt(2))",
    "sigmoid": "sigmoid(t)",
    "silu": "t * sigmoid(t)",
    "tanh": "tanh(t)",
}
PRODUCTS = {"": None, "relu": "relu", "gelu": "gelu"}  # activations by their cuBLASLt names
MAPS = {"": "", "relu": "relu", "gelu": "geluTanh", "erf": "gelu", "sigmoid": "sigmoid", "silu": "silu", "tanh": "tanh"}


def fusedLaunches(call: Call, group: Group, kept: list[Value], isKept: bool) -> list[Any] | None:
    """The launches of a product or convolution with a group as its epilogue.

    A library call if a library has a plan for both; this package's kernels if no library has a plan for the product;
    None if the group is better launched separately.
    """
    launches = epilogue(call, group, kept, isKept)
    if launches is not None:
        return [launches]
    if group.arithmetic == "f64" and call.outs[0].dtype != np.float64 or libraryOf(call) is not NotImplemented:
        return None
    launches = fallbackLaunches(call, group, kept, isKept)
    return None if launches is NotImplemented else launches


def productOf(call: Call) -> list[Any] | None:
    """The launches of a matrix product alone; None if there are none."""
    launches = libraryOf(call)
    if launches is NotImplemented:
        launches = fallbackLaunches(call)
        return None if launches is NotImplemented else launches
    return [launches]


def libraryOf(call: Call) -> Any:
    """The library call of a product or convolution; NotImplemented if there is none."""
    if declared(call.function, "epilogue") is not None:
        return declared(call.function, "library")(call.outs[0], *call.arguments, tf32=call.origin.isTf32)
    if call.function is not np.matmul or call.options:
        return NotImplemented
    a, b = call.arguments
    return product(call.outs[0], a, b, tf32=call.origin.isTf32)


def epilogue(call: Call, group: Group, kept: list[Value], isKept: bool) -> Any:
    """The library call of a product or convolution with a group as its epilogue; None if no library has a plan.

    `kept` are the results of the group that are read; `isKept`: the product itself is also read.
    """
    (sums,) = call.outs
    names = {n: (v, axes) for n, (v, axes) in group.loads.items() if v is not sums}
    if isKept or len(kept) != 1 or len(names) > 2 or kept[0].dtype != sums.dtype:
        return None
    (y,) = kept
    (s,) = [n for n, (v, _) in group.loads.items() if v is sums]
    written = inlined(group, group.names[y.number])
    column = sums.ndim - 1 if call.kind.isContraction else 1
    bias = [
        n for n, (v, axes) in names.items() if [a for a in axes if a is not None] == [column] and v.dtype == y.dtype
    ]
    same = [n for n, (v, _) in names.items() if v.shape == sums.shape and v.dtype == y.dtype and v.strides == y.strides]
    residuals = same if not call.kind.isContraction else []
    if len(bias) + len(residuals) != len(names) or len(bias) > 1 or len(residuals) > 1 or y.strides != sums.strides:
        return None
    activation = activationOf(written, s, tuple(bias + residuals))
    if activation is None:
        return None
    vector = flat(names[bias[0]][0]) if bias else None
    if bias and vector is None:
        return None
    if call.kind.isContraction:
        if activation not in PRODUCTS or call.options:
            return None
        a, b = call.arguments
        libraryCall = product(y, a, b, bias=vector, activation=PRODUCTS[activation], tf32=call.origin.isTf32)
    elif declared(call.function, "epilogue") is not None:
        residual = names[residuals[0]][0] if residuals else None
        make, options = declared(call.function, "library"), {"activation": MAPS[activation], "tf32": call.origin.isTf32}
        libraryCall = make(y, *call.arguments, bias=vector, residual=residual, **options)
    else:
        return None
    return None if libraryCall is NotImplemented else libraryCall


class Vector:
    """A one-dimensional view of a Value with a single axis longer than one."""

    def __init__(self, value: Value, size: int):
        self.value, self.dtype, self.shape, self.size = value, value.dtype, (size,), size
        self.strides = (value.dtype.itemsize,)


def flat(value: Value) -> Any:
    """A Value as a vector; None if its elements are not contiguous."""
    axes = [(n, s) for n, s in zip(value.shape, value.strides) if n > 1]
    if len(axes) > 1 or (axes and axes[0][1] != value.dtype.itemsize):
        return None
    return value if value.ndim == 1 else Vector(value, value.size)


def inlined(group: Group, name: str) -> Formula:
    """A line of a group as a formula of the group's operands."""
    known: dict[str, Formula] = {}
    for n, line in needed(group, [name]):
        parts = {m: known[m] for m in line.names if m in known}
        known[n] = line.put(**parts) if parts else line
    return known[name]


@cache
def activationOf(written: Formula, sums: str, terms: tuple[str, ...]) -> str | None:
    """The activation that a formula applies to the sum of a product and other terms; None if it is not a known one."""
    totals = {" + ".join(order) for order in orders((sums, *terms))}
    for name, text in ACTIVATIONS.items():
        if any(Formula(text).put(t=total) == written for total in totals):
            return name
    return None


def orders(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """All permutations of some names."""
    if len(names) < 2:
        return [names]
    return [(n, *order) for i, n in enumerate(names) for order in orders(names[:i] + names[i + 1 :])]
