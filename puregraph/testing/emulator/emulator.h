// CUDA C as g++ reads it: what the language and its library have beyond C++, through the runtime in emulator.cpp.
#pragma once
#define EMULATED 1

extern "C" {
double exp(double), exp2(double), expm1(double), log(double), log1p(double), log2(double), log10(double);
double sin(double), cos(double), tan(double), sinh(double), cosh(double), tanh(double);
double asin(double), acos(double), atan(double), asinh(double), acosh(double), atanh(double), atan2(double, double);
double sqrt(double), cbrt(double), hypot(double, double), pow(double, double), erf(double), erfc(double);
double lgamma(double), tgamma(double), floor(double), ceil(double), rint(double), trunc(double), fabs(double), round(double);
double fmod(double, double), fmax(double, double), fmin(double, double), copysign(double, double);
double fma(double, double, double), ldexp(double, int);
float expf(float), exp2f(float), expm1f(float), logf(float), log1pf(float), log2f(float), log10f(float);
float sinf(float), cosf(float), tanf(float), sinhf(float), coshf(float), tanhf(float);
float asinf(float), acosf(float), atanf(float), asinhf(float), acoshf(float), atanhf(float), atan2f(float, float);
float sqrtf(float), cbrtf(float), hypotf(float, float), powf(float, float), erff(float), erfcf(float);
float lgammaf(float), tgammaf(float), floorf(float), ceilf(float), rintf(float), truncf(float), fabsf(float), roundf(float);
float fmodf(float, float), fmaxf(float, float), fminf(float, float), copysignf(float, float);
float fmaf(float, float, float), ldexpf(float, int);
void* memcpy(void*, const void*, unsigned long) noexcept;
}

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define ONE(name) \
  static inline float name(float x) { return name##f(x); }
#define TWO(name) \
  static inline float name(float x, float y) { return name##f(x, y); }
ONE(exp) ONE(exp2) ONE(expm1) ONE(log) ONE(log1p) ONE(log2) ONE(log10) ONE(sin) ONE(cos) ONE(tan) ONE(sinh) ONE(cosh)
ONE(tanh) ONE(asin) ONE(acos) ONE(atan) ONE(asinh) ONE(acosh) ONE(atanh) ONE(sqrt) ONE(cbrt) ONE(erf) ONE(erfc)
ONE(lgamma) ONE(tgamma) ONE(floor) ONE(ceil) ONE(rint) ONE(trunc) ONE(fabs) ONE(round)
TWO(atan2) TWO(hypot) TWO(pow) TWO(fmod) TWO(fmax) TWO(fmin) TWO(copysign)
#undef ONE
#undef TWO

#define UNCHECKED __attribute__((no_sanitize("kernel-address"))) static inline

struct Half;
struct Bfloat;

#define TEXT(x) #x
#define TEXTOF(x) TEXT(x)
#define HERE __FILE__ ":" TEXTOF(__LINE__)

namespace emulator {
struct Triple {
  unsigned x, y, z;
};
struct Here {  // the thread that runs
  Triple thread, block, blocks, threads;
  char* dynamic;
};
extern "C" {
extern Here emulator_here;
void emulator_barrier(const char* where);
int emulator_lane();
unsigned long long emulator_exchange(int how, unsigned mask, unsigned long long value, int lane, const char* where);
void emulator_check(const void* address, unsigned long bytes, int how);
void emulator_align(const void* address, int bytes);
double emulator_erfcx(double x), emulator_erfinv(double x), emulator_normcdfinv(double x);
}
enum { PLAIN, ANY, EVERY, BALLOT, MATCH };

template <class T>
static inline T shuffle(unsigned mask, T x, int lane, const char* where) {
  static_assert(sizeof(T) <= 8, "a shuffle moves up to eight bytes");
  unsigned long long bits = 0;
  memcpy(&bits, &x, sizeof(T));
  bits = emulator_exchange(PLAIN, mask, bits, lane, where);
  memcpy(&x, &bits, sizeof(T));
  return x;
}
static inline int laneHere() {
  return emulator_lane();
}
template <class T>
static inline T shuffleTo(unsigned mask, T x, int lane, int width, const char* where) {
  return shuffle(mask, x, (laneHere() & ~(width - 1)) | (lane & (width - 1)), where);
}
template <class T>
static inline T shuffleXor(unsigned mask, T x, int lanes, int width, const char* where) {
  const int lane = laneHere(), other = lane ^ lanes;
  return shuffle(mask, x, other < (lane | (width - 1)) + 1 ? other : lane, where);
}
template <class T>
static inline T shuffleDown(unsigned mask, T x, int lanes, int width, const char* where) {
  const int lane = laneHere(), other = lane + lanes;
  return shuffle(mask, x, other <= (lane | (width - 1)) ? other : lane, where);
}
template <class T>
static inline T shuffleUp(unsigned mask, T x, int lanes, int width, const char* where) {
  const int lane = laneHere(), other = lane - lanes;
  return shuffle(mask, x, other >= (lane & ~(width - 1)) ? other : lane, where);
}

// Signatures of kernels: rf4 is a pointer to const float, ni8 a long long
template <class T, bool isClass = __is_class(T)>
struct Kind {
  static const char letter = T(0.5) != T(0) && T(2) != T(1) ? 'f' : T(2) == T(1) ? 'b' : T(-1) < T(0) ? 'i' : 'u';
};
template <class T>
struct Kind<T, true> {
  static const char letter = '?';
};
template <>
struct Kind<Half, true> {
  static const char letter = 'h';
};
template <>
struct Kind<Bfloat, true> {
  static const char letter = 'e';
};
template <class T>
struct Written {  // a pointer only read from is a pointer to const
  static const char letter = 'w';
};
template <class T>
struct Written<const T> {
  static const char letter = 'r';
};
template <class T>
struct Plain {
  typedef T type;
};
template <class T>
struct Plain<const T> {
  typedef T type;
};
template <class T>
UNCHECKED int describe(char* to, T*) {
  to[0] = Written<T>::letter;
  to[1] = Kind<typename Plain<T>::type>::letter;
  to[2] = '0' + sizeof(T);
  return 3;
}
template <class T>
UNCHECKED int describe(char* to, T) {
  to[0] = 'n';
  to[1] = Kind<T>::letter;
  to[2] = '0' + sizeof(T);
  return 3;
}
template <class T>
UNCHECKED T argument(void** arguments, int i) {
  return *static_cast<T*>(arguments[i]);
}
template <int... i>
struct Indices {};
template <int n, int... i>
struct Count : Count<n - 1, n - 1, i...> {};
template <int... i>
struct Count<0, i...> {
  typedef Indices<i...> type;
};
template <class... A, int... i>
static void call(void (*kernel)(A...), void** arguments, Indices<i...>) {
  kernel(argument<A>(arguments, i)...);
}
template <class... A>
static void call(void (*kernel)(A...), void** arguments) {
  call(kernel, arguments, typename Count<sizeof...(A)>::type());
}
template <class... A>
UNCHECKED void describe(void (*)(A...), char* to) {
  const int lengths[] = {0, (to += describe(to, A()))[0] * 0 ...};
  (void)lengths;
  *to = 0;
}
}  // namespace emulator

struct dim3 {
  unsigned x, y, z;
};
#define threadIdx emulator::emulator_here.thread
#define blockIdx emulator::emulator_here.block
#define gridDim emulator::emulator_here.blocks
#define blockDim emulator::emulator_here.threads
#define warpSize 32
#define __global__
#define __host__
#define __device__ __attribute__((unused))
#define __constant__ static const
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define SECTION "emulator_shared"  // each text has one of its own
#define __shared__ static __attribute__((section(SECTION)))
#define DYNAMIC(type, name) type* name = reinterpret_cast<type*>(emulator::emulator_here.dynamic)

#define __syncthreads() emulator::emulator_barrier(HERE)
#define __syncwarp(...) emulator::syncWarp(HERE, ##__VA_ARGS__)
#define __shfl_sync(mask, x, lane, ...) emulator::shuffleTo(mask, x, lane, emulator::width(__VA_ARGS__), HERE)
#define __shfl_xor_sync(mask, x, lanes, ...) emulator::shuffleXor(mask, x, lanes, emulator::width(__VA_ARGS__), HERE)
#define __shfl_down_sync(mask, x, lanes, ...) emulator::shuffleDown(mask, x, lanes, emulator::width(__VA_ARGS__), HERE)
#define __shfl_up_sync(mask, x, lanes, ...) emulator::shuffleUp(mask, x, lanes, emulator::width(__VA_ARGS__), HERE)
#define __any_sync(mask, p) (int)emulator::emulator_exchange(emulator::ANY, mask, !!(p), 0, HERE)
#define __all_sync(mask, p) (int)emulator::emulator_exchange(emulator::EVERY, mask, !!(p), 0, HERE)
#define __ballot_sync(mask, p) (unsigned)emulator::emulator_exchange(emulator::BALLOT, mask, !!(p), 0, HERE)
#define __match_any_sync(mask, x) (unsigned)emulator::match(mask, x, HERE)

namespace emulator {
static inline int width(int lanes = 32) { return lanes; }
static inline void syncWarp(const char* where, unsigned mask = 0xffffffffu) { emulator_exchange(PLAIN, mask, 0, emulator_lane(), where); }
template <class T>
static inline unsigned match(unsigned mask, T x, const char* where) {
  unsigned long long bits = 0;
  memcpy(&bits, &x, sizeof(T));
  return (unsigned)emulator_exchange(MATCH, mask, bits, 0, where);
}
}  // namespace emulator

#define ATOMIC(name, change)                      \
  template <class T, class S>                     \
  UNCHECKED T name(T* address, S given) {           \
    const T value = static_cast<T>(given);        \
    emulator::emulator_check(address, sizeof(T), 2); \
    const T old = *address;                         \
    *address = change;                              \
    return old;                                   \
  }
ATOMIC(atomicAdd, static_cast<T>(old + value))
ATOMIC(atomicSub, static_cast<T>(old - value))
ATOMIC(atomicMax, value > old ? value : old)
ATOMIC(atomicMin, value < old ? value : old)
ATOMIC(atomicOr, old | value)
ATOMIC(atomicAnd, old & value)
ATOMIC(atomicXor, old ^ value)
ATOMIC(atomicExch, value)
#undef ATOMIC
template <class T>
UNCHECKED T atomicCAS(T* address, T wanted, T value) {
  emulator::emulator_check(address, sizeof(T), 2);
  const T old = *address;
  if (old == wanted) *address = value;
  return old;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

template <class T>
static inline T __ldg(const T* x) {
  return *x;
}
template <class To, class From>
static inline To emulatorBits(From x) {
  static_assert(sizeof(To) == sizeof(From), "");
  To y;
  memcpy(&y, &x, sizeof(y));
  return y;
}
static inline int __float_as_int(float x) { return emulatorBits<int>(x); }
static inline unsigned __float_as_uint(float x) { return emulatorBits<unsigned>(x); }
static inline float __int_as_float(int x) { return emulatorBits<float>(x); }
static inline float __uint_as_float(unsigned x) { return emulatorBits<float>(x); }
static inline long long __double_as_longlong(double x) { return emulatorBits<long long>(x); }
static inline double __longlong_as_double(long long x) { return emulatorBits<double>(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int abs(int x) { return x < 0 ? -x : x; }
static inline float abs(float x) { return fabsf(x); }
static inline double abs(double x) { return fabs(x); }
static inline float __expf(float x) { return expf(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline float rsqrt(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float erfcx(float x) { return (float)emulator::emulator_erfcx(x); }
static inline double erfcx(double x) { return emulator::emulator_erfcx(x); }
static inline float erfinv(float x) { return (float)emulator::emulator_erfinv(x); }
static inline double erfinv(double x) { return emulator::emulator_erfinv(x); }
static inline float normcdfinv(float x) { return (float)emulator::emulator_normcdfinv(x); }
static inline double normcdfinv(double x) { return emulator::emulator_normcdfinv(x); }
template <class T>
static inline bool isnan(T x) {
  return __builtin_isnan(x);
}
template <class T>
static inline bool isinf(T x) {
  return __builtin_isinf(x);
}
template <class T>
static inline bool isfinite(T x) {
  return __builtin_isfinite(x);
}
template <class T>
static inline T min(T x, T y) {
  return y < x ? y : x;
}
template <class T>
static inline T max(T x, T y) {
  return x < y ? y : x;
}

// Kernels of text `n`, and the addresses of constants and shared memory: its own, and what all texts use
extern "C" __attribute__((weak, visibility("hidden"))) char __start_emulator_shared[], __stop_emulator_shared[];
extern "C" __attribute__((visibility("hidden"))) char __ehdr_start[], _end[];
#define KERNEL(n, name)                                                                               \
  extern "C" __attribute__((visibility("default"))) void run##n##_##name(void** arguments) {         \
    emulator::call(text##n::name, arguments);                                                         \
  }                                                                                                   \
  extern "C" __attribute__((no_sanitize("kernel-address"), visibility("default"))) void describe##n##_##name(char* to) { \
    emulator::describe(text##n::name, to);                                                            \
  }
#define ADDRESSES(n)                                                                                     \
  extern "C" __attribute__((weak, visibility("hidden"))) char __start_emulator_shared##n[], __stop_emulator_shared##n[]; \
  extern "C" __attribute__((no_sanitize("kernel-address"), visibility("default"))) void addresses##n(char** to) { \
    to[0] = __start_emulator_shared##n, to[1] = __stop_emulator_shared##n;                            \
    to[2] = __start_emulator_shared, to[3] = __stop_emulator_shared, to[4] = __ehdr_start, to[5] = _end; \
  }
