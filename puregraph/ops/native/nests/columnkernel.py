"""The code of reductions over other axes: a task has a block of columns, with sums in registers over all rows."""

from __future__ import annotations

from typing import Any

from puregraph.ops.native.llvm.instructions import IRValue
from puregraph.ops.native.nests.nestscope import NestCode, Scope, Sums


def writeColumns(writer: NestCode, wide: int, exact: bool) -> None:
    """Writes reductions over other axes than the last: a task has some columns, with an accumulator in each lane."""
    code, shape, nest, lanes = writer.code, writer.shape, writer.nest, writer.lanes
    blocks, chain = code.integer("blocks"), code.integer("chain")
    first = code.task % blocks * (wide * lanes)
    indices = writer.indicesOf(code.task // blocks, shape.outer[:-1])
    columns = [first + w * lanes for w in range(wide)]
    masks = [None if exact else code.mask(writer.extents[shape.inner] - c, lanes) for c in columns]
    outers = [Scope(writer, {**indices, shape.inner: c}, lanes, m, None) for c, m in zip(columns, masks)]
    for p in range(shape.count):
        reductions, _, stores = shape.at(p)
        if not (reductions or stores):
            continue
        for n in shape.dependencies([*[shape.reductions[n].of for n in reductions], *stores]):
            for outer in outers:
                outer.get(n)

        def enter(depth: int, here: dict[int, IRValue], sums: Sums) -> None:
            axis = shape.loops[depth]
            extent = writer.extent(axis, here)
            if depth < len(shape.loops) - 1:
                with code.loop(0, extent) as i:
                    enter(depth + 1, {**here, axis: i}, sums)
                return
            with code.loop(0, extent, chain, unroll=1) as head:
                some = writer.sums(sums, wide)
                with code.loop(head, code.min(extent, head + chain)) as i:
                    visit({**here, axis: i}, some)
                writer.add(sums, some)

        def visit(here: dict[int, IRValue], sums: Sums, reductions: Any = reductions, stores: Any = stores) -> None:
            for w in range(wide):
                at = {**here, shape.inner: columns[w]}
                scope = Scope(writer, at, lanes, masks[w], outers[w])
                for n, value in [(n, scope.get(n)) for n in stores]:  # all, before any is written
                    writer.write(n, value, at, lanes, masks[w])
                for n in reductions:
                    reduction = shape.reductions[n]
                    sums[n][w].value = scope.joined(reduction, sums[n][w].value)

        sums = writer.sums(reductions, wide)
        enter(0, indices, sums)
        for n in reductions:
            for w in range(wide):
                outers[w].values[n] = sums[n][w].value
    ends = [n for n in nest.stores if not shape.spread[n]]
    for outer, mask in zip(outers, masks):
        for n, value in [(n, outer.get(n)) for n in ends]:
            writer.write(n, value, outer.indices, lanes, mask)
