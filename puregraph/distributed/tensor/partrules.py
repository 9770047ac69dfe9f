"""Part rules: how divided values pass through modules without communication, and the module that each part runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from puregraph.core.shape import normalAxis, product
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.modules import Add, Attention, Mul, Reshape, Split, Transpose


class Division(NamedTuple):
    """An axis split evenly within each of `groups` equal blocks, such as fused QKV."""

    axis: int
    groups: int = 1


class Passage(NamedTuple):
    """A module with divided inputs: the Division of each input (None: not divided), and the shapes."""

    module: Any
    divisions: list[Division | None]
    inshapes: list[Any]
    shapes: list[Any]
    parts: int


Rule = Callable[[Passage], list[Division] | None]


def passed(passage: Passage) -> list[Division] | None:
    """Return the divisions of a step's outputs, if every part can be computed from parts alone; otherwise None."""
    module = passage.module
    if any(p is not None for p in module.ruleParams()) or module.hidden and type(module) is not Attention:
        return None
    rule = RULES.get(type(module)) or (elementwise if isinstance(module, Pointwise) else None)
    return None if rule is None else rule(passage)


def elementwise(passage: Passage) -> list[Division] | None:
    """Inputs that are all divided alike: the output is, too."""
    isAlike = len(set(passage.divisions)) == 1 and len(set(passage.inshapes)) == 1
    return [passage.divisions[0]] if isAlike and passage.divisions[0] is not None else None


def split(passage: Passage) -> list[Division] | None:
    """Along the divided axis, each output must be one of the blocks; along another axis, the division stays."""
    (division,), (shape,), module = passage.divisions, passage.inshapes, passage.module
    if division is None or normalAxis(module.axis, len(shape)) != division.axis:
        return None if division is None else [division] * module.count
    isEven = len(set(module.sizes(shape[division.axis]))) == 1
    return [Division(division.axis)] * module.count if isEven and division.groups == module.count else None


def transpose(passage: Passage) -> list[Division] | None:
    """The divided axis is permuted with the others."""
    (division,), (shape,) = passage.divisions, passage.inshapes
    order = passage.module.order(len(shape))
    return None if division is None else [division._replace(axis=order.index(division.axis))]


def reshape(passage: Passage) -> list[Division] | None:
    """The new divided axis has as many elements before it as the old one, and a size that `parts` divides."""
    division, x, y = passage.divisions[0], passage.inshapes[0], passage.shapes[0]
    if division is None or division.groups != 1 or passage.module.shape is None:
        return None
    before = product(x[: division.axis])
    fitting = [b for b in range(len(y)) if product(y[:b]) == before and y[b] % passage.parts == 0]
    return [Division(fitting[-1])] if fitting else None


def attention(passage: Passage) -> list[Division] | None:
    """Attention divided by heads; a mask must be the same for all heads."""
    heads, masks = passage.divisions[:3], passage.inshapes[3:]
    isForAll = all(shape is None or len(shape) < 3 or shape[-3] == 1 for shape in masks)
    isWhole = isForAll and not any(passage.divisions[3:])
    isDivided = heads == [Division(1)] * 3 and isWhole
    return [Division(1)] * len(passage.module.outputNames) if isDivided else None


RULES: dict[type, Rule] = {
    Add: elementwise,
    Mul: elementwise,
    Split: split,
    Transpose: transpose,
    Reshape: reshape,
    Attention: attention,
}


def partModule(passage: Passage, outputs: list[Division]) -> Module:
    """Return the module of one part: the step's module, unless it contains the length of the divided axis."""
    module, parts = passage.module, passage.parts
    if type(module) is Reshape:
        axis = outputs[0].axis
        wanted = list(module.shape or ())
        wanted[axis] = passage.shapes[0][axis] // parts
        return Reshape(tuple(wanted))
    division = passage.divisions[0]
    isCut = type(module) is Split and division is not None and isinstance(module.sections, tuple)
    if isCut and normalAxis(module.axis, len(passage.inshapes[0])) == division.axis:  # type: ignore[union-attr]
        return Split(module.axis, module.count)
    return module
