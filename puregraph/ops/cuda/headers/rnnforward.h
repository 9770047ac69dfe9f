// Recurrent cells, forward through time, after recurrent.h.

// The weights transposed, so that the reduced axis is contiguous
extern "C" __global__ void __launch_bounds__(256) transpose(OfU* __restrict__ y, const OfU* __restrict__ x, int rows, int columns,
                                                       TWO(x)) {
  __shared__ OfU tile[32][33];
  const int row = blockIdx.y * 32, column = blockIdx.x * 32, tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
#pragma unroll
  for (int i = ty; i < 32; i += 8)
    if (row + i < rows && column + tx < columns) tile[i][tx] = x[(row + i) * x0 + (column + tx) * x1];
  __syncthreads();
#pragma unroll
  for (int i = ty; i < 32; i += 8)
    if (column + i < columns && row + tx < rows) y[(int64)(column + i) * rows + row + tx] = tile[tx][i];
}

extern "C" __global__ void __launch_bounds__(512, 1)
    alongTime(OfY* y, const OfY* __restrict__ first, THREE(y), TWO(first), const W* __restrict__ p,
              const OfU* __restrict__ transposed,
#if LSTM
              OfCells* cells, const OfCells* __restrict__ firstCell, THREE(cells), TWO(firstCell),
#endif
#if LSTM || GRU
              OfKept* __restrict__ kept, THREE(kept),
#endif
#if HAS_D
              const OfD* __restrict__ d, int64 dStep,
#endif
#if HAS_ON
              const bool* __restrict__ on, TWO(on),
#endif
#if HELD
              unsigned* ticket,
#endif
              int samples, int steps, int units, int tiles, int groups, int from, int to, int reverse) {
  POSITION;
#if HELD
  const OfU* const held = hold(sums, transposed, (int64)units * units, units, 1, firstUnit, tiles, items, units);
#endif
  for (int k = from; k < to; k++) {
    const int now = reverse ? steps - 1 - k : k, before = reverse ? now + 1 : now - 1;
    const OfY* const h = k ? y + before * y1 : first;
    const int64 hRow = k ? y0 : first0, hStep = k ? y2 : first1;
    for (int item = warp; item < items; item += warps) {
      const int tile = item / GATES % tiles, gate = item % GATES, unit = firstUnit + tile * UNITS;
      const int row = firstRow + item / (GATES * tiles) * ROWS;
#if HELD
      const OfU* const w = held + (tile * GATES + gate) * UNITS * units;
#else
      const OfU* const w = transposed + (int64)(gate * units + unit) * units;
#endif
      if (unit < units && row < samples)
        sums[item * 32 + lane] = dots(h + row * hRow, hRow, hStep, samples - row, w, units, 1, units - unit, units);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < groups * tiles * 32; i += blockDim.x) {
      const int row = firstRow + i / (32 * tiles) * ROWS + i % 32 / UNITS;
      const int unit = firstUnit + i / 32 % tiles * UNITS + i % UNITS;
      if (row >= samples || unit >= units) continue;
      const W* const q = sums + i / 32 * GATES * 32 + lane;
      const W* const in = p + ((int64)row * steps + now) * GATES * units + unit;
      const int gate = units;
#if LSTM || GRU
      OfKept* const out = kept + row * kept0 + now * kept1 + unit * kept2;
      const int64 next = units * kept2;
#endif
      const W old = load(h, row * hRow + unit * hStep);
#if LSTM
      const W c = k ? load(cells, row * cells0 + before * cells1 + unit * cells2)
                    : load(firstCell, row * firstCell0 + unit * firstCell1);
      const W in0 = sigmoid(in[0] + q[0]), forget = sigmoid(in[gate] + q[32]);
      const W g = tanh(in[2 * gate] + q[64]), show = sigmoid(in[3 * gate] + q[96]);
      W cell = forget * c + in0 * g, state = show * tanh(cell);
      store(out, 0, in0), store(out, next, forget), store(out, 2 * next, g), store(out, 3 * next, show);
#elif GRU
      const W r = sigmoid(in[0] + q[0]), z = sigmoid(in[gate] + q[32]);
#if HAS_D
      const W e = q[64] + load(d, unit * dStep);
#else
      const W e = q[64];
#endif
      const W g = tanh(in[2 * gate] + r * e);
      W state = g + z * (old - g);
      store(out, 0, r), store(out, next, z), store(out, 2 * next, g), store(out, 3 * next, e);
#elif TANH
      W state = tanh(in[0] + q[0]);
#else
      W state = Max::join(in[0] + q[0], W(0));
#endif
#if HAS_ON
      const bool counts = on[row * on0 + now * on1];
      state = counts ? state : old;
#if LSTM
      cell = counts ? cell : c;
#endif
#endif
      store(y, row * y0 + now * y1 + unit * y2, state);
#if LSTM
      store(cells, row * cells0 + now * cells1 + unit * cells2, cell);
#endif
    }
    ENDOFSTEP(k);
  }
}
