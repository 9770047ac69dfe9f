"""Relu: the positive part."""

from puregraph.pointwise import Pointwise


class Relu(Pointwise):
    """y = max(x, 0); its derivative at 0 is 0.

    Shapes    x (any) -> y the same
    Source    Nair, Hinton 2010, Rectified Linear Units Improve Restricted Boltzmann Machines, section 2
    """

    gives = "no negatives"
    formula = "relu(x)"
