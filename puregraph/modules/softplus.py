"""SoftPlus: a smooth positive part."""

from puregraph.pointwise import Pointwise


class SoftPlus(Pointwise):
    """y = ln(1 + e^x), which neither overflows nor cuts small values off.

    Shapes    x (any) -> y the same
    Source    Dugas, Bengio, Belisle, Nadeau, Garcia 2001, Incorporating Second-Order Functional Knowledge, eq. 4
    """

    formula = "softplus(x)"
