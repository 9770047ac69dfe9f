"""The base of operations on booleans."""

from puregraph.base.dtype import BOOL, inferredType
from puregraph.pointwise import Pointwise


class _Logic(Pointwise):
    @property
    def masks(self):
        return self.arguments

    def dataTypeFrom(self, *dtypes):
        inferredType(self, dtypes)
        return BOOL

    def sample(self, rng, *shapes):
        return [rng.random(shape) < 0.5 for shape in shapes]

    @classmethod
    def examples(cls):
        count = len(cls().arguments)
        yield cls(), [(2, 3)] * count
        yield cls(), [(4, 1, 3), (2, 1)][:count]
