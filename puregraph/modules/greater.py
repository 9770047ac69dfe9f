"""Greater: where one input is larger than another."""

from puregraph.modules.comparison import _Comparison


class Greater(_Comparison):
    """y = (a > b), element by element, as booleans; exact for integers, and without a gradient.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Greater
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a > b"
