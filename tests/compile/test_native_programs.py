"""Programs of native code give what their graphs give: every module, the models, and random graphs."""

import copy
import random

import numpy as np
import pytest
from everymodule import NATIVEONLY, ONNUMPY, alone, isOpen
from leftovers import leftToNumpy
from natively import needsNative, unverified
from openprograms import openPrograms
from randomgraphs import randomGraph

import puregraph as pg
from puregraph import models, modules
from puregraph.compile.program import Program
from puregraph.graph.derived import Derived
from puregraph.graph.module import Module
from puregraph.modules import costs
from puregraph.optimizers import AdamW, MomentumSGD

pytestmark = needsNative

CLASSES = sorted(
    {
        c
        for p in (modules, costs)
        for c in vars(p).values()
        if isinstance(c, type) and issubclass(c, Module) and not issubclass(c, Derived)
    },
    key=lambda c: c.__name__,
)


def listed(value):
    return value if isinstance(value, list) else [value]


def asSingle(arrays):
    return [x.astype(np.float32) if x.dtype.kind == "f" else x for x in arrays]


def gradientsOf(graph):
    """The gradients of the parameters, which are forgotten."""
    found = {name: p.grad for name, p in graph.params.items()}
    for p in graph.params.values():
        p.grad = None
    return {name: None if g is None else np.array(g) for name, g in found.items()}


def eagerly(graph, data, grads):
    """Outputs, gradients and states after a pass and its way back, without a program; states are put back."""
    before = {name: np.array(s.data) for name, s in graph.states.items()}
    outputs = listed(graph(data))
    if any(g is not None for g in grads):
        graph.backward(grads if len(grads) > 1 else grads[0])
    found = {f"y{i}": y for i, y in enumerate(outputs)} | {
        f"dx{i}": g for i, g in enumerate(listed(graph.grad)) if data
    }
    found |= {f"d{n}": g for n, g in gradientsOf(graph).items()}
    found |= {n: np.array(s.data) for n, s in graph.states.items()}
    for name, s in graph.states.items():
        s.data = before[name]
    return found


def compiled(graph, data, grads):
    """The same by a program, on its second run and with poisoned memory."""
    wanted = [g is not None for g in grads]
    kinds = [x.dtype for x in data]
    program = Program(graph, [x.shape for x in data], kinds, grads=wanted if any(wanted) else None, poison=True)
    before = {name: np.array(s.data) for name, s in graph.states.items()}
    given = [*data, *[g for g in grads if g is not None]]
    program.run(*given)
    for name, s in graph.states.items():
        s.data = before[name]
    outputs = listed(program.run(*given))
    found = {f"y{i}": y for i, y in enumerate(outputs)} | {
        f"dx{i}": g for i, g in enumerate(listed(program.grad)) if data
    }
    found |= {f"d{n}": g for n, g in gradientsOf(graph).items()}
    found |= {n: np.array(s.data) for n, s in graph.states.items()}
    return program, found


def assertAlike(got, wanted, tolerance):
    assert got.keys() == wanted.keys()
    for name, b in wanted.items():
        a = got[name]
        assert (a is None) == (b is None), name
        if b is None:
            continue
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name
        if a.dtype.kind != "f":
            assert np.array_equal(a, b), name
            continue
        assert np.array_equal(np.isnan(a), np.isnan(b)), name
        scale = max(float(np.nanmax(np.abs(b), initial=0)), 1e-2)  # where numbers of size one cancel, noise is left
        assert np.nanmax(np.abs(a - b), initial=0) <= tolerance * scale, name


def wrongExamples(cls):
    """What the examples of a class get wrong when they are compiled."""
    wrong = []
    for k, (module, shapes) in enumerate(cls.examples()):
        for train in (True, False):
            try:
                compareCompiled(copy.deepcopy(module), shapes, train, np.random.default_rng(k))
            except Exception as error:
                wrong.append(f"example {k}, {'train' if train else 'eval'}: {type(error).__name__}: {error}")
    return wrong


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_every_module_compiled_gives_what_it_gives(cls):
    wrong = wrongExamples(cls)
    assert not wrong, "\n".join(wrong)


@unverified
@pytest.mark.slow
def test_every_module_made_from_a_step_with_open_sizes_gives_what_it_gives():
    with openPrograms() as counts:
        wrong = {cls.__name__: faults for cls in CLASSES if (faults := wrongExamples(cls))}
    assert not wrong, wrong
    assert counts["open"] > 2000 and counts["own"] < 0.2 * counts["open"], counts


