"""The emulator: what it computes, and each way in which a kernel can be wrong, told with its place."""

import numpy as np
import pytest
from launches import misplaced, needsEmulator

from puregraph.core.errors import DeviceError
from puregraph.ops.cuda.runtime.launch import Launch, Scratch
from puregraph.testing.emulator import emulator
from puregraph.testing.emulator.emulator import KernelError

pytestmark = needsEmulator

SOFTMAX = """
extern "C" __global__ void softmax(const float* x, float* y, int n) {
  const float* row = x + (int64)blockIdx.x * n;
  float top = -INFINITY, total = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, row[i]);
  top = maxBlock(top);
  for (int i = threadIdx.x; i < n; i += blockDim.x) total += exp(row[i] - top);
  total = sumBlock(total);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[(int64)blockIdx.x * n + i] = exp(row[i] - top) / total;
}
"""
TURN = """
extern "C" __global__ void turn(const float* x, float* y, int n) {
  __shared__ float room[64];
  const int i = threadIdx.x;
  room[i] = i < n ? x[i] : 0;
  __syncthreads();
  if (i < n) y[i] = room[n - 1 - i];
}
"""


def start(text, entry, *slots, grid=1, block=64, shared=0):
    """Run one kernel on arrays and whole numbers."""
    kinds = tuple(("pointer" if isinstance(x, (np.ndarray, Scratch)) else "int", x) for x in slots)
    emulator.run([Launch(entry, text, entry, kinds, (grid, 1, 1), (block, 1, 1), shared)])


def turn(old="", new="", n=37, **options):
    """The kernel that turns a vector round, with a change to its text."""
    assert old in TURN
    x, y = np.arange(n, dtype="f4"), np.full(n, np.nan, "f4")
    start(TURN.replace(old, new), "turn", x, y, n, **options)
    return y


def body(text, *slots, params="float* x", **options):
    """A kernel of so much text."""
    start(f'extern "C" __global__ void k({params}) {{ {text} }}', "k", *slots, **options)


@pytest.mark.parametrize("n", [1, 31, 33, 257])
def test_blocks_wait_for_each_other(rng, n):
    x = rng.standard_normal((5, n)).astype("f4")
    y = np.empty_like(x)
    start(SOFTMAX, "softmax", x, y, n, grid=5, block=96)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-6)


def test_a_wrong_index_is_found():
    assert turn().tolist() == list(range(36, -1, -1))
    with pytest.raises(
        KernelError, match=r"thread \(37, 0, 0\): reads 4 bytes at byte 148 of argument 0, which has 148"
    ):
        turn("i < n ? x[i] : 0", "x[i]")
    with pytest.raises(
        KernelError, match=r"thread \(0, 0, 0\): writes 4 bytes at byte -4 of argument 1, which has 148"
    ):
        turn("y[i] =", "y[i - 1] =")


def test_an_index_outside_shared_memory_is_found():
    with pytest.raises(KernelError, match=r"thread \(0, 0, 0\): kernel:7: index 64 is outside its array"):
        turn("room[n - 1 - i]", "room[n - i]", n=64)
    with pytest.raises(KernelError, match=r"writes 4 bytes at byte 128 of shared memory, which has 128"):
        body("DYNAMIC(float, room); room[threadIdx.x] = 1;", np.zeros(1, "f4"), shared=128)


def test_a_missing_barrier_is_found():
    with pytest.raises(
        KernelError, match="writes what was read at .* of shared memory, and no barrier.* of this block"
    ):
        turn("__syncthreads();", "")
    with pytest.raises(KernelError, match="reads what was written at .* of shared memory, and no barrier"):
        turn("if (i < n) y[i] = room[n - 1 - i];", "if (i < n) y[i] = room[n - 1 - i]; room[i] = 0;")


def test_lanes_of_a_warp_need_a_barrier_too_and_one_of_the_warp_is_enough():
    text = "__shared__ float a[64]; a[threadIdx.x] = 1; {} x[threadIdx.x] = a[threadIdx.x ^ {}];"
    with pytest.raises(KernelError, match="no barrier"):
        body(text.format("", 1), np.zeros(64, "f4"))
    body(text.format("__syncwarp();", 1), np.zeros(64, "f4"))
    with pytest.raises(KernelError, match="no barrier"):
        body(text.format("__syncwarp();", 32), np.zeros(64, "f4"))


