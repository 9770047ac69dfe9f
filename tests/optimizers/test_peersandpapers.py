"""Every optimizer over 100 steps of random shapes and settings: PyTorch's steps, or those of the paper in numpy."""

import numpy as np
import pytest

from puregraph import Conv2D, Flatten, Graph, Linear, Sequential, Weight, optimizers
from puregraph.compile.updater import Updater
from puregraph.core.param import Param
from puregraph.graph.module import Module
from puregraph.optimizers.muon import orthogonal

UPDATES = 100
SEEDS = [0, 1, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20)]]
PEERS = {  # PyTorch's class; a function of rng gives our settings and PyTorch's
    "SGD": ("SGD", lambda r: pair(r, lr=(0.01, 0.2))),
    "MomentumSGD": ("SGD", lambda r: pair(r, lr=(0.01, 0.2), momRate=("momentum", 0.3, 0.95), dampening=(0, 0.6))),
    "NesterovSGD": (
        "SGD",
        lambda r: plus(pair(r, lr=(0.01, 0.2), momRate=("momentum", 0.3, 0.95)), {}, {"nesterov": True}),
    ),
    "RMSProp": (
        "RMSprop",
        lambda r: plus(
            pair(r, lr=(1e-3, 0.05), factor=("alpha", 0.5, 0.99), epsilon=("eps", 1e-6, 1e-2)),
            *both(centered=bool(r.integers(2))),
        ),
    ),
    "RMSProp with momentum": (
        "RMSprop",
        lambda r: plus(
            pair(r, lr=(1e-3, 0.05), factor=("alpha", 0.5, 0.99), momRate=("momentum", 0.1, 0.9)),
            {"centered": True, "epsilon": 1e-3},
            {"centered": True, "eps": 1e-3},
        ),
    ),
    "Adam": ("Adam", lambda r: plus(betas(r), *both(amsgrad=bool(r.integers(2))))),
    "AdamW": ("AdamW", lambda r: plus(betas(r), *both(amsgrad=bool(r.integers(2))))),
    "Adamax": ("Adamax", lambda r: betas(r)),
    "NAdam": (
        "NAdam",
        lambda r: plus(mixed(betas(r), pair(r, psi=("momentum_decay", 1e-3, 1e-2))), *decoupled(bool(r.integers(2)))),
    ),
    "RAdam": ("RAdam", lambda r: plus(betas(r), *decoupled(bool(r.integers(2))))),
    "AdaGrad": (
        "Adagrad",
        lambda r: pair(
            r,
            lr=(0.01, 0.2),
            epsilon=("eps", 1e-10, 1e-6),
            rateDecay=("lr_decay", 0, 0.5),
            startSquares=("initial_accumulator_value", 0.01, 0.1),
        ),
    ),
    "AdaDelta": ("Adadelta", lambda r: pair(r, lr=(0.1, 1), rho=(0.5, 0.99), epsilon=("eps", 1e-7, 1e-5))),
    "ASGD": (
        "ASGD",
        lambda r: pair(r, lr=(0.01, 0.05), shrinking=("lambd", 1e-4, 0.1), alpha=(0.5, 1), begin=("t0", 10, 60)),
    ),
    "Rprop": (
        "Rprop",
        lambda r: (
            {"learnRate": 0.013, "fall": 0.4, "rise": 1.3, "least": 2e-6, "most": 0.5},
            {"lr": 0.013, "etas": (0.4, 1.3), "step_sizes": (2e-6, 0.5)},
        ),
    ),
    "Adafactor": (
        "Adafactor",
        lambda r: pair(r, lr=(1e-3, 0.1), fading=("beta2_decay", -1, -0.5), clip=("d", 1, 2)),
    ),
}
NODECAY = {"Rprop"}  # of PyTorch's


def pair(rng, **ranges):
    """Random settings from ranges: ours, and PyTorch's, whose name stands first where it differs."""
    ours, theirs = {}, {}
    for name, (*other, low, high) in ranges.items():
        value = float(rng.uniform(low, high))
        ours["learnRate" if name == "lr" else name] = value
        theirs[other[0] if other else name] = value
    return ours, theirs


def plus(settings, ours, theirs):
    return {**settings[0], **ours}, {**settings[1], **theirs}


def mixed(one, other):
    return plus(one, *other)


def both(**settings):
    return settings, settings


def decoupled(value):
    return {"decoupled": value}, {"decoupled_weight_decay": value}


def betas(rng):
    rate, beta1, beta2, eps = (
        rng.uniform(1e-3, 0.05),
        rng.uniform(0.5, 0.95),
        rng.uniform(0.9, 0.999),
        10.0 ** -rng.integers(3, 9),
    )
    return (
        {"learnRate": rate, "beta1": beta1, "beta2": beta2, "epsilon": eps},
        {"lr": rate, "betas": (beta1, beta2), "eps": eps},
    )


