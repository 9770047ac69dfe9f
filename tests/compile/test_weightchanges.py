"""After any way of changing weights, programs, Validator and Calculator give what new ones give, to the bit."""

import copy

import numpy as np
import pytest
from natively import needsNative

import puregraph as pg
from puregraph import modules
from puregraph.compile import Program
from puregraph.core.param import FixedState
from puregraph.graph.module import Module
from puregraph.models.transformer import transformerBlock
from puregraph.modules import costs
from puregraph.optimizers import SGD, Adam, AdamW, MomentumSGD, NesterovSGD, RMSProp

CLASSES = sorted(
    {c for p in (modules, costs) for c in vars(p).values() if isinstance(c, type) and issubclass(c, Module)},
    key=lambda c: c.__name__,
)
HOLDING = [(c, k) for c in CLASSES for k, (m, _) in enumerate(c.examples()) if m.params or m.states]
OPTIMIZERS = SGD, MomentumSGD, NesterovSGD, RMSProp, Adam, AdamW


def listed(value):
    return value if isinstance(value, list) else [value]


def assertEqual(found, wanted, what):
    for a, b in zip(listed(found), listed(wanted), strict=True):
        assert np.array_equal(a, b, equal_nan=True), what


# Every module ----------------------------------------------------------------------------------------------------


def oneElement(a, rng):
    a[tuple(int(rng.integers(n)) for n in a.shape)] += 3


def oneRow(a, rng):
    a[int(rng.integers(len(a))) if a.ndim else ...] *= 0


