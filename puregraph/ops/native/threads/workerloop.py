"""The worker loop: how threads run a table of steps together, as LLVM IR; its addresses are 64-bit integers.

A *record* is a step: the address of its function, of its arguments, its number of tasks, and 1 if one thread is to run
them all. The *board* is memory that every thread of a pool reads; it is never freed, so a late thread may always read
it.

Its word STATE packs three fields, `open << 42 | free << 21 | front`: how many tasks of the running step are not
finished, how many of them are not taken, and the index of the first of those. A task is taken, from the front or from
the back, by one compare-and-swap of the word, which fails if anything changed. Therefore a thread owns a task or it has
changed nothing, and the running step cannot end while a thread owns a task: there are no epochs to compare, and no
thread waits for one that owns nothing.

The thread that finishes the last task of a step *drives*: no other thread has work then. It runs steps of one task by
itself, and publishes the next step with more tasks on the board, with the first task taken. So the end of a step, its
barrier and the beginning of the next one are the same exchange.
"""

from __future__ import annotations

from puregraph.ops.native.llvm import jit
from puregraph.ops.native.threads.numthreads import MAX_THREADS

STATE, FUNCTION, ARGS, TASKS, FLUSH, RECORD, END, ACTIVE = range(8)  # one cache line, for they are read together
OWNER = 8
YIELD, PATIENCE, IDLE, LIMIT = range(16, 20)
SCRATCH = 32  # the word of the first thread; each further thread has the next one
WORDS = SCRATCH + MAX_THREADS
RECORDWORDS = 4
ORDERWORDS = 5
FREESHIFT, OPENSHIFT = 21, 42
FIELD = (1 << FREESHIFT) - 1  # maximum number of tasks of a step
ONEFREE, ONEOPEN, TWOOPEN = 1 << FREESHIFT, 1 << OPENSHIFT, 2 << OPENSHIFT
TOGETHER, SINGLY = range(2)  # how the tasks of a step are run
FREE, RUNNING, OVER = range(3)  # values of ACTIVE

X86 = """
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(i8*)
declare void @llvm.x86.sse.ldmxcsr(i8*)

define internal void @pause() {
    call void @llvm.x86.sse2.pause()
    ret void
}

define internal i64 @mode() {
    %slot = alloca i32
    %bytes = bitcast i32* %slot to i8*
    call void @llvm.x86.sse.stmxcsr(i8* %bytes)
    %mode = load i32, i32* %slot
    %wide = zext i32 %mode to i64
    ret i64 %wide
}

define internal void @setMode(i64 %wide) {
    %mode = trunc i64 %wide to i32
    %slot = alloca i32
    store i32 %mode, i32* %slot
    %bytes = bitcast i32* %slot to i8*
    call void @llvm.x86.sse.ldmxcsr(i8* %bytes)
    ret void
}
"""
ARM = """
declare void @llvm.aarch64.isb(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define internal void @pause() {
    call void @llvm.aarch64.isb(i32 15)
    ret void
}

define internal i64 @mode() {
    %mode = call i64 @llvm.aarch64.get.fpcr()
    ret i64 %mode
}

define internal void @setMode(i64 %mode) {
    call void @llvm.aarch64.set.fpcr(i64 %mode)
    ret void
}
"""
OTHER = """
define internal void @pause() {
    ret void
}

define internal i64 @mode() {
    ret i64 0
}

define internal void @setMode(i64 %mode) {
    ret void
}
"""
PROCESSORS = {"x86": (X86, 0x8040), "arm": (ARM, 1 << 24), "other": (OTHER, 0)}  # FTZ and DAZ of MXCSR, FZ of FPCR

