"""Sigmoid: from 0 to 1."""

from puregraph.pointwise import Pointwise


class Sigmoid(Pointwise):
    """y = 1 / (1 + e^-x)

    Shapes    x (any) -> y the same
    Source    Rumelhart, Hinton, Williams 1986, Nature 323, eq. 2
    """

    gives = "probabilities"
    formula = "sigmoid(x)"
