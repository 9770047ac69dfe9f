"""The activations: pointwise, by the formula that each declares, and PRelu, whose slopes are learned."""

import numpy as np

from puregraph.core.arguments import Count, Flag, NotNegative, Number, Positive
from puregraph.core.base.widen import widened
from puregraph.core.errors import need
from puregraph.core.param import Param
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.windows import channelHint, overMaps, perMap
from puregraph.ops.formula import Formula
from puregraph.ops.reduction.reference import total


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
    settings = ({}, {"slope": 0.2}, {"slope": 0.0})

    def __init__(self, slope: Number = 0.01, name=None):
        super().__init__(name, slope=slope)


class Elu(Pointwise):
    """y = x if x > 0 else alpha (e^x - 1)

    Shapes    x (any) -> y the same
    Source    Clevert, Unterthiner, Hochreiter 2016, arXiv:1511.07289, eq. 15
    """

    formula = "where(x > 0, x, alpha * expm1(x))"
    settings = ({}, {"alpha": 0.5})

    def __init__(self, alpha: Number = 1.0, name=None):
        super().__init__(name, alpha=alpha)


class Celu(Pointwise):
    """y = x if x > 0 else alpha (e^(x / alpha) - 1)

    Shapes    x (any) -> y the same
    Source    Barron 2017, Continuously Differentiable Exponential Linear Units, arXiv:1704.07483, eq. 2
    """

    formula = "where(x > 0, x, alpha * expm1(x / alpha))"
    settings = ({}, {"alpha": 0.5})

    def __init__(self, alpha: Positive = 1.0, name=None):
        super().__init__(name, alpha=alpha)


class Selu(Pointwise):
    """y = scale x if x > 0 else scale alpha (e^x - 1), which keeps mean 0 and variance 1 from layer to layer

    Shapes    x (any) -> y the same
    Source    Klambauer, Unterthiner, Mayr, Hochreiter 2017, Self-Normalizing Neural Networks, arXiv:1706.02515, eq. 2
    """

    formula = "scale * where(x > 0, x, alpha * expm1(x))"
    settings = ({}, {"alpha": 1.5, "scale": 2.0})
    SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772  # the fixed point of eq. 4 and 5

    def __init__(self, alpha: Number = ALPHA, scale: Number = SCALE, name=None):
        super().__init__(name, alpha=alpha, scale=scale)


class Gelu(Pointwise):
    """y = x P(X <= x) for standard normal X = x/2 erfc(-x / sqrt 2), or its approximation by a tanh.

    `approximate`: y = x s(2 sqrt(2 / pi) (x + 0.044715 x^3)), s(z) = 1 / (1 + exp(-z)), off by less than 0.0005. The
    equal x/2 (1 + tanh(z / 2)) would lose all digits below -4.

    Shapes    x (any) -> y the same
    Source    Hendrycks, Gimpel 2016, arXiv:1606.08415, section 2
    """

    formula = "0.5 * x * erfc(-x / sqrt(2))"
    settings = ({}, {"approximate": True})
    approximation = "x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x ** 3))"

    def __init__(self, approximate: Flag = False, name=None):
        super().__init__(name, self.approximation if approximate else None)


class Swish(Pointwise):
    """y = x / (1 + e^(-beta x))

    Shapes    x (any) -> y the same
    Source    Ramachandran, Zoph, Le 2018, arXiv:1710.05941, section 4; Elfwing, Uchibe, Doya 2018, arXiv:1702.03118
    """

    formula = "x * sigmoid(beta * x)"
    settings = ({}, {"beta": 1.7})

    def __init__(self, beta: Number = 1.0, name=None):
        super().__init__(name, beta=beta)


class QuickGelu(Pointwise):
    """y = x / (1 + e^(-1.702 x)), an approximation of Gelu

    Shapes    x (any) -> y the same
    Source    Hendrycks, Gimpel 2016, arXiv:1606.08415, section 2; CLIP: Radford et al. 2021, arXiv:2103.00020
    """

    formula = "x * sigmoid(1.702 * x)"


class Mish(Pointwise):
    """y = x tanh(ln(1 + e^x))

    Shapes    x (any) -> y the same
    Source    Misra 2019, arXiv:1908.08681, eq. 1
    """

    formula = "x * tanh(softplus(x))"


class HardSwish(Pointwise):
    """y = x min(max(x + 3, 0), 6) / 6

    The derivative is 0 at -3 and 1 at 3, as PyTorch's.

    Shapes    x (any) -> y the same
    Source    Howard et al. 2019, Searching for MobileNetV3, arXiv:1905.02244, section 5.2
    """

    formula = "where(x < 3, x * relu(minimum(x, 3) + 3) / 6, x)"


class HardSigmoid(Pointwise):
    """y = min(max(slope x + offset, 0), 1); its derivative is 0 at both bounds.

    Shapes    x (any) -> y the same
    Source    Courbariaux, Bengio, David 2015, BinaryConnect, arXiv:1511.00363, section 2.2; the slope 1/6: Howard et
              al. 2019, arXiv:1905.02244
    """

    gives = "probabilities"
    formula = "z = slope * x + offset; where(z >= 1, 1, relu(z))"
    settings = ({}, {"slope": 0.2, "offset": 0.4})

    def __init__(self, slope: Number = 1 / 6, offset: Number = 0.5, name=None):
        super().__init__(name, slope=slope, offset=offset)


class Relu6(Pointwise):
    """y = min(max(x, 0), 6); its derivative is 0 at both bounds. `Clip` has other bounds, and derivative 1 there.

    Shapes    x (any) -> y the same
    Source    Krizhevsky 2010, Convolutional Deep Belief Networks on CIFAR-10, section 2
    """

    gives = "no negatives"
    formula = "where(x >= 6, 6, relu(x))"