class Bag(Module):
    """Parameters of random shapes."""

    def __init__(self, rng, dtype="float64"):
        super().__init__()
        for number, axes in enumerate((2, 1, 2, 0, 3)):
            shape = tuple(rng.integers(1, 8, axes).tolist())
            setattr(self, f"p{number}", Param(shape, lambda g, s: g.standard_normal(s), dtype))


def network():
    """Layers with parameters of one, two and four axes, in float64."""
    net = Sequential(Conv2D(2, 3, 3), Flatten(), Linear(27, 5), Linear(5, 1)).calcMode("float64")
    for path, param in net.params.items():
        param.data = np.random.default_rng(len(path)).standard_normal(param.shape)
    return net


def draw(net, rng):
    """New gradients."""
    for param in net.params.values():
        param.grad = np.asarray(rng.standard_normal(param.shape)).astype(param.dtype)


def caseOf(name, seed):
    return np.random.default_rng([seed, *map(ord, name)])


@pytest.fixture
def float64Scalars():
    """PyTorch's own scalars, as the rates of ASGD, in float64 instead of float32."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def peerSettings(name, rng):
    """Random settings of an optimizer: ours, and PyTorch's."""
    ours, other = PEERS[name][1](rng)
    if name not in NODECAY and rng.integers(2):
        ours["decay"] = other["weight_decay"] = float(rng.uniform(0, 0.3))
    elif name == "AdamW":
        ours["decay"] = other["weight_decay"] = 0.0
    ours["maximise"] = other["maximize"] = bool(rng.integers(2))
    return ours, other


@pytest.mark.peers
@pytest.mark.usefixtures("float64Scalars")
@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_hundred_steps_are_those_of_pytorch(name, seed):
    import torch

    rng = caseOf(name, seed)
    theirs = PEERS[name][0]
    ours, other = peerSettings(name, rng)
    net = Bag(rng)
    mirror = {path: torch.tensor(p.data.copy(), requires_grad=True) for path, p in net.params.items()}
    opt = getattr(optimizers, name.split()[0])(**ours)
    opt.setupOn(net)
    peer = getattr(torch.optim, theirs)(mirror.values(), **other)
    for _ in range(UPDATES):
        draw(net, rng)
        for path, p in net.params.items():
            mirror[path].grad = torch.tensor(np.asarray(p.grad).copy())
        opt.update()
        peer.step()
        for path, p in net.params.items():
            np.testing.assert_allclose(p.data, mirror[path].detach().numpy(), rtol=1e-10, atol=1e-10, err_msg=path)


# Papers --------------------------------------------------------------------------------------------------------


def lion(w, g, s, t, o):
    m = s.get("m", 0 * w)
    new = w - o["learnRate"] * (np.sign(o["beta1"] * m + (1 - o["beta1"]) * g) + o["decay"] * w)
    s["m"] = o["beta2"] * m + (1 - o["beta2"]) * g
    return new


def smorms3(w, g, s, t, o):
    h, m, v = s.get("h", 1 + 0 * w), s.get("m", 0 * w), s.get("v", 0 * w)
    r = 1 / (h + 1)
    g = g + o["decay"] * w
    m, v = (1 - r) * m + r * g, (1 - r) * v + r * g**2
    x = m**2 / (v + o["epsilon"])
    s.update(h=1 + h * (1 - x), m=m, v=v)
    return w - g * np.minimum(o["learnRate"], x) / (np.sqrt(v) + o["epsilon"])


def graves(w, g, s, t, o):
    g = g + o["decay"] * w
    v = o["alpha"] * s.get("v", 0 * w) + (1 - o["alpha"]) * g**2
    m = o["alpha"] * s.get("m", 0 * w) + (1 - o["alpha"]) * g
    d = o["momRate"] * s.get("d", 0 * w) - o["learnRate"] * g / np.sqrt(v - m**2 + o["epsilon"])
    s.update(v=v, m=m, d=d)
    return w + d


def lamb(w, g, s, t, o):
    m = o["beta1"] * s.get("m", 0 * w) + (1 - o["beta1"]) * g
    v = o["beta2"] * s.get("v", 0 * w) + (1 - o["beta2"]) * g**2
    s.update(m=m, v=v)
    r = m / (1 - o["beta1"] ** t) / (np.sqrt(v / (1 - o["beta2"] ** t)) + o["epsilon"]) + o["decay"] * w
    over, under = np.linalg.norm(w.reshape(-1)), np.linalg.norm(r.reshape(-1))
    return w - o["learnRate"] * (over / under if over > 0 and under > 0 else 1.0) * r


