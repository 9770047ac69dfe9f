// Tensor cores: 16-bit elements, by instructions of a whole warp: PTX ISA, ldmatrix and mma.m16n8k16 ------------------

// Four matrices of 8 x 8 in shared memory: lane 8 q + r has the address of row r of matrix q. Of each a lane gets the
// elements 2 (lane % 4) and the next of row lane / 4; of column lane / 4 where transposed.
template <bool transposed, class N>
__device__ static inline void loadMatrices(unsigned (&to)[4], const N* row) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(row);
  if (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
}

// c[2 i + j] += sum over k of a(lane / 4 + 8 i, k) b(k, 2 (lane % 4) + j), of registers as the instruction has them
template <class N>
__device__ static inline void multiplyWarp(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
template <>
__device__ inline void multiplyWarp<Half>(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void multiplyWarp<Bfloat>(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <class N>
struct Warped {
  static constexpr int WM = THREADROWS, WN = THREADCOLUMNS;  // of a warp
  static constexpr int across = COLUMNS / WN;
  float sums[WM / 16][WN / 8][4];
  int row, column, lane;

  __device__ inline Warped() {
    const int warp = threadIdx.x / 32;
    lane = threadIdx.x % 32, row = warp / across * WM, column = warp % across * WN;
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
#pragma unroll
      for (int j = 0; j < WN / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sums[i][j][e] = 0;
  }

  // 16 lanes by 16 deep; `first` of the two halves that lanes 8 to 15 have the addresses of: that of lanes, or of depth
  template <class Side, bool lanesFirst>
  __device__ inline void fetch(unsigned (&to)[4], const N* from, int first, int k) const {
    const int r = lane % 8, one = lane / 8 % 2 * 8, two = lane / 16 * 8;
    const int across = lanesFirst ? one : two, deep = lanesFirst ? two : one;
    if (Side::alongDepth)
      loadMatrices<false>(to, from + (first + across + r) * Panel<Side>::pitch + k + deep);
    else
      loadMatrices<true>(to, from + (k + deep + r) * Panel<Side>::pitch + first + across);
  }

  __device__ inline void add(const N* a, const N* b) {
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
      unsigned u[WM / 16][4], v[WN / 16][4];
#pragma unroll
      for (int i = 0; i < WM / 16; i++) fetch<A, true>(u[i], a, row + 16 * i, k);
#pragma unroll
      for (int j = 0; j < WN / 16; j++) fetch<B, false>(v[j], b, column + 16 * j, k);
#pragma unroll
      for (int i = 0; i < WM / 16; i++)
#pragma unroll
        for (int j = 0; j < WN / 8; j++) multiplyWarp<N>(sums[i][j], u[i], v[j / 2][j % 2 * 2], v[j / 2][j % 2 * 2 + 1]);
    }
  }

  __device__ inline void put(float* to, int pitch) const {
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
#pragma unroll
      for (int j = 0; j < WN / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          to[(row + 16 * i + lane / 4 + e / 2 * 8) * pitch + column + 8 * j + lane % 4 * 2 + e % 2] = sums[i][j][e];
  }
};