class SquaredRelu(Pointwise):
    """y = max(x, 0)^2

    Shapes    x (any) -> y the same
    Source    So et al. 2021, Primer, arXiv:2109.08668, section 4
    """

    gives = "no negatives"
    formula = "square(relu(x))"


class Threshold(Pointwise):
    """y = x if x > threshold else value; its derivative at the threshold is 0.

    Shapes    x (any) -> y the same
    Source    Glorot, Bordes, Bengio 2011, Deep Sparse Rectifier Neural Networks; ONNX operator ThresholdedRelu
    """

    formula = "where(x <= threshold, value, x)"
    settings = ({"threshold": 0.3}, {"threshold": -0.5, "value": 2.0})

    def __init__(self, threshold: Number, value: Number = 0.0, name=None):
        super().__init__(name, threshold=threshold, value=value)


class _Shrink(Pointwise):
    """Base class of activations that are 0 from -lambd to lambd, with derivative 0 at both."""

    settings = ({}, {"lambd": 0.1})

    def __init__(self, lambd: NotNegative = 0.5, name=None):
        super().__init__(name, lambd=lambd)


class HardShrink(_Shrink):
    """y = 0 if |x| <= lambd else x

    Shapes    x (any) -> y the same
    Source    Donoho, Johnstone 1994, Ideal Spatial Adaptation by Wavelet Shrinkage, eq. 10; ONNX operator Shrink
    """

    formula = "where(abs(x) <= lambd, 0, x)"


class SoftShrink(_Shrink):
    """y = 0 if |x| <= lambd else x - lambd sign x

    Shapes    x (any) -> y the same
    Source    Donoho, Johnstone 1994, Ideal Spatial Adaptation by Wavelet Shrinkage, eq. 11; ONNX operator Shrink
    """

    formula = "where(abs(x) <= lambd, 0, where(x > 0, x - lambd, x + lambd))"


class TanhShrink(Pointwise):
    """y = x - tanh x, with derivative tanh(x)^2

    Shapes    x (any) -> y the same
    Source    Collobert, Kavukcuoglu, Farabet 2011, Torch7
    """

    formula = "x - tanh(x)"
    back = staticmethod(Formula("grad * square(tanh(x))").numpy(("grad", "x")))

    def updateGrad(self, grad, x, y):  # the derived one, grad - grad * (1 - tanh(x)^2), loses digits near 0
        return self.back(grad, x)


class SoftSign(Pointwise):
    """y = x / (1 + |x|)

    Shapes    x (any) -> y the same
    Source    Bergstra, Desjardins, Lamblin, Bengio 2009, Quadratic Polynomials Learn Better Image Features
    """

    formula = "x / (1 + abs(x))"


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


class LogSigmoid(Pointwise):
    """y = -ln(1 + e^-x), which neither overflows nor cuts small values off.

    Shapes    x (any) -> y the same
    Source    the logarithm of Sigmoid; PyTorch's LogSigmoid
    """

    formula = "logsigmoid(x)"


class SoftPlus(Pointwise):
    """y = ln(1 + e^(beta x)) / beta, which neither overflows nor cuts small values off.

    Shapes    x (any) -> y the same
    Source    Dugas, Bengio, Belisle, Nadeau, Garcia 2001, Incorporating Second-Order Functional Knowledge, eq. 4
    """

    formula = "softplus(x)"
    settings = ({}, {"beta": 0.3})

    def __init__(self, beta: Positive = 1.0, name=None):
        if beta == 1:
            super().__init__(name)
        else:
            super().__init__(name, "softplus(beta * x) / beta", beta=beta)


class PRelu(Module):
    """y = x if x > 0 else slope x, with a learned slope for each channel

    With `sharedMaps`, or without `maps`, there is one slope for all.

    Shapes    x (n, maps, *spatial), slope (maps,) -> y as x; with one for all x (any), slope (1,)
    Source    He, Zhang, Ren, Sun 2015, arXiv:1502.01852, eq. 1, slopes starting from 0.25; PuzzleLib's PRelu
    Raises    ShapeError if x has another number of channels
    """

    reads = ("x", "slope")
    needsFloats = True

    def __init__(self, maps: Count | None = None, sharedMaps: Flag = False, name=None):
        super().__init__(name)
        self.sharedMaps = sharedMaps or maps is None
        self.slope = Param((1 if sharedMaps or maps is None else maps,), 0.25)

    def dataShapeFrom(self, x):
        (maps,) = self.slope.shape
        fits = self.sharedMaps or len(x) >= 2 and x[1] == maps
        need(fits, f"(n, {maps}, *spatial)", x, channelHint(x, maps))
        return x

    def updateData(self, x, slope):
        return rectified(x, x, self.broadcasting(slope, x))

    def updateGrad(self, grad, x, slope, y, needs):
        gx, gslope = rectified(grad, x, self.broadcasting(slope, x)), None
        if needs[1]:
            terms = np.where(x > 0, 0, grad * x)
            rows, axes = (terms.reshape(terms.size, 1), 0) if self.sharedMaps else (terms, overMaps(x))
            gslope = total(rows, axes).astype(slope.dtype, copy=False)
        return gx, gslope

    def broadcasting(self, slope, x):
        """The slopes in a shape that broadcasts with x."""
        return slope.reshape(()) if self.sharedMaps else perMap(slope, x)

    @classmethod
    def examples(cls):
        yield cls(3), [(2, 3)]
        yield cls(2), [(3, 2, 2, 1)]
        yield cls(4, sharedMaps=True), [(4,)]
        yield cls(), [(2, 3)]


@widened
def rectified(values, x, slope):
    """Return the values where x > 0, and slope times the values elsewhere."""
    return np.where(x > 0, values, slope * values)
