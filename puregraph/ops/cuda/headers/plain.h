// The accumulators of a thread: in float or double, a multiply and an add at a time -----------------------------------

template <class N>
struct Plain {
  static constexpr int G = 16 / sizeof(N);  // elements of a pack
  static constexpr int TM = THREADROWS, TN = THREADCOLUMNS;
  static constexpr int across = COLUMNS / TN, down = ROWS / TM;  // threads
  N sums[TM][TN];
  int y, x;

  __device__ inline Plain() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    y = warp / (across / 8) * 4 + lane / 8;
    x = warp % (across / 8) * 8 + lane % 8;
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
      for (int j = 0; j < TN; j++) sums[i][j] = 0;
  }

  // Lanes of a thread: neighbours where the elements of a depth are contiguous, else those without bank conflicts
  template <class Side>
  __device__ static inline int laneOf(int i, int thread, int threads) {
    return Side::alongDepth ? i * threads + thread : (i / G * threads + thread) * G + i % G;
  }

  template <class Side, int count>
  __device__ static inline void fetch(N (&to)[count], const N* from, int k, int thread, int threads) {
#pragma unroll
    for (int i = 0; i < count; i += G) {
      const Pack<N, G> pack = loadPack<G>(from, k * Panel<Side>::pitch + laneOf<Side>(i, thread, threads));
#pragma unroll
      for (int l = 0; l < G; l++) to[i + l] = pack.at[l];
    }
  }

  __device__ inline void add(const N* a, const N* b) {
    constexpr int H = A::alongDepth && TM > 4 ? G / 2 : G;  // as many as registers hold
#pragma unroll
    for (int k = 0; k < DEPTH; k += H) {
      N u[H][TM];
#pragma unroll
      for (int i = 0; i < (A::alongDepth ? TM : H); i++) {
        if (A::alongDepth) {
          const Pack<N, H> pack = loadPack<H>(a, laneOf<A>(i, y, down) * Panel<A>::pitch + k);
#pragma unroll
          for (int l = 0; l < H; l++) u[l][i] = pack.at[l];
        } else {
          fetch<A>(u[i], a, k + i, y, down);
        }
      }
      if (B::alongDepth) {
#pragma unroll
        for (int j = 0; j < TN; j++) {
          const Pack<N, H> v = loadPack<H>(b, laneOf<B>(j, x, across) * Panel<B>::pitch + k);
#pragma unroll
          for (int l = 0; l < H; l++)
#pragma unroll
            for (int i = 0; i < TM; i++) sums[i][j] += u[l][i] * v.at[l];
        }
      } else {
#pragma unroll
        for (int l = 0; l < H; l++) {
          N v[TN];
          fetch<B>(v, b, k + l, x, across);
#pragma unroll
          for (int j = 0; j < TN; j++)
#pragma unroll
            for (int i = 0; i < TM; i++) sums[i][j] += u[l][i] * v[j];
        }
      }
    }
  }

  __device__ inline void put(N* to, int pitch) const {
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
      for (int j = 0; j < TN; j++) to[laneOf<A>(i, y, down) * pitch + laneOf<B>(j, x, across)] = sums[i][j];
  }
};
