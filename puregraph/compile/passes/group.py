"""Group: calls over one index space, which become one loop nest."""

from __future__ import annotations

import math
from copy import copy
from typing import Any

from puregraph.compile.ir.kind import KINDS
from puregraph.compile.ir.value import Call, CallOrigin, Value
from puregraph.formula.loopnest import Reduce
from puregraph.native.ops.nestcode import CHUNK, isColumn

Axes = tuple[int | None, ...]


class Group:
    """An index space and `lines` for a `LoopNest` over it, by names that `names` and `loads` give Values.

    Names only count operands, so that groups that compute the same have the same lines.
    `inlined` are calls of earlier groups, some of whose Values it computes again.
    `axes` says for each computed Value which axis of the space each of its own axes runs along (None: length one).
    """

    kind = KINDS["group"]
    arithmetic = "f32"  # the dtype it computes in

    def __init__(self, space: tuple[int, ...], begun: int):
        self.space, self.size, self.last = space, math.prod(space), begun
        self.lines: list[tuple[str, Any]] = []
        self.loads: dict[str, tuple[Value, Axes]] = {}
        self.known: dict[tuple[int, Axes], str] = {}  # the names of loads, by number and axes
        self.made: dict[int, Value] = {}
        self.names: dict[int, str] = {}  # of computed Values, by number
        self.axes: dict[int, Axes] = {}
        self.reducedAxes: dict[int, frozenset[int]] = {}  # axes over which a computed Value, or an operand, is reduced
        self.reductions: list[frozenset[int]] = []  # the axes of its reductions, each set once
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
        """A group with the same calls, which grows by itself."""
        made = copy(self)
        vars(made).update({k: copy(v) for k, v in vars(self).items() if isinstance(v, (list, dict))})
        return made

    def load(self, value: Value, axes: Axes) -> str:
        """The name of a Value that is read along these axes."""
        name = self.known.setdefault((value.number, axes), f"x{len(self.known)}")
        self.loads[name] = value, axes
        return name

    def add(self, line: Any) -> str:
        """The name of one more line."""
        if isinstance(line, Reduce) and line.axes not in self.reductions:
            self.reductions.append(line.axes)
        name = f"y{len(self.lines)}"
        self.lines.append((name, line))
        return name

    def find(self, value: Value) -> tuple[Value, Axes] | None:
        """The computed Value that this one is or is a view of, and the axes of the space that its own run along."""
        if value.number in self.made:
            return value, self.axes[value.number]
        root = value.root
        if root.number not in self.made or value.offset:
            return None
        rootAxes, used = self.axes[root.number], set()
        axes: list[int | None] = []
        for n, s in zip(value.shape, value.strides):
            match = [i for i, (m, t) in enumerate(zip(root.shape, root.strides)) if m == n and t == s and i not in used]
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
        """Axes of reductions that are complete after all rows; nothing computed from them runs along them."""
        long = frozenset(a for a, n in enumerate(self.space) if n > 1)
        sets = {s & long for s in self.reductions if s & long}
        return next((s for s in sets if self.inner not in s), frozenset()) if len(sets) > 1 else frozenset()

    def isChained(self, axes: frozenset[int]) -> bool:
        """Whether a reduction over these axes reads what follows from another one over them."""
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
        """Whether a reduction over these axes is complete while the same position is still being computed."""
        long = self.spread(axes)
        if self.inner in axes:
            return long <= 4 * CHUNK or self.size >= 64 * long
        return isColumn(long, self.size)
