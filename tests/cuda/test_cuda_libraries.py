"""Convolution and attention as cuDNN is told them, carried out in numpy by what the task says; plans on disk."""

import json
import re
from math import erf
from types import SimpleNamespace

import numpy as np
import pytest

from puregraph.core import device
from puregraph.core.errors import DeviceError
from puregraph.core.storage import diskcache
from puregraph.ops.attention import cudnn as attention
from puregraph.ops.attention.reference import attend, attendGrad
from puregraph.ops.convolution import cudnn as convolution
from puregraph.ops.convolution.reference import convolve, convolveData, convolveWeight
from puregraph.ops.cuda.libraries import cudnn, paths, workspaces
from puregraph.ops.cuda.libraries.librarycall import LibraryCall
from puregraph.ops.product.cuda.librarygemm import Product

INSTALLED = pytest.mark.skipif(cudnn.missing() is not None, reason="cuDNN and its frontend are not installed")
CASES = [  # x, W, stride, pad, dilation, groups
    ((2, 3, 9), (4, 3, 3), 1, 1, 1, 1),
    ((1, 1, 5), (1, 1, 5), 1, 0, 1, 1),
    ((2, 4, 31), (6, 2, 4), 3, ((2, 1),), 2, 2),
    ((2, 3, 7, 6), (5, 3, 3, 2), 1, 0, 1, 1),
    ((2, 4, 7, 9), (6, 2, 3, 2), (2, 1), ((1, 0), (0, 2)), (1, 2), 2),
    ((2, 6, 8, 8), (6, 1, 3, 3), 2, 1, 1, 6),
    ((2, 5, 6, 7), (4, 5, 1, 1), 1, 0, 1, 1),
    ((2, 5, 6, 7), (4, 5, 1, 1), 2, 0, 1, 1),
    ((1, 1, 33, 1), (2, 1, 3, 1), 1, ((1, 1), (0, 0)), 1, 1),
    ((1, 4, 5, 4, 6), (2, 4, 2, 3, 3), (1, 2, 1), 1, 1, 1),
    ((2, 4, 3, 3, 3), (4, 2, 3, 3, 3), 1, 1, 1, 2),
]
LAYS = ("channels last", "rows", "apart")
TOLERANCE = {"float32": 3e-6, "float64": 1e-13, "float16": 2e-3}


@pytest.fixture(autouse=True)
def alone():
    """No GPU is asked: what is told to the library does not depend on one."""
    with device.useDevice("cpu"):
        yield


