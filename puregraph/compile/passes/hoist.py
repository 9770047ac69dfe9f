"""Hoisting: move calls that depend only on parameters and states to the start, if no parameter changes.

The epilogue of a convolution can then read the result, such as the scale of a normalisation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph.ops.ir.value import ARRAYS, Call, Value

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

LEAVES = ("param", "state", *ARRAYS)
MAX_HOISTED_BYTES = 1 << 14  # most bytes of a result that is computed ahead of its use


def hoistConstants(schedule: Schedule) -> Schedule:
    """Move calls with small results that depend on no input to the start, unless the step changes parameters."""
    if schedule.packedWeights is None:
        return schedule
    made: set[int] = set()
    updated = {y.root.number for call in schedule.calls if call.kind.isUpdate for y in call.outs}

    def isKnown(root: Value) -> bool:
        return root.number in made or root.role in LEAVES and root.number not in updated

    first, others = [], []
    for call in schedule.calls:
        if all(isKnown(v.root) for v in call.values()) and isSmall(call):  # which asks of sizes
            made.update(y.number for y in call.outs)
            first.append(call)
        else:
            others.append(call)
    schedule.calls = first + others
    return schedule


def isSmall(call: Call) -> bool:
    """True if a call is cheap and its result is small."""
    isLight = call.kind.isCheap or call.kind.isReduction
    return isLight and all(y is not None and y.nbytes <= MAX_HOISTED_BYTES for y in call.outs)
