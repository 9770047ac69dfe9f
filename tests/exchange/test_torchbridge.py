"""Graphs as functions and modules of torch: the same memory, gradients, second derivatives, modes, messages."""

import copy
import io
import pickle
from pathlib import Path

import numpy as np
import pytest

from puregraph import models
from puregraph.core.errors import AutoDiffException, DataError, DtypeError, GraphError, PuregraphError, ShapeError
from puregraph.core.param import FixedState
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import Add, BatchNorm, Dropout, Embedder, Flatten, Linear, Relu, Sigmoid, Split, Tanh
from puregraph.torch import asArray, asModule, asTensor

pytestmark = pytest.mark.peers
torch = pytest.importorskip("torch")

NETWORKS = {  # each in a small size: the graph, the shapes of its inputs, and the ends of whole numbers
    "lenet": (lambda: models.lenet(size=8, maps=(2, 3)), [(2, 1, 8, 8)]),
    "mlp": (lambda: models.mlp(5, (4, 3), 2), [(3, 5)]),
    "lstm": (lambda: models.lstm(3, 2, classes=2), [(2, 3, 3)]),
    "transformer": (lambda: models.transformer(1, 4, 2, causal=True), [(2, 3, 4)]),
    "gpt": (lambda: models.gpt(7, 4, 1, 2, 4), [(2, 3)]),
    "dlrm": (lambda: models.dlrm(3, (4, 5), 2, (3,), (3,)), [(2, 3), (2, 2)]),
    "vit": (lambda: models.vit(4, 2, 1, 2, 4, classes=3), [(2, 3, 4, 4)]),
    "unet": (lambda: models.unet(maps=2, depth=1), [(1, 1, 8, 8)]),
    "vgg11": (lambda: models.vgg11(classes=2, size=32, dropout=0.0), [(1, 3, 32, 32)]),
    "resnet20": (lambda: models.cifarResnet(8, classes=2), [(2, 3, 8, 8)]),
    "resnet18": (lambda: models.resnet18(classes=2), [(2, 3, 32, 32)]),
    "mobilenet": (lambda: models.mobilenet(classes=2, width=0.1), [(2, 3, 32, 32)]),
    "bert": (lambda: models.bert(7, 4, 1, 2, 4), [(2, 3), (2, 3), (2, 3)]),
    "llama": (lambda: models.llama(7, 1, 2, 4, 6, groups=1), [(2, 3)]),
    "t5": (lambda: models.t5(7, 1, 2, 4, 6, 2, buckets=8), [(2, 3), (2, 3), (2, 4)]),
}
SLOW = {"lenet", "resnet18", "vgg11"}
LARGE = {"lenet", "vgg11", "resnet18", "mobilenet", "resnet20", "unet"}


def tensorsFor(graph, shapes, rng, dtype=np.float64):
    """Random inputs of a graph as tensors; whole numbers where it takes indices, and masks that show every token."""
    arrays = []
    for name, shape, kind in zip(graph.arguments, shapes, graph.inputTypes(len(shapes))):
        isWhole = kind.kind in "iu" or name in ("mask", "types")
        low, high = {"mask": (1, 2), "types": (0, 2)}.get(name, (0, 4))
        arrays.append(rng.integers(low, high, shape) if isWhole else rng.standard_normal(shape).astype(dtype))
    return [torch.from_numpy(x).requires_grad_(x.dtype.kind == "f") for x in arrays]


def addresses(module, graph):
    """Pairs of addresses: of a parameter or state of the graph, and of the tensor of that path."""
    state = module.state_dict()
    stored = {path: s for path, s in {**graph.params, **graph.states}.items() if not isinstance(s, FixedState)}
    assert set(state) == set(stored) | set(graph.ties)
    return [(s.array.ctypes.data, state[path].data_ptr()) for path, s in stored.items()]


# Gradients ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in NETWORKS])
def test_every_network_passes_the_check_of_gradients(name, rng):
    make, shapes = NETWORKS[name]
    graph = make().calcMode(np.float64).evalMode()
    for path, param in graph.params.items():
        if path.endswith((".b", ".bias")):  # zeros keep units behind dead ones exactly at the kink of a rectifier
            param.data[...] = rng.uniform(-0.5, 0.5, param.shape)
    module, inputs = asModule(graph), tensorsFor(graph, shapes, rng)
    params = list(module.parameters())
    fast = name in LARGE  # along one random direction, with smaller steps: many units may be near a kink
    eps = 1e-8 if fast else 1e-6
    isSmooth = torch.autograd.gradcheck(
        lambda *xs: module(*xs[: len(inputs)]), (*inputs, *params), eps=eps, atol=1e-5, fast_mode=fast
    )
    assert isSmooth


