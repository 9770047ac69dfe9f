// Flash attention, forward, after flash.h: a block of queries meets all keys, and keeps by online softmax the largest
// score and the sum of exponentials.

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attend(T* __restrict__ y, W* __restrict__ lse, const T* __restrict__ q, const T* __restrict__ k,
           const T* __restrict__ v, MASK_PARAMETERS FOUR(y), THREE(lse), FOUR(q), FOUR(k), FOUR(v), int heads, int group,
           int queries, int keys, int d, int e, int causal, W scale) {
  __shared__ __align__(16) W tile[EDGE * EDGE], work[EDGE * EDGE];
  const int parts = (e + WIDTH * KEPT - 1) / (WIDTH * KEPT), tx = threadIdx.x % GROUPS, ty = threadIdx.x / GROUPS;
  const int blocks = blocksOf(queries), number = blockIdx.x / parts, from = (blockIdx.x - number * parts) * KEPT * WIDTH;
  const int pair = number / blocks, n = pair / heads, h = pair - n * heads;
  const int first = (blocks - 1 - (number - pair * blocks)) * EDGE;  // with the longest work first
  const int last = causal ? min(keys, first + EDGE) : keys;

  W top[4], total[4], sum[KEPT][4][COLUMNS];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    top[i] = FLOOR, total[i] = 0;
#pragma unroll
    for (int s = 0; s < KEPT; s++)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) sum[s][i][j] = 0;
  }
  for (int start = 0; start < last; start += EDGE) {
    W s[4][4] = {};
    dots(s, work, ROW(q, n, h, first), q2, q3, queries - first, ROW(k, n, h / group, start), k2, k3, keys - start, d);
    mark(s, MASK_AT(n, h) scale, causal, first, start, queries, keys);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      W high = top[i];
#pragma unroll
      for (int j = 0; j < 4; j++) high = Max::join(high, s[i][j]);
      high = reduceRow<Max>(high);
      const W fade = exp(top[i] - high);
      top[i] = high;
      total[i] *= fade;
#pragma unroll
      for (int j = 0; j < 4; j++) total[i] += s[i][j] = exp(s[i][j] - high);
#pragma unroll
      for (int c = 0; c < KEPT; c++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) sum[c][i][j] *= fade;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const W column[4] = {s[0][j], s[1][j], s[2][j], s[3][j]};
      keep(tile, at(tx * 4 + j, ty * 4), column);
    }
#pragma unroll
    for (int c = 0; c < KEPT; c++) {
      const int column = from + c * WIDTH;
      if (column < e) {
        __syncthreads();
        fill(work, ROW(v, n, h / group, start) + (int64)column * v3, v2, v3, keys - start, e - column);
        __syncthreads();
        multiply(sum[c], tile, work, min(EDGE, keys - start));
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = first + ty * 4 + i;
    const W all = reduceRow<Sum>(total[i]), seen = all != 0 ? all : W(1);
    if (row >= queries) continue;
    if (from == 0 && tx == 0) *(ROW(lse, n, h, row)) = top[i] + log(seen);
#pragma unroll
    for (int c = 0; c < KEPT; c++)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) {
        const int column = from + c * WIDTH + tx * COLUMNS + j;
        if (column < e) store(ROW(y, n, h, row), (int64)column * y3, sum[c][i][j] / seen);
      }
  }
}