def test_two_threads_that_write_to_one_place_are_found():
    with pytest.raises(KernelError, match="writes what was written at 0 of argument 0, and no barrier.* of this block"):
        body("x[0] = 1;", np.zeros(1, "f4"))
    with pytest.raises(
        KernelError, match="writes what was written at 0 of argument 0, and no barrier.* of another block"
    ):
        body("x[threadIdx.x] = 1;", np.zeros(64, "f4"), grid=2)
    with pytest.raises(KernelError, match="reads what was written at 0 .* of another block"):
        body("if (blockIdx.x == 0) x[0] = 1; else x[1] = x[0];", np.zeros(2, "f4"), grid=2, block=1)
    with pytest.raises(KernelError, match="writes what was read at 0 .* of another block"):
        body("if (blockIdx.x < 2) x[1 + blockIdx.x] = x[0]; else x[0] = 1;", np.zeros(3, "f4"), grid=3, block=1)


def test_atomic_sums_are_none_of_these():
    x = np.zeros(1, "i4")
    body("atomicAdd(x, 2);", x, params="int* x", grid=3)
    assert x.tolist() == [2 * 3 * 64]


def test_a_barrier_that_not_all_threads_reach_is_found():
    with pytest.raises(KernelError, match=r"waits at kernel:6, but thread \(37, 0, 0\) has ended"):
        turn("__syncthreads();", "if (i >= n) return; __syncthreads();")
    with pytest.raises(
        KernelError, match=r"thread \(63, 0, 0\) waits at kernel:2, but thread \(0, 0, 0\) waits at kernel:1"
    ):
        body("if (threadIdx.x < 8) __syncthreads();\n else __syncthreads();", np.zeros(1, "f4"))


def test_a_shuffle_that_not_all_its_lanes_reach_is_found():
    with pytest.raises(KernelError, match="its mask has lane 8, which has ended"):
        body("if (threadIdx.x < 8) x[threadIdx.x] = sumWarp(1.0f);", np.zeros(8, "f4"))
    with pytest.raises(KernelError, match="its mask has lane 16, which does not exist"):
        body("x[threadIdx.x] = sumWarp(1.0f);", np.zeros(16, "f4"), block=16)
    with pytest.raises(KernelError, match="by a mask, 00000001, that it is not in"):
        body("x[threadIdx.x] = __shfl_sync(1u, 1.0f, 0);", np.zeros(64, "f4"))
    x = np.zeros(64, "f4")
    body("if ((threadIdx.x & 31) < 8) x[threadIdx.x] = __shfl_xor_sync(255u, (float)threadIdx.x, 1);", x)
    assert x[:8].tolist() == [1, 0, 3, 2, 5, 4, 7, 6]


@pytest.mark.parametrize(
    "shuffle, lane", [("__shfl_sync(255u, x[i], 8)", 8), ("__shfl_xor_sync(255u, x[i], 8)", 8),
                      ("__shfl_down_sync(255u, x[i], 1)", 8), ("__shfl_up_sync(0xffff00u, x[i], 1)", 7)]
)  # fmt: skip
def test_a_shuffle_from_a_lane_that_its_mask_lacks_is_found(shuffle, lane):
    mask = shuffle.split("(")[1].split("u")[0]
    text = f"const int i = threadIdx.x; if ({mask}u >> i & 1) x[i] = {shuffle};"
    with pytest.raises(KernelError, match=f"reads lane {lane}, which is not in its mask, {int(mask, 0):08x}"):
        body(text, np.zeros(32, "f4"), block=32)


def test_a_barrier_of_a_warp_may_lack_any_lane():
    x = np.zeros(32, "f4")
    body("const int i = threadIdx.x; if (i > 7) { x[i] = i; __syncwarp(0xffffff00u); }", x, block=32)
    assert x.tolist() == [0] * 8 + list(range(8, 32))


