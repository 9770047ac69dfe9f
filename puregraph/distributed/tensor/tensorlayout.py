"""TensorLayout: the layers of a graph that are divided, and the divided values between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from puregraph.core.errors import ArgumentError, DataError, ShapeError, show
from puregraph.core.shape import normalAxis, product, symbols
from puregraph.distributed.tensor.partrules import Division, Passage, passed
from puregraph.graph import Graph
from puregraph.graph.inference import StepShapes
from puregraph.graph.steps import GraphStep
from puregraph.modules import Attention, Embedder, Linear, Split

COLUMNS, JOINED, ROWS, TABLE, WITHIN = "columns", "joined", "rows", "table", "within"


class ParamCut(NamedTuple):
    """The division of a parameter: evenly within each of `groups` equal blocks of an axis."""

    axis: int
    groups: int
    size: int

    def indices(self, part: int, parts: int) -> np.ndarray:
        """Return the elements of the axis in a part; parts of a block may differ by one element."""
        block = self.size // self.groups
        begin, end = (block * p // parts for p in (part, part + 1))
        return np.concatenate([np.arange(k * block + begin, k * block + end) for k in range(self.groups)])

    def put(self, array: np.ndarray, into: np.ndarray, part: int, parts: int) -> None:
        """Copy the elements of a part to their positions in the undivided array."""
        into[(slice(None),) * self.axis + (self.indices(part, parts),)] = array

    def bounds(self, parts: int) -> list[int]:
        """Return the beginnings of the parts, stored one after the other, and the end of the last."""
        return list(accumulate([len(self.indices(part, parts)) for part in range(parts)], initial=0))


class PartOrder(NamedTuple):
    """The order of a parameter's elements part by part."""

    cut: ParamCut
    parts: int
    shape: tuple[int, ...]

    @property
    def bounds(self) -> list[int]:
        """Return the first element of each part, and the end of the last."""
        stride = product(self.shape) // self.cut.size if self.cut.size else 0
        return [stride * bound for bound in self.cut.bounds(self.parts)]

    def flat(self, array: Any) -> Any:
        """The elements of an array of the parameter's shape, in this order."""
        indices = [self.cut.indices(part, self.parts) for part in range(self.parts)]
        return np.concatenate([np.take(array, rows, axis=self.cut.axis).reshape(-1) for rows in indices])

    def shaped(self, flat: np.ndarray) -> np.ndarray:
        """The array of the parameter's shape."""
        array, shape = np.empty(self.shape, flat.dtype), list(self.shape)
        shape[self.cut.axis] = -1
        for part, (begin, end) in enumerate(pairwise(self.bounds)):
            self.cut.put(flat[begin:end].reshape(shape), array, part, self.parts)
        return array


