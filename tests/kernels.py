"""Native kernels of the tests, as text that every version of LLVM reads."""

import ctypes

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def scale(factor):
    """y = factor x, for as many elements as the task says."""
    return f"""
define void @kernel(float** %args, i64 %count, i8* %scratch) {{
entry:
    %x = load float*, float** %args
    %slot = getelementptr float*, float** %args, i64 1
    %y = load float*, float** %slot
    br label %loop
loop:
    %i = phi i64 [0, %entry], [%next, %loop]
    %from = getelementptr float, float* %x, i64 %i
    %to = getelementptr float, float* %y, i64 %i
    %value = load float, float* %from
    %product = fmul float %value, {float(factor)}
    store float %product, float* %to
    %next = add i64 %i, 1
    %isMore = icmp ult i64 %next, %count
    br i1 %isMore, label %loop, label %done
done:
    ret void
}}
"""


def slots(*values):
    """An array of argument slots: numbers, or the addresses of arrays."""
    return (ctypes.c_int64 * len(values))(
        *(getattr(value, "ctypes", None) and value.ctypes.data or value for value in values)
    )


def call(library, args, task=0, scratch=0):
    """Run one task of a loaded kernel."""
    SIGNATURE(library.address)(ctypes.addressof(args), task, scratch)
