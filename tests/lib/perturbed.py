"""PerturbedArray: stands in for an array in a rule, and moves the last bits of all that the rule computes from it."""

import copy

import numpy as np

from puregraph.autodiff.derivatives.ruletape import RuleValue
from puregraph.core.tracer import Tracer, method
from puregraph.ops.formula.interpreter import Interpreter, select
from puregraph.ops.kernel import Kernel, useFast

EXACT = {np.maximum, np.minimum, np.fmax, np.fmin, np.positive, np.negative, np.absolute, np.copysign, np.sign}
EXACT |= {np.floor, np.ceil, np.trunc, np.rint, np.maximum.reduce, np.minimum.reduce, np.where, select}
ROUNDING = {np.einsum, np.dot, np.sum, np.mean, np.var, np.std, np.prod, np.cumsum, np.trace}


class PerturbedArray(Tracer):
    """An array and the noise that each rounded result gets: operations of numpy, of formulas, and Kernels.

    What only moves or chooses elements is exact, and composite kernels are seen through.
    """

    __slots__ = ("noise", "value")
    __hash__ = None
    __eq__, __pos__ = method(np.equal), method(np.positive)

    def __init__(self, value, noise):
        self.value, self.noise = value, noise

    @property
    def shape(self):
        return self.value.shape

    @property
    def dtype(self):
        return self.value.dtype

    @property
    def base(self):
        return self.value.base

    @property
    def itemsize(self):
        return self.value.itemsize

    @property
    def nbytes(self):
        return self.value.nbytes

    def __array__(self, dtype=None, copy=None):
        return np.array(self.value, dtype)

    def __setitem__(self, key, new):
        self.value[key] = plain(new)

    def handle(self, function, arguments, options):
        arguments, options = plain(arguments), plain(options)
        if isinstance(function, Interpreter):
            return self.wrapped(self.noisily(function)(*arguments))
        with useFast(False):
            found = function(*arguments, **options)
        isRounded = self.isRounded(function) and options.get("out") is None
        return self.wrapped(perturbed(found, self.noise) if isRounded else found)

    def isRounded(self, function):
        """Whether a function's results are rounded."""
        of = getattr(function, "__self__", function)  # a ufunc's `reduce`
        return function not in EXACT and (isinstance(of, (np.ufunc, Kernel)) or function in ROUNDING)

    def noisily(self, function):
        """A formula each of whose operations has noise in its result."""
        found = copy.copy(function)
        found.direct = False
        found.steps = [(f if f in EXACT else self.moving(f), names, target) for f, names, target in function.steps]
        return found

    def moving(self, function):
        """An operation with noise in its result."""
        return lambda *given: perturbed(function(*given), self.noise)

    def wrapped(self, value):
        """Results that stand in for arrays again."""
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.wrapped, value))
        return PerturbedArray(value, self.noise) if isinstance(value, (np.ndarray, np.generic)) else value


def perturbed(value, noise):
    """Floats, alone or in lists, with noise in them; some subnormal ones are 0, as native code has them."""
    if isinstance(value, (list, tuple)):
        return type(value)(perturbed(v, noise) for v in value)
    if isinstance(value, RuleValue) or getattr(value, "dtype", np.dtype(int)).kind != "f":
        return value
    factors = noise(value)
    moved = np.asarray(value * factors, value.dtype)
    moved[(factors < 1) & (np.abs(moved) < np.finfo(moved.dtype).tiny)] = 0
    return moved


def plain(value):
    """The arrays that PerturbedArrays stand in for."""
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    return value.value if isinstance(value, PerturbedArray) else value
