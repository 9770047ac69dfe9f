"""Pairwise dot products of several vectors."""

import numpy as np

from puregraph.core.base.widen import widened
from puregraph.ops.cuda.runtime.launch import THREADS, Launch, PointerTable, stridesOf
from puregraph.ops.cuda.runtime.preprocess import areFloats, defined, stored
from puregraph.ops.kernel import ANYFLOATS, compositeKernel


@compositeKernel
@widened
def pairDots(*xs):
    """y[n, p] = <x_i[n], x_j[n]> for all pairs i > j in the order (1, 0), (2, 0), (2, 1), ...

    Shapes    f times x_i (n, d) -> y (n, f (f - 1) / 2)
    """
    x = np.stack(xs, axis=1)
    y = x @ x.swapaxes(-1, -2)
    return np.concatenate([y[:, i, :i] for i in range(1, len(xs))], axis=1)


@pairDots.shape
def pairDots(*xs):
    """y (n, f (f - 1) / 2)."""
    return (xs[0].shape[0], len(xs) * (len(xs) - 1) // 2), np.result_type(*(x.dtype for x in xs))


@pairDots.cuda
def pairDots(y, *xs):
    """A thread block computes a sample, a thread one pair after the other."""
    return launched("pairDots", PAIRS, xs, [y])


pairDots.declare(halves=ANYFLOATS)


PAIRS = """
extern "C" __global__ void __launch_bounds__(256)
    pairDots(Y* __restrict__ y, int64 y0, int64 y1, const int64* __restrict__ table, int count, int size) {
  DYNAMIC(W, x);
  const int64 n = blockIdx.x;
  read(x, table, count, size);
  __syncthreads();
  for (int p = threadIdx.x; p < count * (count - 1) / 2; p += 256) {
    int i = (int)((1 + sqrtf(8.0f * p + 1)) / 2);  // rounding may be off by one
    i += i * (i + 1) / 2 <= p;
    i -= i * (i - 1) / 2 > p;
    const int j = p - i * (i - 1) / 2;
    W sum = 0;
    for (int c = 0; c < size; c++) sum += x[i * (size + 1) + c] * x[j * (size + 1) + c];
    store(y, n * y0 + p * y1, sum);
  }
}
"""


@compositeKernel
@widened
def pairDotsGrad(grad, *xs):
    """The gradients of all vectors, (n, f, d): (G + G') x, G having the gradient below its diagonal."""
    x, count = np.stack(xs, axis=1), len(xs)
    rows = []
    for i in range(count):
        start = i * (i - 1) // 2
        padding = np.zeros_like(grad, shape=(grad.shape[0], count - i))
        rows.append(np.concatenate([grad[:, start : start + i], padding], axis=1))
    g = np.stack(rows, axis=1)
    return (g + g.swapaxes(-1, -2)) @ x


@pairDotsGrad.shape
def pairDotsGrad(grad, *xs):
    """dx (n, f, d)."""
    return (xs[0].shape[0], len(xs), xs[0].shape[1]), grad.dtype


@pairDotsGrad.cuda
def pairDotsGrad(dx, grad, *xs):
    """A thread block computes a sample; a thread has an element of four vectors, and reads that of all others once."""
    return launched("pairDotsGrad", SLOPES, xs, [dx, grad], (len(xs) + 3) // 4 * 4 * len(xs))


pairDotsGrad.declare(halves=ANYFLOATS)


SLOPES = """
extern "C" __global__ void __launch_bounds__(256)
    pairDotsGrad(Y* __restrict__ dx, int64 dx0, int64 dx1, int64 dx2, const G* __restrict__ grad, int64 grad0,
                 int64 grad1, const int64* __restrict__ table, int count, int size) {
  DYNAMIC(W, x);
  W* const g = x + count * (size + 1);  // count rows, padded to four: the weight of each pair
  const int64 n = blockIdx.x;
  const int quads = (count + 3) / 4, wide = quads * 4;
  read(x, table, count, size);
  for (int k = threadIdx.x; k < count * wide; k += 256) {
    const int j = k / wide, i = k - j * wide, high = max(i, j), low = min(i, j);
    g[k] = i != j && i < count ? load(grad, n * grad0 + (high * (high - 1) / 2 + low) * grad1) : W(0);
  }
  __syncthreads();
  for (int k = threadIdx.x; k < quads * size; k += 256) {
    const int quad = k / size, c = k - quad * size;
    W sum[4] = {};
    for (int j = 0; j < count; j++) {
      const W other = x[j * (size + 1) + c];
#pragma unroll
      for (int i = 0; i < 4; i++) sum[i] += g[j * wide + quad * 4 + i] * other;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (quad * 4 + i < count) store(dx, n * dx0 + (quad * 4 + i) * dx1 + c * dx2, sum[i]);
  }
}
"""


def launched(name, text, xs, others, extra=0):
    """The launch of a kernel that has all vectors of a sample in shared memory, and `extra` elements more."""
    (n, size), dtype = xs[0].shape, xs[0].dtype
    wide = "double" if "float64" in [x.dtype.name for x in (*xs, *others)] else "float"
    shared = (len(xs) * (size + 1) + extra) * (8 if wide == "double" else 4)
    if not areFloats(*xs, *others) or len({x.dtype for x in xs}) > 1 or shared > MAX_SHARED_BYTES:
        return NotImplemented
    if not others[0].size:
        return []
    table = PointerTable([(x, *map(int, stridesOf(x))) for x in xs])
    slots = [slot for x in others for slot in (("pointer", x), *(("long", s) for s in stridesOf(x)))]
    slots += [("pointer", table), ("int", len(xs)), ("int", size)]
    text = (
        defined({"T": stored(dtype), "Y": stored(others[0].dtype), "G": stored(others[-1].dtype), "W": wide})
        + READ
        + text
    )
    return [Launch(name, text, name, tuple(slots), (n, 1, 1), (THREADS, 1, 1), shared)]


MAX_SHARED_BYTES = 160 << 10  # bytes of shared memory that a block may have
READ = """
// The vectors of a sample, each padded by one element, so that those of a column are in different banks
__device__ static inline void read(W* x, const int64* table, int count, int size) {
  for (int k = threadIdx.x; k < count * size; k += blockDim.x) {
    const int i = k / size, c = k - i * size;
    const int64* const row = table + i * 3;
    x[i * (size + 1) + c] = load(reinterpret_cast<const T*>(row[0]), blockIdx.x * row[1] + c * row[2]);
  }
}
"""
