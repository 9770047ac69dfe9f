"""Small runs whose outcome is one hash: run in this process, or by scripts that are launched as several."""

import hashlib
import json
from functools import cache

import numpy as np
from launched import length

import puregraph
from puregraph import (
    EMA,
    LAMB,
    LBFGS,
    SAM,
    SWA,
    Accuracy,
    Adafactor,
    Adam,
    BatchNorm,
    Conv2D,
    CrossEntropy,
    Dropout,
    Flatten,
    Linear,
    Lookahead,
    MaxPool2D,
    MomentumSGD,
    MultiOptimizer,
    Muon,
    Optimizer,
    Relu,
    Sequential,
    Trainer,
    Transpose,
    optimizers,
)
from puregraph.distributed.sharding.shardedstate import wholeState
from puregraph.models import gpt, mlp

GRAINS = {"grains": 8, "progress": "none"}


def perceptron(**options):
    """An MLP, trained with clipped gradients."""
    puregraph.seed(1)
    rng = np.random.default_rng(1)
    net = Sequential(Linear(10, 16), Relu(), Linear(16, 4))
    given = {"batchsize": 16, "metrics": [Accuracy()], **GRAINS, **options}
    trainer = Trainer(net, CrossEntropy(), Adam(1e-2, clipNorm=0.5), **given)
    return trainer, rng.standard_normal((72, 10)).astype(np.float32), rng.integers(0, 4, 72)


def several(**options):
    """The same with an optimizer for weights and another one for biases, whose states differ, and whole batches alone."""
    trainer, data, target = perceptron(**{"dropLast": True, **options})
    trainer.optimizer = MultiOptimizer({"*.b": MomentumSGD(1e-2), "*": Adam(1e-2)}, clipNorm=0.5)
    return trainer, data, target


def matrices(**options):
    """The same with rules of arrays, which update no parameter in part, and averages that are validated."""
    trainer, data, target = perceptron(**options)
    rules = {"linear.W": Muon(1e-2, average=EMA(0.9)), "*.W": Adafactor(1e-2), "linear.b": LAMB(average=SWA(2))}
    trainer.optimizer = MultiOptimizer({**rules, "*": Adam(1e-2, average=Lookahead(3))}, clipNorm=0.5)
    return trainer, data, target


def sharpness(**options):
    """The same with steps that take two gradients."""
    trainer, data, target = perceptron(**options)
    trainer.optimizer = SAM(Adam(1e-2))
    return trainer, data, target


def quasiNewton(**options):
    """The convolutional network, in steps that take as many gradients as a line search asks for."""
    trainer, data, target = convolutional(**options)
    trainer.optimizer = LBFGS(iterations=3, lineSearch="wolfe")
    return trainer, data, target


def accumulated(**options):
    """The same, with steps of three batches."""
    return perceptron(**{"accumulate": 3, **options})


def convolutional(**options):
    """A network with all that depends on the whole batch: statistics, masks, a smaller last batch."""
    puregraph.seed(2)
    rng = np.random.default_rng(2)
    net = Sequential(
        Conv2D(1, 4, 3), BatchNorm(4), Relu(), MaxPool2D(2, 2), Flatten(), Dropout(0.3), Linear(36, 4), name="net"
    )
    given = {"batchsize": 20, "metrics": [Accuracy()], **GRAINS, **options}
    trainer = Trainer(net, CrossEntropy(), MomentumSGD(1e-2), **given)
    return trainer, rng.standard_normal((76, 1, 8, 8)).astype(np.float32), rng.integers(0, 4, 76)


def synchronized(**options):
    """A network whose batches are normalised as a whole."""
    puregraph.seed(4)
    rng = np.random.default_rng(4)
    net = Sequential(
        Conv2D(1, 4, 3), BatchNorm(4, synchronized=True), Relu(), Flatten(), Dropout(0.3), Linear(144, 4), name="net"
    )
    given = {"batchsize": 20, "metrics": [Accuracy()], **GRAINS, **options}
    trainer = Trainer(net, CrossEntropy(), Adam(1e-2, clipNorm=1.0), **given)
    return trainer, rng.standard_normal((70, 1, 8, 8)).astype(np.float32), rng.integers(0, 4, 70)


def vectors(**options):
    """The hash of a network whose grains have one vector or none, which no BatchNorm takes alone."""
    puregraph.seed(0)
    rng = np.random.default_rng(0)
    net = Sequential(Linear(6, 5), BatchNorm(5, synchronized=True), Relu(), Linear(5, 3))
    trainer = Trainer(net, CrossEntropy(), Adam(1e-2, clipNorm=0.5), **{"batchsize": 8, **GRAINS, **options})
    trainer.train(rng.standard_normal((20, 6)).astype(np.float32), rng.integers(0, 3, 20), epochs=4)
    return hashOf(trainer)


def language(**options):
    """A GPT of two layers."""
    puregraph.seed(3)
    rng = np.random.default_rng(3)
    net = Sequential(gpt(17, 6, layers=2, heads=2, size=8, dropout=0.1), Transpose((0, 2, 1)), name="net")
    trainer = Trainer(net, CrossEntropy(), Adam(1e-3), **{"batchsize": 8, **GRAINS, **options})
    tokens = rng.integers(0, 17, (24, 7))
    return trainer, tokens[:, :-1], tokens[:, 1:]


