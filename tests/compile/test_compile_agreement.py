"""Compiled steps give what graphs give, to the last bit: on every model, and on 2,000 random graphs."""

import copy
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from randomgraphs import randomGraph

from puregraph import Graph, Input, Sequential, models
from puregraph.compile import Program
from puregraph.core import initial
from puregraph.modules import BatchNorm, Dropout, Linear, Relu, Tanh
from puregraph.ops.kernel import useFast

pytestmark = pytest.mark.usefixtures("numpyOnly")
SEEDS = st.integers(0, 2**63)
PARTS = [(0, 60), *[pytest.param(part, 300, marks=pytest.mark.slow) for part in range(7)]]


def listed(value):
    return value if isinstance(value, list) else [value]


def same(a, b):
    """Whether two results are equal to the last bit; None is none."""
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def passed(graph, data, grads):
    """What a graph's own passes leave: outputs, gradients of inputs and parameters, states."""
    for p in graph.params.values():
        p.grad = None
    outputs = listed(graph(data))
    graph.backward(grads if len(grads) > 1 else grads[0])
    return left(graph, outputs, listed(graph.grad))


def left(graph, outputs, grads):
    found = {f"output {i}": y for i, y in enumerate(outputs)}
    found |= {f"gradient of input {i}": g for i, g in enumerate(grads)}
    found |= {f"gradient of {path}": p.grad for path, p in graph.params.items()}
    return found | {path: s.data for path, s in graph.states.items()}


def compiled(program, data, grads):
    """The same by a program."""
    for p in program.graph.params.values():
        p.grad = None
    outputs = listed(program.run(*data, *(g for g in grads if g is not None)))
    return left(program.graph, outputs, listed(program.grad))


def agree(graph, data, grads, runs=2, **options):
    """Compile a graph, and compare several runs with those of a copy, from the same states on."""
    twin = copy.deepcopy(graph)
    given = [g is not None for g in grads]
    program = Program(graph, [x.shape for x in data], [x.dtype for x in data], grads=given, poison=True, **options)
    for _ in range(runs):
        wanted, found = passed(twin, data, grads), compiled(program, data, grads)
        assert found.keys() == wanted.keys()
        wrong = [name for name in found if not same(found[name], wanted[name])]
        assert not wrong, f"compiled, {', '.join(wrong)} are others"
        data = [x + 0.25 if x.dtype.kind == "f" else x for x in data]
    assert program.executable is not None, program.why
    return program


@pytest.mark.costly
@pytest.mark.parametrize(("part", "count"), PARTS)
def test_random_graphs_compiled_give_what_they_give(part, count):
    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(SEEDS)
    def check(seed):
        graph, shapes, wanted = randomGraph(random.Random(f"compile {part} {seed}"))
        numbers = np.random.default_rng(seed % 2**32)
        data = [numbers.standard_normal(s) for s in shapes]
        grads = [numbers.standard_normal(s) if numbers.random() < 0.8 else None for s in wanted]
        if all(g is None for g in grads):
            grads[-1] = numbers.standard_normal(wanted[-1])
        agree(graph, data, grads)

    check()


# Models ---------------------------------------------------------------------------------------------------------------


def images(*shape):
    return lambda rng: [rng.standard_normal(shape)]


def words(count, *shape):
    return lambda rng: [rng.integers(0, count, shape)]


MODELS = {
    "mlp": (lambda: models.mlp(20, (8, 8), 5, dropout=0.2), images(4, 20)),
    "lenet": (lambda: models.lenet(size=12, maps=(2, 3), norm=True, dropout=0.1), images(3, 1, 12, 12)),
    "cifarResnet": (lambda: models.cifarResnet(8), images(2, 3, 8, 8)),
    "resnet": (lambda: models.resnet18(classes=4), images(2, 3, 32, 32)),
    "mobilenet": (lambda: models.mobilenet(classes=4, width=0.25), images(2, 3, 32, 32)),
    "unet": (lambda: models.unet(1, 2, 4, 2, norm=True), images(2, 1, 16, 16)),
    "vgg": (lambda: models.vgg11(norm=True, classes=3, size=32), images(1, 3, 32, 32)),
    "lstm": (lambda: models.lstm(5, 6, 2, 3, direction="bi", dropout=0.1), images(2, 7, 5)),
    "transformer": (lambda: models.transformer(2, 8, 2, dropout=0.1), images(2, 5, 8)),
    "gpt": (lambda: models.gpt(11, 8, 2, 2, 16, dropout=0.1), words(11, 2, 7)),
    "dlrm": (
        lambda: models.dlrm(4, (5, 6, 7), 4, (8, 4), (8,)),
        lambda rng: [rng.standard_normal((3, 4)), rng.integers(0, 5, (3, 3))],
    ),
}


LARGE = ("vgg", "resnet")  # what they are built of is in the others, too


@pytest.mark.costly
@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in MODELS])
def test_models_compiled_give_what_they_give(name, train, rng):
    make, sample = MODELS[name]
    initial.seed(1)
    net = make().calcMode("float64")
    _ = net.trainMode() if train else net.evalMode()
    data = sample(rng)
    shapes = listed(net.dataShapeFrom([x.shape for x in data]))
    program = agree(net, data, [rng.standard_normal(s) for s in shapes])
    assert not [call for call in program.executable.schedule.calls if call.kind.isOpaque], "every rule can be read"


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_other_dtypes_agree_as_well(dtype, rng):
    net = Sequential(Linear(6, 5), BatchNorm(5), Relu(), Dropout(0.3), Linear(5, 3), Tanh()).calcMode(np.dtype(dtype))
    with useFast(False):  # native code may sum in another order
        agree(net, [rng.standard_normal((8, 6)).astype(dtype)], [rng.standard_normal((8, 3)).astype(dtype)], runs=3)


@pytest.mark.costly
@pytest.mark.parametrize("part", [0.9, 0.8, 0.72])
def test_what_is_made_again_to_keep_a_budget_is_the_same(part, rng):
    net = models.unet(1, 2, 4, 2, norm=True).calcMode("float64")
    data, grads = [rng.standard_normal((2, 1, 16, 16))], [rng.standard_normal((2, 2, 16, 16))]
    free = agree(net, data, grads)
    tight = agree(net, data, grads, budget=int(part * free.bytes))
    assert tight.bytes <= part * free.bytes
    assert len(tight.executable.schedule.calls) > len(free.executable.schedule.calls)


def test_a_module_at_two_nodes_changes_its_state_twice(rng):
    norm, x = BatchNorm(3), Input(name="x").node()
    net = Graph(x, [norm.node(norm.node(x)), norm.node(x, name="again")]).calcMode("float64")
    agree(net, [rng.standard_normal((6, 3))], [rng.standard_normal((6, 3)) for _ in range(2)], runs=3)