def test_the_check_covers_every_file_of_the_models():
    files = {path.stem for path in Path(models.__path__[0]).glob("*.py")} - {"__init__"}
    assert {getattr(models, name).__module__.rpartition(".")[2] for name in NETWORKS} == files


@pytest.mark.parametrize("name", ["mlp", "lenet", "transformer", "vit"])
@pytest.mark.parametrize("isCompiled", [True, False])
def test_gradients_are_those_of_the_graph(name, isCompiled, rng):
    make, shapes = NETWORKS[name]
    graph = make().trainMode()
    module, inputs = asModule(graph, isCompiled), tensorsFor(graph, shapes, rng, np.float32)
    y = module(*inputs)
    seed = torch.randn(y.shape)
    y.backward(seed)
    wanted = graph(*[asArray(x) for x in inputs])
    graph.backward(asArray(seed))
    np.testing.assert_allclose(asArray(y), wanted, atol=1e-5)
    for path, p in module.named_parameters():
        np.testing.assert_allclose(asArray(p.grad), graph.params[path].grad, atol=1e-4)
    np.testing.assert_allclose(asArray(inputs[0].grad), graph.grad, atol=1e-5)


@pytest.mark.parametrize("isCompiled", [True, False])
def test_second_derivatives_are_right_and_third_ones_refused(isCompiled, rng):
    graph = Sequential(Linear(3, 4, name="a"), Tanh(), Linear(4, 2, name="b"), Sigmoid()).calcMode(np.float64)
    module = asModule(graph, isCompiled)
    x = torch.from_numpy(rng.standard_normal((5, 3))).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x, *params: module(x), (x, *module.parameters()))
    (first,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
    with pytest.raises(AutoDiffException, match="third derivatives do not pass"):
        torch.autograd.grad(first.pow(2).sum(), x, create_graph=True)


def test_a_gradient_penalty_draws_the_mask_of_its_forward_pass(rng):
    graph = Sequential(Linear(3, 6, name="a"), Dropout(0.5), Tanh(), Linear(6, 1, name="b")).calcMode(np.float64)
    module = asModule(graph)
    x = torch.from_numpy(rng.standard_normal((4, 3))).requires_grad_()
    before = {path: np.copy(state.array) for path, state in graph.states.items()}

    def penalty(x):
        for path, state in graph.states.items():
            state.array[...] = before[path]
        (g,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        return g.pow(2).sum()

    (found,) = torch.autograd.grad(penalty(x), x)
    for index in [(0, 0), (2, 1), (3, 2)]:
        h = torch.zeros_like(x)
        h[index] = 1e-5
        wanted = (penalty((x + h).detach().requires_grad_()) - penalty((x - h).detach().requires_grad_())) / 2e-5
        assert abs(found[index] - wanted) < 1e-7


def test_several_outputs_and_those_that_nobody_reads(rng):
    x = Input((5, 6), name="x").node()
    halves = Split(axis=1, sections=(2, 4), name="halves")(x)
    graph = Graph(x, [(halves, 0), (Tanh(name="t")((halves, 1)), 0)])
    module = asModule(graph)
    t = torch.randn(5, 6, requires_grad=True)
    first, second = module(t)
    second.sum().backward(retain_graph=True)
    assert torch.equal(t.grad[:, :2], torch.zeros(5, 2))
    torch.testing.assert_close(t.grad[:, 2:], 1 - torch.tanh(t[:, 2:]).detach() ** 2)
    t.grad = None
    (first.sum() + second.sum()).backward()
    assert torch.equal(t.grad[:, :2], torch.ones(5, 2))
    with pytest.raises(RuntimeError, match="second time"):
        second.sum().backward()


def test_a_gradient_that_is_not_contiguous_is_read_right(rng):
    module = asModule(Sequential(Linear(3, 4, name="fc")))
    x = torch.randn(5, 3, requires_grad=True)
    module(x).t()[::2].expand(2, 5).sum().backward()
    wanted = module.fc.W.detach()[:, ::2].sum(1).expand(5, 3)
    torch.testing.assert_close(x.grad, wanted)


def test_whole_numbers_have_no_gradient(rng):
    module = asModule(Sequential(Embedder(9, 4, name="words"), Linear(4, 2, name="fc")))
    y = module(torch.tensor([[1, 2, 8]]))
    y.sum().backward()
    assert module.words.W.grad[3].abs().sum() == 0 and module.words.W.grad[8].abs().sum() > 0


# Memory ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_and_states_are_at_the_same_addresses(name):
    graph = NETWORKS[name][0]()
    module = asModule(graph)
    pairs = addresses(module, graph)
    assert pairs and all(a == b for a, b in pairs)
    assert [p.requires_grad for p in module.parameters()] == [p.trainable for p in graph.params.values()]


def test_inputs_and_outputs_are_not_copied(rng):
    seen = []

    class Looking(Tanh):
        def updateData(self, x):
            seen.append(x.ctypes.data)
            return super().updateData(x)

    module = asModule(Sequential(Looking(name="t")), isCompiled=False)
    x = torch.randn(300, 200)
    y = module(x)
    assert seen[-1] == x.data_ptr() and y.data_ptr() != x.data_ptr()
    assert asArray(y).ctypes.data == y.data_ptr() and asTensor(asArray(y)).data_ptr() == y.data_ptr()


def test_an_update_of_torch_is_seen_by_compiled_steps_and_the_other_way_round(rng):
    graph = Sequential(Linear(6, 5, name="a"), Relu(), Linear(5, 3, name="b")).evalMode()
    module = asModule(graph)
    program, x = graph.compile([(4, 6)], train=False), rng.standard_normal((4, 6)).astype(np.float32)
    for change in (lambda p: p.add_(0.25), lambda p: p.data.mul_(1.5), lambda p: asArray(p).__iadd__(0.5)):
        with torch.no_grad():
            change(module.a.W)
            expected = torch.relu(torch.from_numpy(x) @ module.a.W + module.a.b) @ module.b.W + module.b.b
            torch.testing.assert_close(module(torch.from_numpy(x)), expected)
        np.testing.assert_allclose(program.run(x), asArray(expected), atol=1e-5)
    graph.params["a.W"].data = np.ones((6, 5), np.float32)
    assert module.state_dict()["a.W"].sum() == 30 and all(a == b for a, b in addresses(module, graph))


def test_a_tensor_that_is_replaced_gives_its_values_to_the_graph():
    graph = Sequential(Linear(3, 2, name="fc"))
    module = asModule(graph)
    module.fc.W.data = torch.full((3, 2), 2.0)
    with torch.no_grad():
        assert torch.equal(module(torch.ones(1, 3)), torch.full((1, 2), 6.0) + module.fc.b)
    assert graph.params["fc.W"].array.sum() == 12 and all(a == b for a, b in addresses(module, graph))


def test_a_module_that_is_converted_converts_its_graph(rng):
    graph = Sequential(Linear(3, 2, name="fc"), BatchNorm(2, name="norm"))
    module = asModule(graph).double()
    assert graph.dtype == np.float64 and all(a == b for a, b in addresses(module, graph))
    y = module(torch.ones(4, 3, dtype=torch.float64))
    assert y.dtype is torch.float64
    module.float()
    assert graph.dtype == np.float32 and module(torch.ones(4, 3)).dtype is torch.float32
    with pytest.raises(PuregraphError, match="in puregraph's memory, and cannot be on meta"):
        module.to("meta")


def test_a_state_dict_goes_to_another_module_and_back(rng):
    first, second = (Sequential(Linear(3, 2, name="fc"), BatchNorm(2, name="norm")) for _ in range(2))
    module = asModule(first)
    module(torch.randn(5, 3))
    stream = io.BytesIO()
    torch.save(module.state_dict(), stream)
    stream.seek(0)
    other = asModule(second)
    other.load_state_dict(torch.load(stream))
    assert list(other.state_dict()) == [
        "fc.W",
        "fc.b",
        "norm.scale",
        "norm.bias",
        "norm.mean",
        "norm.var",
        "norm.count",
    ]
    for path in (*first.params, *first.states):
        a, b = ({**net.params, **net.states}[path].array for net in (first, second))
        np.testing.assert_array_equal(a, b)
    other.load_state_dict({k: v.clone() for k, v in module.state_dict().items()}, assign=True)
    assert all(a == b for a, b in addresses(other, second))


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_a_copy_has_a_graph_of_its_own(clone):
    module = asModule(Sequential(Linear(3, 2, name="fc")))
    module.fc.b.requires_grad_(False)
    other = clone(module)
    assert torch.equal(other.fc.W, module.fc.W) and other.fc.W.data_ptr() != module.fc.W.data_ptr()
    assert other.graph is not module.graph and not other.fc.b.requires_grad
    assert all(a == b for a, b in addresses(other, other.graph))


def test_a_parameter_of_two_modules_is_one_tensor(rng):
    fc, again = Linear(3, 3, name="fc"), Linear(3, 3, name="again")
    again.W = fc.W
    graph = Sequential(fc, Tanh(), again)
    module = asModule(graph)
    assert list(module.state_dict()) == ["fc.W", "fc.b", "again.W", "again.b"] and len(list(module.parameters())) == 3
    x = torch.randn(4, 3, requires_grad=True)
    module(x).sum().backward()
    graph.trainMode()(asArray(x))
    graph.backward(np.ones((4, 3), np.float32))
    np.testing.assert_allclose(asArray(module.fc.W.grad), graph.params["fc.W"].grad, atol=1e-5)


def test_names_that_torch_modules_have_themselves_are_no_trouble():
    graph = Sequential(Linear(2, 2, name="type"), Sequential(Linear(2, 2, name="eval"), name="graph"))
    module = asModule(graph)
    assert list(module.state_dict()) == ["type.W", "type.b", "graph.eval.W", "graph.eval.b"]
    module.eval()
    module.load_state_dict(module.state_dict())
    assert module(torch.ones(1, 2)).shape == (1, 2)


def test_parameters_of_others_are_used_where_torch_gives_them(rng):
    graph = Sequential(Linear(3, 4, name="a"), Tanh(), BatchNorm(4, name="norm"), Linear(4, 2, name="b"))
    module = asModule(graph.calcMode(np.float64)).eval()
    x = torch.from_numpy(rng.standard_normal((5, 3))).requires_grad_()
    other = {name: (p.detach() * 2).requires_grad_() for name, p in module.named_parameters()}
    before = module(x).detach()

    def call(x, *values):
        return torch.func.functional_call(module, dict(zip(other, values)), (x,))

    assert torch.autograd.gradcheck(call, (x, *other.values()))
    assert torch.autograd.gradgradcheck(call, (x, *other.values()))
    assert torch.equal(module(x), before) and not torch.equal(call(x, *other.values()), before)


# Modes ----------------------------------------------------------------------------------------------------------------


def test_train_and_eval_are_the_modes_of_the_graph(rng):
    graph = Sequential(Linear(3, 4, name="fc"), BatchNorm(4, name="norm"), Dropout(0.5, name="drop"))
    outer = torch.nn.Sequential(asModule(graph), torch.nn.Linear(4, 1))
    module, x = outer[0], torch.randn(64, 3)
    outer.eval()
    assert not graph.isTraining and not module.training and not graph["norm"].isTraining
    y = module(x)
    assert torch.equal(y, module(x)) and graph.states["norm.count"].array == 0
    y.sum().backward()
    assert module.fc.W.grad is not None and module.norm.scale.grad.abs().sum() > 0
    outer.train()
    assert graph.isTraining and module.training
    assert not torch.equal(module(x), module(x)) and module.norm.count == 2
    wanted = 0.19 * (x @ module.fc.W + module.fc.b).mean(0)
    torch.testing.assert_close(module.norm.mean, wanted.detach(), atol=1e-5, rtol=1e-4)
    graph.evalMode()
    assert not module.training


def test_a_mode_that_changes_between_forward_and_backward_is_refused():
    module = asModule(Sequential(Linear(3, 4, name="fc"), BatchNorm(4, name="norm")))
    y = module(torch.randn(5, 3))
    module.eval()
    with pytest.raises(PuregraphError, match=r"at 'fc' .*the forward pass was in trainMode"):
        y.sum().backward()


def test_what_is_modified_between_forward_and_backward_is_refused():
    module = asModule(Sequential(Linear(3, 4, name="fc"), Tanh(), Linear(4, 2, name="out")))
    x = torch.randn(5, 3, requires_grad=True)
    y = module(x)
    with torch.no_grad():
        module.out.W.add_(1.0)
    with pytest.raises(PuregraphError, match="at 'out', backward: W was modified in place since the forward pass"):
        y.sum().backward()
    y = module(x)
    with torch.no_grad():
        module.out.b.add_(1.0)  # which no gradient reads
    y.sum().backward()
    y = module(x)
    with torch.no_grad():
        x.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    for tanh in (asModule(Sequential(Tanh())), asModule(Sequential(Tanh(), Flatten()), isCompiled=False)):
        y = tanh(x)
        y.mul_(2.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    fc = asModule(Sequential(Linear(3, 4, name="fc")))
    y = fc(x)
    y.relu_()
    y.sum().backward()


# Messages -------------------------------------------------------------------------------------------------------------


def test_inputs_that_do_not_fit_are_named():
    module = asModule(Sequential(Linear(3, 4, name="fc")))
    with pytest.raises(ShapeError, match=r"at 'fc' \(Linear\): wanted \(\.\.\., 3\), got \(5, 4\)"):
        module(torch.ones(5, 4))
    with pytest.raises(DtypeError, match="the graph computes in float32, got float64") as refusal:
        module(torch.ones(5, 3, dtype=torch.float64))
    assert "x.to(torch.float32)" in "".join(
        refusal.value.__notes__ if hasattr(refusal.value, "__notes__") else refusal.value.args
    )
    with pytest.raises(DataError, match=r"wanted 1 tensor \(fc\), got 2"):
        module(torch.ones(5, 3), torch.ones(5, 3))
    with pytest.raises(DataError, match="wanted a tensor of torch, got ndarray; torch.from_numpy makes one"):
        module(np.ones((5, 3), np.float32))
    with pytest.raises(DataError, match="wanted a dense tensor"):
        module(torch.ones(5, 3).to_sparse())
    with pytest.raises(PuregraphError, match="the tensor is on meta"):
        module(torch.ones(5, 3, device="meta"))


def test_a_graph_that_is_changed_is_refused():
    graph = Sequential(Linear(3, 4, name="fc"))
    module = asModule(graph)
    graph.append(Relu(name="relu"))
    with pytest.raises(GraphError, match="was changed since asModule"):
        module(torch.ones(5, 3))


def test_inputs_by_name():
    a, b = Input((4, 3), name="a").node(), Input((4, 3), name="b").node()
    module = asModule(Graph([a, b], Add(name="sum")(a, b)))
    assert torch.equal(module(torch.ones(4, 3), b=torch.ones(4, 3)), torch.full((4, 3), 2.0))
    with pytest.raises(PuregraphError, match="wanted b, got c"):
        module(torch.ones(4, 3), c=torch.ones(4, 3))


def test_arrays_and_tensors_of_every_dtype_share_memory():
    for dtype in "float16 float32 float64 int8 int16 int32 int64 uint8 bool complex64".split():
        array = np.zeros(3, dtype)
        tensor = asTensor(array)
        assert tensor.data_ptr() == array.ctypes.data and asArray(tensor).ctypes.data == array.ctypes.data
        assert asArray(tensor).dtype == array.dtype
    ml_dtypes = pytest.importorskip("ml_dtypes")
    half = np.ones(3, ml_dtypes.bfloat16)
    tensor = asTensor(half)
    assert tensor.dtype is torch.bfloat16 and tensor.data_ptr() == half.ctypes.data and tensor.sum() == 3
    assert asArray(tensor).dtype == half.dtype and asArray(tensor).ctypes.data == half.ctypes.data
    with pytest.raises(DataError, match="read-only"):
        asTensor(np.broadcast_to(np.zeros(1), (3,)))
    with pytest.raises(DtypeError, match="no tensor for this array"):
        asTensor(np.array(["a"]))
    with pytest.raises(DataError, match="wanted an array, got list"):
        asTensor([1.0])


def test_any_library_with_dlpack_gives_tensors():
    class Other:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    array = np.zeros((2, 3), np.float32)
    assert asTensor(Other(array)).data_ptr() == array.ctypes.data
    assert np.from_dlpack(torch.from_numpy(array)).ctypes.data == array.ctypes.data
