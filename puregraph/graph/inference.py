"""Inference of the shapes and dtypes of all values of a graph from its inputs; each rule runs once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.base.dtype import BOOL, INDEX, isBfloat16, isFloating
from puregraph.core.base.signals import isAsynchronous
from puregraph.core.errors import DtypeError, Fault, PuregraphError, ShapeError, show
from puregraph.core.shape import FreshSymbols, withValues
from puregraph.graph.node import located
from puregraph.graph.steps import GraphStep, Steps, inputNames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.shape import Shape
    from puregraph.graph.module import Module


class StepShapes(NamedTuple):
    """The inferred shapes and dtypes of one step; `shapes` is None after a fault here or upstream, a dtype is None if
    unknown."""

    step: GraphStep
    inshapes: list[Any]
    shapes: list[Any] | None
    fault: Fault | None
    dtypes: list[Any]


class Inferred(NamedTuple):
    """All inferred steps, with shapes and dtypes of the outputs; `isOpen`: some sizes depend on the data."""

    rows: list[StepShapes]
    shapes: list[Any]
    dtypes: list[Any]
    isOpen: bool = False


def inferShapes(steps: Steps, inputShapes: list[Any], dtypes: list[Any] | None = None) -> Inferred:
    """Infer every step; faults are recorded instead of raised. Without `dtypes` no dtypes are inferred."""
    known: list[Any] = [None] * steps.count
    kinds: list[Any] = [None] * steps.count
    unknown: set[int] = set()
    fresh = FreshSymbols(inputShapes)
    for number, shape, dtype in zip(steps.inputs, inputShapes, dtypes or [None] * len(inputShapes), strict=True):
        known[number], kinds[number] = shape, dtype
    rows = []
    for step in steps.items:
        numbers = step.args[: step.inputs]
        inshapes = [known[n] for n in numbers]
        outs, fault = shapesFrom(step, inshapes, steps) if unknown.isdisjoint(numbers) else (None, None)
        if step.computed:
            fault = fault or handedFault(step, known, steps)
            outs = None if fault else outs
        outs = outs and fresh.named(step.path, step.module, withValues(step.module, inshapes, outs))
        outtypes, wrong = dtypesFrom(step, [kinds[n] for n in numbers], steps) if dtypes is not None else ([], None)
        rows.append(StepShapes(step, inshapes, outs, fault or wrong, outtypes))
        setTypes(step, outtypes, kinds, steps)
        if outs is None:
            unknown.update(step.outs)
            continue
        for number, shape in zip(step.visible, outs, strict=True):
            known[number] = shape
        if readsHidden(step, steps):
            for number, shape in zip(step.outs[len(outs) :], step.module.hiddenShapeFrom(*inshapes), strict=True):
                known[number] = shape
    rows = [*undeclared(steps, known, kinds), *rows]
    return Inferred(rows, [known[n] for n in steps.outputs], [kinds[n] for n in steps.outputs], fresh.isUsed)


def followSizes(steps: Steps, inputShapes: list[Any]) -> None:
    """Set the sizes of states with symbols, for inputs that fit.

    Raises    ShapeError naming the first node whose state has other sizes from an earlier run
    """
    known = {row.step: row.inshapes for row in inferShapes(steps, inputShapes).rows if row.shapes is not None}
    for step in steps.followers:
        if step in known:
            try:
                step.module.followSizes(*known[step])
            except ShapeError as error:
                raise located(error, step.path, step.label) from None


def undeclared(steps: Steps, shapes: list[Shape | None], dtypes: list[np.dtype | None]) -> list[StepShapes]:
    """The inputs whose shape or dtype differs from their declaration."""
    rows = []
    for step in steps.declared:
        shape, dtype = shapes[step.args[0]], dtypes[step.args[0]]
        fault = shapesFrom(step, [shape], steps)[1] if shape is not None else None
        fault = fault or dtypesFrom(step, [dtype], steps)[1]
        rows += [StepShapes(step, [shape], None, fault, [dtype])] if fault else []
    return rows


def inferTypes(steps: Steps, inputDtypes: Sequence[object]) -> tuple[list[Any], list[Fault]]:
    """Infer the dtype of every value from the input dtypes, and the faults of steps that refuse theirs."""
    known: list[Any] = [None] * steps.count
    faults = []
    for number, dtype in zip(steps.inputs, inputDtypes, strict=True):
        known[number] = dtype
    for step in steps.items:
        visible, fault = dtypesFrom(step, [known[n] for n in step.args[: step.inputs]], steps)
        faults += [fault] if fault else []
        setTypes(step, visible, known, steps)
    faults += [row.fault for row in undeclared(steps, [None] * steps.count, known) if row.fault]
    return known, faults


def setTypes(step: GraphStep, visible: Sequence[object], known: list[Any], steps: Steps) -> None:
    """Record the dtypes of a step's outputs; of hidden outputs only if another step reads one."""
    for number, dtype in zip(step.visible, visible):
        known[number] = dtype
    if visible and readsHidden(step, steps):
        inputDtypes = [known[n] for n in step.args[: step.inputs]]
        for number, dtype in zip(step.outs[len(step.visible) :], hiddenTypes(step.module, inputDtypes), strict=True):
            known[number] = dtype


def readsHidden(step: GraphStep, steps: Steps) -> bool:
    """True if any step reads a hidden output of this one, or the graph returns it."""
    return bool(step.module.hidden) and not steps.readValues.isdisjoint(step.outs[len(step.visible) :])


def hiddenTypes(module: Module, dtypes: Sequence[object]) -> list[np.dtype | None]:
    """The dtypes of a module's hidden outputs, which are not rounded to bfloat16; None for values without a dtype."""
    wide = [np.dtype(np.float32) if d is not None and isBfloat16(d) else d for d in dtypes]
    return [None if d is None or d.kind == "O" else d for d in module.hiddenTypeFrom(*wide)]


