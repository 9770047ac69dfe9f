"""Pointwise: a Module whose formula defines its forward rule, shape rule, gradient and documentation."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.arguments import isNumber
from puregraph.core.base.cachedproperty import CachedProperty
from puregraph.core.base.dtype import isBfloat16, isFloating, needFloats, promoted
from puregraph.core.errors import FormulaError
from puregraph.core.param import Param, State
from puregraph.core.shape import broadcast, product, valueOf
from puregraph.graph.module import Inputs, Module
from puregraph.ops.formula import Formula
from puregraph.ops.formula.expr import REMEMBERED
from puregraph.ops.formula.formula import numpyFrom
from puregraph.ops.formula.optable import LOGICAL
from puregraph.ops.formula.symbolic import symbolicValue
from puregraph.ops.reduction.reference import unbroadcast

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.core.shape import Shape
    from puregraph.ops.formula.interpreter import Interpreter

PARAMETER = (Param, State)
GRAD, OUTPUT = "_grad", "_y"  # names of the output gradient and the output in gradient formulas


class Pointwise(Module):
    """y = formula(x, ...), element by element; several inputs broadcast as numpy does.

        class Elu(Pointwise):
            formula = "where(x > 0, x, alpha * expm1(x))"

            def __init__(self, alpha=1.0, name=None):
                super().__init__(name, alpha=alpha)

    Names in the formula are constants passed to `super().__init__`, the module's parameters (attributes that are
    Params), or inputs, in order of appearance or as in `inputs = ("x", "t")` on the class.

    `Pointwise(formula="x * sigmoid(x)")` needs no class. At kinks the derivative is torch's.

    A class whose docstring has no line of Shapes gets its formula, derivatives and shapes added to it; `describe`
    writes them for one module, with its constants.

    Shapes    any that broadcast -> their broadcast
    Source    the gradient is the formula's derivative, summed over axes that were broadcast
    Raises    FormulaError for a formula that cannot be read, or that constants have made independent of an input;
              ShapeError for shapes that do not broadcast
    """

    formula: Any = None
    inputs: tuple[str, ...] = ()
    settings: tuple[dict[str, Any], ...] = ({},)  # arguments of its examples

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        doc = vars(cls).get("__doc__") or ""
        if isinstance(vars(cls).get("formula"), str) and "Shapes" not in doc:
            cls.__doc__ = documented(inspect.cleandoc(doc), cls)

    def __init__(self, name: str | None = None, formula: str | None = None, **constants: float):
        super().__init__(name)
        text = type(self).formula if formula is None else formula
        if text is None:
            label = type(self).__name__
            raise FormulaError(f"{label}: wanted a formula, as in {label}(formula='x * sigmoid(x)'), got none")
        general = Formula(text)
        if not general.names:
            raise FormulaError(f"{type(self).__name__}: wanted a formula with a variable for its input, got {general}")
        self.formula = general.put(**constants) if constants else general
        self.isDiscrete = self.formula.term.op in LOGICAL
        lost = [n for n in general.names if n not in constants and n not in self.formula.names]
        if lost:
            raise FormulaError(f"{general} with {constants} is {self.formula}, which has no {', '.join(lost)} left")

    @CachedProperty
    def order(self) -> tuple[str, ...]:
        """Return the names of the formula in the order of rules: inputs, then parameters.

        Raises    FormulaError for a name that is an attribute with a number, which the formula would take for an input
        """
        names = self.inputs or self.formula.names
        for name in names:
            if isNumber(vars(self).get(name)):
                cls = type(self).__name__
                raise FormulaError(
                    f"{cls}: '{name}' of {self.formula} is an attribute with a number; pass it on as a constant: "
                    f"super().__init__(name, {name}={name})"
                )
        return tuple(sorted(names, key=self.holds))

    @CachedProperty
    def hasIdle(self) -> bool:
        """True if the result depends on fewer arguments, as on y alone in `x ** 0 + y`, and lacks the others' shape."""
        return len(numpyFrom([self.formula], self.order).reads[0]) < len(self.order)

    def holds(self, name: str) -> bool:
        return isinstance(vars(self).get(name), PARAMETER)

    @property
    def inputSpec(self) -> Inputs:
        held = self.ruleNames
        return Inputs(tuple([n for n in self.order if n not in held]) if held else self.order)

    @property
    def ruleNames(self) -> tuple[str, ...]:
        attributes = vars(self)
        return tuple([n for n in self.order if isinstance(attributes.get(n), PARAMETER)])

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        used = {n for d in gradients(self.formula, self.order) for n in d.names}
        return (*(n for n in self.order if n in used), *(self.outputNames if besides(self.order)[1] in used else ()))

    @property
    def views(self) -> bool:  # type: ignore[override]
        """True if the formula is just an input, as `1 * x` is."""
        return self.formula == Formula(self.order[0])

    def dataShapeFrom(self, *shapes: Shape) -> Any:
        return broadcast(*shapes, *(p.shape for p in self.ruleParams() if p is not None))

    def dataTypeFrom(self, *dtypes: Any) -> Any:
        remaining, names = iter(dtypes), self.ruleNames
        operandTypes = [getattr(self, n).dtype if n in names else next(remaining) for n in self.order]
        if names:
            needFloats(zip(self.arguments, dtypes), promoted(getattr(self, n).dtype for n in names))
        if any(d is None for d in operandTypes):
            return None
        brain = next((d for d in operandTypes if isBfloat16(d)), None)
        wide = operandTypes if brain is None else [np.dtype(np.float32) if isBfloat16(d) else d for d in operandTypes]
        resultType = numpyFrom([self.formula], self.order).plan(tuple(wide)).results[0]
        isWide = brain is None or resultType.kind != "f"
        return resultType if isWide else promoted([d for d in operandTypes if isFloating(d)])

    def valueFrom(self, *shapes: Any) -> Any:
        values = [valueOf(s) for s in shapes]
        if self.ruleNames or any(v is None for v in values):
            return None
        if all(v.dtype.kind != "O" for v in values):
            return self.updateData(*values)
        return symbolicValue(self.formula.term, dict(zip(self.order, values)))

    def updateData(self, *arguments: Any, out: Any = None) -> Any:
        y = self.formula.numpy(self.order)(*arguments, out=out)
        if out is None and self.hasIdle:
            return np.broadcast_to(y, broadcast(*[x.shape for x in arguments])).copy()
        return y

    def derivative(self, grad: AnyArray, *values: AnyArray, needs: tuple[bool, ...]) -> tuple:
        """grad * dy/dx for every argument x that needs it."""
        *arguments, y = values
        grads = iter(pullback(self.formula, self.order, needs)(grad, *arguments, y))
        return tuple([asGradient(next(grads), grad, x.shape) if n else None for x, n in zip(arguments, needs)])

    def flopsFrom(self, *shapes: Any) -> Any:
        return self.formula.flops * product(self.dataShapeFrom(*shapes))

    def describe(self) -> str:
        """The formula with its constants, its derivatives by inputs and parameters, and its shapes, as text."""
        return description(self.formula, self.order)

    @classmethod
    def examples(cls) -> Iterator[tuple[Module, list[Any]]]:
        if cls is Pointwise:
            yield cls(formula="x * sigmoid(beta * x)", beta=1.5), [(2, 3)]
            yield cls(formula="a * b + a"), [(2, 3), (3,)]
            yield cls(formula="exp(-x) * y - floor(x)"), [(2, 1), (2, 3)]
        else:
            for options in cls.settings:
                module = cls(**options)
                yield module, [(2, 3)] * len(module.arguments)


