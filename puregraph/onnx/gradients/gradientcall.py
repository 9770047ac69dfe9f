"""GradientCall: a step that computes the gradients of a module, with the arguments of its rule."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from puregraph.onnx.onnxwriter import OnnxStep, kindOf


class GradientCall:
    """The names of a module's output gradients, `grads`, and of its arguments and outputs, `values`; None if absent.

    `shapes` and `dtypes` belong to the arguments and outputs, `kinds` are the dtypes of the gradients, `dtype` is the
    first of them.
    """

    def __init__(self, step: OnnxStep):
        self.step, self.module = step, step.module.of
        values, shapes, dtypes = (
            step.module.complete(entries) for entries in (step.inputs, step.shapes, step.indtypes)
        )
        first = step.module.grads
        self.grads, self.values = list(values[:first]), list(values[first:])
        self.kinds, self.dtypes = list(dtypes[:first]), list(dtypes[first:])
        self.shapes = list(shapes[first:])
        self.grad, self.dtype = self.grads[0], self.kinds[0]

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node; returns the name of its first output."""
        return self.step.op(kind, *inputs, **attributes)

    def at(self, step: OnnxStep) -> Any:
        """The same call, with nodes added by another step."""
        other = copy(self)
        other.step = step
        return other

    def inside(self) -> Any:
        """The same call, with nodes added to an inner graph."""
        return self.at(self.step.inside(self.step.writer.blank()))

    def number(self, value: Any, dtype: Any = None) -> str:
        """A number in the dtype of the gradient, or in another one."""
        return self.step.constant(value, self.dtype if dtype is None else dtype)

    def full(self, value: Any, like: int, dtype: Any = None) -> str:
        """An array of one number in the shape of an argument."""
        shape = self.op("Shape", self.values[like]) if self.values[like] else self.step.whole(*self.shapes[like])
        return self.op("Expand", self.number(value, dtype), shape)

    def cast(self, x: str, dtype: Any) -> str:
        """A value in another dtype."""
        return self.op("Cast", x, to=kindOf(np.dtype(dtype)))
