// The sum over all paths of a transducer: a blank leads from (t, u) to (t + 1, u), label u to (t, u + 1).

struct Lattice {  // a sample
  const S* logs;
  const int64* index;
  int rows, classes, blank, length, count;

  __device__ inline Lattice(const S* logs, const int64* index, const int64* lengths, const int64* counts, int64 sample,
                            int time, int rows, int classes, int blank)
      : logs(logs + sample * time * rows * classes), index(index + sample * (rows - 1)), rows(rows), classes(classes),
        blank(blank), length(within(lengths[sample], time)), count(within(counts[sample], rows - 1)) {}

  __device__ inline int64 at(int t, int u) const { return t * (int64)rows + u; }

  __device__ inline W stay(int t, int u) const { return load(logs, at(t, u) * classes + blank); }

  __device__ inline W emit(int t, int u) const {
    return logOf(logs + at(t, u) * classes, classOf(index[u], blank, classes));
  }

  __device__ inline W onward(const W* behind, int t, int u) const {  // a blank, and what follows
    if (t < length - 1) return stay(t, u) + behind[at(t + 1, u)];
    return u == count ? stay(t, u) : NEVER;
  }

  __device__ inline W total(const W* ahead) const {
    return length ? ahead[at(length - 1, count)] + stay(length - 1, count) : NEVER;
  }
};

#define SIZES int time, int rows, int classes, int blank
#define LENGTHS const int64 *__restrict__ lengths, const int64 *__restrict__ counts

// A block takes a pass of a sample, one diagonal t + u after the other: of those at y = 0 forward, to (t, u) of `ahead`,
// and the cost; of those at y = 1 backward, from (t, u) to the end.
extern "C" __global__ void latticeRows(C* costs, const S* __restrict__ logs, const int64* __restrict__ index, LENGTHS,
                                       W* ahead, W* behind, SIZES) {
  const int64 sample = blockIdx.x, size = sample * time * rows;
  const Lattice in(logs, index, lengths, counts, sample, time, rows, classes, blank);
  const int diagonals = in.length ? in.length + in.count : 0;
  ahead += size;
  behind += size;
  for (int k = 0; k < diagonals; k++) {
    const int d = blockIdx.y == 0 ? k : diagonals - 1 - k, first = d < in.length ? 0 : d - in.length + 1;
    for (int u = first + threadIdx.x; u <= in.count && u <= d; u += blockDim.x) {
      const int t = d - u;
      if (blockIdx.y == 0) {
        const W waited = t ? ahead[in.at(t - 1, u)] + in.stay(t - 1, u) : d ? NEVER : (W)0;
        ahead[in.at(t, u)] = u ? joined(waited, ahead[in.at(t, u - 1)] + in.emit(t, u - 1)) : waited;
      } else {
        const W onward = in.onward(behind, t, u);
        behind[in.at(t, u)] = u < in.count ? joined(onward, in.emit(t, u) + behind[in.at(t, u + 1)]) : onward;
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0 && blockIdx.y == 0) {
    const W total = in.total(ahead);
    store(costs, sample, isNever(total) ? (W)INFINITY : -total);
  }
}

// A thread takes a class at a (t, u).
extern "C" __global__ void latticeChances(P* __restrict__ chances, const S* __restrict__ logs,
                                          const int64* __restrict__ index, LENGTHS, const W* __restrict__ ahead,
                                          const W* __restrict__ behind, int64 size, SIZES) {
  for (int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x; i < size; i += gridDim.x * (int64)blockDim.x) {
    const int64 pair = i / classes, step = pair / rows, sample = step / time;
    const int c = static_cast<int>(i - pair * classes), u = static_cast<int>(pair - step * rows);
    const int t = static_cast<int>(step - sample * time);
    const Lattice in(logs, index, lengths, counts, sample, time, rows, classes, blank);
    const W *before = ahead + sample * time * rows, *after = behind + sample * time * rows;
    const W total = in.total(before);
    W chance = 0;
    if (t < in.length && u <= in.count && !isNever(total)) {
      if (c == blank) chance += probability(before[in.at(t, u)] + in.onward(after, t, u) - total);
      if (u < in.count && c == classOf(in.index[u], blank, classes))
        chance += probability(before[in.at(t, u)] + in.emit(t, u) + after[in.at(t, u + 1)] - total);
    }
    store(chances, i, chance);
  }
}
