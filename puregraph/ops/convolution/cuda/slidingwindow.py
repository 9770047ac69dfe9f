"""Sliding windows: common code of kernels whose threads compute a few elements from windows over another array.

A thread has one channel, or as many as 16 bytes hold where channels are contiguous; neighbouring threads have
neighbouring addresses. A window at p reads the position p * stride + tap * dilation - before; backward, a
position is read by the windows p for which that holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from puregraph.ops.cuda.nests.kernelargs import KernelArgs
from puregraph.ops.cuda.runtime.launch import MAX_LOAD_BYTES, THREADS, Launch, blocksFor, eachOf, stridesOf

if TYPE_CHECKING:
    from typing import Any

    from puregraph.core.protocols import Strided
    from puregraph.ops.convolution.reference import Window

INT_MAX = 2**31 - 1  # the largest int


class ThreadGrid(NamedTuple):
    """The mapping of threads to an array (n, c, *spatial): `pack` channels each, and `run` positions along the last
    axis."""

    shape: tuple[int, ...]
    isLast: bool
    pack: int
    run: int = 1

    @property
    def axes(self) -> tuple[int, ...]:
        """The number of threads along samples, positions and channels, in the order of memory."""
        n, c, *positions = self.shape
        positions[-1] = blocksFor(positions[-1], self.run)
        packs = c // self.pack
        return (n, *positions, packs) if self.isLast else (n, packs, *positions)

    @property
    def threads(self) -> int:
        return prod(self.axes)

    def indices(self, args: KernelArgs) -> str:
        """C of sample, channel and place0, ... (the spatial position) of the thread `number`."""
        text, names = args.indices("i", "number", self.axes, "axis")
        sample, *rest = names
        channel, positions = (rest[-1], rest[:-1]) if self.isLast else (rest[0], rest[1:])
        lines = [f"const int sample = {sample}, channel = {channel} * {self.pack};"]
        for i, position in enumerate(positions):
            run = f" * {self.run}" if i == len(positions) - 1 else ""
            lines.append(f"const int position{i} = {position}{run};")
        return "\n".join([text, *lines])


def gridOf(made: Strided, *others: Strided, run: int = 1) -> ThreadGrid | None:
    """The grid over the written array, packed if all arrays have contiguous channels; None if it is too large."""
    channels, last = (abs(stridesOf(made)[axis]) for axis in (1, -1))
    isLast = channels < last or made.shape[-1] == 1
    pack = eachOf(prod(made.shape), packOf(made, *others)) if isLast else 1
    grid = ThreadGrid(tuple(made.shape), isLast, pack, run if isLast else 1)
    return grid if grid.threads <= INT_MAX else None


def packOf(made: Strided, *others: Strided) -> int:
    """The number of channels that are contiguous and aligned in all arrays; at most 16 bytes of the first."""
    sizes = [made.shape[1]]
    for x in (made, *others):
        n, c, *positions = stridesOf(x)
        if c != 1:
            return 1
        sizes += [n, *positions]
    pack = max(1, MAX_LOAD_BYTES // made.dtype.itemsize)
    while pack > 1 and any(size % pack for size in sizes):
        pack //= 2
    return pack


def at(
    args: KernelArgs, name: str, x: Strided, positions: Sequence[str], channel: str = "channel", sample: str = "sample"
) -> str:
    """C of the offset of an element of an array."""
    return args.offset(f"{name}_", [sample, channel, *positions], stridesOf(x))


def windows(args: KernelArgs, window: Any) -> None:
    """Declare the window geometry as arguments: length0, size0, stride0, before0, dilation0, count0, ..."""
    for i, (length, size, stride, (before, _), dilation) in enumerate(zip(*window)):
        sizes = {"length": length, "size": size, "stride": stride, "before": before, "dilation": dilation}
        for name, value in (sizes | {"count": window.count[i]}).items():
            args.number(f"{name}{i}", value)


def overTaps(rank: int, body: str) -> str:
    """C of a loop over the taps t0, ... of a window that are inside the input, at the positions s0, ..."""
    heads = []
    for i in range(rank):
        heads.append(f"for (int t{i} = 0; t{i} < g.size{i}; t{i}++) {{")
        heads.append(f"const int s{i} = position{i} * g.stride{i} + t{i} * g.dilation{i} - g.before{i};")
        heads.append(f"if ((unsigned)s{i} >= (unsigned)g.length{i}) continue;")
    return "\n".join([*heads, body, "}" * rank])


def overWindows(rank: int, body: str, args: KernelArgs, window: Window) -> str:
    """C of a loop over the windows s0, ... that contain a position, in order."""
    heads = []
    for i in range(rank):
        by = args.divisor(f"stride{i}", window.stride[i])
        heads.append(
            f"""const int u{i} = position{i} + g.before{i}, v{i} = u{i} - (g.size{i} - 1) * g.dilation{i};
const int low{i} = v{i} > 0 ? quotient(v{i} + g.stride{i} - 1, {by}) : 0;
const int high{i} = u{i} < 0 ? -1 : min(g.count{i} - 1, quotient(u{i}, {by}));"""
        )
    heads += [f"for (int s{i} = low{i}; s{i} <= high{i}; s{i}++) {{" for i in range(rank)]
    return "\n".join([*heads, body, "}" * rank])


def launch(
    name: str, grid: ThreadGrid, args: KernelArgs, constants: dict[str, str], body: str, resident: int = 1
) -> Launch:
    """A kernel whose threads each run the body; `resident` blocks have to fit a multiprocessor."""
    args.number("threads", grid.threads)
    indices = grid.indices(args)
    types = "".join(f"typedef {value} {key};\n" for key, value in constants.items())
    text = KERNEL.format(
        types=types, struct=args.struct, pack=grid.pack, run=grid.run, name=name,
        arguments=args.arguments, made=args.made, indices=indices, body=body,
        bounds=f"__launch_bounds__({THREADS}, {resident}) " if resident > 1 else "",
    )  # fmt: skip
    return Launch(name, text, name, tuple(args.slots), (blocksFor(grid.threads, THREADS), 1, 1), (THREADS, 1, 1))


def wideType(*xs: Strided) -> dict[str, str]:
    """Wide, the type that is computed in."""
    return {"Wide": "double" if any(x.dtype.name == "float64" for x in xs) else "float"}


MOVES = """
template <class T>
__device__ static inline bool isEven(const T* x) {  // whether packs of it are loaded at once
  return PACK == 1 || isAligned(x, sizeof(T) * PACK < 16 ? sizeof(T) * PACK : 16);
}
template <class T, class S>
__device__ static inline void take(const T* x, int64 i, bool even, S* to) {
  if (even)
    loadMany<PACK>(x, i, to);
  else
    loadApart<PACK>(x, i, 1, to);
}
template <class T, class S>
__device__ static inline void put(T* y, int64 i, const S* from) {
  if (isEven(y))
    storeMany<PACK>(y, i, from);
  else
    storeApart<PACK>(y, i, 1, from);
}
"""

KERNEL = (
    """{types}{struct}
constexpr int PACK = {pack}, RUN = {run};
"""
    + MOVES.replace("{", "{{").replace("}", "}}")
    + """
extern "C" __global__ void {bounds}{name}({arguments}) {{
  {made}
  const int number = blockIdx.x * blockDim.x + threadIdx.x;
  if (number >= g.threads) return;
  {indices}
  {body}
}}
"""
)
