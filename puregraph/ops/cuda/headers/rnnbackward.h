// The gradients of recurrent cells, backpropagated through time, after recurrent.h. The gradient of the state before a
// time step is a sum over its dq of all units: it is taken as the next step begins, and once more after the last.

extern "C" __global__ void __launch_bounds__(512, 1)
    backTime(OfDp* dp, W* dh, const OfU* __restrict__ u, const OfGy* __restrict__ gy, const OfLast* __restrict__ last,
             THREE(dp), TWO(dh), TWO(u), THREE(gy), TWO(last),
#if LSTM
             W* dc, const OfLastCell* __restrict__ lastCell, const OfCells* __restrict__ cells,
             const OfCellsBefore* __restrict__ cellsBefore, TWO(dc), TWO(lastCell), THREE(cells), THREE(cellsBefore),
#elif GRU
             OfDq* dq, const OfBefore* __restrict__ before, THREE(dq), THREE(before),
#else
             const OfY* __restrict__ y, THREE(y),
#endif
#if LSTM || GRU
             const OfKept* __restrict__ kept, THREE(kept),
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
  const OfU* const held = hold(sums, u, units * u1, u0, u1, firstUnit, tiles, items, units);
#endif
#if GRU
#define DQ(what) dq##what
#else
#define DQ(what) dp##what
#endif
  for (int k = from; k < to; k++) {
    const int now = reverse ? k : steps - 1 - k, done = reverse ? now - 1 : now + 1;
    if (k) {
      for (int item = warp; item < items; item += warps) {
        const int tile = item / GATES % tiles, gate = item % GATES, unit = firstUnit + tile * UNITS;
        const int row = firstRow + item / (GATES * tiles) * ROWS;
        if (unit >= units || row >= samples) continue;
        const auto* const slopes = DQ() + row * DQ(0) + done * DQ(1) + gate * units * DQ(2);
#if HELD
        const OfU* const w = held + (tile * GATES + gate) * UNITS * units;
        sums[item * 32 + lane] = dots(slopes, DQ(0), DQ(2), samples - row, w, units, 1, units - unit, units);
#else
        const OfU* const w = u + unit * u0 + gate * units * u1;
        sums[item * 32 + lane] = dots(slopes, DQ(0), DQ(2), samples - row, w, u0, u1, units - unit, units);
#endif
      }
      __syncthreads();
    }
    for (int i = threadIdx.x; i < groups * tiles * 32; i += blockDim.x) {
      const int row = firstRow + i / (32 * tiles) * ROWS + i % 32 / UNITS;
      const int unit = firstUnit + i / 32 % tiles * UNITS + i % UNITS;
      if (row >= samples || unit >= units) continue;
      W* const carried = dh + row * dh0 + unit * dh1;
      W slope = k ? *carried : W(load(last, row * last0 + unit * last1));
      if (k)
        for (int g = 0; g < GATES; g++) slope += sums[(i / 32 * GATES + g) * 32 + lane];
      if (k == steps) {
        *carried = slope;
        continue;
      }
      slope += load(gy, row * gy0 + now * gy1 + unit * gy2);
      W rest = 0, given = slope;
      OfDp* const out = dp + row * dp0 + now * dp1 + unit * dp2;
#if LSTM || GRU
      const OfKept* const in = kept + row * kept0 + now * kept1 + unit * kept2;
      const int64 gate = units * dp2, next = units * kept2;
#endif
#if LSTM
      W* const carriedCell = dc + row * dc0 + unit * dc1;
      W slopeCell = k ? *carriedCell : W(load(lastCell, row * lastCell0 + unit * lastCell1));
      const W givenCell = slopeCell;
#endif
#if HAS_ON
      const bool counts = on[row * on0 + now * on1];
      slope = counts ? slope : W(0);
#if LSTM
      slopeCell = counts ? slopeCell : W(0);
#endif
#endif
#if LSTM
      const W in0 = load(in, 0), forget = load(in, next), g = load(in, 2 * next), show = load(in, 3 * next);
      const W c = load(cellsBefore, row * cellsBefore0 + now * cellsBefore1 + unit * cellsBefore2);
      const W z = tanh(W(load(cells, row * cells0 + now * cells1 + unit * cells2)));
      slopeCell += slope * show * (1 - z * z);
      store(out, 0, slopeCell * g * in0 * (1 - in0));
      store(out, gate, slopeCell * c * forget * (1 - forget));
      store(out, 2 * gate, slopeCell * in0 * (1 - g * g));
      store(out, 3 * gate, slope * z * show * (1 - show));
      W restCell = slopeCell * forget;
#elif GRU
      const W r = load(in, 0), z = load(in, next), g = load(in, 2 * next), e = load(in, 3 * next);
      const W h = load(before, row * before0 + now * before1 + unit * before2), dg = slope * (1 - z) * (1 - g * g);
      OfDq* const to = dq + row * dq0 + now * dq1 + unit * dq2;
      const int64 toNext = units * dq2;
      const W dr = dg * e * r * (1 - r), dz = slope * (h - g) * z * (1 - z);
      store(to, 0, dr), store(to, toNext, dz), store(to, 2 * toNext, dg * r);
      store(out, 0, dr), store(out, gate, dz), store(out, 2 * gate, dg);
      rest = slope * z;
#else
      const W state = load(y, row * y0 + now * y1 + unit * y2);
#if TANH
      store(out, 0, slope * (1 - state * state));
#else
      store(out, 0, state > 0 ? slope : W(0));
#endif
#endif
#if HAS_ON
      if (!counts) rest += given;
#if LSTM
      if (!counts) restCell += givenCell;
#endif
#endif
      *carried = rest;
#if LSTM
      *carriedCell = restCell;
#endif
    }
    ENDOFSTEP(k);
  }
}
