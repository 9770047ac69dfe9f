"""Native kernels of the tests, as text that every version of LLVM reads."""

import ctypes

import numpy as np

from puregraph.ops.native.llvm import jit

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
    words = (value.ctypes.data if isinstance(value, np.ndarray) else value for value in values)
    return (ctypes.c_int64 * len(values))(*words)


def call(library, args, task=0, scratch=0):
    """Run one task of a loaded kernel."""
    SIGNATURE(library.address)(ctypes.addressof(args), task, scratch)


def scaled(factors):
    """Load kernels that multiply by factors, and use them; which of them had to be made."""
    made, x = [], np.arange(33, dtype=np.float32)
    for factor in factors:

        def make(factor=factor):
            made.append(factor)
            return scale(factor), ("x", "y"), 64

        library = jit.load(f"scale {factor}", make, "digest")
        assert library.names == ("x", "y") and library.scratch == 64, library
        y = np.zeros_like(x)
        call(library, slots(x, y), len(x))
        np.testing.assert_array_equal(y, factor * x)
    return made


MIX = """
define void @kernel(i64* %args, i64 %task, i8* %scratch) {
entry:
    %a = load i64, i64* %args
    %bslot = getelementptr i64, i64* %args, i64 1
    %b = load i64, i64* %bslot
    %cslot = getelementptr i64, i64* %args, i64 2
    %count = load i64, i64* %cslot
    %dslot = getelementptr i64, i64* %args, i64 3
    %tasks = load i64, i64* %dslot
    %x = inttoptr i64 %a to i64*
    %y = inttoptr i64 %b to i64*
    br label %look
look:
    %i = phi i64 [%task, %entry], [%next, %element]
    %isMore = icmp ult i64 %i, %count
    br i1 %isMore, label %element, label %done
element:
    %j = mul i64 %i, 5
    %k = add i64 %j, 2
    %other = urem i64 %k, %count
    %here = getelementptr i64, i64* %x, i64 %i
    %there = getelementptr i64, i64* %x, i64 %other
    %to = getelementptr i64, i64* %y, i64 %i
    %value = load i64, i64* %here
    %further = load i64, i64* %there
    %scaled = mul i64 %value, 3
    %sum = add i64 %scaled, %further
    %result = add i64 %sum, %i
    store i64 %result, i64* %to
    %next = add i64 %i, %tasks
    br label %look
done:
    ret void
}
"""  # y[i] = 3 x[i] + x[(5 i + 2) mod n] + i for i = task, task + tasks, ...: args x, y, n, tasks


def mixed(x):
    """What MIX makes of all of x (uint64)."""
    i = np.arange(len(x), dtype=np.uint64)
    return np.uint64(3) * x + x[(5 * i + np.uint64(2)) % np.uint64(len(x))] + i


BURN = """
define void @kernel(i64* %args, i64 %task, i64* %scratch) {
entry:
    %turns = load i64, i64* %args
    br label %loop
loop:
    %i = phi i64 [0, %entry], [%next, %loop]
    %x = phi i64 [%task, %entry], [%y, %loop]
    %z = mul i64 %x, 6364136223846793005
    %y = add i64 %z, 1442695040888963407
    %next = add i64 %i, 1
    %isMore = icmp ult i64 %next, %turns
    br i1 %isMore, label %loop, label %done
done:
    %slot = getelementptr i64, i64* %args, i64 1
    %result = load i64, i64* %slot
    %out = inttoptr i64 %result to i64*
    %place = getelementptr i64, i64* %out, i64 %task
    store i64 %y, i64* %place
    ret void
}
"""  # so many turns of a random generator that begins with the task, into out[task]: args turns, out

WITNESS = """
define void @kernel(i64* %args, i64 %task, i64* %scratch) {
entry:
    %count = load i64, i64* %args
    br label %fill
fill:
    %i = phi i64 [0, %entry], [%next, %fill]
    %place = getelementptr i64, i64* %scratch, i64 %i
    store volatile i64 %task, i64* %place
    %next = add i64 %i, 1
    %isMore = icmp ult i64 %next, %count
    br i1 %isMore, label %fill, label %check
check:
    %j = phi i64 [0, %fill], [%further, %check]
    %wrong = phi i64 [0, %fill], [%both, %check]
    %there = getelementptr i64, i64* %scratch, i64 %j
    %value = load volatile i64, i64* %there
    %difference = xor i64 %value, %task
    %both = or i64 %wrong, %difference
    %further = add i64 %j, 1
    %isLess = icmp ult i64 %further, %count
    br i1 %isLess, label %check, label %done
done:
    %first = getelementptr i64, i64* %args, i64 1
    %a = load i64, i64* %first
    %x = inttoptr i64 %a to i64*
    %to = getelementptr i64, i64* %x, i64 %task
    %address = ptrtoint i64* %scratch to i64
    store i64 %address, i64* %to
    %second = getelementptr i64, i64* %args, i64 2
    %b = load i64, i64* %second
    %y = inttoptr i64 %b to i64*
    %also = getelementptr i64, i64* %y, i64 %task
    store i64 %both, i64* %also
    ret void
}
"""  # fills so many words of its scratch memory and reads them again: args words, its address[task], what was wrong[task]

HALVE = """
define void @kernel(float** %args, i64 %task, i64* %scratch) {
entry:
    %x = load float*, float** %args
    %slot = getelementptr float*, float** %args, i64 1
    %y = load float*, float** %slot
    %from = getelementptr float, float* %x, i64 %task
    %to = getelementptr float, float* %y, i64 %task
    br label %again
again:
    %i = phi i64 [0, %entry], [%next, %again]
    %value = load volatile float, float* %from
    %half = fmul float %value, 0.5
    store volatile float %half, float* %to
    %next = add i64 %i, 1
    %isMore = icmp ult i64 %next, 200
    br i1 %isMore, label %again, label %done
done:
    ret void
}
"""  # y[task] = x[task] / 2, often enough that other threads come: args x, y


def address(text):
    """Where the kernel of a text was loaded."""
    return jit.load(text, lambda: (text, [], 0)).address
