"""PartSum: the sum of what all parts of a divided layer give."""

from typing import Any

from puregraph.core.errors import need
from puregraph.distributed.tensor.tensorgroup import TensorGroup
from puregraph.graph.module import Module


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