def pruned(a, rng):
    np.put(a, rng.integers(0, a.size, -(-a.size // 100)), 0)


def copied(a, rng):
    np.copyto(a, a[::-1] + 1 if a.ndim else a + 1, casting="unsafe")


def out(a, rng):
    np.add(a, 1, out=a, casting="unsafe")


def ofAView(a, rng):
    view = a.T.reshape(-1) if a.ndim < 2 else a.T[..., -1]
    view[...] = 2


IN_PLACE = oneElement, oneRow, pruned, copied, out, ofAView


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize(
    "cls, k",
    [
        pytest.param(c, k, marks=[pytest.mark.slow] * any(c is d for d, _ in HOLDING[:i]))
        for i, (c, k) in enumerate(HOLDING)
    ],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_changes_in_place_of_what_a_module_holds_are_seen(cls, k):
    module, shapes = list(cls.examples())[k]
    rng = np.random.default_rng(k)
    data = [x.astype(np.float32) if x.dtype.kind == "f" else x for x in module.sample(rng, *shapes)]
    inputs = [pg.Input().node() for _ in data]
    net = pg.Graph(inputs, module.node(*inputs)).evalMode()
    stored = [s for s in (*net.params.values(), *net.states.values()) if s.dtype.kind == "f" and s.size]
    stored = [s for s in stored if not isinstance(s, FixedState)]  # whose array nobody can write to
    held = [s.data.reshape(-1) for s in stored[:1]]  # a view from before the first run

    def program():
        return Program(net, [x.shape for x in data], [x.dtype for x in data], train=False)

    old = program()
    old.run(*data)
    for change in IN_PLACE:
        for s in stored:
            change(s.data, rng)
            assertEqual(old.run(*data), program().run(*data), change.__name__)
        for view in held:
            view[-1:] += 5
            assertEqual(old.run(*data), program().run(*data), "a view from before")
        if change is pruned:
            held.clear()


# Any way ---------------------------------------------------------------------------------------------------------


class Bench:
    """A network with weights of every kind that is kept packed, what has run on it from the start, and ways."""

    def __init__(self, kind, seed, folder):
        self.rng, self.folder = np.random.default_rng(seed), folder
        pg.seed(seed)
        self.net, shape = getattr(self, kind)()
        self.x = self.rng.standard_normal((12, *shape)).astype(np.float32)
        self.t = self.rng.integers(0, 4, 12)
        self.held = []
        self.optimizer = MomentumSGD(0.05)
        self.learner = self.net.compile(
            self.x.shape, self.t.shape, cost=pg.CrossEntropy(), optimizer=self.optimizer, train=True
        )
        self.program = self.net.compile(self.x.shape, train=False)
        self.calculator, self.validator = pg.Calculator(self.net), pg.Validator(self.net, pg.CrossEntropy())
        self.net.save(folder / "start.pg")

    def convolutional(self):
        layers = pg.Conv2D(2, 8, 3, pad=1, name="a"), pg.BatchNorm(8), pg.Relu(), pg.Conv2D(8, 8, 3, pad=1, name="b")
        end = pg.Flatten(), pg.Linear(288, 16, name="c"), pg.Relu(), pg.Linear(16, 16, name="d")
        return pg.Sequential(*layers, *end, pg.Tanh(), pg.Linear(16, 4, name="e"), name="net"), (2, 6, 6)

    def recurrent(self):
        layers = pg.GRU(6, 8, outputs="y", name="a"), pg.LSTM(8, 8, outputs="y", name="b"), pg.Flatten()
        end = pg.Linear(40, 8, name="c"), pg.Tanh(), pg.Linear(8, 8, name="d"), pg.Linear(8, 4, name="e")
        return pg.Sequential(*layers, *end, name="net"), (5, 6)

    def attending(self):
        layers = transformerBlock(8, 2, name="a"), pg.Flatten(), pg.Linear(40, 8, name="c"), pg.Gelu()
        return pg.Sequential(*layers, pg.Linear(8, 8, name="d"), pg.Linear(8, 4, name="e"), name="net"), (5, 8)

    # What is changed

    def param(self):
        params = list(self.net.params.values())
        return params[self.rng.integers(len(params))]

    def inPlace(self):
        change = IN_PLACE[self.rng.integers(len(IN_PLACE))]
        change(self.param().data, self.rng)

    def hold(self):
        data = self.param().data
        self.held.append([data, data[-1:], data.reshape(-1)[::3], memoryview(data), data.T][self.rng.integers(5)])

    def write(self):
        for view in self.held:
            np.asarray(view)[...] += 0.25

    def letGo(self):
        self.write()
        self.held.clear()

    def assign(self):
        p = self.param()
        p.data = [p.data * 1.5, np.asfortranarray(p.data), np.broadcast_to(p.data[:1], p.shape), np.ones(p.shape)][
            self.rng.integers(4)
        ]

    def scale(self):
        p = self.param()
        p.data *= 0.5

    def alike(self):
        """Two parameters of one shape."""
        d = self.net["d"]
        others = [m for n in "ab" if (m := self.net[n]) and getattr(m, "W", None) and m.W.shape == d.W.shape]
        return others or [self.net["d"]]

    def swap(self):
        d, other = (
            self.net["d"].W,
            next((p for p in self.net.params.values() if p.shape == self.net["d"].W.shape), None),
        )
        d.data, other.data = other.data, d.data

    def tie(self):
        W = self.net["d"].W
        self.net["d"].W = copy.deepcopy(W) if self.rng.integers(2) else W
        other = next((m for m in (self.net["c"], self.net["e"]) if m.W.shape == W.shape), None)
        if other is not None:
            other.W = self.net["d"].W
        self.optimizer.setupOn(self.net)

    def load(self):
        self.net.load(self.folder / "start.pg", strict=False)

    def cast(self):
        self.net.calcMode("float64").calcMode("float32")

    def sparse(self):
        """An update by any optimizer, with gradients that are zero nearly everywhere."""
        optimizer = OPTIMIZERS[self.rng.integers(len(OPTIMIZERS))](0.5).setupOn(self.net)
        for p in self.net.params.values():
            p.grad = np.zeros(p.shape, p.dtype)
            p.grad.flat[self.rng.integers(p.size)] = 1
        optimizer.update()

    def learn(self):
        x = np.where(self.rng.random(self.x.shape) < 0.02, self.x, np.float32(0))
        self.learner.run(x, self.t)

    def freeze(self):
        p = self.param()
        p.trainable = not p.trainable or sum(q.trainable for q in self.net.params.values()) < 3
        self.learn()

    def rate(self):
        self.param().rate = float(self.rng.choice([0.5, 1.0]))
        self.learn()

    def state(self):
        for s in self.net.states.values():
            if s.dtype.kind == "f":
                s.data[...] = np.abs(s.data) + 0.1

    WAYS = "inPlace inPlace hold write letGo assign scale swap tie load cast sparse learn freeze rate state".split()

    # What is to be seen

    def check(self, k, way):
        assertEqual(self.program.run(self.x), self.net.compile(self.x.shape, train=False).run(self.x), (k, way))
        if k % 10 == 9:
            new = pg.Calculator(self.net), pg.Validator(self.net, pg.CrossEntropy())
            assertEqual(self.calculator.calculate(self.x), new[0].calculate(self.x), (k, way))
            assert self.validator.validate(self.x, self.t) == new[1].validate(self.x, self.t), (k, way)
        if k % 25 == 24:
            self.checkLearning(k, way)

    def checkLearning(self, k, way):
        """A step of the old program, and of a new one on a copy."""
        net, optimizer = copy.deepcopy((self.net, self.optimizer))
        step = net.compile(self.x.shape, self.t.shape, cost=pg.CrossEntropy(), optimizer=optimizer, train=True)
        assertEqual(self.learner.run(self.x, self.t), step.run(self.x, self.t), (k, way))
        for path, stored in {**self.net.params, **self.net.states}.items():
            assertEqual(stored.data, {**net.params, **net.states}[path].data, (k, way, path))


@pytest.mark.costly
@needsNative
@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("kind", ["convolutional", "recurrent", "attending"])
@pytest.mark.parametrize(
    ("part", "count"), [(0, 25), *(pytest.param(part, 50, marks=pytest.mark.slow) for part in range(5))]
)
def test_after_any_way_of_changing_weights_all_equals_what_is_new(kind, part, count, tmp_path):
    bench = Bench(kind, part, tmp_path)
    assert len(bench.program.executable.packedWeights.weights) >= 4
    for k in range(count):
        way = bench.WAYS[bench.rng.integers(len(bench.WAYS))]
        getattr(bench, way)()
        bench.check(k, way)
