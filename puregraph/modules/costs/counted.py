"""Counted: the weight of a batch in the mean of a cost over several batches."""

from typing import Any


def countedIn(cost: Any, target: Any, size: int) -> Any:
    """The weight of a batch in a mean over batches: its size, or the count of a cost that skips or weighs samples.

    With it, the mean over a data set does not depend on the batch size.
    """
    counted = getattr(cost, "counted", None)
    weight = None if counted is None or target is None else counted(target)
    return size if weight is None else weight