def lying(values, lay):
    """The same numbers channels last, by rows, or channels last in maps that are half as many again."""
    values = np.asarray(values)
    if lay == "rows":
        return np.ascontiguousarray(values)
    n, c, *spatial = values.shape
    space = np.full((n, *spatial, c + c // 2 * (lay == "apart")), 77, values.dtype)
    view = np.moveaxis(space, -1, 1)[:, :c]
    view[...] = values
    return view


def agree(found, wanted, dtype="float32"):
    wanted = np.asarray(wanted, float)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE[dtype] * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("lay", LAYS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution_and_its_adjoints(case, lay, dtype, rng):
    shape, size, *rest = case
    x, W = lying(rng.standard_normal(shape).astype(dtype), lay), lying(rng.standard_normal(size).astype(dtype), lay)
    wanted = convolve(x, W, *rest)
    out, grad = lying(np.zeros_like(wanted), lay), lying(rng.standard_normal(wanted.shape).astype(dtype), lay)
    for call, arrays, result in (
        (convolution.convolve(out, x, W, *rest), (x, W, out), wanted),
        (
            convolution.convolveData(x, grad, W, shape, *rest),
            (grad, W, x.copy("K")),
            convolveData(grad, W, shape, *rest),
        ),
        (
            convolution.convolveWeight(W, grad, x, size[2:], *rest),
            (grad, x, W.copy("K")),
            convolveWeight(grad, x, size[2:], *rest),
        ),
    ):
        assert isinstance(call, LibraryCall) and len(call.slots) == 3
        made = lying(np.zeros_like(result), lay)
        call.emulate([*arrays[:-1], made])
        agree(made, result, dtype)


@pytest.mark.parametrize("activation", ["", *convolution.ACTIVATIONS])
@pytest.mark.parametrize("hasBias, hasResidual", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("size", [(5, 3, 3, 3), (5, 3, 1, 1)])
def test_what_follows_a_convolution(size, hasBias, hasResidual, activation, rng):
    x, W = (lying(rng.standard_normal(s), "channels last") for s in ((2, 3, 6, 5), size))
    pad = size[2] // 2
    before = convolve(x, W, 1, pad, 1, 1)
    bias = rng.standard_normal(5) if hasBias else None
    residual = lying(rng.standard_normal(before.shape), "channels last") if hasResidual else None
    out = lying(np.zeros_like(before), "channels last")
    call = convolution.convolve(out, x, W, 1, pad, 1, 1, bias, activation, residual)
    call.emulate([a for a in (x, W, bias, residual, out) if a is not None])
    before = before + (0 if bias is None else bias[:, None, None]) + (0 if residual is None else residual)
    wanted = {
        "": lambda v: v,
        "relu": lambda v: np.maximum(v, 0),
        "gelu": lambda v: v * np.vectorize(gauss)(v),
        "geluTanh": lambda v: v / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3))),
        "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
        "silu": lambda v: v / (1 + np.exp(-v)),
        "tanh": np.tanh,
    }[activation](before)
    agree(out, wanted, "float64")


def gauss(v):
    """The part of a normal distribution below v."""
    return (1 + erf(v / 2**0.5)) / 2


@pytest.mark.parametrize("lay", LAYS)
def test_single_places_are_products_where_they_lie(lay, rng):
    x, W, grad = (rng.standard_normal(s).astype("float32") for s in ((2, 8, 5, 6), (4, 8, 1, 1), (2, 4, 5, 6)))
    x, grad = lying(x, lay), lying(grad, lay)
    call = convolution.convolve(grad, x, W, 1, 0, 1, 1)
    assert isinstance(call, Product) and [what for _, what in call.slots] == [x, W, grad] or lay == "rows"
    assert len(call.starts) == 1 and call.task.d.copies == (2 if lay == "rows" else 1)
    assert isinstance(convolution.convolveWeight(W, grad, x, (1, 1), 1, 0, 1, 1), Product) == (lay != "rows")
    stepped = convolution.convolve(grad[:, :, :3, :3], x, W, 2, 0, 1, 1)
    assert isinstance(stepped, cudnn.CudnnCall)


def heads(rng, n, h, t, d, dtype="float32", part=None):
    """Heads of a query side by side; with `part`, as one of three parts of a longer row."""
    if part is None:
        return rng.standard_normal((n, t, h, d)).astype(dtype).transpose(0, 2, 1, 3)
    return rng.standard_normal((n, t, 3, h, d)).astype(dtype)[:, :, part].transpose(0, 2, 1, 3)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(2, 4, 2, 9, 11, 16, 8), (1, 1, 1, 1, 1, 8, 8), (2, 3, 3, 33, 33, 8, 8)], ids=str)
def test_attention_and_its_gradients(sizes, causal, dtype, rng):
    n, h, few, t, s, d, e = sizes
    packed = few == h and t == s
    q = heads(rng, n, h, t, d, dtype, 0 if packed else None)
    k, v = (heads(rng, n, few, s, w, dtype, i if packed else None) for i, w in ((1, d), (2, e)))
    y, lse = attend(q, k, v, None, causal, 0.3)
    outs = [np.zeros_like(y), np.zeros_like(lse)]
    attention.attend(outs, q, k, v, causal, 0.3).emulate([q, k, v, *outs])
    agree(outs[0], y, dtype)
    agree(outs[1], lse)
    grad = heads(rng, n, h, t, e, dtype)
    rest = (grad.astype("float32") * y).sum(-1, keepdims=True)
    made = [np.zeros_like(x) for x in (q, k, v)]
    attention.attendGrad(made, grad, q, k, v, y, lse, causal, 0.3).emulate([grad, q, k, v, y, lse, *made])
    for found, wanted in zip(made, attendGrad(grad, q, k, v, None, lse, rest, causal, 0.3)):
        agree(found, wanted, dtype)


