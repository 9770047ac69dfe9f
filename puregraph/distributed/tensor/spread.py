"""Spread: what all parts of a divided layer take."""

from typing import Any

from puregraph.distributed.tensor.tensorgroup import TensorGroup
from puregraph.graph.module import Module


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
