// The sum over all alignments: states are blank, label 0, blank, label 1, ..., blank.

__device__ static inline int stateKind(const int64* index, int s, int blank, int classes) {
  return s & 1 ? classOf(index[s >> 1], blank, classes) : blank;
}

__device__ static inline bool mayPass(const int64* index, int s, int blank, int classes) {  // the blank before a state
  if (!(s & 1) || s < 3) return false;
  const int kind = stateKind(index, s, blank, classes);
  return kind != blank && kind != stateKind(index, s - 2, blank, classes);
}

__device__ static inline W totalOf(const W* last, int count) {
  return joined(last[2 * count], count ? last[2 * count - 1] : NEVER);
}

// A block takes a pass of a sample, time step by time step, a state a thread at a time: of those at y = 0 forward, to
// row t + 1 of `ahead` with the logarithms of step t, and the cost; of those at y = 1 backward, to row t of `behind`
// without them.
extern "C" __global__ void alignmentRows(C* costs, const S* __restrict__ logs, const int64* __restrict__ index,
                                         const int64* __restrict__ lengths, const int64* __restrict__ counts, W* ahead,
                                         W* behind, int time, int classes, int labels, int blank) {
  const int64 sample = blockIdx.x, row = 2 * (int64)labels + 1;
  const int length = within(lengths[sample], time), count = within(counts[sample], labels), end = 2 * count;
  logs += sample * time * classes;
  index += sample * labels;
  ahead += sample * (time + 1) * row;
  behind += sample * time * row;
  if (blockIdx.y == 0) {
    for (int s = threadIdx.x; s <= end; s += blockDim.x) ahead[s] = s ? NEVER : (W)0;
    __syncthreads();
    for (int t = 0; t < length; t++, logs += classes) {
      const W* old = ahead + t * row;
      for (int s = threadIdx.x; s <= end; s += blockDim.x) {
        const W passed = mayPass(index, s, blank, classes) ? old[s - 2] : NEVER;
        const W all = joined(old[s], s ? old[s - 1] : NEVER, passed);
        ahead[(t + 1) * row + s] = all + logOf(logs, stateKind(index, s, blank, classes));
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      const W total = totalOf(ahead + length * row, count);
      store(costs, sample, isNever(total) ? (W)INFINITY : -total);
    }
    return;
  }
  for (int t = length - 1; t >= 0; t--) {
    const W* later = behind + (t + 1) * row;
    const S* next = logs + (t + 1) * (int64)classes;
    for (int s = threadIdx.x; s <= end; s += blockDim.x) {
      W all = s >= end - 1 ? (W)0 : NEVER;
      if (t < length - 1) {
        W terms[3];
#pragma unroll
        for (int k = 0; k < 3; k++) {
          const bool leads = s + k <= end && (k < 2 || mayPass(index, s + k, blank, classes));
          terms[k] = leads ? later[s + k] + logOf(next, stateKind(index, s + k, blank, classes)) : NEVER;
        }
        all = joined(terms[0], terms[1], terms[2]);
      }
      behind[t * row + s] = all;
    }
    __syncthreads();
  }
}

// A block takes a time step of a sample. The probabilities of states of one class add up in one order: blanks over the
// block, the others where their class comes first.
extern "C" __global__ void alignmentChances(P* __restrict__ chances, const S*, const int64* __restrict__ index,
                                            const int64* __restrict__ lengths, const int64* __restrict__ counts,
                                            const W* __restrict__ ahead, const W* __restrict__ behind, int64 steps,
                                            int time, int classes, int labels, int blank) {
  const int64 row = 2 * (int64)labels + 1;
  for (int64 i = blockIdx.x; i < steps; i += gridDim.x) {
    const int64 sample = i / time;
    const int t = static_cast<int>(i - sample * time);
    const int length = within(lengths[sample], time), count = within(counts[sample], labels);
    const int64* kinds = index + sample * labels;
    const W* rows = ahead + sample * (time + 1) * row;
    const W total = totalOf(rows + length * row, count);
    const W* before = rows + (t + 1) * row;
    const W* after = behind + i * row;
    P* to = chances + i * classes;
    for (int c = threadIdx.x; c < classes; c += blockDim.x) store(to, c, (W)0);
    __syncthreads();
    if (t >= length || isNever(total)) continue;
    W blanks = 0;
    for (int s = threadIdx.x; s <= 2 * count; s += blockDim.x)
      if (stateKind(kinds, s, blank, classes) == blank) blanks += probability(before[s] + after[s] - total);
    blanks = sumBlock(blanks);
    if (threadIdx.x == 0) store(to, blank, blanks);
    for (int k = threadIdx.x; k < count; k += blockDim.x) {
      const int kind = classOf(kinds[k], blank, classes);
      bool isFirst = kind >= 0 && kind != blank;
      for (int j = 0; j < k && isFirst; j++) isFirst = kinds[j] != kinds[k];
      if (!isFirst) continue;
      W all = 0;
      for (int j = k; j < count; j++)
        if (kinds[j] == kinds[k]) all += probability(before[2 * j + 1] + after[2 * j + 1] - total);
      store(to, kind, all);
    }
  }
}
