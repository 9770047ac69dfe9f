"""The pool: every task once, every step after the one before it, whoever comes late, sleeps, forks or interrupts."""

import ctypes
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from kernels import BURN, HALVE, MIX, WITNESS, address, mixed, slots
from processes import environment

from puregraph.core.errors import PuregraphError
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.threads import numthreads, pool, workerloop
from puregraph.ops.native.threads.pages import HUGE_PAGE_BYTES, AlignedBlock
from puregraph.ops.native.threads.workers import IDLE, SPIN_MICROSECONDS

if not jit.available():
    pytest.skip(str(jit.missing()), allow_module_level=True)


LONG = 3_000_000  # turns of BURN: about half a millisecond


@pytest.fixture(autouse=True)
def sameThreads():
    before = list(numthreads.WANTED)
    yield
    pool.setThreads(
        numthreads.threads() if before else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    )
    numthreads.WANTED[:] = before


class Mixing:
    """A table of MIX steps that pass numbers on, each from what the step before it wrote."""

    def __init__(self, rng, steps=None, size=None):
        steps = steps or int(rng.integers(1, 12))
        size = size or int(rng.integers(1, 20))
        self.arrays = [np.zeros(size, np.uint64), np.zeros(size, np.uint64)]
        self.rng, self.steps, rows, keep = rng, steps, [], []
        for step in range(steps):
            tasks = int(rng.choice([1, 1, 2, 2, 3, size]))
            args = slots(self.arrays[step % 2], self.arrays[(step + 1) % 2], size, tasks)
            rows.append(
                (address(MIX), ctypes.addressof(args), tasks, pool.SINGLY if rng.random() < 0.1 else pool.TOGETHER)
            )
            keep.append(args)
        self.table = pool.StepTable(rows, keep=keep)

    def check(self):
        """Run the table, whole or in two parts, on new numbers."""
        x = self.arrays[0][:] = self.rng.integers(0, 2**63, len(self.arrays[0])).astype(np.uint64)
        if self.rng.random() < 0.3:
            middle = int(self.rng.integers(self.steps + 1))
            self.table.run(0, middle)
            self.table.run(middle)
        else:
            self.table.run()
        for _ in range(self.steps):
            x = mixed(x)
        np.testing.assert_array_equal(self.arrays[self.steps % 2], x)


def mixings(seed, runs, pauses=(0, 0, 0, 1e-5, 1e-4, 3e-4)):
    """Many runs of random tables, with pauses in which workers look for work, fall asleep, or sleep."""
    rng = np.random.default_rng(seed)
    tables = [Mixing(rng) for _ in range(8)]
    for number in range(runs):
        tables[number % 8].check()
        if number % 20 == 0:
            time.sleep(rng.choice(pauses))


def together(*functions):
    """Run functions in threads of their own; raise what one of them raised."""
    failures = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("runs", [600, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8])
def test_a_step_sees_all_that_the_one_before_it_wrote(threads, runs):
    pool.setThreads(threads)
    mixings(threads, runs)