def test_what_is_dropped_forward_is_dropped_backward(rng):
    q, k, v = (heads(rng, 1, 2, 6, 8, "float32") for _ in range(3))
    seed, offset = np.array([7]), np.array([11])
    options = {"causal": True, "scale": 0.5, "dropout": 0.4, "random": (seed, offset)}
    y, lse = np.zeros_like(q), np.zeros((1, 2, 6, 1), np.float32)

    def forward(q, k, v, seed=seed):
        y, lse = np.zeros_like(q), np.zeros((1, 2, 6, 1), np.float32)
        attention.attend([y, lse], q, k, v, **options).emulate([q, k, v, seed, offset, y, lse])
        return y, lse

    y, lse = forward(q, k, v)
    assert not np.allclose(y, forward(q, k, v, seed + 1)[0])
    np.testing.assert_array_equal(lse, attend(q, k, v, None, True, 0.5)[1])
    grad, made = heads(rng, 1, 2, 6, 8), [np.zeros_like(x) for x in (q, k, v)]
    call = attention.attendGrad(made, grad, q, k, v, y, lse, **options)
    call.emulate([grad, q, k, v, y, lse, seed, offset, *made])
    for i, x in enumerate((q, k, v)):
        step = heads(rng, 1, 2, 6, 8) * 1e-2
        ahead, behind = [[a + sign * step if a is x else a for a in (q, k, v)] for sign in (1, -1)]
        slope = ((forward(*ahead)[0] - forward(*behind)[0]) * grad).sum() / 2
        np.testing.assert_allclose((made[i] * step).sum(), slope, atol=2e-4)


def test_a_part_is_dropped_and_the_rest_grows(rng):
    q, k = np.zeros((1, 1, 1, 8), np.float32), np.zeros((1, 1, 4096, 8), np.float32)
    v, y, lse = np.ones_like(k), np.zeros_like(q), np.zeros((1, 1, 1, 1), np.float32)
    random = np.array([1]), np.array([2])
    attention.attend([y, lse], q, k, v, False, 1.0, 0.25, random).emulate([q, k, v, *random, y, lse])
    np.testing.assert_allclose(y, 1, atol=0.05)
    assert not np.array_equal(y, np.ones_like(y))


class Projection:
    """Heads of a common projection, (n, t, 3, h, d) in 16 bits, without memory."""

    dtype = np.dtype("f2")

    def __init__(self, n, h, t, d):
        self.shape, self.size = (n, h, t, d), n * h * t * d
        self.strides = tuple(2 * step for step in (t * 3 * h * d, d, 3 * h * d, 1))


@pytest.mark.parametrize(
    "shape, asked, isDeterministic",
    [
        ((64, 12, 197, 64), None, True),  # 101 MB, or 39
        ((16, 12, 1024, 64), None, False),  # 403 MB, or 51
        ((16, 12, 1024, 64), "1", True),
        ((64, 12, 197, 64), "0", False),
    ],
)
def test_gradients_of_attention_are_deterministic_up_to_256_mb_of_workspace_or_as_asked(
    monkeypatch, shape, asked, isDeterministic
):
    if asked:
        monkeypatch.setenv("PUREGRAPH_DETERMINISTIC", asked)
    q, lse = Projection(*shape), np.empty((*shape[:3], 1), "f4")
    call = attention.attendGrad([q, q, q], q, q, q, q, q, lse, shape[2] == 1024, 0.125)
    assert call.task.repeats is isDeterministic
    n, h, t, d = shape
    assert call.workspace == attention.backwardBytes(n, h, t, d, t, isDeterministic=isDeterministic) > 0


def test_workspaces_of_gradients_of_attention_follow_from_their_shapes():
    found = 0
    for text, sizes in workspaces.table().items():
        if text.startswith("attendGrad"):
            q, k = (tuple(map(int, re.search(rf" {name} ([\dx]+)", text)[1].split("x"))) for name in "qk")
            assert sizes[2] == attention.backwardBytes(*q, k[2], isDeterministic="anyhow" not in text)
            found += 1
    assert found > 10


