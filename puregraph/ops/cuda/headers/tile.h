// The block tile -------------------------------------------------------------------------------------------------------

struct Where {  // what a block computes
  int z, part, m, n, start, end;
};

// Tiles are taken in groups of eight rows of them, so that what several blocks read is still in the L2 cache
__device__ static inline Where tileOf(int block, int parts, int down, int across, int part, int k) {
  const int tiles = down * across, beyond = block / tiles, index = block - beyond * tiles;
  const int group = index / (8 * across), high = min(8, down - group * 8), left = index - group * 8 * across;
  Where at;
  at.z = beyond / parts, at.part = beyond % parts;
  at.m = (group * 8 + left % high) * ROWS, at.n = left / high * COLUMNS;
  at.start = at.part * part, at.end = min(k, at.start + part);
  return at;
}

template <class Sums, class Depths>
__device__ static inline void sumTile(const Given& g, char* memory, int z, int m, int n, int start, int end, Wide* to) {
  typedef typename A::Number N;
  constexpr int stage = Panel<A>::size + Panel<B>::size;
  N* const shared = reinterpret_cast<N*>(memory);
  const Depths depths = {reinterpret_cast<Depth*>(shared + STAGES * stage)};
  const Panel<A> a(g, A::start(g, z), m);
  const Panel<B> b(g, B::start(g, z), n);
  Sums sums;
  const int count = (end - start + DEPTH - 1) / DEPTH;

  depths.find(g, 0, start);
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    __syncthreads();
    if (s < count) {
      N* const buffer = shared + s * stage;
      a.bringStage(g, buffer, depths.stage(s), start + s * DEPTH, end);
      b.bringStage(g, buffer + Panel<A>::size, depths.stage(s), start + s * DEPTH, end);
    }
    endStage();
    depths.find(g, s + 1, start + (s + 1) * DEPTH);
  }
  for (int s = 0; s < count; s++) {
    awaitStage<STAGES - 2>();
    __syncthreads();
    const int next = s + STAGES - 1;
    if (next < count) {
      N* const buffer = shared + next % STAGES * stage;
      a.bringStage(g, buffer, depths.stage(next), start + next * DEPTH, end);
      b.bringStage(g, buffer + Panel<A>::size, depths.stage(next), start + next * DEPTH, end);
    }
    endStage();
    depths.find(g, next + 1, start + (next + 1) * DEPTH);
    const N* const buffer = shared + s % STAGES * stage;
    sums.add(buffer, buffer + Panel<A>::size);
  }
  awaitStage<0>();
  __syncthreads();
  sums.put(to, PITCH);
  __syncthreads();
}
