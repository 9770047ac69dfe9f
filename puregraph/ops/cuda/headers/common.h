// What every kernel may use. NVRTC reads it as CUDA, g++ after emulator.h and ptx.h as C++.

typedef long long int64;
typedef unsigned long long uint64;

#ifndef EMULATED
#define DYNAMIC(type, name)                    \
  extern __shared__ __align__(16) char memory_[]; \
  type* name = reinterpret_cast<type*>(memory_)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif

#define ALL 0xffffffffu  // the lanes of a warp

// Storage types: 16-bit floats are stored as raw bits and computed with as floats --------------------------------------

struct Half {
  unsigned short bits;
};
struct Bfloat {
  unsigned short bits;
};

__device__ static inline float toFloat(Half x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

__device__ static inline Half toHalf(float x) {
  Half y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

__device__ static inline float toFloat(Bfloat x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

__device__ static inline Bfloat toBfloat(float x) {
  Bfloat y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

template <class T>
struct Number {  // a storage type: its type to compute in, and the conversions
  typedef T Wide;
  __device__ static inline T widen(T x) { return x; }
  template <class S>
  __device__ static inline T narrow(S x) {
    return static_cast<T>(x);
  }
};
template <>
struct Number<Half> {
  typedef float Wide;
  __device__ static inline float widen(Half x) { return toFloat(x); }
  __device__ static inline Half narrow(float x) { return toHalf(x); }
};
template <>
struct Number<Bfloat> {
  typedef float Wide;
  __device__ static inline float widen(Bfloat x) { return toFloat(x); }
  __device__ static inline Bfloat narrow(float x) { return toBfloat(x); }
};
template <>
struct Number<bool> {
  typedef bool Wide;
  __device__ static inline bool widen(bool x) { return x; }
  template <class S>
  __device__ static inline bool narrow(S x) {
    return x != 0;
  }
};

template <class T>
__device__ static inline typename Number<T>::Wide load(const T* x, int64 i) {
  return Number<T>::widen(x[i]);
}

template <class T, class S>
__device__ static inline void store(T* y, int64 i, S value) {
  y[i] = Number<T>::narrow(value);
}

template <class T, class S>
struct Kept {  // elements of one storage type in another
  __device__ static inline T as(S x) { return Number<T>::narrow(Number<S>::widen(x)); }
};
template <class T>
struct Kept<T, T> {
  __device__ static inline T as(T x) { return x; }
};
template <class T, class S>
__device__ static inline T kept(S x) {
  return Kept<T, S>::as(x);
}

template <class T, int n>
struct alignas(sizeof(T) * n) Pack {  // n elements that are loaded or stored at once: up to 16 bytes
  T at[n];
};

#ifdef EMULATED
#define ALIGNED(address, bytes) emulator::emulator_align(address, bytes)
#else
#define ALIGNED(address, bytes)
#endif

template <int n, class T>
__device__ static inline Pack<T, n> loadPack(const T* x, int64 i) {
  ALIGNED(x + i, sizeof(T) * n);
  return *reinterpret_cast<const Pack<T, n>*>(x + i);
}

template <class T, int n>
__device__ static inline void storePack(T* y, int64 i, const Pack<T, n>& value) {
  ALIGNED(y + i, sizeof(T) * n);
  *reinterpret_cast<Pack<T, n>*>(y + i) = value;
}

__device__ static inline bool isAligned(const void* x, int bytes) {
  return (reinterpret_cast<uint64>(x) & static_cast<uint64>(bytes - 1)) == 0;
}

// Load v elements, contiguous or strided, converted to what is computed in, by accesses of up to 16 bytes.
template <int v, class T, class S>
__device__ static inline void loadMany(const T* x, int64 i, S* to) {
  const int n = v * sizeof(T) <= 16 ? v : 16 / sizeof(T);
#pragma unroll
  for (int k = 0; k < v; k += n) {
    const Pack<T, n> pack = loadPack<n>(x, i + k);
#pragma unroll
    for (int u = 0; u < n; u++) to[k + u] = static_cast<S>(Number<T>::widen(pack.at[u]));
  }
}

// The same, as they are stored.
template <int v, class T>
__device__ static inline void fetchMany(const T* x, int64 i, Pack<T, v>& to) {
  const int n = v * sizeof(T) <= 16 ? v : 16 / sizeof(T);
#pragma unroll
  for (int k = 0; k < v; k += n) {
    const Pack<T, n> pack = loadPack<n>(x, i + k);
#pragma unroll
    for (int u = 0; u < n; u++) to.at[k + u] = pack.at[u];
  }
}

template <int v, class T>
__device__ static inline void fetchApart(const T* x, int64 i, int64 step, Pack<T, v>& to) {
#pragma unroll
  for (int u = 0; u < v; u++) to.at[u] = x[i + u * step];
}

template <int v, class T, class S>
__device__ static inline void loadApart(const T* x, int64 i, int64 step, S* to) {
#pragma unroll
  for (int u = 0; u < v; u++) to[u] = static_cast<S>(load(x, i + u * step));
}

template <int v, class T, class S>
__device__ static inline void storeMany(T* y, int64 i, const S* from) {
  const int n = v * sizeof(T) <= 16 ? v : 16 / sizeof(T);
#pragma unroll
  for (int k = 0; k < v; k += n) {
    Pack<T, n> pack;
#pragma unroll
    for (int u = 0; u < n; u++) pack.at[u] = Number<T>::narrow(from[k + u]);
    storePack(y, i + k, pack);
  }
}

template <int v, class T, class S>
__device__ static inline void storeApart(T* y, int64 i, int64 step, const S* from) {
#pragma unroll
  for (int u = 0; u < v; u++) store(y, i + u * step, from[u]);
}

// n / by, for 0 <= n < 2^31: factor and shift are those that launch.py's `divisor` gives.
__device__ static inline int quotient(int n, int by, unsigned factor, int shift) {
  return by == 1 ? n : static_cast<int>(__umulhi(n, factor) >> shift);
}

// Reductions: every thread of the warp or block calls them, and every one gets the result, always of the same order ---

struct Sum {
  template <class T>
  __device__ static inline T join(T a, T b) {
    return a + b;
  }
};
struct Product {
  template <class T>
  __device__ static inline T join(T a, T b) {
    return a * b;
  }
};
struct Max {  // nan is greater than any value
  template <class T>
  __device__ static inline T join(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct Min {  // and less
  template <class T>
  __device__ static inline T join(T a, T b) {
    return a < b || a != a ? a : b;
  }
};

template <class How, int lanes, class T>
__device__ static inline T reduceLanes(T x) {  // over groups of neighbouring lanes; all lanes of the warp take part
#pragma unroll
  for (int d = lanes / 2; d > 0; d >>= 1) x = How::join(x, __shfl_xor_sync(ALL, x, d));
  return x;
}

template <class How, class T>
__device__ static inline T reduceWarp(T x) {
  return reduceLanes<How, 32>(x);
}

// Shared memory is declared outside templates, where g++ merges it.
__device__ static inline double* partsOfBlock() {
  __shared__ double parts[32];
  return parts;
}

// Over a block of whole warps, threads counted along x; the scratch memory may be used again at once.
template <class How, class T>
__device__ static inline T reduceBlock(T x, T start) {
  T* parts = reinterpret_cast<T*>(partsOfBlock());
  const int warps = blockDim.x >> 5, lane = threadIdx.x & 31;
  x = reduceWarp<How>(x);
  if (warps == 1) return x;
  if (lane == 0) parts[threadIdx.x >> 5] = x;
  __syncthreads();
  x = reduceWarp<How>(lane < warps ? parts[lane] : start);
  __syncthreads();
  return x;
}

// Reduces v elements of each thread over all y, for each x; the scratch memory has v elements for each thread.
template <class How, int v, class T>
__device__ static inline void reduceColumns(T* x, T* scratch) {
  T* own = scratch + (threadIdx.y * blockDim.x + threadIdx.x) * v;
#pragma unroll
  for (int u = 0; u < v; u++) own[u] = x[u];
  __syncthreads();
  for (int rows = blockDim.y, half; rows > 1; rows = half) {
    half = (rows + 1) >> 1;
    if (threadIdx.y + half < rows)
#pragma unroll
      for (int u = 0; u < v; u++) own[u] = How::join(own[u], own[half * blockDim.x * v + u]);
    __syncthreads();
  }
#pragma unroll
  for (int u = 0; u < v; u++) x[u] = scratch[threadIdx.x * v + u];
  __syncthreads();
}

template <class T>
__device__ static inline T sumWarp(T x) {
  return reduceWarp<Sum>(x);
}
template <class T>
__device__ static inline T maxWarp(T x) {
  return reduceWarp<Max>(x);
}
template <class T>
__device__ static inline T sumBlock(T x) {
  return reduceBlock<Sum>(x, T(0));
}
template <class T>
__device__ static inline T maxBlock(T x) {
  return reduceBlock<Max>(x, x);
}

// Random: Philox4x64-10, block b of four words, as in ops/random/reference.py ------------------------------------------------

struct Words {
  uint64 at[4];
};

__device__ static inline Words philox(uint64 key, uint64 counter, uint64 block) {
  Words w = {{block + 1, 0, counter, 0}};
  uint64 low = key, high = 0;
  for (int i = 0; i < 10; i++) {
    const uint64 a = 0xD2E7470EE14C6C93ull, b = 0xCA5A826395121157ull;
    const uint64 x = w.at[0], z = w.at[2];
    w.at[0] = __umul64hi(b, z) ^ w.at[1] ^ low;
    w.at[1] = b * z;
    w.at[2] = __umul64hi(a, x) ^ w.at[3] ^ high;
    w.at[3] = a * x;
    low += 0x9E3779B97F4A7C15ull;
    high += 0xBB67AE8584CAA73Bull;
  }
  return w;
}

// Uniform in [0, 1), as `uniform`: the i-th from half i % 2 of word i / 2
__device__ static inline float uniformOf(unsigned half) { return static_cast<float>(half >> 8) * 5.9604644775390625e-8f; }
__device__ static inline double uniformOf(uint64 word) { return static_cast<double>(word >> 11) * 1.1102230246251565e-16; }