@pytest.mark.parametrize(
    "make",
    [
        lambda x: convolution.convolve(x, x.astype("int32"), x, 1, 0, 1, 1),
        lambda x: convolution.convolve(x, x, x.astype("float16"), 1, 0, 1, 1),
        lambda x: convolution.convolve(x, x[::-1], x[:, :, :1, :1], 1, 0, 1, 1),
        lambda x: convolution.convolve(x, x, x[:, :, :3, :3], 1, 1, 1, 1, activation="elu"),
        lambda x: convolution.convolve(x, x, x[:, :, :3, :3], 1, 1, 1, 1, bias=x[0, 0, 0, :3]),
        lambda x: convolution.convolve(x, x, x[:, :, :3, :3], 1, 1, 1, 2),  # other groups than W has
        lambda x: convolution.convolve(x[..., None, None], x[..., None, None], x[..., None, None], 1, 0, 1, 1),
        lambda x: convolution.convolve(x[:0], x[:0], x, 1, 1, 1, 1),
        lambda x: convolution.convolve(x, np.broadcast_to(x[:1], x.shape), x[:, :, :3, :3], 1, 1, 1, 1),
        lambda x: attention.attend([x, x[..., :1]], x[..., :3], x[..., :3], x, False, 1.0),
        lambda x: attention.attend([x, x[..., :1].astype("float64")], x, x, x, False, 1.0),
        lambda x: attention.attend([x, x[..., :1]], x.swapaxes(2, 3), x, x, False, 1.0),
        lambda x: attention.attend([x, x[..., :1]], x, x, x, False, 1.0, dropout=0.5),  # no seed
    ],
)
def test_what_cudnn_does_not_do_is_left_to_others(make, rng):
    assert make(rng.standard_normal((4, 4, 8, 8)).astype("float32")) is NotImplemented


def test_a_task_names_all_that_tells_it_from_others(rng):
    x, W = lying(np.zeros((2, 4, 8, 8), "f4"), "channels last"), np.zeros((6, 2, 3, 3), "f4")
    out = lying(np.zeros((2, 6, 4, 8), "f4"), "rows")
    call = convolution.convolve(out, x, W, (2, 1), 1, 1, 2, np.zeros(6, "f4"), "relu", out, tf32=True)
    wanted = "tf32 convolve x 2x4x8x8 W 6x2x3x3[0123] y 2x6x4x8[0123] stride 2,1 pad 1:1,1:1 + 2x6x4x8[0123] bias relu"
    assert call.name == wanted
    assert str(call.task._replace(repeats=False, dilation=(2, 2))).endswith(
        "pad 1:1,1:1 dilation 2,2 + 2x6x4x8[0123] bias relu anyhow"
    )
    q = heads(rng, 2, 3, 5, 8, part=1)
    y, lse = heads(rng, 2, 3, 5, 8), np.zeros((2, 3, 5, 1), "f4")
    assert attention.attend([y, lse], q, q, q, True, 0.25).name == (
        "float32 attend q 2x3x5x8[360,8,72,1] k 2x3x5x8[360,8,72,1] v 2x3x5x8[360,8,72,1] y 2x3x5x8[0213] scale 0.25 causal"
    )


def test_axes_of_length_one_do_not_tell_tasks_apart():
    rows = np.zeros((8, 4, 1, 1), "f4")
    assert cudnn.tensor(rows) == cudnn.tensor(lying(rows, "channels last"))
    assert cudnn.tensor(np.zeros((8, 1, 3, 3), "f4")).strides == (9, 1, 3, 1)


# Planning, with a cuDNN that keeps notes -----------------------------------------------------------------------------


ENGINES = ("eng7_k24=21", "eng1", "sdpa_fwd_prefill_sm90", "eng0")


class RefusalError(Exception):
    pass


class Recorded:
    """What stands for a graph, a tensor and cuDNN itself: it notes what it is asked for."""

    def __init__(self, notes, refuses="", broken=""):
        self.notes, self.refuses, self.broken = notes, refuses, broken
        self.heur_mode, self.numerical_note = SimpleNamespace(A="A", FALLBACK="F"), Names()
        self.data_type, self.cudnnGraphNotSupportedError = Names(), RefusalError
        self.__version__, self.size = "1.32.0", 640  # the workspace of the plan that was made or loaded last

    def __getattr__(self, name):
        def noted(*arguments, **options):
            self.notes.append((name, arguments, options))
            if name == self.refuses:
                raise RefusalError("a runtime kernel compilation failure" if self.broken else "no engine")
            if name in ("build_plan_at_index", "deserialize"):
                self.size = 100 * arguments[0] if name == "build_plan_at_index" else int(arguments[-1])
            results = {"serialize": str(self.size).encode(), "get_workspace_size": self.size}
            results |= {"get_workspace_size_plan_at_index": self.size, "backend_version_string": "9.19.0"}
            if name == "get_plan_name_at_index":
                return ENGINES[arguments[0]]
            results["get_execution_plan_count"] = len(ENGINES)
            results["create_handle"], results["create_device_properties"] = "handle", Properties()
            return results.get(name, (self, self) if name == "sdpa" else self)

        return noted


