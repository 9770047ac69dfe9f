"""Einsum: sums of products of any number of arrays, by naming their axes."""

from puregraph.arguments import Text
from puregraph.core.shape import product
from puregraph.errors import ArgumentError, need
from puregraph.kernels.einsum import contract, spread
from puregraph.module import Module


class Einsum(Module):
    """y[k] = sum over i of x1[i1] x2[i2] ..., where letters name axes: Einsum("ij,jk->ik") is the matrix product

    A letter that the output lacks is summed over; one that an input has twice is its diagonal. Without `->`
    the output has, in alphabetical order, the letters that occur only once. The gradient of an input is itself such a
    sum, of the output's gradient with all other inputs, broadcast along axes that only this input has.

    Shapes    as many as there are groups of letters, equal wherever letters are -> a size for each letter after `->`
    Source    the NumPy reference, numpy.einsum; Laue, Mitterreiter, Giesen 2020, A Simple and Efficient Tensor Calculus
    Raises    ArgumentError for an equation that is none; ShapeError if the inputs do not fit it
    """

    reads = ("xs",)
    keepsDtype = True

    def __init__(self, equation: Text, name=None):
        super().__init__(name)
        self.inputLetters, self.output = parts(equation)

    def sizes(self, shapes):
        """The size of each letter."""
        groups = self.inputLetters
        wanted = ", ".join(f"({', '.join(letters)})" for letters in groups)
        fits = len(shapes) == len(groups) and all(len(s) == len(letters) for s, letters in zip(shapes, groups))
        need(fits, f"inputs of shapes {wanted}", list(shapes), f"the equation has {len(groups)} inputs")
        found = {}
        for shape, letters in zip(shapes, groups):
            for size, letter in zip(shape, letters):
                need(found.setdefault(letter, size) == size, f"one size for {letter} in {wanted}", list(shapes))
        return found

    def dataShapeFrom(self, *xs):
        sizes = self.sizes(xs)
        return tuple(sizes[letter] for letter in self.output)

    def updateData(self, *xs):
        return contract(f"{','.join(self.inputLetters)}->{self.output}", *xs)

    def updateGrad(self, grad, *values, needs):
        return tuple([self.gradient(grad, values[:-1], i) if wanted else None for i, wanted in enumerate(needs)])

    def gradient(self, grad, xs, i):
        """The gradient of input i: of its distinct letters, then onto the diagonal of those that it has twice."""
        own, x = self.inputLetters[i], xs[i]
        others = [self.output, *self.inputLetters[:i], *self.inputLetters[i + 1 :]]
        distinct = dict.fromkeys(own)
        found = [letter for letter in distinct if any(letter in letters for letters in others)]
        dx = contract(f"{','.join(others)}->{''.join(found)}", grad, *xs[:i], *xs[i + 1 :])
        shape = [x.shape[own.index(letter)] if letter in found else 1 for letter in distinct]
        return spread(dx.reshape(shape), own, x.shape)

    def flopsFrom(self, *xs):
        return len(self.inputLetters) * product(self.sizes(xs).values())

    @classmethod
    def examples(cls):
        yield cls("ij,jk->ik"), [(2, 3), (3, 4)]
        yield cls("ij->i"), [(2, 3)]
        yield cls("ii->i"), [(3, 3)]
        yield cls("bij,bjk,k"), [(2, 3, 4), (2, 4, 2), (2,)]
        yield cls("iji,j->"), [(3, 2, 3), (2,)]
        yield cls("ij->ji"), [(2, 3)]


def parts(equation):
    """The letters of each input, and of the output.

    Raises    ArgumentError for anything else than letters, commas and one arrow
    """
    text = equation.replace(" ", "") if isinstance(equation, str) else ""
    left, arrow, output = text.partition("->")
    groups = left.split(",")
    letters = "".join(groups)
    if not arrow:
        output = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    plain = text and text.isascii() and all(not group or group.isalpha() for group in (*groups, output))
    if not plain or len(set(output)) < len(output) or not set(output) <= set(letters):
        raise ArgumentError(
            f"Einsum: wanted letters for the axes of each input, as in 'ij,jk->ik', after -> each at most once "
            f"and of those before, got {equation!r}"
        )
    return groups, output