@pytest.mark.parametrize("runs", [250, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("threads", [2, 5])
def test_runs_of_several_python_threads_do_not_disturb_each_other(threads, runs):
    pool.setThreads(threads)
    together(*(lambda seed=seed: mixings(seed, runs) for seed in range(3)))


def test_the_number_of_threads_and_their_patience_may_change_during_runs():
    rng = np.random.default_rng(0)

    def change():
        for _ in range(50):
            pool.setThreads(int(rng.integers(1, 9)))
            pool.setSpin(float(rng.choice([0, 1, 100])), float(rng.choice([0, 1, 20])))
            pool.threadPool().reserve(int(rng.integers(1 << 20)))
            time.sleep(0.003)

    try:
        together(change, lambda: mixings(1, 500), lambda: mixings(2, 500))
    finally:
        pool.setSpin(IDLE, SPIN_MICROSECONDS)


@pytest.mark.parametrize("threads", [2, 3, 4, 8])
def test_many_short_steps_one_after_the_other(threads):
    pool.setThreads(threads)
    arrays = np.arange(7, dtype=np.uint64), np.zeros(7, np.uint64)
    rows, keep = [], []
    for step in range(200):
        tasks = (7, 3, 5, 2, 6, 4)[step % 6]
        keep.append(slots(arrays[step % 2], arrays[(step + 1) % 2], 7, tasks))
        rows.append((address(MIX), ctypes.addressof(keep[-1]), tasks))
    table, x = pool.StepTable(rows, keep=keep), arrays[0].copy()
    for _ in range(50):
        table.run()
    for _ in range(50 * 200):
        x = mixed(x)
    np.testing.assert_array_equal(arrays[0], x)


STIRRED = "    call void @stir()\n"
STIR = """
@stirred = global i64 1
declare i32 @sched_yield()

define internal void @stir() noinline {
    %before = load volatile i64, i64* @stirred
    %product = mul i64 %before, 6364136223846793005
    %after = add i64 %product, 1442695040888963407
    store volatile i64 %after, i64* @stirred
    %high = lshr i64 %after, 61
    %isNow = icmp eq i64 %high, 0
    br i1 %isNow, label %leave, label %stay
leave:
    %ignored = call i32 @sched_yield()
    ret void
stay:
    ret void
}
"""


@pytest.fixture
def stirred(monkeypatch):
    """Workers whose threads give away their CPU at random, before and after anything by which they agree."""
    text = re.sub(
        r"(.* = atomicrmw .*|.* = cmpxchg .*|.* = load atomic .*|.*store atomic .*)\n",
        rf"{STIRRED}\1\n{STIRRED}",
        workerloop.SHARED,
    )
    assert text.count("@stir()") == 2 * 5
    monkeypatch.setattr(workerloop, "SHARED", text + STIR)
    monkeypatch.setattr(pool, "POOLS", [])
    yield
    pool.setThreads(1)


@pytest.mark.skipif(os.name == "nt", reason="another function gives away the CPU there")
@pytest.mark.parametrize("threads", [2, 3, 4, 6])
def test_threads_may_lose_their_cpu_anywhere(stirred, threads):
    pool.setThreads(threads)
    mixings(threads, 300, pauses=(0, 1e-4))
    together(*(lambda seed=seed: mixings(seed, 200, pauses=(0,)) for seed in range(3)))


def test_nobody_waits_for_workers_that_do_not_come():
    pool.setThreads(8)
    team = pool.threadPool()
    team.asleep.clear()  # none is started or woken any more, though eight are counted on
    mixings(3, 200)
    assert not team.workers


def test_workers_take_tasks_and_do_them_right():
    pool.setThreads(3)
    tasks = 64
    out, where, wrong = (np.zeros(tasks, np.int64) for _ in range(3))
    burn, witness = slots(LONG // 10, out), slots(30_000, where, wrong)
    rows = [(address(BURN), ctypes.addressof(burn), tasks), (address(WITNESS), ctypes.addressof(witness), tasks)]
    table = pool.StepTable(rows * 2, scratch=240_000)
    seen = set()
    deadline = time.monotonic() + 60
    while len(seen) < 3 and time.monotonic() < deadline:
        table.run()
        seen |= set(where)
    assert len(seen) == 3
    assert not wrong.any()
    assert [out[task] for task in range(tasks)] == [turned(LONG // 10, task) for task in range(tasks)]


def turned(turns, x):
    """What BURN makes of a number: turns of x -> a x + b, composed by doubling."""
    a, b, mask = 6364136223846793005, 1442695040888963407, (1 << 64) - 1
    scale, shift = 1, 0
    while turns:
        if turns & 1:
            scale, shift = scale * a & mask, (shift * a + b) & mask
        a, b, turns = a * a & mask, (a * b + b) & mask, turns >> 1
    value = (scale * x + shift) & mask
    return value - (1 << 64) if value >> 63 else value


def test_scratch_memory_is_each_threads_own_aligned_and_large_enough():
    pool.setThreads(4)
    tasks = 40

    def use(words):
        where, wrong = np.zeros(tasks, np.int64), np.ones(tasks, np.int64)
        args = slots(words, where, wrong)
        table = pool.StepTable([(address(WITNESS), ctypes.addressof(args), tasks)] * 3, scratch=8 * words)
        for _ in range(8):
            table.run()
            assert not wrong.any()
            assert not (where % 64).any()
            wrong[:] = 1

    for words in (1, 1000, 30_000, 300_000):
        use(words)
    together(lambda: use(400_000), lambda: use(5), lambda: use(600_000), lambda: mixings(0, 100))


def test_scratch_memory_may_grow_between_two_tasks_of_a_thread():
    """A thread that finishes a task may take its next one from a later run, whose steps need more scratch memory."""
    board = AlignedBlock(8 * workerloop.WORDS)
    words = (ctypes.c_int64 * workerloop.WORDS).from_address(board.address)
    seen = []

    @ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
    def task(_, number, scratch):
        seen.append((number, scratch))
        if number == 0:
            words[workerloop.SCRATCH] = 2048
            words[workerloop.STATE] = 4 * workerloop.ONEOPEN + workerloop.ONEFREE + 1

    words[workerloop.FUNCTION] = ctypes.cast(task, ctypes.c_void_p).value
    words[workerloop.SCRATCH], words[workerloop.LIMIT] = 1024, 1
    words[workerloop.STATE] = 3 * workerloop.ONEOPEN + workerloop.ONEFREE
    pool.threadPool().work(board.address, 0)
    assert seen == [(0, 1024), (1, 2048)]


def test_steps_of_one_task_and_single_steps_stay_in_order_of_their_tasks():
    pool.setThreads(2)
    x = np.arange(9, dtype=np.uint64)
    args = slots(x, x, 9, 9)  # in place: the result depends on the order of the tasks
    table = pool.StepTable([(address(MIX), ctypes.addressof(args), 9, pool.SINGLY)])
    wanted = x.copy()
    for i in range(9):
        wanted[i] = np.uint64(3) * wanted[i] + wanted[(5 * i + 2) % 9] + np.uint64(i)
    table.run()
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.skipif(jit.processor() == "other", reason="no way to flush denormals is known for this processor")
@pytest.mark.parametrize("threads", [1, 3])
def test_denormals_become_zero_in_every_thread_and_only_during_the_run(threads):
    pool.setThreads(threads)
    x = np.full(60, 1e-39, np.float32)
    x[::2] = 4
    y = np.ones_like(x)
    args = slots(x, y)
    rows = [(address(HALVE), ctypes.addressof(args), len(x))] * 3
    flushed, kept = pool.StepTable(rows), pool.StepTable(rows, flush=False)

    def alternate():
        mine = np.ones_like(x)
        own = slots(x, mine)
        table = pool.StepTable([(address(HALVE), ctypes.addressof(own), len(x))], flush=False)
        for _ in range(200):
            table.run()
            np.testing.assert_array_equal(mine[1::2], x[1::2] / np.float32(2))

    def check():
        for _ in range(200):
            for table, wanted in ((flushed, 0), (kept, x[1] / np.float32(2))):
                table.run()
                assert (y[::2] == 2).all()
                assert (y[1::2] == wanted).all()
                assert np.float32(1e-39) * np.float32(0.5) > 0
                y[:] = 1

    check()
    together(check, alternate)


def test_a_table_checks_what_it_is_given():
    with pytest.raises(ValueError, match="step 1 of a table has 0 tasks: it needs at least 1"):
        pool.StepTable([(address(MIX), 0, 1), (address(MIX), 0, 0)])
    with pytest.raises(ValueError, match="has 2097152 tasks"):
        pool.StepTable([(address(MIX), 0, 2**21)])
    table = Mixing(np.random.default_rng(0), steps=3).table
    assert len(table) == 3
    for begin, end in ((-1, 2), (0, 4), (2, 1)):
        with pytest.raises(IndexError, match=f"a table of 3 steps has none from {begin} to {end}"):
            table.run(begin, end)
    table.run(3)
    pool.StepTable([]).run()


def test_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(numthreads, "WANTED", [])
    monkeypatch.setenv("PUREGRAPH_THREADS", "3")
    assert pool.threads() == 3
    monkeypatch.setenv("PUREGRAPH_THREADS", "")
    assert pool.threads() == (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    for text in ("0", "many"):
        monkeypatch.setenv("PUREGRAPH_THREADS", text)
        with pytest.raises(
            PuregraphError, match=f"PUREGRAPH_THREADS: wanted a whole number from 1 to 512, got '{text}'"
        ):
            pool.threads()
    for number in (0, -1, 513):
        with pytest.raises(ValueError, match=f"goes from 1 to 512, got {number}"):
            pool.setThreads(number)
    pool.setThreads(5)
    assert pool.threads() == 5


def test_memory_is_aligned_and_private():
    for size, unit in (
        (1, 4096),
        (5000, 4096),
        (HUGE_PAGE_BYTES, HUGE_PAGE_BYTES),
        (HUGE_PAGE_BYTES + 5000, HUGE_PAGE_BYTES),
    ):
        block = AlignedBlock(size)
        assert block.address % unit == 0
        assert size <= block.size < size + 4096
        content = (ctypes.c_char * block.size).from_address(block.address)
        assert content.raw == bytes(block.size)
        content[block.size - 1] = b"x"


@pytest.mark.parametrize("kind", ["x86", "arm", "other"])
@pytest.mark.parametrize("entry", ["whole", "alone", "work"])
def test_the_walk_is_code_for_every_kind_of_processor(kind, entry):
    import llvmlite.binding as L

    L.initialize_all_targets()
    L.initialize_all_asmprinters()
    triple = {"x86": "x86_64-linux-gnu", "arm": "aarch64-linux-gnu", "other": "riscv64-linux-gnu"}[kind]
    code = workerloop.codeOf(entry, kind)
    assert not re.search(r"\{\w+\}", code)
    try:
        target = L.Target.from_triple(triple).create_target_machine()
    except RuntimeError:
        pytest.skip(f"this LLVM does not know {triple}")
    with L.create_context() as context, L.parse_assembly(code, context) as module:
        module.verify()
        assembly = target.emit_assembly(module)
    wanted = {"x86": ["pause", "ldmxcsr"], "arm": ["isb", "fpcr"], "other": []}[kind]
    for instruction in wanted[1:] if entry == "alone" else wanted:
        assert instruction in assembly.lower()


START = """
import ctypes, os, signal, sys, threading, time
import numpy as np
from kernels import BURN, MIX, WITNESS, address, mixed, slots
from puregraph.ops.native.threads import pool
from puregraph.ops.native.threads.pages import AlignedBlock
from test_native_pool import LONG, Mixing, mixings, turned
"""


def process(code, *arguments, **variables):
    """Start Python code in a process of its own."""
    variables = environment(**{"PUREGRAPH_THREADS": "3"} | variables)
    command = [sys.executable, "-W", "error", "-c", START + code, *arguments]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output(running):
    """What a process printed; it has to end by itself, well, and without a word about errors."""
    out, error = running.communicate(timeout=60)
    assert (running.returncode, error) == (0, "")
    return out.strip()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_a_pool_of_its_own():
    code = """
mixings(0, 40)
block = AlignedBlock(1)
for generation in range(2):
    child = os.fork()
    mixings(generation, 40)
    word = ctypes.c_int64.from_address(block.address)
    word.value += 1
    assert word.value == generation + 1
    if child == 0:
        assert len(pool.threadPool().workers) == 2, pool.threadPool().workers
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(pool.threadPool().workers) == 2, pool.threadPool().workers
print("done")
"""
    assert output(process(code)) == "done"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_scratch_memory_for_tables_of_its_parent():
    code = """
where, wrong = np.zeros(2, np.int64), np.ones(2, np.int64)
args = slots(300_000, where, wrong)
table = pool.StepTable([(address(WITNESS), ctypes.addressof(args), 2)], scratch=2_400_000)
for run in (table, table.run):
    wrong[:] = 1
    child = os.fork()
    if child == 0:
        run()
        assert not wrong.any()
        assert pool.threadPool().size >= 2_400_000, pool.threadPool().size
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print("done")
"""
    assert output(process(code)) == "done"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_in_the_middle_of_a_run_of_another_thread():
    code = """
mixings(0, 10)
stop = []
def run():
    while not stop:
        mixings(1, 20)
thread = threading.Thread(target=run)
thread.start()
for number in range(6):
    time.sleep(0.005 * number)
    child = os.fork()
    if child == 0:
        mixings(2, 40)
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.append(1)
thread.join()
print("done")
"""
    assert output(process("import warnings; warnings.simplefilter('ignore')\n" + code)) == "done"


def test_a_process_ends_while_workers_look_for_work_and_while_they_sleep():
    for pause in ("0", "0.01"):
        code = f"""
import atexit
atexit.register(mixings, 1, 20)  # after the pool has said goodbye
pool.setSpin(1e6, 20)
mixings(0, 40)
atexit.register(mixings, 1, 20)  # and before
time.sleep({pause})
print("done")
"""
        assert output(process(code)) == "done"


def test_a_process_ends_while_another_thread_is_in_a_run():
    code = """
args = slots(LONG, np.zeros(64, np.int64))
table = pool.StepTable([(address(BURN), ctypes.addressof(args), 64)] * 1000)
threading.Thread(target=table.run, daemon=True).start()
time.sleep(0.05)
print("done")
"""
    assert output(process(code)) == "done"


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
def test_an_interrupt_arrives_after_the_run():
    code = """
signal.signal(signal.SIGINT, signal.default_int_handler)
out = np.zeros(300, np.int64)
args = slots(LONG, out)
table = pool.StepTable([(address(BURN), ctypes.addressof(args), 300)])
def interrupt():
    while not out.any():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
    print("interrupted")
thread = threading.Thread(target=interrupt)
thread.start()
try:
    table.run()
    time.sleep(10)
except KeyboardInterrupt:
    print([out[task] == turned(LONG, task) for task in range(300)] == [True] * 300)
thread.join()
mixings(0, 40)
print("done")
"""
    assert output(process(code)) == "interrupted\nTrue\ndone"