class Picky(Recorded):
    """A cuDNN whose plans all take more workspace than is allowed."""

    def build_plans(self):
        self.notes.append(("build_plans", (), {}))
        if [name for name, *_ in self.notes].count("build_plans") == 1:
            raise RefusalError("no plan")


class Names:
    def __getattr__(self, name):
        return name


class Properties:
    def serialize(self):
        return json.dumps({"multiProcessorCount": 132, "deviceVer": 900, "deviceName": "NVIDIA H200"})


@pytest.fixture
def notes(monkeypatch, tmp_path):
    """A planner for a device that is not there; everything that it asks cuDNN for."""
    found = []
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path))
    monkeypatch.setattr(cudnn, "library", lambda: Recorded(found))
    monkeypatch.setattr(cudnn, "ordinal", lambda: 0)
    return found


def maps():
    x = lying(np.zeros((2, 4, 8, 8), "f4"), "channels last")
    return x, lying(np.zeros((4, 4, 3, 3), "f4"), "channels last"), lying(np.zeros((2, 4, 8, 8), "f4"), "channels last")


def test_a_plan_is_made_once_kept_on_disk_and_run_on_addresses(notes):
    x, W, out = maps()
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        call = convolution.convolve(out, x, W, 1, 1, 1, 1)
        assert call.workspace == 640
        assert sum(name == "build_plans" for name, *_ in notes) == 1
        call.run([10, 20, 30], 4096, 5)
        call.run([10, 20, 30], 4096, 5)
    runs = [note for note in notes if note[0] == "execute"]
    assert runs == [("execute", ({1: 10, 2: 20, 3: 30}, 4096), {"handle": "handle"})] * 2
    assert [options["stream"] for name, _, options in notes if name == "set_stream"] == [0, 5, 5]
    del notes[:]
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        assert convolution.convolve(out, x, W, 1, 1, 1, 1).workspace == 640
    assert not any(name == "build_plans" for name, *_ in notes), "a plan on disk was made again"


def test_a_plan_is_loaded_on_the_default_stream_as_that_of_the_last_run_may_be_gone(notes):
    x, W, out = maps()
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        convolution.convolve(out, x, W, 1, 1, 1, 1).run([10, 20, 30], 4096, 5)
        convolution.convolve(out, x, W, 1, 1, 1, 1).prepare([10, 20, 30])
    uses = [options.get("stream", name) for name, _, options in notes if name in ("set_stream", "deserialize")]
    assert uses == [0, "deserialize", 5, 0, "deserialize"]


def test_the_workspace_of_a_plan_that_was_made_without_a_device_is_what_it_takes_on_one(notes, monkeypatch):
    x, W, out = maps()
    with cudnn.usePlanner(cudnn.CudnnPlanner(Properties().serialize())):
        assert convolution.convolve(out, x, W, 1, 1, 1, 1).workspace == 640
    monkeypatch.setattr(Recorded, "get_workspace_size", lambda self: 2_359_671, raising=False)
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        assert convolution.convolve(out, x, W, 1, 1, 1, 1).workspace == 2_359_671
    assert sum(name == "build_plans" for name, *_ in notes) == 1


def test_a_convolution_may_take_as_much_workspace_as_its_tensors_have_and_256_mb_at_least(notes):
    x, W, out = maps()
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        convolution.convolve(out, x, W, 1, 1, 1, 1)
    assert [arguments for name, arguments, _ in notes if name == "deselect_workspace_greater_than"] == [(256 << 20,)]
    large = cudnn.Tensor((16, 1024, 128, 128), (1 << 24, 1, 1 << 17, 1 << 10))
    task = convolution.ConvolutionTask("convolve", "float16", large, large, large, (1, 1), ((1, 1),) * 2, (1, 1))
    assert task.room == 3 * 2 * 16 * 1024 * 128 * 128


