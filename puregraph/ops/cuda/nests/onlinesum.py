"""Online sums: the maximum of a row and the sum of exponentials relative to it, in one phase instead of two.

    m = max x,  s = sum exp(x - m)        s <- s exp(m - m') + exp(x - m'),  m <- m' = max(m, x)
    z = sum where(c, x - m, 0)            z = sum where(c, x, 0) - m sum where(c, 1, 0)

A row that does not fit in registers is then read once instead of twice (Milakov and Gimelshein, 2018). The second line
is the sum of a cross-entropy, which selects one class.
"""

from __future__ import annotations

from puregraph.ops.formula import Formula
from puregraph.ops.formula.expr import ZERO
from puregraph.ops.formula.formula import formulaOf
from puregraph.ops.formula.loopnest import Line, LoopNest, Reduce, ReducedNest, needed

DISTANCE = Formula("x - m")


def onlinePair(shape: ReducedNest, phase: int) -> tuple[str, str] | None:
    """The (max, sum of exp) pair of two consecutive phases that can be fused into one online softmax pass."""
    if phase + 1 >= shape.count:
        return None
    (names, *others), (second, *rest) = shape.at(phase), shape.at(phase + 1)
    peaks = [n for n in names if shape.reductions[n].how == "max"]
    if len(peaks) != 1 or len(second) != 1 or shape.reductions[second[0]].how != "sum" or any((*others, *rest)):
        return None
    (peak,), (total,) = peaks, second
    written = inlined(shape, Formula(shape.reductions[total].of))
    return (peak, total) if written == Formula("exp(d)").put(d=distance(shape, peak)) else None


def distance(shape: ReducedNest, peak: str) -> Formula:
    """The distance of the reduced value from its peak."""
    return DISTANCE.put(x=inlined(shape, Formula(shape.reductions[peak].of)), m=peak)


def inlined(shape: ReducedNest, x: Formula) -> Formula:
    """A formula of operands and reductions, in place of lines."""
    lines = {n: shape.lines[n] for n in x.names if n in shape.lines}
    return x.put(**{n: inlined(shape, line) for n, line in lines.items() if isinstance(line, Formula)})


def withoutPeaks(nest: LoopNest, axes: frozenset[int]) -> LoopNest:
    """Rewrite each sum of selected distances from a peak as the sum of the selected values and their count."""
    shape = ReducedNest(nest, axes)
    lines: list[Line] = []
    for name, x in nest.lines:
        choice = chosen(shape, x) if isinstance(x, Reduce) and x.axes == axes and x.how == "sum" else None
        if choice is None:
            lines.append((name, x))
            continue
        peak, condition = choice
        parts: dict[str, str | int] = {"some": shape.reductions[peak].of, "count": 1}
        for part, value in parts.items():
            lines.append((f"{name}{part}s", Formula("where(c, x, 0)").put(c=condition, x=value)))
            lines.append((f"{name}{part}", Reduce("sum", f"{name}{part}s", axes)))
        lines.append((name, Formula(f"{name}some - {peak} * {name}count")))
    if len(lines) == len(nest.lines):
        return nest
    loads, neededLines = needed(nest._replace(lines=tuple(lines)), nest.stores)
    return nest._replace(loads=loads, lines=neededLines)


def chosen(shape: ReducedNest, x: Reduce) -> tuple[str, Formula] | None:
    """(m, c) if a reduction sums where(c, x - m, 0), with m the maximum of x; otherwise None."""
    line = shape.lines.get(x.of)
    if not isinstance(line, Formula) or line.term.op != "where" or line.term.args[2] is not ZERO:
        return None
    condition, value = map(formulaOf, line.term.args[:2])
    written, names = inlined(shape, value), inlined(shape, condition).names
    peaks = [n for n, y in shape.reductions.items() if y.how == "max" and distance(shape, n) == written]
    return (peaks[0], condition) if peaks and not set(names) & shape.reductions.keys() else None
