"""Elementwise nests, without reductions. A thread computes some neighbours at a time, in a grid-stride loop."""

from __future__ import annotations

from math import prod

from puregraph.ops.cuda.nests.nestwriter import NestWriter, manyOf
from puregraph.ops.cuda.runtime.launch import THREADS, Launch, eachOf, gridFor
from puregraph.ops.formula.loopnest import LoopNest, ReducedNest


def pointLaunch(nest: LoopNest) -> Launch:
    """The launch of a nest without reductions."""
    rank = len(nest.space)
    shape = ReducedNest(nest, frozenset(range(rank)))
    many = eachOf(prod(nest.space), manyOf(nest, () if rank == 1 else nest.space[-1:]))
    w = NestWriter(shape, many)
    stores = [n for n in nest.stores if shape.spread[n]]
    single = [n for n in nest.stores if not shape.spread[n]]
    if stores:
        w.fixed(nest.stores, {})
    if single:
        with w.block("if (blockIdx.x == 0 && threadIdx.x == 0)"):
            w.fixed(single, {})  # a store may overwrite its operand, so a single thread reads it
            for n in single:
                w.line(f"store(s_{n}, 0, {w.known[n]});")

    def loop(start: str, end: str, v: str) -> None:
        with w.block(f"for ({w.I} i = {start}; i < {end}; i += step)"):
            w.line(f"const {w.I} j = i * {v};")
            w.elements(w.unravel("j", list(range(rank))), stores, {}, v)

    if stores:
        count = w.number("count", prod(nest.space))
        w.line(f"const {w.I} step = ({w.I})gridDim.x * blockDim.x;")
        w.line(f"const {w.I} first = ({w.I})blockIdx.x * blockDim.x + threadIdx.x;")
        loop("first", f"{count} / v", "v")
        if many > 1 and rank == 1:
            loop(f"{count} / v * v + first", count, "1")
    blocks = gridFor(-(-prod(nest.space) // many))[0] if stores else 1
    return w.launch("pointwise", blocks, (THREADS, 1, 1))
