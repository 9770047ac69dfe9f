"""PartJoin: the outputs of all parts of a layer that is divided by columns, side by side."""

from typing import Any

from puregraph.core.errors import need
from puregraph.distributed.tensor.tensorgroup import TensorGroup
from puregraph.graph.module import Module


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
        """The last axes of the parts of this process."""
        return [self.cuts[part + 1] - self.cuts[part] for part in self.group.own]

    def dataShapeFrom(self, *xs: Any) -> Any:
        wanted = [(*xs[0][:-1], width) for width in self.widths]
        need(list(xs) == wanted, wanted, list(xs))
        return (*xs[0][:-1], self.cuts[-1])

    def updateData(self, *xs: Any) -> Any:
        return self.group.join(list(xs), self.cuts)

    def updateGrad(self, grad: Any, *values: Any) -> Any:
        return tuple([grad[..., self.cuts[part] : self.cuts[part + 1]] for part in self.group.own])
