// Flash attention: EDGE queries meet EDGE keys at a time, and no score is ever written to global memory.
//
// T, W: the type of elements in memory, and of those computed with; COLUMNS of a result that a thread has, contiguous;
// KEPT slices of a result that a block has; MASK, the type of a mask, and IS_BOOL, where there is one; LSE and
// REST, the types of what backward reads for each query.
//
// A thread has a register tile of four rows and four columns of a block of scores. Of a product a . b' both tiles are
// transposed in shared memory, line by line along the reduced axis, so that a thread loads its part of a line at once.

const int GROUPS = EDGE / 4, THREADS = GROUPS * GROUPS, DEPTH = EDGE / 2, WIDTH = GROUPS * COLUMNS;
const int WIDE = 16 / sizeof(W);
const W FLOOR = -1e30;  // a score below this counts as hidden

// The strides of an array, and the address of a row of it
#define FOUR(x) int x##0, int x##1, int x##2, int x##3
#define THREE(x) int x##0, int x##1, int x##2
#define ROW(x, n, h, row) x + ((int64)(n)*x##0 + (int64)(h)*x##1 + (int64)(row)*x##2)

// The address of an element of a tile: groups of four are swizzled from line to line, against bank conflicts.
__device__ static inline int at(int line, int column) {
  return line * EDGE + ((column >> 2 ^ (line >> 2 & 7)) << 2) + (column & 3);
}

// Four elements at a stride, zero from `count` on
__device__ static inline void fetch(W (&y)[4], const T* x, int step, int count) {
#pragma unroll
  for (int j = 0; j < 4; j++) y[j] = j < count ? load(x, (int64)j * step) : W(0);
}

__device__ static inline void keep(W* tile, int offset, const W (&x)[4]) {
#pragma unroll
  for (int j = 0; j < 4; j += WIDE) {
    Pack<W, WIDE> pack;
#pragma unroll
    for (int i = 0; i < WIDE; i++) pack.at[i] = x[j + i];
    storePack(tile, offset + j, pack);
  }
}

template <int n>
__device__ static inline void take(W (&y)[n], const W* tile, int offset) {
  const int wide = n < WIDE ? n : WIDE;
#pragma unroll
  for (int j = 0; j < n; j += wide) {
    const Pack<W, wide> pack = loadPack<wide>(tile, offset + j);
#pragma unroll
    for (int i = 0; i < wide; i++) y[j + i] = pack.at[i];
  }
}

// The tile of EDGE rows of x and DEPTH columns, transposed; zero outside
__device__ static inline void fillTransposed(W* tile, const T* x, int row, int step, int rows, int columns) {
  const int quads = DEPTH / 4;
#pragma unroll 1
  for (int i = threadIdx.x; i < EDGE * quads; i += THREADS) {
    const int r = i / quads, c = i % quads * 4;
    W four[4];
    fetch(four, x + ((int64)r * row + (int64)c * step), step, r < rows ? columns - c : 0);
#pragma unroll
    for (int j = 0; j < 4; j++) tile[at(c + j, r)] = four[j];
  }
}

// The tile of EDGE rows of x and WIDTH columns
__device__ static inline void fill(W* tile, const T* x, int row, int step, int rows, int columns) {
  const int quads = WIDTH / 4;
#pragma unroll 1
  for (int i = threadIdx.x; i < EDGE * quads; i += THREADS) {
    const int r = i / quads, c = i % quads * 4;
    W four[4];
    fetch(four, x + ((int64)r * row + (int64)c * step), step, r < rows ? columns - c : 0);
    keep(tile, at(r, c), four);
  }
}

// sum += a' b, over lines of two tiles
template <int n>
__device__ static inline void multiply(W (&sum)[4][n], const W* a, const W* b, int lines) {
  const int tx = threadIdx.x % GROUPS, ty = threadIdx.x / GROUPS;
  for (int line = 0; line < lines; line += 4) {
#pragma unroll
    for (int l = 0; l < 4; l++) {
      W left[4], right[n];
      take(left, a, at(line + l, ty * 4));
      take(right, b, at(line + l, tx * n));
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < n; j++) sum[i][j] += left[i] * right[j];
    }
  }
}

// sum += a b', over columns of EDGE rows of each
__device__ static inline void dots(W (&sum)[4][4], W* work, const T* a, int aRow, int aStep, int aRows, const T* b,
                                   int bRow, int bStep, int bRows, int columns) {
  for (int c = 0; c < columns; c += DEPTH) {
    __syncthreads();
    fillTransposed(work, a + (int64)c * aStep, aRow, aStep, aRows, columns - c);
    fillTransposed(work + DEPTH * EDGE, b + (int64)c * bStep, bRow, bStep, bRows, columns - c);
    __syncthreads();
    multiply(sum, work, work + DEPTH * EDGE, min(DEPTH, columns - c));
  }
}

// Scores, scaled, plus the mask; -inf where hidden
#ifdef MASK
#define MASK_PARAMETERS const MASK *__restrict__ mask, FOUR(mask),
#define MASK_AT(n, h) ROW(mask, n, h, 0), mask2, mask3,
#define MASK_GIVEN const MASK *mask, int mask2, int mask3,
#else
#define MASK_PARAMETERS
#define MASK_AT(n, h)
#define MASK_GIVEN
#endif
__device__ static inline void mark(W (&s)[4][4], MASK_GIVEN W scale, int causal, int first, int start, int queries,
                                   int keys) {
  const int row = first + threadIdx.x / GROUPS * 4, key = start + threadIdx.x % GROUPS * 4;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const bool isThere = row + i < queries && key + j < keys && !(causal && key + j > row + i);
      W score = s[i][j] * scale;
#ifdef MASK
      const int64 offset = (int64)(row + i) * mask2 + (int64)(key + j) * mask3;
#if IS_BOOL
      if (!(isThere && mask[offset])) score = -INFINITY;
#else
      if (isThere) score += load(mask, offset);
#endif
#endif
      s[i][j] = isThere ? score : -W(INFINITY);
    }
}

template <class How>
__device__ static inline W reduceRow(W x) {
#pragma unroll
  for (int d = GROUPS / 2; d > 0; d >>= 1) x = How::join(x, __shfl_xor_sync(ALL, x, d));
  return x;
}

__device__ static inline int blocksOf(int count) { return (count + EDGE - 1) / EDGE; }
