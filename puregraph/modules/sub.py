"""Sub: the difference of two inputs."""

from puregraph.pointwise import Pointwise


class Sub(Pointwise):
    """y = a - b, element by element; shapes broadcast as numpy's do.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Sub
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a - b"

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (2, 3)]
        yield cls(), [(2, 1), (4, 1, 3)]
        yield cls(), [(), (2,)]
