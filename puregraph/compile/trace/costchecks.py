"""Cost checks: warn of combinations of a network and a cost that run but are probably mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from puregraph.core.errors import GraphWarning, show
from puregraph.core.errors.userwarning import warnUser
from puregraph.graph import Graph

if TYPE_CHECKING:
    from puregraph.core.dim import Size
    from puregraph.core.shape import Shape
    from puregraph.graph.module import Module
    from puregraph.graph.steps import GraphStep

NONE = "the cost is 0 whatever the network gives; for yes and no there is BCE, or let the network give two classes"


def warnOf(graph: Graph, cost: Module, shapes: list[Shape]) -> None:
    """Warn once about everything doubtful in a network with its cost, for inputs and targets of these shapes."""
    warnings = list(doubts(graph, cost, shapes))
    if warnings:
        warnUser("; ".join(warnings), GraphWarning)


def doubts(graph: Graph, cost: Any, shapes: list[Shape]) -> Iterator[str]:
    """All warnings about a network and its cost."""
    yield from paddingRead(graph, len(shapes))
    yield from mixedAxes(graph, shapes)
    last = lastBefore(graph, cost, len(shapes))
    name, takes = type(cost).__name__, getattr(cost, "takes", "")
    label = "" if last is None else f"'{last.path}' ({last.module.label})"
    gives = "" if last is None else last.module.gives
    if takes and gives == "probabilities":
        yield f"{name} takes scores before sigmoid or softmax, but {label} gives probabilities: remove it for training"
    if takes == "logits" and gives == "no negatives":
        yield f"{name} takes logits, negative for no, but {label} gives no negative values: remove it"
    if takes == "scores" and gives == "no negatives":
        yield (
            f"{name} takes scores of any sign, but {label} gives no negative values and has no gradient for them: "
            "remove it"
        )
    if takes == "scores":
        x, axis = graph.dataShapeFrom(shapes)[1], getattr(cost, "axis", 1)
        if x[axis] == 1:
            yield f"{name} got {show(x)}, scores of a single class: {NONE}"
        if (
            axis == 1
            and lastBefore(graph, cost, len(shapes), False) is last
            and gives == "features last"
            and len(x) > 2
            and x[1] == x[-1]
        ):
            yield (
                f"{name} has the classes on axis 1 of {show(x)}, {label} makes the last axis: "
                "if the classes are there, give the cost axis=-1, or put Transpose behind it"
            )


def paddingRead(graph: Graph, inputs: int) -> Iterator[str]:
    """Warnings about nodes that read the padding of sequences: the last time step, or all of them."""
    steps = graph.steps(inputs).items
    made = {step.visible[0]: step for step in steps if step.visible}
    for step in steps:
        source = made.get(step.args[0]) if step.args else None
        name = "" if source is None else source.module.zeroBeyond
        if source is None or not name or not source.args[source.module.arguments.index(name)]:
            continue
        reader, read = f"'{step.path}' ({step.label})", f"'{source.path}' ({source.label})"
        if isLastStep(getattr(step.module, "slc", ())):
            yield (
                f"{reader} takes the last time step of {read}, which is 0 beyond the {name} of each sample: "
                f"{type(source.module).__name__}(..., outputs='h') gives the last state within them"
            )
        hint = getattr(step.module, "withPadding", "")  # the hint of a reduction that padding changes
        if hint and hasTimeSteps(step.module.axis):
            yield f"{reader} is over all time steps of {read}, the zeros beyond the {name} too: {hint}"


def mixedAxes(graph: Graph, shapes: list[Shape]) -> Iterator[str]:
    """Warnings about a reshape that only swaps sizes, and about a norm along another axis than the features."""
    made: dict[int, Any] = {}
    for row in graph.infer(*shapes).rows:
        step, x = row.step, row.inshapes[0] if row.inshapes else None
        made.update(dict.fromkeys(step.visible, step))
        if x is None or not row.shapes or None in x:
            continue
        label, y = f"'{step.path}' ({step.label})", row.shapes[0]
        isSame = big(x) == big(y) or sorted(big(x), key=str) != sorted(big(y), key=str)
        if getattr(step.module, "reinterprets", False) and not isSame and x[0] == y[0]:
            yield (
                f"{label} makes {show(y)} of {show(x)} with the elements in their order, which mixes the axes: "
                "Transpose exchanges them"
            )
        source = made.get(step.args[0])
        isOther = getattr(step.module, "featuresFirst", False) and len(x) > 2 and x[1] == x[-1]
        if isOther and source is not None and source.module.gives == "features last":
            yield (
                f"{label} normalises axis 1 of {show(x)}, '{source.path}' ({source.label}) makes the last axis: "
                "LayerNorm normalises that, or put Transpose before and behind"
            )


def big(shape: Shape) -> list[Size]:
    """The sizes of a shape that are not 1."""
    return [size for size in shape if size != 1]


def isLastStep(index: tuple[object, ...]) -> bool:
    """True if an index of (samples, time steps, features) picks the last time step."""
    isPlain = len(index) > 1 and ... not in index[:2] and None not in index[:2]
    return isPlain and index[1] in (-1, slice(-1, None))


def hasTimeSteps(axis: object) -> bool:
    """True if a reduction of (samples, time steps, features) is over the time steps."""
    return axis is None or bool({1, -2} & set(axis if isinstance(axis, tuple) else (axis,)))


def lastBefore(graph: Graph, cost: Module, inputs: int, hasViews: bool = True) -> GraphStep | None:
    """The step that computes the argument of a cost, or None; identities and views are skipped."""
    steps = graph.steps(inputs)
    made = {number: step for step in steps.items for number in step.visible}
    source = next((step for step in steps.items if step.module is cost), None)
    if source is not None:
        source = made.get(source.args[0])
    while source is not None and (hasViews and source.module.views or source.module.gives == "as taken"):
        source = made.get(source.args[0])
    return source
