"""Not: where the input is false."""

from puregraph.modules.logic import _Logic


class Not(_Logic):
    """y = (not a), element by element, of booleans.

    Shapes    a (any) -> y the same
    Source    ONNX operator Not
    Raises    DtypeError for anything but booleans
    """

    formula = "not a"