def documented(text: str, cls: type[Pointwise]) -> str:
    """Return a docstring with the description of its class's formula; constructor arguments are constants."""
    try:
        formula = Formula(cls.formula)
        constants = inspect.signature(cls.__init__).parameters
        names = cls.inputs or tuple(n for n in formula.names if n not in constants)
        return f"{text}\n\n{description(formula, names)}".strip()
    except FormulaError:
        return text  # the error is raised when a module is made


def description(formula: Formula, names: tuple[str, ...]) -> str:
    """y, dy/dx for each name x, and the shapes, a line each; a long formula has lines for its parts."""
    lines = []
    for left, right in [("y", formula), *((f"dy/d{n}", d) for n, d in zip(names, partials(formula, names)))]:
        *parts, result = str(right).split("; ")
        lines += [*parts, f"{left} = {result}"]
    shapes = (
        f"{names[0]} (any) -> y the same" if len(names) == 1 else f"{', '.join(names)} broadcast -> y their broadcast"
    )
    return "\n".join([*lines, "", f"Shapes    {shapes}"])


@lru_cache(maxsize=REMEMBERED)
def partials(formula: Formula, names: tuple[str, ...]) -> list[Formula]:
    """dy/dx for each name x."""
    return [formula.derivative(name) for name in names]


@lru_cache(maxsize=REMEMBERED)
def gradients(formula: Formula, names: tuple[str, ...]) -> tuple[Formula, ...]:
    """grad * dy/dx for each name x, written with the output if that saves reading an input."""
    grad, output = besides(names)
    plain = formula.gradient(names, grad)
    lean = formula.gradient(names, grad, output)
    plainReads, leanReads = (len({n for d in pulled.values() for n in d.names}) for pulled in (plain, lean))
    return tuple((lean if leanReads <= plainReads else plain).values())


@lru_cache(maxsize=REMEMBERED)
def pullback(formula: Formula, names: tuple[str, ...], needs: tuple[bool, ...]) -> Interpreter:
    """The numpy function (grad, *arguments, y) -> the gradients that are needed, before they are summed back."""
    wanted = [d for d, needed in zip(gradients(formula, names), needs) if needed]
    grad, output = besides(names)
    return numpyFrom(wanted, (grad, *names, output))


def besides(names: tuple[str, ...]) -> tuple[str, str]:
    """Names for the output gradient and the output that differ from these names."""
    grad, output = GRAD, OUTPUT
    while grad in names or output in names:
        grad, output = f"_{grad}", f"_{output}"
    return grad, output


def asGradient(derivative: Any, grad: Any, shape: Any) -> AnyArray:
    """A gradient formula's result in the shape of its argument; a derivative of 0 is a single number."""
    return unbroadcast(derivative, shape) if derivative.ndim == grad.ndim else np.zeros_like(grad, shape=shape)
