"""LeakyRelu: a small slope for negative inputs."""

from puregraph.arguments import Number
from puregraph.pointwise import Pointwise


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
