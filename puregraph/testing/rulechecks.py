"""Checks of a module's rules: shapes, gradients, and what their declarations say that they read."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.dim import Dim
from puregraph.core.errors import ShapeError
from puregraph.core.shape import bind, fits
from puregraph.graph.module import Module
from puregraph.testing.case import Case, CheckError, expect, frozen

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


def shapeRule(case: Case) -> None:
    """The shape rule predicts the shapes of visible and hidden outputs."""
    outputs = case.run()
    said = case.module.dataShapeFrom(*case.shapes)
    said = said if isinstance(said, list) else [said]
    got = [tuple(np.shape(y)) for y in case.visible(outputs)]
    expect(fits(got, said), f"{case.label}: dataShapeFrom says {said}, updateData gives {got}")
    hidden = [(tuple(np.shape(y)), np.dtype(getattr(y, "dtype", object))) for y in outputs[len(got) :]]
    kinds = case.module.hiddenTypeFrom(*[x.dtype for x in case.inputs], *[None] * case.absent)
    declared = list(zip(map(tuple, case.module.hiddenShapeFrom(*case.shapes)), kinds, strict=True))
    said = f"{case.label}: hiddenShapeFrom and hiddenTypeFrom say {declared}"
    expect(declared == hidden, f"{said}, updateData gives {hidden}")
    flops = case.module.flopsFrom(*case.shapes)
    expect(isinstance(flops, (int, np.integer)) and flops >= 0, f"{case.label}: flopsFrom gives {flops!r}, not a count")


def symbols(case: Case) -> None:
    """A symbolic dimension is propagated: bound to a number, it gives the same shapes as the number."""
    sizes = sorted({s[axis] for s in case.shapes for axis in range(len(s))})
    wanted = case.module.dataShapeFrom(*case.shapes)
    for size in sizes:
        for axis in range(max(map(len, case.shapes), default=0)):
            trial = [
                s if axis >= len(s) or s[axis] != size else (*s[:axis], Dim("N"), *s[axis + 1 :]) for s in case.shapes
            ]
            if trial == case.shapes:
                continue
            try:
                got = case.module.dataShapeFrom(*trial)
            except ShapeError:
                continue
            bound = [
                tuple(None if d is None else bind((d,), {"N": size})[0] for d in s)
                for s in (got if isinstance(got, list) else [got])
            ]
            expect(
                bound == (wanted if isinstance(wanted, list) else [wanted]),
                f"{case.label}: with N for {size} the shape rule says {got}, which is not {wanted}",
            )
            case.module.flopsFrom(*trial)


def wrongShapes(case: Case) -> None:
    """For other shapes, the shape rule agrees with execution, or raises a ShapeError with the expected shapes."""
    for i, shape in enumerate(case.shapes):
        others = [shape[:-1], (*shape, 2), *(shape[:a] + (d + 1,) + shape[a + 1 :] for a, d in enumerate(shape))]
        for other in others:
            shapes = [*case.shapes[:i], other, *case.shapes[i + 1 :]]
            try:
                said = case.module.dataShapeFrom(*shapes)
            except ShapeError as error:
                expect(
                    error.faults[0].wanted and error.faults[0].given,
                    f"{case.label}: the ShapeError for {shapes} names no wanted or given",
                )
                continue
            except Exception as error:
                raise CheckError(
                    f"{case.label}: for {shapes} the shape rule raises {type(error).__name__} ({error}), not ShapeError"
                ) from error
            trial = Case(case.module, shapes, train=case.module.isTraining)
            try:
                got = [tuple(np.shape(y)) for y in trial.visible(trial.run())]
            except Exception as error:
                raise CheckError(
                    f"{case.label}: the shape rule accepts {shapes}, but updateData raises {error}"
                ) from error
            said = said if isinstance(said, list) else [said]
            expect(fits(got, said), f"{case.label}: for {shapes} dataShapeFrom says {said}, updateData gives {got}")


DIFFERENCE_STEP = (
    1e-6  # step of central differences in float64: the error is about the square of the step plus 1e-16 by the step
)


def gradient(case: Case) -> None:
    """Along a random direction in each argument, the gradient rule agrees with central differences in float64."""
    if getattr(case.module, "passesStraight", False):
        return
    outputs = case.run()
    seeds = case.seeds(outputs)
    grads = case.gradients(outputs)

    def loss(arguments: list[AnyArray]) -> float:
        return sum(float(np.sum(g * y)) for g, y in zip(seeds, case.visible(case.run(arguments)), strict=True))

    arguments = case.arguments
    for i in case.floats:
        expect(grads[i] is not None, f"{case.label}: the gradient rule gives None for argument '{case.names[i]}'")
        got, kept = (grads[i].dtype, grads[i].shape), (arguments[i].dtype, arguments[i].shape)
        expect(got == kept, f"{case.label}: the gradient of '{case.names[i]}' is {got}, the argument {kept}")
        for _ in range(3):
            direction = case.rng.standard_normal(arguments[i].shape)
            moved = [
                arguments[:i] + [frozen(arguments[i] + s * DIFFERENCE_STEP * direction)] + arguments[i + 1 :]
                for s in (1, -1)
            ]
            numeric = (loss(moved[0]) - loss(moved[1])) / (2 * DIFFERENCE_STEP)
            analytic = float(np.sum(grads[i] * direction))
            size = max(abs(numeric), abs(analytic), float(np.linalg.norm(grads[i])), 1e-2)
            rounding = 1e-12 * max(1.0, abs(loss(arguments))) / DIFFERENCE_STEP
            expect(
                abs(numeric - analytic) <= 1e-6 * size + rounding,
                f"{case.label}: the gradient of '{case.names[i]}' along a random direction is {analytic:.9g}, "
                f"central differences say {numeric:.9g}",
            )


def repeats(case: Case) -> None:
    """The same inputs and states give the same outputs and gradients, and a copy of the module gives them too."""
    first, second = case.run(), case.run()
    expect(same(first, second), f"{case.label}: two runs on the same inputs differ")
    expect(same(case.gradients(first), case.gradients(first)), f"{case.label}: two runs of the gradient rule differ")
    clone = copy.copy(case)
    clone.module = copy.deepcopy(case.module)
    expect(same(first, clone.run()), f"{case.label}: a deep copy of the module gives other results")


def same(a: Any, b: Any) -> bool:
    """True if arrays are equal; contexts of Functions only have to exist."""
    return all(
        type(u) is type(v) and (not hasattr(u, "dtype") or np.array_equal(u, v, equal_nan=True))
        for u, v in zip(a, b, strict=True)
    )


class Shadow:
    """An array without data, which a gradient rule gets in this check for a value that `reads` does not list."""

    def __init__(self, array: AnyArray, label: str):
        self.shape, self.dtype, self.ndim, self.size = array.shape, array.dtype, array.ndim, array.size
        self.label = label

    def __getattr__(self, name: str) -> Any:
        raise CheckError(self.label)

    def refuse(self, *args: object, **kwargs: object) -> Any:
        raise CheckError(self.label)

    __array__ = __array_ufunc__ = __array_function__ = __getitem__ = __len__ = __iter__ = __bool__ = refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = __neg__ = (
        refuse
    )
    __matmul__ = __rmatmul__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = refuse


def readsIsTrue(case: Case) -> None:
    """The gradient rule reads no data of values that `reads` does not list."""
    if case.module.reads is None:
        return
    outputs = case.run()
    names = case.names + list(outputNamesOf(case.module))
    known = {*names, *case.module.arguments}  # arguments may be omitted
    for name in case.module.reads:
        expect(name in known, f"{case.label}: reads names {name!r}, which is none of {', '.join(dict.fromkeys(names))}")
    values = [
        v
        if v is None or n in case.module.reads
        else Shadow(v, f"{case.label}: the gradient rule reads '{n}', which `reads` does not list")
        for n, v in zip(names, [*case.arguments, *outputs], strict=True)
    ]
    expect(
        same(case.gradients(outputs), case.gradients(outputs, values=values)),
        f"{case.label}: without what `reads` leaves out, gradients differ",
    )


def outputNamesOf(module: Module) -> tuple[str, ...]:
    """The names of the visible outputs, then of the hidden ones."""
    return (*module.outputNames, *module.hidden)


def needsIsTrue(case: Case) -> None:
    """A gradient that is requested alone equals the one computed with all others."""
    outputs = case.run()
    full = case.gradients(outputs)
    for i in case.floats:
        alone = case.gradients(outputs, tuple(j == i for j in range(len(case.arguments))))
        expect(alone[i] is not None, f"{case.label}: with needs for '{case.names[i]}' alone its gradient is None")
        expect(
            same((alone[i],), (full[i],)),
            f"{case.label}: the gradient of '{case.names[i]}' changes when the others are not needed",
        )
