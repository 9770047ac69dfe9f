"""A module of your own in three sizes: a formula, a function with a gradient of your choice, a class with rules.

    python examples/custommodule.py            a few seconds
    python examples/custommodule.py --small    a few steps of training

All three stand in one network that tells two spirals apart. It is checked, trained, saved and loaded again.
"""

import sys

import numpy as np

import puregraph
from puregraph import (
    Accuracy,
    Adam,
    Calculator,
    CheckError,
    Cosine,
    CrossEntropy,
    Function,
    Graph,
    Input,
    Linear,
    Module,
    Param,
    Pointwise,
    Trainer,
    Validator,
    checkModule,
    registerModule,
    seed,
)
from puregraph.graph.analysis.summary import summary
from puregraph.core.errors import need

EPOCHS = 4 if "--small" in sys.argv else 200


@registerModule
class SquaredRelu(Pointwise):
    """y = max(x, 0)^2, So et al. 2021, arXiv:2109.08668. The formula is all there is to write."""

    formula = "maximum(x, 0) ** 2"


@registerModule
class Quantise(Function):
    """y = round(8 x) / 8, with the gradient of y = x, Bengio et al. 2013, arXiv:1308.3432, section 4."""

    @staticmethod
    def forward(ctx, x):
        return np.round(8 * x) / 8

    @staticmethod
    def backward(ctx, grad):
        return grad

    @staticmethod
    def dataShapeFrom(x):
        return x


@registerModule
class RMSNorm(Module):
    """y = scale x f,   f = 1 / sqrt(mean(x^2) + epsilon), the mean over the last axis

    Shapes    x (..., size), scale (size,) -> y as x
    Source    Zhang, Sennrich 2019, arXiv:1910.07467, eq. 4
    Raises    ShapeError if the last axis of x is not `size`
    """

    reads = ("x", "scale", "f")
    hidden = ("f",)

    def __init__(self, size, epsilon=1e-5, name=None):
        super().__init__(name)
        self.epsilon = epsilon
        self.scale = Param((size,), "ones")

    def dataShapeFrom(self, x):
        need(x[-1:] == self.scale.shape, ("...", *self.scale.shape), x)
        return x

    def hiddenShapeFrom(self, x):
        return [(*x[:-1], 1)]

    def updateData(self, x, scale):
        f = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.epsilon)
        return scale * x * f, f

    def updateGrad(self, grad, x, scale, y, f):
        d = grad * scale
        dx = f * (d - x * f * f * np.mean(d * x, axis=-1, keepdims=True))
        return dx, (grad * x * f).sum(axis=tuple(range(x.ndim - 1)))

    @classmethod
    def examples(cls):
        yield cls(4), [(3, 4)]
        yield cls(5, epsilon=1e-3), [(2, 3, 5)]


class Hasty(RMSNorm):
    """RMSNorm with a mistake: f is taken for a constant."""

    def updateGrad(self, grad, x, scale, y, f):
        return grad * scale * f, (grad * x * f).sum(axis=tuple(range(x.ndim - 1)))


def spirals(count, rng):
    """Points (n, 2) on two arms of a spiral, and which arm each is on."""
    arm = rng.integers(0, 2, count)
    turn = 3 * np.sqrt(rng.random(count))
    angle = np.pi * (turn + arm)
    points = turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1) / 3
    return (points + 0.02 * rng.standard_normal((count, 2))).astype(np.float32), arm


def build():
    """Two hidden layers, each followed by one of the modules above."""
    x = Input(name="x").node()
    h = RMSNorm(64, name="norm1")(SquaredRelu(name="act1")(Linear(2, 64, name="fc1")(x)))
    h = RMSNorm(64, name="norm2")(SquaredRelu(name="act2")(Linear(64, 64, name="fc2")(h)))
    return Graph(x, Linear(64, 2, name="fc3")(Quantise.node(h, name="round")), name="spirals")


def main():
    for cls in (SquaredRelu, RMSNorm):
        for module, shapes in cls.examples():
            checkModule(module, shapes)
        print(f"{cls.__name__} keeps every promise of a module")
    try:
        checkModule(Hasty(4), [(3, 4)])
    except CheckError as error:
        print(f"Hasty does not: {error}\n")

    seed(0)
    net = build()
    print(summary(net, ("N", 2)))
    rng = np.random.default_rng(0)
    data, target = spirals(1000, rng)
    test = spirals(500, rng)

    optimizer = Adam(1e-2, schedule=Cosine(EPOCHS * 10))
    trainer = Trainer(net, CrossEntropy(), optimizer, 100, metrics=[Accuracy()], progress="none")
    trainer.train(data, target, epochs=EPOCHS)
    score = Validator(net, CrossEntropy(), [Accuracy()]).validate(*test)["accuracy"]
    print(f"\naccuracy on new points after {EPOCHS} epochs: {score:.3f}")

    net.save("spirals.h5")
    again = puregraph.load("spirals.h5")
    same = np.array_equal(Calculator(again).calculate(test[0]), Calculator(net).calculate(test[0]))
    print(f"written: spirals.h5; loaded, its outputs are {'the same' if same else 'different'}, bit for bit")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
