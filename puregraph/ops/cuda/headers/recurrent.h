// What recurrent cells share, forward and backward.
//
// W: the type to compute in; OfY and the like: what arrays hold; GATES: sums for each unit; LSTM, GRU, TANH, RELU:
// 1 for the kind of cell, else 0; HAS_D: the bias of a GRU within r; HAS_ON: which time steps count; HELD: whether a block
// keeps its weights in shared memory.
//
// A block has `groups` times eight samples, and of each `tiles` tiles of four units. A warp sums for one tile, and one
// gate, its lanes along the reduced axis. Then a thread has one unit of one sample. One launch runs all time steps if a
// block has all units of its samples, or, persistent, if all blocks are on the GPU at a time: then each reads its
// weights once, and a barrier of the grid is between time steps. Else each time step is a launch.

const int ROWS = 8, UNITS = 4;

#define THREE(x) int64 x##0, int64 x##1, int64 x##2
#define TWO(x) int64 x##0, int64 x##1

// Of 32 values of every lane, lane i gets the sum of the i-th: each step leaves half of them to the other lane
template <int n>
__device__ static inline void halve(W (&sum)[ROWS * UNITS], int lane) {
  const bool isHigh = lane & n;
#pragma unroll
  for (int i = 0; i < n; i++) {
    const W other = __shfl_xor_sync(ALL, isHigh ? sum[i] : sum[i + n], n);
    sum[i] = (isHigh ? sum[i + n] : sum[i]) + other;
  }
  if (n > 1) halve<(n > 1 ? n / 2 : 1)>(sum, lane);
}

// To lane i the sum over c of x[i / 4, c] w[i % 4, c]
template <class X, class V>
__device__ static inline W dots(const X* x, int64 xRow, int64 xStep, int rows, const V* w, int64 wRow, int64 wStep,
                                int units, int count) {
  const int lane = threadIdx.x & 31;
  W sum[ROWS * UNITS] = {};
#pragma unroll (sizeof(W) > 4 ? 1 : 4)  // what one iteration loads is on its way beside what the next ones do
  for (int c = lane; c < count; c += 32) {
    W left[ROWS], right[UNITS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) left[i] = i < rows ? W(load(x, i * xRow + c * xStep)) : W(0);
#pragma unroll
    for (int j = 0; j < UNITS; j++) right[j] = j < units ? W(load(w, j * wRow + c * wStep)) : W(0);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < UNITS; j++) sum[i * UNITS + j] += left[i] * right[j];
  }
  halve<16>(sum, lane);
  return sum[0];
}

__device__ static inline W sigmoid(W x) { return W(0.5) * tanh(W(0.5) * x) + W(0.5); }

// Where a block and a thread is
#define POSITION                                                                                           \
  DYNAMIC(W, sums);                                                                                        \
  const int across = (units + UNITS * tiles - 1) / (UNITS * tiles), warps = blockDim.x >> 5;               \
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, items = groups * tiles * GATES;              \
  const int firstRow = blockIdx.x / across * ROWS * groups, firstUnit = blockIdx.x % across * UNITS * tiles

#if HELD
// The weights of a block, each tile's of each gate: w[unit, c], where c is the reduced axis
__device__ static inline OfU* hold(W* sums, const OfU* __restrict__ w, int64 gateStep, int64 unitStep, int64 step,
                                   int firstUnit, int tiles, int items, int units) {
  OfU* const held = (OfU*)(sums + items * 32);
  for (int row = threadIdx.x >> 5; row < tiles * GATES * UNITS; row += blockDim.x >> 5) {
    const int gate = row / UNITS % GATES, unit = firstUnit + row / (UNITS * GATES) * UNITS + row % UNITS;
    for (int c = threadIdx.x & 31; c < units; c += 32)
      held[row * units + c] = unit < units ? w[gate * gateStep + unit * unitStep + c * step] : OfU();
  }
  __syncthreads();
  return held;
}
#define ENDOFSTEP(k) k + 1 < to ? gridBarrier(ticket, k - from, to - from) : lastDraw(ticket, to - from)
#else
#define ENDOFSTEP(k) __syncthreads()
#endif