def test_a_convolution_takes_more_workspace_where_every_plan_does(notes, monkeypatch):
    x, W, out = maps()
    monkeypatch.setattr(cudnn, "library", lambda: Picky(notes))
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        assert convolution.convolve(out, x, W, 1, 1, 1, 1).workspace == 640
    asked = [name for name, *_ in notes if name in ("build_plans", "deselect_workspace_greater_than")]
    assert asked == ["deselect_workspace_greater_than", "build_plans", "build_plans"]


def test_plans_of_other_devices_and_damaged_plans_are_not_taken(notes, tmp_path):
    x, W, out = maps()
    other = Properties().serialize().replace("132", "78")
    for properties in (Properties().serialize(), other):
        with cudnn.usePlanner(cudnn.CudnnPlanner(properties)):
            convolution.convolve(out, x, W, 1, 1, 1, 1)
    assert sum(name == "build_plans" for name, *_ in notes) == 2
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with cudnn.usePlanner(cudnn.CudnnPlanner(other)):
        convolution.convolve(out, x, W, 1, 1, 1, 1)
    assert sum(name == "build_plans" for name, *_ in notes) == 3


def test_a_stored_plan_that_the_device_refuses_is_made_anew(notes, monkeypatch):
    x, W, out = maps()
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        convolution.convolve(out, x, W, 1, 1, 1, 1)
    monkeypatch.setattr(cudnn, "library", lambda: Recorded(notes, "deserialize"))
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        assert convolution.convolve(out, x, W, 1, 1, 1, 1).workspace == 640
    assert sum(name == "build_plans" for name, *_ in notes) == 2


@pytest.mark.parametrize("where", ["validate", "create_execution_plans", "build_plans"])
def test_what_cudnn_refuses_is_left_to_others(where, notes, monkeypatch):
    monkeypatch.setattr(cudnn, "library", lambda: Recorded(notes, where))
    x, W, out = maps()
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        assert convolution.convolve(out, x, W, 1, 1, 1, 1) is NotImplemented


def test_a_compiler_that_fails_is_no_lack_of_plans(notes, monkeypatch):
    monkeypatch.setattr(cudnn, "library", lambda: Recorded(notes, "build_plans", broken=True))
    x, W, out = maps()
    with cudnn.usePlanner(cudnn.CudnnPlanner()), pytest.raises(DeviceError, match="cannot plan .* PUREGRAPH_CUDNN=off"):
        convolution.convolve(out, x, W, 1, 1, 1, 1)


def test_a_kernel_that_cannot_be_compiled_is_one(notes, monkeypatch):
    monkeypatch.setattr(cudnn, "library", lambda: Recorded(notes, "build_plans", broken=True))
    monkeypatch.setattr(cudnn.CudnnPlanner, "compiles", True)
    x, W, out = maps()
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        assert convolution.convolve(out, x, W, 1, 1, 1, 1) is NotImplemented


@pytest.mark.parametrize("asked", ["", "1", "0"])
def test_sums_of_convolutions_are_deterministic_unless_the_user_does_not_need_that(monkeypatch, asked, notes):
    monkeypatch.setenv("PUREGRAPH_DETERMINISTIC", asked)
    x, W, out = maps()
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        call = convolution.convolveWeight(W, out, x, 3, 1, 1, 1, 1)
    (avoided,) = [arguments[0] for name, arguments, _ in notes if name == "deselect_numeric_notes"]
    assert ("NONDETERMINISTIC" in avoided) == (asked != "0") and ("anyhow" in call.name) == (asked == "0")


@pytest.mark.parametrize("tf32", [False, True])
def test_only_tf32_may_round_float32(tf32, notes):
    x, W, out = maps()
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        convolution.convolve(out, x, W, 1, 1, 1, 1, tf32=tf32)
    (avoided,) = [arguments[0] for name, arguments, _ in notes if name == "deselect_numeric_notes"]
    assert ("TENSOR_CORE" in avoided) != tf32 and "NONDETERMINISTIC" in avoided


