// Integers of one type T in two's complement: sums, differences and products wrap around, and quotients are those of numpy.

template <class T>
struct Bits {  // the unsigned type in which overflow is defined
  typedef unsigned Type;
};
template <>
struct Bits<long long> {
  typedef uint64 Type;
};
template <>
struct Bits<unsigned long long> {
  typedef uint64 Type;
};

template <class T>
__device__ static inline T plus(T a, T b) {
  typedef typename Bits<T>::Type U;
  return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
}

template <class T>
__device__ static inline T minus(T a, T b) {
  typedef typename Bits<T>::Type U;
  return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
}

template <class T>
__device__ static inline T times(T a, T b) {
  typedef typename Bits<T>::Type U;
  return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
}

template <class T>
__device__ static inline T negative(T a) {
  return minus(static_cast<T>(0), a);
}

template <class T>
__device__ static inline T magnitude(T a) {
  return a < 0 ? negative(a) : a;
}

// Whether a / b has no defined value, or one that does not fit: b is 0, or -1, by which the least number has no quotient.
template <class T>
__device__ static inline bool isUnsafe(T b) {
  return b == 0 || (static_cast<T>(-1) < 0 && b == static_cast<T>(-1));
}

// The whole number below a / b; 0 where b is 0.
template <class T>
__device__ static inline T floorQuotient(T a, T b) {
  if (isUnsafe(b)) return b == 0 ? b : negative(a);
  const T q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

// a - b floor(a / b), which has the sign of b; 0 where b is 0.
template <class T>
__device__ static inline T floorRemainder(T a, T b) {
  if (isUnsafe(b)) return 0;
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