class TensorLayout:
    """The division of a graph's layers into tensor parallel `parts`.

    A Linear is divided by columns and the next one by rows, with attention or element-wise steps between them. A Linear
    without such a partner is divided by columns, and its output gathered. The table of an Embedder is divided by rows.
    All other layers are not divided.

    `roles`      the role of a step by its index: COLUMNS, JOINED, ROWS, TABLE, or WITHIN, between COLUMNS and ROWS
    `divisions`  the Division of a value by its number, if it is divided
    `cuts`       the ParamCut of a parameter by its id

    Source    Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053, section 3
    Raises    DataError if it cannot be divided into that number of parts; ShapeError for shapes that do not fit
    """

    def __init__(self, graph: Graph, parts: int, shapes: Sequence[Any], rows: list[StepShapes] | None = None):
        self.graph, self.parts = graph, parts
        if any(symbols(tuple(shape)) for shape in shapes):
            raise ArgumentError(f"tensor={parts}: wanted shapes in numbers, got {', '.join(map(show, shapes))}")
        rows = graph.inferShapes([tuple(shape) for shape in shapes]) if rows is None else rows
        faults = [row.fault for row in rows if row.fault]
        if faults:
            raise ShapeError(*faults)
        self.steps = graph.steps(len(shapes))
        self.shapes: dict[int, Any] = dict(zip(self.steps.inputs, map(tuple, shapes)))
        self.readers: dict[int, list[GraphStep]] = {}
        self.users: dict[int, list[tuple[int, str]]] = {}  # by the ids of parameters
        for row in rows:
            self.shapes.update(zip(row.step.visible, row.shapes or ()))
        for index, step in enumerate(self.steps.items):
            for number in step.args[: step.inputs]:
                self.readers.setdefault(number, []).append(step)
            for name in step.module.ruleNames:
                if getattr(step.module, name) is not None:
                    self.users.setdefault(id(getattr(step.module, name)), []).append((index, name))
        self.checkHeads()
        self.solve()
        self.checkSizes()
        self.cuts = {key: cut for key, users in self.users.items() if (cut := self.cutOf(*users[0])) is not None}

    # Solving ----------------------------------------------------------------------------------------------------------

    def solve(self) -> None:
        """Set roles and divisions, such that divided values are gathered only after JOINED layers."""
        joined: set[int] = set()  # Linear whose outputs cannot stay in parts
        whole: set[int] = set()  # Linear and Embedder that share a parameter with a step that divides it differently
        while True:
            failed = self.divide(joined, whole)
            clashing = set() if failed else self.clashing()
            if not failed and not clashing:
                return
            joined |= failed
            whole |= clashing

    def divide(self, joined: set[int], whole: set[int]) -> set[int]:
        """Set roles and divisions. Returns the Linear layers whose columns reach a step that cannot be divided."""
        self.roles: dict[int, str] = {}
        self.groups: dict[int, int] = {}  # blocks of a divided Linear, by its index
        self.divisions: dict[int, Division] = {}
        origins: dict[int, set[int]] = {}
        failed: set[int] = set()
        for index, step in enumerate(self.steps.items):
            numbers = step.args[: step.inputs]
            begun = set[int]().union(*[origins.get(n, set()) for n in numbers])
            if not begun:
                role = None if index in whole else self.roleOf(step, index in joined)
                if role is not None:
                    self.roles[index] = role
                    self.groups[index] = self.runsOf(step) if role == COLUMNS else 1
                if role == COLUMNS:
                    (number,) = step.visible
                    self.divisions[number] = Division(len(self.shapes[number]) - 1, self.groups[index])
                    origins[number] = {index}
                continue
            passage = self.passage(step)
            first = passage.divisions[0]
            if (
                type(step.module) is Linear
                and index not in whole
                and first
                and first.axis == len(passage.inshapes[0]) - 1
            ):
                self.roles[index], self.groups[index] = ROWS, first.groups
                continue
            outputs = passed(passage)
            if outputs is None:
                failed |= begun
                continue
            self.roles[index] = WITHIN
            for number, division in zip(step.visible, outputs):
                self.divisions[number], origins[number] = division, begun
        return failed.union(*[origins.get(n, set()) for n in self.steps.outputs])

    def roleOf(self, step: GraphStep, isJoined: bool) -> str | None:
        """Return the role of a layer whose inputs are not divided."""
        module: Any = step.module
        if type(module) is Embedder:
            return TABLE if module.W.shape[0] >= self.parts else None
        if type(module) is not Linear:
            return None
        outsize = module.sizes[1]
        isTable = any(type(self.steps.items[i].module) is Embedder for i, _ in self.users[id(module.W)])
        fits = outsize >= self.parts and (isTable or not isJoined or outsize % self.parts == 0)
        return (JOINED if isJoined else COLUMNS) if fits else None

    def runsOf(self, step: GraphStep) -> int:
        """Return the number of equal blocks in a Linear's columns, such as 3 for fused q, k and v."""
        (number,) = step.visible
        readers, shape = self.readers.get(number, []), self.shapes[number]
        module: Any = readers[0].module if len(readers) == 1 else None
        isCut = type(module) is Split and normalAxis(module.axis, len(shape)) == len(shape) - 1
        return module.count if isCut and len(set(module.sizes(shape[-1]))) == 1 else 1

    def passage(self, step: GraphStep) -> Passage:
        """Return the step as a Passage, with the divisions of its inputs."""
        numbers = step.args[: step.inputs]
        divisions = [self.divisions.get(n) for n in numbers]
        inshapes = [self.shapes.get(n) for n in numbers]
        return Passage(step.module, divisions, inshapes, [self.shapes[n] for n in step.visible], self.parts)

    def cutOf(self, index: int, name: str) -> ParamCut | None:
        """Return the division of a parameter that a step needs."""
        role, module = self.roles.get(index), self.steps.items[index].module
        if role in (None, WITHIN) or role == ROWS and name == "b":
            return None
        if role == TABLE or name == "b":
            axis = 0
        else:
            axis = int(module.transpose == (role == ROWS))
        return ParamCut(axis, self.groups[index], getattr(module, name).shape[axis])

    def clashing(self) -> set[int]:
        """Return the layers that share a parameter with a step that divides it differently, or not at all."""
        clashes: set[int] = set()
        for users in self.users.values():
            if len({self.cutOf(*user) for user in users}) > 1:
                clashes |= {index for index, name in users if self.cutOf(index, name) is not None}
        return clashes

    # Exchange -------------------------------------------------------------------------------------------------------

    @property
    def spread(self) -> list[int]:
        """The undivided values that parts read, each once, whose gradients are all-reduced."""
        values: dict[int, None] = {}
        for index, role in self.roles.items():
            step = self.steps.items[index]
            numbers = [n for n in step.args[: step.inputs] if n in self.shapes and n not in self.divisions]
            values.update(dict.fromkeys(numbers if role in (COLUMNS, JOINED, WITHIN) else ()))
        trained = self.trained
        return [number for number in values if number in trained]

    @property
    def trained(self) -> set[int]:
        """The values that depend on trained parameters, and so have a gradient."""
        values: set[int] = set()
        for step in self.steps.items:
            isTrained = any(step.module.wants(param) for param in step.module.ruleParams())
            if isTrained or not values.isdisjoint(step.args[: step.inputs]) and not step.module.isDiscrete:
                values.update(step.visible)
        return values

    @property
    def summed(self) -> list[int]:
        """The values that are summed over all parts."""
        return [self.steps.items[i].visible[0] for i, role in self.roles.items() if role in (ROWS, TABLE)]

    @property
    def joined(self) -> list[int]:
        """The values that are gathered from all parts."""
        return [self.steps.items[i].visible[0] for i, role in self.roles.items() if role == JOINED]

    # Checks -----------------------------------------------------------------------------------------------------------

    def checkHeads(self) -> None:
        """Raises    DataError for heads that the parts cannot share"""
        for step in self.steps.items:
            if type(step.module) is Attention:
                for number in step.args[:2]:
                    heads = self.shapes[number][1]
                    if heads % self.parts:
                        raise DataError(
                            f"tensor={self.parts}: '{step.path}' (Attention) has {heads} heads, which "
                            f"{self.parts} ranks cannot share equally; choose a divisor of {heads}"
                        )

    def checkSizes(self) -> None:
        """Raises    DataError for columns that the parts cannot share, and where nothing can be divided"""
        for index, role in self.roles.items():
            step: Any = self.steps.items[index]
            if role == COLUMNS and step.module.sizes[1] % (self.parts * self.groups[index]):
                size = step.module.sizes[1]
                runs = f" in {self.groups[index]} runs" * (self.groups[index] > 1)
                raise DataError(
                    f"tensor={self.parts}: '{step.path}' (Linear) has {size} outputs{runs}, which "
                    f"{self.parts} ranks cannot share equally; choose a divisor of {size // self.groups[index]}"
                )
        if not self.roles:
            raise DataError(
                f"tensor={self.parts}: there is nothing to divide in {self.graph.title()}: wanted a Linear or an "
                f"Embedder, with a multiple of {self.parts} outputs or at least {self.parts} words"
            )
