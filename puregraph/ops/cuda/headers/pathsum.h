// Sums over paths in log space, and lengths and labels that no kernel can refuse.

#define NEVER (W)(-1e30)  // the logarithm of what cannot happen, as in ops/alignment/reference.py

__device__ static inline W joined(W a, W b) {  // ln(e^a + e^b)
  const W most = Max::join(a, b);
  return most + log(exp(a - most) + exp(b - most));
}

__device__ static inline W joined(W a, W b, W c) {
  const W most = Max::join(Max::join(a, b), c);
  return most + log(exp(a - most) + exp(b - most) + exp(c - most));
}

__device__ static inline bool isNever(W total) { return total <= (W)0.1 * NEVER; }  // nan is a number that went wrong

__device__ static inline W probability(W x) { return exp(x > 0 ? (W)0 : x); }  // above 0 by rounding alone

__device__ static inline int within(int64 value, int limit) {
  return value < 0 ? 0 : value < limit ? static_cast<int>(value) : limit;
}

// The class of a label: the blank for -1, and -1 for a label that is no class, whose logarithm is nan.
__device__ static inline int classOf(int64 label, int blank, int classes) {
  return label == -1 ? blank : label < 0 || label >= classes ? -1 : static_cast<int>(label);
}

__device__ static inline W logOf(const S* logs, int kind) { return kind < 0 ? (W)NAN : load(logs, kind); }
