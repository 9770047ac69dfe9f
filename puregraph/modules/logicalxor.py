"""Xor: where one of two inputs is true, and not both."""

from puregraph.modules.logic import _Logic


class Xor(_Logic):
    """y = (a != b), element by element, of booleans.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Xor
    Raises    ShapeError if the shapes do not broadcast; DtypeError for anything but booleans
    """

    formula = "a != b"
