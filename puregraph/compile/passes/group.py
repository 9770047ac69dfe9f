"""Group: calls over one index space, which become one loop nest."""

from __future__ import annotations

import math
from copy import copy
from typing import Any

from puregraph.ops.formula.loopnest import Reduce
from puregraph.ops.ir.kind import KINDS
from puregraph.ops.ir.value import Call, CallOrigin, Value
from puregraph.ops.native.nests.nestcode import NEST_TASK_ELEMENTS, isColumn

Axes = tuple[int | None, ...]


class Group:
    """An index space and the `lines` of a `LoopNest` over it; `names` and `loads` name its Values.

    Names only number the operands, so that equal computations have equal lines.
    `inlined` are calls of earlier groups that it computes again.
    `axes` has, for each computed Value, the axis of the space for each axis of the Value (None: length one).
    """

    kind = KINDS["group"]
    arithmetic = "f32"  # the dtype it computes in

    def __init__(self, space: tuple[int, ...], begun: int):
        self.space, self.size, self.last = space, math.prod(space), begun
        self.lines: list[tuple[str, Any]] = []
        self.loads: dict[str, tuple[Value, Axes]] = {}
        self.known: dict[tuple[int, Axes], str] = {}  # the names of loads, by number and axes
        self.made: dict[int, Value] = {}
        self.names: dict[int, str] = {}  # the names of computed Values, by number
        self.axes: dict[int, Axes] = {}
        self.reducedAxes: dict[int, frozenset[int]] = {}  # axes that a Value, or an operand of it, is reduced over
        self.reductions: list[frozenset[int]] = []  # the axis sets of its reductions, without repetition
        self.calls: list[Call] = []
        self.inlined: list[Call] = []
        self.inner: int | None = None

    @property
    def outs(self) -> list[Value]:
        """The Values that it computes."""
        return list(self.made.values())

    @property
    def origin(self) -> CallOrigin:
        """The origin of its last call."""
        return self.calls[-1].origin

    def values(self) -> list[Value]:
        """The Values that it reads."""
        return [v for v, _ in self.loads.values()]

    def __repr__(self) -> str:
        return f"<group over {self.space}: {'; '.join(f'{n} = {x}' for n, x in self.lines)}>"

    def copy(self) -> Group:
        """An independent copy of this group."""
        made = copy(self)
        vars(made).update({k: copy(v) for k, v in vars(self).items() if isinstance(v, (list, dict))})
        return made

    def load(self, value: Value, axes: Axes) -> str:
        """Add a load of a Value along these axes; returns its name."""
        name = self.known.setdefault((value.number, axes), f"x{len(self.known)}")
        self.loads[name] = value, axes
        return name

    def add(self, line: Any) -> str:
        """Add a line; returns its name."""
        if isinstance(line, Reduce) and line.axes not in self.reductions:
            self.reductions.append(line.axes)
        name = f"y{len(self.lines)}"
        self.lines.append((name, line))
        return name

    def find(self, value: Value) -> tuple[Value, Axes] | None:
        """The computed Value that equals this Value or is its base, and the axes of the space for this Value's axes."""
        if value.number in self.made:
            return value, self.axes[value.number]
        root = value.root
        if root.number not in self.made or value.offset:
            return None
        rootAxes, used = self.axes[root.number], set()
        axes: list[int | None] = []
        for n, s in zip(value.shape, value.strides):
            match = [i for i, (m, t) in enumerate(zip(root.shape, root.strides)) if t == s and m == n and i not in used]
            if n == 1 or s == 0:
                axes.append(None)
            elif match:
                used.add(match[0])
                axes.append(rootAxes[match[0]])
            else:
                return None
        wanted = {i for i, n in enumerate(root.shape) if n > 1}
        return (root, tuple(axes)) if wanted == used else None

    def spread(self, axes: frozenset[int]) -> int:
        return math.prod(self.space[a] for a in axes)

    def beside(self) -> frozenset[int]:
        """The axes of a reduction that ends only after all rows; no line that depends on it may run along them."""
        long = frozenset(a for a, n in enumerate(self.space) if n > 1)
        sets = {s & long for s in self.reductions if s & long}
        return next((s for s in sets if self.inner not in s), frozenset()) if len(sets) > 1 else frozenset()

    def isChained(self, axes: frozenset[int]) -> bool:
        """True if a reduction over these axes depends on another reduction over them."""
        after: set[str] = set()
        for name, line in self.lines:
            isAfter = not after.isdisjoint({line.of} if isinstance(line, Reduce) else line.names)
            isOver = isinstance(line, Reduce) and bool(line.axes & axes)
            if isAfter and isOver:
                return True
            if isAfter or isOver:
                after.add(name)
        return False

    def isShort(self, axes: frozenset[int]) -> bool:
        """True if lines may run along these axes again after a reduction over them: they are short enough."""
        long = self.spread(axes)
        if self.inner in axes:
            return long <= 4 * NEST_TASK_ELEMENTS or self.size >= 64 * long
        return isColumn(long, self.size)