def compareCompiled(module, shapes, train, rng):
    """A module on data of some shapes, by itself and by a program."""
    module.isTraining = train
    data = asSingle(module.sample(rng, *shapes))
    graph, data = alone(module, data)
    (graph.trainMode if train else graph.evalMode)()
    outputs = listed(graph(data))
    grads = [rng.standard_normal(y.shape).astype(y.dtype) if y.dtype.kind == "f" else None for y in outputs]
    wanted = eagerly(graph, data, grads)
    _, got = compiled(graph, data, grads)
    assertAlike(got, wanted, 2e-5)


OPENENDED = "Gather 3 "  # its indices are counted from the end first


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize(
    "cls",
    [c for c in CLASSES if not isOpen(c) and c.__name__ not in ONNUMPY - NATIVEONLY],
    ids=lambda c: c.__name__,
)
def test_no_step_of_a_module_is_left_to_numpy(cls):
    found = {}
    for k, (module, shapes) in enumerate(cls.examples()):
        for train in (True, False):
            module.isTraining = train
            data = asSingle(module.sample(np.random.default_rng(k), *shapes))
            graph, data = alone(module, data)
            (graph.trainMode if train else graph.evalMode)()
            options = {"grads": [y.dtype.kind == "f" for y in listed(graph(data))]} if train else {}
            if train and graph.params:
                options["optimizer"] = AdamW(0.1).setupOn(graph)
            program = Program(graph, [x.shape for x in data], [x.dtype for x in data], **options)
            found[f"{cls.__name__} {k} {'train' if train else 'eval'}"] = leftToNumpy(program)
    left = [f"{who}: {step}" for who, steps in found.items() if not who.startswith(OPENENDED) for step in listed(steps)]
    assert not left, "\n".join(left)


@pytest.mark.costly
@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize(
    ("part", "count"), [(0, 40), *[pytest.param(part, 100, marks=pytest.mark.slow) for part in range(4)]]
)
def test_random_graphs_compiled_are_as_exact_as_eager_ones(part, count):
    for seed in range(count):
        graph, shapes, wanted = randomGraph(random.Random(f"native {part} {seed}"))
        rng = np.random.default_rng(seed)
        data = [rng.standard_normal(s) for s in shapes]
        grads = [rng.standard_normal(s) for s in wanted]
        exact = eagerly(graph, data, grads)
        graph.calcMode("float32")
        data, grads = asSingle(data), asSingle(grads)
        eager = eagerly(graph, data, grads)
        _, found = compiled(graph, data, grads)
        assert found.keys() == exact.keys()
        for name, truth in exact.items():
            if truth is None or not np.isfinite(truth).all():
                continue
            scale = max(float(np.abs(truth).max(initial=0)), 1e-3)
            error = float(np.abs(found[name] - truth).max(initial=0)) / scale
            allowed = float(np.abs(eager[name] - truth).max(initial=0)) / scale
            assert error <= 20 * allowed + 1e-4, (part, seed, name)


def turned(node):
    return pg.Transpose((1, 0)).node(node)


def test_one_vector_added_to_rows_and_to_columns_in_one_pass():
    x, b = pg.Input().node(), pg.Input().node()
    net = pg.Graph([x, b], pg.Add().node(turned(pg.Tanh().node(pg.Add().node(x, b))), b))
    rng = np.random.default_rng(0)
    data = asSingle([rng.standard_normal((16, 16)), rng.standard_normal(16)])
    program = net.compile([(16, 16), (16,)], train=False)
    np.testing.assert_allclose(program.run(*data), np.tanh(sum(data)).T + data[1], rtol=1e-5, atol=1e-6)


def test_a_result_is_not_written_over_what_is_read_the_other_way_round():
    x, w, p = (pg.Input().node() for _ in range(3))
    total = pg.Add().node(turned(pg.Tanh().node(p)), pg.MatMul().node(x, w))
    net = pg.Graph([x, w, p], pg.Tanh().node(turned(total)))
    data = asSingle(np.random.default_rng(0).standard_normal((3, 64, 64)))
    program = net.compile([x.shape for x in data], train=False)
    np.testing.assert_allclose(program.run(*data), net(data), rtol=1e-4, atol=1e-5)


def classes(rng, count, *shape):
    return rng.integers(0, count, shape)


