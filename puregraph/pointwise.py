"""Pointwise: a Module whose one formula is its forward rule, its shape rule, its gradient and its documentation."""

from __future__ import annotations

from functools import cache
from typing import Any

from puregraph.formula import Formula
from puregraph.kernels.reduce import unbroadcast
from puregraph.module import Inputs, Module
from puregraph.param import Param, State
from puregraph.shape import broadcast, product


class Pointwise(Module):
    """y = formula(x, ...), element by element; several inputs broadcast as numpy does.

        class Elu(Pointwise):
            formula = "where(x > 0, x, alpha * expm1(x))"

            def __init__(self, alpha=1.0, name=None):
                super().__init__(name, alpha=alpha)

    Names in the formula are the constants given to `super().__init__`, parameters held by the module (an attribute that
    is a Param), and otherwise inputs, in the order in which they appear. `Pointwise(formula="x * sigmoid(x)")` needs no
    class at all.

    Shapes    any that broadcast -> their broadcast
    Source    the gradient is the formula's derivative, summed back over axes that were broadcast
    Raises    FormulaError for a formula that cannot be read; ShapeError for shapes that do not broadcast
    """

    formula: Any = None

    def __init__(self, name: str | None = None, formula: str | None = None, **constants: float):
        super().__init__(name)
        self.formula = Formula(formula or type(self).formula).put(**constants)

    @property
    def inputSpec(self) -> Inputs:
        own = vars(self)
        return Inputs(tuple(n for n in self.formula.names if not isinstance(own.get(n), (Param, State))))

    @property
    def ruleNames(self) -> tuple[str, ...]:
        own = vars(self)
        return tuple(n for n in self.formula.names if isinstance(own.get(n), (Param, State)))

    @property
    def order(self) -> tuple[str, ...]:
        """The names of the formula as rules take them: inputs, then parameters."""
        return (*self.inputSpec.names, *self.ruleNames)

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        names = self.order
        return tuple(n for n in names if any(n in d.names for d in derivatives(self.formula, names)))

    def dataShapeFrom(self, *shapes: Any) -> Any:
        return broadcast(*shapes, *(p.shape for p in self.ruleParams() if p is not None))

    def updateData(self, *arguments: Any, out: Any = None) -> Any:
        return reading(self.formula, self.order)(*arguments, out=out)

    def derivative(self, grad: Any, *values: Any, needs: tuple[bool, ...]) -> tuple:
        """g * dy/dx for every argument x that needs it."""
        *arguments, _ = values
        names = self.order
        rules = pulls(self.formula, names)
        return tuple(
            [
                unbroadcast(rule(grad, *arguments), x.shape) if wanted else None
                for rule, x, wanted in zip(rules, arguments, needs, strict=True)
            ]
        )

    def flopsFrom(self, *shapes: Any) -> Any:
        return self.formula.flops * product(self.dataShapeFrom(*shapes))

    @classmethod
    def examples(cls):
        if cls is Pointwise:
            yield cls(formula="x * sigmoid(beta * x)", beta=1.5), [(2, 3)]
            yield cls(formula="a * b + a"), [(2, 3), (3,)]
        else:
            yield cls(), [(2, 3)]


@cache
def reading(formula: Formula, names: tuple[str, ...]) -> Any:
    return formula.numpy(names)


@cache
def derivatives(formula: Formula, names: tuple[str, ...]) -> tuple[Formula, ...]:
    return tuple(formula.derivative(n) for n in names)


@cache
def pulls(formula: Formula, names: tuple[str, ...]) -> tuple[Any, ...]:
    """For each name, the numpy function (grad, *arguments) -> its gradient, before it is summed back."""
    grad = Formula("grad_")
    return tuple((grad * d).numpy(("grad_", *names)) for d in derivatives(formula, names))
