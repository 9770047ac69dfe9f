"""Online sums: the peak of a row and the sum of exponentials below it, as one phase in place of two.

    m = max x,  s = sum exp(x - m)        s <- s exp(m - m') + exp(x - m'),  m <- m' = max(m, x)

A row that registers cannot hold is read once so, not once for each (Milakov and Gimelshein, 2018).
"""

from __future__ import annotations

from puregraph.formula import Formula
from puregraph.formula.loopnest import ReducedNest

DISTANCE = Formula("exp(x - m)")


def onlinePair(shape: ReducedNest, phase: int) -> tuple[str, str] | None:
    """The peak and the sum that a phase of the rows and the next one reduce, where these do nothing else."""
    if phase + 1 >= shape.count:
        return None
    (first, *others), (second, *rest) = shape.at(phase), shape.at(phase + 1)
    if len(first) != 1 or len(second) != 1 or any((*others, *rest)):
        return None
    (peak,), (total,) = first, second
    if (shape.reductions[peak].how, shape.reductions[total].how) != ("max", "sum"):
        return None
    x = inlined(shape, shape.reductions[peak].of)
    isDistance = inlined(shape, shape.reductions[total].of) == DISTANCE.put(x=x, m=peak)
    return (peak, total) if isDistance else None


def inlined(shape: ReducedNest, name: str) -> Formula:
    """A line as a formula of operands and reductions."""
    x = shape.lines.get(name)
    if not isinstance(x, Formula):
        return Formula(name)
    return x.put(**{n: inlined(shape, n) for n in x.names if n in shape.lines})
