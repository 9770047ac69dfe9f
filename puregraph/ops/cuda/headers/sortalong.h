// Sorting along an axis: keys are unsigned integers in the order of the elements, equal ones are in that of their index.

template <class A>
struct Key {  // integers; those with a sign begin at 2^63
  __device__ static inline uint64 of(A x) {
    return (A)-1 < (A)1 ? (uint64)(int64)x ^ (1ull << 63) : (uint64)x;
  }
};
template <>
struct Key<bool> {
  __device__ static inline uint64 of(bool x) { return x; }
};
template <>
struct Key<double> {
  __device__ static inline uint64 of(double x) {
    if (x != x) return ~0ull;
    const int64 bits = __double_as_longlong(x == 0 ? 0.0 : x);
    return bits < 0 ? ~(uint64)bits : (uint64)bits | 1ull << 63;
  }
};
template <>
struct Key<float> {
  __device__ static inline uint64 of(float x) { return Key<double>::of(x); }
};
template <>
struct Key<Half> {
  __device__ static inline uint64 of(Half x) { return Key<double>::of(toFloat(x)); }
};
template <>
struct Key<Bfloat> {
  __device__ static inline uint64 of(Bfloat x) { return Key<double>::of(toFloat(x)); }
};

__device__ static inline uint64 keyOf(T x) {
  const uint64 key = Key<T>::of(x);
  return LARGEST ? ~key : key;
}

__device__ static inline bool isAfter(uint64 a, int i, uint64 b, int j) { return a > b || (a == b && i > j); }

// One comparison of a stage: elements `far` apart, in runs of `run` that ascend and descend by turns.
template <class I>
__device__ static inline void exchange(uint64* keys, int* order, I pair, int run, int far, int padded) {
  const I low = 2 * pair - (pair & (far - 1)), high = low + far;
  const bool ascends = (low & (padded - 1) & run) == 0;
  const uint64 a = keys[low], b = keys[high];
  const int i = order[low], j = order[high];
  if (isAfter(a, i, b, j) == ascends) {
    keys[low] = b;
    keys[high] = a;
    order[low] = j;
    order[high] = i;
  }
}

extern "C" __global__ void sortLines(T* __restrict__ y, int64* __restrict__ indices, const T* __restrict__ x,
                                     int64 lines, int n, int count, int padded, int64 xStep, int64 yStep,
                                     int64 indexStep, LINES_PARAMETERS) {
  __shared__ uint64 keys[SHARED];
  __shared__ int order[SHARED];
  for (LINES_COUNTER i = blockIdx.x; i < lines; i += gridDim.x) {
    LINES_OFFSETS
    for (int k = threadIdx.x; k < padded; k += blockDim.x) {
      keys[k] = k < n ? keyOf(x[fromX + k * xStep]) : ~0ull;
      order[k] = k;
    }
    __syncthreads();
    for (int run = 2; run <= padded; run <<= 1) {
      for (int far = run >> 1; far > 0; far >>= 1) {
        for (int k = threadIdx.x; k < padded >> 1; k += blockDim.x) exchange(keys, order, k, run, far, padded);
        __syncthreads();
      }
    }
    for (int k = threadIdx.x; k < count; k += blockDim.x) {
      y[toY + k * yStep] = x[fromX + order[k] * xStep];
      indices[toIndex + k * indexStep] = order[k];
    }
    __syncthreads();
  }
}

extern "C" __global__ void sortKeys(uint64* __restrict__ keys, int* __restrict__ order, const T* __restrict__ x,
                                    int64 lines, int n, int count, int padded, int64 xStep, int64 yStep,
                                    int64 indexStep, LINES_PARAMETERS) {
  const int64 all = lines * padded;
  for (int64 at = (int64)blockIdx.x * blockDim.x + threadIdx.x; at < all; at += (int64)gridDim.x * blockDim.x) {
    const int k = (int)(at & (padded - 1));
    const LINES_COUNTER i = (LINES_COUNTER)(at / padded);
    LINES_OFFSETS
    keys[at] = k < n ? keyOf(x[fromX + k * xStep]) : ~0ull;
    order[at] = k;
  }
}

extern "C" __global__ void sortStage(uint64* keys, int* order, int64 pairs, int padded, int run, int far) {
  const int64 step = (int64)gridDim.x * blockDim.x;
  for (int64 pair = (int64)blockIdx.x * blockDim.x + threadIdx.x; pair < pairs; pair += step)
    exchange(keys, order, pair, run, far, padded);
}

extern "C" __global__ void sortedOut(T* __restrict__ y, int64* __restrict__ indices, const T* __restrict__ x,
                                     const uint64* __restrict__ keys, const int* __restrict__ order, int64 lines, int n,
                                     int count, int padded, int64 xStep, int64 yStep, int64 indexStep,
                                     LINES_PARAMETERS) {
  const int64 all = lines * count;
  for (int64 at = (int64)blockIdx.x * blockDim.x + threadIdx.x; at < all; at += (int64)gridDim.x * blockDim.x) {
    const LINES_COUNTER i = (LINES_COUNTER)(at / count);
    const int k = (int)(at - (int64)i * count), from = order[(int64)i * padded + k];
    LINES_OFFSETS
    y[toY + k * yStep] = x[fromX + from * xStep];
    indices[toIndex + k * indexStep] = from;
  }
}
