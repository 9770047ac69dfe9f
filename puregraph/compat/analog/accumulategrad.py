"""AccumulateGrad: the node that sums the gradients of another node's outputs."""

from __future__ import annotations

from typing import Any

from puregraph.compat.analog.argskwargs import ArgsKwargs
from puregraph.core.accumulate import combine


class AccumulateGrad:
    """The fan-in of a backward graph: sums the gradients that the readers of a forward node's outputs return.

    `module` is that forward node. Contributions are sorted by output, then by the forward order of the readers, then by
    argument, so that sums of floats repeat bit for bit, and texts keep their order.

    >>> AccumulateGrad(None).grad(ArgsKwargs([[np.array([1.0]), np.array([2.0])]])).args
    [array([3.])]
    """

    def __init__(self, module: Any):
        self.module = module

    def grad(self, contributions: ArgsKwargs) -> ArgsKwargs:
        """Sum the contributions of each output; None where there are none."""
        return ArgsKwargs(
            [total(c) for c in contributions.args], {name: total(c) for name, c in contributions.kwargs.items()}
        )

    def __call__(self, *contributions: Any, **named: object) -> ArgsKwargs:
        return self.grad(ArgsKwargs(contributions, named))

    def __repr__(self) -> str:
        return f"AccumulateGrad({self.module!r})"


def total(contributions: Any) -> Any:
    """Return the sum of several contributions, which are not modified; None if there are none."""
    return combine(contributions) if contributions else None
