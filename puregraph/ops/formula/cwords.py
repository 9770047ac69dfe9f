"""C words: names with a meaning in the text of a kernel, which its variables must not have."""

from __future__ import annotations

import re

from puregraph.ops import special
from puregraph.ops.formula.optable import INTEGERS, TABLE

CPP = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class compl
concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace
new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return
short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef
typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
CUDA = """
T ALL EMULATED DYNAMIC INFINITY NAN NULL int64 uint64 size_t half dim3 threadIdx blockIdx blockDim gridDim warpSize
assert printf min max fabs fma fmaf isnan isinf isfinite signbit __CUDA_ARCH__
"""
VECTOR = re.compile(r"(u?(char|short|int|long|longlong)|float|double)[1-4]")
OURS = re.compile("v*__")
CALLED = re.compile(r"\b([a-zA-Z_]\w*)\(")
WORDS = frozenset(
    [
        *CPP.split(),
        *CUDA.split(),
        *special.CUDA,
        *CALLED.findall(str([*INTEGERS.values(), *(row.cuda for row in TABLE.values())])),
    ]
)


def isWord(name: str) -> bool:
    """True for a keyword or vector type of the kernel language."""
    return name in WORDS or VECTOR.fullmatch(name) is not None


def asVariable(name: str) -> str:
    """A valid kernel variable for a name; different names stay different.

    Keywords get an underscore at the end; names that begin with two underscores, reserved for the compiler, get a v in
    front. To avoid collisions, `float_` and `v__x` get one more, too.
    """
    if OURS.match(name):
        return f"v{name}"
    return f"{name}_" if isWord(name) or isWord(name.rstrip("_")) else name
