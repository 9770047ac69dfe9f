"""Early: what is made of parameters and states alone comes first, where no parameter changes.

What follows the sums of a convolution can then read it: the scale of a normalisation, say.
"""

from __future__ import annotations

from puregraph.compile.ir.value import Call

MOVED = ("view", "pointwise", "reduce", "copy", "fill")
LEAVES = ("param", "state", "constant")
SMALL = 1 << 14  # bytes of a result that may wait for its use


def early(calls: list[Call]) -> list[Call]:
    """The calls with those first that read nothing that comes in, and make little."""
    made: set[int] = set()
    first, rest = [], []
    for call in calls:
        known = all(v.root.role in LEAVES or v.root.number in made for v in call.values())
        if known and call.kind in MOVED and all(y is not None and y.nbytes <= SMALL for y in call.outs):
            made.update(y.number for y in call.outs)
            first.append(call)
        else:
            rest.append(call)
    return first + rest
