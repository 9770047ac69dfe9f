// Scatter-add: rows of gradients added to the rows of a table, in a deterministic order.
//
// The positions are sorted by row, those of one row in order. Then each window of them is summed by itself, and the
// sums of a row that continues in the next window are added at last. No row, however often it occurs, delays the
// others.
//
// With BASE the sums are added to what is in `base`, which may be the table itself.
//
// T, S, I and W: the types of the table, of gradients, of indices, and of sums; N: elements loaded at once; INDEX_ and
// GRAD_: the addresses of a position. `range`: rows that a block sorts; `window`: positions that are summed together.

const int THREADS = 512, WARPS = THREADS / 32;
const int EACH = 4, TILE = THREADS * EACH;  // positions that a thread, and a block, reads at a time
const int CAPACITY = 4096;                  // that a block holds
const int RANGE = 4096;                     // rows that it can sort

#ifdef BASE
#define TABLE T *table, const T *base
#else
#define TABLE T* __restrict__ table
#endif

// Positions from `start` on whose row is in the range are appended to the buffer; returns how many there are then.
__device__ static int collect(const I* index, INDEX_PARAMETERS, int count, int start, int low, int high, int found,
                              unsigned short* rows, int* positions, int* sums, int& below, int* counts) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int mine = 0, row[EACH];
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const INDEX_COUNTER i = start + threadIdx.x * EACH + e;
    int64 at = -1;
    if (i < count) {
      INDEX_OFFSETS
      at = index[fromIndex];
    }
    row[e] = at >= low && at < high ? (int)(at - low) : -1;
    mine += row[e] >= 0;
    below += at >= 0 && at < low;
  }
  int upTo = mine;
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) {
    const int other = __shfl_up_sync(ALL, upTo, d);
    if (lane >= d) upTo += other;
  }
  sums += start / TILE % 2 * WARPS;  // so that one barrier is enough
  if (lane == 31) sums[warp] = upTo;
  __syncthreads();
  int to = found + upTo - mine, total = found;
  for (int w = 0; w < WARPS; w++) {
    to += w < warp ? sums[w] : 0;
    total += sums[w];
  }
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    if (row[e] < 0) continue;
    if (counts) atomicAdd(&counts[row[e]], 1);
    if (to < CAPACITY) {
      rows[to] = row[e];
      positions[to] = start + threadIdx.x * EACH + e;
    }
    to++;
  }
  return total;
}

// The buffer is written to the next free positions of its rows.
__device__ static void distribute(int* order, int* keys, int held, int low, const unsigned short* rows, const int* positions,
                             int* next) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (int start = 0; start < held; start += THREADS) {
    const int at = start + threadIdx.x, row = at < held ? rows[at] : -1;
    const unsigned same = __match_any_sync(ALL, row);
    const int ahead = __popc(same & ((1u << lane) - 1)), warps = (min(held - start, THREADS) + 31) / 32;
    int to = 0;
    for (int w = 0; w < warps; w++) {
      if (warp == w) {
        if (row >= 0) to = next[row] + ahead;
        __syncwarp();
        if (row >= 0 && ahead == 0) next[row] += __popc(same);
      }
      __syncthreads();
    }
    if (row >= 0) {
      order[to] = positions[at];
      keys[to] = low + row;
    }
  }
}

// Each block finds the positions of its own rows, and how many belong to rows before those.
extern "C" __global__ void __launch_bounds__(512, 2)
    sortRows(int* __restrict__ order, int* __restrict__ keys, TABLE, const I* __restrict__ index, int count, int rows,
             int width, int range, INDEX_PARAMETERS) {
  __shared__ int next[RANGE], positions[CAPACITY], sums[2 * WARPS];
  __shared__ unsigned short held[CAPACITY];
  const int64 size = (int64)rows * width, step = (int64)gridDim.x * THREADS, me = (int64)blockIdx.x * THREADS + threadIdx.x;
#ifdef BASE
  if (table != base)
    for (int64 i = me; i < size; i += step) table[i] = base[i];
#else
  if (isAligned(table, sizeof(T) * N)) {
    const Pack<T, N> none = {};
    for (int64 i = me * N; i < size; i += step * N) storePack(table, i, none);
  } else {
    for (int64 i = me; i < size; i += step) table[i] = T();
  }
#endif
  const int low = blockIdx.x * range, high = min(low + range, rows);
  for (int r = threadIdx.x; r < range; r += THREADS) next[r] = 0;
  __syncthreads();
  int below = 0, found = 0, nothing = 0;
  for (int start = 0; start < count; start += TILE)
    found = collect(index, INDEX_ARGUMENTS, count, start, low, high, found, held, positions, sums, below, next);
  __syncthreads();
  below = sumBlock(below);

  const int share = (range + THREADS - 1) / THREADS, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int from = min((int)threadIdx.x * share, range), to = min(from + share, range);
  int mine = 0;
  for (int r = from; r < to; r++) mine += next[r];
  int upTo = mine;
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) {
    const int other = __shfl_up_sync(ALL, upTo, d);
    if (lane >= d) upTo += other;
  }
  if (lane == 31) sums[warp] = upTo;
  __syncthreads();
  int start = below + upTo - mine;
  for (int w = 0; w < warp; w++) start += sums[w];
  for (int r = from; r < to; r++) {
    const int many = next[r];
    next[r] = start;
    start += many;
  }
  __syncthreads();

  if (found <= CAPACITY) {
    distribute(order, keys, found, low, held, positions, next);
  } else {
    for (int at = 0; at < count;) {
      int many = 0;
      for (; at < count && many <= CAPACITY - TILE; at += TILE)
        many = collect(index, INDEX_ARGUMENTS, count, at, low, high, many, held, positions, sums, nothing, 0);
      __syncthreads();
      distribute(order, keys, many, low, held, positions, next);
      __syncthreads();
    }
  }
  if (blockIdx.x == gridDim.x - 1)
    for (int i = below + found + threadIdx.x; i < count; i += THREADS) keys[i] = -1;
}

