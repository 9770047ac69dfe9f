// The gradient of a mask, after attendgrad.h: dmask = sum ds, a block of it at a time; its axes of length one sum over
// all that they serve.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attendMask(MASK* __restrict__ dmask, FOUR(dmask), int maskSamples, int maskHeads, int maskRows, int maskKeys,
               GIVEN) {
  __shared__ __align__(16) W tile[EDGE * EDGE], work[EDGE * EDGE];
  const int tx = threadIdx.x % GROUPS, ty = threadIdx.x / GROUPS;
  const int across = blocksOf(maskKeys), down = blocksOf(maskRows);
  int number = blockIdx.x;
  const int key = number % across * EDGE;
  number /= across;
  const int row = number % down * EDGE;
  number /= down;
  const int h0 = number % maskHeads, n0 = number / maskHeads;
  W sum[4][4] = {};
  for (int n = n0; n < (maskSamples == 1 ? samples : n0 + 1); n++)
    for (int h = h0; h < (maskHeads == 1 ? heads : h0 + 1); h++)
      for (int first = row; first < (maskRows == 1 ? queries : row + 1); first += EDGE)
        for (int start = key; start < (maskKeys == 1 ? keys : key + 1); start += EDGE) {
          if (causal && start >= first + EDGE) break;
          PIECES(n, h, first, start);
#pragma unroll
          for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) sum[i][j] += ds[i][j];
        }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; i++) keep(tile, at(ty * 4 + i, tx * 4), sum[i]);
  __syncthreads();
  const int rows = maskRows == 1 ? EDGE : 1, columns = maskKeys == 1 ? EDGE : 1;
  for (int i = threadIdx.x; i < EDGE * EDGE / (rows * columns); i += THREADS) {
    const int r = maskKeys == 1 ? i : i / EDGE * rows, c = maskKeys == 1 ? 0 : i % EDGE;
    if (row + r >= maskRows || key + c >= maskKeys) continue;
    W all = 0;
    for (int a = 0; a < rows; a++)
      for (int b = 0; b < columns; b++) all += tile[at(r + a, c + b)];
    store(ROW(dmask, n0, h0, row + r), (int64)(key + c) * dmask3, all);
  }
}
