// Cumulative sums and the like along lines: y[i] of x[0] ... x[i], or of x[0] ... x[i - 1] if EXCLUSIVE.

struct LogSum {  // ln(e^a + e^b)
  template <class A>
  __device__ static inline A join(A a, A b) {
    const A most = a > b || a != a ? a : b, least = a > b || a != a ? b : a;
    return most + (a == b ? (A)0.6931471805599453 : log1p(exp(least - most)));  // the infinite ones too
  }
};

// A thread takes a line.
extern "C" __global__ void cumulateLines(T* __restrict__ y, const S* __restrict__ x, int64 lines, int64 n, int64 yFirst,
                                         int64 xFirst, int64 yStep, int64 xStep, LINES_PARAMETERS) {
  for (LINES_COUNTER i = blockIdx.x * blockDim.x + threadIdx.x; i < lines; i += gridDim.x * blockDim.x) {
    LINES_OFFSETS
    const S* source = x + fromX + xFirst;
    T* target = y + to + yFirst;
    W total = START;
    for (int64 k = 0; k < n; k++, source += xStep, target += yStep) {
      if (EXCLUSIVE) store(target, 0, total);
      const W value = load(source, 0);
      total = k ? How::join(total, value) : value;
      if (!EXCLUSIVE) store(target, 0, total);
    }
  }
}

// A block takes a line, an element a thread at a time: within warps, over the warps, then onto what came before.
extern "C" __global__ void cumulateBlocks(T* __restrict__ y, const S* __restrict__ x, int64 lines, int64 n,
                                          int64 yFirst, int64 xFirst, int64 yStep, int64 xStep, LINES_PARAMETERS) {
  __shared__ W parts[32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  for (LINES_COUNTER i = blockIdx.x; i < lines; i += gridDim.x) {
    LINES_OFFSETS
    const S* source = x + fromX + xFirst;
    T* target = y + to + yFirst;
    W before = START;
    for (int64 first = 0; first < n; first += blockDim.x) {
      const int64 k = first + threadIdx.x;
      W value = k < n ? (W)load(source, k * xStep) : (W)START;
#pragma unroll
      for (int d = 1; d < 32; d <<= 1) {
        const W lower = __shfl_up_sync(ALL, value, d);
        if (lane >= d) value = How::join(lower, value);
      }
      if (lane == 31) parts[warp] = value;
      __syncthreads();
      W lower = before, all = before;
      for (int w = 0; w < warps; w++) {
        if (w == warp) lower = all;
        all = first + w ? How::join(all, parts[w]) : parts[0];
      }
      const W previous = __shfl_up_sync(ALL, value, 1);
      const bool isFirst = first + warp == 0;
      if (EXCLUSIVE) value = lane == 0 ? lower : isFirst ? previous : How::join(lower, previous);
      else if (!isFirst) value = How::join(lower, value);
      if (k < n) store(target, k * yStep, value);
      before = all;
      __syncthreads();
    }
  }
}
