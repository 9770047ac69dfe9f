"""Windows: sizes, strides and padding of a sliding window, one entry per spatial axis."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


def perAxis(value: Any, rank: int) -> tuple[int, ...]:
    """One integer per spatial axis: 3 -> (3, 3); a tuple stays as it is."""
    values = (int(value),) * rank if np.ndim(value) == 0 else tuple(map(int, value))
    if len(values) != rank:
        raise ValueError(f"wanted one number, or {rank} of them, one per axis, got {value}")
    return values


def pairs(pad: Any, rank: int) -> tuple[tuple[int, int], ...]:
    """(before, after) per spatial axis: 1 -> ((1, 1), (1, 1)), (1, 2) -> ((1, 1), (2, 2)); pairs stay."""
    sides = (pad,) * rank if np.ndim(pad) == 0 else tuple(pad)
    if len(sides) != rank:
        raise ValueError(f"wanted one padding, or {rank} of them, one per axis, got {pad}")
    return tuple((before, after) for before, after in (perAxis(side, 2) for side in sides))


class Window(NamedTuple):
    """The geometry of windows over an input: one entry per spatial axis each."""

    spatial: tuple[int, ...]  # the input's spatial shape, without padding
    size: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    @property
    def count(self) -> tuple[int, ...]:  # type: ignore[override]  # no tuple's count
        """Windows along each axis: (length + before + after - dilation (size - 1) - 1) // stride + 1."""
        return tuple(
            max(0, (length + before + after - d * (k - 1) - 1) // s + 1)
            for length, k, s, (before, after), d in zip(*self)
        )

    @property
    def full(self) -> tuple[int, ...]:
        """The spatial shape with padding."""
        return tuple(length + sum(both) for length, both in zip(self.spatial, self.pad))

    @property
    def taps(self) -> Iterator[tuple[int, ...]]:
        """The positions in a window, in row-major order."""
        return product(*map(range, self.size))

    def tapIndex(self, tap: tuple[int, ...]) -> tuple[Any, ...]:
        """The index, into padded inputs, of one tap of all windows."""
        return (
            ...,
            *(
                slice(t * d, t * d + s * (count - 1) + 1 if count else t * d, s)
                for t, d, s, count in zip(tap, self.dilation, self.stride, self.count)
            ),
        )


def window(
    spatial: Any,
    size: int | Sequence[int],
    stride: Sequence[int],
    pad: Sequence[Sequence[int]],
    dilation: Any = 1,
) -> Window:
    """The Window of integers that may be given once for all axes, or for each."""
    rank = len(spatial)
    geometry = perAxis(size, rank), perAxis(stride, rank), pairs(pad, rank), perAxis(dilation, rank)
    return Window(tuple(spatial), *geometry)


def padded(x: np.ndarray, pad: Sequence[Sequence[int]], value: float = 0) -> np.ndarray:
    """x with `value` around its last axes; a negative side is cut off; x itself where there is nothing to do.

    Shapes    x (..., *spatial) -> (..., *(before + length + after))
    """
    if not any(side for both in pad for side in both):
        return x
    lead = x.ndim - len(pad)
    shape = x.shape[:lead] + tuple(length + sum(both) for length, both in zip(x.shape[lead:], pad))
    y = np.full_like(x, value, shape=shape)
    y[inner(pad, shape[lead:])] = x[inner(opposite(pad), x.shape[lead:])]
    return y


def inner(pad: Any, spatial: tuple[int, ...]) -> tuple[Any, ...]:
    """The index that cuts the positive sides of `pad` off an array whose last axes are `spatial`."""
    return (..., *(slice(max(0, both[0]), n - max(0, both[1])) for both, n in zip(pad, spatial)))


def unpadded(x: np.ndarray, pad: Any) -> np.ndarray:
    """The adjoint of `padded`: positive sides cut off as a view, zeros where a negative side was cut off."""
    x = x[inner(pad, x.shape[x.ndim - len(pad) :])]
    return padded(x, [(max(0, -before), max(0, -after)) for before, after in pad])


def opposite(pad: Any) -> tuple[tuple[int, int], ...]:
    """The padding that undoes `pad`."""
    return tuple((-before, -after) for before, after in pad)
