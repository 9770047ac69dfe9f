"""Pooling: maxima and means of windows, and their gradients, which each position gathers from the windows over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph.ops.convolution.cuda.slidingwindow import at, gridOf, launch, overTaps, overWindows, wideType, windows
from puregraph.ops.cuda.nests.kernelargs import KernelArgs
from puregraph.ops.cuda.runtime.launch import Launch
from puregraph.ops.cuda.runtime.preprocess import areFloats

if TYPE_CHECKING:
    from types import NotImplementedType
    from typing import Any

    from puregraph.core.protocols import Strided
    from puregraph.ops.convolution.reference import Window

HALF = 4  # blocks, with half of the threads of a processor


def maxPool(y: Strided, indices: Strided, x: Strided, window: Window) -> list[Launch] | NotImplementedType:
    """y = max of each window, and its flat spatial position: the first maximum, nan before all others."""
    grid, rank, args = gridOf(y, indices, x), len(x.shape) - 2, KernelArgs()
    if grid is None or not areFloats(x, y):
        return NotImplemented
    if not y.size:
        return []
    arrays(args, y=y, indices=indices, x=x)
    windows(args, window)
    take = TAKE.format(x=at(args, "x", x, sources(rank)), flat=flat(sources(rank)))
    body = PEAK.format(
        taps=overTaps(rank, take),
        y=at(args, "y", y, positions(rank)),
        indices=at(args, "indices", indices, positions(rank)),
    )
    return [launch("maxPool", grid, args, wideType(x, y), body)]


def maxPoolGrad(dx: Strided, grad: Strided, indices: Strided, window: Window) -> list[Launch] | NotImplementedType:
    """dx from the windows whose maximum is at each position; for an unknown layout, all windows are searched."""
    grid, rank, args = gridOf(dx, grad, indices), len(dx.shape) - 2, KernelArgs()
    if grid is None or not areFloats(dx, grad):
        return NotImplemented
    if not dx.size:
        return []
    arrays(args, dx=dx, grad=grad, indices=indices)
    find = FIND.format(grad=at(args, "grad", grad, sources(rank)), indices=at(args, "indices", indices, sources(rank)))
    if window is not None:
        windows(args, window)
        search = overWindows(rank, find, args, window)
    else:
        for i, (length, count) in enumerate(zip(dx.shape[2:], grad.shape[2:])):
            args.number(f"length{i}", length)
            args.number(f"count{i}", count)
        heads = [f"for (int s{i} = 0; s{i} < g.count{i}; s{i}++) {{" for i in range(rank)]
        search = "\n".join([*heads, find, "}" * rank])
    body = PEAKGRAD.format(flat=flat(positions(rank)), search=search, dx=at(args, "dx", dx, positions(rank)))
    return [launch("maxPoolGrad", grid, args, wideType(dx, grad), body, resident=HALF)]


def meanPool(y: Strided, x: Strided, window: Window, includePad: bool) -> list[Launch] | NotImplementedType:
    """y = mean of each window."""
    grid, rank, args = gridOf(y, x), len(x.shape) - 2, KernelArgs()
    if grid is None or not areFloats(x, y):
        return NotImplemented
    if not y.size:
        return []
    arrays(args, y=y, x=x)
    windows(args, window)
    add = ADD.format(x="x", at=at(args, "x", x, sources(rank)), share="")
    share = shareOf(rank, includePad, "position")
    body = MEAN.format(
        x="x", sums=overTaps(rank, add), share=f" / ({share})", y="y", at=at(args, "y", y, positions(rank))
    )
    return [launch("meanPool", grid, args, wideType(x, y), body)]


def meanPoolGrad(dx: Strided, grad: Strided, window: Window, includePad: bool) -> list[Launch] | NotImplementedType:
    """dx: at each position, the sum of its shares of all windows over it."""
    grid, rank, args = gridOf(dx, grad), len(dx.shape) - 2, KernelArgs()
    if grid is None or not areFloats(dx, grad):
        return NotImplemented
    if not dx.size:
        return []
    arrays(args, dx=dx, grad=grad)
    windows(args, window)
    share = shareOf(rank, includePad, "s")
    add = ADD.format(x="grad", at=at(args, "grad", grad, sources(rank)), share=f" / ({share})")
    sums = overWindows(rank, add, args, window)
    body = MEAN.format(x="grad", sums=sums, share="", y="dx", at=at(args, "dx", dx, positions(rank)))
    return [launch("meanPoolGrad", grid, args, wideType(dx, grad), body)]


def arrays(args: KernelArgs, **named: Any) -> None:
    """Declare arrays as arguments: the first one, and "indices" beside "y", are written."""
    for i, (name, x) in enumerate(named.items()):
        args.pointer(name, x.dtype.name, x, i == 0 or (name == "indices" and "y" in named))


def positions(rank: int) -> list[str]:
    """The position that a thread computes."""
    return [f"position{i}" for i in range(rank)]


def sources(rank: int) -> list[str]:
    """The position that it reads."""
    return [f"s{i}" for i in range(rank)]


def flat(positions: list[str]) -> str:
    """C of a flat spatial position."""
    text = positions[0]
    for i, position in enumerate(positions[1:], start=1):
        text = f"({text}) * g.length{i} + {position}"
    return text


def shareOf(rank: int, includePad: bool, position: str) -> str:
    """C text of the divisor of a window's sum: all elements of the window, or those inside the input (at least one)."""
    if includePad:
        return " * ".join(f"(Wide)g.size{i}" for i in range(rank))
    first = [f"{position}{i} * g.stride{i} - g.before{i}" for i in range(rank)]
    on = [f"min({f} + g.size{i}, g.length{i}) - max({f}, 0)" for i, f in enumerate(first)]
    return " * ".join(f"(Wide)max({extent}, 1)" for extent in on)


TAKE = """
Wide own[PACK];
take(g.x, {x}, isWhole, own);
#pragma unroll
for (int j = 0; j < PACK; j++)
  if (where[j] < 0 || own[j] > best[j] || (own[j] != own[j] && best[j] == best[j])) best[j] = own[j], where[j] = {flat};
"""

PEAK = """
const bool isWhole = isEven(g.x);
Wide best[PACK];
int where[PACK];
#pragma unroll
for (int j = 0; j < PACK; j++) best[j] = -INFINITY, where[j] = -1;
{taps}
put(g.y, {y}, best);
put(g.indices, {indices}, where);
"""

FIND = """
Wide own[PACK];
int where[PACK];
take(g.indices, {indices}, areWhole, where);
take(g.grad, {grad}, isWhole, own);
#pragma unroll
for (int j = 0; j < PACK; j++)
  if (where[j] == flat) sums[j] += own[j];
"""

PEAKGRAD = """
const bool isWhole = isEven(g.grad), areWhole = isEven(g.indices);
const int flat = {flat};
Wide sums[PACK] = {{}};
{search}
put(g.dx, {dx}, sums);
"""

ADD = """
Wide own[PACK];
take(g.{x}, {at}, isWhole, own);
#pragma unroll
for (int j = 0; j < PACK; j++) sums[j] += own[j]{share};
"""

MEAN = """
const bool isWhole = isEven(g.{x});
Wide sums[PACK] = {{}};
{sums}
#pragma unroll
for (int j = 0; j < PACK; j++) sums[j] = sums[j]{share};
put(g.{y}, {at}, sums);
"""
