"""The activations: pointwise, by the formula that each declares."""

from puregraph.core.arguments import Flag, Number
from puregraph.graph.pointwise import Pointwise


class Relu(Pointwise):
    """y = max(x, 0); its derivative at 0 is 0.

    Shapes    x (any) -> y the same
    Source    Nair, Hinton 2010, Rectified Linear Units Improve Restricted Boltzmann Machines, section 2
    """

    gives = "no negatives"
    formula = "relu(x)"


class LeakyRelu(Pointwise):
    """y = x if x > 0 else slope x; its derivative at 0 is the slope.

    Shapes    x (any) -> y the same
    Source    Maas, Hannun, Ng 2013, Rectifier Nonlinearities Improve Neural Network Acoustic Models, eq. 2
    """

    formula = "where(x > 0, x, slope * x)"

    def __init__(self, slope: Number = 0.01, name=None):
        super().__init__(name, slope=slope)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(slope=0.2), [(2, 3)]
        yield cls(slope=0.0), [(5,)]


class Elu(Pointwise):
    """y = x if x > 0 else alpha (e^x - 1)

    Shapes    x (any) -> y the same
    Source    Clevert, Unterthiner, Hochreiter 2016, arXiv:1511.07289, eq. 15
    """

    formula = "where(x > 0, x, alpha * expm1(x))"

    def __init__(self, alpha: Number = 1.0, name=None):
        super().__init__(name, alpha=alpha)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(alpha=0.5), [(2, 3)]


class Gelu(Pointwise):
    """y = x P(X <= x) for standard normal X = x/2 erfc(-x / sqrt 2), or its approximation by a tanh.

    `approximate`: y = x s(2 sqrt(2 / pi) (x + 0.044715 x^3)), s(z) = 1 / (1 + exp(-z)), off by less than 0.0005. The
    equal x/2 (1 + tanh(z / 2)) would lose all digits below -4.

    Shapes    x (any) -> y the same
    Source    Hendrycks, Gimpel 2016, arXiv:1606.08415, section 2
    """

    formula = "0.5 * x * erfc(-x / sqrt(2))"
    approximation = "x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x ** 3))"

    def __init__(self, approximate: Flag = False, name=None):
        super().__init__(name, self.approximation if approximate else None)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(approximate=True), [(2, 3)]


class Swish(Pointwise):
    """y = x / (1 + e^(-beta x))

    Shapes    x (any) -> y the same
    Source    Ramachandran, Zoph, Le 2018, arXiv:1710.05941, section 4; Elfwing, Uchibe, Doya 2018, arXiv:1702.03118
    """

    formula = "x * sigmoid(beta * x)"

    def __init__(self, beta: Number = 1.0, name=None):
        super().__init__(name, beta=beta)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(beta=1.7), [(2, 3)]


class HardSwish(Pointwise):
    """y = x min(max(x + 3, 0), 6) / 6

    The derivative is 0 at -3 and 1 at 3, as PyTorch's.

    Shapes    x (any) -> y the same
    Source    Howard et al. 2019, Searching for MobileNetV3, arXiv:1905.02244, section 5.2
    """

    formula = "where(x < 3, x * relu(minimum(x, 3) + 3) / 6, x)"

    def __init__(self, name=None):
        super().__init__(name)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(), [(3, 2, 2)]


class Sigmoid(Pointwise):
    """y = 1 / (1 + e^-x)

    Shapes    x (any) -> y the same
    Source    Rumelhart, Hinton, Williams 1986, Nature 323, eq. 2
    """

    gives = "probabilities"
    formula = "sigmoid(x)"


class Tanh(Pointwise):
    """y = tanh x = (e^x - e^-x) / (e^x + e^-x)

    Shapes    x (any) -> y the same
    Source    LeCun, Bottou, Orr, Mueller 1998, Efficient BackProp, section 4.4
    """

    formula = "tanh(x)"


class SoftPlus(Pointwise):
    """y = ln(1 + e^x), which neither overflows nor cuts small values off.

    Shapes    x (any) -> y the same
    Source    Dugas, Bengio, Belisle, Nadeau, Garcia 2001, Incorporating Second-Order Functional Knowledge, eq. 4
    """

    formula = "softplus(x)"
