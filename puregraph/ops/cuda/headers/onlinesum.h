// The largest of some elements and the sum of exponentials of their distances from it, in one pass: where a larger one
// comes, the sum until then is multiplied by what it has shrunk to.

template <int v, class T>
__device__ static inline void onlineSum(T& peak, T& sum, const T* x) {
  T top = peak;
#pragma unroll
  for (int u = 0; u < v; u++) top = Max::join(top, x[u]);
  const T base = top == -INFINITY ? T(0) : top;  // where all is -inf until now, there is no distance from it
  sum *= exp(peak - base);
#pragma unroll
  for (int u = 0; u < v; u++) sum += exp(x[u] - base);
  peak = top;
}