def inputTypes(steps: Steps, real: Any) -> list[Any]:
    """Return the dtype that each input should have: the declared one; integers for indices and booleans for masks, also
    through steps that keep the dtype; otherwise the float that the graph computes in."""
    asked: dict[int, Any] = {}
    for step in reversed(steps.items):
        module, numbers = step.module, step.args[: step.inputs]
        kept = next((asked[n] for n in step.visible if n in asked), None)
        for number, name in zip(numbers, inputNames(module, step.inputs)):
            if name in module.indices or name in module.masks:
                asked[number] = INDEX if name in module.indices else BOOL
            elif kept is not None and (module.views or module.keepsDtype):
                asked[number] = kept
    declared = {step.args[0]: step.module.dtype for step in steps.declared if step.module.dtype is not None}
    return [declared.get(n) or asked.get(n, real) for n in steps.inputs]


def takenTypes(steps: Steps, asked: list[np.dtype], actual: list[np.dtype]) -> list[np.dtype]:
    """The dtype that each input is cast to. An input keeps its actual dtype if every rule accepts it, the graph
    computes in the same floats, and some step uses that dtype directly; otherwise it is cast to the `asked` one."""
    chosen = list(asked)
    others = [i for i, dtype in enumerate(actual) if dtype is not None and dtype != asked[i] and dtype.kind in "iub"]
    if not others:
        return chosen
    floats = {d for d in inferTypes(steps, asked)[0] if d is not None and isFloating(d)}
    for i in others:
        dtype = actual[i]
        trial = [*chosen[:i], dtype, *chosen[i + 1 :]]
        known, faults = inferTypes(steps, trial)
        isSame = not faults and floats.issuperset(d for d in known if d is not None and isFloating(d))
        isMask = dtype.kind == "b" and isFloating(asked[i])
        if isSame and (isMask or isComputed(steps, known, steps.inputs[i])):
            chosen = trial
    return chosen


def isComputed(steps: Steps, known: list[np.dtype | None], number: int) -> bool:
    """True if some step that reads this value has an integer or boolean output."""
    return any(
        number in step.args[: step.inputs] and any(not isFloating(known[n]) for n in step.visible)
        for step in steps.items
    )


def dtypesFrom(step: GraphStep, inputDtypes: list[np.dtype | None], steps: Steps) -> tuple[list[Any], Fault | None]:
    """Infer the dtypes of a step's outputs, or the fault of its inputs; after a fault no dtype is known."""
    if inputDtypes and not any(d is not None for d in inputDtypes):
        return [None] * len(step.visible), None
    try:
        result = step.module.dataTypeFrom(*inputDtypes)
    except DtypeError as error:
        fault = (
            error.faults[0] if error.faults else Fault("other dtypes", f"{show(inputDtypes)}: {error}", kind="dtype")
        )
        return [None] * len(step.visible), locate(fault, step, steps)
    dtypes = result if isinstance(result, list) else [result]
    if len(dtypes) != len(step.visible):
        wanted = "a dtype" if len(step.visible) == 1 else f"a list of {len(step.visible)} dtypes"
        raise PuregraphError(f"at '{step.path}' ({step.label}): dataTypeFrom wanted to give {wanted}, gave {result!r}")
    return dtypes, None


def shapesFrom(step: GraphStep, inshapes: list[Shape | None], steps: Steps) -> tuple[list[Any] | None, Fault | None]:
    """Infer the shapes of a step's outputs, or the fault of its inputs."""
    try:
        result = step.module.dataShapeFrom(*inshapes)
    except ShapeError as error:
        return None, locate(error.faults[0], step, steps)
    except Exception as error:
        if isAsynchronous(error):
            raise
        raise PuregraphError(
            f"at '{step.path}' ({step.label}): its shape rule failed on {show(inshapes)}: {error}"
        ) from error
    checkRule(result, step)
    return result if isinstance(result, list) else [result], None


def handedFault(step: GraphStep, known: list[Any], steps: Steps) -> Fault | None:
    """The fault of a parameter that another step computes, if it has another shape than the module's own."""
    for name, number in step.handed:
        wanted, shape = getattr(step.module, name), known[number]
        if wanted is not None and shape is not None and tuple(shape) != tuple(wanted.shape):
            where = f"{name} of shape {show(wanted.shape)}"
            return locate(Fault(where, show(shape)), step, steps)._replace(source=f"'{steps.producer[number]}'")
    return None


def locate(fault: Fault, step: GraphStep, steps: Steps) -> Fault:
    """The fault with the step that it is at, and where the step's inputs come from."""
    entered = set(steps.inputs)
    sources = dict.fromkeys(
        "the graph's input" if n in entered and steps.producer[n] == step.path else f"'{steps.producer[n]}'"
        for n in step.args[: step.inputs]
        if n
    )
    return fault._replace(
        path=f"{step.path}.{fault.path}" if fault.path else step.path,
        module=fault.module or step.label,
        source=fault.source or ", ".join(sources),
    )


def checkRule(result: Shape | list[Shape], step: GraphStep) -> None:
    """Check that a shape rule returns a tuple, or a list with one tuple per output."""
    outs = result if isinstance(result, list) else [result]
    if not all(isinstance(s, tuple) for s in outs) or len(outs) != len(step.visible):
        wanted = "a tuple" if len(step.visible) == 1 else f"a list of {len(step.visible)} tuples"
        raise PuregraphError(f"at '{step.path}' ({step.label}): dataShapeFrom wanted to give {wanted}, gave {result!r}")