def test_votes_and_shuffles():
    x = np.zeros((6, 32), "i4")
    text = """
      const int i = threadIdx.x;
      x[i] = __ballot_sync(ALL, i % 3 == 0) == 0x49249249u;
      x[32 + i] = __any_sync(ALL, i == 7) + 2 * __all_sync(ALL, i < 32) + 4 * __all_sync(ALL, i != 3);
      x[64 + i] = __shfl_up_sync(ALL, i, 1);
      x[96 + i] = __shfl_down_sync(ALL, i, 3, 8);
      x[128 + i] = __shfl_sync(ALL, i, 5, 16);
      x[160 + i] = __popc(__match_any_sync(ALL, i / 5));
    """
    body(text, x, params="int* x", block=32)
    i = np.arange(32)
    assert (x[0] == 1).all() and (x[1] == 3).all()
    assert x[2].tolist() == [0, *range(31)]
    assert x[3].tolist() == np.where(i % 8 < 5, i + 3, i).tolist()
    assert x[4].tolist() == (i // 16 * 16 + 5).tolist()
    assert x[5].tolist() == [5] * 30 + [2] * 2


def test_an_address_that_suits_no_wide_access_is_found():
    text, x = "storePack(x, 0, loadPack<4>(x, 0));", np.zeros(4, "f4")
    body(text, x, block=1)
    with pytest.raises(KernelError, match="moves 16 bytes at an address that is no multiple of 16"):
        body(text, misplaced(x), block=1)


def test_what_lies_between_the_elements_is_not_touched():
    x = np.zeros((4, 6), "f4")
    body("x[threadIdx.x * 6] = 1;", x[:, :1], block=4)
    assert x.sum(0).tolist() == [4, 0, 0, 0, 0, 0]
    with pytest.raises(KernelError, match="writes number 1 of argument 0's memory, which is between its elements"):
        body("x[threadIdx.x] = 1;", x[:, :1], block=4)


def test_arrays_that_share_memory_share_it():
    x = np.arange(8, dtype="f4")
    text = 'extern "C" __global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }'
    start(text, "k", x[:4], x[4:], block=4)
    assert x.tolist() == [0, 1, 2, 3, 1, 2, 3, 4]
    start(text, "k", x, x, block=8)
    assert x.tolist() == [1, 2, 3, 4, 2, 3, 4, 5]


def test_scratch_is_nan_and_the_same_in_each_launch():
    half, y = Scratch((3,), "f4"), np.zeros(3, "f4")
    one = 'extern "C" __global__ void one(float* half) { if (threadIdx.x < 2) half[threadIdx.x] = 7; }'
    two = 'extern "C" __global__ void two(const float* half, float* y) { y[threadIdx.x] = half[threadIdx.x]; }'
    grid, block = (1, 1, 1), (3, 1, 1)
    first = Launch("one", one, "one", (("pointer", half),), grid, block)
    second = Launch("two", two, "two", (("pointer", half), ("pointer", y)), grid, block)
    emulator.run([first, second])
    np.testing.assert_array_equal(y, [7, 7, np.nan])


def test_division_by_zero_is_found():
    with pytest.raises(KernelError, match="kernel:1: division by zero"):
        body("x[0] = 7 / n;", np.zeros(1, "f4"), 0, params="float* x, int n", block=1)


@pytest.mark.parametrize(
    ("params", "slots", "words"),
    [
        ("float* x", (np.zeros(1, "f8"),), "argument 0 of k is wf4, got f8 numbers"),
        ("Half* x", (np.zeros(1, "i2"),), "argument 0 of k is wh2, got i2 numbers"),
        ("float* x, int64 n", (np.zeros(1, "f4"), 1), "argument 1 of k is ni8, got a number of int"),
        ("float* x, int n", (np.zeros(1, "f4"), 1 << 40), "argument 1 of k, 1099511627776, does not fit in int"),
        ("float* x", (np.zeros(1, "f4"), 1), "k takes 1 arguments, got 2"),
        ("int64 x", (np.zeros(1, "f4"),), "argument 0 of k is ni8, got f4 numbers"),
    ],
)
def test_arguments_are_what_the_kernel_takes(params, slots, words):
    with pytest.raises(KernelError, match=words):
        body("", *slots, params=params)


ROOM = "__shared__ float a[4]; const unsigned at = (unsigned)__cvta_generic_to_shared(a); "
COPY = 'asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(x), "r"(12) : "memory"); '
COMMIT, WAIT = ('asm volatile("{};" ::: "memory"); '.format(f"cp.async.{each}_group") for each in ("commit", "wait"))
WAIT = WAIT.replace("wait_group", "wait_group 0")


def test_a_copy_comes_when_its_group_is_awaited_and_is_zero_beyond_its_bytes():
    x = np.array([1, 2, 3, 4], "f4")
    body(f"{ROOM}{COPY}{COMMIT}{WAIT} for (int i = 0; i < 4; i++) x[i] = a[i];", x, block=1)
    assert x.tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize(
    "before, after", [(COPY, COMMIT + "x[0] = a[threadIdx.x];"), (COPY, WAIT + "a[threadIdx.x] = 0;")]
)
def test_memory_that_a_copy_is_on_its_way_to_is_not_touched(before, after):
    with pytest.raises(KernelError, match="of shared memory, where a copy is on its way that thread 0 has not awaited"):
        body(ROOM + before + after, np.zeros(4, "f4"), block=1)


@pytest.mark.parametrize(
    "statement, words",
    [
        ('asm("ex2.approx.f32 %0, %1;" : "=f"(*x) : "f"(*x))', "the emulator has no ex2.approx.f32: give it a meaning"),
        ('asm volatile("cp.async.wait_group 0;")', 'must be volatile, with "memory" behind its operands'),
        ('asm("cp.async.wait_group 0;" ::: "memory")', "must be volatile"),
        ('asm("mov.b32 %0, 0; mov.b32 %0, 1;" : "=f"(*x))', "wanted one instruction in an asm statement"),
    ],
)
def test_instructions_without_a_meaning_are_refused(statement, words):
    with pytest.raises(DeviceError, match=words):
        body(statement + ";", np.zeros(4, "f4"))


def test_a_grid_is_one_that_a_gpu_has():
    with pytest.raises(KernelError, match=r"a GPU has no grid \(0, 1, 1\)"):
        body("", np.zeros(1, "f4"), grid=0)
    with pytest.raises(KernelError, match=r"of blocks \(1025, 1, 1\)"):
        body("", np.zeros(1, "f4"), block=1025)


@pytest.mark.parametrize("kind", ["Half", "Bfloat"])
def test_short_floats_are_rounded_to_even(kind):
    dtype = np.dtype("f2") if kind == "Half" else np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    bits = np.arange(1 << 16, dtype="u2").view(dtype)
    wide = np.zeros(bits.size, "f4")
    text = "for (int i = 0; i < 65536; i++) y[i] = load(x, i);"
    start(f'extern "C" __global__ void k(const {kind}* x, float* y) {{ {text} }}', "k", bits, wide, block=1)
    np.testing.assert_array_equal(wide, bits.astype("f4"))
    with np.errstate(all="ignore"):
        between = np.concatenate(
            [wide, wide * (1 + 2**-9), wide * (1 + 2**-12), wide * (1 - 2**-12), wide * 0.3, wide * 2e-5]
        )
    y = np.zeros(between.size, dtype)
    text = f"for (int i = 0; i < {between.size}; i++) store(y, i, x[i]);"
    start(f'extern "C" __global__ void k(const float* x, {kind}* y) {{ {text} }}', "k", between, y, block=1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(y.astype("f4"), between.astype(dtype).astype("f4"))


def test_random_words_are_those_of_numpy():
    words = np.zeros(40, "u8")
    slots = (("pointer", words), ("long", 2**63 + 5), ("long", 77))
    text = """
    extern "C" __global__ void k(uint64* y, uint64 key, uint64 counter) {
      const Words w = philox(key, counter, threadIdx.x);
      for (int i = 0; i < 4; i++) y[4 * threadIdx.x + i] = w.at[i];
    }"""
    emulator.run([Launch("words", text, "k", slots, (1, 1, 1), (10, 1, 1))])
    generator = np.random.Philox(key=np.array([2**63 + 5, 0], "u8"), counter=np.array([0, 0, 77, 0], "u8"))
    np.testing.assert_array_equal(words, generator.random_raw(40))


def test_texts_of_one_run_keep_what_all_may_use():
    """A text that says what INFINITY is, where nobody has, does not take it from the text behind it."""
    guarded = "#ifndef INFINITY\n#define INFINITY __int_as_float(0x7f800000)\n#endif\n#define OWN 3.0f\n"
    texts = [
        guarded + 'extern "C" __global__ void one(float* y) { y[0] = OWN; }',
        'extern "C" __global__ void two(float* y) {\n#ifdef OWN\n  y[0] = 0;\n#else\n  y[0] = -INFINITY;\n#endif\n}',
    ]
    y, z = np.zeros(1, np.float32), np.zeros(1, np.float32)
    slots = [((("pointer", x),), n, t) for x, n, t in zip((y, z), ("one", "two"), texts)]
    emulator.run([Launch(n, t, n, s, (1, 1, 1), (1, 1, 1), 0) for s, n, t in slots])
    assert (y[0], z[0]) == (3, -np.inf)