NETS = {
    "lenet": lambda rng: (models.lenet(), [rng.standard_normal((4, 1, 28, 28))], classes(rng, 10, 4)),
    "resnet": lambda rng: (models.resnet20(), [rng.standard_normal((4, 3, 16, 16))], classes(rng, 10, 4)),
    "mobilenet": lambda rng: (
        models.mobilenet(10, width=0.25, dropout=0.0),
        [rng.standard_normal((8, 3, 32, 32))],
        classes(rng, 10, 8),
    ),
    "unet": lambda rng: (models.unet(1, 2, 4, 2), [rng.standard_normal((2, 1, 16, 16))], classes(rng, 2, 2, 16, 16)),
    "lstm": lambda rng: (models.lstm(5, 7, 2, 3), [rng.standard_normal((3, 6, 5))], classes(rng, 3, 3)),
    "gpt": lambda rng: (
        pg.Sequential(models.gpt(20, 9, 2, 2, 8), pg.Transpose((0, 2, 1))),
        [classes(rng, 20, 3, 9)],
        classes(rng, 20, 3, 9),
    ),
}


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("name", NETS)
def test_no_step_of_a_model_is_left_to_numpy(name):
    net, data, target = NETS[name](np.random.default_rng(0))
    shapes = [x.shape for x in data]
    assert leftToNumpy(net.compile(shapes, train=False)) == []
    for optimizer in (AdamW(0.1, clipNorm=1.0), MomentumSGD(0.1, onNonFinite="skip", clipValue=1.0)):
        step = net.compile([*shapes, target.shape], cost=pg.CrossEntropy(), optimizer=optimizer.setupOn(net))
        assert leftToNumpy(step) == []


OPTIMIZERS = {"momentum": lambda: MomentumSGD(0.01, clipNorm=1.0), "AdamW": lambda: AdamW(0.001, decay=0.01)}


def smooth(net):
    """The net without kinks: a number that is zero but for rounding lies on either side of one, and so its gradient."""
    for node in net.nodes:
        if isinstance(node.module, pg.Graph):
            smooth(node.module)
        elif isinstance(node.module, pg.Relu | pg.Clip):
            node.module = pg.Swish(name=node.module.name)
    return net


def lossesOf(name, optimizer, isCompiled, change=lambda net: net):
    pg.seed(3)
    net, data, target = NETS[name](np.random.default_rng(0))
    data = asSingle(data)
    trainer = pg.Trainer(change(net), pg.CrossEntropy(), optimizer, batchsize=len(data[0]), compile=isCompiled)
    return [row["loss"] for row in trainer.train(data if len(data) > 1 else data[0], target, epochs=3)]


@pytest.mark.parametrize("optimizer", ["momentum", pytest.param("AdamW", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NETS)
def test_smooth_models_learn_the_same_compiled_and_not(name, optimizer):
    eager, compiled = (lossesOf(name, OPTIMIZERS[optimizer](), c, smooth) for c in (False, True))
    assert compiled[-1] < compiled[0]
    np.testing.assert_allclose(compiled, eager, rtol=1e-4)


@pytest.mark.parametrize("name", NETS)
def test_models_learn_alike_compiled_and_not(name):
    eager, compiled = (lossesOf(name, OPTIMIZERS["momentum"](), c) for c in (False, True))
    assert compiled[-1] < compiled[0]
    np.testing.assert_allclose(compiled[:2], eager[:2], rtol=2e-3)


def test_weights_that_are_packed_once_follow_a_change():
    net = pg.Sequential(pg.Conv2D(3, 8, 3, pad=1), pg.Relu()).evalMode()
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 9)).astype(np.float32)
    program = net.compile([x.shape], train=False)
    assert program.executable.packing is not None
    for change in (lambda W: W.__imul__(2), lambda W: W.__iadd__(0.25)):
        before = program.run(x)
        change(net[0].W.data)
        after = program.run(x)
        assert not np.array_equal(before, after)
        np.testing.assert_allclose(after, net(x), rtol=1e-4, atol=1e-5)


def test_a_single_number_of_a_packed_weight_is_seen_after_refresh():
    net = pg.Sequential(pg.Conv2D(3, 64, 3, pad=1)).evalMode()
    x = np.random.default_rng(0).standard_normal((1, 3, 5, 5)).astype(np.float32)
    program = net.compile([x.shape], train=False)
    program.run(x)
    net[0].W.data[1, 1, 1, 1] += 1
    program.refresh()
    np.testing.assert_allclose(program.run(x), net(x), rtol=1e-4, atol=1e-5)


def test_a_cost_over_many_classes_keeps_no_labels_as_ones_and_zeros():
    rows, classes = 64, 4096
    net = pg.Sequential(modules.Linear(16, classes))
    step = net.compile((rows, 16), (rows,), cost=pg.CrossEntropy(), optimizer=MomentumSGD(0.1), keepGrads=False)
    scores = 4 * rows * classes
    assert 2 * scores < step.bytes < 2.3 * scores  # beside scores, which come out: probabilities, and a gradient
