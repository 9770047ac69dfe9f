"""A module with inputs of some shapes, which every check runs from the same states; and the error of a check."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.applied import asGrads
from puregraph.core.base.dtype import isFloating
from puregraph.core.base.widen import forwardRule, gradRule
from puregraph.core.errors import PuregraphError
from puregraph.core.param import Param
from puregraph.core.rules import gradientRule
from puregraph.core.shape import valued
from puregraph.graph.module import Module

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.core.shape import Shape


class CheckError(PuregraphError, AssertionError):
    """A module violates the contract of modules."""


def expect(condition: object, sentence: str) -> None:
    """Raise a CheckError with a sentence unless a condition holds."""
    if not condition:
        raise CheckError(sentence)


class Case:
    """A module, shapes of its inputs, and data made from them; every run starts from the same states."""

    def __init__(self, module: Module, shapes: list[Shape], seed: int = 0, train: bool = True):
        self.rng = np.random.default_rng(seed)
        self.module = copy.deepcopy(module).calcMode(np.float64)
        self.module.isTraining = train
        self.shapes = [tuple(s) for s in shapes]
        self.label = f"{type(module).__name__} of {', '.join(map(str, self.shapes))}"
        self.inputs = [frozen(np.asarray(x)) for x in self.module.sample(self.rng, *self.shapes)]
        self.shapes = [
            valued(s, x) if name in module.shapeInputs else s
            for s, x, name in zip(self.shapes, self.inputs, self.inputNames)
        ]
        with device.useDevice("cpu"):  # the reference device
            for p in self.module.params.values():  # distinct values: zeros would hide mistakes
                p.data = device.toHost(p.data) + 0.5 * self.rng.standard_normal(p.shape)
            for s in self.module.states.values():
                s.data = device.toHost(s.data)
        self.states = {name: s.data.copy() for name, s in self.module.states.items()}

    @property
    def absent(self) -> int:
        """The number of omitted optional inputs."""
        spec = self.module.inputSpec
        return 0 if spec.variadic else max(0, len(spec.names) - len(self.inputs))

    @property
    def arguments(self) -> list[Any]:
        return [
            *self.inputs,
            *[None] * self.absent,
            *(
                None if p is None else frozen(p.data) if isinstance(p, Param) else p.data
                for p in self.module.ruleParams()
            ),
        ]

    @property
    def inputNames(self) -> list[str]:
        """The name of each input, including omitted ones; a variable number of inputs share a name."""
        names = self.module.arguments
        return [names[min(i, len(names) - 1)] for i in range(len(self.inputs) + self.absent)]

    @property
    def names(self) -> list[str]:
        return self.inputNames + list(self.module.ruleNames)

    @property
    def floats(self) -> list[int]:
        """The arguments that have a gradient: float inputs, and parameters."""
        if self.module.isDiscrete:
            return []
        params = [None] * (len(self.inputs) + self.absent) + self.module.ruleParams()
        return [
            i
            for i, (a, p, name) in enumerate(zip(self.arguments, params, self.names, strict=True))
            if a is not None
            and isFloating(a.dtype)
            and (i < len(self.inputs) or isinstance(p, Param))
            and name not in self.module.indices
        ]

    def restore(self) -> None:
        for name, values in self.states.items():
            getattr(self.module, name).data = values.copy()

    def run(self, arguments: list[AnyArray] | None = None) -> tuple:
        """All outputs, visible and hidden, from the same states each time."""
        self.restore()
        arguments = self.arguments if arguments is None else arguments
        if arguments is not None:
            states = self.module.ruleParams()
            count = len(self.inputs) + self.absent
            tail = arguments[count:]
            arguments = arguments[:count] + [
                t if p is None or isinstance(p, Param) else p.data for t, p in zip(tail, states, strict=True)
            ]
        result = forwardRule(self.module, arguments, len(self.inputs) + self.absent)
        return result if type(result) is tuple else (result,)

    def visible(self, outputs: tuple) -> list[AnyArray]:
        return list(outputs[: len(self.module.outputNames)])

    def seeds(self, outputs: tuple) -> list[AnyArray]:
        """A gradient for every visible output, the same each time."""
        rng = np.random.default_rng(1)
        return [frozen(np.asarray(rng.standard_normal(np.shape(y)), y.dtype)) for y in self.visible(outputs)]

    def gradients(
        self, outputs: tuple, needs: tuple[bool, ...] | None = None, values: list[Any] | None = None
    ) -> tuple:
        """Call the gradient rule."""
        needs = needs or tuple(i in self.floats for i in range(len(self.arguments)))
        rule = gradientRule(self.module, needs)
        seeds = self.seeds(outputs)
        values = [*self.arguments, *outputs] if values is None else values
        grads = gradRule(rule, seeds if len(seeds) > 1 else seeds[0], values)
        return asGrads(grads, len(self.arguments), type(self.module).__name__)


def frozen(array: AnyArray) -> AnyArray:
    """The array, read-only, so that a rule that writes to its arguments fails at that line."""
    array = np.array(array)
    array.flags.writeable = False
    return array
