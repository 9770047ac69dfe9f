// The gradients of flash attention, after flash.h: each block computes a part of a result, and recomputes the scores.

#define GIVEN                                                                                                       \
  const T *__restrict__ grad, const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v,            \
      MASK_PARAMETERS const LSE *__restrict__ lse, const REST *__restrict__ rest, FOUR(grad), FOUR(q), FOUR(k),     \
      FOUR(v), THREE(lse), THREE(rest), int samples, int heads, int group, int queries, int keys, int d, int e,     \
      int causal, W scale

// p and ds of one block of scores
#define PIECES(n, h, first, start)                                                                                  \
  W p[4][4] = {}, ds[4][4] = {};                                                                                    \
  dots(p, work, ROW(q, n, h, first), q2, q3, queries - (first),                                  \
       ROW(k, n, (h) / group, start), k2, k3, keys - (start), d);                                  \
  dots(ds, work, ROW(grad, n, h, first), grad2, grad3, queries - (first),               \
       ROW(v, n, (h) / group, start), v2, v3, keys - (start), e);                                  \
  mark(p, MASK_AT(n, h) scale, causal, first, start, queries, keys);                                                \
  slope(p, ds, ROW(lse, n, h, 0), lse2, ROW(rest, n, h, 0), rest2, first, queries)

// p = exp(scores - lse), ds = p (ds - rest)
__device__ static inline void slope(W (&p)[4][4], W (&ds)[4][4], const LSE* lse, int lse2, const REST* rest,
                                    int rest2, int first, int queries) {
  const int row = first + threadIdx.x / GROUPS * 4;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const bool isThere = row + i < queries;
    const W high = isThere ? W(load(lse, (int64)(row + i) * lse2)) : W(0), less = isThere ? W(load(rest, (int64)(row + i) * rest2)) : W(0);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      p[i][j] = exp(p[i][j] - high);
      ds[i][j] = p[i][j] * (ds[i][j] - less);
    }
  }
}

template <int n>
__device__ static inline void clear(W (&sum)[n][4][COLUMNS]) {
#pragma unroll
  for (int c = 0; c < n; c++)
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) sum[c][i][j] = 0;
}

__device__ static inline void write(T* y, int row, int step, const W (&sum)[4][COLUMNS], int rows, int columns,
                                    W scale) {
  const int tx = threadIdx.x % GROUPS * COLUMNS, ty = threadIdx.x / GROUPS * 4;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
      if (ty + i < rows && tx + j < columns) store(y, (int64)(ty + i) * row + (int64)(tx + j) * step, sum[i][j] * scale);
}

// A block of keys meets all queries of all heads that share them: slices of dv = p' grad, then of dk = scale ds' q
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attendKeys(T* __restrict__ dk, T* __restrict__ dv, FOUR(dk), FOUR(dv), GIVEN) {
  __shared__ __align__(16) W tileP[EDGE * EDGE], tileD[EDGE * EDGE], work[EDGE * EDGE];
  const int ofV = (e + WIDTH - 1) / WIDTH, slices = ofV + (d + WIDTH - 1) / WIDTH, parts = (slices + KEPT_OF_KEYS - 1) / KEPT_OF_KEYS;
  const int tx = threadIdx.x % GROUPS, ty = threadIdx.x / GROUPS, shared = heads / group;
  const int blocks = blocksOf(keys), number = blockIdx.x / parts, from = (blockIdx.x - number * parts) * KEPT_OF_KEYS;
  const int pair = number / blocks, n = pair / shared, head = pair - n * shared, start = (number - pair * blocks) * EDGE;
  W sum[KEPT_OF_KEYS][4][COLUMNS];
  clear(sum);
  for (int h = head * group; h < (head + 1) * group; h++)
    for (int first = causal ? start : 0; first < queries; first += EDGE) {
      PIECES(n, h, first, start);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        keep(tileP, at(ty * 4 + i, tx * 4), p[i]);
        keep(tileD, at(ty * 4 + i, tx * 4), ds[i]);
      }
#pragma unroll
      for (int c = 0; c < KEPT_OF_KEYS; c++) {
        const bool isV = from + c < ofV;
        const int column = (isV ? from + c : from + c - ofV) * WIDTH;
        if (from + c < slices) {
          const T* const x = isV ? ROW(grad, n, h, first) + (int64)column * grad3
                                 : ROW(q, n, h, first) + (int64)column * q3;
          __syncthreads();
          fill(work, x, isV ? grad2 : q2, isV ? grad3 : q3, queries - first, (isV ? e : d) - column);
          __syncthreads();
          multiply(sum[c], isV ? tileP : tileD, work, min(EDGE, queries - first));
        }
      }
    }
#pragma unroll
  for (int c = 0; c < KEPT_OF_KEYS; c++) {
    const bool isV = from + c < ofV;
    const int column = (isV ? from + c : from + c - ofV) * WIDTH;
    if (isV)
      write(ROW(dv, n, head, start) + (int64)column * dv3, dv2, dv3, sum[c], keys - start, e - column, 1);
    else if (from + c < slices)
      write(ROW(dk, n, head, start) + (int64)column * dk3, dk2, dk3, sum[c], keys - start, d - column, scale);
  }
}

// A block of queries meets all keys: slices of dq = scale ds k
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attendQueries(T* __restrict__ dq, FOUR(dq), GIVEN) {
  __shared__ __align__(16) W tile[EDGE * EDGE], work[EDGE * EDGE];
  const int parts = (d + WIDTH * KEPT - 1) / (WIDTH * KEPT), tx = threadIdx.x % GROUPS, ty = threadIdx.x / GROUPS;
  const int blocks = blocksOf(queries), number = blockIdx.x / parts, from = (blockIdx.x - number * parts) * KEPT * WIDTH;
  const int pair = number / blocks, n = pair / heads, h = pair - n * heads;
  const int first = (blocks - 1 - (number - pair * blocks)) * EDGE, last = causal ? min(keys, first + EDGE) : keys;
  W sum[KEPT][4][COLUMNS];
  clear(sum);
  for (int start = 0; start < last; start += EDGE) {
    PIECES(n, h, first, start);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const W column[4] = {ds[0][j], ds[1][j], ds[2][j], ds[3][j]};
      keep(tile, at(tx * 4 + j, ty * 4), column);
    }
#pragma unroll
    for (int c = 0; c < KEPT; c++) {
      const int column = from + c * WIDTH;
      if (column < d) {
        __syncthreads();
        fill(work, ROW(k, n, h / group, start) + (int64)column * k3, k2, k3, keys - start, d - column);
        __syncthreads();
        multiply(sum[c], tile, work, min(EDGE, keys - start));
      }
    }
  }
#pragma unroll
  for (int c = 0; c < KEPT; c++) {
    const int column = from + c * WIDTH;
    if (column < d)
      write(ROW(dq, n, h, first) + (int64)column * dq3, dq2, dq3, sum[c], queries - first, d - column, scale);
  }
}
