"""Tanh: from -1 to 1."""

from puregraph.pointwise import Pointwise


class Tanh(Pointwise):
    """y = tanh x = (e^x - e^-x) / (e^x + e^-x)

    Shapes    x (any) -> y the same
    Source    LeCun, Bottou, Orr, Mueller 1998, Efficient BackProp, section 4.4
    """

    formula = "tanh(x)"