def lars(w, g, s, t, o):
    g = g + o["decay"] * w
    over, under = np.linalg.norm(w.reshape(-1)), np.linalg.norm(g.reshape(-1))
    local = o["trust"] * over / under if over > 0 and under > 0 else 1.0
    s["v"] = o["momRate"] * s.get("v", 0 * w) + o["learnRate"] * local * g
    return w - s["v"]


def scheduleFree(w, g, s, t, o):
    z, x, v = s.get("z", w), s.get("x", w), s.get("v", 0 * w)
    rates = [o["learnRate"] * min(1, i / max(1, o["warmUp"])) for i in range(1, t + 1)]
    v = o["beta2"] * v + (1 - o["beta2"]) * g**2
    z = z - rates[-1] * (g / (np.sqrt(v / (1 - o["beta2"] ** t)) + o["epsilon"]) + o["decay"] * w)
    c = rates[-1] ** 2 / sum(rate**2 for rate in rates)
    x = (1 - c) * x + c * z
    s.update(z=z, x=x, v=v)
    return (1 - o["beta1"]) * z + o["beta1"] * x


def muon(w, g, s, t, o):
    w = w - o["learnRate"] * o["decay"] * w
    if w.ndim < 2:
        m = 0.9 * s.get("m", 0 * w) + 0.1 * g
        v = 0.999 * s.get("v", 0 * w) + 0.001 * g**2
        s.update(m=m, v=v)
        return w - o["learnRate"] * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    s["m"] = o["momRate"] * s.get("m", 0 * w) + (1 - o["momRate"]) * g
    x = ((1 - o["momRate"]) * g + o["momRate"] * s["m"]).reshape(len(w), -1)
    size = 0.2 * np.sqrt(max(x.shape))
    x = x / max(np.linalg.norm(x), 1e-7)
    for _ in range(5):
        u, values, v = np.linalg.svd(x, full_matrices=False)
        x = u * (3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5) @ v
    return w - o["learnRate"] * size * x.reshape(w.shape)


PAPERS = {
    "Lion": (lion, {"learnRate": (1e-3, 1e-2), "beta1": (0.5, 0.95), "beta2": (0.9, 0.999)}),
    "SMORMS3": (smorms3, {"learnRate": (1e-3, 1e-1), "epsilon": (1e-12, 1e-8)}),
    "RMSPropGraves": (
        graves,
        {"learnRate": (1e-4, 1e-2), "alpha": (0.5, 0.95), "momRate": (0.3, 0.9), "epsilon": (1e-4, 1e-3)},
    ),
    "LAMB": (
        lamb,
        {"learnRate": (1e-3, 1e-2), "beta1": (0.5, 0.95), "beta2": (0.9, 0.999), "epsilon": (1e-8, 1e-6)},
    ),
    "LARS": (lars, {"learnRate": (1e-2, 1), "momRate": (0.3, 0.9), "trust": (1e-3, 1e-2)}),
    "ScheduleFree": (
        scheduleFree,
        {"learnRate": (1e-3, 1e-2), "beta1": (0.5, 0.95), "beta2": (0.9, 0.999), "epsilon": (1e-8, 1e-6)},
    ),
    "Muon": (muon, {"learnRate": (1e-3, 1e-2), "momRate": (0.5, 0.95)}),
}


def paperSettings(name, rng):
    """Random settings of an optimizer."""
    options = {key: float(rng.uniform(*ends)) for key, ends in PAPERS[name][1].items()}
    options["decay"] = float(rng.uniform(0, 0.3)) * int(rng.integers(2))
    if name == "ScheduleFree":
        options["warmUp"] = int(rng.integers(0, 40))
    return options


@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_hundred_steps_are_those_of_the_paper(name, seed):
    rng = caseOf(name, seed)
    formula, options = PAPERS[name][0], paperSettings(name, rng)
    net = Bag(rng)
    mirror = {path: np.array(p.data) for path, p in net.params.items()}
    states = {path: {} for path in mirror}
    opt = getattr(optimizers, name)(**options).setupOn(net)
    for t in range(1, UPDATES + 1):
        draw(net, rng)
        grads = {path: np.array(p.grad) for path, p in net.params.items()}
        opt.update()
        for path, p in net.params.items():
            mirror[path] = formula(mirror[path], grads[path], states[path], t, options)
            np.testing.assert_allclose(p.data, mirror[path], rtol=1e-9, atol=1e-10, err_msg=path)


# Every one ------------------------------------------------------------------------------------------------------

EVERY = [
    name
    for name in optimizers.__all__
    if isinstance(getattr(optimizers, name), type)
    and issubclass(getattr(optimizers, name), optimizers.Optimizer)
    and name not in ("Optimizer", "MultiOptimizer", "SAM", "LBFGS")
]
AVERAGES = [None, optimizers.EMA(0.9), optimizers.SWA(3, 2), optimizers.Lookahead(3)]


