"""RowCache: rows of past tokens, kept in a State that is written in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.arguments import Count, Dtype, takes
from puregraph.core.base.dtype import nativeType
from puregraph.core.errors import need
from puregraph.core.param import State
from puregraph.graph.module import Module
from puregraph.ops.movement.reference import writeAt

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.core.shape import Shape


class RowCache(Module):
    """cache[n, h, offset[n] + i] = x[n, h, i], y = cache

    The keys or values of all tokens so far, for `Attention(causal=True)` with the same `offset`, which hides the rows
    that are not written yet. A step with t new tokens writes t rows, whatever the length; rows beyond it are left out.
    The output is the cache itself: do not keep it. `dtype` is that of the cache. There is no gradient.

    Shapes    x (samples, heads, t, width), offset (samples,) integers, cache (samples, heads, length, width) -> y as
              the cache
    Source    Pope et al. 2022, Efficiently Scaling Transformer Inference, arXiv:2211.05102, section 3.1
    Raises    ShapeError for x of other sizes
    """

    reads = ()
    indices = ("offset",)
    flopsPerElement = 0

    @takes(samples=Count, heads=Count, length=Count, width=Count, dtype=Dtype)
    def __init__(
        self, samples: int, heads: int, length: int, width: int, dtype: Any = "float32", name: str | None = None
    ):
        super().__init__(name)
        self.cache = State((samples, heads, length, width), dtype=nativeType(dtype))

    def dataShapeFrom(self, x: Shape, offset: Shape) -> Shape:
        n, h, _, d = self.cache.shape
        need(len(x) == 4 and (x[0], x[1], x[3]) == (n, h, d), (n, h, "t", d), x)
        need(offset == (n,), f"offset of shape {(n,)}", offset)
        return self.cache.shape

    def dataTypeFrom(self, x: Any, offset: Any) -> np.dtype:
        super().dataTypeFrom(x, offset)
        return self.cache.dtype

    def updateData(self, x: AnyArray, offset: AnyArray, cache: AnyArray) -> AnyArray:
        return writeAt(cache, x.astype(cache.dtype, copy=False), offset)

    def reset(self) -> None:
        """Fill the cache with zeros."""
        self.cache.data[...] = 0
