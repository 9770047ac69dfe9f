// GEMM: sums over k of a(m, k) b(k, n), one tile a block. The text before this has the layout of operands and the
// epilogue: Given, Depth, A, B (a Side each), depthOf, finish; and the blocking: ROWS and COLUMNS of a tile, DEPTH
// that is in shared memory at a time, STAGES of it, THREADS.

// Software prefetch: asynchronous copies from global to shared memory --------------------------------------------------

template <int n, class T>
__device__ static inline void copyAhead(T* to, const T* from, bool isThere) {  // zeros where isThere is false
  const unsigned address = (unsigned)__cvta_generic_to_shared(to);
  const int bytes = isThere ? n * sizeof(T) : 0;
  if (n * sizeof(T) == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
  else if (n * sizeof(T) == 8)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}

__device__ static inline void endStage() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int later>
__device__ static inline void awaitStage() {  // all stages but the last few
  asm volatile("cp.async.wait_group %0;" ::"n"(later) : "memory");
}

template <int n, class T>
__device__ static inline void bring(T* to, const T* from, bool isThere) {  // one by one: not aligned
#pragma unroll 1
  for (int j = 0; j < n; j++) {
    if (sizeof(T) >= 4) {
      copyAhead<1>(to + j, from + j, isThere);
    } else {
      T x = {};
      if (isThere) x = from[j];
      to[j] = x;
    }
  }
}

// An operand's panel in shared memory: by lanes (rows of a, columns of b) where alongDepth, else by depth -------------

template <class Side>
struct Panel {
  typedef typename Side::Number Number;
  static constexpr int lanes = Side::lanes, pack = Side::pack;
  static constexpr bool alongDepth = Side::alongDepth;
  static constexpr int pitch = Side::pitch;
  static constexpr int size = (alongDepth ? lanes : DEPTH) * pitch;
  static constexpr int beside = (alongDepth ? DEPTH : lanes) / pack;
  static constexpr int packs = DEPTH * lanes / pack;
  static constexpr int rounds = (packs + THREADS - 1) / THREADS;
  static constexpr int step = THREADS / beside;
  static_assert(THREADS % beside == 0, "threads have packs at one distance");

  typename Side::Lane own[alongDepth ? rounds : 1];
  const Number* nowhere;  // an address that may be named
  bool isWhole;

  __device__ inline Panel(const Given& g, const Number* start, int first) {
    const int t = threadIdx.x;
    nowhere = Side::base(g);
    isWhole = pack == 1 || isAligned(start, sizeof(Number) * pack);
    if (alongDepth) {
#pragma unroll
      for (int i = 0; i < rounds; i++) own[i] = Side::lane(g, start, first + t / beside + i * step);
    } else {
      own[0] = Side::lane(g, start, first + t % beside * pack);
    }
  }

  template <bool isEven, class Depths>
  __device__ inline void bringStage(const Given& g, Number* to, const Depths& depths, int k, int end) const {
    const int t = threadIdx.x, at = t % beside * pack;
    Depth d;
    if (alongDepth) d = depths.at(g, at, k);
#pragma unroll
    for (int i = 0; i < rounds; i++) {
      const int other = t / beside + i * step;
      if (packs % THREADS && other >= (alongDepth ? lanes : DEPTH)) break;
      if (!alongDepth) d = depths.at(g, other, k);
      const typename Side::Lane& lane = own[alongDepth ? i : 0];
      const bool isThere = k + (alongDepth ? at : other) < end && Side::holds(g, lane, d);
      const Number* const from = isThere ? Side::address(lane, d) : nowhere;
      if (isEven)
        copyAhead<pack>(to + other * pitch + at, from, isThere);
      else
        bring<pack>(to + other * pitch + at, from, isThere);
    }
  }

  template <class Depths>
  __device__ inline void bringStage(const Given& g, Number* to, const Depths& depths, int k, int end) const {
    if (pack * sizeof(Number) >= 4 && isWhole)
      bringStage<true>(g, to, depths, k, end);
    else
      bringStage<false>(g, to, depths, k, end);
  }
};

// Offsets along the depth: computed once for all threads, a stage ahead, or by each thread where quick -----------------

struct Found {
  Depth* offsets;  // of two stages

  __device__ inline void find(const Given& g, int stage, int k) const {
    if (threadIdx.x < DEPTH) offsets[stage % 2 * DEPTH + threadIdx.x] = depthOf(g, k + threadIdx.x);
  }
  struct Stage {
    const Depth* offsets;
    __device__ inline Depth at(const Given&, int i, int) const { return offsets[i]; }
  };
  __device__ inline Stage stage(int stage) const { return {offsets + stage % 2 * DEPTH}; }
};

struct Known {
  Depth* offsets;  // none

  __device__ inline void find(const Given&, int, int) const {}
  struct Stage {
    __device__ inline Depth at(const Given& g, int i, int k) const { return depthOf(g, k + i); }
  };
  __device__ inline Stage stage(int) const { return {}; }
};
