"""The latency between processors: how long a word takes from one thread to another, in nanoseconds.

python benchmarks/distance.py

A virtual machine may have its processors next to each other at one time and on distant parts of the host at another.
Data that threads exchange then takes four times as long, and a row of a table has to say which it was.
"""

import ctypes
import os
import sys
import threading
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from puregraph.ops.native.llvm import jit  # noqa: E402 - found through the line above

TIMES, ROUNDS = 20000, 5
# A thread waits until the word is its turn, and makes it the other's turn.
PINGPONG = """
define void @kernel(i64 %address, i64 %first, i64 %end) {
entry:
    %word = inttoptr i64 %address to i64*
    br label %look
look:
    %turn = phi i64 [%first, %entry], [%turn, %look], [%next, %write]
    %seen = load atomic i64, i64* %word acquire, align 8
    %isTurn = icmp eq i64 %seen, %turn
    br i1 %isTurn, label %write, label %look
write:
    %passed = add i64 %turn, 1
    store atomic i64 %passed, i64* %word release, align 8
    %next = add i64 %turn, 2
    %isMore = icmp ult i64 %next, %end
    br i1 %isMore, label %look, label %done
done:
    ret void
}
"""


def measured(cpus):
    """Nanoseconds one way between two processors, the shortest of a few."""
    loaded = jit.load("pingpong", lambda: (PINGPONG, (), 0))
    play = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(loaded.address)
    spans = []
    for _ in range(ROUNDS):
        word = (ctypes.c_int64 * 16)()
        address = ctypes.addressof(word)

        def other(address=address):
            os.sched_setaffinity(0, cpus[1:2])
            play(address, 1, TIMES)

        thread = threading.Thread(target=other)
        thread.start()
        os.sched_setaffinity(0, cpus[:1])
        start = time.perf_counter()
        play(address, 0, TIMES)
        spans.append((time.perf_counter() - start) / TIMES)
        thread.join()
    return 1e9 * min(spans)


if __name__ == "__main__":
    print(f"{measured(sorted(os.sched_getaffinity(0))):.0f}")