def test_only_plans_of_cudnn_itself_are_taken(notes):
    x, W, out = maps()
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        convolution.convolve(out, x, W, 1, 1, 1, 1)
    assert [arguments for name, arguments, _ in notes if name == "deselect_engines"] == [(["sdpa_fwd_prefill_sm90"],)]


@pytest.mark.parametrize("what, node", [("", "conv_fprop"), ("Data", "conv_dgrad"), ("Weight", "conv_wgrad")])
def test_a_convolution_is_told_as_it_lies(what, node, notes):
    x, W = lying(np.zeros((2, 4, 9, 8), "f2"), "channels last"), np.zeros((6, 2, 3, 2), "f2")
    y = lying(np.zeros((2, 6, 5, 5), "f2"), "channels last")
    lay = (2, ((1, 2), (3, 0)), (1, 2), 2)
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        call, tensors = {
            "": lambda: (convolution.convolve(y, x, W, *lay), (x, W, y)),
            "Data": lambda: (convolution.convolveData(x, y, W, x.shape, *lay), (y, W, x)),
            "Weight": lambda: (convolution.convolveWeight(W, y, x, W.shape[2:], *lay), (y, x, W)),
        }[what]()
    (how,) = [options for name, _, options in notes if name == node]
    lies = {"pre_padding": [1, 3], "post_padding": [2, 0], "stride": [2, 2], "dilation": [1, 2]}
    assert {name: how[name] for name in lies} == lies
    told = [options for name, _, options in notes if name == "tensor"]
    told.append({name: one(notes, f"set_{name}") for name in ("dim", "stride", "data_type")})
    for array, each in zip(tensors, told):
        assert each["dim"] == list(array.shape) and each["data_type"] == "HALF"
        assert each["stride"] == [step // 2 for step in array.strides]
    assert all(what is array for (_, what), array in zip(call.slots, tensors, strict=True))


def one(notes, name):
    """What the one call of a name was given."""
    (arguments,) = [arguments for other, arguments, _ in notes if other == name]
    return arguments[0]


def test_tensors_are_numbered_as_slots_are(notes):
    q = heads(np.random.default_rng(0), 2, 4, 16, 8, "float16")
    lse, number = np.zeros((2, 4, 16, 1), "f4"), np.zeros(1, "i8")
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        call = attention.attend([q, lse], q, q, q, True, 0.5, 0.1, (number, number))
    read = [options["uid"] for name, _, options in notes if name == "tensor"]
    written = [arguments[0] for name, arguments, _ in notes if name == "set_uid"]
    assert read + written == [1, 2, 3, 4, 5, 6, 7] and len(call.slots) == 7
    assert [arguments[0] for name, arguments, _ in notes if name == "set_data_type"] == ["HALF", "FLOAT"]
    (asked,) = [options for name, _, options in notes if name == "sdpa"]
    assert asked["use_causal_mask"] and asked["attn_scale"] == 0.5 and asked["dropout"][0] == 0.1


def test_of_plans_that_have_room_the_fastest_is_kept(notes):
    x, W, out = maps()
    times = iter([3.0, 1.0, 2.0])
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        call = convolution.convolve(out, x, W, 1, 1, 1, 1)
        call.tune([10, 20, 30], 4096, 250, 5, lambda run: run() or next(times))
        assert call.workspace == 100
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        assert convolution.convolve(out, x, W, 1, 1, 1, 1).workspace == 100
    assert [arguments for name, arguments, _ in notes if name == "build_plan_at_index"] == [(0,), (1,), (2,), (3,)]
    assert sum(name == "execute" for name, *_ in notes) == 3


def test_only_the_first_plans_are_measured_where_there_are_many(notes, monkeypatch):
    x, W, out = maps()
    monkeypatch.setattr(cudnn, "TRIED", 2)
    with cudnn.usePlanner(cudnn.CudnnPlanner()):
        convolution.convolve(out, x, W, 1, 1, 1, 1).tune([10, 20, 30], 4096, 900, 5, lambda run: 1.0)
    assert [arguments for name, arguments, _ in notes if name == "build_plan_at_index"] == [(0,), (1,)]


# What is known without cuDNN ----------------------------------------------------------------------------------------


def test_workspaces_are_known_where_nobody_can_be_asked():
    text = next(iter(workspaces.table()))
    sizes = workspaces.table()[text]
    assert [workspaces.known(f"{kind} {text}") for kind in workspaces.KINDS] == sizes
    assert workspaces.known("float32 convolve of something else") == 0
    assert len(workspaces.table()) > 300 and all(
        len(row) == len(workspaces.KINDS) for row in workspaces.table().values()
    )


def test_workspaces_are_written_as_they_are_read(tmp_path):
    made = {
        f"{kind} {rest}": size for rest, row in workspaces.table().items() for kind, size in zip(workspaces.KINDS, row)
    }
    label = json.loads(workspaces.FILE.read_text())["planner"]
    assert workspaces.written(made, label) == workspaces.FILE.read_text()


def test_without_a_gpu_a_call_says_why_it_cannot_run():
    x, W, out = maps()
    with pytest.raises(
        DeviceError, match="float32 convolve x 2x4x8x8 .*(is not installed|no .* was found|cpu, because)"
    ):
        convolution.convolve(out, x, W, 1, 1, 1, 1).run([1, 2, 3], 0, 0)


def test_cudnn_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("PUREGRAPH_CUDNN", "off")
    with pytest.raises(DeviceError, match="switched off by PUREGRAPH_CUDNN"):
        cudnn.library.__wrapped__()


def test_libraries_are_looked_for_in_wheels_and_toolkits(tmp_path, monkeypatch):
    for folder in ("nvidia/cu13/lib", "toolkit/lib64"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "libfoo.so.13").write_bytes(b"")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "toolkit"))
    paths.folders.cache_clear()
    monkeypatch.setattr(paths, "WINDOWS", False)
    found = list(paths.candidates("foo", (13, 12)))
    paths.folders.cache_clear()
    assert [path for path in found if str(tmp_path) in path] == [
        str(tmp_path / "nvidia/cu13/lib/libfoo.so.13"),
        str(tmp_path / "toolkit/lib64/libfoo.so.13"),
    ]
    assert found[-2:] == ["libfoo.so.13", "libfoo.so.12"]
    assert paths.fileName("cublasLt", 13) == "libcublasLt.so.13"


