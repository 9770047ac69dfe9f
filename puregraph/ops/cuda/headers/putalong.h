// Updates written by an index along an axis; negative indices count from its end.

__device__ static inline int64 wrapped(int64 at, int64 n) { return at < 0 ? at + n : at; }

struct Last {
  template <class A>
  __device__ static inline A join(A a, A b) {
    return b;
  }
};

extern "C" __global__ void putStart(W* __restrict__ total, const S* __restrict__ x, int64 count, AXES_PARAMETERS) {
  for (AXES_COUNTER i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    AXES_OFFSETS
    store(total, toTotal, load(x, fromX));
  }
}

extern "C" __global__ void putEnd(T* __restrict__ y, const W* __restrict__ total, int64 count, AXES_PARAMETERS) {
  for (AXES_COUNTER i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    AXES_OFFSETS
    store(y, toY, load(total, toTotal));
  }
}

__device__ static inline void join(W* y, W update) { store(y, 0, How::join(load(y, 0), update)); }

// A thread takes the updates of a line, one after the other.
extern "C" __global__ void putLines(W* total, const I* __restrict__ index, const U* __restrict__ updates, int64 lines,
                                    int64 count, int64 n, int64 step, int64 indexStep, int64 updateStep,
                                    LINES_PARAMETERS) {
  for (LINES_COUNTER i = blockIdx.x * blockDim.x + threadIdx.x; i < lines; i += gridDim.x * blockDim.x) {
    LINES_OFFSETS
    for (int64 k = 0; k < count; k++) {
      const int64 at = wrapped((int64)index[fromIndex + k * indexStep], n);
      if (at >= 0 && at < n) join(total + to + at * step, (W)load(updates, fromUpdates + k * updateStep));
    }
  }
}

// A warp takes 32 updates of a line at a time; those of one element take turns, in order.
extern "C" __global__ void putWarps(W* total, const I* __restrict__ index, const U* __restrict__ updates, int64 lines,
                                    int64 count, int64 n, int64 step, int64 indexStep, int64 updateStep,
                                    LINES_PARAMETERS) {
  const int lane = threadIdx.x & 31;
  for (LINES_COUNTER i = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; i < lines; i += gridDim.x * blockDim.x >> 5) {
    LINES_OFFSETS
    for (int64 start = 0; start < count; start += 32) {
      const int64 k = start + lane, at = k < count ? wrapped((int64)index[fromIndex + k * indexStep], n) : -1;
      const bool isThere = at >= 0 && at < n;
      const int ahead = __popc(__match_any_sync(ALL, isThere ? (int)at : -1) & ((1u << lane) - 1));
      for (int turn = 0; __any_sync(ALL, isThere && ahead >= turn); turn++) {
        if (isThere && ahead == turn) join(total + to + at * step, (W)load(updates, fromUpdates + k * updateStep));
        __syncwarp();
      }
    }
  }
}
