"""Counter-based random numbers: a function of a key and a counter, the same on any machine.

The generator is Philox4x64-10. Its block b of four 64-bit words, w[4 b] to w[4 b + 3], is a function of the
128-bit key (key, 0) and of the 256-bit counter (b + 1, 0, counter, 0), low words first: numpy's Philox, which
counts before it draws. `key` (which stream: a seed, a node) and `counter` (which draw: a step) are integers from
0 to 2^64 - 1; no two pairs share a block until 2^128 blocks are drawn.

Bits become floats by exact or correctly rounded steps only (+ - * / sqrt and casts of IEEE 754, never fused), so
that numpy, C and CUDA agree to the last bit.

Source    Salmon, Moraes, Dror, Shaw 2011, Parallel Random Numbers: As Easy as 1, 2, 3
"""

from __future__ import annotations

from math import factorial, pi, prod

import numpy as np

from puregraph.ops.cuda.runtime.launch import THREADS, Launch, blocksFor, gridFor, isContiguous
from puregraph.ops.cuda.runtime.preprocess import defined, stored
from puregraph.ops.kernel import kernel

L2_ELEMENTS = 1 << 13  # elements processed at a time, so that the many short steps stay in the L2 cache
LN2 = 0.6931471805599453
LOGARITHM = [1.0 / (2 * k + 1) for k in range(12)]
SINE = [(-1) ** k / factorial(2 * k + 1) for k in range(12)]
COSINE = [(-1) ** k / factorial(2 * k) for k in range(12)]
SIGNIFICAND_BITS = {2: 11, 4: 24, 8: 53}  # by the bytes of a float: the bits of its significand


