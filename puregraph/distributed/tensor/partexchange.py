"""Part exchange: the collectives between the parts of divided layers, and the modules that call them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from puregraph.core.errors import need
from puregraph.core.tracer import tracerOf
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import TreeSum
from puregraph.distributed.worlds.world import World
from puregraph.graph.module import Module


class TensorGroup:
    """A fixed number of parts, divided evenly and in order among the ranks of a world.

    `own`  the numbers of this rank's parts

    Parts are computed one at a time, and added as a binary tree over the parts, so that no bit depends on the number of
    ranks. All ranks call the same collectives in the same order.
    """

    def __init__(self, world: World, parts: int):
        self.world, self.parts = world, parts
        self.division = Grains(parts, world)
        self.own = self.division.own
        self.trees: dict[tuple[int, Any], TreeSum] = {}

    def total(self, arrays: list[Any]) -> Any:
        """All-reduce arrays of one shape over the tensor-parallel group."""
        refuseTracers(arrays)
        first = arrays[0]
        key = first.size, first.dtype
        if key not in self.trees:
            self.trees[key] = TreeSum(self.world, self.division, *key)
        tree, begin = self.trees[key], self.own.start

        def leaf(part: int, into: np.ndarray) -> None:
            into[...] = arrays[part - begin].reshape(-1)

        return tree.reduce(tree.own(leaf)).reshape(first.shape).copy()

    def join(self, arrays: list[Any], cuts: list[int]) -> Any:
        """All-gather the parts along the last axis; `cuts` has the beginnings of all parts, `arrays` this rank's
        parts."""
        refuseTracers(arrays)
        joined = np.concatenate(arrays, axis=-1) if len(arrays) > 1 else arrays[0]
        if self.world.size == 1:
            return np.ascontiguousarray(joined)
        lead, width = joined.shape[:-1], joined.shape[-1]
        rows = joined.size // width if width else 0
        ends = [cuts[bound] for bound in self.division.bounds]
        offsets = [rows * end for end in ends]
        flat = np.empty(offsets[-1], joined.dtype)
        rank = self.world.rank
        flat[offsets[rank] : offsets[rank + 1]] = joined.reshape(-1)
        self.world.allGather(flat, offsets)
        pieces = [flat[a:b].reshape(rows, -1) for a, b in pairwise(offsets)]
        return np.concatenate(pieces, axis=1).reshape(*lead, ends[-1])


class Spread(Module):
    """y_p = x for each part p of this rank. The gradient is the all-reduced sum of all parts' gradients.

    Shapes    x (any) -> y_p of that shape
    Source    Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053, section 3, the operator f
    """

    reads = ()
    exchanges = True
    flopsPerElement = 0

    def __init__(self, group: TensorGroup, name: str | None = None):
        super().__init__(name)
        self.group = group

    @property
    def outputNames(self) -> tuple[str, ...]:
        return tuple(map(str, self.group.own))

    def dataShapeFrom(self, x: Any) -> Any:
        shapes = [x for _ in self.group.own]
        return shapes if len(shapes) > 1 else x

    def dataTypeFrom(self, x: Any) -> Any:
        dtypes = [x for _ in self.group.own]
        return dtypes if len(dtypes) > 1 else x

    def updateData(self, x: Any) -> Any:
        return tuple([x for _ in self.group.own])

    def updateGrad(self, grad: Any, x: Any, *ys: Any) -> Any:
        return self.group.total(grad if len(self.group.own) > 1 else [grad])


class PartSum(Module):
    """y = x_1 + x_2 + ... over the parts of all processes, as one binary tree; each part has the gradient of y.

    Shapes    x_p of one shape for each part p of this process -> y of that shape
    Source    Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053, section 3, the operator g
    """

    reads = ()
    exchanges = True
    keepsDtype = True

    def __init__(self, group: TensorGroup, name: str | None = None):
        super().__init__(name)
        self.group = group

    def dataShapeFrom(self, *xs: Any) -> Any:
        need(len(xs) == len(self.group.own) and len(set(xs)) == 1, f"{len(self.group.own)} inputs of one shape", xs)
        return xs[0]

    def updateData(self, *xs: Any) -> Any:
        return self.group.total(list(xs))

    def updateGrad(self, grad: Any, *values: Any) -> Any:
        return tuple([grad for _ in values[:-1]])


class PartJoin(Module):
    """y = (x_1, x_2, ...) along the last axis, of the parts of all processes; `cuts` is where each of them begins.

    Shapes    x_p (..., i_p) for each part p of this process -> y (..., i_1 + i_2 + ...)
    Source    Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053, section 3, the gathered output
    """

    reads = ()
    exchanges = True
    keepsDtype = True

    def __init__(self, group: TensorGroup, cuts: list[int], name: str | None = None):
        super().__init__(name)
        self.group, self.cuts = group, cuts

    @property
    def widths(self) -> list[int]:
        """Return the sizes of the last axes of this process's parts."""
        return [self.cuts[part + 1] - self.cuts[part] for part in self.group.own]

    def dataShapeFrom(self, *xs: Any) -> Any:
        wanted = [(*xs[0][:-1], width) for width in self.widths]
        need(list(xs) == wanted, wanted, list(xs))
        return (*xs[0][:-1], self.cuts[-1])

    def updateData(self, *xs: Any) -> Any:
        return self.group.join(list(xs), self.cuts)

    def updateGrad(self, grad: Any, *values: Any) -> Any:
        return tuple([grad[..., self.cuts[part] : self.cuts[part + 1]] for part in self.group.own])


def refuseTracers(arrays: list[Any]) -> None:
    """Keep a rule with collectives out of traces, so that a compiled step calls it as it is.

    Raises    TypeError for tracers
    """
    if tracerOf(arrays) is not None:
        raise TypeError("arrays that go to other processes are no part of what is compiled")
