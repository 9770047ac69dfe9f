"""The decompositions: imported so that all are declared before a step is traced.

Each writes a function as simpler ones, which the tracer records: functions of numpy on traced values. Results are the
same but for the order of sums and the layout; calls that run in numpy are not decomposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puregraph.ops.attention import decomposition as attention
from puregraph.ops.convolution import decomposition as convolution
from puregraph.ops.elementwise import decomposition as elementwise
from puregraph.ops.gather import decomposition as gather
from puregraph.ops.movement import decomposition as movement
from puregraph.ops.operation import declared
from puregraph.ops.order import decomposition as order
from puregraph.ops.pooling import decomposition as pooling
from puregraph.ops.product import decomposition as product
from puregraph.ops.reduction import decomposition as reduction

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction

__all__ = [
    "attention",
    "convolution",
    "decompositionOf",
    "elementwise",
    "gather",
    "movement",
    "order",
    "pooling",
    "product",
    "reduction",
]


def decompositionOf(function: ArrayFunction) -> Callable[..., Any] | None:
    """The rule that writes a function as simpler ones, or None."""
    return declared(function, "decompose")