def optimizerFor(name, rng, average=None):
    average = None if name in ("ASGD", "ScheduleFree") else average
    decay = {"decay": 0.1} if rng.integers(2) else {}
    return getattr(optimizers, name)(**decay, average=average)


@pytest.mark.parametrize("name", [*PEERS, *PAPERS])
@pytest.mark.parametrize("seed", SEEDS[1:])
def test_a_hundred_compiled_steps_are_eager_ones(name, seed):
    """With the settings and shapes that are compared with PyTorch and the papers."""
    nets = []
    for isCompiled in (False, True):
        rng = caseOf(name, seed)
        options = peerSettings(name, rng)[0] if name in PEERS else paperSettings(name, rng)
        params = Bag(rng).params
        net = Graph([], [Weight(p.shape, name=path).node() for path, p in params.items()]).calcMode("float64")
        for p in net.params.values():
            p.data = rng.standard_normal(p.shape)
        opt = getattr(optimizers, name.split()[0])(**options).setupOn(net)
        draw(net, rng)
        updater = Updater(net, opt) if isCompiled else None
        for _ in range(UPDATES):
            draw(net, rng)
            updater.run() if isCompiled else opt.update()
        nets.append(net)
    assert updater.why == ""
    for path, p in nets[0].params.items():
        np.testing.assert_allclose(nets[1].params[path].data, p.data, rtol=1e-10, atol=1e-10, err_msg=path)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("average", AVERAGES, ids=["plain", "EMA", "SWA", "Lookahead"])
def test_a_compiled_update_is_an_eager_one(name, average):
    nets = []
    for isCompiled in (False, True):
        rng = caseOf(name, 0)
        net = network()
        opt = optimizerFor(name, rng, average)
        opt.setupOn(net)
        draw(net, rng)
        updater = Updater(net, opt) if isCompiled else None
        for _ in range(12):
            draw(net, rng)
            updater.run() if isCompiled else opt.update()
        nets.append((net, opt))
    (one, first), (other, second) = nets
    assert updater.why == "" and "OpaqueOptimizer" not in updater.table()
    for path, p in one.params.items():
        np.testing.assert_allclose(other.params[path].data, p.data, rtol=1e-12, atol=1e-13, err_msg=path)
    for key, array in first.state.items():
        np.testing.assert_allclose(second.state[key], array, rtol=1e-12, atol=1e-13, err_msg=key)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("average", AVERAGES, ids=["plain", "EMA", "SWA", "Lookahead"])
def test_a_restored_optimizer_goes_on_with_the_same_bits(name, dtype, average):
    rng = caseOf(name, 1)
    net = Bag(rng, dtype)
    opt = optimizerFor(name, rng, average).setupOn(net)
    saved = {}
    for step in range(1, 9):
        draw(net, np.random.default_rng(step))
        opt.update()
        state = {key: array.copy() for key, array in opt.state.items()}
        saved[step] = {path: p.data.copy() for path, p in net.params.items()}, state
    for stop in (1, int(rng.integers(2, 7)), 7):
        other = Bag(caseOf(name, 2), dtype)
        weights, state = saved[stop]
        for path, array in weights.items():
            setattr(other, path, Param(array.shape, lambda g, s: np.zeros(s), dtype))
            other.params[path].data = array.copy()
        again = type(opt)(**opt.initArgs[1]).setupOn(other)
        again.restore(stop, {key: array.copy() for key, array in state.items()})
        for step in range(stop + 1, 9):
            draw(other, np.random.default_rng(step))
            again.update()
        for path, array in saved[8][0].items():
            np.testing.assert_array_equal(array, other.params[path].data, err_msg=path)
        for key, array in saved[8][1].items():
            np.testing.assert_array_equal(array, again.state[key], err_msg=key)


@pytest.mark.parametrize("shape", [(64, 256), (300, 64), (64, 64), (3, 5)])
def test_matrices_of_muon_in_float32_are_those_of_the_singular_values(shape, rng):
    """Also where the singular values are from 1e-6 to 1: in bfloat16, which the paper uses, the error is above 1e-2."""
    u, _, v = np.linalg.svd(rng.standard_normal(shape), full_matrices=False)
    for values in (rng.random(min(shape)), 10.0 ** rng.uniform(-6, 0, min(shape)), np.arange(min(shape)) < 2):
        x = (u * values) @ v
        wanted = values / np.linalg.norm(x)
        for _ in range(5):
            wanted = 3.4445 * wanted - 4.7750 * wanted**3 + 2.0315 * wanted**5
        error = np.linalg.norm(orthogonal(x.astype(np.float32)) - (u * wanted) @ v, 2)
        assert error < 2e-3, error
        assert np.linalg.norm(orthogonal(x) - (u * wanted) @ v, 2) < 1e-11
