"""Whole: a rule that could not be read, as one call; what it gives is learned from a try on ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from puregraph.compile import strides
from puregraph.compile.record import Recorder
from puregraph.compile.value import Value
from puregraph.errors import PuregraphError
from puregraph.steps import Step


class NotArraysError(PuregraphError):
    """What flows through a graph is no array: there is nothing to compile."""


class Whole:
    """A rule as a function: its states, copied, come back after its results, as it leaves them.

    `reason` says why it was not read.
    """

    __slots__ = ("reason", "rule", "states")

    def __init__(self, rule: Any, states: tuple[int, ...], reason: str = ""):
        self.rule, self.states, self.reason = rule, states, reason

    @property
    def __name__(self) -> str:  # type: ignore[override]
        owner = getattr(self.rule, "__self__", None)
        return owner.brief() if hasattr(owner, "brief") else getattr(self.rule, "__name__", "rule")

    def __call__(self, *arguments: Any) -> tuple:
        given = list(arguments)
        for i in self.states:
            given[i] = np.array(given[i])
        result = self.rule(*given)
        return (*(result if type(result) is tuple else (result,)), *(given[i] for i in self.states))


def outputsOf(recorder: Recorder, step: Step, values: list[Any], dtype: Any) -> list[Any]:
    """Values for what a rule gives; `dtype` is that of its results where a try does not tell."""
    tried = tryout(step, values)
    outs: list[Any] = []
    for i, shape in enumerate(shapesFor(step, values)):
        sample = None if tried is None else tried[i]
        if tried is not None and sample is None:
            outs.append(None)
            continue
        if sample is not None and not hasattr(sample, "dtype"):
            raise NotArraysError(f"at '{step.path}' ({step.label}): {type(sample).__name__} is no array")
        outs.append(madeLike(recorder, tuple(shape), dtype, sample))
    for i in range(len(outs), len(step.outs)):  # hidden ones may be anything
        outs.append(recorder.thing(None if tried is None else tried[i]))
    return outs


def madeLike(recorder: Recorder, shape: Any, dtype: Any, sample: Any) -> Value:
    """A Value for a result, which lies as it did in a try."""
    if sample is None:
        return recorder.value(shape, dtype)
    lay = strides.like(shape, sample.strides, sample.dtype.itemsize) if sample.shape == shape else None
    return recorder.value(shape, sample.dtype, lay)


def shapesFor(step: Step, values: list[Any]) -> list[Any]:
    """The shapes of the visible results."""
    module = step.module
    found = module.dataShapeFrom(*[None if v is None else v.shape for v in values[: step.inputs]])
    return found if isinstance(found, list) else [found]


def tryout(step: Step, values: list[Any]) -> Any:
    """What the rule gives for ones (zeros where there are whole numbers); None if it raises."""
    try:
        with undisturbed(), np.errstate(all="ignore"):
            result = step.call(*map(sample, values))
    except Exception:
        return None
    result = result if type(result) is tuple else (result,)
    return result if len(result) == len(step.outs) else None


def sample(value: Value | None) -> Any:
    """An array that a rule can be tried on."""
    if value is None:
        return None
    if value.role == "object":
        return value.source
    lay = strides.like(value.shape, value.strides, value.dtype.itemsize)
    array = np.ndarray(value.shape, value.dtype, bytes(value.nbytes) or b" ", 0, lay).copy("K")
    if value.dtype.kind not in "iu":
        array[...] = 1
    return array


@contextmanager
def undisturbed() -> Iterator[None]:
    """Whatever is drawn inside, the next random numbers are those that would have come anyway."""
    ours, numpys = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)