def test_the_family_of_cupy_comes_first(monkeypatch):
    runtime = SimpleNamespace(runtimeGetVersion=lambda: 12090)
    monkeypatch.setitem(paths.sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    assert paths.families() == (12, 13)


# With cuDNN, and no device ------------------------------------------------------------------------------------------


@INSTALLED
def test_plain_convolutions_are_planned_and_loaded_without_a_device(monkeypatch, tmp_path):
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path))
    planner = cudnn.CudnnPlanner((workspaces.FILE.parent / "h200.json").read_text())
    x, W, out = (a.astype("float16") for a in maps())
    with cudnn.usePlanner(planner):
        for call in (
            convolution.convolve(out, x, W, 1, 1, 1, 1),
            convolution.convolveData(x, out, W, x.shape, 1, 1, 1, 1),
            convolution.convolveWeight(W, out, x, (3, 3), 1, 1, 1, 1),
        ):
            call.prepare([256, 512, 768])
            assert call.workspace == planner.plan(call.task).workspace and call.graph is not None
    assert len(list(tmp_path.iterdir())) == 3
    assert diskcache.read(planner.fileOf(call.name))[0]["key"].endswith(call.name)


@INSTALLED
def test_the_fastest_plan_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path))
    planner = cudnn.CudnnPlanner((workspaces.FILE.parent / "h200.json").read_text())
    x, W, out = (a.astype("float16") for a in maps())
    graphs, sizes = [], []
    with cudnn.usePlanner(planner):
        call = convolution.convolveWeight(W, out, x, (3, 3), 1, 1, 1, 1)
        first = planner.plan(call.task)
        planner.tune(call.task, 1 << 30, lambda graph: graphs.append(graph) or -len(graphs))
        assert len(graphs) > 3 and planner.plan(call.task) != first
        last = planner.plan(call.task)
        planner.tune(call.task, last.workspace - 1, lambda graph: sizes.append(graph) or len(sizes))
        assert 0 < len(sizes) < len(graphs) and planner.plan(call.task).workspace < last.workspace
    assert cudnn.CudnnPlanner((workspaces.FILE.parent / "h200.json").read_text()).plan(call.task) != last
