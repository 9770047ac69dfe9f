"""Order: np.argsort by the kernel that sorts stably; np.sort stays, which numpy and CuPy do faster without indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.ops.operation import op
from puregraph.ops.order.reference import sortAlong

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


@op(np.argsort).decompose
def ordering(x: Any, axis: int | None = -1, kind: Any = None, order: Any = None, stable: Any = None) -> AnyArray:
    """The indices, stable whatever `kind` says."""
    if x.dtype.kind not in "biuf" or order is not None or x.ndim == 0:
        return NotImplemented
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    return sortAlong(x, axis, x.shape[axis])[1]