template <int n>
__device__ static void put(T* table, W* parts, W* sum, int key, int slot, int width, int at) {
  if (slot >= 0) {
#pragma unroll
    for (int j = 0; j < n; j++) parts[(int64)slot * width + at + j] = sum[j];
  } else {
    Pack<T, n> pack;
#ifdef BASE
    pack = loadPack<n>(table, (int64)key * width + at);
#pragma unroll
    for (int j = 0; j < n; j++) sum[j] += Number<T>::widen(pack.at[j]);
#endif
#pragma unroll
    for (int j = 0; j < n; j++) pack.at[j] = Number<T>::narrow(sum[j]);
    storePack(table, (int64)key * width + at, pack);
  }
#pragma unroll
  for (int j = 0; j < n; j++) sum[j] = 0;
}

// The sum of each row in a window: into the table, or into scratch memory if the row continues in another window.
template <int n>
__device__ static void addWindow(T* table, W* parts, const int* order, const int* keys, const S* grad, int count,
                                 int width, int window, int step, int number, int at, GRAD_PARAMETERS) {
  const int64 first = (int64)number * window, last = min(first + window, (int64)count);
  const int batch = 4, before = first ? keys[first - 1] : -1, after = last < count ? keys[last] : -1;
  int key = keys[first];
  if (key < 0) return;
  bool goesOn = key == before;
  W sum[n] = {};
  for (int64 p = first; p < last; p += batch) {
    int row[batch];
    Pack<S, n> got[batch];
#pragma unroll
    for (int u = 0; u < batch; u++) {
      row[u] = p + u < last ? keys[p + u] : -1;
      got[u] = {};
      if (row[u] < 0) continue;
      const GRAD_COUNTER i = order[p + u];
      GRAD_OFFSETS
      got[u] = loadPack<n>(grad, fromGrad + (int64)at * step);
    }
#pragma unroll
    for (int u = 0; u < batch; u++) {
      if (row[u] >= 0 && row[u] != key) {
        put<n>(table, parts, sum, key, goesOn ? number * 2 : -1, width, at);
        key = row[u], goesOn = false;
      }
#pragma unroll
      for (int j = 0; j < n; j++) sum[j] += Number<S>::widen(got[u].at[j]);
    }
  }
  put<n>(table, parts, sum, key, goesOn ? number * 2 : key == after ? number * 2 + 1 : -1, width, at);
}

template <int n>
__device__ static void addWindows(T* table, W* parts, const int* order, const int* keys, const S* grad, int count,
                                  int width, int window, int step, GRAD_PARAMETERS) {
  const unsigned packs = width / n, windows = (count + window - 1) / window;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < windows * packs;
       i += gridDim.x * blockDim.x) {
    const unsigned number = i / packs, at = (i - number * packs) * n;
    addWindow<n>(table, parts, order, keys, grad, count, width, window, step, number, at, GRAD_ARGUMENTS);
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
    sumRows(T* __restrict__ table, W* __restrict__ parts, const int* __restrict__ order, const int* __restrict__ keys,
            const S* __restrict__ grad, int count, int width, int window, int step, GRAD_PARAMETERS) {
  if (isAligned(table, sizeof(T) * N) && isAligned(grad, sizeof(S) * N))
    addWindows<N>(table, parts, order, keys, grad, count, width, window, step, GRAD_ARGUMENTS);
  else
    addWindows<1>(table, parts, order, keys, grad, count, width, window, step, GRAD_ARGUMENTS);
}

// The partial sums of each row that spans several windows are added, from the window in which it begins.
extern "C" __global__ void __launch_bounds__(256)
    joinRows(T* __restrict__ table, const W* __restrict__ parts, const int* __restrict__ keys, int count, int width,
             int window) {
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x, number = me / width, at = me - number * width;
  const int64 first = (int64)number * window, last = first + window;
  const int batch = 8;
  if (last >= count) return;
  const int key = keys[last];
  if (key < 0 || keys[last - 1] != key || (first && keys[first - 1] == key && keys[first] == key)) return;
  W sum = parts[((int64)number * 2 + 1) * width + at];
  bool goesOn = true;
  for (int64 v = (int64)number + 1; goesOn; v += batch) {
    W part[batch];
    bool isOurs[batch];
#pragma unroll
    for (int u = 0; u < batch; u++) {
      isOurs[u] = (v + u) * window < count && keys[(v + u) * window] == key;
      part[u] = isOurs[u] ? parts[(v + u) * 2 * width + at] : W(0);
    }
#pragma unroll
    for (int u = 0; u < batch; u++) sum += part[u];
    goesOn = isOurs[batch - 1];
  }
#ifdef BASE
  sum += load(table, (int64)key * width + at);
#endif
  store(table, (int64)key * width + at, sum);
}