def inParts(**options):
    """A GPT block whose layers are divided into four parts, with clipped gradients, masks and a smaller last batch."""
    puregraph.seed(8)
    rng = np.random.default_rng(8)
    net = Sequential(gpt(18, 6, layers=1, heads=4, size=16, dropout=0.1), Transpose((0, 2, 1)), name="net")
    given = {"batchsize": 16, "tensor": 4, "metrics": [Accuracy()], **GRAINS, **options}
    trainer = Trainer(net, CrossEntropy(), Adam(1e-2, clipNorm=0.5), **given)
    tokens = rng.integers(0, 18, (41, 7))
    return trainer, tokens[:, :-1], tokens[:, 1:]


def asking():
    """The hashes of runs whose optimizers ask for several gradients of a step."""
    found = []
    for trainer, data, target in (sharpness(), quasiNewton()):
        trainer.train(data, target, epochs=2, validation=(data[:20], target[:20]))
        found.append(hashOf(trainer))
    return found


def everyOptimizer(**options):
    """The hashes of three steps of the perceptron with each optimizer of the library, by its name.

    Optimizers that ask for several gradients, and several optimizers in one, have recipes of their own.
    """
    found = {}
    for name, kind in vars(optimizers).items():
        if (
            isinstance(kind, type)
            and issubclass(kind, Optimizer)
            and kind not in (Optimizer, MultiOptimizer, SAM, LBFGS)
        ):
            trainer, data, target = perceptron(**options)
            trainer.optimizer = kind(1e-2)
            trainer.train(data[:48], target[:48], validation=(data[48:], target[48:]))
            found[name] = hashOf(trainer)
    return found


def tensorAverage():
    """The hash of the same with an average that is validated."""
    trainer, data, target = inParts()
    trainer.optimizer = Adam(1e-2, average=EMA(0.9))
    trainer.train(data, target, epochs=2, validation=(data[:20], target[:20]))
    return hashOf(trainer)


def product(net, data, target, seed, **options):
    """A trainer that clips, takes steps of two batches, and has a smaller last batch: 16, 16 and 9 samples."""
    puregraph.seed(seed)
    given = {"batchsize": 16, "accumulate": 2, "metrics": [Accuracy()], **GRAINS, **options}
    return Trainer(net(), CrossEntropy(), Adam(1e-2, clipNorm=0.5), **given), data, target


def plain(**options):
    """An MLP."""
    rng = np.random.default_rng(5)
    data, target = rng.standard_normal((41, 10)).astype(np.float32), rng.integers(0, 4, 41)
    return product(lambda: mlp(10, (16,), 4), data, target, 5, **options)


def pictures(**options):
    """LeNet with BatchNorm and Dropout."""
    rng = np.random.default_rng(6)
    data, target = rng.standard_normal((41, 1, 16, 16)).astype(np.float32), rng.integers(0, 4, 41)

    def net():
        return Sequential(
            Conv2D(1, 6, 5), BatchNorm(6), Relu(), MaxPool2D(2, 2),
            Conv2D(6, 16, 3), BatchNorm(16), Relu(), MaxPool2D(2, 2),
            Flatten(), Linear(64, 24), Relu(), Dropout(0.3), Linear(24, 4),
            name="net",
        )  # fmt: skip

    return product(net, data, target, 6, **options)


def words(**options):
    """A GPT of two layers."""
    tokens = np.random.default_rng(7).integers(0, 17, (41, 7))

    def net():
        return Sequential(gpt(17, 6, layers=2, heads=2, size=8, dropout=0.1), Transpose((0, 2, 1)), name="net")

    return product(net, tokens[:, :-1], tokens[:, 1:], 7, **{"metrics": [], **options})


PRODUCT = {each.__name__: each for each in (plain, pictures, words)}


def trained(name, trainer=None, data=None, target=None, **options):
    """A trainer after thirty steps: one of the product, or one that is given, and goes on."""
    if trainer is None:
        trainer, data, target = PRODUCT[name](**options)
    trainer.train(data, target, epochs=15)
    return trainer


RECIPES = {
    each.__name__: each for each in (perceptron, several, matrices, accumulated, convolutional, synchronized, language)
}
EPOCHS = {
    "perceptron": 6,
    "several": 8,
    "matrices": 6,
    "accumulated": 15,
    "convolutional": 8,
    "synchronized": 8,
    "language": 10,
}  # of 30 steps, or a few more


def hashOf(trainer):
    """The hash of weights, states, optimizer and history."""
    found = hashlib.sha256()
    for _, stored in sorted({**trainer.net.params, **trainer.net.states}.items()):
        found.update(stored.data.tobytes())
    for _, array in sorted(wholeState(trainer.optimizer).items()):
        found.update(np.asarray(array).tobytes())
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in trainer.history]
    found.update(json.dumps(rows, sort_keys=True).encode())
    return found.hexdigest()


def outcome(name, **options):
    """The hash of a run of `length` steps or a few more, each epoch validated."""
    trainer, data, target = RECIPES[name](**options)
    trainer.train(data, target, epochs=epochsOf(name), validation=(data[:20], target[:20]))
    return hashOf(trainer)


def epochsOf(name):
    """How many epochs have `length` steps or a few more."""
    return -(-EPOCHS[name] * length() // 30)


def outcomeAlone(name):
    """The hash of a run of this process, with which those of several are compared."""
    return outcomeOf(name, length())


@cache
def outcomeOf(name, length):
    """The same, computed once for each length."""
    return outcome(name)


def outcomesAlone(names=tuple(RECIPES)):
    """The hashes of runs of this process, of all if none is named."""
    return {name: outcomeAlone(name) for name in names}


def outcomes(names=tuple(RECIPES), **options):
    """The hashes of runs, of all if none is named."""
    return {name: outcome(name, **options) for name in names}
