// What recurrent cells share, forward and backward.
//
// W: the type to compute in; OfY and the like: what arrays hold; GATES: sums for each unit; LSTM, GRU, TANH, RELU:
// 1 for the kind of cell, else 0; HAS_D: the bias of a GRU within r; HAS_ON: which time steps count.
//
// A block has `tiles` tiles of four units and eight samples. A warp sums for one tile, and one gate, its lanes along
// the reduced axis. Then a thread has one unit of one sample. Either one launch runs all time steps, with all
// units of its samples in a block, or each time step is a launch, for blocks synchronize only between launches.

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
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;                                              \
  const int firstRow = blockIdx.x / across * ROWS, firstUnit = blockIdx.x % across * UNITS * tiles