SHARED = """
define internal i64 @read(i64 %base, i64 %word) alwaysinline {
    %offset = shl i64 %word, 3
    %address = add i64 %base, %offset
    %pointer = inttoptr i64 %address to i64*
    %value = load i64, i64* %pointer, align 8
    ret i64 %value
}

define internal void @write(i64 %base, i64 %word, i64 %value) alwaysinline {
    %offset = shl i64 %word, 3
    %address = add i64 %base, %offset
    %pointer = inttoptr i64 %address to i64*
    store i64 %value, i64* %pointer, align 8
    ret void
}

define internal i64 @acquire(i64 %base, i64 %word) alwaysinline {
    %offset = shl i64 %word, 3
    %address = add i64 %base, %offset
    %pointer = inttoptr i64 %address to i64*
    %value = load atomic volatile i64, i64* %pointer acquire, align 8
    ret i64 %value
}

define internal void @release(i64 %base, i64 %word, i64 %value) alwaysinline {
    %offset = shl i64 %word, 3
    %address = add i64 %base, %offset
    %pointer = inttoptr i64 %address to i64*
    store atomic volatile i64 %value, i64* %pointer release, align 8
    ret void
}

define internal void @call(i64 %function, i64 %args, i64 %task, i64 %scratch) alwaysinline {
    %pointer = inttoptr i64 %function to void (i64, i64, i64)*
    call void %pointer(i64 %args, i64 %task, i64 %scratch)
    ret void
}

; Run all tasks of a record.
define internal void @each(i64 %record, i64 %scratch) noinline {
entry:
    %function = call i64 @read(i64 %record, i64 0)
    %args = call i64 @read(i64 %record, i64 1)
    %tasks = call i64 @read(i64 %record, i64 2)
    br label %task
task:
    %number = phi i64 [0, %entry], [%next, %task]
    call void @call(i64 %function, i64 %args, i64 %number, i64 %scratch)
    %next = add i64 %number, 1
    %isMore = icmp ult i64 %next, %tasks
    br i1 %isMore, label %task, label %done
done:
    ret void
}

; Put this thread's arithmetic into the mode of the run: denormal numbers become zero, or stay what they are.
define internal void @settle(i64 %wanted) noinline {
    %now = call i64 @mode()
    %on = or i64 %now, {flush}
    %off = and i64 %now, {keep}
    %isOn = icmp ne i64 %wanted, 0
    %mode = select i1 %isOn, i64 %on, i64 %off
    %isSame = icmp eq i64 %mode, %now
    br i1 %isSame, label %done, label %change
change:
    call void @setMode(i64 %mode)
    br label %done
done:
    ret void
}

; Let time pass: at first in a way that comes back soon, then so that another thread may have the CPU.
define internal void @wait(i64 %board, i64 %times) noinline {
    %patience = call i64 @read(i64 %board, i64 {PATIENCE})
    %isPatient = icmp ult i64 %times, %patience
    br i1 %isPatient, label %short, label %long
short:
    call void @pause()
    ret void
long:
    %function = call i64 @read(i64 %board, i64 {YIELD})
    %pointer = inttoptr i64 %function to i32 ()*
    %ignored = call i32 %pointer()
    ret void
}

; Take a task of the step under way, whose word was last seen as given: its number, or -1 if there is none left.
; One side takes from the front and the other from the back, so that the same thread comes upon the same data in
; step after step: between some cores, lines that another one has written come very slowly.
define internal i64 @take(i64 %board, i64 %before, i64 %side) noinline {
entry:
    br label %look
look:
    %seen = phi i64 [%before, %entry], [%found, %try]
    %right = lshr i64 %seen, {FREESHIFT}
    %free = and i64 %right, {FIELD}
    %isNone = icmp eq i64 %free, 0
    br i1 %isNone, label %none, label %try
try:
    %front = and i64 %seen, {FIELD}
    %isBack = icmp ne i64 %side, 0
    %further = select i1 %isBack, i64 0, i64 1
    %fewer = sub i64 %seen, {ONEFREE}
    %less = add i64 %fewer, %further
    %state = inttoptr i64 %board to i64*
    %pair = cmpxchg i64* %state, i64 %seen, i64 %less acq_rel acquire
    %found = extractvalue { i64, i1 } %pair, 0
    %isTaken = extractvalue { i64, i1 } %pair, 1
    br i1 %isTaken, label %taken, label %look
taken:
    %flush = call i64 @read(i64 %board, i64 {FLUSH})
    call void @settle(i64 %flush)
    %behind = add i64 %front, %free
    %rear = sub i64 %behind, 1
    %number = select i1 %isBack, i64 %rear, i64 %front
    ret i64 %number
none:
    ret i64 -1
}

; Run a task that was taken, and further ones as long as there are: 1 if this thread has finished the last of a step.
; The next one may be of a later run, with more scratch memory: word `slot` of the shared state has its address.
define internal i64 @share(i64 %board, i64 %slot, i64 %first, i64 %side) noinline {
entry:
    br label %task
task:
    %number = phi i64 [%first, %entry], [%next, %finished]
    %function = call i64 @read(i64 %board, i64 {FUNCTION})
    %args = call i64 @read(i64 %board, i64 {ARGS})
    %scratch = call i64 @read(i64 %board, i64 %slot)
    call void @call(i64 %function, i64 %args, i64 %number, i64 %scratch)
    %state = inttoptr i64 %board to i64*
    %before = atomicrmw sub i64* %state, i64 {ONEOPEN} acq_rel
    %isLast = icmp ult i64 %before, {TWOOPEN}
    br i1 %isLast, label %last, label %finished
finished:
    %now = sub i64 %before, {ONEOPEN}
    %next = call i64 @take(i64 %board, i64 %now, i64 %side)
    %isNone = icmp slt i64 %next, 0
    br i1 %isNone, label %none, label %task
last:
    ret i64 1
none:
    ret i64 0
}

; Go on from a record, alone at work: 1 at the end of the run, 0 if others finish a step, one of whom goes on then.
; The step whose last task this thread has finished may be another one than it began with, so the board says which.
define internal i64 @drive(i64 %board, i64 %slot, i64 %first, i64 %side) noinline {
entry:
    br label %step
step:
    %record = phi i64 [%first, %entry], [%next, %one], [%following, %on]
    %end = call i64 @read(i64 %board, i64 {END})
    %isEnd = icmp eq i64 %record, %end
    br i1 %isEnd, label %over, label %look
look:
    %next = add i64 %record, {recordbytes}
    %tasks = call i64 @read(i64 %record, i64 2)
    %how = call i64 @read(i64 %record, i64 3)
    %isOne = icmp eq i64 %tasks, 1
    %isSingly = icmp eq i64 %how, {SINGLY}
    %needsOne = or i1 %isOne, %isSingly
    br i1 %needsOne, label %one, label %many
one:
    %scratch = call i64 @read(i64 %board, i64 %slot)
    call void @each(i64 %record, i64 %scratch)
    br label %step
many:
    %function = call i64 @read(i64 %record, i64 0)
    %args = call i64 @read(i64 %record, i64 1)
    call void @write(i64 %board, i64 {FUNCTION}, i64 %function)
    call void @write(i64 %board, i64 {ARGS}, i64 %args)
    call void @write(i64 %board, i64 {TASKS}, i64 %tasks)
    call void @write(i64 %board, i64 {RECORD}, i64 %record)
    %open = shl i64 %tasks, {OPENSHIFT}
    %rest = sub i64 %tasks, 1
    %free = shl i64 %rest, {FREESHIFT}
    %isBack = icmp ne i64 %side, 0
    %front = select i1 %isBack, i64 0, i64 1
    %mine = select i1 %isBack, i64 %rest, i64 0
    %counts = or i64 %open, %free
    %state = or i64 %counts, %front
    call void @release(i64 %board, i64 {STATE}, i64 %state)
    %isLast = call i64 @share(i64 %board, i64 %slot, i64 %mine, i64 %side)
    %goesOn = icmp ne i64 %isLast, 0
    br i1 %goesOn, label %on, label %waiting
on:
    %under = call i64 @read(i64 %board, i64 {RECORD})
    %following = add i64 %under, {recordbytes}
    br label %step
over:
    ret i64 1
waiting:
    ret i64 0
}

; Run a task that was taken and what follows from that: 1 if this thread has come to the end of the run.
define internal i64 @carry(i64 %board, i64 %slot, i64 %task, i64 %side) noinline {
    %isLast = call i64 @share(i64 %board, i64 %slot, i64 %task, i64 %side)
    %drives = icmp ne i64 %isLast, 0
    br i1 %drives, label %on, label %off
on:
    %record = call i64 @read(i64 %board, i64 {RECORD})
    %next = add i64 %record, {recordbytes}
    %isOver = call i64 @drive(i64 %board, i64 %slot, i64 %next, i64 %side)
    ret i64 %isOver
off:
    ret i64 0
}

; Run records one task after the other, with no other thread.
define void @alone(i64 %first, i64 %end, i64 %scratch, i64 %flush) {
entry:
    %before = call i64 @mode()
    call void @settle(i64 %flush)
    br label %step
step:
    %record = phi i64 [%first, %entry], [%next, %look]
    %isEnd = icmp eq i64 %record, %end
    br i1 %isEnd, label %over, label %look
look:
    %next = add i64 %record, {recordbytes}
    call void @each(i64 %record, i64 %scratch)
    br label %step
over:
    call void @setMode(i64 %before)
    ret void
}

; Run records together with whoever comes: 1, or 0 if another run has the board.
define internal i64 @run(i64 %board, i64 %first, i64 %end, i64 %flush, i64 %isWide) {
entry:
    %address = add i64 %board, {ownerbyte}
    %owner = inttoptr i64 %address to i64*
    %pair = cmpxchg i64* %owner, i64 0, i64 1 acquire monotonic
    %isOurs = extractvalue { i64, i1 } %pair, 1
    br i1 %isOurs, label %begin, label %refused
begin:
    %limit = call i64 @read(i64 %board, i64 {LIMIT})
    %areMany = icmp ugt i64 %limit, 1
    %wide = icmp ne i64 %isWide, 0
    %together = and i1 %areMany, %wide
    br i1 %together, label %shared, label %single
single:
    %scratch = call i64 @read(i64 %board, i64 {SCRATCH})
    call void @alone(i64 %first, i64 %end, i64 %scratch, i64 %flush)
    br label %leave
shared:
    %before = call i64 @mode()
    call void @settle(i64 %flush)
    call void @write(i64 %board, i64 {FLUSH}, i64 %flush)
    call void @write(i64 %board, i64 {END}, i64 %end)
    call void @release(i64 %board, i64 {ACTIVE}, i64 {RUNNING})
    %isOver = call i64 @drive(i64 %board, i64 {SCRATCH}, i64 %first, i64 0)
    %isDone = icmp ne i64 %isOver, 0
    br i1 %isDone, label %over, label %loop
loop:
    %times = phi i64 [0, %shared], [0, %work], [0, %took], [%more, %waiting]
    %state = call i64 @acquire(i64 %board, i64 {STATE})
    %right = lshr i64 %state, {FREESHIFT}
    %free = and i64 %right, {FIELD}
    %isFree = icmp ne i64 %free, 0
    br i1 %isFree, label %work, label %look
work:
    %task = call i64 @take(i64 %board, i64 %state, i64 0)
    %isNone = icmp slt i64 %task, 0
    br i1 %isNone, label %loop, label %took
took:
    %isEnd = call i64 @carry(i64 %board, i64 {SCRATCH}, i64 %task, i64 0)
    %ended = icmp ne i64 %isEnd, 0
    br i1 %ended, label %over, label %loop
look:
    %active = call i64 @acquire(i64 %board, i64 {ACTIVE})
    %isElsewhere = icmp eq i64 %active, {OVER}
    br i1 %isElsewhere, label %over, label %waiting
waiting:
    call void @wait(i64 %board, i64 %times)
    %more = add i64 %times, 1
    br label %loop
over:
    call void @release(i64 %board, i64 {ACTIVE}, i64 {FREE})
    call void @setMode(i64 %before)
    br label %leave
leave:
    call void @release(i64 %board, i64 {OWNER}, i64 0)
    ret i64 1
refused:
    ret i64 0
}

; Run what an order in memory says, word by word what `run` takes: handing over five numbers would take longer.
define i64 @whole(i64 %order) {
    %board = call i64 @read(i64 %order, i64 0)
    %first = call i64 @read(i64 %order, i64 1)
    %end = call i64 @read(i64 %order, i64 2)
    %flush = call i64 @read(i64 %order, i64 3)
    %isWide = call i64 @read(i64 %order, i64 4)
    %isDone = call i64 @run(i64 %board, i64 %first, i64 %end, i64 %flush, i64 %isWide)
    ret i64 %isDone
}

; What a worker does: take tasks until there has been no run for a while, or it is one of too many.
define void @work(i64 %board, i64 %index) {
entry:
    %before = call i64 @mode()
    %slot = add i64 %index, {SCRATCH}
    %side = and i64 %index, 1
    br label %loop
loop:
    %idle = phi i64 [0, %entry], [%idle, %try], [0, %done], [0, %busy], [%longer, %rest]
    %times = phi i64 [0, %entry], [%times, %try], [0, %done], [%more, %busy], [0, %rest]
    %limit = call i64 @read(i64 %board, i64 {LIMIT})
    %isSpare = icmp uge i64 %index, %limit
    br i1 %isSpare, label %out, label %look
look:
    %state = call i64 @acquire(i64 %board, i64 {STATE})
    %right = lshr i64 %state, {FREESHIFT}
    %free = and i64 %right, {FIELD}
    %isFree = icmp ne i64 %free, 0
    br i1 %isFree, label %try, label %nothing
try:
    %task = call i64 @take(i64 %board, i64 %state, i64 %side)
    %isNone = icmp slt i64 %task, 0
    br i1 %isNone, label %loop, label %took
took:
    %isEnd = call i64 @carry(i64 %board, i64 %slot, i64 %task, i64 %side)
    %ended = icmp ne i64 %isEnd, 0
    br i1 %ended, label %tell, label %done
tell:
    call void @release(i64 %board, i64 {ACTIVE}, i64 {OVER})
    br label %done
done:
    br label %loop
nothing:
    %active = call i64 @acquire(i64 %board, i64 {ACTIVE})
    %isRun = icmp eq i64 %active, {RUNNING}
    br i1 %isRun, label %busy, label %pause
busy:
    call void @wait(i64 %board, i64 %times)
    %more = add i64 %times, 1
    br label %loop
pause:
    %longer = add i64 %idle, 1
    %most = call i64 @read(i64 %board, i64 {IDLE})
    %isLong = icmp ugt i64 %longer, %most
    br i1 %isLong, label %out, label %rest
rest:
    call void @pause()
    br label %loop
out:
    call void @setMode(i64 %before)
    ret void
}
"""


def codeOf(entry: str, kind: str | None = None) -> str:
    """The IR with function `kernel` as `whole`, `alone` or `work`, for this processor or another kind."""
    text, flush = PROCESSORS[kind or jit.processor()]
    words = {name: value for name, value in globals().items() if name.isupper() and isinstance(value, int)}
    words |= {"flush": flush, "keep": ~flush, "recordbytes": 8 * RECORDWORDS, "ownerbyte": 8 * OWNER}
    shared = SHARED
    for name, value in words.items():
        shared = shared.replace(f"{{{name}}}", str(value))
    return (text + shared).replace(f"@{entry}(", "@kernel(")
