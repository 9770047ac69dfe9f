"""Compiled updates: those of each optimizer, of several batches, and of gradients that are not finite."""

import copy

import numpy as np
import pytest
from smallsteps import batch, classifier, same
from smallsteps import plain as plain

from puregraph import (
    SGD,
    Adam,
    AdamW,
    BatchNorm,
    Cosine,
    CrossEntropy,
    Dropout,
    MomentumSGD,
    NesterovSGD,
    Optimizer,
    RMSProp,
)
from puregraph.compile import Program, Updater
from puregraph.compile.trace.withcost import withCost
from puregraph.core.errors import PuregraphError

pytestmark = pytest.mark.usefixtures("numpyOnly")


RULES = {
    "SGD": lambda: SGD(0.1),
    "SGD, decay": lambda: SGD(0.1, decay=0.01),
    "MomentumSGD, clipNorm": lambda: MomentumSGD(0.1, clipNorm=0.05),
    "NesterovSGD, clipValue": lambda: NesterovSGD(0.1, clipValue=0.01),
    "Adam, schedule": lambda: Adam(0.05, schedule=Cosine(8)),
    "AdamW, decay and clipNorm": lambda: AdamW(0.05, decay=0.1, clipNorm=0.1),
    "RMSProp, skip": lambda: RMSProp(0.05, onNonFinite="skip"),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("name", RULES)
def test_optimizers_compiled_update_as_they_do(name, dtype, rng, plain):
    net = classifier(BatchNorm(6), Dropout(0.2), dtype=dtype)
    net.params["linear.b"].decay, net.params["linear2.W"].rate = False, 0.5
    twin = copy.deepcopy(net)
    a, b = RULES[name](), RULES[name]().setupOn(twin)
    task = withCost(twin, CrossEntropy(), 1, 1)
    x, t = batch(rng, dtype=dtype)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=a, poison=True)
    for step in range(6):
        if step == 3:
            net.params["linear.b"].trainable = twin.params["linear.b"].trainable = False
        cost, _ = program.run(x, t)
        b.zeroGradParams()
        wanted = task([x, t])
        task.backward([np.ones_like(wanted[0]), None], updGrad=False)
        b.update()
        assert same(cost, wanted[0]) and a.step == b.step and a.norm == b.norm
        for path, p in net.params.items():
            assert same(p.data, twin.params[path].data), path
        assert all(same(v, b.state[k]) for k, v in a.state.items())
        x, t = batch(rng, dtype=dtype)


def test_a_step_is_left_out_where_gradients_are_not_finite(rng):
    net, (x, t) = classifier(), batch(rng)
    optimizer = Adam(0.1, onNonFinite="skip")
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=optimizer)
    before = {path: p.data.copy() for path, p in net.params.items()}
    bad = x.copy()
    bad[0, 0] = np.nan
    program.run(bad, t)
    assert optimizer.step == 0 and np.isnan(optimizer.norm)
    assert all(same(p.data, before[path]) for path, p in net.params.items())
    program.run(x, t)
    assert optimizer.step == 1
    optimizer.onNonFinite = "raise"
    with pytest.raises(PuregraphError, match="Adam: at update 1 the gradient of 'linear.W', .* is not finite"):
        program.run(bad, t)
    assert optimizer.step == 1


class Signs(Optimizer):
    """An optimizer with an update of its own."""

    rule = {"param": "param - rate * sign(grad)"}

    def update(self):
        for slot in self.slots:
            slot.param.data -= self.rate * np.sign(slot.param.grad)
        self.step += 1
        return True


def named(name, cls):
    """A class of that name, whose update goes twice as far as its rule says."""

    def update(self):
        return cls.update(self) and cls.update(self)

    update.__qualname__ = f"{name}.update"
    return type(name, (cls,), {"update": update})


@pytest.mark.parametrize("kind", [Signs, named("Optimizer", Signs)])
def test_an_optimizer_of_a_way_of_its_own_runs_as_it_is(kind, rng):
    net, (x, t) = classifier(), batch(rng)
    twin = copy.deepcopy(net)
    program = net.compile([x.shape, t.shape], cost=CrossEntropy(), optimizer=kind(0.01))
    task, optimizer = withCost(twin, CrossEntropy(), 1, 1), kind(0.01).setupOn(twin)
    for _ in range(3):
        program.run(x, t)
        wanted = task([x, t])
        task.backward([np.ones_like(wanted[0]), None])
        optimizer.update()
    assert all(same(p.data, twin.params[path].data) for path, p in net.params.items())


def test_gradients_of_several_batches_add_up(rng):
    net, (x, t) = classifier(), batch(rng)
    twin = copy.deepcopy(net)
    task, other = withCost(net, CrossEntropy(), 1, 1), withCost(twin, CrossEntropy(), 1, 1)
    options = {"grads": "one", "updGrad": False, "scaled": True}
    first = Program(task, [x.shape, t.shape], ["f8", "i8"], **options)
    later = Program(task, [x.shape, t.shape], ["f8", "i8"], added=True, **options)
    optimizer, plain = Adam(0.1).setupOn(net), Adam(0.1).setupOn(twin)
    updater = None
    for _ in range(3):
        for number, program in enumerate((first, later, later)):
            data = x + number
            program.run(data, t, scale=0.3)
            found = other([data, t])
            other.backward([np.ones_like(found[0]), None], updGrad=False, scale=0.3, momentum=float(number > 0))
            for path, p in net.params.items():
                assert same(p.grad, twin.params[path].grad), path
        updater = updater or Updater(task, optimizer)
        updater.run()
        plain.update()
        assert all(same(p.data, twin.params[path].data) for path, p in net.params.items())
    net.params["linear.W"].grad = None
    twin.params["linear.W"].grad = None
    updater.run()
    plain.update()
    assert all(same(p.data, twin.params[path].data) for path, p in net.params.items())
