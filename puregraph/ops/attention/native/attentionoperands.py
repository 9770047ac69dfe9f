"""AttentionOperands: what an attention kernel reads, and the limits of the keys that a query sees."""

from __future__ import annotations

from typing import Any, NamedTuple


class Heads(NamedTuple):
    """An array of rows, with the strides of samples, heads and rows (positions); a row is contiguous."""

    what: Any
    strides: tuple[int, int, int]


class Mask(NamedTuple):
    """A mask of keys: bools (kind "i8") or values to add (floats), the last stride 0 or 1; 0 broadcasts."""

    kind: str
    what: Any
    strides: tuple[int, int, int, int]


class Reach(NamedTuple):
    """The limits of the keys that a query sees, as operands of a kernel: numbers or arrays; see `limits`."""

    offset: Any = None
    lengths: Any = None
    window: int | None = None
    cap: float | None = None

    @property
    def slots(self) -> dict[str, Any]:
        """The arguments of a kernel."""
        named = {"offset": self.offset, "lengths": self.lengths, "window": self.window}
        return {name: what for name, what in named.items() if what is not None}

    @property
    def form(self) -> ReachForm:
        kinds = [
            None if x is None else "i64" if not hasattr(x, "dtype") else f"i{8 * x.dtype.itemsize}"
            for x in (self.offset, self.lengths)
        ]
        isArray = hasattr(self.offset, "dtype")
        return ReachForm(kinds[0], isArray, kinds[1], self.window is not None, self.cap)


class ReachForm(NamedTuple):
    """The properties of a Reach in the code: kinds of integers, and the cap."""

    offset: str | None = None
    isOffsetArray: bool = False
    lengths: str | None = None
    hasWindow: bool = False
    cap: float | None = None


OPEN = Reach()


class AttentionSizes(NamedTuple):
    """Samples, heads of queries and of keys, queries, keys, the width of q and k, and that of v and y."""

    samples: int
    heads: int
    keyHeads: int
    queries: int
    keys: int
    width: int
    out: int


class MaskForm(NamedTuple):
    """The properties of a mask in the code: its kind, and whether it is broadcast over rows and columns."""

    kind: str
    sameRows: bool
    sameColumns: bool


def formOf(mask: Mask | None) -> MaskForm | None:
    """The form of a mask; None without one."""
    return None if mask is None else MaskForm(mask.kind, mask.strides[2] == 0, mask.strides[3] == 0)
