"""Limits: the keys that a query may see by position, and the soft cap of its scores.

`limits` of the kernels is None or a tuple (offset, lengths, window, cap), each of which may be None:

`offset`  position of the first query among the keys: a number, or integers (n,), one for each sample; None is 0
`lengths` integers (n,): the number of keys of each sample; later ones are padding
`window`  keys that a query sees at most, with causal: those at its own position and before
`cap`     scores become cap tanh(score / cap), before a mask is added
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.tracer import arrayLike

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


class Limits(NamedTuple):
    """The limits of a call; see above."""

    offset: Any = None
    lengths: Any = None
    window: int | None = None
    cap: float | None = None

    @property
    def isStatic(self) -> bool:
        """True if the visible keys of a query do not depend on data."""
        return self.lengths is None and (self.offset is None or not hasattr(self.offset, "shape"))

    def visible(self, q: Any, rows: slice, columns: slice, causal: bool) -> AnyArray | None:
        """Keys (columns) that queries (rows) see: bools (t, s), or (n, 1, t, s) by sample; None if all see all."""
        reach = self.window is not None or causal
        if not reach and self.lengths is None:
            return None
        key = arrayLike(q, np.arange(columns.start, columns.stop))
        seen: Any = None
        if reach:
            query = arrayLike(q, np.arange(rows.start, rows.stop)).reshape(-1, 1)
            if self.offset is not None:
                query = query + (self.offset.reshape(-1, 1, 1, 1) if hasattr(self.offset, "shape") else self.offset)
            seen = key <= query
            if self.window is not None:
                seen = seen & (key > query - self.window)
        if self.lengths is not None:
            within = key < self.lengths.reshape(-1, 1, 1, 1)
            seen = within if seen is None else seen & within
        return seen

    def capped(self, scores: Any) -> tuple[Any, Any]:
        """Capped scores, and their derivatives by the uncapped ones; None for 1."""
        if self.cap is None:
            return scores, None
        t = np.tanh(scores * (1 / self.cap))
        return t * self.cap, 1 - t * t


def limitsOf(limits: tuple | None) -> Limits:
    """The limits of a call."""
    return Limits(*(limits or ()))


def byGroup(seen: AnyArray) -> AnyArray:
    """Visible keys for scores (n, heads of keys, queries that share one, t, s)."""
    return seen if seen.ndim == 2 else seen[:, :, None]
