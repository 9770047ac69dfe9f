"""The base of comparisons of two inputs."""

from puregraph.pointwise import Pointwise


class _Comparison(Pointwise):
    def sample(self, rng, *shapes):
        return [rng.integers(-1, 2, shape).astype("float64") for shape in shapes]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (2, 3)]
        yield cls(), [(2, 1), (4, 1, 3)]
        yield cls(), [(), (2,)]