@kernel
def uniform(shape, key, counter, dtype=np.float32):
    """Numbers in [0, 1): u = (first p bits of a word) / 2^p, p being the significand's bits: 11, 24 or 53.

    float64 takes a 64-bit word for each: element i is computed from w[i]. float32 and float16 take half of one: element
    2 i from the low 32 bits of w[i], element 2 i + 1 from the high. None is rounded, so none is ever 1.
    """
    dtype = np.dtype(dtype)
    halves = dtype.itemsize < 8
    count = prod(shape)
    drawn = words(key, counter, (count + 1) // 2 if halves else count)
    drawn = drawn.astype("<u8", copy=False).view("<u4")[:count] if halves else drawn
    bits = SIGNIFICAND_BITS[dtype.itemsize]
    drawn >>= drawn.dtype.type(8 * drawn.itemsize - bits)
    u = drawn.astype(dtype)
    u *= dtype.type(2.0**-bits)
    return u.reshape(shape)


@uniform.shape
def uniform(shape, key, counter, dtype=np.float32):
    """The shape and dtype that are asked for."""
    return tuple(shape), np.dtype(dtype)


@uniform.cuda
def uniform(u, shape, key, counter, dtype=np.float32):
    """A thread makes the elements of a block of four words."""
    if u.dtype != np.dtype(dtype):  # the values would differ
        return NotImplemented
    bits = SIGNIFICAND_BITS[u.dtype.itemsize]
    half = f"(float)((unsigned)(w.at[i / 2] >> i % 2 * 32) >> {32 - bits}) * 0x1p-{bits}f"
    number = "uniformOf(w.at[i])" if bits == 53 else half
    body = f"for (int i = 0; i < MANY; i++) numbers[i] = Number<T>::narrow({number});"
    return drawing("uniform", u, key, counter, body, 4 if bits == 53 else 8)


@kernel
def normal(shape, key, counter, dtype=np.float32):
    """Standard normal numbers, by pairs: sqrt(-2 ln u) (cos a, sin a), u in (0, 1], a an angle.

    Numbers 2 i and 2 i + 1 are made in float64 of w[2 i] and w[2 i + 1], and then rounded to the dtype:
    u = ((w[2 i] >> 11) + 1) / 2^53; a = pi ((w[2 i + 1] >> 11) / 2^53 - 1/2); the cosine changes its sign if
    w[2 i + 1] is odd. Logarithm, sine and cosine are the series of `logarithm` and `circle`.

    Source    Box and Muller 1958, A Note on the Generation of Random Normal Deviates
    """
    count = prod(shape)
    drawn = words(key, counter, count + count % 2).reshape(-1, 2)
    x = np.empty(drawn.shape, dtype=dtype)
    for i in range(0, len(drawn), L2_ELEMENTS):
        x[i : i + L2_ELEMENTS] = boxMuller(drawn[i : i + L2_ELEMENTS])
    return np.ascontiguousarray(x.reshape(-1)[:count]).reshape(shape)


@normal.shape
def normal(shape, key, counter, dtype=np.float32):
    """The shape and dtype that are asked for."""
    return tuple(shape), np.dtype(dtype)


@normal.cuda
def normal(x, shape, key, counter, dtype=np.float32):
    """A thread makes two pairs from a block of four words."""
    if x.dtype != np.dtype(dtype):
        return NotImplemented
    terms = {"LOGARITHM": LOGARITHM, "SINE": SINE, "COSINE": COSINE}
    series = {name: ", ".join(map(repr, coefficients)) for name, coefficients in terms.items()}
    before = defined({**series, "LN2": LN2, "PI": pi}) + PAIRS
    return drawing("normal", x, key, counter, "pairs(numbers, w);", 4, before)


PAIRS = """
// As numpy: each step is rounded
template <int n>
__device__ static inline double horner(double z, const double (&terms)[n]) {
  double y = terms[n - 1];
#pragma unroll
  for (int i = n - 2; i >= 0; i--) y = __dadd_rn(__dmul_rn(y, z), terms[i]);
  return y;
}
__device__ static inline double logarithm(double u) {
  const double terms[] = {LOGARITHM};
  const int64 bits = __double_as_longlong(u);
  double m = __longlong_as_double((bits & 0xfffffffffffffll) | 0x3fe0000000000000ll);
  int e = (int)(bits >> 52) - 1022;
  if (m < 0.7071067811865476) m = 2 * m, e--;
  const double s = __dadd_rn(m, -1.0) / __dadd_rn(m, 1.0);
  return __dadd_rn(__dmul_rn(e, LN2), __dmul_rn(2 * s, horner(__dmul_rn(s, s), terms)));
}
__device__ static inline double rounded(double, double x) { return x; }
__device__ static inline float rounded(float, double x) { return (float)x; }
// Rounded once, not twice: what a float cannot hold is kept in the last bit
__device__ static inline Half rounded(Half, double x) {
  const int64 bits = __double_as_longlong(x), rest = 0x1fffffff;
  return toHalf((float)__longlong_as_double((bits & ~rest) | ((bits & rest) ? rest + 1 : 0)));
}
__device__ static inline void pairs(T* numbers, const Words& w) {
  const double sines[] = {SINE}, cosines[] = {COSINE};
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const double radius = sqrt(__dmul_rn(-2, logarithm((double)((w.at[i] >> 11) + 1) * 0x1p-53)));
    const double a = __dmul_rn(__dadd_rn(uniformOf(w.at[i + 1]), -0.5), PI), z = __dmul_rn(a, a);
    const double sine = __dmul_rn(a, horner(z, sines)), cosine = horner(z, cosines);
    numbers[i] = rounded(T(), __dmul_rn(radius, w.at[i + 1] & 1 ? -cosine : cosine));
    numbers[i + 1] = rounded(T(), __dmul_rn(radius, sine));
  }
}
"""


def drawing(name, y, key, counter, body, many, before=""):
    """The launch that makes `many` elements from a block of words; key and counter are read from memory."""
    if not isContiguous(y) or y.dtype.name not in ("float16", "float32", "float64"):
        return NotImplemented
    if not y.size:
        return []
    words = {"key": key, "counter": counter}
    isRead = {argument: hasattr(x, "strides") and not isinstance(x, np.generic) for argument, x in words.items()}
    if any(isRead[argument] and x.dtype.itemsize != 8 for argument, x in words.items()):
        return NotImplemented
    names = {"T": stored(y.dtype), "MANY": many, "PACK": min(many, 16 // y.dtype.itemsize)}
    for argument, x in words.items():
        kind = f"const {stored(x.dtype)}*" if isRead[argument] else "uint64"
        names |= {
            f"{argument.upper()}_PARAMETER": f"{kind} {argument}",
            argument.upper(): f"*{argument}" if isRead[argument] else argument,
        }
    numbers = [("pointer", x) if isRead[argument] else ("long", int(x)) for argument, x in words.items()]
    text = defined(names) + before + DRAW.replace("BODY", body)
    slots = (("pointer", y), ("long", y.size), *numbers)
    return [Launch(name, text, "draw", slots, gridFor(blocksFor(y.size, many)), (THREADS, 1, 1))]


DRAW = """
extern "C" __global__ void draw(T* y, int64 count, KEY_PARAMETER, COUNTER_PARAMETER) {
  const uint64 stream = KEY, draw = COUNTER;
  const bool isWide = isAligned(y, sizeof(T) * PACK);
  const int64 blocks = (count + MANY - 1) / MANY, step = (int64)gridDim.x * blockDim.x;
  for (int64 b = (int64)blockIdx.x * blockDim.x + threadIdx.x; b < blocks; b += step) {
    const Words w = philox(stream, draw, b);
    T numbers[MANY];
    BODY
    if (isWide && (b + 1) * MANY <= count) {
#pragma unroll
      for (int i = 0; i < MANY; i += PACK) {
        Pack<T, PACK> pack;
#pragma unroll
        for (int j = 0; j < PACK; j++) pack.at[j] = numbers[i + j];
        storePack(y, b * MANY + i, pack);
      }
    } else {
#pragma unroll
      for (int i = 0; i < MANY; i++)
        if (b * MANY + i < count) y[b * MANY + i] = numbers[i];
    }
  }
}
"""


def words(key, counter, count):
    """The first `count` words of a stream."""
    start = np.array([0, 0, int(counter), 0], dtype=np.uint64)  # a list of large integers would pass through floats
    return np.random.Philox(key=np.array([int(key), 0], dtype=np.uint64), counter=start).random_raw(count)


def boxMuller(drawn):
    """Pairs of normal numbers for pairs of words (m, 2)."""
    radius = ((drawn[:, 0] >> np.uint64(11)) + np.uint64(1)) * 2.0**-53
    radius = np.sqrt(-2.0 * logarithm(radius))
    sine, cosine = circle(((drawn[:, 1] >> np.uint64(11)) * 2.0**-53 - 0.5) * pi)
    cosine = np.where(drawn[:, 1] & np.uint64(1), -cosine, cosine)
    return np.stack([radius * cosine, radius * sine], axis=1)


def logarithm(u):
    """ln u = e ln 2 + 2 s (1 + s^2/3 + ... + s^22/23), s = (m - 1)/(m + 1), u = m 2^e, sqrt(1/2) <= m < sqrt(2)."""
    m, e = np.frexp(u)
    low = m < 0.7071067811865476
    m, e = np.where(low, 2.0 * m, m), e - low
    s = (m - 1.0) / (m + 1.0)
    return e * LN2 + 2.0 * s * horner(s * s, LOGARITHM)


def circle(a):
    """sin a = a - a^3/3! + ... - a^23/23! and cos a = 1 - a^2/2! + ... - a^22/22!, for |a| <= pi/2."""
    return a * horner(a * a, SINE), horner(a * a, COSINE)


def horner(z, terms):
    """terms[0] + z (terms[1] + z (terms[2] + ...)), from the inside out."""
    y = np.full_like(z, terms[-1])
    for term in reversed(terms[:-1]):
        y *= z
        y += term
    return y
