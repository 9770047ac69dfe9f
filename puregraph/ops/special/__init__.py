"""Special functions that numpy lacks, to about 1e-15 in float64, and in C those that CUDA lacks too.

The results have the dtype of the argument; they are computed in float64, in blocks that stay in the L2 cache.
"""

from puregraph.ops.special import bessel, gamma
from puregraph.ops.special.bessel import ive
from puregraph.ops.special.error import erf, erfc, erfcx
from puregraph.ops.special.gamma import digamma, lgamma, polygamma
from puregraph.ops.special.normal import erfinv, ndtri

__all__ = ["CUDA", "CUDA_LIMITS", "digamma", "erf", "erfc", "erfcx", "erfinv", "ive", "lgamma", "ndtri", "polygamma"]

# C of functions that CUDA lacks (it has erf, erfc, erfcx, erfinv, normcdfinv, lgamma); each may call earlier ones.
CUDA = {
    **gamma.CUDA,
    **bessel.CUDA,
    "floorDivide": """
__device__ static T floorDivide(T a, T b) {  // the whole number below a / b, from the remainder, as numpy has it
  const T m = fmod(a, b), d = (a - m) / b - (m != 0 && (b < 0) != (m < 0)), f = floor(d);
  return b == 0 ? a / b : d == 0 ? copysign((T)0, a / b) : d - f > (T)0.5 ? f + 1 : f;
}""",
    "modulo": """
__device__ static T modulo(T a, T b) {  // the sign of b, as Python and numpy have it
  const T m = fmod(a, b);
  return m != 0 ? ((m < 0) != (b < 0) ? m + b : m) : copysign((T)0, b);
}""",
}
CUDA_LIMITS = """
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
"""
